import pytest
import torch

from cvxsnn import InvalidInputError
from cvxsnn.cli.plan import Job
from cvxsnn.cli.planning import ASSUMED, Rates, make_plan, measure_rates
from cvxsnn.core.memory import symmetric_bytes
from cvxsnn.dictionary.spikes import dictionary_bytes

GB = 10**9
RATES = Rates(roll_out=1e9, dense=1e9)
JOB = {"memory": "8GB", "device": "cpu"}


def plan(*sizes, **options):
    return make_plan(Job(*sizes, **options), RATES)


def test_memory_is_the_arithmetic_of_the_arrays():
    planned = plan(1000, 300, 7, readout="mean", **JOB)
    assert (planned.place, planned.fits) == ("in memory on cpu", True)
    assert planned.memory["dictionary"] == dictionary_bytes(1000, 300, "mean", 7)
    assert planned.memory["solver"] == symmetric_bytes(300)
    assert plan(1000, 300, 7, readout="all", **JOB).memory["dictionary"] == dictionary_bytes(7000, 300)
    assert plan(1000, 300, 7, loss="hinge", **JOB).memory["solver"] == symmetric_bytes(300) + 3 * 8 * 1000 * 300


def test_a_dictionary_beyond_memory_is_read_from_disk():
    whole, streamed = plan(10**7, 4000, 5, **JOB | {"memory": "64GB"}), plan(10**7, 4000, 5, **JOB)
    assert whole.place == "in memory on cpu"
    assert streamed.place == "out of core on cpu"
    assert streamed.peak < 8 * GB < whole.peak


def test_a_job_that_fits_nowhere_says_so():
    planned = plan(10**6, 4000, 5, loss="hinge", **JOB)
    assert (planned.place, planned.fits) == ("nowhere", False)
    assert planned.peak > planned.available == 8 * GB
    assert "runs nowhere" in str(planned)


@pytest.mark.parametrize("loss", ["squared", "logistic", "softmax", "hinge"])
def test_more_of_anything_never_takes_less(loss):
    base = {"rows": 2000, "columns": 512, "steps": 6, "features": 8, "outputs": 2}
    first = plan(**base, loss=loss, **JOB)
    for name in base:
        more = plan(**base | {name: 2 * base[name]}, loss=loss, **JOB)
        assert sum(more.seconds.values()) >= sum(first.seconds.values())
        assert more.peak >= first.peak


def test_known_active_atoms_replace_the_assumption():
    times = [plan(10**5, 20_000, 5, active=active, **JOB).seconds["solve"] for active in (10, 1000, None)]
    assert times == sorted(times)
    assert times[-1] == plan(10**5, 20_000, 5, active=ASSUMED.working_atoms, **JOB).seconds["solve"]


def test_the_roll_out_counts_the_layers_of_all_subnetworks():
    one, two, deep = (plan(100, n, 10, hidden=h, **JOB) for n, h in ((512, "512"), (1024, "512"), (512, "256,512")))
    assert two.seconds["roll-out"] == pytest.approx(2 * one.seconds["roll-out"])
    assert deep.seconds["roll-out"] > 1.5 * one.seconds["roll-out"]


def test_taps_take_time_and_memory_whatever_the_number_of_features():
    job = {"hidden": "256,512", **JOB}
    few, many = (plan(100, 1024, 10, taps=taps, **job) for taps in (4, 40))
    assert many.seconds["roll-out"] > 2 * few.seconds["roll-out"]
    assert plan(100, 1024, 10, taps=4, features=999, **job).seconds["roll-out"] == few.seconds["roll-out"]
    assert many.memory["synapses"] == 10 * few.memory["synapses"] == 36 * 40 * 2 * (256 + 512)
    assert many.peak - few.peak == many.memory["synapses"] - few.memory["synapses"]


def test_rates_are_measured():
    rates = measure_rates(torch.device("cpu"))
    assert all(0 < rate < 1e18 for rate in (rates.roll_out, rates.dense))


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"loss": "square"}, "expected --loss to be one of"),
        ({"readout": "median"}, "expected readout to be one of"),
        ({"hidden": "8,7"}, "divide 200 witnesses"),
        ({"features": 0}, "expected --features to be a positive integer"),
        ({"memory": "0"}, "expected an amount of memory"),
        ({"rows": 0}, "expected --rows to be a positive integer"),
        ({"columns": 0}, "expected --columns to be a positive integer"),
        ({"taps": 0}, "expected --taps to be a positive integer"),
    ],
)
def test_bad_arguments_are_refused(change, complaint):
    arguments = {"rows": 1000, "columns": 200, "steps": 5, **JOB} | change
    with pytest.raises(InvalidInputError, match=complaint):
        plan(**arguments)
