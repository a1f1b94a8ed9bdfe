import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from theory.families import SEEDS

from cvxsnn.theory.lif_family import middle_of_cell


def distances(normals, fires, points):
    """How far points are from the nearest wall of a cell, inside it; negative outside."""
    values = points @ normals.T / np.linalg.norm(normals, axis=1)
    return np.where(fires, values, -values).min(1)


@settings(max_examples=30)
@given(SEEDS, st.integers(2, 3), st.booleans())
def test_no_point_of_the_unit_cube_is_farther_from_all_walls(seed, dimension, has_wall):
    rng = np.random.default_rng(seed)
    normals = rng.integers(-9, 10, (5, dimension))
    normals[0] = np.eye(dimension, dtype=int)[0]  # the shortest of all
    normals = normals[normals.any(1)]
    inside = rng.uniform(-1, 1, dimension)
    inside[-1] = abs(inside[-1]) if has_wall else -abs(inside[-1])
    fires = normals @ inside >= 0
    point = middle_of_cell(normals.astype(object), fires, has_wall)
    assert abs(point).max() <= 1 + 1e-9
    assert not has_wall or point[-1] >= 0
    others = rng.uniform(-1, 1, (2000, dimension))
    others[:, -1] = abs(others[:, -1]) if has_wall else others[:, -1]
    found, best = (
        distances(normals, fires, point[None])[0],
        distances(normals, fires, np.vstack((others, inside))).max(),
    )
    assert found > 0
    assert min(found, 1.0) >= min(best, 1.0) - 1e-9


def test_events_that_no_parameter_changes_are_no_walls():
    normals, fires = np.array([[0, 0], [1, 0], [0, -1]], dtype=object), np.array([True, True, True])
    assert middle_of_cell(normals, fires, False) == pytest.approx([1, -1])
    assert middle_of_cell(normals[:2], fires[:2], True)[0] == pytest.approx(1)


def test_a_cell_without_an_inner_point_has_no_middle():
    normals = np.array([[1, 0], [2, 0]], dtype=object)
    assert middle_of_cell(normals, np.array([True, False]), False) is None
    assert middle_of_cell(np.array([[0, 1]], dtype=object), np.array([False]), True) is None
    assert middle_of_cell(np.array([[0, 1]], dtype=object), np.array([False]), False) is not None
