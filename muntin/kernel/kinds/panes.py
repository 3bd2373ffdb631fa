"""SQL over panes: blocks hold cells, which statements compute, merge and finish.

Cells may be states of aggregates in Python: statements group those into lists, and Python folds
each list. With `map_batches` and `combine`, Python makes the values and SQL the cells.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from muntin.errors import BadValueError
from muntin.fidelity.score import Only
from muntin.kernel.apart import Groups, apart, merged_apart
from muntin.kernel.around import finish_windows, looks_back
from muntin.kernel.consolidate import (
    Algorithm,
    Consolidation,
    Relation,
    algorithm_of,
    consolidate_sql,
    due_table,
    overlaps,
)
from muntin.kernel.dense import Top
from muntin.kernel.due import NOTHING_BEFORE, Due, DueEnds, Ends, Previous
from muntin.kernel.engine import run
from muntin.kernel.kinds.kind import Finished, Given, Made, Operator, Ordering, Outcome, Place
from muntin.kernel.kinds.unfinished import (
    Unfinished,
    ordered_with_faults,
    with_unfinished,
    with_window_faults,
)
from muntin.kernel.kinds.windowed import Windowed, joined, parts, whole
from muntin.kernel.python.mapping import map_cells
from muntin.kernel.python.states import added, fault_rows, finished, merged
from muntin.kernel.statements import (
    WINDOW,
    WINDOW_END,
    Windows,
    bounds_of,
    compute_sql,
    count_cell,
    finish_sql,
    key_names,
    merge_sql,
    order_sql,
    ordering,
    row_names,
    selected_sql,
    spec_id,
)
from muntin.kernel.tables import by_version
from muntin.model.counts import Fault
from muntin.model.jobs import Job
from muntin.model.records import SHAPE
from muntin.model.shapes import Shape
from muntin.units import describe_window
from muntin.windows.spec import WindowSpec

# Partials times windows that one statement may hold at once; bounds memory, not answers.
ROWS_AT_ONCE = 4_000_000
_MOST_OF_TOP = 40  # rows of a window that may be among its first, for each that is asked for


@dataclass(frozen=True)
class Panes(Windowed):
    """Jobs in SQL with windows, and those in Python whose values SQL combines."""

    @property
    def tells_sources(self) -> bool:
        return self.shape.code is not None

    @property
    def has_cells(self) -> bool:
        return True

    @property
    def form(self) -> Hashable | None:
        shape = self.shape
        if shape.code is not None or shape.states or shape.by_source:
            return None
        keys = tuple(key.type for key in shape.keys)
        return (
            merge_sql(shape),
            keys,
            tuple(p.sub_type for p in shape.parts),
            shape.axis,
            shape.pane,
        )

    @property
    def alike(self) -> tuple[str, ...]:
        return tuple(row_names(self.shape))

    def always_shared(self, windows: Windows) -> str | None:
        if not all(spec.regular for spec in windows):
            return "windows of a calendar, and those that cumulate, are made of panes"
        if self.shape.spans is not None:
            return "spans count once in every pane they touch"
        if self.shape.sample is not None or self.shape.apart is not None:
            return "its windows may be made of some of their panes"
        return "jobs in Python work on panes" if self.shape.code is not None else None

    def compute_sql(self, windows: Windows, marked: bool, separate: bool = False) -> str:
        return compute_sql(self.shape, windows, marked, separate)

    def compute(self, given: Given) -> Outcome:
        shape = self.shape
        if shape.code is not None:
            mapped = map_cells(shape, given.windows, given.records, given.marked)
            return Outcome(mapped.block, mapped.faults)
        sql = self.compute_sql(given.windows, given.marked, given.separate)
        doing = f"a job on stream '{shape.stream}'"
        blocks = [
            run(sql, {"records": records, **tables}, doing)
            for records, tables in by_version(shape, given.records)
        ]
        return Outcome(added(shape, blocks[0] if len(blocks) == 1 else pa.concat_tables(blocks)))

    def merge(self, blocks: Sequence[pa.Table]) -> pa.Table:
        if len(blocks) == 1:
            return blocks[0]
        return _merged(self.shape, pa.concat_tables(blocks))

    def finish(self, jobs: Mapping[str, Job], block: pa.Table, due: Due, made: Made) -> Finished:
        jobs = {name: _answered(job) for name, job in jobs.items()}
        try:
            return self.finish_together(jobs, block, due, made)
        except BadValueError:
            apart = {name: _Apart(self, jobs[name], block, due) for name in due.ends}
            return Finished({name: job.rows() for name, job in apart.items()})

    def finish_together(
        self, jobs: Mapping[str, Job], block: pa.Table, due: Due, made: Made
    ) -> Finished:
        """The same, if no job's SQL refuses a value."""
        done = _finish(self.shape.answered, jobs, some(self.shape, block, None), whole(due), made)
        every = [done.rows]
        for only, these in parts(jobs, due):
            rows = some(self.shape, block, only)
            every.append(_finish(self.shape.answered, jobs, rows, these, ()).rows)
        return Finished(joined(every), done.made)

    def ordering(self, job: Job) -> Ordering | None:
        return ordering(_answered(job)) if job.around is None else None

    def by_window(self, job: Job) -> bool:
        return not looks_back(job)

    def order(
        self, job: Job, rows: Sequence[pa.Table], previous: Previous = NOTHING_BEFORE
    ) -> pa.Table:
        core, around = _answered(job), job.around
        if around is None:
            return ordered_with_faults(core, rows, partial(_ordered, core))

        def finish(good: pa.Table) -> pa.Table:
            bounds, name = partial(self.bounds, job), partial(self.name, job)
            rows, faults = finish_windows(job, around, _ordered(core, good), bounds, name, previous)
            return with_window_faults(rows, faults)

        return ordered_with_faults(core, rows, finish)

    def algorithm(self, spec: WindowSpec) -> str:
        several = algorithm_of(self.shape, spec, spec.overlap + 1)
        alone = algorithm_of(self.shape, spec, 1)
        one_by_one = f"; {alone}, where one is due alone" if alone is not several else ""
        return f"{several}: {several.meaning}{one_by_one}"

    def operators(self, job: Job, windows: Windows, separate: bool) -> Iterator[Operator]:
        if self.shape.code is not None:
            selected = selected_sql(self.shape, windows, marked=False)
            yield Operator("select", "the records that Python is given", Place.SOURCE, selected)
        compute = self.compute_sql(windows, False, separate)
        yield Operator("compute", "records to blocks", Place.SOURCE, compute)
        yield Operator("merge", "blocks to blocks", Place.ANYWHERE, merge_sql(self.shape))
        answered = _answered(job)
        for spec in job.windows:
            which = f" of {describe_window(self.shape.axis, spec)}" if len(job.windows) > 1 else ""
            algorithm = algorithm_of(answered.shape, spec, spec.overlap + 1)
            consolidated = consolidate_sql(answered.shape, spec, algorithm)
            sql = finish_sql(answered, consolidated, bounds_of(answered.shape, spec))
            name = "finish" if job.around is None else "core"
            yield Operator(name, f"blocks to rows{which}", Place.GROUP, sql)
        to = " to results" if job.around is None else ""
        yield Operator("order", f"rows of all key groups{to}", Place.DRIVER, order_sql(answered))
        if job.around is not None:
            does = "rows of the core to results, window by window"
            yield Operator("finish", does, Place.DRIVER, job.around.sql)


def _answered(job: Job) -> Job:
    """The job's core, without the source among its keys, which is no part of the answer."""
    core = job.core
    return replace(core, shape=core.shape.answered) if core.shape.by_source else core


def some(shape: Shape, block: pa.Table, only: Only | None) -> pa.Table:
    """The rows of the panes or sources that are asked for, and no more told apart by source."""
    if only is not None and only.panes is not None:
        block = block.filter(pc.is_in(block.column("pane"), pa.array(only.panes, pa.int64())))
    if not shape.by_source:
        return block
    origin = f"k{len(shape.keys) - 1}"
    if only is not None and only.sources is not None:
        block = block.filter(pc.is_in(block.column(origin), pa.array(only.sources, pa.string())))
    return _merged(shape.answered, block.drop_columns([origin]))


def _merged(shape: Shape, rows: pa.Table) -> pa.Table:
    """One row for every pane and key, where sums fit what they are kept in."""

    def merge(rows: pa.Table) -> pa.Table:
        doing = f"merging blocks of {shape.stream}"
        return merged(shape, run(merge_sql(shape), {"blocks": rows}, doing))

    try:
        return merge(rows)
    except BadValueError:
        return merged_apart(rows, ["pane"], merge)


_Window = tuple[int, int]  # of a job: the end, and which of its kinds


@dataclass(frozen=True)
class _Apart:
    """The due windows of one job, of which SQL refuses some rows."""

    kind: Panes
    job: Job
    block: pa.Table
    due: Due

    def rows(self) -> pa.Table:
        """All other rows, and the faults: in the order of windows, as many as the job survives."""
        job = replace(self.job, limit=None)  # which is for `order`: here some keys are missing
        kinds = enumerate(self.due.ends[job.name])
        windows = sorted((end, which) for which, ends in kinds for end in ends)
        made, refused = apart(
            len(windows),
            lambda part: self._finish(job, windows[part.start : part.stop], self.block),
            lambda refused, _: refused > job.max_errors,
        )
        unfinished: list[tuple[Unfinished, Fault]] = []
        for number, _ in refused:
            if len(unfinished) <= job.max_errors:
                good, bad = self._by_keys(job, windows[number], job.max_errors - len(unfinished))
                made += good
                unfinished += bad
        made = made or [self._finish(job, windows, self.block.slice(0, 0))]
        return with_unfinished(pa.concat_tables(made), unfinished)

    def _by_keys(
        self, job: Job, window: _Window, most: int
    ) -> tuple[list[pa.Table], list[tuple[Unfinished, Fault]]]:
        """Rows of one window, and of those that are refused one more than `most`."""
        (end, which), shape = window, self.kind.shape
        groups = Groups.of(_of_window(self.block, job, window), key_names(job.shape))
        made, refused = apart(
            len(groups),
            lambda part: self._finish(job, [window], groups.rows(part)),
            lambda refused, _: refused > most,
        )
        unfinished = []
        for number, error in refused:
            rows = groups.rows(range(number, number + 1))
            counted = some(shape, rows, self.due.only.get((job.name, which, end)))
            bounds = job.windows[which].bounds(end)
            row = Unfinished(job, which, bounds, end, rows, _records(job.shape, counted))
            finish = partial(self._finish, windows=[window], block=rows)
            unfinished.append((row, row.fault(finish, error)))
        return made, unfinished

    def _finish(self, job: Job, windows: Sequence[_Window], block: pa.Table) -> pa.Table:
        ends = [[e for e, w in windows if w == which] for which in range(len(job.windows))]
        asked = {(job.name, which, end) for end, which in windows}
        only = {window: only for window, only in self.due.only.items() if window in asked}
        due = Due({job.name: ends}, only=only)
        return self.kind.finish_together({job.name: job}, block, due, ()).rows[job.name]


def _of_window(block: pa.Table, job: Job, window: _Window) -> pa.Table:
    """The rows that one window is made of."""
    end, which = window
    spec, pane, kind = job.windows[which], block.column("pane"), block.column("spec")
    inside = pc.and_(pc.greater_equal(pane, spec.start(end)), pc.less(pane, end))
    on_time = pc.fill_null(pc.less(block.column("not_before"), end), True)
    shared = pc.and_(pc.equal(kind, 0), pc.and_(inside, on_time))
    alone = pc.and_(pc.equal(kind, spec_id(spec)), pc.equal(pane, end))
    return block.filter(pc.or_(shared, alone))


def _records(shape: Shape, rows: pa.Table) -> int:
    """How many records partials are made of."""
    counts = rows.filter(pc.equal(rows["part"], 0)).column(count_cell(shape.parts[0]).name)
    return int(pc.sum(counts).as_py() or 0)


@dataclass(frozen=True)
class _Asked:
    """Windows of one kind, and the jobs that wait for them: name, which of its windows, ends."""

    spec: WindowSpec
    ends: Ends
    jobs: tuple[tuple[str, int, Ends], ...]


def _asked(jobs: Mapping[str, Job], due: DueEnds) -> Iterator[_Asked]:
    """The due windows by kind: jobs may share some."""
    wanted: dict[WindowSpec, list[tuple[str, int, Ends]]] = {}
    for name, kinds in due.items():
        for which, ends in enumerate(kinds):
            if ends:
                wanted.setdefault(jobs[name].windows[which], []).append((name, which, ends))
    for spec, of_jobs in wanted.items():
        yield _Asked(spec, sorted({e for _, _, ends in of_jobs for e in ends}), tuple(of_jobs))


def _finish(
    shape: Shape, jobs: Mapping[str, Job], block: pa.Table, due: Due, made: Made
) -> Finished:
    """Kind by kind, smaller windows first, since larger ones may be made of them."""
    rows_of: dict[str, list[pa.Table]] = {}
    asked = sorted(_asked(jobs, due.ends), key=lambda a: (a.spec.length, a.spec.stride))
    consolidation = Consolidation(shape, block, known=made)
    longest = max(w.length for job in jobs.values() for w in job.windows)
    for number, each in enumerate(asked):
        larger = asked[number + 1 :]
        # Windows that overlap are never tiles side by side: of those, none is remembered.
        again = each.spec.apart and (
            any(algorithm_of(shape, a.spec, len(a.ends)) is Algorithm.SHARE for a in larger)
            or (due.more and each.spec.length < longest)
        )
        grows = overlaps(each.spec) or each.spec.cumulates
        ahead = due.more and grows and not shape.states
        top = _top([jobs[name] for name, _, _ in each.jobs])
        slices = [each.ends] if again else list(_slices(shape, block, each.spec, each.ends, top))
        for ends in slices:
            last = ends is slices[-1]
            windows = consolidation.windows(each.spec, ends, again, ahead=ahead and last, top=top)
            for name, which, wanted in each.jobs:
                rows = _rows(jobs[name], windows, each.spec, ends)
                if len(wanted) != len(each.ends):
                    rows = rows.filter(pc.is_in(rows["w"], pa.array(wanted, pa.int64())))
                which_one = pa.array(np.full(rows.num_rows, which, np.int32))
                rows_of.setdefault(name, []).append(rows.append_column("win", which_one))
    rows_by_job = {name: pa.concat_tables(rows) for name, rows in rows_of.items()}
    return Finished(rows_by_job, tuple(consolidation.fresh) if due.more else ())


def _rows(job: Job, windows: Relation, spec: WindowSpec, ends: Ends) -> pa.Table:
    doing, bounds = f"job '{job.name}', {windows.doing}", bounds_of(job.shape, spec)
    due = {"due": due_table(spec, ends)} if not spec.regular else {}
    if not job.shape.states:
        return run(finish_sql(job, windows.sql, bounds), {**windows.tables, **due}, doing)
    values, faults = finished(job, windows.table())
    rows = run(finish_sql(job, "SELECT * FROM made", bounds), {"made": values, **due}, doing)
    return fault_rows(faults, rows)


def _top(jobs: Sequence[Job]) -> Top | None:
    """The rows that are asked for, if all jobs want the first few by one and the same cell."""
    tops = {_top_of(job) for job in jobs}
    (first,) = tops if len(tops) == 1 else (None,)
    return first


def _top_of(job: Job) -> Top | None:
    if not job.limit or not job.order or job.having or len(job.shape.parts) > 1:
        return None
    if job.shape.keys and job.shape.keys[-1].sql == SHAPE:  # each of several has its own first
        return None
    order = job.order[0]
    cells = {cell.name for part in job.shape.parts for cell in part.cells}
    plain = {f.column: f.sql for f in job.finishes}.get(order.sql, "")
    cell = plain.removeprefix("CAST(").removesuffix(" AS HUGEINT)")
    if cell not in cells or order.direction not in ("DESC NULLS LAST", "ASC NULLS LAST"):
        return None
    return Top(cell, job.limit, order.direction.startswith("DESC"))


def _slices(
    shape: Shape, block: pa.Table, spec: WindowSpec, ends: Ends, top: Top | None
) -> Iterator[Ends]:
    if len(ends) == 1:
        yield ends
        return
    panes = max(1, pc.count_distinct(block.column("pane")).as_py())
    rows = block.num_rows * spec.overlap * spec.stride // panes
    if algorithm_of(shape, spec, len(ends)) is not Algorithm.SHARE:
        rows = min(rows, _different(block, row_names(shape)))  # partials are merged on the way
    rows = rows if top is None else min(rows, _MOST_OF_TOP * top.limit)
    count = max(1, ROWS_AT_ONCE // max(1, rows))
    for start in range(0, len(ends), count):
        yield ends[start : start + count]


def _different(block: pa.Table, names: Sequence[str]) -> int:
    """How many rows of a window can differ, at most."""
    different = 1
    for name in names:
        try:
            different *= max(1, int(pc.count_distinct(block.column(name), mode="all").as_py()))
        except pa.ArrowNotImplementedError:  # of structs, for example
            return int(block.num_rows)
    return different


def _ordered(job: Job, rows: pa.Table) -> pa.Table:
    if _keys_alone_order(job, rows):
        return _ordered_by_keys(job, rows)
    return run(order_sql(job), {"rows": rows}, f"ordering the windows of job {job.name}")


def _keys_alone_order(job: Job, rows: pa.Table) -> bool:
    """Whether rows are only put in the order of keys that Arrow compares as DuckDB does."""
    if job.order or job.limit is not None:
        return False
    kinds = [rows.schema.field(name).type for name in key_names(job.shape)]
    return all(pa.types.is_string(kind) or pa.types.is_integer(kind) for kind in kinds)


def _ordered_by_keys(job: Job, rows: pa.Table) -> pa.Table:
    """What `order_sql` gives, without a statement."""
    by = [(name, "ascending") for name in ("w", "win", *key_names(job.shape))]
    rows = rows.combine_chunks()
    ordered = rows.take(pc.sort_indices(rows, by))
    columns = ["win", "w", *(f"x{i}" for i in range(len(job.outputs)))]
    return ordered.select(columns).rename_columns(
        [WINDOW, WINDOW_END, *(o.name for o in job.outputs)]
    )
