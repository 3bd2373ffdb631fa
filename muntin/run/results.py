"""What leaves a pipeline: windows of jobs, as results and as rows to store."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from itertools import pairwise
from typing import Any, NamedTuple, Self, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from muntin.fidelity.score import C2, Reason
from muntin.kernel.block import Block
from muntin.kernel.engine import run
from muntin.kernel.kinds import kind_of
from muntin.kernel.statements import (
    SESSION_LATE,
    SESSION_RECORDS,
    SESSION_START,
    WINDOW,
    WINDOW_END,
)
from muntin.kernel.tables import results_between
from muntin.model.counts import Counts
from muntin.model.jobs import Job
from muntin.units import FIRST_US, LAST_US

Kind = tuple[int, int]  # which of the job's windows and the pane it ends before; or a session
Numbers = NDArray[np.int64]
_TIMES = pa.timestamp("us", "UTC")
_ROWS_AT_ONCE = 32_768  # that are made ready for storing


class Used(NamedTuple):
    """A result that another one is made with: of which job and window, its end, its version."""

    job: str
    window: str
    end: int  # microseconds of time, or a count
    version: int


class Result:
    """The rows of one job for one window `[start, end)`: microseconds of time, or a count.

    `window` says which of the job's windows it is, for example `1 hour every 5 minutes`. Where
    late data has changed it since, `revision` counts the times that it has left before. `version`
    is that of the job that it is by. `used` are the results of jobs that it is made with, where
    the job names LATEST. Rows that are very many are read when they are asked for.
    """

    job: str
    window: str
    start: int
    end: int
    rows: pa.Table
    num_rows: int
    counts: Counts
    c2: C2
    revision: int
    version: int
    used: tuple[Used, ...]

    def batches(self) -> Iterator[pa.Table]:
        """The rows in their order, some at a time."""
        yield self.rows

    def to_pandas(self) -> Any:
        """A DataFrame; with dates out of Python's calendar, they are no objects of its own."""
        try:
            return self.rows.to_pandas()
        except (OverflowError, ValueError):
            return self.rows.to_pandas(date_as_object=False)


@dataclass(frozen=True)
class AtHand(Result):
    """A result whose rows are in memory."""

    job: str
    window: str
    start: int
    end: int
    rows: pa.Table
    num_rows: int
    counts: Counts
    c2: C2
    revision: int = 0
    version: int = 1
    used: tuple[Used, ...] = ()


class Departing:
    """Windows of one job that leave together: their counts and scores.

    A session is told by where it starts and ends, any other window by its kind and last pane. What
    kind this is of says where the rows are. Of sessions that are too many to be told one by one,
    counts and scores have the last alone.
    """

    job: Job
    counts: Mapping[Kind, Counts]
    scores: Mapping[Kind, C2]
    revisions: Mapping[Kind, int]
    at: float  # when they have left

    @property
    def num_windows(self) -> int:
        """How many windows these are, with rows or without."""
        return len(self.counts)

    @property
    def num_rows(self) -> int:
        raise NotImplementedError

    @property
    def nbytes(self) -> int:
        """What the rows take, where they are."""
        raise NotImplementedError

    def newest(self) -> Departing:
        """The last of the windows alone."""
        raise NotImplementedError

    @property
    def final(self) -> Departing:
        """Those that have left, without any that are shown while they are open."""
        return self

    def results(self) -> Iterator[Result]:
        """One result for each window with rows, in the order of windows.

        A revision that has none is a result too: it takes back what there was.
        """
        raise NotImplementedError

    def tables(self) -> Iterator[pa.Table]:
        """The rows as they are stored, some at a time: job, window, columns, counts, score.

        A revision without rows is one row with nothing but its window and number.
        """
        raise NotImplementedError

    def table(self) -> pa.Table:
        """The same, all at once."""
        tables = list(self.tables()) or [stored_schema(self.job).empty_table()]
        return pa.concat_tables(tables, promote_options="default")

    def with_scores(self, scores: Mapping[Kind, C2]) -> Self:
        return replace(cast("Any", self), scores=scores)  # type: ignore[no-any-return]

    def left_at(self, at: float) -> Self:
        return replace(cast("Any", self), at=at)  # type: ignore[no-any-return]

    @property
    def last(self) -> Kind:
        """The window that ends last."""
        return max(self.counts, key=lambda kind: (self.bounds(kind)[1], -kind[0]))

    def bounds(self, kind: Kind) -> tuple[int, int]:
        return kind_of(self.job.shape).bounds(self.job, kind)

    def name(self, kind: Kind) -> str:
        return kind_of(self.job.shape).name(self.job, kind)

    def used(self, kind: Kind) -> tuple[Used, ...]:
        """The results that a window is made with, those of one job in their order."""
        found = results_between(self.job, *self.bounds(kind)) if self.job.latest else ()
        used = (
            Used(table.job or "", table.window, *version.result)
            for table, version in found
            if version.result is not None
        )
        return tuple(dict.fromkeys(used))

    def withdrawn(self, with_rows: Container[Kind]) -> list[Kind]:
        """The windows whose revision has no rows."""
        revised = [kind for kind, revision in self.revisions.items() if revision]
        return [kind for kind in revised if kind not in with_rows]

    def stamped(self, rows: pa.Table, told: set[Kind]) -> Iterator[pa.Table]:
        """Ordered rows of these windows as they are stored, some at a time: stored rows are larger.

        Records of sources are told with the first row of a window, and `told` has the windows of
        which they were.
        """
        for start in range(0, max(1, rows.num_rows), _ROWS_AT_ONCE):
            yield self._table(rows.slice(start, _ROWS_AT_ONCE), told)

    def takes_back(self, withdrawn: Sequence[Kind]) -> Iterator[pa.Table]:
        """What is stored of revisions without rows: nothing but their windows and numbers."""
        if withdrawn:
            columns = {
                "job": [self.job.title] * len(withdrawn),
                "window_name": [self._names[which] for which, _ in withdrawn],
                "window_start": self._shown([self.bounds(k)[0] for k in withdrawn]),
                "window_end": self._shown([self.bounds(k)[1] for k in withdrawn]),
                "revision": [self.revisions[k] for k in withdrawn],
                "emitted_at": pa.array([int(self.at * 1e6)] * len(withdrawn), _TIMES),
                "job_version": [self.job.edition.number] * len(withdrawn),
            }
            yield pa.table(columns)

    def _shown(self, positions: Numbers | Sequence[int]) -> pa.Array:
        """Bounds of windows: of time, no further than there are dates that everybody can read."""
        if not self.job.shape.axis.is_time:
            return pa.array(positions, pa.int64())
        return pa.array(np.clip(positions, FIRST_US, LAST_US)).cast(_TIMES)

    def _table(self, rows: pa.Table, with_records: set[Kind]) -> pa.Table:
        kind_, which = kind_of(self.job.shape), pa.array(rows.column(WINDOW).to_numpy())
        first, last = kind_.told(rows)
        starts, ends = kind_.all_bounds(self.job, (first, last))
        columns = {
            "job": pa.repeat(pa.scalar(self.job.title), len(ends)),
            "window_name": pa.array(self._names, pa.string()).take(which),
            "window_start": self._shown(starts),
            "window_end": self._shown(ends),
        }
        columns |= {o.name: rows.column(o.name) for o in self.job.outputs}
        counted = np.zeros((len(ends), 5), np.int64)
        told = np.zeros(len(ends), np.int64)  # which of the scores
        scores: dict[C2, int] = {}  # equal ones are made once
        records: list[Any] = [None] * len(ends)  # of each window in its first row
        for start, stop in runs_of(first, last):
            kind = int(first[start]), int(last[start])
            counts, c2 = self.counts[kind], self.scores[kind]
            counted[start:stop, :4] = counts.read, counts.bad, counts.late, counts.failed
            counted[start:stop, 4] = self.revisions.get(kind, 0)
            told[start:stop] = scores.setdefault(c2, len(scores))
            if c2.records is not None and kind not in with_records:
                with_records.add(kind)
                by_source = zip(c2.names, c2.records, strict=True)
                records[start] = [{"source": name, "panes": panes} for name, panes in by_source]
        for number, name in enumerate(("read", "bad", "late", "failed")):
            columns[f"records_{name}"] = pa.array(counted[:, number])
        columns["c2"] = _stored(list(scores)).take(pa.array(told))
        columns["c2_records"] = pa.array(records, RECORDS)
        columns["revision"] = pa.array(counted[:, 4])
        columns["emitted_at"] = pa.repeat(pa.scalar(int(self.at * 1e6), _TIMES), len(ends))
        version = pa.scalar(self.job.edition.number, pa.int64())
        columns["job_version"] = pa.repeat(version, len(ends))
        if self.job.latest:
            columns["results_used"] = self._all_used(first, last)
        return pa.table(columns)

    def _all_used(self, first: Numbers, ends: Numbers) -> pa.Array:
        """By row, the results that its window is made with."""
        windows: list[Any] = []
        places = np.zeros(len(ends), np.int64)
        for start, stop in runs_of(first, ends):
            places[start:stop] = len(windows)
            used = self.used((int(first[start]), int(ends[start])))
            windows.append([each._replace(end=_clipped(each.end))._asdict() for each in used])
        return pa.array(windows, USED).take(pa.array(places))

    @cached_property
    def _names(self) -> list[str]:
        return kind_of(self.job.shape).names(self.job)


@dataclass(frozen=True)
class JobWindows(Departing):
    """Windows whose rows are at hand, in order."""

    job: Job
    rows: pa.Table
    counts: Mapping[Kind, Counts]
    scores: Mapping[Kind, C2]
    revisions: Mapping[Kind, int] = field(default_factory=dict)
    at: float = 0.0

    @property
    def num_rows(self) -> int:
        return int(self.rows.num_rows)

    @property
    def nbytes(self) -> int:
        return int(self.rows.nbytes)

    def newest(self) -> JobWindows:
        last = self.last
        first, ends = self._kinds()
        same = pa.array((first == last[0]) & (ends == last[1]))
        return replace(
            self,
            rows=self.rows.filter(same),
            counts={last: self.counts[last]},
            scores={last: self.scores[last]},
            revisions={last: self.revisions.get(last, 0)},
        )

    def without(self, kinds: Collection[Kind]) -> JobWindows:
        """The others alone."""
        if not kinds:
            return self
        told = zip(*(numbers.tolist() for numbers in self._kinds()), strict=True)
        return replace(
            self,
            rows=self.rows.filter(pa.array([kind not in kinds for kind in told], pa.bool_())),
            counts={kind: each for kind, each in self.counts.items() if kind not in kinds},
            scores={kind: each for kind, each in self.scores.items() if kind not in kinds},
            revisions={kind: each for kind, each in self.revisions.items() if kind not in kinds},
        )

    @property
    def final(self) -> JobWindows:
        return self.without({k for k, c2 in self.scores.items() if c2.reason is Reason.OPEN})

    def results(self) -> Iterator[Result]:
        ours = [name for name in self.rows.column_names if name in OURS]
        columns = self.rows.drop_columns(ours)
        first, ends = self._kinds()
        for start, stop in runs_of(first, ends):
            kind = int(first[start]), int(ends[start])
            yield self._result(kind, columns.slice(start, stop - start))
        for kind in self._withdrawn():
            yield self._result(kind, columns.slice(0, 0))

    def _result(self, kind: Kind, rows: pa.Table) -> Result:
        return AtHand(
            self.job.title,
            self.name(kind),
            *self.bounds(kind),
            rows,
            rows.num_rows,
            self.counts[kind],
            self.scores[kind],
            self.revisions.get(kind, 0),
            self.job.edition.number,
            self.used(kind),
        )

    def _withdrawn(self) -> list[Kind]:
        if not any(self.revisions.values()):
            return []
        first, ends = self._kinds()
        return self.withdrawn(set(zip(first.tolist(), ends.tolist(), strict=True)))

    def tables(self) -> Iterator[pa.Table]:
        yield from self.stamped(self.rows, set())
        yield from self.takes_back(self._withdrawn())

    def _kinds(self) -> tuple[Numbers, Numbers]:
        return kind_of(self.job.shape).told(self.rows)


def _stored(scores: Sequence[C2]) -> pa.Array:
    return pa.array(
        [
            {
                "area": c2.area,
                "time": c2.time,
                "space": c2.space,
                "reason": str(c2.reason),
                "sources": c2.sources,
                "panes": [{"sources": count, "panes": panes} for count, panes in c2.runs],
                "missing": [missing._asdict() for missing in c2.missing],
            }
            for c2 in scores
        ],
        pa.struct(SCORE),
    )


_RUN = pa.struct([("sources", pa.int32()), ("panes", pa.int32())])
_MISSING = pa.struct([("source", pa.string()), ("why", pa.string()), ("panes", pa.int32())])
SCORE_IN_SHORT = {
    "area": pa.float64(),
    "time": pa.float64(),
    "space": pa.float64(),
    "reason": pa.string(),
}
SCORE = SCORE_IN_SHORT | {
    "sources": pa.int32(),
    "panes": pa.list_(_RUN),
    "missing": pa.list_(_MISSING),
}
USED = pa.list_(
    pa.struct(
        [("job", pa.string()), ("window", pa.string()), ("end", _TIMES), ("version", pa.int64())]
    )
)
RECORDS = pa.list_(pa.struct([("source", pa.string()), ("panes", pa.list_(pa.int64()))]))


SESSION = (SESSION_START, WINDOW_END, SESSION_RECORDS, SESSION_LATE)
OURS = (WINDOW, *SESSION)


def runs_of(first: Numbers, ends: Numbers) -> Iterator[tuple[int, int]]:
    """Where rows of the same window begin and end."""
    if not len(ends):
        return
    changes = np.flatnonzero((ends[1:] != ends[:-1]) | (first[1:] != first[:-1])) + 1
    yield from pairwise([0, *changes.tolist(), len(ends)])


def _clipped(position: int) -> int:
    """A time that everybody can read."""
    return min(max(position, FIRST_US), LAST_US)


def no_windows(job: Job) -> JobWindows:
    """Nothing yet, with the columns that will come."""
    which, *others = kind_of(job.shape).columns
    ours = [(which, pa.int32()), *((name, pa.int64()) for name in others)]
    kinds = _arrow_types(tuple(o.type for o in job.outputs))
    columns = [(o.name, kind) for o, kind in zip(job.outputs, kinds, strict=True)]
    return JobWindows(job, pa.schema([*ours, *columns]).empty_table(), {}, {})


@cache
def _arrow_types(types: tuple[str, ...]) -> tuple[pa.DataType, ...]:
    """What values of DuckDB's types are in Arrow."""
    columns = ", ".join(f"NULL::{kind} AS x{n}" for n, kind in enumerate(types))
    rows = run(f"SELECT {columns} LIMIT 0", {}, "describing columns")
    return tuple(rows.schema.types)


def stored_schema(job: Job) -> pa.Schema:
    """The columns of the table of a job's results, but for the numbers of rows."""
    end = _TIMES if job.shape.axis.is_time else pa.int64()
    columns = {"job": pa.string(), "window_name": pa.string()}
    columns |= {"window_start": end, "window_end": end}
    kinds = _arrow_types(tuple(o.type for o in job.outputs))
    columns |= {o.name: kind for o, kind in zip(job.outputs, kinds, strict=True)}
    columns |= {f"records_{name}": pa.int64() for name in ("read", "bad", "late", "failed")}
    columns |= {"c2": pa.struct(SCORE), "c2_records": RECORDS, "revision": pa.int64()}
    columns |= {"emitted_at": _TIMES, "job_version": pa.int64()}
    columns |= {"results_used": USED} if job.latest else {}
    return pa.schema(list(columns.items()))


@dataclass(frozen=True)
class ToSave:
    """What a commit has to keep of what was read: blocks by shape, if they are few.

    Tasks have written the others already, into files of which the names and lengths are here.
    """

    blocks: Mapping[str, Sequence[Block]] = field(default_factory=dict)
    files: Mapping[str, int] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """How many bytes it is."""
        blocks = (block for some in self.blocks.values() for block in some)
        return sum(len(block.data) for block in blocks) + sum(self.files.values())


@dataclass(frozen=True)
class Emission:
    """What leaves in one turn: windows, blocks to save, and what there is to say."""

    windows: tuple[Departing, ...] = ()
    to_save: ToSave = field(default_factory=ToSave)
    notes: tuple[str, ...] = ()

    def with_notes(self, notes: Iterable[str]) -> Emission:
        """The same, with more to say."""
        return replace(self, notes=(*self.notes, *notes))

    def results(self) -> Iterator[Result]:
        for windows in self.windows:
            yield from windows.results()
