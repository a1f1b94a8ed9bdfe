"""Arguments in all benchmarks; contenders and benchmarks whose numbers are records, on tiny data."""

import ast
import importlib
import inspect
import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

import benchmarks
from benchmarks import defaults_peers
from benchmarks.defaults_peers import CONTENDERS
from benchmarks.defaults_tasks import Data
from benchmarks.delayed_training import DelayedNetwork, TrainedLayer, TrainingOptions, train
from benchmarks.echo_state import LEADERBOARD, EchoStateNetwork
from benchmarks.forecasting import Forecaster, Settings
from benchmarks.lines import add_line, read_lines
from benchmarks.records_surrogate import METHODS, Bench, Case, Effort, build, draw_settings, group_of, patch
from cvxsnn.data.tasks import digits_seq, mackey_glass, smape
from cvxsnn.witnesses import delayed_witnesses


def value_of(node, module):
    """Return what a dotted name in a module means there; None if a function may have defined it."""
    if isinstance(node, ast.Name):
        return getattr(module, node.id, None)
    owner = value_of(node.value, module) if isinstance(node, ast.Attribute) else None
    return getattr(owner, node.attr) if isinstance(owner, (type, ModuleType)) else None


def check_call(call, module, passed_on=()):
    """Raise a TypeError if a function of ours does not accept the arguments of a call, and those that it passes on."""
    target, arguments = value_of(call.func, module), call.args
    is_complete = True
    if target is partial:
        target, arguments, is_complete = value_of(arguments[0], module), arguments[1:], False
    is_ours = callable(target) and target.__module__.startswith(("cvxsnn", "benchmarks."))
    if not is_ours or (isinstance(target, type) and issubclass(target, Exception)):
        return
    named = dict.fromkeys((*passed_on, *(keyword.arg for keyword in call.keywords if keyword.arg)))
    for keyword in call.keywords:
        if keyword.arg is None:
            mapping = value_of(keyword.value, module)
            named |= dict.fromkeys(mapping if isinstance(mapping, dict) else ())
            is_complete = is_complete and isinstance(mapping, dict)
    placed = [own for own in arguments if not isinstance(own, ast.Starred)]
    signature = inspect.signature(target)
    bind = signature.bind if is_complete and placed == arguments else signature.bind_partial
    bound = bind(*placed, **named).arguments
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD and target.__module__.startswith("benchmarks."):
            inside = ast.parse(inspect.getsource(target))
            for inner in (own for own in ast.walk(inside) if isinstance(own, ast.Call)):
                if any(own.arg is None and ast.unparse(own.value) == parameter.name for own in inner.keywords):
                    check_call(inner, inspect.getmodule(target), bound.get(parameter.name, ()))


@pytest.mark.parametrize("path", sorted(Path(benchmarks.__file__).parent.glob("[!_]*.py")), ids=lambda path: path.stem)
def test_arguments_in_benchmarks_exist(path):
    module = importlib.import_module(f"benchmarks.{path.stem}")
    for call in ast.walk(ast.parse(path.read_text())):
        if isinstance(call, ast.Call):
            try:
                check_call(call, module)
            except TypeError as error:
                pytest.fail(f"{path.name}:{call.lineno}: {ast.unparse(call)}: {error}")


@pytest.mark.filterwarnings("ignore")  # of other libraries, as in the benchmark
@pytest.mark.parametrize("name", ["default", "gaussian", "gaussian-2", "surrogate", "reservoir", "logistic"])
def test_contenders_learn(name, monkeypatch):
    for effort in ("EPOCHS", "STEPS"):
        monkeypatch.setattr(defaults_peers, effort, 5)
    inputs, labels = np.random.default_rng(0).normal(size=(40, 10, 2)), np.arange(40) % 2
    inputs += labels[:, None, None]
    data = CONTENDERS[name].prepare(Data(inputs, labels, inputs, labels))
    try:
        fitted = CONTENDERS[name].fit(data.X, data.y, 0, 1)
    except ModuleNotFoundError as missing:
        pytest.skip(f"needs {missing.name}")
    assert np.mean(fitted.predict(data.X_test) == labels) > 0.8


def test_lines_that_were_changed_or_cut_off_are_not_read(tmp_path):
    path = tmp_path / "records.jsonl"
    for number in range(3):
        add_line(path, {"number": number, "score": 0.5})
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], lines[1].replace("0.5", "0.9"), lines[2][:20]]))
    add_line(path, {"number": 3, "score": [1.0]})
    assert [own["number"] for own in read_lines(path)] == [0, 3]
    assert "checksum" in json.loads(path.read_text().splitlines()[-1])


def small_case(depth, n_windows=1):
    """Digits in four steps."""
    return Case(
        "digits",
        lambda: digits_seq(n_steps=4),
        {"history": [(1.0, {"fan_in": None})] if depth == 2 else [(0.5, {"fan_in": None}), (0.5, {"fan_in": 8})]},
        neurons=(24,),
        effort=Effort(n_settings=2, n_kept=1, short=1, long=2, batch_size=50),
        sampled=[(1.0, {"fan_in": None})],
        n_sampled=0 if depth == 2 else 16,
        lower=(12,) if depth == 2 else (0,),
        n_windows=n_windows,
        scored=100,
    )


@pytest.mark.parametrize(("depth", "n_windows"), [(1, 2), (2, 1)])
def test_trained_neurons_with_exact_spikes_score_as_in_training(depth, n_windows, tmp_path):
    case = small_case(depth, n_windows)
    bench = Bench(case, "cpu", tmp_path / "records.jsonl")
    setting = draw_settings(case)[0]
    setting = replace(setting, taps="history", neurons=24, lower=12 if depth == 2 else 0, n_delays=2)
    network = build(case, bench.task, setting, 0, "cpu")
    before = network.score(bench.val.inputs, bench.val.labels)[0]
    options = TrainingOptions(epochs=3, batch_size=50, learning_rate=0.02)
    result = train(network, bench.train.inputs, bench.train.labels, (bench.val.inputs, bench.val.labels), options)
    assert result.validation > before + 0.2
    network.eval()
    weight, intercept = network.readout()
    ours = bench.features(network.witnesses(), bench.val.inputs) @ weight + intercept
    with torch.no_grad():
        theirs = network(bench.val.inputs)
    assert (ours.argmax(-1) == theirs.argmax(-1)).double().mean() > 0.99
    assert (ours - theirs).abs().median() < 1e-4


@pytest.mark.parametrize("depth", [1, 2])
def test_records_of_surrogate_gradients_are_complete_certified_and_made_once(depth, tmp_path):
    path = tmp_path / "records.jsonl"
    case = small_case(depth)
    Bench(case, "cpu", path).run((0,))
    records = read_lines(path)
    tests = {own["method"]: own for own in records if own["kind"] == "test"}
    has_more = digits_seq(n_steps=4).finetune is not None
    expected = {own for own in METHODS if (own != "SG-SG" or has_more) and (own != METHODS[-1] or depth == 1)}
    assert set(tests) == expected
    assert all(0 <= own["gap"] <= 1e-6 for name, own in tests.items() if name.startswith("SG-CVX"))
    assert tests["SG-CVX"]["scores"]["all 10,000"] > 0.4
    assert len([own for own in records if own["kind"] == "tuning"]) == 3
    Bench(case, "cpu", path).run((0,))
    assert read_lines(path) == records


def test_nothing_is_begun_after_the_deadline(tmp_path):
    Bench(small_case(1), "cpu", tmp_path / "records.jsonl", deadline=0.0).run((0,))
    assert read_lines(tmp_path / "records.jsonl") == []


def test_layers_with_a_leak_are_not_trained_as_if_they_had_none():
    inputs = torch.randn(20, 5, 3, generator=torch.Generator().manual_seed(0))
    (layer,) = delayed_witnesses(inputs, (4,), fan_in=2, decay=0.5).layers
    with pytest.raises(ValueError, match="without leak"):
        DelayedNetwork([layer], inputs, 2)


def test_patches_are_parts_of_an_image_that_is_read_pixel_by_pixel():
    inputs = np.random.default_rng(0).normal(size=(20, 784, 1)).astype(np.float32)
    layer = TrainedLayer(group_of(8, inputs, patch(3, 4), seed=0))
    assert sorted(layer.delay.tolist()) == [28 * row + column for row in range(3) for column in range(4)]
    assert layer.mask is None
    read = layer.read(torch.from_numpy(inputs))
    assert read[2, 100].tolist() == [float(inputs[2, 100 - delay, 0]) for delay in layer.delay.tolist()]
    assert read[2, 10][layer.delay > 10].abs().max() == 0


def test_forecasts_of_integrators_are_certified_and_good():
    task = mackey_glass(17, start=40.0, n_train=300, n_test=20)
    model = Forecaster(task.train, Settings(window=12, n_neurons=100, n_steps=16), seed=0)
    assert model.solution.certificate.relative_gap <= 1e-6
    forecast = model.forecast(20)  # which compares itself with the network
    assert smape(forecast, task.test) < smape(np.full(20, task.train[-1]), task.test) / 2
    weak = model.with_strength(10.0)
    assert weak.solution.problem.l2_strength == 10.0
    assert smape(weak.forecast(20), task.test) > smape(forecast, task.test)


def test_the_footprint_of_a_forecaster_is_that_of_neurobench():
    pytest.importorskip("neurobench", exc_type=ImportError)
    from cvxsnn.exchange.neurobench import NeuroBenchForecaster, leaderboard_row

    task = mackey_glass(17, n_train=150, n_test=2)
    model = Forecaster(task.train, Settings(window=6, n_neurons=20, n_steps=8), seed=0)
    wrapped = NeuroBenchForecaster(
        model.network,
        task.train[:-1],
        window=6,
        encode=lambda known: model.currents(known[:, :, 0].numpy()),
        standard=(float(task.train.mean()), float(task.train.std())),
    )
    shown = np.append(task.train[-1], task.test[:-1])[:, None, None]
    row, costs = leaderboard_row("", wrapped, shown, task.test[:, None], metric="SMAPE"), model.costs()
    assert row.score == pytest.approx(smape(model.forecast(2), task.test), rel=1e-6)
    assert (row.footprint, row.dense, row.effective_macs) == (costs["bytes"], costs["dense"], costs["macs"])
    assert row.connection_sparsity == pytest.approx(costs["connection_sparsity"])


def test_the_echo_state_network_is_that_of_the_leaderboard():
    model = EchoStateNetwork(mackey_glass(17, n_train=60).train, LEADERBOARD, seed=0)
    costs = model.costs()
    assert (costs["bytes"], round(costs["connection_sparsity"], 3)) == (281_248, 0.876)
    assert len(model.forecast(5)) == 5
