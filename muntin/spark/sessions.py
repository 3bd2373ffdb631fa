"""Sessions that are too many for the driver: tasks order, score, number and store them.

Rows are cut into ranges by where sessions end and start, so that all rows of a session meet in one
task. The driver adds up how many rows come before those of a range, and hears what the sessions of
each come to together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import reduce
from itertools import accumulate

import pyarrow as pa

from muntin.errors import MuntinError
from muntin.kernel.block import decode, encode
from muntin.kernel.finish import order
from muntin.kernel.kinds import kind_of
from muntin.kernel.kinds.kind import Ordering
from muntin.model.jobs import Job
from muntin.run.many import Part, Writer
from muntin.run.sessions import Totals, Verdict, WaitingSessions, in_sessions
from muntin.spark import rows
from muntin.spark.holdings import Element, Rows
from muntin.spark.moving import move
from muntin.spark.rows import InGroups
from muntin.spark.telling import Told

_TELLS = ("w", "win", "started")  # columns of rows of `finish` that tell sessions apart
_AT_ONCE = 32_768  # rows that are scored and made ready for storing
_Made = tuple[Part | None, Totals]


class SortedSessions(InGroups):
    """Rows of sessions, of which it is told what all come to together."""

    def write(
        self, sessions: WaitingSessions, writer: Writer, first: int
    ) -> tuple[list[Part], Totals]:
        job, ranges = self.job, max(1, -(-self.waits.rows // rows.RANGE_ROWS))
        every = kind_of(job.shape).ordering(job)
        assert every is not None, job.name
        ordering = tuple(each for each in every if each[0] in _TELLS)
        bounds = rows.bounds_of(job, ordering, self.waits.sample, ranges)
        cut = _Cut(job.name, ordering, bounds, sessions.verdict)
        moved, told = move(self.every, cut, ranges, int)
        in_range: Counter[int] = Counter()
        for number, count in told:
            in_range[number] += count
        counts = (in_range[number] for number in range(ranges))
        firsts = tuple(accumulate(counts, initial=first))
        task = _Store(job, sessions.verdict, sessions.at, writer, firsts)
        made: list[_Made] = []
        for each in moved.mapPartitionsWithIndex(task).collect():
            if isinstance(each, MuntinError):
                raise each
            made.append(each)
        parts = sorted((part for part, _ in made if part), key=lambda part: part.first)
        return parts, reduce(Totals.plus, (totals for _, totals in made), Totals())


@dataclass(frozen=True)
class _Cut:
    """Cuts rows of sessions that leave into ranges, and tells how many each has."""

    job: str
    ordering: Ordering
    bounds: bytes
    verdict: Verdict

    def __call__(
        self, task: int, items: Iterable[Element]
    ) -> Iterator[tuple[int, bytes] | Told[tuple[int, int]]]:
        bounds, told = decode(self.bounds, "bounds of ranges"), Counter[int]()
        for _, each in items:
            if isinstance(each, Rows) and each.job == self.job:
                some = decode(each.data, f"rows of job {self.job}")
                some = some.filter(self.verdict.leaves(some["started"], some["w"]))
                for number, mine in rows.in_ranges(some, bounds, self.ordering):
                    if mine.num_rows:
                        told[number] += mine.num_rows
                        yield number, encode(mine)
        yield from (Told(each) for each in told.items())


@dataclass(frozen=True)
class _Store:
    """Sorts, scores and stores the sessions of one range."""

    job: Job
    verdict: Verdict
    at: float
    writer: Writer
    firsts: tuple[int, ...]  # numbers of the first rows of ranges

    def __call__(
        self, number: int, items: Iterable[tuple[int, bytes]]
    ) -> Iterator[_Made | MuntinError]:
        tables = [decode(data, f"rows of job {self.job.name}") for _, data in items]
        if not tables:
            return
        ordered = rows.good_rows(order(self.job, tables))
        del tables
        scoring = _Scoring(self, ordered, self.firsts[number])
        try:
            part = self.writer.write(scoring)
            yield part, scoring.totals
        except MuntinError as error:  # raised by the driver, without Spark's traceback
            yield error


class _Scoring:
    """Ordered rows as they are stored, some at a time, and what their sessions have come to."""

    def __init__(self, task: _Store, ordered: pa.Table, first: int) -> None:
        self._task = task
        self._ordered = ordered
        self._first = first
        self.totals = Totals()

    def __iter__(self) -> Iterator[tuple[int, pa.Table]]:
        """Each table with the number of its first row."""
        task, first = self._task, self._first
        for some in in_sessions(self._ordered, _AT_ONCE):
            windows = task.verdict.sessions(task.job, some).left_at(task.at)
            self.totals = self.totals.plus(Totals.of(windows, task.verdict.lags_after))
            for table in windows.tables():
                yield first, table
                first += table.num_rows
