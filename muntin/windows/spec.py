"""A window's range and slide, in microseconds, and the arithmetic of panes that follows.

Panes are half-open and numbered by floor(position / pane). A window starts at every multiple
of the slide, as in Spark and Flink, and is named by the number of the pane it ends before:
window `end` covers the panes [end - length, end).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import gcd


@dataclass(frozen=True)
class WindowSpec:
    range_us: int
    slide_us: int

    @property
    def pane_us(self) -> int:
        return gcd(self.range_us, self.slide_us)

    @property
    def length(self) -> int:
        """Panes in a window."""
        return self.range_us // self.pane_us

    @property
    def step(self) -> int:
        """Panes between the starts of two windows."""
        return self.slide_us // self.pane_us

    def first_end(self, pane: int) -> int:
        """The end of the earliest window that holds the pane."""
        return ((pane - self.length) // self.step + 1) * self.step + self.length

    def last_end(self, pane: int) -> int:
        """The end of the latest window that holds the pane."""
        return pane // self.step * self.step + self.length

    def ends(self, panes: Iterable[int], after: int | None, upto: int) -> list[int]:
        """The ends in `(after, upto]` of windows that hold one of the panes, both in order.

        Jumps over stretches without panes: one record with a wrong year costs nothing.
        """
        found: list[int] = []
        next_end = None if after is None else self.oldest_pane(after) + self.length
        for pane in panes:
            first = self.first_end(pane)
            start = first if next_end is None else max(first, next_end)
            found.extend(range(start, min(self.last_end(pane), upto) + 1, self.step))
            next_end = found[-1] + self.step if found else next_end
        return found

    def oldest_pane(self, emitted: int) -> int:
        """The first pane of the earliest window that ends after `emitted`."""
        return ((emitted - self.length) // self.step + 1) * self.step

    def bounds_us(self, end: int) -> tuple[int, int]:
        return (end - self.length) * self.pane_us, end * self.pane_us
