import copy
import pickle

import pytest
from convex.problems import Kind
from tolerances import ROUNDING

from cvxsnn import solve
from cvxsnn.convex.solvers.active_set import weighted_gram


def test_strengths_share_a_workspace_and_solutions_and_copies_do_not_keep_it() -> None:
    problem = Kind("squared", intercept=True).draw(0)
    other = problem.with_strength(0.5 * problem.l1_strength)
    solution = solve(other, 1e-9)
    assert problem.row_workspace.has(weighted_gram)
    assert problem.workspace is other.workspace
    for kept in (solution.problem, pickle.loads(pickle.dumps(problem)), copy.deepcopy(problem)):
        assert not kept.row_workspace.has(weighted_gram)
    assert solve(solution.problem, 1e-9).certificate.primal == pytest.approx(solution.certificate.primal, rel=ROUNDING)
