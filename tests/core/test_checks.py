"""Registries of named choices, and checks of settings."""

from dataclasses import dataclass

import pytest
from small_models import assert_one_sentence

from cvxsnn.core.checks import Registry, check_fields
from cvxsnn.core.errors import InvalidInputError


class Shape:
    """What the values of the registry derive from."""


class Circle(Shape):
    """A value."""


class Square(Shape):
    """Another value."""


class RoundedSquare(Square):
    """A subclass of a value that is not registered itself."""


@pytest.fixture
def shapes():
    registry = Registry("shape", Shape)
    registry.register("circle", Circle)
    registry.register("square", Square)
    return registry


def test_values_are_found_by_name_in_the_order_of_their_registration(shapes):
    assert dict(shapes) == {"circle": Circle, "square": Square}
    assert list(shapes) == ["circle", "square"]
    assert shapes.find("square") is shapes["square"] is Square
    assert shapes.register("rounded", RoundedSquare) is RoundedSquare
    assert len(shapes) == 3


def test_an_unregistered_value_is_gone_and_its_name_is_free(shapes):
    shapes.unregister("circle")
    assert "circle" not in shapes
    assert shapes.register("circle", Circle) is Circle


def test_a_value_belongs_to_instances_of_exactly_its_class(shapes):
    assert shapes.of(Square()) is Square
    shapes.register("rounded", RoundedSquare)
    assert shapes.of(RoundedSquare()) is RoundedSquare


def test_values_that_are_no_classes_name_theirs_in_an_attribute():
    class Model:
        def __init__(self, layer):
            self.layer = layer

    models = Registry("model", Model, kind="layer")
    circle = models.register("circle", Model(Circle))
    assert models.of(Circle()) is circle


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda shapes: shapes.find("line"), "expected shape to be one of 'circle', 'square', got 'line'"),
        (lambda shapes: shapes.find(7), "expected shape to be one of 'circle', 'square', got 7"),
        (lambda shapes: shapes.unregister("line"), "expected shape to be one of 'circle', 'square', got 'line'"),
        (lambda shapes: shapes.register("circle", Square), "new name for a shape, got 'circle'"),
        (lambda shapes: shapes.register("text", str), "expected a Shape for the shape 'text', got <class 'str'>"),
        (lambda shapes: shapes.register("text", "line"), "expected a Shape for the shape 'text', got 'line'"),
        (lambda shapes: shapes.of(RoundedSquare()), "registered shape .* got RoundedSquare, which is not"),
    ],
)
def test_misuse_is_one_sentence(shapes, call, message):
    with pytest.raises(InvalidInputError, match=message) as caught:
        call(shapes)
    assert_one_sentence(caught.value)


@dataclass
class Settings:
    n_steps: int = 3
    patience: int | None = None
    mode: str = "fast"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (Settings(n_steps=0), "expected n_steps to be a positive integer, got 0"),
        (Settings(n_steps=None), "expected n_steps to be a positive integer, got None"),
        (Settings(patience=1.5), "expected patience to be a positive integer, got 1.5"),
        (Settings(mode="slow"), "expected mode to be one of 'fast', 'exact', got 'slow'"),
    ],
)
def test_fields_of_settings_are_checked_together_and_only_optional_ones_may_be_none(settings, message):
    check_fields(Settings(), "n_steps", "patience", mode=("fast", "exact"))
    with pytest.raises(InvalidInputError, match=message):
        check_fields(settings, "n_steps", "patience", mode=("fast", "exact"))
