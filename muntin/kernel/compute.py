"""Records to blocks: the same function in an agent, in a Spark task and inline.

Lateness is exact. A source's stream time is the largest position read so far in log order; a
record's mark is that less the slack; windows that end at or before the mark leave the record
out. A source's clocks carry its stream time from piece to piece, so pieces of any size agree.

Other axes than time are counted here: the number of a record, or of its first byte, in all that
its source has written. Nothing can be late on them.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from muntin.fidelity.sampling import kept
from muntin.kernel.kinds import kind_of
from muntin.kernel.kinds.kind import Given, Outcome
from muntin.kernel.statements import Windows
from muntin.model import MARK, NOWHERE, ORIGIN, SIZE, TIME, UNTIL, Axis, Fault, Shape, Tally

Positions = NDArray[np.int64]
Late = dict[str, tuple[int, int]]  # how many records, and how far behind the stream time at most
MOST_PANES_TOUCHED = 100_000
_NONE = NOWHERE


@dataclass(frozen=True)
class Recipe:
    """What to compute for one shape: panes, or separate windows where that is cheaper."""

    shape: Shape
    windows: Windows
    separate: bool = False
    over: int | None = None  # the position before which sessions have left
    needs: int | None = None  # the position before which no window needs anything


@dataclass(frozen=True)
class Cost:
    """What computing a shape's blocks took."""

    records: int = 0
    rows: int = 0
    seconds: float = 0.0

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.records + other.records, self.rows + other.rows, self.seconds + other.seconds
        )


@dataclass(frozen=True)
class Computed:
    """The blocks of one piece of log, by shape, and what was counted on the way."""

    blocks: dict[str, pa.Table]
    tallies: tuple[Tally, ...]
    records: int
    bad: int
    costs: dict[str, Cost]
    backwards: int = 0  # records whose sequence number is lower than one before
    ahead: int = 0  # records of a time that is yet to come
    late: Late = field(default_factory=dict)  # for sessions, by shape
    faults: tuple[Fault, ...] = ()
    first: dict[str, int] = field(default_factory=dict)  # axis -> the lowest position


@dataclass
class Clock:
    """How far a source has come on one axis while its log is read.

    Bad rows count where the stream stood when they were met. Those before the first record
    with a position are `waiting` for it.
    """

    reached: int | None = None
    waiting: int = 0

    def advance(self, positions: Positions) -> Positions:
        """How far the source had come at each record, ending with the last one."""
        start = _NONE if self.reached is None else self.reached
        times = np.maximum.accumulate(np.maximum(positions, start))
        if len(times) and times[-1] != _NONE:
            self.reached = int(times[-1])
        return times

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
class Clocks:
    """A source's clocks, one an axis, and the slack of its time; None if nothing can be late.

    A record after the `latest` time is bad: it would have its source pass all that lies between.
    """

    slack_us: int | None = None
    by_axis: dict[str, Clock] = field(default_factory=dict)
    latest: int | None = None

    @classmethod
    def since(
        cls, reached: Mapping[str, int], slack_us: int | None, latest: int | None = None
    ) -> Clocks:
        clocks = {axis: Clock(position) for axis, position in reached.items()}
        return cls(slack_us, clocks, latest)

    def of(self, axis: Axis) -> Clock:
        return self.by_axis.setdefault(axis.column, Clock())

    def reached(self) -> dict[str, int]:
        found = {axis: clock.reached for axis, clock in self.by_axis.items()}
        return {axis: position for axis, position in found.items() if position is not None}


def compute(
    records: pa.Table,
    source: str,
    recipes: Sequence[Recipe],
    clocks: Clocks,
    broken: Iterable[int] = (),
) -> Computed:
    """The blocks of one piece of log. Rows with a null position are bad, as are `broken` ones."""
    spanning = [recipe.shape.pane for recipe in recipes if recipe.shape.spans is not None]
    places = _Places(records, clocks, sorted(broken), min(spanning, default=0))
    axes = {a: None for recipe in recipes for a in recipe.shape.axes if not a.is_time}
    ways = {axis.column: places.along(axis) for axis in (TIME, *axes)}
    good = places.good(ways)
    marked = MARK in good.column_names
    blocks, costs = {}, {}
    faults: list[Fault] = []
    late: Late = {}
    for recipe in recipes:
        shape, way = recipe.shape, ways[recipe.shape.axis.column]
        started = time.perf_counter()
        given = Given(
            source,
            recipe.windows,
            recipe.separate,
            marked and shape.axis.is_time and shape.revise_us is None,
            needed=partial(_used, recipe, good, way, source),
            since=partial(way.since, good, recipe.over),
        )
        made = kind_of(shape).compute(given) if good.num_rows else Outcome(None)
        faults.extend(made.faults)
        if made.late is not None:
            late[shape.id] = made.late
        if made.block is None:
            costs[shape.id] = Cost()
            continue
        taken = time.perf_counter() - started
        costs[shape.id] = Cost(good.num_rows, made.block.num_rows, taken)
        if made.block.num_rows:
            blocks[shape.id] = made.block
    grids = _grids(recipes)
    tallies = [t for axis, size in grids for t in ways[axis].tallies(source, axis, size)]
    backwards = sum(way.backwards for way in ways.values())
    return Computed(
        blocks,
        tuple(tallies),
        good.num_rows,
        places.bad + backwards,
        costs,
        backwards,
        places.ahead,
        late,
        tuple(faults),
        {axis: lowest for axis, way in ways.items() if (lowest := way.lowest) is not None},
    )


def _used(recipe: Recipe, records: pa.Table, way: _Way, source: str) -> pa.Table:
    """The records that some window of the recipe will be made of, as far as is known now."""
    shape, used = recipe.shape, np.ones(records.num_rows, bool)
    if recipe.needs is not None and shape.spans is None:
        used &= way.positions >= recipe.needs
    if shape.sample is not None:
        panes, which = np.unique(way.positions // shape.pane, return_inverse=True)
        used &= kept(shape.sample, source, panes)[which]
    if not used.all():
        records = records.filter(pa.array(used))
    if shape.by_source:
        records = records.append_column(ORIGIN, pa.repeat(pa.scalar(source), records.num_rows))
    return records


def unreadable(source: str, recipes: Sequence[Recipe], clocks: Clocks) -> Computed:
    """What cannot be read: one bad row where the source stands, or where its next record is."""
    tallies = []
    for axis, size in _grids(recipes):
        clock = clocks.by_axis.setdefault(axis, Clock())
        if clock.reached is not None:
            pane = clock.reached // size
            tallies.append(Tally(source, axis, size, pane, None, 0, 1, pane * size))
    for clock in clocks.by_axis.values():
        clock.waiting += clock.reached is None
    return Computed({}, tuple(tallies), 0, 1, {})


def _grids(recipes: Iterable[Recipe]) -> list[tuple[str, int]]:
    """Each axis with the sizes of its panes."""
    grids = ((r.shape.axis.column, r.shape.pane) for r in recipes if r.shape.pane)
    return list(dict.fromkeys(grids))


@dataclass
class _Way:
    """The records of one piece along one axis."""

    positions: Positions
    times: Positions
    bad_times: Positions
    marks: Positions | None = None
    backwards: int = 0
    until: Positions | None = None  # where spans end, if every pane they touch counts them

    @property
    def lowest(self) -> int | None:
        there = self.positions[self.positions != _NONE]
        return int(there.min()) if len(there) else None

    def since(self, records: pa.Table, over: int | None) -> tuple[pa.Table, tuple[int, int]]:
        """The records that sessions may still have, and of the others how many and how late."""
        gone = self.positions < (_NONE if over is None else over)
        late = gone if self.marks is None else gone | (self.marks > self.positions)
        if not late.any():
            return records, (0, 0)
        left = records.filter(pa.array(~gone)) if gone.any() else records
        return left, (int(late.sum()), int((self.times - self.positions)[late].max()))

    def tallies(self, source: str, axis: str, size: int) -> Iterable[Tally]:
        there = self.positions != _NONE
        positions, times, marks = self.positions[there], self.times[there], self.marks
        panes = positions // size
        if self.until is not None:
            last = np.maximum(positions, self.until - 1) // size
            touched = last - panes + 1
            first = np.repeat(panes, touched)
            panes = first + _steps(touched)
            times = np.repeat(times, touched)
            marks = np.repeat(marks, touched) if marks is not None else None
        counted = _count(panes, _not_before(panes, marks, size), times)
        for (pane, not_before), (records, reached) in counted.items():
            yield Tally(source, axis, size, pane, not_before, records, 0, reached)
        numbers, bad = np.unique(self.bad_times // size, return_counts=True)
        for pane, count in zip(numbers.tolist(), bad.tolist(), strict=True):
            yield Tally(source, axis, size, pane, None, 0, count, pane * size)


class _Places:
    """Where the rows of one piece lie on each axis."""

    def __init__(self, records: pa.Table, clocks: Clocks, broken: list[int], pane: int) -> None:
        column = records.column(TIME.column).combine_chunks()
        if pane:  # a span of more panes than anybody means is bad
            panes = pc.divide(pc.subtract(records.column(UNTIL), records.column(TIME.column)), pane)
            short = pc.less_equal(panes, MOST_PANES_TOUCHED).combine_chunks()
            column = pc.if_else(short, column, pa.scalar(None, pa.int64()))
        self.ahead = 0
        if clocks.latest is not None:
            past = pc.less_equal(column, clocks.latest)
            self.ahead = past.false_count
            if self.ahead:
                column = pc.if_else(past, column, pa.scalar(None, pa.int64()))
        self._records = records
        self._clocks = clocks
        self._valid = np.asarray(column.is_valid())
        self._times: Positions = np.asarray(column.fill_null(_NONE))
        bad_rows = np.flatnonzero(~self._valid)
        rows_before = np.array([row - i for i, row in enumerate(broken)], np.int64)
        self._bad_at = np.concatenate([bad_rows, rows_before])
        self.bad = len(self._bad_at)

    def along(self, axis: Axis) -> _Way:
        clock = self._clocks.of(axis)
        if axis.kind in ("records", "bytes"):
            return self._counted(axis, clock)
        before = _NONE if clock.reached is None else clock.reached
        positions = self._times if axis.is_time else self._sequence(axis)
        times = clock.advance(positions)
        met = np.concatenate([np.array([before]), times])[self._bad_at]
        bad_times = clock.place(met, times)
        positions, times = positions[self._valid], times[self._valid]
        way = _Way(positions, times, bad_times)
        if axis.kind == "sequence":
            return _without_backwards(way)
        slack = self._clocks.slack_us
        if slack is not None and bool((times - slack > positions).any()):
            way.marks = times - slack
        if UNTIL in self._records.column_names:
            ends = self._records.column(UNTIL).combine_chunks().fill_null(0)
            way.until = np.asarray(ends)[self._valid]
        return way

    def _counted(self, axis: Axis, clock: Clock) -> _Way:
        """Every record takes room; a bad row takes none and counts where the next record does."""
        room = self._valid.astype(np.int64)
        if axis.kind == "bytes":
            room = room * np.asarray(self._records.column(SIZE).combine_chunks())
        ends = np.concatenate([[clock.reached or 0], (clock.reached or 0) + np.cumsum(room)])
        clock.reached = int(ends[-1])
        positions = ends[:-1][self._valid]
        return _Way(positions, positions, ends[self._bad_at])

    def _sequence(self, axis: Axis) -> Positions:
        column = self._records.column(axis.column).combine_chunks()
        numbers: Positions = np.asarray(column.fill_null(_NONE))
        return np.where(self._valid, numbers, _NONE)

    def good(self, ways: Mapping[str, _Way]) -> pa.Table:
        """The rows that are not bad, with their positions and marks."""
        good = self._records if self._valid.all() else self._records.filter(pa.array(self._valid))
        for axis, way in ways.items():
            if axis != TIME.column:
                mask = way.positions == _NONE if way.backwards else None
                if axis in good.column_names:
                    good = good.drop_columns([axis])
                good = good.append_column(axis, pa.array(way.positions, mask=mask))
            elif way.marks is not None:
                good = good.append_column(MARK, pa.array(way.marks))
        return good


def _without_backwards(way: _Way) -> _Way:
    """Records with a lower number than one before them are bad where the source stood."""
    back = way.positions < way.times
    return replace(
        way,
        positions=np.where(back, _NONE, way.positions),
        bad_times=np.concatenate([way.bad_times, way.times[back]]),
        backwards=int(back.sum()),
    )


def _steps(counts: Positions) -> Positions:
    """0, 1, 2 … up to each count, one after another."""
    begins: Positions = np.cumsum(counts) - counts
    steps: Positions = np.arange(int(counts.sum())) - np.repeat(begins, counts)
    return steps


def _not_before(panes: Positions, marks: Positions | None, size: int) -> Positions | None:
    if marks is None:
        return None
    ends = marks // size
    late: Positions = np.where(ends > panes, ends, _NONE)
    return late


def _count(
    panes: Positions, not_before: Positions | None, times: Positions
) -> dict[tuple[int, int | None], tuple[int, int]]:
    """Records and largest stream time of each (pane, not_before)."""
    if not len(panes):
        return {}
    # Logs are nearly in order, so runs of equal pairs are long and few.
    changed = panes[1:] != panes[:-1]
    if not_before is not None:
        changed |= not_before[1:] != not_before[:-1]
    starts = np.concatenate([[0], np.flatnonzero(changed) + 1])
    sizes = np.diff(np.append(starts, len(panes)))
    tops = np.maximum.reduceat(times, starts)
    marks = np.full(len(starts), _NONE) if not_before is None else not_before[starts]
    counted: dict[tuple[int, int | None], tuple[int, int]] = {}
    runs = (array.tolist() for array in (panes[starts], marks, sizes, tops))
    for pane, mark, size, top in zip(*runs, strict=True):
        key = (pane, None if mark == _NONE else mark)
        records, reached = counted.get(key, (0, top))
        counted[key] = (records + size, max(reached, top))
    return counted


@dataclass
class Totals:
    """What several pieces of one order came to."""

    blocks: dict[str, list[pa.Table]] = field(default_factory=dict)
    tallies: list[Tally] = field(default_factory=list)
    costs: dict[str, Cost] = field(default_factory=dict)
    records: int = 0
    bad: int = 0
    backwards: int = 0
    late: Late = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    first: dict[str, int] = field(default_factory=dict)

    def add(self, piece: Computed) -> None:
        for shape, block in piece.blocks.items():
            self.blocks.setdefault(shape, []).append(block)
        for axis, position in piece.first.items():
            self.first[axis] = min(self.first.get(axis, position), position)
        for shape, cost in piece.costs.items():
            self.costs[shape] = self.costs.get(shape, Cost()) + cost
        self.tallies.extend(piece.tallies)
        self.records += piece.records
        self.bad += piece.bad
        self.backwards += piece.backwards
        for shape, (records, behind) in piece.late.items():
            before = self.late.get(shape, (0, 0))
            self.late[shape] = before[0] + records, max(before[1], behind)
        self.faults.extend(piece.faults)
