"""Sessions: windows that follow each key's own activity, from its first record to its last.

Records of a key that are at most the gap apart belong to one session, which ends the gap after its
last one. A record lives from its time, or from its mark if that is later, to the end of the gap
behind it: sessions are what lives of records make that overlap. So sessions that have left, up to
some position, are never touched by records that come later, whose marks lie behind it.

A record whose gap is over at its mark does not live. It belongs to the session that is alive at
its mark, if it is at most the gap away from a record of that session; else it is late. Sessions
that leave tell of late records that would have belonged to them.

Partials are rows like those of panes, but `pane` and `last_at` are the positions of the first and
last record they stand for, and `known_at` is where they begin to live. As what overlaps is merged
in any order with one result, and what a partial takes in belongs to any longer one as well, it does
not matter from what pieces of log, batches or sources partials are.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial

import pyarrow as pa
import pyarrow.compute as pc

from muntin.errors import BadValueError
from muntin.kernel.apart import ROW, Groups, apart, merged_apart
from muntin.kernel.due import NOTHING_BEFORE, Due, Emitted, Previous
from muntin.kernel.engine import quote, run
from muntin.kernel.kinds.kind import (
    Finished,
    Given,
    Made,
    Missed,
    Numbers,
    Operator,
    Ordering,
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
    ordering,
    records_sql,
    row_names,
    sub_key_columns,
)
from muntin.kernel.tables import by_version
from muntin.model.jobs import Job
from muntin.model.records import MARK
from muntin.model.shapes import Shape
from muntin.units import describe
from muntin.windows.spec import WindowSpec

_BOUNDS = ("pane", "last_at", "known_at")
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
    def form(self) -> Hashable | None:
        return None

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
        """None: even one that comes late may belong to a session that is open."""
        yield from ()

    def compute(self, given: Given) -> Outcome:
        doing = f"a job on stream '{self.shape.stream}'"
        sql = self.compute_sql((), given.marked)
        blocks = [
            run(sql, {"records": records, **tables}, doing)
            for records, tables in by_version(self.shape, given.records)
        ]
        return Outcome(added(self.shape, pa.concat_tables(blocks)))

    def merge(self, blocks: Sequence[pa.Table]) -> pa.Table:
        """Even of one block: sessions get their bounds from all their rows."""
        rows = pa.concat_tables(blocks)
        try:
            return self._merge(rows)
        except BadValueError:
            return merged_apart(self._bounded(rows), self._session, self._merge)

    def _merge(self, rows: pa.Table) -> pa.Table:
        doing = f"merging sessions of {self.shape.stream}"
        sql = merge_sessions_sql(self.shape, self._any_outlived(rows))
        return merged(self.shape, run(sql, {"blocks": rows}, doing))

    def _bounded(self, rows: pa.Table) -> pa.Table:
        """Partial sessions with the bounds of whole ones, not merged yet."""
        sql = bounded_sql(self.shape, self._any_outlived(rows))
        doing = f"the bounds of sessions of {self.shape.stream}"
        return run(f"SELECT {', '.join(rows.column_names)} FROM ({sql})", {"blocks": rows}, doing)

    def _any_outlived(self, rows: pa.Table) -> bool:
        return pc.any(self._outlived(rows)).as_py() is True

    def _outlived(self, rows: pa.Table) -> pa.ChunkedArray:
        """Which rows are of records that did not live any more when they were read."""
        return pc.greater_equal(rows["known_at"], pc.add(rows["last_at"], self.shape.reach))

    @property
    def _session(self) -> list[str]:
        """What tells sessions apart, once their rows are bounded; in the order of their ends."""
        return ["last_at", "pane", "known_at", *key_names(self.shape)]

    def finish(self, jobs: Mapping[str, Job], block: pa.Table, due: Due, made: Made) -> Finished:
        """Rows of the sessions that are over in `(after, upto]`, by job, and what is late then."""
        fit = True
        try:
            rows = self._merge(block)
        except BadValueError:
            rows, fit = self._bounded(block), False
        over, outlived = self._over_at(rows), self._outlived(rows)
        partly = pc.max_element_wise(
            pc.add(block["last_at"], self.shape.reach), pc.add(block["known_at"], 1)
        )
        finished, ends, missed = {}, {}, {}
        for name, (after, upto) in due.sessions.items():
            now = pc.and_(pc.greater(over, after), pc.less_equal(over, upto))
            ended = rows.filter(pc.and_(now, pc.invert(outlived)))
            late = rows.filter(pc.and_(pc.greater(over, after), outlived))
            try:
                finished[name] = _finish(jobs[name], ended if fit else self._merge(ended), late)
            except BadValueError:
                finished[name] = self._finish_apart(jobs[name], ended, late)
            missed[name] = self._missed(rows.filter(pc.and_(now, outlived)))
            if (before := jobs[name].term.before) is not None:
                mine = pc.less(rows["pane"], before)
                if not pc.any(pc.and_(mine, pc.greater(over, upto))).as_py():
                    continue  # none is open that the job answers for
            # Of partial sessions: one of them may end before all records of it have come.
            unended = partly.filter(pc.greater(partly, upto))
            if len(unended):
                ends[name] = pc.min(unended).as_py()
        return Finished(finished, ends=ends, missed=missed)

    def _over_at(self, rows: pa.Table) -> pa.ChunkedArray:
        """From which position on nothing can change a session any more, or what becomes of a row
        that does not live: the row is not needed from there on.
        """
        if not self._any_outlived(rows):
            return pc.add(rows["last_at"], self.shape.reach)
        numbered = rows.append_column(ROW, pa.array(range(rows.num_rows), pa.int64()))
        doing = f"what is over of sessions of {self.shape.stream}"
        return run(over_sql(self.shape), {"blocks": numbered}, doing)["over_at"]

    def _missed(self, late: pa.Table) -> Missed:
        """How many records these are, and how much later marks should be to keep all of them."""
        records = pc.sum(late[count_cell(self.shape.parts[0]).name]).as_py()
        if not records:
            return Missed()
        behind = pc.max(pc.subtract(late["known_at"], late["last_at"])).as_py()
        return Missed(records, behind - self.gap)

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

    def ordering(self, job: Job) -> Ordering | None:
        return ordering(job, _CARRIED[0][0])

    def by_window(self, job: Job) -> bool:
        return True

    def order(
        self, job: Job, rows: Sequence[pa.Table], previous: Previous = NOTHING_BEFORE
    ) -> pa.Table:
        doing, sql = f"ordering the windows of job {job.name}", order_sql(job, _CARRIED)
        return ordered_with_faults(job, rows, lambda table: run(sql, {"rows": table}, doing))

    def without(self, block: pa.Table, emitted: Emitted) -> pa.Table:
        """The block less the sessions that were over before a position."""
        if emitted.sessions is None:
            return block
        return block.filter(pc.greater(self._over_at(block), emitted.sessions))

    def delivered(self, block: pa.Table, emitted: int | None) -> pa.Table:
        """Nothing of it may touch sessions that have left: it begins to live behind them."""
        if emitted is None:
            return block
        known = pc.max_element_wise(block["known_at"], emitted)
        return block.set_column(block.column_names.index("known_at"), "known_at", known)

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
        return "sessions: partial ones at most the gap apart are merged"

    def operators(self, job: Job, windows: Windows, separate: bool) -> Iterator[Operator]:
        compute = self.compute_sql((), marked=False)
        merge = merge_sessions_sql(self.shape, outlived=False)
        yield Operator("compute", "records to blocks", Place.SOURCE, compute)
        yield Operator("merge", "partial sessions to longer ones", Place.ANYWHERE, merge)
        finish, order = finish_sessions_sql(job, late=False), order_sql(job, _CARRIED)
        yield Operator("finish", "ended sessions to rows", Place.GROUP, finish)
        yield Operator("order", "rows of all key groups to results", Place.DRIVER, order)


def _name(gap: int) -> str:
    return f"session {describe(gap)}"


@cache
def compute_sessions_sql(shape: Shape, marked: bool) -> str:
    """Records to partial sessions; those that do not live any more to rows of their own."""
    at = quote(shape.axis.column)
    known = f"greatest({at}, coalesce({MARK}, {at}))" if marked else at
    keyed = f"(SELECT *, {at} AS last_at, {known} AS known_at FROM ({_keyed_sql(shape)}))"
    numbered = _numbered_sql(shape, keyed)
    selects = [_part_sql(shape, index, marked) for index in range(len(shape.parts))]
    return f"WITH sessions AS MATERIALIZED ({numbered})\n" + "\nUNION ALL\n".join(selects)


def _keyed_sql(shape: Shape) -> str:
    """The records that a job asks for, with their keys."""
    keys = [f"CAST({key.sql} AS {key.type}) AS k{i}" for i, key in enumerate(shape.keys)]
    wanted = [c for c in (shape.where, *bounds_sql(shape)) if c]
    where = f" WHERE {' AND '.join(f'({c})' for c in wanted)}" if wanted else ""
    return f"SELECT {', '.join(['*', *keys])} FROM {records_sql(shape)}{where}"


def _outlived_sql(shape: Shape) -> str:
    """Whether the gap behind a row was over when it was read."""
    return f"known_at >= last_at + {shape.reach}"


def _part_sql(shape: Shape, index: int, marked: bool) -> str:
    part = shape.parts[index]
    columns = [
        "min(last_at) AS pane",
        "max(last_at) AS last_at",
        "min(known_at) AS known_at",
        f"CAST({index} AS TINYINT) AS part",
        *key_names(shape),
        *sub_key_columns(shape, index),
        *cell_columns(shape, index),
    ]
    where = f" WHERE {part.where}" if part.where else ""
    subs = [] if part.sub_key is None else [f"s{index}"]
    by = ["__session", *key_names(shape), *subs]
    if marked:
        outlived = _outlived_sql(shape)
        by += (f"CASE WHEN {outlived} THEN sessions.{name} END" for name in ("last_at", "known_at"))
    return f"SELECT {', '.join(columns)}\nFROM sessions{where}\nGROUP BY {', '.join(by)}"


def _numbered_sql(shape: Shape, rows: str) -> str:
    """The rows with the number of their session among those of their key.

    A row that does not live has that of the session which is alive when it becomes known, or one
    of its own.
    """
    # Of rows that become known at once those that live come first: they reach further.
    order = f"{_partition_sql(shape)}ORDER BY known_at, last_at DESC"
    before = f"max(last_at) OVER ({order} ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)"
    fresh = f"CASE WHEN known_at < {before} + {shape.reach} THEN 0 ELSE 1 END"
    # Rows that tie get one number: nothing says in which order they come here.
    return (
        f"SELECT *, sum(__fresh) OVER ({order} RANGE UNBOUNDED PRECEDING) AS __session\n"
        f"FROM (SELECT *, {fresh} AS __fresh FROM {rows})"
    )


def _partition_sql(shape: Shape, *more: str) -> str:
    by = ", ".join([*key_names(shape), *more])
    return f"PARTITION BY {by} " if by else ""


@cache
def merge_sessions_sql(shape: Shape, outlived: bool) -> str:
    """Partial sessions to fewer, longer ones; `outlived` if there are rows that do not live."""
    names = ", ".join([*_BOUNDS, *row_names(shape)])
    bounded = bounded_sql(shape, outlived)
    return f"SELECT {names}, {merged_cells(shape)}\nFROM ({bounded})\nGROUP BY {names}"


def bounded_sql(shape: Shape, outlived: bool) -> str:
    """Partial sessions with the bounds of the session that they belong to."""
    numbered = _numbered_sql(shape, "blocks")
    if not outlived:
        return _with_bounds_sql(numbered, _partition_sql(shape, "__session"), "true")
    # From the first record of those that live down to what is too far away from all above it.
    order = f"{_partition_sql(shape, '__session')}ORDER BY {_outlived_sql(shape)}, last_at DESC"
    above = f"min(pane) OVER ({order} ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)"
    away = f"CASE WHEN last_at + {shape.reach} <= {above} THEN 1 ELSE 0 END"
    reached = (
        f"SELECT *, sum(__away) OVER ({order} RANGE UNBOUNDED PRECEDING) = 0 AS __inside\n"
        f"FROM (SELECT *, {away} AS __away FROM ({numbered}))"
    )
    return _with_bounds_sql(reached, _partition_sql(shape, "__session", "__inside"), "__inside")


def _with_bounds_sql(rows: str, partition: str, inside: str) -> str:
    bounds = (f"{'max' if n == 'last_at' else 'min'}({n}) OVER ({partition})" for n in _BOUNDS)
    told = (
        f"CASE WHEN {inside} THEN {bound} ELSE {name} END AS {name}"
        for name, bound in zip(_BOUNDS, bounds, strict=True)
    )
    return f"SELECT * REPLACE ({', '.join(told)}) FROM ({rows})"


@cache
def over_sql(shape: Shape) -> str:
    """Of merged rows, in their order: from where on each of them is over.

    What does not live waits for the end of the session that is alive when it becomes known.
    """
    last = f"max(last_at) OVER ({_partition_sql(shape, '__session')})"
    over = f"greatest({last} + {shape.reach}, known_at + 1)"
    return f"SELECT {over} AS over_at FROM ({_numbered_sql(shape, 'blocks')}) ORDER BY {ROW}"


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
        same.append(f"late.last_at > blocks.pane - {shape.reach}")
        same.append(f"late.pane < blocks.last_at + {shape.reach}")
        missed = f"coalesce((SELECT sum(late.{records}) FROM late WHERE {' AND '.join(same)}), 0)"
    rows = (
        f"SELECT *, last_at + {shape.gap} AS w, pane AS started, {records} AS records, "
        f"CAST({missed} AS BIGINT) AS late FROM blocks"
    )
    bounds = Bounds("started", "w", _name(shape.gap or 0))
    sql = finish_sql(job, rows, bounds, carried=tuple(before for before, _ in _CARRIED))
    return f"SELECT *, CAST(0 AS INTEGER) AS win FROM ({sql})"
