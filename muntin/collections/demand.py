"""How much something was asked for of late: a count that halves with every half-life."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

Asked = TypeVar("Asked", bound=Hashable)


class Demand(Generic[Asked]):
    """Counts by what was asked for. Time is what the caller says, and never goes back."""

    def __init__(self, half_life: float) -> None:
        self._half_life = half_life
        self._counts: dict[Asked, tuple[float, float]] = {}  # count, and when

    def note(self, asked: Iterable[Asked], now: float) -> None:
        """Each of these was asked for once more."""
        for each in asked:
            self._counts[each] = (self.of(each, now) + 1.0, now)

    def of(self, asked: Asked, now: float) -> float:
        count, then = self._counts.get(asked, (0.0, now))
        return float(count * 0.5 ** ((now - then) / self._half_life))

    def forget(self, asked: Asked) -> None:
        self._counts.pop(asked, None)
