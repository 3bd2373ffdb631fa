"""A window's range and slide on its axis, and the arithmetic of panes that follows.

Panes are half-open and numbered by floor(position / pane). A window starts at every multiple
of the slide plus the offset, as in Spark and Flink, and is named by the number of the pane it
ends before: window `end` covers the panes [end - length, end).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import gcd

MOST_PANES = 10_000_000  # in a window


@dataclass(frozen=True, order=True)
class WindowSpec:
    """In units of the axis. Without a pane, it is the largest one that fits the rest."""

    range: int
    slide: int
    offset: int = 0
    pane: int = 0

    def __post_init__(self) -> None:
        if not self.pane:
            object.__setattr__(self, "pane", gcd(self.range, self.slide, self.offset))

    @cached_property
    def key(self) -> str:
        """Names the kind of window whatever it is made of, the same in the next run."""
        return f"{self.range}/{self.slide}/{self.offset}"

    @property
    def length(self) -> int:
        """Panes in a window."""
        return self.range // self.pane

    @property
    def stride(self) -> int:
        """Panes between the starts of two windows."""
        return self.slide // self.pane

    @property
    def shift(self) -> int:
        """The first pane of some window, at or after pane 0."""
        return self.offset // self.pane % self.stride

    @property
    def overlap(self) -> int:
        """How many windows hold a pane, at most."""
        return -(-self.length // self.stride)

    def fits(self, pane: int) -> bool:
        """Whether windows start and end at the bounds of panes of this size."""
        return gcd(self.range, self.slide, self.offset) % pane == 0

    def first_end(self, pane: int) -> int:
        """The end of the earliest window that holds the pane."""
        return self._grid(pane - self.length) + self.stride + self.length

    def last_end(self, pane: int) -> int:
        """The end of the latest window that holds the pane."""
        return self._grid(pane) + self.length

    def ends(self, panes: Sequence[int], after: int | None, upto: int) -> list[int]:
        """The ends in `(after, upto]` of windows that hold one of the panes, both in order.

        Jumps over stretches without panes, and over panes without ends: one record with a wrong
        year costs nothing, nor does a long window of which little is new.
        """
        ends: list[int] = []
        if not panes:
            return ends
        end = self.first_end(panes[0]) if after is None else self.oldest_pane(after) + self.length
        at = bisect_left(panes, end - self.length)
        while at < len(panes) and (end := max(end, self.first_end(panes[at]))) <= upto:
            ends.extend(range(end, min(self.last_end(panes[at]), upto) + 1, self.stride))
            end = max(end, ends[-1] + self.stride) if ends else end
            at = bisect_left(panes, end - self.length, at + 1)
        return ends

    def oldest_pane(self, emitted: int) -> int:
        """The first pane of the earliest window that ends after `emitted`."""
        return self._grid(emitted - self.length) + self.stride

    def bounds(self, end: int) -> tuple[int, int]:
        return (end - self.length) * self.pane, end * self.pane

    def _grid(self, pane: int) -> int:
        """The last start of a window at or before the pane."""
        return (pane - self.shift) // self.stride * self.stride + self.shift


def on_one_grid(specs: Iterable[WindowSpec], divisor: int = 0) -> tuple[WindowSpec, ...]:
    """The same windows, all made of panes of one size: the largest that fits, or `divisor`."""
    specs = tuple(specs)
    if not specs:
        return ()
    pane = divisor or gcd(*(spec.pane for spec in specs))
    return tuple(replace(spec, pane=pane) for spec in specs)
