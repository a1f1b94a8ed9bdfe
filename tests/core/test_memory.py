from pathlib import Path

import pytest
import torch

from cvxsnn import ConvexProblem, build_dictionary, solve
from cvxsnn.convex.linear import GRAM_COPIES, gram_bytes
from cvxsnn.convex.solvers.newton import HESSIAN_COPIES, hessian_bytes, loss_hessian
from cvxsnn.core import memory
from cvxsnn.core.errors import BudgetError
from cvxsnn.core.memory import available_bytes, check_fits, format_bytes

SHAPES = [(1, 1), (8, 3), (64, 5), (65, 7), (500, 33)]


def random_dictionary(n_rows, n_columns):
    """Distinct columns, as binary numbers would be in the first rows."""
    generator = torch.Generator().manual_seed(0)
    return build_dictionary(torch.rand(n_rows, n_columns, generator=generator) < 0.5)


@pytest.mark.parametrize(("n_rows", "n_columns"), SHAPES)
def test_dense_and_gram_bytes_are_those_of_the_arrays(n_rows, n_columns):
    dictionary = random_dictionary(n_rows, n_columns)
    columns, gram = dictionary.columns(), dictionary.gram()
    assert memory.dense_bytes(*dictionary.shape) == columns.numel() * columns.element_size()
    assert memory.symmetric_bytes(dictionary.n_atoms) == gram.numel() * gram.element_size()
    assert gram_bytes(dictionary.n_atoms) == GRAM_COPIES * gram.numel() * gram.element_size()


@pytest.mark.parametrize("n_outputs", [1, 3])
def test_hessian_bytes_are_those_of_the_array(n_outputs):
    dictionary = random_dictionary(40, 6)
    targets = torch.rand(40, n_outputs, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    problem = ConvexProblem(dictionary, targets, "squared")
    atoms = torch.arange(dictionary.n_atoms)
    place, outputs = atoms.repeat(n_outputs), torch.arange(n_outputs).repeat_interleave(len(atoms))
    curvature = torch.ones(40, n_outputs, dtype=torch.float64)
    hessian = loss_hessian(problem, curvature, atoms, place, outputs)
    assert memory.symmetric_bytes(len(place)) == hessian.numel() * hessian.element_size()
    assert hessian_bytes(len(place)) == HESSIAN_COPIES * hessian.numel() * 8


def test_what_fits_is_let_through_and_small_arrays_are_not_looked_at(monkeypatch):
    monkeypatch.setattr(memory, "available_bytes", lambda device: 2**30)
    check_fits(2**30, "cpu", "a matrix")
    monkeypatch.setattr(memory, "available_bytes", lambda device: pytest.fail("looked"))
    check_fits(2**20, "cpu", "a matrix")


def test_a_system_that_does_not_tell_refuses_nothing(monkeypatch):
    monkeypatch.setattr(memory, "available_bytes", lambda device: None)
    check_fits(2**60, "cpu", "a matrix")


def test_a_refusal_is_one_sentence_with_the_numbers_and_a_remedy(monkeypatch):
    monkeypatch.setattr(memory, "available_bytes", lambda device: 2**30)
    with pytest.raises(BudgetError) as refusal:
        check_fits(3 * 2**30, "cpu", "a Gram matrix", "use fewer witnesses")
    assert str(refusal.value) == (
        "expected a Gram matrix to fit into the memory of cpu, but it needs 3 GiB and 1 GiB are available: "
        "use fewer witnesses"
    )


@pytest.mark.parametrize(("available", "share"), [(160 * 2**30, 2**30), (2**30, 2**26), (0, 2**20), (None, 2**30)])
def test_blocks_on_a_small_gpu_are_small(monkeypatch, available, share):
    monkeypatch.setattr(memory, "available_bytes", lambda device: available)
    assert memory.share_of(torch.device("cuda"), 2**30) == share


def test_a_gram_matrix_and_a_hessian_that_do_not_fit_are_refused(monkeypatch):
    monkeypatch.setattr(memory, "available_bytes", lambda device: 2**10)
    monkeypatch.setattr(memory, "NEGLIGIBLE", 0)
    targets = torch.rand(40, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    for loss, array in (("squared", "the Gram matrix of"), ("logistic", "the Hessian over")):
        problem = ConvexProblem(random_dictionary(40, 30), targets if loss == "squared" else targets.round(), loss)
        with pytest.raises(BudgetError, match=f"expected {array} .* to fit into the memory of cpu"):
            solve(problem.with_strength(0.01 * problem.critical_strength))


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


MEMINFO = {"proc/meminfo": "MemTotal:  100 kB\nMemAvailable:   80 kB\n"}


def test_available_memory_is_the_systems(tmp_path):
    assert available_bytes("cpu", write(tmp_path, MEMINFO)) == 80 * 1024


def test_available_memory_without_a_list_is_that_of_the_pages(tmp_path, monkeypatch):
    monkeypatch.setattr("os.sysconf", {"SC_PHYS_PAGES": 10, "SC_PAGE_SIZE": 4096}.__getitem__)
    assert available_bytes("cpu", tmp_path) == 40_960


def test_the_tightest_control_group_counts_and_its_file_cache_does_not(tmp_path):
    group = "sys/fs/cgroup"
    files = MEMINFO | {
        "proc/self/cgroup": "0::/job/task\n",
        f"{group}/job/memory.max": "50000\n",
        f"{group}/job/memory.current": "30000\n",
        f"{group}/job/memory.stat": "anon 20000\ninactive_file 10000\n",
        f"{group}/job/task/memory.max": "max\n",
        f"{group}/job/task/memory.current": "30000\n",
        f"{group}/job/task/memory.stat": "inactive_file 10000\n",
    }
    assert available_bytes("cpu", write(tmp_path, files)) == 30_000


def test_control_groups_of_the_first_version_count_inside_containers(tmp_path):
    group = "sys/fs/cgroup/memory"
    files = MEMINFO | {
        "proc/self/cgroup": "3:cpu,cpuacct:/x\n4:memory:/docker/abc\n0::/\n",
        f"{group}/memory.limit_in_bytes": "20000\n",
        f"{group}/memory.usage_in_bytes": "5000\n",
        f"{group}/memory.stat": "total_inactive_file 1000\n",
    }
    assert available_bytes("cpu", write(tmp_path, files)) == 16_000


def test_this_machine_has_some_memory():
    assert available_bytes() > 2**20


@pytest.mark.parametrize(
    ("n_bytes", "text"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (2**30, "1 GiB"), (2**52, "4,096 TiB")]
)
def test_bytes_are_written_for_people(n_bytes, text):
    assert format_bytes(n_bytes) == text
