"""SQL over panes: blocks hold cells, which statements compute, merge and finish.

Cells may be states of aggregates in Python: statements group those into lists, and Python folds
each list. With `map_batches` and `combine`, Python makes the values and SQL the cells.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from muntin.fidelity.score import Only
from muntin.kernel.consolidate import (
    Algorithm,
    Consolidation,
    Relation,
    algorithm_of,
    consolidate_sql,
    overlaps,
)
from muntin.kernel.due import Due, DueEnds, Ends
from muntin.kernel.engine import run
from muntin.kernel.kinds.kind import Finished, Given, Made, Operator, Outcome, Place
from muntin.kernel.kinds.windowed import Windowed, alone, joined, whole
from muntin.kernel.python.mapping import map_cells
from muntin.kernel.python.states import added, fault_rows, finished, merged, with_faults
from muntin.kernel.statements import (
    WINDOW,
    WINDOW_END,
    Windows,
    compute_sql,
    finish_sql,
    key_names,
    merge_sql,
    order_sql,
    row_names,
    selected_sql,
)
from muntin.model import Job, Shape
from muntin.units import describe_window
from muntin.windows.spec import WindowSpec

# Partials times windows that one statement may hold at once; bounds memory, not answers.
ROWS_AT_ONCE = 4_000_000


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
    def always_shared(self) -> str | None:
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
        block = run(sql, {"records": given.records}, f"a job on stream '{shape.stream}'")
        return Outcome(added(shape, block))

    def merge(self, blocks: Sequence[pa.Table]) -> pa.Table:
        if len(blocks) == 1:
            return blocks[0]
        doing = f"merging {len(blocks)} blocks of {self.shape.stream}"
        rows = run(merge_sql(self.shape), {"blocks": pa.concat_tables(blocks)}, doing)
        return merged(self.shape, rows)

    def finish(self, jobs: Mapping[str, Job], block: pa.Table, due: Due, made: Made) -> Finished:
        jobs = {name: _answered(job) for name, job in jobs.items()}
        done = _finish(self.shape.answered, jobs, some(self.shape, block, None), whole(due), made)
        every = [done.rows]
        for (name, which, end), only in due.only.items():
            rows = some(self.shape, block, only)
            this = alone(jobs, name, which, end)
            every.append(_finish(self.shape.answered, jobs, rows, this, ()).rows)
        return Finished(joined(every), done.made)

    def order(self, job: Job, rows: Sequence[pa.Table]) -> pa.Table:
        job, table = _answered(job), pa.concat_tables(rows)
        doing = f"ordering the windows of job {job.name}"
        if _keys_alone_order(job, table):
            return _ordered_by_keys(job, table)
        if not job.shape.states:
            return run(order_sql(job), {"rows": table}, doing)
        told = table.filter(pc.is_valid(table["fault"]))
        table = table.filter(pc.is_null(table["fault"])).drop_columns(["fault"])
        ordered = run(order_sql(job), {"rows": table}, doing)
        return with_faults(ordered, told)

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
            sql = finish_sql(answered, consolidate_sql(answered.shape, spec, algorithm))
            yield Operator("finish", f"blocks to rows{which}", Place.GROUP, sql)
        ordered = order_sql(answered)
        yield Operator("order", "rows of all key groups to results", Place.DRIVER, ordered)


def _answered(job: Job) -> Job:
    """The job without the source among its keys, which is no part of the answer."""
    return replace(job, shape=job.shape.answered) if job.shape.by_source else job


def some(shape: Shape, block: pa.Table, only: Only | None) -> pa.Table:
    """The rows of the panes or sources that are asked for, and no more told apart by source."""
    if only is not None and only.panes is not None:
        block = block.filter(pc.is_in(block.column("pane"), pa.array(only.panes, pa.int64())))
    if not shape.by_source:
        return block
    origin = f"k{len(shape.keys) - 1}"
    if only is not None and only.sources is not None:
        block = block.filter(pc.is_in(block.column(origin), pa.array(only.sources, pa.string())))
    tables = {"blocks": block.drop_columns([origin])}
    doing = f"merging the sources of {shape.stream}"
    return merged(shape.answered, run(merge_sql(shape.answered), tables, doing))


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
        again = each.spec.stride == each.spec.length and (
            any(algorithm_of(shape, a.spec, len(a.ends)) is Algorithm.SHARE for a in larger)
            or (due.more and each.spec.length < longest)
        )
        ahead = due.more and overlaps(each.spec) and not shape.states
        slices = [each.ends] if again else list(_slices(shape, block, each.spec, each.ends))
        for ends in slices:
            last = ends is slices[-1]
            windows = consolidation.windows(each.spec, ends, again, ahead=ahead and last)
            for name, which, wanted in each.jobs:
                rows = _rows(jobs[name], windows)
                if len(wanted) != len(each.ends):
                    rows = rows.filter(pc.is_in(rows["w"], pa.array(wanted, pa.int64())))
                which_one = pa.array(np.full(rows.num_rows, which, np.int32))
                rows_of.setdefault(name, []).append(rows.append_column("win", which_one))
    rows_by_job = {name: pa.concat_tables(rows) for name, rows in rows_of.items()}
    return Finished(rows_by_job, tuple(consolidation.fresh) if due.more else ())


def _rows(job: Job, windows: Relation) -> pa.Table:
    doing = f"job '{job.name}', {windows.doing}"
    if not job.shape.states:
        return run(finish_sql(job, windows.sql), windows.tables, doing)
    values, faults = finished(job, windows.table())
    rows = run(finish_sql(job, "SELECT * FROM made"), {"made": values}, doing)
    return fault_rows(faults, rows)


def _slices(shape: Shape, block: pa.Table, spec: WindowSpec, ends: Ends) -> Iterator[Ends]:
    if len(ends) == 1:
        yield ends
        return
    panes = max(1, pc.count_distinct(block.column("pane")).as_py())
    rows = block.num_rows * spec.overlap * spec.stride // panes
    if algorithm_of(shape, spec, len(ends)) is not Algorithm.SHARE:
        rows = min(rows, _different(block, row_names(shape)))  # partials are merged on the way
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


def _keys_alone_order(job: Job, rows: pa.Table) -> bool:
    """Whether rows are only put in the order of keys that Arrow compares as DuckDB does."""
    if job.order or job.limit is not None or job.shape.states:
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
