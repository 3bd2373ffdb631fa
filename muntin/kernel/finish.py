"""Blocks to rows: consolidate panes into due windows, then finish and order them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from muntin.fidelity.score import Only
from muntin.kernel.consolidate import Consolidation, Relation, Way, overlaps, way_of
from muntin.kernel.engine import run
from muntin.kernel.merge import some
from muntin.kernel.python.reducing import finish_windows, order_windows
from muntin.kernel.python.running import advance, within_keys
from muntin.kernel.python.states import fault_rows, finished, with_faults
from muntin.kernel.sessions import finish_sessions
from muntin.kernel.statements import (
    WINDOW,
    WINDOW_END,
    finish_sql,
    key_names,
    order_sql,
    row_names,
)
from muntin.model import Job, Shape
from muntin.windows.shelf import Complete
from muntin.windows.spec import WindowSpec

# Partials times windows that one statement may hold at once; bounds memory, not answers.
ROWS_AT_ONCE = 4_000_000

Ends = Sequence[int]
DueEnds = Mapping[str, Sequence[Ends]]  # job -> ends of its due windows, one list a kind


@dataclass(frozen=True)
class Due:
    """Windows to finish now, by job; of sessions, those that end in `(after, upto]`.

    `more` says that others will come, which may be made of these.
    """

    ends: DueEnds = field(default_factory=dict)
    sessions: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    more: bool = False
    only: Mapping[tuple[str, int, int], Only] = field(default_factory=dict)
    """What some windows are made of, by job, kind and end, where that is not everything."""

    def __bool__(self) -> bool:
        return bool(self.ends or self.sessions)


@dataclass(frozen=True)
class _Asked:
    """Windows of one kind, and the jobs that wait for them: name, which of its windows, ends."""

    spec: WindowSpec
    ends: Ends
    jobs: tuple[tuple[str, int, Ends], ...]


def due_kinds(jobs: Mapping[str, Job], due: Due) -> dict[str, list[WindowSpec]]:
    """The kinds of windows that are due, by shape."""
    found: dict[str, list[WindowSpec]] = {}
    for name, kinds in due.ends.items():
        specs = zip(jobs[name].windows, kinds, strict=True)
        found.setdefault(jobs[name].shape.id, []).extend(spec for spec, ends in specs if ends)
    return found


def finish(
    shape: Shape,
    jobs: Mapping[str, Job],
    blocks: pa.Table,
    due: Due,
    made: list[tuple[WindowSpec, pa.Table]] | None = None,
) -> dict[str, pa.Table]:
    """Rows of a shape's due windows from one key group, not yet ordered across key groups.

    `made` are complete windows from before, of which larger ones may be made; those that are
    complete now and may be of use later are added to them.
    """
    if shape.gap is not None:
        return finish_sessions(shape, jobs, blocks, due.sessions)
    mine = {name: _answered(job) for name, job in jobs.items() if job.shape == shape}
    all_made = [_finish(shape.answered, mine, some(shape, blocks, None), _whole(mine, due), made)]
    for (name, which, end), only in due.only.items():
        if name in mine:
            kinds = [[end] if i == which else [] for i in range(len(mine[name].windows))]
            alone = Due({name: kinds})
            all_made.append(_finish(shape.answered, mine, some(shape, blocks, only), alone, None))
    found: dict[str, list[pa.Table]] = {}
    for made_rows in all_made:
        for name, rows in made_rows.items():
            found.setdefault(name, []).append(rows)
    return {name: pa.concat_tables(rows) for name, rows in found.items()}


def _answered(job: Job) -> Job:
    return replace(job, shape=job.shape.answered) if job.shape.by_source else job


def _whole(jobs: Mapping[str, Job], due: Due) -> Due:
    """The due windows of these jobs that are made of everything."""
    ends = {
        name: [[e for e in kind if (name, i, e) not in due.only] for i, kind in enumerate(kinds)]
        for name, kinds in due.ends.items()
        if name in jobs
    }
    return replace(due, ends={name: kinds for name, kinds in ends.items() if any(kinds)}, only={})


def _finish(
    shape: Shape,
    jobs: Mapping[str, Job],
    blocks: pa.Table,
    due: Due,
    made: list[tuple[WindowSpec, pa.Table]] | None,
) -> dict[str, pa.Table]:
    found: dict[str, list[pa.Table]] = {}
    mine = due.ends
    if shape.lives_on:
        return {n: advance(jobs[n], blocks, kinds[0]) for n, kinds in mine.items() if kinds[0]}
    if shape.in_python:
        return finish_windows(shape, jobs, blocks, mine)
    asked = sorted(_asked(jobs, mine), key=lambda a: (a.spec.length, a.spec.stride))
    consolidation = Consolidation(shape, blocks, made=made if made is not None else [])
    longest = max(w.length for job in jobs.values() for w in job.windows)
    for number, each in enumerate(asked):
        larger = asked[number + 1 :]
        # Windows that overlap are never pieces side by side: of those, none is remembered.
        again = each.spec.stride == each.spec.length and (
            any(way_of(shape, a.spec, len(a.ends)) is Way.SHARE for a in larger)
            or (due.more and made is not None and each.spec.length < longest)
        )
        ahead = due.more and made is not None and overlaps(each.spec) and not shape.states
        slices = [each.ends] if again else list(_slices(shape, blocks, each.spec, each.ends))
        for ends in slices:
            last = ends is slices[-1]
            windows = consolidation.windows(each.spec, ends, again, ahead=ahead and last)
            for name, which, wanted in each.jobs:
                rows = _rows(jobs[name], windows)
                if len(wanted) != len(each.ends):
                    rows = rows.filter(pc.is_in(rows["w"], pa.array(wanted, pa.int64())))
                which_one = pa.array(np.full(rows.num_rows, which, np.int32))
                found.setdefault(name, []).append(rows.append_column("win", which_one))
    return {name: pa.concat_tables(rows) for name, rows in found.items()}


def completed(
    shape: str, made: Iterable[tuple[WindowSpec, pa.Table]], group: int = 0
) -> Iterator[Complete[pa.Table]]:
    """Windows that were made just now, as they are kept for larger ones."""
    for spec, table in made:
        if table.num_rows:
            yield Complete(shape, spec, pc.max(table["w"]).as_py(), table, group)


def _rows(job: Job, windows: Relation) -> pa.Table:
    doing = f"job '{job.name}', {windows.doing}"
    if not job.shape.states:
        return run(finish_sql(job, windows.sql), windows.tables, doing)
    values, faults = finished(job, windows.table())
    rows = run(finish_sql(job, "SELECT * FROM made"), {"made": values}, doing)
    return fault_rows(faults, rows)


def _asked(jobs: Mapping[str, Job], due: DueEnds) -> Iterator[_Asked]:
    """The due windows by kind: jobs may share some."""
    wanted: dict[WindowSpec, list[tuple[str, int, Ends]]] = {}
    for name, kinds in due.items():
        for which, ends in enumerate(kinds):
            if ends:
                wanted.setdefault(jobs[name].windows[which], []).append((name, which, ends))
    for spec, of_jobs in wanted.items():
        yield _Asked(spec, sorted({e for _, _, ends in of_jobs for e in ends}), tuple(of_jobs))


def order(job: Job, rows: Sequence[pa.Table]) -> pa.Table:
    """Rows of all key groups as the result's rows, window by window."""
    job = _answered(job)
    if job.shape.lives_on:
        return order_windows(job, [within_keys(job, rows)])
    if job.shape.in_python:
        return order_windows(job, rows)
    doing = f"ordering the windows of job {job.name}"
    table = pa.concat_tables(rows)
    if _keys_alone_order(job, table):
        return _ordered_by_keys(job, table)
    if not job.shape.states:
        return run(order_sql(job), {"rows": table}, doing)
    told = table.filter(pc.is_valid(table["fault"]))
    table = table.filter(pc.is_null(table["fault"])).drop_columns(["fault"])
    ordered = run(order_sql(job), {"rows": table}, doing)
    return with_faults(ordered, told)


def _keys_alone_order(job: Job, rows: pa.Table) -> bool:
    """Whether rows are only put in the order of keys that Arrow compares as DuckDB does."""
    if job.order or job.limit is not None or job.shape.gap is not None or job.shape.states:
        return False
    kinds = [rows.schema.field(name).type for name in key_names(job.shape)]
    return all(pa.types.is_string(kind) or pa.types.is_integer(kind) for kind in kinds)


def _ordered_by_keys(job: Job, rows: pa.Table) -> pa.Table:
    """What `order_sql` gives, in a third of the time."""
    by = [(name, "ascending") for name in ("w", "win", *key_names(job.shape))]
    rows = rows.combine_chunks()
    ordered = rows.take(pc.sort_indices(rows, by))
    columns = ["win", "w", *(f"x{i}" for i in range(len(job.outputs)))]
    return ordered.select(columns).rename_columns(
        [WINDOW, WINDOW_END, *(o.name for o in job.outputs)]
    )


def _slices(shape: Shape, block: pa.Table, spec: WindowSpec, ends: Ends) -> Iterator[Ends]:
    if len(ends) == 1:
        yield ends
        return
    panes = max(1, pc.count_distinct(block.column("pane")).as_py())
    rows = block.num_rows * spec.overlap * spec.stride // panes
    if way_of(shape, spec, len(ends)) is not Way.SHARE:  # partials are merged on the way
        rows = min(rows, _different(block, row_names(shape)))
    count = max(1, ROWS_AT_ONCE // max(1, rows))
    for start in range(0, len(ends), count):
        yield ends[start : start + count]


def _different(block: pa.Table, names: Sequence[str]) -> int:
    """How many rows of a window can differ, at most."""
    found = 1
    for name in names:
        try:
            found *= max(1, int(pc.count_distinct(block.column(name), mode="all").as_py()))
        except pa.ArrowNotImplementedError:  # of structs, for example
            return int(block.num_rows)
    return found
