from dataclasses import replace

import pytest

from cvxsnn import InvalidInputError
from cvxsnn.app.planning import plan
from cvxsnn.app.rates import Rates
from cvxsnn.convex.solvers.active_set import gram_bytes
from cvxsnn.dictionary.packed import dictionary_bytes

GB = 10**9
RATES = Rates("cpu", 2, neuron_macs=1e9, products=1e9, dense_macs=1e9)
JOB = {"rates": RATES, "memory": 8 * GB}


def test_a_small_job_runs_in_memory_with_the_solver_that_solve_would_take():
    assert plan(1000, 200, 5, **JOB).solver == "active-set"
    assert plan(1000, 20_000, 5, **JOB).solver == "newton"
    assert plan(1000, 200, 5, loss="softmax", n_outputs=10, **JOB).solver == "newton"
    found = plan(1000, 200, 5, loss="hinge", **JOB)
    assert (found.solver, found.place, found.fits) == ("interior-point", "in memory on cpu", True)


def test_memory_is_the_arithmetic_of_the_arrays():
    found = plan(1000, 300, 7, readout="mean", **JOB)
    assert found.memory["dictionary"] == dictionary_bytes(1000, 300, n_planes=3)
    assert found.memory["Gram matrix"] == gram_bytes(300)
    assert plan(1000, 300, 7, readout="all", **JOB).memory["dictionary"] == dictionary_bytes(7000, 300)


def test_a_dictionary_beyond_memory_is_read_from_disk():
    whole, streamed = plan(10**7, 4000, 5, **JOB | {"memory": 64 * GB}), plan(10**7, 4000, 5, **JOB)
    assert whole.place == "in memory on cpu"
    assert "disk" not in whole.seconds
    assert streamed.place == "out of core on cpu"
    assert streamed.peak < 8 * GB < whole.peak
    assert streamed.seconds["disk"] > 0


def test_a_job_that_fits_nowhere_says_so():
    found = plan(10**6, 4000, 5, loss="hinge", **JOB)
    assert (found.place, found.fits) == ("nowhere", False)
    assert found.peak > found.available == 8 * GB
    assert "runs nowhere, solver interior-point" in str(found)


@pytest.mark.parametrize("loss", ["squared", "logistic", "softmax", "hinge"])
def test_more_of_anything_never_takes_less(loss):
    base = {"n_samples": 2000, "n_witnesses": 512, "n_steps": 6, "n_features": 8, "n_outputs": 2}
    first = plan(**base, loss=loss, **JOB)
    for name in base:
        more = plan(**base | {name: 2 * base[name]}, loss=loss, **JOB)
        assert more.total_seconds >= first.total_seconds
        assert more.peak >= first.peak
    weaker = plan(**base, loss=loss, strength_ratio=0.001, **JOB)
    assert weaker.seconds["solve"] > first.seconds["solve"]


def test_known_active_atoms_replace_the_guess():
    times = [plan(10**4, 2000, 5, n_active=n_active, **JOB).seconds["solve"] for n_active in (10, 100, 1000)]
    assert times == sorted(times)
    assert "a guess" not in str(plan(1000, 200, 5, n_active=10, **JOB))


def test_the_roll_out_counts_the_layers_of_all_subnetworks():
    one, two, deep = (plan(100, n, 10, hidden=h, **JOB) for n, h in ((512, (512,)), (1024, (512,)), (512, (256, 512))))
    assert two.seconds["roll-out"] == pytest.approx(2 * one.seconds["roll-out"])
    assert deep.seconds["roll-out"] > 1.5 * one.seconds["roll-out"]


def test_machines_share_rows_and_time_but_not_the_quadratic_models():
    one, many = plan(10**5, 1024, 5, **JOB), plan(10**5, 1024, 5, n_machines=10, **JOB)
    assert many.seconds["dictionary"] == pytest.approx(one.seconds["dictionary"] / 10)
    assert one.seconds["solve"] / 10 < many.seconds["solve"] < one.seconds["solve"]
    assert many.memory["dictionary"] == dictionary_bytes(10**4, 1024)
    assert many.memory["Gram matrix"] == one.memory["Gram matrix"]
    assert many.place == "in memory on cpu, 10 machines"
    assert any("messages free" in sentence for sentence in many.assumptions)


def test_a_gpu_forms_larger_gram_matrices():
    here, there = (
        [plan(60_000, 16_384, 2, n_outputs=n, rates=replace(RATES, device=device), memory=100 * GB) for n in (1, 10)]
        for device in ("cpu", "cuda")
    )
    assert [found.solver for found in (*here, *there)] == ["newton", "newton", "active-set", "active-set"]
    assert there[1].memory["Gram matrix"] == gram_bytes(16_384)
    assert there[1].place == "in memory on cuda"
    assert there[0].memory["roll-out chunk"] > here[0].memory["roll-out chunk"]


def test_a_job_too_large_for_a_gpu_fits_nowhere():
    found = plan(10**7, 16_384, 28, readout="mean", rates=replace(RATES, device="cuda"), memory=80 * GB)
    assert (found.place, found.fits) == ("nowhere", False)


def test_a_plan_says_what_it_found_and_what_it_assumed():
    text = str(plan(1000, 200, 5, **JOB))
    for part in (
        "1,000 rows × 200 columns",
        "peak",
        "total",
        "runs in memory on cpu",
        "assumed: 40 active-set steps",
        "times may be several times off",
    ):
        assert part in text


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"loss": "square"}, "expected loss to be one of"),
        ({"readout": "first"}, "expected readout to be one of"),
        ({"strength_ratio": 1.0}, "expected strength_ratio between 0 and 1"),
        ({"hidden": (8, 7)}, "divide 200 witnesses"),
        ({"n_features": 0}, "expected n_features to be a positive integer"),
        ({"memory": 0}, "expected memory to be a positive integer"),
        ({"n_samples": 0}, "expected n_samples to be a positive integer"),
        ({"n_witnesses": 0}, "expected n_witnesses to be a positive integer"),
        ({"n_machines": 0}, "expected n_machines to be a positive integer"),
    ],
)
def test_bad_arguments_are_refused(change, complaint):
    arguments = {"n_samples": 1000, "n_witnesses": 200, "n_steps": 5, **JOB} | change
    with pytest.raises(InvalidInputError, match=complaint):
        plan(**arguments)
