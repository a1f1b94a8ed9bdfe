import json
import re
from dataclasses import fields, replace

import pytest
from typer.testing import CliRunner

from cvxsnn import InvalidInputError
from cvxsnn.app import cli
from cvxsnn.app.planning import Cluster, check_plan, format_seconds, plan
from cvxsnn.app.rates import Rates, measure_rates
from cvxsnn.core.errors import BudgetError
from cvxsnn.core.memory import gram_bytes
from cvxsnn.dictionary.packed import dictionary_bytes

GB = 10**9
NAMES = [field.name for field in fields(Rates) if field.name not in ("device", "n_threads")]
RATES = Rates("cpu", 2, **dict.fromkeys(NAMES, 1e9))
JOB = {"rates": RATES, "memory": 8 * GB}


@pytest.fixture
def known_rates(monkeypatch):
    monkeypatch.setattr("cvxsnn.app.planning.measure_rates", lambda device: RATES)


def run(*arguments):
    return CliRunner().invoke(cli.app, ["plan", *map(str, arguments)])


def test_every_rate_of_this_machine_is_measured_and_finite():
    rates = measure_rates()
    assert all(0 < getattr(rates, name) < 1e18 for name in NAMES)
    assert rates.device == "cpu"


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


def test_a_job_that_fits_nowhere_is_refused_in_one_sentence():
    found = plan(10**6, 4000, 5, loss="hinge", **JOB)
    assert (found.place, found.fits) == ("nowhere", False)
    with pytest.raises(BudgetError, match=r"expected a job within 7\.45 GiB, but 1,000,000 rows .* need 1\d\d GiB"):
        check_plan(found)
    check_plan(plan(1000, 200, 5, **JOB))


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
    found = plan(100, 1024, 10, hidden=(256, 512), n_features=4, **JOB)
    n_updates = 100 * 10 * 2 * (256 + 512)
    n_macs = 100 * 10 * 2 * (4 * 256 + 256 * 512)
    assert found.seconds["roll-out"] == pytest.approx((n_updates + n_macs) / 1e9)


def test_cores_and_machines_share_what_can_be_shared():
    one = plan(10**5, 1024, 5, **JOB)
    wide = plan(10**5, 1024, 5, cluster=Cluster(1, n_cores=8), **JOB)
    assert wide.seconds["roll-out"] == pytest.approx(one.seconds["roll-out"] / 4)
    many = plan(10**5, 1024, 5, cluster=Cluster(10, n_cores=8), **JOB)
    assert many.seconds["dictionary"] == pytest.approx(one.seconds["dictionary"] / 40)
    assert one.seconds["solve"] / 40 < many.seconds["solve"] < wide.seconds["solve"]
    assert many.memory["dictionary"] == dictionary_bytes(10**4, 1024)
    assert many.place == "in memory on cpu, 10 machines of 8 cores"
    assert any("messages free" in sentence for sentence in many.assumptions)


def test_gpus_of_a_cluster_count_only_where_a_gpu_was_measured():
    one = plan(10**5, 1024, 5, **JOB | {"rates": replace(RATES, device="cuda")})
    four = plan(10**5, 1024, 5, cluster=Cluster(1, n_gpus=4), **JOB | {"rates": replace(RATES, device="cuda")})
    assert four.seconds["roll-out"] == pytest.approx(one.seconds["roll-out"] / 4)


def test_a_gpu_forms_larger_gram_matrices_and_takes_the_steps_of_all_outputs_at_once():
    here, there = (
        [plan(60_000, 16_384, 2, n_outputs=n, rates=replace(RATES, device=device), memory=100 * GB) for n in (1, 10)]
        for device in ("cpu", "cuda")
    )
    assert [found.solver for found in (*here, *there)] == ["newton", "newton", "active-set", "active-set"]
    assert there[1].memory["Gram matrix"] == gram_bytes(16_384)
    assert there[1].place == "in memory on cuda"
    assert there[0].memory["roll-out chunk"] > here[0].memory["roll-out chunk"]
    small, large = (
        plan(60_000, 4096, 2, n_outputs=n, rates=replace(RATES, device="cuda"), memory=100 * GB) for n in (1, 10)
    )
    assert large.seconds["solve"] < 10 * small.seconds["solve"]


def test_a_job_too_large_for_a_gpu_is_refused_in_one_sentence():
    found = plan(10**7, 16_384, 28, readout="mean", rates=replace(RATES, device="cuda"), memory=80 * GB)
    assert (found.place, found.fits) == ("nowhere", False)
    with pytest.raises(
        BudgetError, match=r"^expected a job within .* GiB, but .* need .* GiB with solver .*: use fewer"
    ):
        check_plan(found)


def test_a_plan_says_what_it_found_and_what_it_assumed():
    text = str(plan(1000, 200, 5, **JOB))
    for part in ("1,000 rows × 200 columns", "peak", "total", "runs in memory on cpu", "assumed: 40 active-set steps"):
        assert part in text


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"loss": "square"}, "expected loss to be one of"),
        ({"readout": "first"}, "expected readout to be one of"),
        ({"strength_ratio": 1.0}, "expected strength_ratio between 0 and 1"),
        ({"hidden": (8, 7)}, "divide 200 columns"),
        ({"n_features": 0}, "expected n_features to be a positive integer"),
        ({"memory": 0}, "expected memory to be a positive integer"),
        ({"n_samples": 0}, "expected n_samples to be a positive integer"),
    ],
)
def test_bad_arguments_are_refused(change, complaint):
    arguments = {"n_samples": 1000, "n_witnesses": 200, "n_steps": 5, **JOB} | change
    with pytest.raises(InvalidInputError, match=complaint):
        plan(**arguments)


def test_an_empty_cluster_is_refused():
    with pytest.raises(InvalidInputError, match="expected n_machines to be a positive integer"):
        Cluster(0)


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.0123, "12.3 ms"), (5, "5 s"), (600, "10 min"), (36_000, "10 h"), (10**6, "11.6 days")]
)
def test_times_are_written_for_people(seconds, text):
    assert format_seconds(seconds) == text


@pytest.mark.usefixtures("known_rates")
def test_the_command_prints_tables_and_json():
    sizes = ("--rows", 1000, "--columns", 200, "--steps", 5, "--memory", "8GB", "--device", "cpu")
    shown = run(*sizes)
    assert shown.exit_code == 0, shown.output
    assert re.search(r"dictionary .*25 KiB", shown.stdout)
    assert "runs in memory on cpu, solver active-set" in shown.stdout
    found = json.loads(run(*sizes, "--json").stdout)
    assert found["memory"]["dictionary"] == dictionary_bytes(1000, 200)
    assert found["available"] == 8 * GB
    assert found["total_seconds"] == pytest.approx(sum(found["seconds"].values()))


@pytest.mark.usefixtures("known_rates")
@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (("--loss", "cubic"), "expected loss to be one of"),
        (("--memory", "lots"), "expected an amount of memory such as 64GB"),
        (("--hidden", "a,b"), "expected widths such as 256,512"),
        (("--machines", 0), "expected n_machines to be a positive integer"),
        (("--device", "abacus"), "expected a device such as 'cpu', 'cuda' or 'auto'"),
    ],
)
def test_bad_options_are_one_sentence(options, complaint):
    outcome = run("--rows", 1000, "--columns", 200, "--steps", 5, *options)
    assert outcome.exit_code == 1
    assert complaint in outcome.stderr
    assert len(outcome.stderr.strip().splitlines()) == 1
