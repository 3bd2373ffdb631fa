"""Sessions: windows that follow each key's own activity, from its first record to its last.

A session goes on while the key's records follow each other in less than the gap, and ends the
gap after its last one. Its partials are rows like those of panes, but `pane` and `last_at` are the
positions of the first and last record they stand for; partials of one key less than the gap
apart belong to one session, whatever pieces of log, batches or sources they are from.

A record is late for sessions if it is behind its source's mark: then no session that has left
could have had more. Those that are open keep its place and key, as rows of a part of their own
(LATE_PART), to say that they would be others with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial

import pyarrow as pa
import pyarrow.compute as pc

from muntin.errors import BadValueError
from muntin.kernel.apart import Groups, apart, merged_apart
from muntin.kernel.due import Due, Emitted
from muntin.kernel.engine import quote, run
from muntin.kernel.kinds.kind import (
    Finished,
    Given,
    Made,
    Numbers,
    Operator,
    Outcome,
    Place,
    Told,
)
from muntin.kernel.kinds.unfinished import Unfinished, ordered_with_faults, with_unfinished
from muntin.kernel.python.states import added, merged
from muntin.kernel.statements import (
    SESSION_LATE,
    SESSION_RECORDS,
    SESSION_START,
    WINDOW,
    WINDOW_END,
    Bounds,
    Windows,
    bounds_sql,
    cell_columns,
    count_cell,
    finish_sql,
    key_names,
    merged_cells,
    order_sql,
    records_sql,
    row_names,
    sub_key_columns,
)
from muntin.kernel.tables import joined_rows
from muntin.model import MARK, Job, Shape
from muntin.units import describe
from muntin.windows.spec import WindowSpec

LATE_PART = -1
_CARRIED = (("started", SESSION_START), ("records", SESSION_RECORDS), ("late", SESSION_LATE))


@dataclass(frozen=True)
class Sessions:
    """Jobs with a SESSION: windows that end the gap after a key's last record."""

    shape: Shape

    @property
    def gap(self) -> int:
        assert self.shape.gap is not None
        return self.shape.gap

    @property
    def has_panes(self) -> bool:
        return False

    @property
    def tells_sources(self) -> bool:
        return False

    @property
    def has_windows(self) -> bool:
        return True

    @property
    def in_slices(self) -> bool:
        """Only with all rows of a key is it known where its sessions begin and end."""
        return False

    @property
    def has_cells(self) -> bool:
        return True

    @property
    def alike(self) -> tuple[str, ...]:
        return tuple(key_names(self.shape))

    def always_shared(self, windows: Windows) -> str | None:
        return "sessions have no panes to share"

    @property
    def columns(self) -> tuple[str, ...]:
        return WINDOW, SESSION_START, WINDOW_END, SESSION_RECORDS, SESSION_LATE

    def compute_sql(self, windows: Windows, marked: bool, separate: bool = False) -> str:
        return compute_sessions_sql(self.shape, marked)

    def on_time_sql(self, windows: Windows, marked: bool) -> Iterator[str]:
        if marked:
            yield _on_time_sql(self.shape)

    def compute(self, given: Given) -> Outcome:
        doing = f"a job on stream '{self.shape.stream}'"
        tables = {"records": given.records, **joined_rows(self.shape)}
        block = run(self.compute_sql((), given.marked), tables, doing)
        return Outcome(added(self.shape, block))

    def merge(self, blocks: Sequence[pa.Table]) -> pa.Table:
        """Even of one block: sessions get their bounds from all their rows."""
        rows, late = _split(pa.concat_tables(blocks))
        try:
            merged = self._merge(rows)
        except BadValueError:
            merged = merged_apart(self._bounded(rows), self._session, self._merge)
        if late.num_rows:
            sql, doing = (
                _late_sql(self.shape, merged.column_names),
                f"late records of {self.shape.stream}",
            )
            merged = pa.concat_tables([merged, run(sql, {"late": late}, doing)])
        return merged

    def _merge(self, rows: pa.Table) -> pa.Table:
        doing = f"merging sessions of {self.shape.stream}"
        return merged(self.shape, run(merge_sessions_sql(self.shape), {"blocks": rows}, doing))

    def _bounded(self, rows: pa.Table) -> pa.Table:
        """Partial sessions with the bounds of whole ones, not merged yet."""
        sql, doing = bounded_sql(self.shape), f"the bounds of sessions of {self.shape.stream}"
        return run(f"SELECT * EXCLUDE (__fresh, __session) FROM ({sql})", {"blocks": rows}, doing)

    @property
    def _session(self) -> list[str]:
        """What tells sessions apart, once their rows are bounded; in the order of their ends."""
        return ["last_at", "pane", *key_names(self.shape)]

    def finish(self, jobs: Mapping[str, Job], block: pa.Table, due: Due, made: Made) -> Finished:
        """Rows of the sessions that end in `(after, upto]`, by job."""
        gap, (block, late), fit = self.gap, _split(block), True
        try:
            sessions = self._merge(block)
        except BadValueError:
            sessions, fit = self._bounded(block), False
        rows, ends, last = {}, {}, sessions["last_at"]
        for name, (after, upto) in due.sessions.items():
            ended = sessions.filter(
                pc.and_(pc.greater(last, after - gap), pc.less_equal(last, upto - gap))
            )
            try:
                rows[name] = _finish(jobs[name], ended if fit else self._merge(ended), late)
            except BadValueError:
                rows[name] = self._finish_apart(jobs[name], ended, late)
            # Of partial sessions: one of them may end before all records of it have come.
            unended = block["last_at"].filter(pc.greater(block["last_at"], upto - gap))
            if len(unended):
                ends[name] = pc.min(unended).as_py() + gap
        return Finished(rows, ends=ends)

    def _finish_apart(self, job: Job, rows: pa.Table, late: pa.Table) -> pa.Table:
        """Rows of ended sessions, less those that the job's SQL refuses."""
        groups = Groups.of(rows, self._session)

        def enough(refused: int, _: int) -> bool:
            return refused > job.max_errors

        def finish(job: Job, part: range) -> pa.Table:
            return _finish(job, self._merge(groups.rows(part)), late)

        made, refused = apart(len(groups), partial(finish, job), enough)
        unfinished = []
        for number, error in refused:
            alone = range(number, number + 1)
            partials = groups.rows(alone)
            start, end = partials["pane"][0].as_py(), partials["last_at"][0].as_py() + self.gap
            counts = partials.column(count_cell(self.shape.parts[0]).name)
            row = Unfinished(job, 0, (start, end), end, partials, pc.sum(counts).as_py())
            unfinished.append((row, row.fault(partial(finish, part=alone), error)))
        return with_unfinished(
            pa.concat_tables(made or [_finish(job, rows.slice(0, 0), late)]), unfinished
        )

    def more_rounds(self, job: Job) -> bool:
        return False

    def later_rounds(self, job: Job, rows: Sequence[pa.Table]) -> pa.Table:
        return pa.concat_tables(rows)

    def order(self, job: Job, rows: Sequence[pa.Table]) -> pa.Table:
        doing, sql = f"ordering the windows of job {job.name}", order_sql(job, _CARRIED)
        return ordered_with_faults(rows, lambda table: run(sql, {"rows": table}, doing))

    def without(self, block: pa.Table, emitted: Emitted) -> pa.Table:
        """The block less the sessions that were over before a position."""
        if emitted.sessions is None:
            return block
        return block.filter(pc.greater(block["last_at"], emitted.sessions - self.gap))

    def interval(self, block: pa.Table) -> tuple[int, int]:
        """In positions of records."""
        if not block.num_rows:
            return 0, 0
        return pc.min(block["pane"]).as_py(), pc.max(block["last_at"]).as_py() + 1

    def is_over(self, upper: int, emitted: Emitted) -> bool:
        """Never known of some blocks alone: a session may go on in others."""
        return False

    def without_forgotten(self, block: pa.Table) -> pa.Table:
        return block

    def told(self, rows: pa.Table) -> tuple[Numbers, Numbers]:
        return rows.column(SESSION_START).to_numpy(), rows.column(WINDOW_END).to_numpy()

    def names(self, job: Job) -> list[str]:
        return [_name(self.gap)]

    def name(self, job: Job, window: Told) -> str:
        return _name(self.gap)

    def bounds(self, job: Job, window: Told) -> tuple[int, int]:
        return window

    def all_bounds(self, job: Job, told: tuple[Numbers, Numbers]) -> tuple[Numbers, Numbers]:
        return told

    def headline(self) -> str | None:
        return f"session  over after {describe(self.gap)} without a record of its key"

    def algorithm(self, spec: WindowSpec) -> str:
        return "sessions: partial ones less than the gap apart are merged"

    def operators(self, job: Job, windows: Windows, separate: bool) -> Iterator[Operator]:
        compute, merge = self.compute_sql((), marked=False), merge_sessions_sql(self.shape)
        yield Operator("compute", "records to blocks", Place.SOURCE, compute)
        yield Operator("merge", "partial sessions to longer ones", Place.ANYWHERE, merge)
        finish, order = finish_sessions_sql(job, late=False), order_sql(job, _CARRIED)
        yield Operator("finish", "ended sessions to rows", Place.GROUP, finish)
        yield Operator("order", "rows of all key groups to results", Place.DRIVER, order)


def _name(gap: int) -> str:
    return f"session {describe(gap)}"


@cache
def compute_sessions_sql(shape: Shape, marked: bool) -> str:
    """Records to partial sessions, and to the places of late ones."""
    at = quote(shape.axis.column)
    on_time = _on_time_sql(shape) if marked else None
    numbered = _numbered_sql(shape, f"({_keyed_sql(shape, on_time)})", at, at)
    selects = [_part_sql(shape, index, at) for index in range(len(shape.parts))]
    sql = f"WITH sessions AS MATERIALIZED ({numbered})\n" + "\nUNION ALL\n".join(selects)
    if on_time is None:
        return sql
    columns = [
        f"{at} AS pane",
        f"{at} AS last_at",
        f"CAST({LATE_PART} AS TINYINT) AS part",
        *key_names(shape),
        f"count(*) AS {count_cell(shape.parts[0]).name}",
    ]
    late = f"({_keyed_sql(shape, f'NOT ({on_time})')})"
    by = ", ".join([at, *key_names(shape)])
    return f"{sql}\nUNION ALL BY NAME\nSELECT {', '.join(columns)} FROM {late} GROUP BY {by}"


def _late_sql(shape: Shape, columns: Sequence[str]) -> str:
    """The places of late records, each once."""
    count, by = count_cell(shape.parts[0]).name, ["pane", "last_at", "part", *key_names(shape)]
    others = {count: f"CAST(sum({count}) AS BIGINT) AS {count}"}
    others |= {c: f"any_value({c}) AS {c}" for c in columns if c not in (count, *by)}
    told = ", ".join(others.get(column, column) for column in columns)
    return f"SELECT {told} FROM late GROUP BY {', '.join(by)}"


def _keyed_sql(shape: Shape, condition: str | None) -> str:
    """The records that a job asks for, with their keys."""
    keys = [f"CAST({key.sql} AS {key.type}) AS k{i}" for i, key in enumerate(shape.keys)]
    wanted = [c for c in (shape.where, *bounds_sql(shape), condition) if c]
    where = f" WHERE {' AND '.join(f'({c})' for c in wanted)}" if wanted else ""
    return f"SELECT {', '.join(['*', *keys])} FROM {records_sql(shape)}{where}"


def _on_time_sql(shape: Shape) -> str:
    return f"{MARK} IS NULL OR {quote(shape.axis.column)} >= {MARK}"


def _part_sql(shape: Shape, index: int, at: str) -> str:
    part = shape.parts[index]
    columns = [
        f"min({at}) AS pane",
        f"max({at}) AS last_at",
        f"CAST({index} AS TINYINT) AS part",
        *key_names(shape),
        *sub_key_columns(shape, index),
        *cell_columns(shape, index),
    ]
    where = f" WHERE {part.where}" if part.where else ""
    subs = [] if part.sub_key is None else [f"s{index}"]
    by = ", ".join(["__session", *key_names(shape), *subs])
    return f"SELECT {', '.join(columns)}\nFROM sessions{where}\nGROUP BY {by}"


def _numbered_sql(shape: Shape, rows: str, first: str, last: str) -> str:
    """The rows with the number of their session among those of their key."""
    by = ", ".join(key_names(shape))
    partition = f"PARTITION BY {by} " if by else ""
    over = f"({partition}ORDER BY {first}, {last} ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)"
    fresh = f"CASE WHEN {first} - max({last}) OVER {over} < {shape.gap} THEN 0 ELSE 1 END"
    # Rows that tie get one number: nothing says in which order they come here.
    numbers = f"({partition}ORDER BY {first}, {last} RANGE UNBOUNDED PRECEDING)"
    return (
        f"SELECT *, sum(__fresh) OVER {numbers} AS __session\n"
        f"FROM (SELECT *, {fresh} AS __fresh FROM {rows})"
    )


@cache
def merge_sessions_sql(shape: Shape) -> str:
    """Partial sessions to fewer, longer ones."""
    names = ", ".join(["pane", "last_at", *row_names(shape)])
    return f"SELECT {names}, {merged_cells(shape)}\nFROM ({bounded_sql(shape)})\nGROUP BY {names}"


def bounded_sql(shape: Shape) -> str:
    """Partial sessions with the first and last record of the session that they belong to."""
    partition = ", ".join(["__session", *key_names(shape)])
    numbered = _numbered_sql(shape, "blocks", "pane", "last_at")
    return (
        f"SELECT * REPLACE (min(pane) OVER (PARTITION BY {partition}) AS pane, "
        f"max(last_at) OVER (PARTITION BY {partition}) AS last_at) FROM ({numbered})"
    )


def _split(block: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Partial sessions, and the places of late records."""
    late = pc.equal(block["part"], LATE_PART)
    return block.filter(pc.invert(late)), block.filter(late)


def _finish(job: Job, sessions: pa.Table, late: pa.Table) -> pa.Table:
    sql = finish_sessions_sql(job, late.num_rows > 0)
    return run(sql, {"blocks": sessions, "late": late}, f"finishing sessions of job {job.name}")


def finish_sessions_sql(job: Job, late: bool) -> str:
    """Ended sessions to rows: `w` is where they end, beside their start, their records, and those
    that would belong to them if they were not too late.
    """
    shape = job.shape
    records, missed = count_cell(shape.parts[0]).name, "0"
    if late:
        same = [f"late.{key} IS NOT DISTINCT FROM blocks.{key}" for key in key_names(shape)]
        same.append(f"late.pane > blocks.pane - {shape.gap}")
        same.append(f"late.pane < blocks.last_at + {shape.gap}")
        missed = f"coalesce((SELECT sum(late.{records}) FROM late WHERE {' AND '.join(same)}), 0)"
    rows = (
        f"SELECT *, last_at + {shape.gap} AS w, pane AS started, {records} AS records, "
        f"CAST({missed} AS BIGINT) AS late FROM blocks"
    )
    bounds = Bounds("started", "w", _name(shape.gap or 0))
    sql = finish_sql(job, rows, bounds, carried=tuple(before for before, _ in _CARRIED))
    return f"SELECT *, CAST(0 AS INTEGER) AS win FROM ({sql})"
