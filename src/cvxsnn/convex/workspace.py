"""What is computed from a problem's data once, and shared."""

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

Result = TypeVar("Result")


class Workspace:
    """Results of functions of a problem's data, each computed once.

    A problem has two: one that it shares with the same problem at other strengths, and one for what depends on the
    dictionary and the row weights alone, which it shares with other losses too. A solution keeps neither.
    """

    def __init__(self) -> None:
        self._results: dict[tuple[Hashable, ...], Any] = {}

    def get(self, function: Callable[..., Result], argument: Any, *key: Hashable) -> Result:
        """Return ``function(argument, *key)``, computed the first time that this function and key are asked for."""
        place = (function, *key)
        if place not in self._results:
            self._results[place] = function(argument, *key)
        result: Result = self._results[place]
        return result

    def has(self, function: Callable[..., Any]) -> bool:
        """Return whether the result of a function is there."""
        return (function,) in self._results

    def __reduce__(self) -> tuple[type["Workspace"], tuple[()]]:
        """Pickle and copy as an empty workspace."""
        return Workspace, ()
