"""Run the benchmarks named on the command line, or all of them."""

import argparse
import importlib
import sys

from .measure import console, describe_machine

BENCHMARKS = (
    "rollout",
    "dictionary",
    "memory",
    "scale",
    "probabilities",
    "kernels",
    "pools",
    "cluster",
    "defaults",
    "device",
    "families",
    "features",
    "few_neurons",
    "forecasting",
    "witnesses",
    "quantisation",
    "exchange",
    "global_worth",
    "gpu",
    "small",
    "out_of_core",
    "readouts",
    "regression",
    "delays",
    "delays_rates",
    "delays_surrogate",
    "records_surrogate",
    "elastic",
    "solvers",
    "sparsity",
    "ucr",
    "methods",
    "versions",
)


def main() -> None:
    """Print the machine's facts, then one table for each benchmark."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=f"any of {', '.join(BENCHMARKS)}; all by default")
    if sys.argv[1:2] in (
        ["defaults"],
        ["delays"],
        ["delays_rates"],
        ["delays_surrogate"],
        ["elastic"],
        ["forecasting"],
        ["global_worth"],
        ["records_surrogate"],
        ["small"],
        ["solvers"],
        ["ucr"],
        ["methods"],
        ["versions"],
    ):  # these take options: solvers --help
        console.print(describe_machine())
        importlib.import_module(f"benchmarks.{sys.argv[1]}").main(sys.argv[2:])
        return
    names = parser.parse_args().names or BENCHMARKS
    if unknown := set(names) - set(BENCHMARKS):
        parser.error(f"expected names among {', '.join(BENCHMARKS)}, got {', '.join(sorted(unknown))}")
    console.print(describe_machine())
    for name in names:
        importlib.import_module(f"benchmarks.{name}").main()


main()
