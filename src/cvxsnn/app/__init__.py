"""The application: command line, demo, planner, plots, pages, and the experiments of the paper."""
