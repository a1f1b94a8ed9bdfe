"""Read-outs of layers of any precision and scale: the certificate is about the weights that the model holds.

The objective is computed again from the layer's own weights and inputs, in decimal numbers.
"""

import copy
from decimal import Decimal, localcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from cvxsnn import reconstruct_readout
from cvxsnn.core.errors import CvxsnnError

from .exact import DIGITS, ONE, ExactHead, ExactProblem, by_columns, decimals
from .harness import Finding, Hunt
from .strangers import Step

_TYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_EXACT, _AGREEMENT = Decimal("1e-60"), Decimal("1e-9")


class Net(nn.Module):
    """Spikes, or their counterpart in real numbers, and a linear layer, whose outputs may drive neurons."""

    def __init__(self, rng: np.random.Generator, n_outputs: int, dtype: torch.dtype) -> None:
        super().__init__()
        n_hidden = int(rng.integers(2, 7))
        self.hidden = nn.Linear(3, n_hidden)
        self.neurons = Step() if rng.integers(4) else nn.ReLU()
        self.out = nn.Linear(n_hidden, n_outputs, bias=bool(rng.integers(4)))
        self.after = Step() if not rng.integers(4) else None
        with torch.no_grad():
            for value in self.parameters():
                value.copy_(torch.from_numpy(rng.normal(size=tuple(value.shape))))
        self.to(dtype)

    def features(self, x: Tensor) -> Tensor:
        """Return what the linear layer reads."""
        features: Tensor = self.neurons(self.hidden(x))
        return features

    def forward(self, x: Tensor) -> Tensor:
        """Return outputs."""
        output: Tensor = self.out(self.features(x))
        return output if self.after is None else self.after(output)


def case(rng: np.random.Generator, folder: Path) -> str:
    """Solve for one read-out, and recompute what is said of it."""
    torch.set_num_threads(1)
    n_samples, n_steps, n_outputs = int(rng.integers(8, 20)), int(rng.integers(1, 4)), int(rng.integers(1, 4))
    dtype = _TYPES[rng.integers(len(_TYPES))]
    inputs = torch.from_numpy(rng.normal(size=(n_samples, n_steps, 3))).to(dtype)
    scale, net = float(10 ** rng.uniform(-6, 6)), Net(rng, n_outputs, dtype)
    options: dict[str, Any] = {"readout": str(rng.choice(["mean", "last"])), "layout": "stepped", "seed": 0}
    is_real = bool(rng.integers(3))
    if is_real:
        targets: Any = scale * rng.normal(size=(n_samples, n_outputs))
        options["loss"] = "squared"
    else:
        n_classes = max(2, n_outputs)
        targets, scale = rng.permutation(np.arange(n_samples) % n_classes), 1.0
        options["loss"] = str(
            rng.choice(["squared", "hinge", "squared_hinge", "logistic"] + ["softmax"] * (n_outputs > 1))
        )
    if rng.integers(2):  # weights that are hard to beat, beside a strong penalty
        _tolerant(lambda: reconstruct_readout(net, inputs, targets, **options, l1_strength=1e-9 * scale))
    options["l1_strength"] = scale * float(10 ** rng.uniform(-5, 0))
    options["penalty"] = str(rng.choice(["l1", "group", "elastic-net", "group-elastic-net"]))
    if "net" in options["penalty"]:
        options |= {"l2_strength": float(10 ** rng.uniform(-4, 2)), "centre": bool(rng.integers(2))}
    if not rng.integers(4):
        options["l1_strength"] = "auto"
    before = copy.deepcopy(net)
    told = f"{net}, {dtype}, targets of {scale:.3g}, {options}"
    result = _tolerant(lambda: reconstruct_readout(net, inputs, targets, **options))
    if result is None:
        if not all(map(torch.equal, net.state_dict().values(), before.state_dict().values())):
            raise Finding(f"{told}: refused, and the model has changed")
        return "refused"
    if not result.has_changed and not torch.equal(net.out.weight, before.out.weight):
        raise Finding(f"{told}: the weights are said to be kept, and have changed")
    _check(result, net, before, inputs, targets, options, told)
    return f"{str(dtype).removeprefix('torch.')}, {'replaced' if result.has_changed else 'kept'}"


def _check(
    result: Any, net: Net, before: Net, inputs: Tensor, targets: Any, options: dict[str, Any], told: str
) -> None:
    with torch.no_grad():
        steps = torch.stack([net.features(inputs[:, t]).double() for t in range(inputs.shape[1])])
    columns = (steps[-1] if options["readout"] == "last" else steps.mean(0)).numpy()
    problem, loss = result.solution.problem, options["loss"]
    weight, bias = _held(net.out, result.scale, result.shift)
    row_weight = [ONE / len(inputs)] * len(inputs)
    with localcontext(DIGITS):
        exact = ExactProblem(
            by_columns(columns),
            row_weight,
            [ExactHead(loss, ONE, by_columns(_encode(targets, loss, len(weight))))],
            "group" in options["penalty"],
            net.out.bias is not None,
            Decimal(problem.l1_strength),
            Decimal(problem.l2_strength),
        )
        rows, coef = [decimals(own) for own in weight], decimals(bias)
        objective = exact.objective(rows, coef)
        loss_alone = objective - exact.penalty(rows)
        if options.get("centre"):
            centre, _ = _held(before.out, 1.0, 0.0)
            pairs = zip(weight.ravel(), centre.ravel(), strict=True)
            squares = [(Decimal(w) - Decimal(c)) ** 2 - Decimal(w) ** 2 for w, c in pairs]
            objective += Decimal(problem.l2_strength) * sum(squares) / 2
        certificate, optimum = result.certificate, result.solution.certificate
        primal, dual = Decimal(certificate.primal), Decimal(certificate.dual)
        stated = f"{told}: {certificate!r}, and the layer's weights have {objective:.20g}; solution {optimum!r}"
        if not objective * (1 - _EXACT) <= primal * (1 + _AGREEMENT / 1000):
            raise Finding(f"objective too low: {stated}")
        if primal - objective > _AGREEMENT * objective:
            raise Finding(f"objective too high: {stated}")
        if not certificate.gap >= 0 or dual > min(objective, Decimal(optimum.primal)) * (1 + _AGREEMENT / 1000):
            raise Finding(f"bound too high: {stated}")
        if abs(Decimal(result.after.loss) - loss_alone) > _AGREEMENT * (loss_alone + objective):
            raise Finding(f"loss {result.after.loss!r}, and it is {loss_alone:.20g}: {stated}")
    if str(certificate) not in str(result).splitlines():
        raise Finding(f"{stated}; printed: {result}")


def _held(layer: nn.Linear, scale: float, shift: float) -> tuple[np.ndarray, np.ndarray]:
    """Return weights and bias of a layer in float64, without scale and shift."""
    weight = layer.weight.detach().double()
    bias = weight.new_zeros(len(weight)) if layer.bias is None else layer.bias.detach().double()
    return (weight / scale).numpy(), ((bias - shift) / scale).numpy()


def _encode(targets: np.ndarray, loss: str, n_outputs: int) -> np.ndarray:
    """Return targets as a loss reads them."""
    if targets.dtype.kind == "f":
        return targets
    if n_outputs == 1:
        return 2.0 * targets[:, None] - 1
    is_class = targets[:, None] == np.arange(n_outputs)
    return 1.0 * is_class if loss in ("softmax", "squared") else 2.0 * is_class - 1


def _tolerant(call: Any) -> Any:
    """Return the result of a call, or None if it has refused in one sentence."""
    try:
        return call()
    except CvxsnnError as error:
        if "\n" in str(error) or not str(error):
            raise Finding(f"expected one sentence, got {str(error)!r}") from error
        return None


HUNT = Hunt(
    "readouts",
    "Read-outs of layers of any precision and scale, certificates recomputed from the layer's own weights.",
    case,
    cases=3_000,
    short=30,
    seconds=60.0,
)
