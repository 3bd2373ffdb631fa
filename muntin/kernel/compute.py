"""Records to blocks: the same function in an agent, in a Spark task and inline.

Lateness is exact. A record's mark is the stream time of its source when it was read, in log order,
less the slack; windows that end at or before the mark leave the record out. A source's clocks carry
its stream time from piece to piece, so pieces of any size agree.

Other axes than time are counted here: the number of a record, or of its first byte, in all that
its source has written. Nothing can be late on them.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from muntin.errors import BadValueError
from muntin.fidelity.sampling import sampled
from muntin.fidelity.shedding import Use
from muntin.kernel.clocks import Clocks, Positions
from muntin.kernel.kinds import kind_of
from muntin.kernel.kinds.kind import Given
from muntin.kernel.reading import Cost, File, Reading, added_up
from muntin.kernel.refusals import Refused, compute_apart
from muntin.kernel.statements import Windows
from muntin.kernel.together import WORTH_SHARING, Asked, Pass, is_shared
from muntin.model.counts import Fault, Tally
from muntin.model.records import MARK, NOWHERE, ORIGIN, SIZE, TIME, UNTIL, Axis
from muntin.model.shapes import Shape

Mask = NDArray[np.bool_]
MOST_PANES_TOUCHED = 100_000
_NONE = NOWHERE
_LAST = (1 << 63) - 1


@dataclass(frozen=True)
class Recipe:
    """What to compute for one shape: panes, or separate windows where that is cheaper."""

    shape: Shape
    windows: Windows
    separate: bool = False
    over: int | None = None  # the position before which sessions have left
    needs: int | None = None  # the position before which no window needs anything
    version: int = 0  # of the catalog that asks for it
    until: int | None = None  # the position from which on its jobs have stopped
    jobs: tuple[str, ...] = ()  # that are told of records which SQL refuses; if none, that raises
    errors: int = 0  # that one of these survives
    sources: frozenset[str] | None = None  # that are wanted; None: all
    useful: tuple[Use, ...] | None = None  # what panes are of use for; None: for ever


@dataclass(frozen=True)
class Segment:
    """Consecutive rows of a table that are one piece of a source's log.

    `broken` are rows that could not even be split, in order and numbered among all rows of the
    piece; the table does not have them. Clocks go on from piece to piece, so that the pieces of
    one source have to come in the order of its log.
    """

    source: str
    rows: int
    clocks: Clocks
    broken: Sequence[int] = ()
    file: File | None = None


def compute(
    records: pa.Table,
    source: str,
    recipes: Sequence[Recipe],
    clocks: Clocks,
    broken: Iterable[int] = (),
) -> tuple[dict[str, pa.Table], Reading]:
    """The blocks of one piece of log by shape, and what was counted on the way.

    Rows with a null position are bad, as are `broken` ones.
    """
    segment = Segment(source, records.num_rows, clocks, sorted(broken))
    blocks, (reading,) = compute_together(records, [segment], recipes)
    return blocks, reading


def compute_together(
    records: pa.Table, segments: Sequence[Segment], recipes: Sequence[Recipe]
) -> tuple[dict[str, pa.Table], list[Reading]]:
    """The blocks of pieces of many logs by shape, and the reading of every piece.

    Blocks have the rows of all pieces. Readings are as those of each piece by itself, but for
    what blocks have cost, which is shared out by the numbers of records.
    """
    spanning = [recipe.shape.pane for recipe in recipes if recipe.shape.spans is not None]
    places = _Places(records, segments, min(spanning, default=0))
    axes = {a: None for recipe in recipes for a in recipe.shape.axes if not a.is_time}
    courses = {axis.column: places.along(axis) for axis in (TIME, *axes)}
    good = places.good(courses)
    marked = MARK in good.column_names
    blocks: dict[str, pa.Table] = {}
    costs: dict[str, Cost] = {}
    faults: list[list[Fault]] = [[] for _ in segments]
    changed: list[dict[str, frozenset[int]]] = [{} for _ in segments]
    masks: dict[object, Mask] = {}
    started = time.perf_counter()
    shared = _shared(recipes, good, marked, courses, places, masks)
    common = (time.perf_counter() - started) / max(1, len(shared))
    for recipe in recipes:
        shape, course = recipe.shape, courses[recipe.shape.axis.column]
        if (found := shared.get(shape.id)) is not None:
            if found.num_rows:
                blocks[shape.id] = found
            costs[shape.id] = Cost(good.num_rows, found.num_rows, common)
            continue
        started = time.perf_counter()
        may_be_late = marked and shape.axis.is_time and shape.revise_us is None
        used = _used(recipe, course, places, masks)
        rows = places.with_origin(good) if shape.by_source else good
        kind = kind_of(shape)
        over = None if kind.has_panes else recipe.over
        if over is not None and (course.positions[used] < over).any():
            rows, may_be_late = _marked(rows, course, over), True
        made: list[pa.Table] = []
        # Of windows that may be revised it is known which source has changed them.
        for number, stretch in places.stretches(kind.tells_sources or shape.revise_us is not None):
            mine = _chosen(rows, used, stretch)
            if not mine.num_rows:
                continue
            source, file = segments[number].source, segments[number].file
            given = Given(mine, source, recipe.windows, may_be_late, recipe.separate, file)
            try:
                outcome = kind.compute(given)
            except BadValueError:
                if not recipe.jobs:
                    raise
                outcome, refused = compute_apart(kind, given, recipe.errors + 1)
                at = stretch.start + np.flatnonzero(used[stretch.start : stretch.stop])
                for met, fault in _faults(recipe, mine, refused, at, places):
                    faults[met].append(fault)
            block = outcome.block
            faults[number] += [replace(f, source=source) for f in outcome.faults]
            if block.num_rows:
                made.append(block)
                if shape.revise_us is not None:
                    panes = pc.unique(block.column("pane")).to_pylist()
                    changed[number][shape.id] = frozenset(panes)
        if made:
            blocks[shape.id] = made[0] if len(made) == 1 else pa.concat_tables(made)
        taken = time.perf_counter() - started
        size = sum(block.num_rows for block in made)
        costs[shape.id] = Cost(good.num_rows, size, taken) if used.any() else Cost()
    tallies: list[list[Tally]] = [[] for _ in segments]
    for axis, size in _grids(recipes):
        for number, tally in courses[axis].tallies(axis, size, places):
            tallies[number].append(tally)
    first = {axis: course.lowest(places) for axis, course in courses.items()}
    readings = []
    for number, segment in enumerate(segments):
        backwards = sum(course.backwards.get(number, 0) for course in courses.values())
        readings.append(
            Reading(
                segment.source,
                tallies=added_up(tallies[number]),
                records=int(places.counts[number]),
                bad=places.bad(number) + backwards,
                first={axis: low[number] for axis, low in first.items() if number in low},
                reached=segment.clocks.reached(),
                doubt=segment.clocks.doubt,
                leap=segment.clocks.leap,
                costs={id_: places.share(cost, number) for id_, cost in costs.items()},
                faults=tuple(faults[number]),
                changed=changed[number],
                backwards=backwards,
                ahead=places.ahead.get(number, 0),
            )
        )
    return blocks, readings


def _shared(
    recipes: Sequence[Recipe],
    good: pa.Table,
    marked: bool,
    courses: Mapping[str, _Course],
    places: _Places,
    masks: dict[object, Mask],
) -> dict[str, pa.Table]:
    """The blocks of shapes that have one pass in common, if they are enough to be worth it."""
    some = [recipe for recipe in recipes if not recipe.separate and is_shared(recipe.shape)]
    if len(some) < WORTH_SHARING or not good.num_rows:
        return {}
    used = {r.shape.id: _used(r, courses[r.shape.axis.column], places, masks) for r in some}
    # Records that nobody needs have no columns but their times.
    some = [recipe for recipe in some if used[recipe.shape.id].any()]
    if len(some) < WORTH_SHARING:
        return {}
    shared = Pass(good, [recipe.shape for recipe in some], marked)
    return shared.blocks(
        [Asked(r.shape, r.windows, used[r.shape.id]) for r in some if r.shape.id in shared.shapes]
    )


def _used(recipe: Recipe, course: _Course, places: _Places, known: dict[object, Mask]) -> Mask:
    """Which records some window of the recipe will be made of, as far as is known now.

    Recipes that ask for the same have the same answer, which becomes `known`.
    """
    shape = recipe.shape
    asked = (
        shape.axis, shape.pane, shape.gap, shape.spans, shape.sample, kind_of(shape).has_panes,
        recipe.until, recipe.needs, recipe.over, recipe.sources,
    )  # fmt: skip
    if asked not in known:
        known[asked] = _used_anew(recipe, course, places)
    return known[asked]


def _used_anew(recipe: Recipe, course: _Course, places: _Places) -> Mask:
    shape, used = recipe.shape, np.ones(len(course.positions), bool)
    if recipe.until is not None:
        used &= course.positions < recipe.until
    if shape.since is not None:
        used &= course.positions >= shape.since
    if not kind_of(shape).has_panes:
        if recipe.needs is not None:
            used &= course.positions >= recipe.needs
        return used
    if recipe.sources is not None:
        for number, rows in places.stretches(apart=True):
            used[rows.start : rows.stop] &= places.segments[number].source in recipe.sources
    if recipe.needs is not None and shape.spans is None:
        used &= course.positions >= recipe.needs
    if shape.sample is not None:
        for number, rows in places.stretches(apart=True):
            inside = slice(rows.start, rows.stop)
            panes, which = np.unique(course.positions[inside] // shape.pane, return_inverse=True)
            used[inside] &= sampled(shape.sample, places.segments[number].source, panes)[which]
    return used


def _marked(rows: pa.Table, course: _Course, over: int) -> pa.Table:
    """The rows with marks that are not before a position, up to which sessions have left."""
    marks = np.full(len(course.positions), over)
    if course.marks is None:
        return rows.append_column(MARK, pa.array(marks))
    place = rows.column_names.index(MARK)
    return rows.set_column(place, MARK, pa.array(np.maximum(course.marks, marks)))


def _faults(
    recipe: Recipe, records: pa.Table, refused: Sequence[Refused], at: Positions, places: _Places
) -> Iterator[tuple[int, Fault]]:
    """What each job is told of records that SQL refuses, by segment: one fault for each pane.

    `at` says where the given records are among all good ones.
    """
    shape, size = recipe.shape, recipe.shape.pane or 1
    positions = records.column(shape.axis.column).to_numpy()
    marked = MARK in records.column_names and shape.axis.is_time and shape.revise_us is None
    marks = records.column(MARK).to_numpy() if marked else None
    found: dict[tuple[int, int, int | None], list[Refused]] = {}
    for each in refused:
        start = int(positions[each.row]) // size * size
        mark = start if marks is None else int(marks[each.row]) // size * size
        where = places.segment(int(at[each.row])), start, mark if mark > start else None
        found.setdefault(where, []).append(each)
    for (number, start, late), several in found.items():
        first, source = several[0], places.segments[number].source
        fault = Fault(
            "", first.expression, first.given, first.reason, start, False, len(several), source,
            late, len(several), places.row(number, int(at[first.row])),
        )  # fmt: skip
        yield from ((number, replace(fault, job=job)) for job in recipe.jobs)


def _chosen(rows: pa.Table, used: Mask, stretch: range) -> pa.Table:
    mine = rows if len(stretch) == len(used) else rows.slice(stretch.start, len(stretch))
    inside = used[stretch.start : stretch.stop]
    return mine if inside.all() else mine.filter(pa.array(inside))


def _grids(recipes: Iterable[Recipe]) -> list[tuple[str, int]]:
    """Each axis with the sizes of its panes."""
    grids = ((r.shape.axis.column, r.shape.pane) for r in recipes if r.shape.pane)
    return list(dict.fromkeys(grids))


@dataclass
class _Course:
    """The good records of all segments along one axis.

    By the number of a segment, where it has any: the positions at which its bad rows count, and
    how many of its records go backwards.
    """

    positions: Positions
    times: Positions
    bad_times: dict[int, Positions] = field(default_factory=dict)
    backwards: dict[int, int] = field(default_factory=dict)
    marks: Positions | None = None
    until: Positions | None = None  # where spans end, if every pane they touch counts them

    def lowest(self, places: _Places) -> dict[int, int]:
        """The lowest position in each segment that has one."""
        full = np.flatnonzero(places.counts)
        if not len(full):
            return {}
        there = np.where(self.positions == _NONE, _LAST, self.positions)
        lowest = np.minimum.reduceat(there, places.starts[full]).tolist()
        return {n: low for n, low in zip(full.tolist(), lowest, strict=True) if low != _LAST}

    def tallies(self, axis: str, size: int, places: _Places) -> Iterator[tuple[int, Tally]]:
        """The tallies of every segment, by its number."""
        there = self.positions != _NONE
        positions, times, marks = self.positions[there], self.times[there], self.marks
        numbers = np.repeat(np.arange(len(places.counts)), places.counts)[there]
        panes = positions // size
        if self.until is not None:
            last = np.maximum(positions, self.until - 1) // size
            touched = last - panes + 1
            first = np.repeat(panes, touched)
            panes = first + _numbered(touched)
            times, numbers = np.repeat(times, touched), np.repeat(numbers, touched)
            marks = np.repeat(marks, touched) if marks is not None else None
        counted = _count(numbers, panes, _not_before(panes, marks, size), times)
        sources = [segment.source for segment in places.segments]
        for number, pane, mark, records, reached in zip(*counted, strict=True):
            not_before = None if mark == _NONE else mark
            yield number, Tally(sources[number], axis, size, pane, not_before, records, 0, reached)
        for number, bad_times in self.bad_times.items():
            bad_panes, counts = np.unique(bad_times // size, return_counts=True)
            for pane, count in zip(bad_panes.tolist(), counts.tolist(), strict=True):
                yield number, Tally(sources[number], axis, size, pane, None, 0, count, pane * size)


class _Places:
    """Where the rows of all segments lie on each axis.

    `counts` are the good records of each segment, and `starts` where they start among all.
    """

    def __init__(self, records: pa.Table, segments: Sequence[Segment], pane: int) -> None:
        column = records.column(TIME.column).combine_chunks()
        if pane:  # a span of more panes than anybody means is bad
            panes = pc.divide(pc.subtract(records.column(UNTIL), records.column(TIME.column)), pane)
            short = pc.less_equal(panes, MOST_PANES_TOUCHED).combine_chunks()
            column = pc.if_else(short, column, pa.scalar(None, pa.int64()))
        self.segments = segments
        self._records = records
        self._bounds = np.cumsum([0, *(segment.rows for segment in segments)])
        self._times: Positions = np.asarray(column.fill_null(_NONE))
        self._valid: Mask = np.asarray(column.is_valid())
        self.ahead = self._leave_out_future()
        self._bad_at = self._bad_rows()
        self.starts = np.concatenate([[0], np.cumsum(self._valid)])[self._bounds]
        self.counts = np.diff(self.starts)

    def _leave_out_future(self) -> dict[int, int]:
        """Makes records bad that are later than the latest time; how many, by segment."""
        latest = [segment.clocks.latest for segment in self.segments]
        if all(time is None for time in latest):
            return {}
        limits = np.array([_LAST if time is None else time for time in latest], np.int64)
        future = self._valid & (self._times > np.repeat(limits, np.diff(self._bounds)))
        if not future.any():
            return {}
        self._valid = self._valid & ~future
        self._times = np.where(future, _NONE, self._times)
        return {number: len(rows) for number, rows in self._by_segment(np.flatnonzero(future))}

    def _by_segment(self, rows: Positions) -> Iterator[tuple[int, Positions]]:
        """Some rows of the table, in order: by segment, and counted from where that starts."""
        numbers = np.searchsorted(self._bounds, rows, side="right") - 1
        segments, begins = np.unique(numbers, return_index=True)
        for number, mine in zip(segments.tolist(), np.split(rows, begins[1:]), strict=True):
            yield number, mine - self._bounds[number]

    def _bad_rows(self) -> dict[int, Positions]:
        """The good rows and bad ones before each bad row of a segment."""
        bad = {} if self._valid.all() else dict(self._by_segment(np.flatnonzero(~self._valid)))
        for number, segment in enumerate(self.segments):
            if segment.broken:
                before = np.array([row - i for i, row in enumerate(segment.broken)], np.int64)
                known = bad.get(number, np.array([], np.int64))
                bad[number] = np.concatenate([known, before])
        return bad

    def bad(self, number: int) -> int:
        return len(self._bad_at.get(number, ()))

    def stretches(self, apart: bool) -> Iterator[tuple[int, range]]:
        """Where the good records of each segment are, or all of them as if they were one's."""
        if not apart:
            yield 0, range(int(self.starts[-1]))
            return
        starts = self.starts.tolist()
        yield from ((n, range(*ends)) for n, ends in enumerate(pairwise(starts)))

    def segment(self, record: int) -> int:
        """Which segment a good record is of."""
        return int(np.searchsorted(self.starts, record, side="right")) - 1

    def row(self, number: int, record: int) -> int:
        """The number of a good record among all rows of its segment that the table has."""
        return int(np.flatnonzero(self._valid)[record] - self._bounds[number])

    def share(self, cost: Cost, number: int) -> Cost:
        """A segment's share of what computing all records has cost."""
        if not cost.records:
            return cost
        start, stop = int(self.starts[number]), int(self.starts[number + 1])
        rows = cost.rows * stop // cost.records - cost.rows * start // cost.records
        return Cost(stop - start, rows, cost.seconds * (stop - start) / cost.records)

    def with_origin(self, good: pa.Table) -> pa.Table:
        """The good records with the names of their sources."""
        return good.append_column(ORIGIN, repeated_sources(self.segments, self.counts))

    def along(self, axis: Axis) -> _Course:
        if axis.kind in ("records", "bytes"):
            return self._counted(axis)
        positions = self._times if axis.is_time else self._sequence(axis)
        times, bad_times = np.empty_like(positions), {}
        for number, (segment, (start, stop)) in enumerate(self._rows()):
            clock = segment.clocks.of(axis)
            before = _NONE if clock.reached is None else clock.reached
            times[start:stop] = mine = clock.advance(positions[start:stop])
            bad_at = self._bad_at.get(number)
            if bad_at is not None or clock.waiting:
                met = np.concatenate([[before], mine])[[] if bad_at is None else bad_at]
                placed = clock.place(met, mine)
                if len(placed):
                    bad_times[number] = placed
        course = _Course(positions[self._valid], times[self._valid], bad_times)
        if axis.kind == "sequence":
            return self._without_backwards(course)
        slack = self.segments[0].clocks.slack_us if self.segments else None
        if slack is not None and bool((course.times - slack > course.positions).any()):
            course.marks = course.times - slack
        if UNTIL in self._records.column_names:
            ends = self._records.column(UNTIL).combine_chunks().fill_null(0)
            course.until = np.asarray(ends)[self._valid]
        return course

    def _rows(self) -> Iterator[tuple[Segment, tuple[int, int]]]:
        return zip(self.segments, pairwise(self._bounds.tolist()), strict=True)

    def _counted(self, axis: Axis) -> _Course:
        """Every record takes room; a bad row takes none and counts where the next record does."""
        room = self._valid.astype(np.int64)
        if axis.kind == "bytes":
            room = room * np.asarray(self._records.column(SIZE).combine_chunks())
        positions, bad_times = np.empty_like(room), {}
        for number, (segment, (start, stop)) in enumerate(self._rows()):
            clock = segment.clocks.of(axis)
            before = clock.reached or 0
            ends = np.concatenate([[before], before + np.cumsum(room[start:stop])])
            clock.reached = int(ends[-1])
            positions[start:stop] = ends[:-1]
            if number in self._bad_at:
                bad_times[number] = ends[self._bad_at[number]]
        positions = positions[self._valid]
        return _Course(positions, positions, bad_times)

    def _sequence(self, axis: Axis) -> Positions:
        column = self._records.column(axis.column).combine_chunks()
        numbers: Positions = np.asarray(column.fill_null(_NONE))
        return np.where(self._valid, numbers, _NONE)

    def _without_backwards(self, course: _Course) -> _Course:
        """Records with a lower number than one before them are bad where the source stood."""
        back = course.positions < course.times
        bad_times, backwards = dict(course.bad_times), {}
        for number, rows in self.stretches(apart=True) if back.any() else ():
            inside = slice(rows.start, rows.stop)
            fallen = course.times[inside][back[inside]]
            if len(fallen):
                known = bad_times.get(number, np.array([], np.int64))
                bad_times[number] = np.concatenate([known, fallen])
                backwards[number] = len(fallen)
        positions = np.where(back, _NONE, course.positions)
        return replace(course, positions=positions, bad_times=bad_times, backwards=backwards)

    def good(self, courses: Mapping[str, _Course]) -> pa.Table:
        """The rows that are not bad, with their positions and marks."""
        good = self._records if self._valid.all() else self._records.filter(pa.array(self._valid))
        for axis, course in courses.items():
            if axis != TIME.column:
                mask = course.positions == _NONE if course.backwards else None
                if axis in good.column_names:
                    good = good.drop_columns([axis])
                good = good.append_column(axis, pa.array(course.positions, mask=mask))
            elif course.marks is not None:
                good = good.append_column(MARK, pa.array(course.marks))
        return good


def repeated_sources(
    segments: Sequence[Segment], counts: Iterable[int], before: str = ""
) -> pa.Array:
    """The source of every row, of as many rows of each segment, less what is `before` its name."""
    numbers = np.repeat(np.arange(len(segments)), list(counts))
    names = [segment.source.removeprefix(before) for segment in segments]
    return pa.array(names, pa.string()).take(pa.array(numbers))


def _numbered(counts: Positions) -> Positions:
    """0, 1, 2 … up to each count, one after another."""
    begins: Positions = np.cumsum(counts) - counts
    numbers: Positions = np.arange(int(counts.sum())) - np.repeat(begins, counts)
    return numbers


def _not_before(panes: Positions, marks: Positions | None, size: int) -> Positions | None:
    if marks is None:
        return None
    ends = marks // size
    late: Positions = np.where(ends > panes, ends, _NONE)
    return late


def _count(
    segments: Positions, panes: Positions, not_before: Positions | None, times: Positions
) -> list[list[int]]:
    """Segments, panes and marks that there are, with records and largest stream time of each."""
    if not len(panes):
        return [[]] * 5
    # Logs are nearly in order, so runs of equal pairs are long and few.
    changed = (panes[1:] != panes[:-1]) | (segments[1:] != segments[:-1])
    if not_before is not None:
        changed |= not_before[1:] != not_before[:-1]
    starts = np.concatenate([[0], np.flatnonzero(changed) + 1])
    sizes = np.diff(np.append(starts, len(panes)))
    tops = np.maximum.reduceat(times, starts)
    marks = np.full(len(starts), _NONE) if not_before is None else not_before[starts]
    keys = np.stack([segments[starts], panes[starts], marks])
    order = np.lexsort(keys[::-1])
    keys = keys[:, order]
    first = np.flatnonzero(np.r_[True, (keys[:, 1:] != keys[:, :-1]).any(axis=0)])
    records, reached = np.add.reduceat(sizes[order], first), np.maximum.reduceat(tops[order], first)
    return [array.tolist() for array in (*keys[:, first], records, reached)]
