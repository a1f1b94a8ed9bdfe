"""Read-outs of other people's modules: what the library reads is what the module computes, and nothing else changes."""

import copy
import importlib.util
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from cvxsnn import reconstruct_readout
from cvxsnn.core.errors import CvxsnnError
from cvxsnn.core.libraries import import_library

from .harness import Finding, Hunt

_N_FEATURES, _N_HIDDEN, _N_CLASSES, _STRENGTH = 4, 8, 3, 0.01

_OUTPUTS = ("mean", "sum", "last", "steps", "list", "tuple", "probabilities", "neurons", "dictionary")

logging.getLogger("torch._library.triton").setLevel(logging.ERROR)  # SpikingJelly asks for a GPU's compiler


class Step(nn.Module):
    """Fires above zero and forgets."""

    def forward(self, x: Tensor) -> Tensor:
        """Return spikes."""
        return (x > 0).to(x.dtype)


class Leaky(nn.Module):
    """Keeps a membrane, a history and counters, some of which its reset forgets."""

    membrane: Tensor | None
    n_steps: Tensor

    def __init__(self, recurrent: bool) -> None:
        super().__init__()
        self.recurrent = nn.Linear(_N_HIDDEN, _N_HIDDEN, bias=False) if recurrent else None
        self.register_buffer("n_steps", torch.zeros(()))
        self.membrane, self.last, self.seen, self.table = None, None, [], {"n": 0}

    def reset(self) -> None:
        """Forget the membrane."""
        self.membrane = self.last = None

    def forward(self, x: Tensor) -> Tensor:
        """Return spikes."""
        drive = x if self.recurrent is None or self.last is None else x + self.recurrent(self.last)
        self.membrane = drive if self.membrane is None else 0.9 * self.membrane + drive
        self.last = (self.membrane > 0.5).to(x.dtype)
        self.membrane = self.membrane - 0.5 * self.last
        self.n_steps += 1
        self.seen.append(float(self.n_steps))
        self.table["n"] += 1
        return self.last


class Cell(nn.Module):
    """A cell of Norse, whose state it keeps by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = import_library("norse.torch", "norse").LIFCell()
        self.state = None

    def reset(self) -> None:
        """Forget the state."""
        self.state = None

    def forward(self, x: Tensor) -> Tensor:
        """Return spikes."""
        spikes, self.state = self.cell(20 * x, self.state)
        return spikes


def _snntorch() -> nn.Module:
    return import_library("snntorch", "snntorch").Leaky(beta=0.9, threshold=0.4, init_hidden=True)


def _spikingjelly() -> nn.Module:
    return import_library("spikingjelly.activation_based.neuron", "spikingjelly").LIFNode(tau=2.0, v_threshold=0.3)


_NEURONS: dict[str, Callable[[], nn.Module]] = {
    "step": Step,
    "leaky": lambda: Leaky(False),
    "recurrent": lambda: Leaky(True),
    "relu": nn.ReLU,
    "snntorch": _snntorch,
    "spikingjelly": _spikingjelly,
    "norse": Cell,
}


class Stranger(nn.Module):
    """Blocks of layers, neurons and other things, and a linear layer at the end, in one of many forms."""

    def __init__(self, rng: np.random.Generator) -> None:
        super().__init__()
        known = [name for name in _NEURONS if name not in _LIBRARIES or importlib.util.find_spec(name)]
        self.layout = str(rng.choice(["batch", "time-first", "stepped"]))
        self.form = str(rng.choice([own for own in _OUTPUTS if self.layout != "stepped" or own in ("mean", "tuple")]))
        blocks: list[nn.Module] = []
        self.kinds = [str(rng.choice(known)) for _ in range(rng.integers(1, 3))]
        for depth, kind in enumerate(self.kinds):
            blocks.append(nn.Linear(_N_HIDDEN if depth else _N_FEATURES, _N_HIDDEN))
            nn.init.normal_(blocks[-1].weight)
            if rng.integers(4) == 0:
                blocks.append(nn.BatchNorm1d(_N_HIDDEN))
            blocks.append(_NEURONS[kind]())
        if rng.integers(4) == 0:
            blocks.append(nn.Dropout(0.5))
        if rng.integers(6) == 0:
            shared = nn.Linear(_N_HIDDEN, _N_HIDDEN)
            blocks += [shared, Step(), shared, Step()]
        self.blocks = nn.ModuleList(blocks)
        if rng.integers(6) == 0:
            self.blocks[0].register_forward_hook(lambda module, given, output: 2 * output)
        self.out = nn.Linear(_N_HIDDEN, _N_CLASSES, bias=bool(rng.integers(3)))
        if rng.integers(6) == 0:
            self.out.register_forward_pre_hook(lambda module, given: (3 * given[0],))
        self.after = Leaky(False) if self.form == "neurons" else None
        self.generator = torch.Generator().manual_seed(1) if rng.integers(6) == 0 else None
        self.noise = 0.0
        self.log: list[Any] = [(torch.zeros(2), {"n": 0})]
        if rng.integers(8) == 0 and "snntorch" not in self.kinds:  # whose spikes are float32
            self.double()

    def one(self, x: Tensor) -> Tensor:
        """Return the outputs of one step."""
        self.log[0][0].add_(1)
        if self.generator is not None:
            self.noise = float(torch.rand(1, generator=self.generator))
        for block in self.blocks:
            x = block(x)
        return self.out(x)

    def forward(self, x: Tensor) -> Any:
        """Go through time, or one step."""
        if self.layout == "stepped":
            output = self.one(x)
            return (output, self.log) if self.form == "tuple" else output
        steps = [self.one(step) for step in (x.unbind(1) if self.layout == "batch" else x)]
        if self.after is not None:
            steps = [self.after(step) for step in steps]
        stacked = torch.stack(steps)
        return {
            "mean": lambda: stacked.mean(0),
            "sum": lambda: stacked.sum(0),
            "last": lambda: steps[-1],
            "steps": lambda: stacked,
            "list": lambda: steps,
            "tuple": lambda: (stacked, self.log),
            "probabilities": lambda: stacked.mean(0).softmax(1),
            "neurons": lambda: stacked.sum(0),
            "dictionary": lambda: {"logits": stacked.mean(0)},
        }[self.form]()


_LIBRARIES = ("snntorch", "spikingjelly", "norse")


def case(rng: np.random.Generator, folder: Path) -> str:
    """Solve for the read-out of one module."""
    seed = int(rng.integers(2**32))
    model, twin = (_draw(seed) for _ in range(2))
    n_samples, n_steps = int(rng.integers(12, 40)), int(rng.integers(2, 6))
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(n_samples, n_steps, _N_FEATURES, generator=generator).to(model.out.weight.dtype)
    classes = torch.arange(n_samples) % _N_CLASSES
    if rng.integers(3) == 0:
        _train(model, inputs, classes)
        _train(twin, inputs, classes)
    if rng.integers(4) == 0:
        model.eval()
    options: dict[str, Any] = {
        "layout": model.layout,
        "readout": "last" if model.form == "last" else "mean",
        "l1_strength": "auto" if rng.integers(10) == 0 else _STRENGTH,
        "penalty": "l1",
        "copy_model": bool(rng.integers(2)),
        "batch_size": int(rng.choice([5, 16, 128])),
        "decide": _decide if model.form == "dictionary" else None,
    }
    shape = f"{model.kinds}, {model.form}, {options}"
    spoiled = _spoil(rng, inputs, classes) if rng.integers(8) == 0 else None
    before, random = _photograph(model), torch.get_rng_state()
    try:
        result = reconstruct_readout(model, *(spoiled or (inputs, classes)), **options)
    except CvxsnnError as error:
        if "\n" in str(error) or len(str(error)) < 20:
            raise Finding(f"expected one sentence, got {str(error)!r} for {shape}") from error
        if spoiled is None:
            raise Finding(f"expected a solution, got {str(error)!r} for {shape}") from error
        _check_same(before, _photograph(model), (), shape)
        return "data refused"
    if not torch.equal(random, torch.get_rng_state()):
        raise Finding(f"expected the random numbers to go on as before for {shape}")
    _check_same(before, _photograph(model), () if options["copy_model"] else ("out",), shape)
    if spoiled is None:
        _check_numbers(result, twin, inputs, classes, shape)
    return "solved" if result.has_changed else "kept"


def _draw(seed: int) -> Stranger:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Stranger(np.random.default_rng(seed))


def _train(model: Stranger, inputs: Tensor, classes: Tensor) -> None:
    """Make one step of gradient descent, which leaves gradients, and states with a graph."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        outputs = _scores(_run(model.train(), inputs))
        loss = cross_entropy(outputs, classes) if outputs.requires_grad else sum(p.sum() for p in model.parameters())
        loss.backward()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.grad is not None:
                parameter.sub_(0.1 * parameter.grad)


def _run(model: Stranger, inputs: Tensor) -> Any:
    """Run a module by hand, from its initial state."""
    for module in model.modules():
        for name in ("reset_mem", "reset"):
            if hasattr(module, name):
                getattr(module, name)()
                break
    if model.layout == "stepped":
        return [model(step) for step in inputs.unbind(1)]
    return model(inputs if model.layout == "batch" else inputs.transpose(0, 1).contiguous())


def _scores(output: Any) -> Tensor:
    """Return scores (n_samples, n_classes) of whatever a module gives."""
    if isinstance(output, dict):
        output = output["logits"]
    while isinstance(output, tuple):
        output = output[0]
    if isinstance(output, list):
        output = torch.stack([own[0] if isinstance(own, tuple) else own for own in output])
    return output.sum(0) if output.ndim == 3 else output


def _decide(output: Any) -> Tensor:
    return _scores(output).argmax(1)


def _spoil(rng: np.random.Generator, inputs: Tensor, classes: Tensor) -> tuple[Any, Any]:
    """Return data with something wrong, or unusual, about them."""
    broken = inputs.clone()
    broken.view(-1)[0] = float(rng.choice([np.nan, np.inf, 1e30]))
    return [
        (broken, classes),
        (inputs, classes[:-1]),
        (inputs, classes + 5),
        (inputs, torch.zeros_like(classes)),
        (inputs, classes.numpy().astype(str)),
        (inputs.numpy(), classes.numpy()),
        (inputs[:0], classes[:0]),
        (inputs[:1], classes[:1]),
        (inputs[..., :-1], classes),
        (inputs.to(torch.int8), classes),
        (inputs, classes.double()),
        (inputs, torch.full((len(inputs), _N_CLASSES), 0.5)),
        (inputs, None),
        (None, classes),
        ([(inputs, classes)], None),
        (iter([(inputs, classes)]), None),
        (inputs.tolist(), classes.tolist()),
    ][rng.integers(17)]


def _check_numbers(result: Any, twin: Stranger, inputs: Tensor, classes: Tensor, shape: str) -> None:
    """Compare losses, accuracies and the objective with those of the same module run by hand."""
    twin.eval()
    loss, accuracy = _measure(twin, inputs, classes, result.readout)
    if abs(loss - result.before.loss) > 1e-4 * (1 + loss):
        raise Finding(f"expected a loss of {loss} before, got {result.before.loss} for {shape}")
    _check_accuracy("before", accuracy, result.before.model_accuracy, twin, len(classes), shape)
    twin.out.load_state_dict(result.model.out.state_dict())
    _, accuracy = _measure(twin, inputs, classes, result.readout)
    _check_accuracy("after", accuracy, result.after.model_accuracy, twin, len(classes), shape)
    with torch.no_grad():
        twin.out.weight.div_(result.scale)
        if twin.out.bias is not None:
            twin.out.bias.sub_(result.shift).div_(result.scale)
    loss, _ = _measure(twin, inputs, classes, result.readout)
    if abs(loss - result.after.loss) > 1e-4 * (1 + loss):
        raise Finding(f"expected a loss of {loss} after, got {result.after.loss} for {shape}")
    if result.has_changed:
        objective = loss + result.solution.problem.l1_strength * float(twin.out.weight.detach().double().abs().sum())
        if abs(objective - result.certificate.primal) > 1e-4 * (1 + objective):
            raise Finding(f"expected an objective of {objective}, got {result.certificate} for {shape}")


def _measure(model: Stranger, inputs: Tensor, classes: Tensor, readout: str) -> tuple[float, float]:
    """Return the loss of the layer's mean or last outputs, and the accuracy of the module's own decisions."""
    entered: list[Tensor] = []
    hook = model.out.register_forward_pre_hook(lambda module, given: entered.append(given[0].detach().clone()))
    with torch.no_grad():
        output = _run(model, inputs)
        hook.remove()
        read = torch.stack(entered).double()
        read = read[-1] if readout == "last" else read.mean(0)
        bias = None if model.out.bias is None else model.out.bias.double()
        loss = cross_entropy(nn.functional.linear(read, model.out.weight.double(), bias), classes)
        return float(loss), float((_scores(output).argmax(1) == classes).double().mean())


def _check_accuracy(
    when: str, expected: float, found: float | None, model: Stranger, n_samples: int, shape: str
) -> None:
    # Sums in another order decide ties of equal counts otherwise.
    if found is not None and abs(expected - found) > 1.5 / n_samples:
        raise Finding(f"expected an accuracy of {expected} {when}, got {found} for {shape}")


def _photograph(model: nn.Module) -> dict[str, Any]:
    """Return copies of all that a module holds, by the names of its parts."""

    def look(value: Any) -> Any:
        if isinstance(value, Tensor):
            return id(value), value.dtype, value.requires_grad, value.grad_fn is None, value.detach().clone().tolist()
        if isinstance(value, torch.Generator):
            return value.get_state().tolist()
        if isinstance(value, dict):
            return [(key, look(own)) for key, own in value.items()]
        if isinstance(value, (list, tuple)):
            return [look(own) for own in value]
        return copy.copy(value) if isinstance(value, (int, float, str, bool, type(None))) else id(value)

    return {
        f"{name}.{key}": look(value)
        for name, module in model.named_modules()
        for key, value in {**vars(module), "gradients": [p.grad for p in module.parameters(recurse=False)]}.items()
        if key != "_modules"
    }


def _check_same(before: dict[str, Any], after: dict[str, Any], changed: tuple[str, ...], shape: str) -> None:
    apart = {name for name in {*before, *after} if before.get(name) != after.get(name)}
    apart -= {name for name in apart if name.removesuffix("._parameters") in changed}
    if apart:
        raise Finding(f"expected a module that is as it was, got changes of {sorted(apart)} for {shape}")


HUNT = Hunt("strangers", "Read-outs of modules of other people.", case, cases=500, short=8, seconds=60.0)
