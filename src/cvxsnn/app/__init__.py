"""The command line, the demo, the planner, plots and pages, and the experiments of the paper."""
