"""The tables that jobs of a stream join, as a run sees them: versions, each from a pane on.

The driver looks at the files between two batches. One that has changed is read, its rows are kept,
and they are joined from behind all that was read on, where a pane begins: whatever comes for panes
before, late or from a source that is behind, is joined with the rows of before. What is known of
versions is part of the state, so that it is the same after a restart. A file that cannot be read,
or does not fit its columns any more, is told of once; until it is mended the rows of before stay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from muntin.errors import InputError
from muntin.fidelity.score import NEVER
from muntin.kernel.tables import hold, let_go, mark_of, read_table, version_rows
from muntin.model.jobs import Job
from muntin.model.shapes import Shape
from muntin.model.streams import Stream
from muntin.model.tables import OF_JOB, Table, TableVersion
from muntin.run.catalog import Catalog
from muntin.run.derived import RESULT_COLUMNS, fields_of
from muntin.run.progress import Progress

MOST_BYTES = 64 << 20  # of a result that is sent to wherever records are read
MOST_BYTES_TO_AGENTS = 4 << 20
Keep = Callable[[str, pa.Table], str | None]  # the file in which rows are kept; None: in memory


@dataclass(frozen=True)
class _Heard:
    """A result of a job: when it left, its rows, where its window ends and its job's version."""

    mark: tuple[int, ...]
    rows: pa.Table
    result: tuple[int, int]

    @classmethod
    def of(cls, rows: pa.Table, table: Table) -> _Heard:
        """That of one window, from rows as they are stored."""
        first = {name: rows[name].slice(0, 1) for name in ("emitted_at", "window_end")}
        at, end = (each.cast(pa.int64())[0].as_py() for each in first.values())
        version = rows["job_version"][0].as_py() or 1
        if "c2" not in rows.column_names:
            rows = rows.append_column("c2", pa.nulls(rows.num_rows))
        rows = rows.filter(pc.is_valid(rows["c2"]))  # a revision that takes back has no rows
        for column in read_table(table).schema:  # another version may have had fewer
            if column.name not in (*rows.column_names, *RESULT_COLUMNS):
                rows = rows.append_column(column, pa.nulls(rows.num_rows, column.type))
        return cls((at,), fields_of(rows, table.columns), (end, version))


class _Newest:
    """Rows of the last window of those that a table has, as far as they are not too many."""

    def __init__(self, table: Table, most: int) -> None:
        self.table = table
        self.rows: list[pa.Table] = []
        self.bytes = 0
        self._most = most
        self._end: pa.Scalar | None = None

    def take(self, rows: pa.Table) -> None:
        """Takes rows as they are stored, which come in the order of their windows or not."""
        rows = rows.filter(pc.equal(rows["window_name"], self.table.window))
        end = pc.max(rows["window_end"]) if rows.num_rows else None
        if end is None or (self._end is not None and pc.less(end, self._end).as_py()):
            return
        if self._end is None or pc.greater(end, self._end).as_py():
            self.rows, self.bytes, self._end = [], 0, end
        more = rows.filter(pc.equal(rows["window_end"], end))
        there = (c.name for c in self.table.columns if c.name in more.column_names)
        self.bytes += sum(more[name].nbytes for name in there)
        if self.bytes <= self._most or not self.rows:
            self.rows.append(more)


def most_bytes(stream: Stream) -> int:
    """How large a result may be that is sent to wherever the records of a stream are read."""
    return MOST_BYTES_TO_AGENTS if stream.agents else MOST_BYTES


def _whom(stream: Stream) -> str:
    return "agents" if stream.agents else "wherever records are read"


def _megabytes(size: int) -> str:
    return f"{size / (1 << 20):,.3g}"


class Tables:
    def __init__(self, progress: Progress, keep: Keep) -> None:
        self._known = progress.tables
        self._keep = keep
        self._looked: dict[str, tuple[int, ...]] = {}  # marks of files that could not be read
        self._heard: dict[str, _Heard] = {}  # of jobs: the newest result

    def hear(self, catalog: Catalog, title: str, tables: Iterable[pa.Table]) -> Iterator[str]:
        """Takes the newest result of a job where a query looks at it; returns what is to say.

        Tables are rows of results that have left, as they are stored, some at a time.
        """
        looking = [t for t in _tables(catalog.jobs.values()).values() if t.job == title]
        newest = [_Newest(table, most_bytes(catalog.stream)) for table in looking]
        for rows in tables if newest else ():
            for each in newest:
                each.take(rows)
        for each in newest:
            if not each.rows:
                continue
            size = each.bytes + (self._sent(each.table) if catalog.stream.agents else 0)
            if size > (most := most_bytes(catalog.stream)):
                yield (
                    f"LATEST({title}) has {_megabytes(size)} MB, more than the "
                    f"{_megabytes(most)} that are sent to {_whom(catalog.stream)}; the result from "
                    "before stays: have the job leave fewer rows, as with LIMIT"
                )
            else:
                rows = pa.concat_tables(each.rows, promote_options="default")
                heard, name = _Heard.of(rows, each.table), each.table.name
                if heard.result[0] >= self._newest_end(name):
                    self._heard[name] = heard

    def _newest_end(self, name: str) -> int:
        """Where the window ends whose result a table has now, or will have."""
        heard = self._heard.get(name)
        if heard is not None:
            return heard.result[0]
        known = [version.result for version in self._known.get(name, ())[-1:]]
        return max((result[0] for result in known if result is not None), default=NEVER)

    def _sent(self, table: Table) -> int:
        """Bytes of the results of before that agents have to be told, if they come back."""
        known = self._known.get(table.name, ())
        return sum(version_rows(table, version).nbytes for version in known)

    def look(
        self,
        catalog: Catalog,
        behind: Callable[[str], int],
        needed: Callable[[Shape], int | None],
    ) -> tuple[Catalog, list[str]]:
        """The catalog with the tables as they are now, and what there is to say.

        `behind` tells by axis the first position behind all that was read, `needed` by shape the
        first that some window still needs.
        """
        tables = _tables(catalog.jobs.values())
        notes = [note for table in tables.values() for note in self._read(table, catalog, behind)]
        changed = any(table.versions != self._known[table.name] for table in tables.values())
        if not tables or not changed:
            return catalog, notes
        self._forget(catalog, tables, needed)
        jobs = {name: _dated(job, self._known) for name, job in catalog.jobs.items()}
        return replace(catalog, jobs=jobs), notes

    def _read(self, table: Table, catalog: Catalog, behind: Callable[[str], int]) -> Iterator[str]:
        """Adds a version where there is a new one."""
        known, mark = self._known.get(table.name, ()), mark_of(table)
        heard = self._heard.pop(table.name, None)
        if heard is not None:
            mark = heard.mark
        elif known and table.kind == OF_JOB:
            return
        if known and (mark == known[-1].mark or mark == self._looked.get(table.name)):
            return
        try:
            rows = read_table(table) if heard is None else heard.rows
        except InputError as error:
            if not known:
                raise
            self._looked[table.name] = mark
            yield f"{error}; the rows from before stay until it can be read"
            return
        self._looked.pop(table.name, None)
        since = tuple(
            (axis, at) for axis in sorted(catalog.axes) if (at := behind(axis)) > NEVER + 1
        )
        if not since:  # nothing was joined yet
            known = ()
        elif heard is not None and not known:  # what was read before has seen no result
            known = (self._version(table, TableVersion(0, ()), read_table(table)),)
        number = known[-1].number + 1 if known else 0
        result = None if heard is None else heard.result
        version = TableVersion(number, mark, since if known else (), result=result)
        self._known[table.name] = (*known, self._version(table, version, rows))

    def _version(self, table: Table, version: TableVersion, rows: pa.Table) -> TableVersion:
        """The version with the file of its rows, which are at hand in this process, too."""
        path = self._keep(f"{table.name}-{version.number}", rows)
        version = replace(version, path=path)
        hold(table, version, rows)
        return version

    def _forget(
        self,
        catalog: Catalog,
        tables: Mapping[str, Table],
        needed: Callable[[Shape], int | None],
    ) -> None:
        """Drops versions that no window to come is made with.

        Their files go with the commit that does not name them any more.
        """
        for name in [name for name in self._known if name not in tables]:
            del self._known[name]
        for name, table in tables.items():
            users = [job for job in catalog.jobs.values() if name in _tables([job])]
            while len(known := self._known[name]) > 1:
                positions = [(job.shape, needed(job.shape)) for job in users]
                if any(at is None or at < _begin(known[1], shape) for shape, at in positions):
                    break
                let_go(table, known[0])
                self._known[name] = known[1:]


def _begin(version: TableVersion, shape: Shape) -> int:
    return version.begins(shape.axis, shape.pane)


def _tables(jobs: Iterable[Job]) -> dict[str, Table]:
    return {table.name: table for job in jobs for table in job.tables}


def _dated(job: Job, versions: Mapping[str, tuple[TableVersion, ...]]) -> Job:
    """The job with the versions of its tables."""
    joins = tuple(
        replace(join, table=replace(join.table, versions=versions[join.table.name]))
        for join in job.shape.joins
    )
    job = replace(job, shape=replace(job.shape, joins=joins)) if joins else job
    if job.around is None or not job.around.tables:
        return job
    tables = tuple(replace(t, versions=versions[t.name]) for t in job.around.tables)
    return replace(job, around=replace(job.around, tables=tables))
