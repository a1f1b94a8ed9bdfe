"""Proofs over all neurons on the command line: kept in a file, shown as they close, stopped by Ctrl-C, and checked."""

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

from typer import Argument, Exit, Option

from ..core.errors import DataFileError
from ..core.formatting import plural, round_down, round_up
from ..core.progress import ProgressBar
from .common import command, console, say
from .data_files import Data
from .files import READ


@command
def check(
    certificate: Annotated[Path, Argument(help="A file that `cvxsnn certify --certificate` wrote."), READ],
    limit: Annotated[int | None, Option(min=1, help="Most operations on numbers; 10^10 by default.")] = None,
) -> None:
    """Check a proof over all neurons with a program that does not trust the library that wrote it.

    The status is 0 if the file proves its statement, 1 if it does not, and 2 if that could not be decided.
    """
    from ..theory import check_certificate

    if not certificate.is_file():
        raise DataFileError(f"expected a certificate file, got no file: {certificate}")
    # A process of its own with -I: neither this library nor the user's paths and variables can affect the verdict.
    checker = str(Path(check_certificate.__file__).resolve())
    command = [sys.executable, "-I", checker, str(certificate), *([] if limit is None else ["--limit", str(limit)])]
    with interruptible():  # the checker gets the signal, too, and says so
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    say(done.stdout.rstrip() or "NOT CHECKED: the checker ended without an answer")
    say(f"the checker is one file that you can read, copy and run by itself: {checker}")
    # A checker that was killed has decided nothing.
    raise Exit(done.returncode if done.stdout.strip() else 2)


def prove_in_file(
    path: Path, estimator: Any, primal: float, inputs: Any, samples: Data, seconds: float, tol: float
) -> Any:
    """Prove a lower bound over all neurons in a file, print the gap of a model to it, and return a better model.

    ``primal`` is the objective of the model, computed from the samples: what its file states may be forged.
    """
    from ..convex.certificate import Certificate, checked_certificate
    from ..network.reconstruction import Proof, reconstruct
    from ..theory.proving import prove_proof

    proof = estimator.proof_
    data = estimator.data_of_fit(inputs, samples.y, samples.weight)
    if path.exists():
        say(f"going on with {path}")
    with interruptible() as is_stopped, ProgressBar(console) as bar:

        def pulse(n_boxes: int, n_open: int) -> bool:
            if n_open:
                bar("boxes of neurons", n_boxes, n_boxes + n_open)
            return is_stopped.is_set()

        def tell(state: Any) -> None:
            gap = checked_certificate(Certificate(state.primal, state.dual, "complete")).relative_gap
            dual, primal = round_down(state.dual, 6), round_up(state.primal, 6)
            say(
                f"{state.seconds:6.1f} s: {dual:.6g} <= optimum <= {primal:.6g}, gap {round_up(100 * gap, 3):.3g} % "
                f"(goal {100 * tol:.3g} %), {plural(state.n_atoms, 'neuron')}, {plural(state.n_boxes, 'box', 'boxes')}"
            )

        bound = prove_proof(path, proof, data, tol=tol, max_seconds=seconds, callback=tell, pulse=pulse)
    certificate = Certificate(primal, bound.certificate.dual, "complete")
    say(f"this model: {checked_certificate(certificate)}")
    say(
        f"the best network found, of {plural(bound.solution.problem.dictionary.n_atoms, 'neuron')}: {bound.certificate}"
    )
    dual = round_down(bound.certificate.dual, 9)
    say(f"proven: no read-out of any {bound.family}, however many, has an objective below {dual:.9g}")
    if bound.certificate.relative_gap > tol:
        say("the proof is not finished: the same command goes on with it", "yellow")
    say("not proven: anything about other decays or delays, deeper networks, or new data")
    say(f"saved: {path}, which `cvxsnn check {path}` checks")
    return estimator.with_readout(reconstruct(bound.solution), Proof.of(bound.solution, proof.objective))


@contextmanager
def interruptible() -> Iterator[threading.Event]:
    """Let the first Ctrl-C set an event, so that work can end in order; the second interrupts as usual."""
    is_stopped = threading.Event()

    def stop(number: int, frame: FrameType | None) -> None:
        if is_stopped.is_set():
            raise KeyboardInterrupt
        is_stopped.set()

    if threading.current_thread() is not threading.main_thread():  # only the main thread gets signals
        yield is_stopped
        return
    before = signal.signal(signal.SIGINT, stop)
    try:
        yield is_stopped
    finally:
        signal.signal(signal.SIGINT, before)
