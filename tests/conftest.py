from hypothesis import settings

pytest_plugins = ["gpu_stand_in"]

# The same examples in every run, and no time limit for one: a slow machine is not a failed test.
settings.register_profile("cvxsnn", derandomize=True, deadline=None)
settings.load_profile("cvxsnn")
