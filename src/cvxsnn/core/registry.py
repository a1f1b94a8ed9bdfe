"""Registries: the kinds of something that are known by name."""

from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

from .errors import InvalidInputError

T = TypeVar("T")


class Registry(Mapping[str, T]):
    """Values known by name, in the order in which they were registered.

    Parameters
    ----------
    what : str
        What the values are, for error messages: "loss", "solver".
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._values: dict[str, T] = {}

    def register(self, name: str, value: T) -> T:
        """Add a value under a new name, and return it."""
        if name in self._values:
            raise InvalidInputError(
                f"expected a new name for a {self._what}, got {name!r}, which is registered already"
            )
        self._values[name] = value
        return value

    def unregister(self, name: str) -> None:
        """Remove a value, for example one that a test has registered."""
        del self._values[name]

    def find(self, name: Any) -> T:
        """Return the value of that name; one sentence lists the names if there is none."""
        if not isinstance(name, str) or name not in self._values:
            known = ", ".join(map(repr, self._values))
            raise InvalidInputError(f"expected {self._what} to be one of {known}, got {name!r}")
        return self._values[name]

    def __getitem__(self, name: str) -> T:
        """Return the value of that name."""
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        """Go through the names."""
        return iter(self._values)

    def __len__(self) -> int:
        """Return the number of values."""
        return len(self._values)
