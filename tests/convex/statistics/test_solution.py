import numpy as np
import pytest
import torch
from convex.statistics.streams import batches
from tolerances import ROUNDING

import cvxsnn as cs
from cvxsnn.convex import SquaredStatistics, gather_statistics, solve_statistics


@pytest.mark.parametrize(("l1_strength", "l2_strength"), [(0.01, 0.0), (0.01, 0.1), (0.0, 0.1)])
def test_network_rebuilt_from_statistics_gives_the_fitted_scores(witnesses, data, l1_strength, l2_strength):
    inputs, _ = data
    found = gather_statistics(witnesses, batches(data, 50))
    solution = solve_statistics(found, l1_strength, l2_strength=l2_strength, intercept=True)
    columns = cs.build_dictionary(witnesses, inputs).columns()
    expected = columns @ solution.coef + solution.intercept
    for form in ("compact", "parallel", "full"):
        network = cs.reconstruct(solution, form)
        torch.testing.assert_close(network(inputs).detach(), expected, rtol=0, atol=ROUNDING)
    plain = SquaredStatistics.of(cs.build_dictionary(np.eye(4, dtype=bool)), np.arange(4.0))
    with pytest.raises(cs.InvalidInputError, match="built from witnesses"):
        cs.reconstruct(solve_statistics(plain, 0.01))
