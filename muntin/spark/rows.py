"""Rows of results that are too many for the driver: tasks order, number and store them.

Rows of jobs that are only sorted are cut into ranges by bounds from a sample, and every range is
sorted by one task: what it has follows on the range before. For all other jobs the rows of a window
meet in one task, with those of the windows next to it if they are few. The driver adds up how many
rows come before those of a task, and with which number they begin.
"""

from __future__ import annotations

import pickle
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise
from operator import itemgetter, or_
from typing import Any
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import RDD

from muntin.errors import MuntinError
from muntin.kernel.around import looks_back
from muntin.kernel.block import decode, encode
from muntin.kernel.due import NOTHING_BEFORE, Previous
from muntin.kernel.engine import run
from muntin.kernel.finish import order
from muntin.kernel.kinds import kind_of
from muntin.kernel.kinds.kind import Ordering
from muntin.kernel.kinds.unfinished import told_apart
from muntin.kernel.statements import FAULT, WINDOW, WINDOW_END
from muntin.model.counts import Fault
from muntin.model.jobs import Job
from muntin.run.digests import digest, sums_of
from muntin.run.many import Part, WaitingWindows, Writer
from muntin.run.results import JobWindows, Kind, runs_of
from muntin.spark.holdings import Element, Held, Jobs, Rows
from muntin.spark.moving import move
from muntin.spark.telling import Make, Told

CHUNK_ROWS = 1 << 16  # that travel together
RANGE_ROWS = 500_000  # that one task sorts
SAMPLE_EVERY = 2048  # rows, of which one is told
PREVIOUS_BYTES = 64 << 20  # of a result that is looked back at

Stay = Callable[[RDD[Any], Make[Any, Any, Any]], tuple[RDD[Any], list[Any]]]
"""Has tasks make something that stays with them, and returns what they tell."""
Faults = tuple[tuple[Kind, Fault], ...]
Place = tuple[str, int]  # where rows meet: a job, and the number of a stretch of its windows


@dataclass(frozen=True)
class Waits:
    """What the driver is told of rows of a job that wait in a task."""

    counts: Mapping[Kind, int] = field(default_factory=dict)
    faults: Faults = ()
    sample: tuple[bytes, ...] = ()  # columns that order rows
    chunks: int = 0
    rows: int = 0

    def plus(self, other: Waits) -> Waits:
        counts = Counter(self.counts) + Counter(other.counts)
        faults, sample = self.faults + other.faults, self.sample + other.sample
        chunks, rows = self.chunks + other.chunks, self.rows + other.rows
        return Waits(counts, faults, sample, chunks, rows)


def looked_at(job: Job, rows: pa.Table) -> tuple[pa.Table, Waits]:
    """Rows of `finish` that are to wait, and what is told of them."""
    kind = kind_of(job.shape)
    ordering = kind.ordering(job)
    if ordering is None:  # all is known when they have met
        return rows, Waits(chunks=_chunks(rows), rows=rows.num_rows)
    rows, faults = told_apart(job, rows)
    some = rows.take(pa.array(np.arange(0, rows.num_rows, SAMPLE_EVERY)))
    sample = encode(some.select([name for name, _ in ordering]))
    counts = _counted(rows["win"], rows["w"]) if kind.has_panes else {}  # sessions are as many
    return rows, Waits(counts, tuple(faults), (sample,), _chunks(rows), rows.num_rows)


def _chunks(rows: pa.Table) -> int:
    return -(-int(rows.num_rows) // CHUNK_ROWS)


def in_chunks(job: str, rows: pa.Table, first: int) -> Iterator[Rows]:
    """The rows in pieces that any memory has room for, numbered from the first on."""
    for number, start in enumerate(range(0, rows.num_rows, CHUNK_ROWS), first):
        yield Rows(job, number, encode(rows.slice(start, CHUNK_ROWS)))


def _counted(which: pa.ChunkedArray, ends: pa.ChunkedArray) -> dict[Kind, int]:
    """How many rows there are of each window."""
    by = pa.table({"which": which, "end": ends}).group_by(["which", "end"])
    columns = by.aggregate([([], "count_all")]).to_pydict()
    kinds = zip(columns["which"], columns["end"], columns["count_all"], strict=True)
    return {(which, end): rows for which, end, rows in kinds}


@dataclass(frozen=True)
class InGroups:
    """Rows of a job that is only sorted, as key groups have them.

    `held` has those of some groups, until they are let go; `few` are those that others have sent.
    """

    job: Job
    held: Held
    few: Sequence[Element]
    waits: Waits
    let_go: Callable[[], None]

    @property
    def faults(self) -> Faults:
        return self.waits.faults

    @property
    def every(self) -> Held:
        """Both together."""
        return _with(self.held, self.few)


class SortedRows(InGroups):
    """Rows of windows, of which each is told by itself."""

    @property
    def counts(self) -> Mapping[Kind, int]:
        return self.waits.counts

    @property
    def digests(self) -> Mapping[Kind, str]:
        raise NotImplementedError("rows of a job that shows open windows are to be `in_order`")

    def write(self, windows: WaitingWindows, writer: Writer, first: int) -> list[Part]:
        moved, every = self._in_ranges()
        in_range = [Counter({k: n for k, n in e.items() if k in windows.counts}) for e in every]
        firsts = list(accumulate((each.total() for each in in_range), initial=first))
        begun = list(accumulate(map(frozenset, in_range), or_, initial=frozenset[Kind]()))
        task = _Sort(_stamp(windows), writer, tuple(firsts), tuple(begun))
        return _written(moved.mapPartitionsWithIndex(task))

    def in_order(self, stay: Stay) -> GatheredRows:
        """The same rows, sorted before it is known which of them are stored."""
        moved, in_range = self._in_ranges()
        before = tuple(accumulate(in_range, initial=Counter[Kind]()))
        pieces, told = stay(moved, _SortFirst(self.job, before))
        self.let_go()

        def release() -> None:
            pieces.unpersist()

        return GatheredRows(pieces, told, release, self.faults)

    def _in_ranges(self) -> tuple[RDD[tuple[int, bytes]], list[Counter[Kind]]]:
        """The rows by range, and how many of which window each has."""
        ranges = -(-sum(self.counts.values()) // RANGE_ROWS)
        ordering = kind_of(self.job.shape).ordering(self.job)
        assert ordering is not None, self.job.name
        bounds = bounds_of(self.job, ordering, self.waits.sample, ranges)
        cut = _Cut(self.job.name, ordering, bounds)
        moved, told = move(self.every, cut, max(1, ranges), int)
        in_range: list[Counter[Kind]] = [Counter() for _ in range(max(1, ranges))]
        for number, counts in told:
            in_range[number].update(counts)
        return moved, in_range


@dataclass(frozen=True)
class _Cut:
    """Cuts rows of a job into ranges, and tells how many rows of which window each has."""

    job: str
    ordering: Ordering
    bounds: bytes

    def __call__(
        self, task: int, items: Iterable[Element]
    ) -> Iterator[tuple[int, bytes] | Told[tuple[int, Counter[Kind]]]]:
        bounds, told = decode(self.bounds, "bounds of ranges"), dict[int, Counter[Kind]]()
        for _, each in items:
            if isinstance(each, Rows) and each.job == self.job:
                rows = decode(each.data, f"rows of job {self.job}")
                for number, some in in_ranges(rows, bounds, self.ordering):
                    counts = _counted(some["win"], some["w"])
                    told.setdefault(number, Counter()).update(counts)
                    yield number, encode(some)
        yield from (Told(each) for each in told.items())


def bounds_of(job: Job, ordering: Ordering, sample: Sequence[bytes], ranges: int) -> bytes:
    """Where all ranges but the first begin, so that they have about as many rows each."""
    every = pa.concat_tables([decode(data, f"a sample of job {job.name}") for data in sample])
    doing = f"the bounds of rows of job {job.name}"
    ordered = run(f"SELECT * FROM sample ORDER BY {_by(ordering)}", {"sample": every}, doing)
    places = [number * ordered.num_rows // ranges for number in range(1, ranges)]
    return encode(ordered.take(pa.array(places, pa.int64())))


def in_ranges(
    rows: pa.Table, bounds: pa.Table, ordering: Ordering
) -> Iterator[tuple[int, pa.Table]]:
    """The rows of each range, in any order; a row that is a bound is the first of its range."""
    if not bounds.num_rows:
        yield 0, rows
        return
    numbered = rows.append_column("__row", pa.array(np.arange(rows.num_rows)))
    names = ", ".join(name for name, _ in ordering)
    behind = f"sum(__bound) OVER (ORDER BY {_by(ordering)}, __bound DESC ROWS UNBOUNDED PRECEDING)"
    sql = (
        f"SELECT __row, CAST({behind} AS BIGINT) AS __range FROM ("
        f"SELECT {names}, __row, 0 AS __bound FROM rows UNION ALL "
        f"SELECT {names}, NULL, 1 FROM bounds) QUALIFY __bound = 0"
    )
    found = run(sql, {"rows": numbered, "bounds": bounds}, "cutting rows into ranges")
    of = np.empty(rows.num_rows, np.int64)
    of[found["__row"].to_numpy()] = found["__range"].to_numpy()
    for number in np.unique(of).tolist():
        yield number, rows.filter(pa.array(of == number))


def _by(ordering: Ordering) -> str:
    return ", ".join(f"{name} {direction}".rstrip() for name, direction in ordering)


@dataclass(frozen=True)
class _Sort:
    """Sorts and stores the rows of one range."""

    stamp: JobWindows
    writer: Writer
    firsts: tuple[int, ...]  # numbers of the first rows of ranges
    begun: tuple[frozenset[Kind], ...]  # windows that begin before each

    def __call__(
        self, number: int, items: Iterable[tuple[int, bytes]]
    ) -> Iterator[Part | MuntinError]:
        job = self.stamp.job
        tables = [decode(data, f"rows of job {job.name}") for _, data in items]
        if tables:
            rows = _leaving(self.stamp, order(job, tables))
            del tables
            numbered = _numbered(self.stamp, rows, self.firsts[number], set(self.begun[number]))
            yield from _parts(self.writer, numbered)


@dataclass(frozen=True)
class _SortFirst:
    """Sorts the rows of one range, which stay, and tells what is to be known of them."""

    job: Job
    before: tuple[Mapping[Kind, int], ...]  # rows of windows that ranges before each have

    def __call__(
        self, number: int, items: Iterable[tuple[int, bytes]]
    ) -> Iterator[Piece | Told[Ordered]]:
        started, name = time.perf_counter(), self.job.name
        tables = [decode(data, f"rows of job {name}") for _, data in items]
        if tables:
            rows, place = good_rows(order(self.job, tables)), (name, number)
            del tables
            yield from _pieces(place, rows)
            counts = _counted(rows[WINDOW], rows[WINDOW_END])
            sums = sums_of(rows, self.before[number])
            yield Told(Ordered(place, time.perf_counter() - started, None, counts, (), sums))


def _leaving(stamp: JobWindows, rows: pa.Table) -> pa.Table:
    """Ordered rows without faults, which are told, and without windows that do not leave."""
    rows = good_rows(rows)
    which, ends = rows[WINDOW].to_numpy(), rows[WINDOW_END].to_numpy()
    leaves = np.ones(rows.num_rows, bool)
    for start, stop in runs_of(which, ends):
        leaves[start:stop] = (int(which[start]), int(ends[start])) in stamp.counts
    return rows if leaves.all() else rows.filter(pa.array(leaves))


def good_rows(rows: pa.Table) -> pa.Table:
    """Ordered rows without faults."""
    if FAULT not in rows.column_names:
        return rows
    return rows.filter(pc.is_null(rows[FAULT])).drop_columns([FAULT])


def _numbered(
    stamp: JobWindows, rows: pa.Table, first: int, told: set[Kind]
) -> Iterator[tuple[int, pa.Table]]:
    """Rows as they are stored, some at a time, each time with the number of the first."""
    for table in stamp.stamped(rows, told):
        yield first, table
        first += table.num_rows


def _parts(
    writer: Writer, numbered: Iterator[tuple[int, pa.Table]]
) -> Iterator[Part | MuntinError]:
    try:
        part = writer.write(numbered)
        if part is not None:
            yield part
    except MuntinError as error:  # raised by the driver, without Spark's traceback
        yield error


def _written(parts: RDD[Part | MuntinError]) -> list[Part]:
    """Has files written; in the order of their rows."""
    written: list[Part] = []
    for part in parts.collect():
        if isinstance(part, MuntinError):
            raise part
        written.append(part)
    return sorted(written, key=lambda part: part.first)


def _stamp(windows: WaitingWindows) -> JobWindows:
    """What rows of windows are stored with: all but the rows, to be sent to tasks."""
    told = windows.counts, windows.scores, windows.revisions, windows.at
    return JobWindows(windows.job, pa.table({}), *told)


def _with(held: Held, few: Sequence[Element]) -> Held:
    """All elements; those that the driver has are as many as it may have."""
    return held if not few else held.context.union([held, held.context.parallelize(few)])


@dataclass(frozen=True)
class Ordered:
    """The ordered rows of a place with what failed there, if they are few, or what is told of
    those that wait.
    """

    place: Place
    seconds: float
    rows: bytes | None
    counts: Mapping[Kind, int]
    faults: Faults
    sums: Mapping[Kind, int] = field(default_factory=dict)
    """Of hashes of rows, by window, of a job that shows open ones."""


@dataclass(frozen=True)
class Piece:
    """Some of the ordered rows of a place."""

    place: Place
    number: int
    data: bytes


class GatheredRows:
    """Rows of a job that have met where they belong together, and are in order there."""

    def __init__(
        self,
        held: RDD[Piece],
        ordered: Sequence[Ordered],
        release: Callable[[], None],
        faults: Faults = (),
    ) -> None:
        """`held` has rows until they are released; those that came are among the `ordered`.

        What has failed before they met is told by itself.
        """
        self._held = held
        self.let_go = release
        self._faults = faults
        self._ordered = [_counted_up(each) for each in sorted(ordered, key=lambda o: o.place)]

    @property
    def counts(self) -> Mapping[Kind, int]:
        return sum((Counter(each.counts) for each in self._ordered), Counter())

    @property
    def faults(self) -> Faults:
        return (*self._faults, *(fault for each in self._ordered for fault in each.faults))

    @property
    def digests(self) -> Mapping[Kind, str]:
        sums: Counter[Kind] = Counter()
        for each in self._ordered:
            if each.rows is None:
                sums.update(each.sums)
            else:
                sums.update(sums_of(decode(each.rows, f"rows of job {each.place[0]}")))
        return {kind: digest(sum_) for kind, sum_ in sums.items()}

    def write(self, windows: WaitingWindows, writer: Writer, first: int) -> list[Part]:
        firsts: dict[Place, int] = {}
        begun: dict[Place, frozenset[Kind]] = {}
        seen: set[Kind] = set()
        for each in self._ordered:
            firsts[each.place], begun[each.place] = first, frozenset(seen & each.counts.keys())
            seen |= each.counts.keys()
            first += sum(n for kind, n in each.counts.items() if kind in windows.counts)
        few = [Piece(each.place, 0, each.rows) for each in self._ordered if each.rows is not None]
        task = _Store(_stamp(windows), writer, firsts, begun)
        context = self._held.context
        held = self._held if not few else context.union([self._held, context.parallelize(few, 1)])
        return _written(held.mapPartitions(task))


@dataclass(frozen=True)
class _Store:
    """Stores the ordered rows of the places that a task has."""

    stamp: JobWindows
    writer: Writer
    firsts: Mapping[Place, int]
    begun: Mapping[Place, frozenset[Kind]]  # windows of a place that begin before it

    def __call__(self, items: Iterable[Piece]) -> Iterator[Part | MuntinError]:
        yield from _parts(self.writer, self._numbered(items))

    def _numbered(self, items: Iterable[Piece]) -> Iterator[tuple[int, pa.Table]]:
        """Pieces of a place follow each other."""
        firsts, told = dict(self.firsts), set[Kind]()
        for piece in items:
            if piece.place in firsts:
                told |= self.begun[piece.place]
                rows = decode(piece.data, f"rows of job {self.stamp.job.name}")
                rows = _leaving(self.stamp, rows)
                yield from _numbered(self.stamp, rows, firsts[piece.place], told)
                firsts[piece.place] += rows.num_rows


def _counted_up(ordered: Ordered) -> Ordered:
    """The same, with what is told of rows that wait."""
    if ordered.rows is None:
        return ordered
    good, faults = _without_faults(decode(ordered.rows, f"rows of job {ordered.place[0]}"))
    counts = _counted(good[WINDOW], good[WINDOW_END])
    return replace(ordered, rows=encode(good), counts=counts, faults=faults)


def gathered(
    held: Held,
    few: Sequence[Element],
    jobs: Jobs,
    stretches: Mapping[str, Sequence[int]],
    previous: Mapping[str, Previous],
    shown: frozenset[str],
    tasks: int,
    row_bytes: int,
    stay: Stay,
) -> tuple[RDD[Piece], list[Ordered]]:
    """Has the rows of these jobs meet where they belong together, and ordered there.

    That is a stretch of windows; `stretches` has the last end of each but the last, in order. What
    is no more than so many bytes comes to the driver, and all of what is looked back at. Of jobs
    of which open windows are `shown`, it is told what tells rows from others.
    """

    def meet(items: Iterable[Element]) -> Iterator[tuple[Place, tuple[int, int, bytes]]]:
        for group, each in items:
            if isinstance(each, Rows) and each.job in jobs:
                rows = decode(each.data, f"rows of job {each.job}")
                for number, some in _in_stretches(rows, stretches[each.job]):
                    yield (each.job, number), (group, each.number, encode(some))

    met = _with(held, few).mapPartitions(meet).partitionBy(tasks, _task_of)
    return stay(met, _Order(jobs, previous, shown, row_bytes))


def stretches_of(job: Job, kinds: Sequence[Sequence[int]], rows: int, tasks: int) -> list[int]:
    """The last ends of all stretches but the last, of due windows with about so many rows.

    A statement takes longer to start than few rows take to be ordered, so that windows which
    overlap a lot are ordered together. There is work for every task, and not too much at once.
    """
    if not kind_of(job.shape).by_window(job):
        return []
    ends = sorted({end for kind in kinds for end in kind})
    count = min(len(ends), max(tasks, -(-rows // CHUNK_ROWS)))
    return [ends[number * len(ends) // count - 1] for number in range(1, count)]


def _in_stretches(rows: pa.Table, lasts: Sequence[int]) -> Iterator[tuple[int, pa.Table]]:
    """The rows of each stretch that has any, in the order that they have."""
    numbers = np.searchsorted(np.array(lasts, np.int64), rows["w"].to_numpy())
    order = np.argsort(numbers, kind="stable")
    sorted_, numbers = rows.take(pa.array(order)), numbers[order]
    changes = np.flatnonzero(np.diff(numbers)) + 1
    for start, stop in pairwise([0, *changes.tolist(), len(numbers)]):
        if stop > start:
            yield int(numbers[start]), sorted_.slice(start, stop - start)


def _task_of(place: Place) -> int:
    """Stretches of a job are spread evenly."""
    job, number = place
    return crc32(job.encode()) + number


@dataclass(frozen=True)
class _Order:
    """Orders the rows that have met in a task, place by place."""

    jobs: Jobs
    previous: Mapping[str, Previous]
    shown: frozenset[str]
    row_bytes: int

    def __call__(
        self, task: int, items: Iterable[tuple[Place, tuple[int, int, bytes]]]
    ) -> Iterator[Piece | Told[Ordered]]:
        places: dict[Place, list[tuple[int, int, bytes]]] = {}
        for place, rows in items:
            places.setdefault(place, []).append(rows)
        for place in sorted(places):
            started, job = time.perf_counter(), self.jobs[place[0]]
            several = sorted(places.pop(place), key=itemgetter(0, 1))
            tables = [decode(data, f"rows of job {job.name}") for *_, data in several]
            kind = kind_of(job.shape)
            if kind.more_rounds(job):
                tables = [kind.later_rounds(job, tables)]
            rows = order(job, tables, self.previous.get(job.name, NOTHING_BEFORE))
            data, seconds = encode(rows), time.perf_counter() - started
            if looks_back(job):
                _require_kept(job, rows)
            elif len(data) > self.row_bytes:
                good, faults = _without_faults(rows)
                yield from _pieces(place, good)
                counts = _counted(good[WINDOW], good[WINDOW_END])
                sums = sums_of(good) if job.name in self.shown else {}
                yield Told(Ordered(place, seconds, None, counts, faults, sums))
                continue
            yield Told(Ordered(place, seconds, data, {}, ()))


def _pieces(place: Place, rows: pa.Table) -> Iterator[Piece]:
    for piece in in_chunks(place[0], rows, 0):
        yield Piece(place, piece.number, piece.data)


def _without_faults(rows: pa.Table) -> tuple[pa.Table, Faults]:
    """Ordered rows, and what failed on the way to them."""
    if FAULT not in rows.column_names:
        return rows, ()
    told = rows.filter(pc.is_valid(rows[FAULT]))
    columns = (told[name].to_pylist() for name in (WINDOW, WINDOW_END, FAULT))
    faults = (((which, end), pickle.loads(data)) for which, end, data in zip(*columns, strict=True))
    return rows.filter(pc.is_null(rows[FAULT])).drop_columns([FAULT]), tuple(faults)


def _require_kept(job: Job, rows: pa.Table) -> None:
    """What a job looks back at is part of the state, and at hand."""
    if rows.nbytes > PREVIOUS_BYTES:
        raise MuntinError(
            f"job '{job.name}' looks back at its last result with PREVIOUS, and one has "
            f"{rows.num_rows:,} rows of {rows.nbytes >> 20} MB, more than the "
            f"{PREVIOUS_BYTES >> 20} MB that are kept for that; have its query leave fewer rows, "
            "as with LIMIT or WHERE"
        )
