import weakref

import numpy as np
import pytest
import torch
from exchange.readout.strangers import (
    N_CLASSES,
    N_FEATURES,
    Looped,
    accuracy,
    draw_data,
    draw_static,
    static_data,
    unharmed,
)
from tolerances import REFITTED
from torch.utils.data import DataLoader, IterableDataset, Subset, TensorDataset

from cvxsnn import InvalidInputError, reconstruct_readout

NET = {"penalty": "elastic-net"}


class Stream(IterableDataset):
    """Samples without a length."""

    def __init__(self, inputs, classes):
        self.inputs, self.classes = inputs, classes

    def __iter__(self):
        return iter(zip(self.inputs, self.classes, strict=True))


LOADERS = {
    "shuffled": lambda data: DataLoader(TensorDataset(*data), 16, shuffle=True),
    "in order": lambda data: DataLoader(TensorDataset(*data), 25),
    "subset": lambda data: DataLoader(Subset(TensorDataset(*data), range(len(data[0]))), 16),
    "stream": lambda data: DataLoader(Stream(*data), 16),
    "list of batches": lambda data: [(data[0][:30], data[1][:30]), [data[0][30:].numpy(), data[1][30:].tolist()]],
}


@pytest.mark.parametrize("kind", LOADERS)
def test_a_loader_gives_what_the_arrays_give(kind):
    data = draw_data()
    whole = reconstruct_readout(Looped(), *data, l1_strength=0.01)
    model = Looped()
    own = accuracy(model, *data)
    result = reconstruct_readout(model, LOADERS[kind](data), l1_strength=0.01)
    assert result.before.accuracy == result.before.model_accuracy == own
    assert result.after.accuracy == result.after.model_accuracy == accuracy(model, *data)
    assert result.before.loss == pytest.approx(whole.before.loss, rel=REFITTED)
    assert result.after.loss == pytest.approx(whole.after.loss, rel=REFITTED)


def test_a_loader_with_a_strength_to_choose_is_deterministic():
    data = draw_data()
    loader = DataLoader(TensorDataset(*data), 16, shuffle=True)
    weights = [reconstruct_readout(Looped(), loader).model.out.weight for _ in range(2)]
    assert torch.equal(*weights)


def test_a_loader_is_held_a_batch_at_a_time():
    class Watching:
        """Batches that are seen to go."""

        def __iter__(self):
            for start in range(0, 60, 6):
                batch = inputs[start : start + 6].clone()
                alive.append(weakref.ref(batch))
                assert sum(own() is not None for own in alive) <= 3  # the first, the last, and this
                yield batch, classes[start : start + 6]

    (inputs, classes), alive, told = draw_data(), [], []
    reconstruct_readout(Looped(), Watching(), callback=lambda *news: told.append(news))
    assert ("recording", 10, 10) in told
    assert len(alive) > 20


@pytest.mark.parametrize("view", [lambda x: x[::-1], lambda x: np.asfortranarray(x)], ids=["reversed", "by columns"])
def test_arrays_that_torch_cannot_view_are_taken(view):
    inputs, classes = (own.numpy() for own in draw_data())
    given = view(inputs)
    given.flags.writeable = False
    result = reconstruct_readout(Looped(), given, classes)
    assert result.after.loss < result.before.loss


def bad_calls():
    inputs, classes = draw_data()
    nan, infinite = inputs.clone(), inputs.clone()
    nan[3, 0, 0], infinite[50, 1, 2] = torch.nan, torch.inf
    names = np.array(["a", "b", "c"])[classes]
    good = [(inputs[:30], classes[:30]), (inputs[30:], classes[30:])]
    return {
        "no targets": ((inputs,), {}, "expected targets y"),
        "unequal lengths": ((inputs, classes[:-1]), {}, "60 samples and 59 targets"),
        "no samples": ((inputs[:0], classes[:0]), {}, "at least one sample"),
        "one number for targets": ((inputs, 3), {}, "60 samples and 0 targets"),
        "not a number": ((nan, classes), {}, "finite inputs"),
        "infinite": ((infinite.numpy(), classes), {}, "finite inputs"),
        "not a number in a loader": (([good[0], (nan, classes)],), {}, "finite inputs"),
        "objects": ((np.array([None] * 60), classes), {}, "inputs to be real numbers, got .*: convert them first"),
        "names in a loader": (([(["a", "b"], [0, 1])],), {}, "inputs to be real numbers, got .*: convert them first"),
        "list beside targets": ((inputs.tolist(), classes), {}, "array or a tensor with targets y, got list"),
        "loader and targets": ((good, classes), {}, "leave y out"),
        "string labels": ((inputs, names), {}, "LabelEncoder"),
        "object labels": ((inputs, names.astype(object)), {}, "LabelEncoder"),
        "label too high": ((inputs, classes + 1), {}, "classes from 0 to 2"),
        "label below zero": ((inputs, classes - 1), {}, "classes from 0 to 2.*got -1 to 1"),
        "one class": ((inputs, torch.zeros_like(classes)), {}, "at least two classes"),
        "real targets of another width": ((inputs, inputs[:, 0, :2]), {}, "3 finite targets"),
        "real targets that are not finite": ((inputs, nan[:, 0, :3]), {}, "3 finite targets"),
        "real targets with softmax": ((inputs, inputs[:, 0, :3]), {"loss": "softmax"}, "one integer per sample"),
        "generator": (((own for own in good),), {}, "more than once.*got generator"),
        "iterator": ((iter(good),), {}, "more than once"),
        "empty loader": (([],), {}, "empty loader"),
        "batches of three": (([(inputs, classes, classes)],), {}, "batches \\(inputs, targets\\)"),
        "batches of tensors": ((DataLoader(inputs, 10),), {}, "batches \\(inputs, targets\\), got Tensor"),
        "batches by name": (([{"x": inputs, "y": classes}],), {}, "batches \\(inputs, targets\\), got dict"),
        "time before samples": (([(inputs.transpose(0, 1), classes)],), {}, "5 samples and 60 targets"),
        "a number": ((3,), {}, "got int"),
        "nothing": ((None,), {}, "got NoneType"),
        "sequences of several lengths": (([good[0], (inputs[30:, :3], classes[30:])],), {}, "5 and 3 steps"),
        "inputs of another type": ((inputs.double(), classes), {}, "float64 batch.*one device and type"),
        "inputs of another width": ((inputs[..., :3], classes), {}, "run on a"),
        "layout": ((inputs, classes), {"layout": "sideways"}, "expected layout"),
        "readout": ((inputs, classes), {"readout": "first"}, "expected readout"),
        "loss": ((inputs, classes), {"loss": "0-1"}, "expected loss"),
        "penalty": ((inputs, classes), {"penalty": "l2"}, "expected penalty"),
        "strength below zero": ((inputs, classes), {"l1_strength": -1.0}, "expected l1_strength"),
        "strength that is not a number": ((inputs, classes), {"l1_strength": float("nan")}, "expected l1_strength"),
        "strength in words": ((inputs, classes), {"l1_strength": "strong"}, "expected l1_strength"),
        "no strength": ((inputs, classes), {"l1_strength": None}, "expected l1_strength"),
        "zero strength": ((inputs, classes), {"l1_strength": 0}, "expected l1_strength to be a finite number above"),
        "squares of the L1 norm": ((inputs, classes), {"l2_strength": 0.1}, "expected l2_strength=0 for the penalty"),
        "squares below zero": ((inputs, classes), {**NET, "l2_strength": -1.0}, "expected l2_strength"),
        "squares without a number": ((inputs, classes), {**NET, "l2_strength": None}, "expected l2_strength"),
        "squares in words": ((inputs, classes), {**NET, "l2_strength": "strong"}, "expected l2_strength"),
        "no penalty": ((inputs, classes), {**NET, "l1_strength": 0, "l2_strength": 0}, "zero for both"),
        "tolerance": ((inputs, classes), {"tol": 0.0}, "expected tol"),
        "batch size": ((inputs, classes), {"batch_size": 0}, "batch_size"),
        "seed": ((inputs, classes), {"seed": -1}, "seed"),
        "decision that fails": ((inputs, classes), {"decide": lambda output: 1 / 0}, "ZeroDivisionError"),
        "decision of another shape": ((inputs, classes), {"decide": lambda output: output}, "for each of 60 samples"),
        "reset that fails": ((inputs, classes), {"reset": lambda model: model.nothing()}, "AttributeError"),
        "run that fails": ((inputs, classes), {"run": lambda model, batch: model()}, "TypeError"),
        "run that does not run": ((inputs, classes), {"run": lambda model, batch: batch}, "none that runs"),
        "layer that is not there": ((inputs, classes), {"layer": "nothing"}, "'hidden', 'out'.*got 'nothing'"),
    }


@pytest.mark.parametrize("what", bad_calls())
def test_what_cannot_be_is_said_in_one_sentence_and_the_model_is_unharmed(what):
    arguments, options, message = bad_calls()[what]
    model = Looped()
    with unharmed(model), pytest.raises(InvalidInputError, match=message) as caught:
        reconstruct_readout(model, *arguments, **options)
    assert "\n" not in str(caught.value)
    assert not str(caught.value).endswith(".")


def test_only_modules_are_models():
    with pytest.raises(InvalidInputError, match=r"expected a torch\.nn\.Module, got function"):
        reconstruct_readout(lambda x: x, *draw_data())


def test_bytes_of_spikes_are_refused_by_a_model_of_floats_in_one_sentence():
    spikes = torch.randint(0, 2, (12, N_FEATURES), dtype=torch.uint8)
    model = draw_static()
    with unharmed(model), pytest.raises(InvalidInputError, match="uint8 batch"):
        reconstruct_readout(model, spikes, torch.arange(12) % N_CLASSES)


def test_classes_that_do_not_occur_are_noted():
    (inputs, classes), model = static_data(n_classes=2), draw_static(5)
    result = reconstruct_readout(model, inputs, classes)
    assert "only 2 of 5 classes occur in the targets" in result.notes
    assert result.solution.has_converged
    with torch.no_grad():
        assert int(model(inputs).argmax(1).max()) < 2


@pytest.mark.parametrize("loss", ["logistic", "hinge", "squared_hinge"])
def test_one_against_the_rest_needs_every_class(loss):
    (inputs, classes), model = static_data(n_classes=2), draw_static(5)
    with unharmed(model), pytest.raises(InvalidInputError, match=f"all 5 classes for loss '{loss}'"):
        reconstruct_readout(model, inputs, classes, loss=loss)


@pytest.mark.parametrize("n_outputs", [1, 2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_real_targets_are_a_regression(n_outputs, dtype):
    inputs, _ = static_data()
    targets = inputs[:, :n_outputs].squeeze(1).to(dtype)
    result = reconstruct_readout(draw_static(n_outputs), inputs, targets)
    assert result.solution.problem.heads[0].loss.name == "squared"
    assert result.after.loss < result.before.loss
    assert result.after.accuracy is None
    assert result.after.model_accuracy is None
    assert result.notes == ()
