"""Speed and memory beside the alternatives, measured in one run: ``python -m benchmarks [name ...]``."""
