"""The solvers of the convex program."""
