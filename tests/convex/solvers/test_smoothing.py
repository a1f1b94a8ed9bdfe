from convex.problems import Kind

from cvxsnn.convex.solvers.smoothing import is_smooth, smoothed


def test_smoothing_replaces_hinges_only() -> None:
    problem = Kind("hinge + squared_hinge").draw(0)
    assert not is_smooth(problem)
    smooth = smoothed(problem, 0.5)
    assert is_smooth(smooth)
    assert smooth.heads[1].loss is problem.heads[1].loss
