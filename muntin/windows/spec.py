"""A window's range and slide on its axis, and the arithmetic of panes that follows.

Panes are half-open and numbered by floor(position / pane). A window starts at every multiple
of the slide plus the offset, as in Spark and Flink, and is named by the number of the pane it
ends before: of one kind, no two windows end there.

Most kinds are regular: window `end` covers the panes [end - length, end). Others are not, and say
where a window starts. Windows of a calendar are so many days or months, which differ in length.
Those that cumulate start together and end one step after another, until their period is over.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import gcd

import numpy as np
from numpy.typing import NDArray

from muntin.windows.calendar import DAY_US, Calendar, grain

MOST_PANES = 10_000_000  # in a window
_MANY_ENDS = 64  # of windows that are asked for: then arrays are faster
Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class Units:
    """Range, slide and offset in days or months, and by what windows cumulate."""

    calendar: Calendar
    range: int
    slide: int
    offset: int = 0
    by: Calendar | None = None
    step: int = 0  # of these; of another calendar's, it is one


@dataclass(frozen=True)
class WindowSpec:
    """In units of the axis. Without a pane, it is the largest one that fits the rest.

    Of a calendar, range is what no window is longer than, and slide what is the least between two.
    """

    range: int
    slide: int
    offset: int = 0
    pane: int = 0
    step: int = 0
    """By how much windows cumulate."""
    units: Units | None = None

    def __post_init__(self) -> None:
        if not self.pane:
            object.__setattr__(self, "pane", self._largest_pane)

    @property
    def _largest_pane(self) -> int:
        if self.units is not None:
            return gcd(grain(self.units.calendar.zone), self.step)
        return gcd(self.range, self.slide, self.offset, self.step)

    @cached_property
    def key(self) -> str:
        """Names the kind of window whatever it is made of, the same in the next run."""
        step = f"/{self.step}" if self.step else ""
        if (of := self.units) is None:
            return f"{self.range}/{self.slide}/{self.offset}{step}"
        by = f"/{of.step} {of.by.unit}" if of.by is not None else step
        zone = f"{of.calendar.unit} {of.calendar.zone}"
        return f"{of.range}/{of.slide}/{of.offset} {zone}{by}"

    @cached_property
    def regular(self) -> bool:
        """Whether all windows are as long, and as far from the next."""
        return self.units is None and not self.cumulates

    @cached_property
    def cumulates(self) -> bool:
        return bool(self.step) or (self.units is not None and self.units.by is not None)

    @cached_property
    def length(self) -> int:
        """Panes in a window, at most."""
        return self.range // self.pane

    @cached_property
    def stride(self) -> int:
        """Panes between the starts of two windows that do not cumulate, at least."""
        return self.slide // self.pane

    @cached_property
    def shift(self) -> int:
        """The first pane of some window, at or after pane 0."""
        return self.offset // self.pane % self.stride

    @property
    def overlap(self) -> int:
        """How many windows hold a pane, at most."""
        if self.step:
            return -(-self.range // self.step)
        if self.units is None:
            return -(-self.length // self.stride)
        if self.units.by is not None:
            return -(-self.range // DAY_US) if self.units.by.unit == "day" else self.units.range
        return -(-self.units.range // self.units.slide)

    @property
    def apart(self) -> bool:
        """Whether no pane is in two windows."""
        return self.overlap == 1

    @property
    def leaves_out(self) -> bool:
        """Whether some panes are in no window."""
        if self.units is not None:
            return self.units.range < self.units.slide
        return self.range < self.slide

    def fits(self, pane: int) -> bool:
        """Whether windows start and end at the bounds of panes of this size."""
        return self._largest_pane % pane == 0

    def first_end(self, pane: int) -> int:
        """The end of the earliest window that ends after the pane; it holds it, if any does."""
        if self.cumulates:
            return self._next_step(pane)
        place = self._place(pane)
        return self._pane(self._grid(place - self._length) + self._stride + self._length)

    def last_end(self, pane: int) -> int:
        """The end of the latest window that starts at or before the pane."""
        return self._pane(self._grid(self._place(pane)) + self._length)

    def ends_holding(self, pane: int) -> Sequence[int]:
        """The ends of all windows that hold the pane, in order."""
        first, last = self.first_end(pane), self.last_end(pane)
        if self.regular:
            return range(first, last + 1, self.stride)
        ends = []
        while first <= last:
            ends.append(first)
            first = self.first_end(first)
        return ends

    def ends(self, panes: Sequence[int], after: int | None, upto: int) -> list[int]:
        """The ends in `(after, upto]` of windows that hold one of the panes, both in order.

        Jumps over stretches without panes, and over panes without ends: one record with a wrong
        year costs nothing, nor does a long window of which little is new.
        """
        ends: list[int] = []
        at = 0 if after is None else bisect_left(panes, self.oldest_pane(after))
        if self.regular and at < len(panes):
            last = min(self.last_end(panes[-1]), upto)
            if last - self.first_end(panes[at]) > _MANY_ENDS * self.stride:
                return self._many_ends(panes[at:], after, upto)
        while at < len(panes):
            holding = self.ends_holding(panes[at])
            first = 0 if after is None else bisect_right(holding, after)
            last = bisect_right(holding, upto)
            ends.extend(holding[first:last])
            if last < len(holding):
                break
            after = ends[-1] if ends else after
            at = at + 1 if after is None else bisect_left(panes, self.oldest_pane(after), at + 1)
        return ends

    def _many_ends(self, panes: Sequence[int], after: int | None, upto: int) -> list[int]:
        """The same at once, of windows that are regular."""
        held, stride, shift = np.asarray(panes, np.int64), self.stride, self.shift
        first = ((held - self.length - shift) // stride + 1) * stride + shift + self.length
        last = np.minimum((held - shift) // stride * stride + shift + self.length, upto)
        if after is not None:
            first = np.maximum(first, self.first_end(after))
        known = np.maximum.accumulate(last)  # windows up to here hold an earlier pane
        first[1:] = np.maximum(first[1:], known[:-1] + 1)
        # Bounds lie between ends then: the numbers of the first and the last one within them.
        low = -(-(first - shift - self.length) // stride)
        high = (last - shift - self.length) // stride
        counts = np.maximum(high - low + 1, 0)
        begins = np.cumsum(counts) - counts
        numbers = np.arange(int(counts.sum())) - np.repeat(begins - low, counts)
        ends: list[int] = (numbers * stride + shift + self.length).tolist()
        return ends

    def oldest_pane(self, emitted: int) -> int:
        """The first pane of the earliest window that ends after `emitted`."""
        return self.start(self.first_end(emitted))

    def start(self, end: int) -> int:
        """The first pane of a window."""
        if self.regular:
            return end - self.length
        last = self._place(end - 1)
        return self._pane(self._grid(last) if self.cumulates else last + 1 - self._length)

    def starts(self, ends: Numbers) -> Numbers:
        """The same of many."""
        if self.regular:
            return ends - self.length
        different, places = np.unique(ends, return_inverse=True)
        return np.array([self.start(end) for end in different.tolist()], np.int64)[places]

    def bounds(self, end: int) -> tuple[int, int]:
        return self.start(end) * self.pane, end * self.pane

    def end_before(self, end: int) -> int:
        """The end of the window that ends one step earlier."""
        if self.regular:
            return end - self.stride
        if not self.cumulates:
            return self._pane(self._place(end) - self._stride)
        begin = self.start(end)
        if self.units is None or self.units.by is None:
            size = self.step // self.pane
            return begin + (end - begin - 1) // size * size
        if self.units.by == self.units.calendar:
            first = self._place(begin)
            steps = (self._place(end) - first - 1) // self.units.step
            return self._pane(first + steps * self.units.step)
        by = self.units.by
        return by.at(by.number(end * self.pane) - 1) // self.pane

    def _next_step(self, pane: int) -> int:
        """The first end after a pane of windows that cumulate."""
        place = self._place(pane)
        begin = self._grid(place)
        if self.units is not None and self.units.by is not None:
            if self.units.by == self.units.calendar:
                return self._pane(place + self.units.step - (place - begin) % self.units.step)
            by = self.units.by
            return by.at(by.number(pane * self.pane) + 1) // self.pane
        size, start = self.step // self.pane, self._pane(begin)
        return min(pane + size - (pane - start) % size, self._pane(begin + self._length))

    # Windows are counted in panes, or in days or months of a calendar.

    @cached_property
    def _length(self) -> int:
        return self.length if self.units is None else self.units.range

    @cached_property
    def _stride(self) -> int:
        return self.stride if self.units is None else self.units.slide

    def _place(self, pane: int) -> int:
        """The day or month in which a pane starts."""
        return pane if self.units is None else self.units.calendar.number(pane * self.pane)

    def _pane(self, place: int) -> int:
        return place if self.units is None else self.units.calendar.at(place) // self.pane

    def _grid(self, place: int) -> int:
        """The last start of a window at or before the place."""
        shift = self.shift if self.units is None else self.units.offset
        return (place - shift) // self._stride * self._stride + shift


def calendar_windows(units: Units, step: int = 0) -> WindowSpec:
    """Windows of so many days or months; those that cumulate by less than a day, by the step."""
    longest, shortest = (1, 1) if units.calendar.unit == "day" else (31, 28)
    most = units.range * longest + (units.calendar.zone != "UTC")  # clocks may be put back
    return WindowSpec(most * DAY_US, units.slide * shortest * DAY_US, step=step, units=units)


def on_one_grid(specs: Iterable[WindowSpec], divisor: int = 0) -> tuple[WindowSpec, ...]:
    """The same windows, all made of panes of one size: the largest that fits, or `divisor`."""
    specs = tuple(specs)
    if not specs:
        return ()
    pane = divisor or gcd(*(spec.pane for spec in specs))
    return tuple(replace(spec, pane=pane) for spec in specs)
