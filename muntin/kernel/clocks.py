"""How far a source has come on each axis while its log is read, record by record.

Clocks go on from piece to piece, so that pieces of any size agree.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from muntin.fidelity.stream_time import (
    CONFIRMING,
    NO_DOUBT,
    STEP_US,
    Doubt,
    Leap,
    Span,
    after,
    joined,
    leapt,
    settled,
)
from muntin.model.records import NOWHERE, TIME, Axis

Positions = NDArray[np.int64]
_NONE = NOWHERE
_ONE_BY_ONE = 256  # records around a leap: such come together
_AT_ONCE = 4096  # records that are looked at first after a leap
_FEW = 16  # records that are sooner looked at one by one


@dataclass
class Clock:
    """How far a source has come on one axis while its log is read.

    A record that is more than a `step` ahead is not believed by itself; None: all are believed.
    Bad rows count where the stream stood when they were met. Those before the first record
    with a position are `waiting` for it.
    """

    reached: int | None = None
    waiting: int = 0
    step: int | None = None
    doubt: Doubt = NO_DOUBT
    leap: Leap | None = None  # the widest of more than a step, since this clock has begun

    def advance(self, positions: Positions) -> Positions:
        """How far the source had come at each record, ending with the last one."""
        if self.step is not None:
            return self._carefully(positions, self.step)
        start = _NONE if self.reached is None else self.reached
        times = np.maximum.accumulate(np.maximum(positions, start))
        if len(times) and times[-1] != _NONE:
            self.reached = int(times[-1])
        return times

    def _carefully(self, positions: Positions, step: int) -> Positions:
        """The same, where a leap has to be confirmed.

        Leaps are rare, so all records are looked at at once, and those around a leap one by one.
        """
        times, at, most = np.empty_like(positions), 0, len(positions)
        while at < len(positions):
            few = len(positions) - at <= _FEW
            if self.reached is not None and not self.doubt.young and not few:
                some = positions[at : at + most]
                tops = np.maximum.accumulate(np.maximum(some, self.reached))
                calm = self._calm(some, tops, step)
                times[at : at + calm] = tops[:calm]
                if calm:
                    self.reached = int(tops[calm - 1])
                at += calm
                if calm == len(some):
                    most *= 4
                    continue
                most = _AT_ONCE
            stop = min(at + _ONE_BY_ONE, len(positions))
            for number, position in enumerate(positions[at:stop].tolist(), at):
                if position != _NONE:
                    self._take(position, step)
                times[number] = _NONE if self.reached is None else self.reached
            at = stop
        return times

    def _calm(self, positions: Positions, tops: Positions, step: int) -> int:
        """How many records come before one that leaps, or that comes near to one which has."""
        assert self.reached is not None
        eventful = positions > np.concatenate([[self.reached], tops[:-1]]) + step
        if self.doubt.spans:
            eventful |= tops >= self.doubt.spans[0].low - step
        return int(eventful.argmax()) if eventful.any() else len(positions)

    def _take(self, position: int, step: int) -> None:
        reached = self.reached
        if reached is None or self.doubt.young or self.doubt.spans or position > reached + step:
            self.reached, self.doubt = after(reached, self.doubt, [Span(position, position)], step)
            self._see_leap(reached, self.reached, step)
        else:
            self.reached = max(reached, position)

    def _see_leap(self, before: int | None, now: int | None, step: int) -> None:
        if before is not None and now is not None and now - before > step:
            self.leap = leapt([self.leap, Leap(before, now)])

    def place(self, met: Positions, times: Positions) -> Positions:
        """The positions at which bad rows count, given those at which they were met."""
        self.waiting += int((met == _NONE).sum())
        known = times[times != _NONE]
        placed: Positions = met[met != _NONE]
        if self.waiting and len(known):
            placed = np.concatenate([np.full(self.waiting, known[0]), placed])
            self.waiting = 0
        return placed


@dataclass
class BatchClock(Clock):
    """Stands still within a batch of rows that have no order.

    What it comes to is of these rows alone: a batch may have more of the same source elsewhere.
    """

    def advance(self, positions: Positions) -> Positions:
        before = self.reached
        if self.step is None:
            super().advance(positions)
        else:
            spans = _spans(positions[positions > (_NONE if before is None else before)], self.step)
            lowest = -(1 << 62)  # so that only records that confirm each other are believed
            reached, ahead = settled(lowest if before is None else before, spans, self.step)
            self.reached = reached if reached > lowest else None
            self.doubt = Doubt(ahead)
            at = before
            for span in spans:
                if span.high <= reached:
                    self._see_leap(at, span.low, self.step)
                    at = span.high
        return positions if before is None else np.full(len(positions), before)


def _spans(positions: Positions, step: int) -> list[Span]:
    """The records in as few spans as hold together."""
    if not len(positions):
        return []
    ordered = np.sort(positions)
    starts = np.concatenate([[0], np.flatnonzero(np.diff(ordered) > step) + 1])
    stops = np.append(starts[1:], len(ordered))
    counts = np.minimum(stops - starts, CONFIRMING)
    runs = (ordered[starts].tolist(), ordered[stops - 1].tolist(), counts.tolist())
    return joined(map(Span, *runs), step)


@dataclass
class Clocks:
    """A source's clocks, one an axis, and the slack of its time; None if nothing can be late.

    A record after the `latest` time is bad: it would have its source pass all that lies between.
    """

    slack_us: int | None = None
    by_axis: dict[str, Clock] = field(default_factory=dict)
    latest: int | None = None

    def __post_init__(self) -> None:
        self.of(TIME).step = None if self.slack_us is None else STEP_US

    @classmethod
    def since(
        cls,
        reached: Mapping[str, int],
        slack_us: int | None,
        latest: int | None = None,
        doubt: Doubt = NO_DOUBT,
    ) -> Clocks:
        clocks = {axis: Clock(position) for axis, position in reached.items()}
        clocks.setdefault(TIME.column, Clock()).doubt = doubt
        return cls(slack_us, clocks, latest)

    def of(self, axis: Axis) -> Clock:
        return self.by_axis.setdefault(axis.column, Clock())

    def reached(self) -> dict[str, int]:
        positions = {axis: clock.reached for axis, clock in self.by_axis.items()}
        return {axis: position for axis, position in positions.items() if position is not None}

    @property
    def leap(self) -> Leap | None:
        """Of the source's time: the widest one."""
        return self.of(TIME).leap

    @property
    def doubt(self) -> Doubt | None:
        """Of the source's time: what it is not believed to have come to; None: all is believed."""
        return None if self.slack_us is None else self.of(TIME).doubt
