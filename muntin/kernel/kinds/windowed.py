"""What kinds have in common whose windows are made of panes."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from muntin.fidelity.score import Only
from muntin.kernel.due import Due, Emitted
from muntin.kernel.kinds.kind import Numbers, Told
from muntin.kernel.statements import WINDOW, WINDOW_END, Windows, on_time_sql, spec_id
from muntin.model.jobs import Job
from muntin.model.shapes import Shape
from muntin.units import describe_window


@dataclass(frozen=True)
class Windowed:
    """Rows belong to a pane, or to one window alone: then `spec` names its kind."""

    shape: Shape

    @property
    def has_panes(self) -> bool:
        return True

    @property
    def has_windows(self) -> bool:
        return True

    @property
    def in_slices(self) -> bool:
        return True

    @property
    def form(self) -> Hashable | None:
        return None

    @property
    def columns(self) -> tuple[str, ...]:
        return WINDOW, WINDOW_END

    def on_time_sql(self, windows: Windows, marked: bool) -> Iterator[str]:
        return on_time_sql(self.shape, windows, marked)

    def more_rounds(self, job: Job) -> bool:
        return False

    def later_rounds(self, job: Job, rows: Sequence[pa.Table]) -> pa.Table:
        return pa.concat_tables(rows)

    def without(self, block: pa.Table, emitted: Emitted) -> pa.Table:
        pane, kind = block.column("pane"), block.column("spec")
        needed = pc.and_(pc.equal(kind, 0), pc.greater_equal(pane, emitted.oldest_pane))
        for spec, end in emitted.windows.items():
            mine = pc.equal(kind, spec_id(spec))
            needed = pc.or_(needed, mine if end is None else pc.and_(mine, pc.greater(pane, end)))
        return block.filter(needed)

    def delivered(self, block: pa.Table, emitted: int | None) -> pa.Table:
        return block

    def interval(self, block: pa.Table) -> tuple[int, int]:
        """Of a row that belongs to one window, its last pane counts."""
        if not block.num_rows:
            return 0, 0
        panes = block.column("pane").to_numpy()
        last = panes - (block.column("spec").to_numpy() != 0)
        return int(last.min()), int(last.max()) + 1

    def is_over(self, upper: int, emitted: Emitted) -> bool:
        return upper <= emitted.oldest_pane

    def without_forgotten(self, block: pa.Table) -> pa.Table:
        return block

    def told(self, rows: pa.Table) -> tuple[Numbers, Numbers]:
        return rows.column(WINDOW).to_numpy(), rows.column(WINDOW_END).to_numpy()

    def names(self, job: Job) -> list[str]:
        return [describe_window(self.shape.axis, spec) for spec in job.windows]

    def name(self, job: Job, window: Told) -> str:
        return describe_window(self.shape.axis, job.windows[window[0]])

    def bounds(self, job: Job, window: Told) -> tuple[int, int]:
        which, end = window
        return job.windows[which].bounds(end)

    def all_bounds(self, job: Job, told: tuple[Numbers, Numbers]) -> tuple[Numbers, Numbers]:
        which, ends = told
        starts = np.empty_like(ends)
        for number, spec in enumerate(job.windows):
            starts[which == number] = spec.starts(ends[which == number])
        return starts * self.shape.pane, ends * self.shape.pane

    def headline(self) -> str | None:
        return None


def whole(due: Due) -> Due:
    """The due windows that are made of everything."""
    ends = {
        name: [[e for e in kind if (name, i, e) not in due.only] for i, kind in enumerate(kinds)]
        for name, kinds in due.ends.items()
    }
    return replace(due, ends={name: kinds for name, kinds in ends.items() if any(kinds)}, only={})


def parts(jobs: Mapping[str, Job], due: Due) -> Iterator[tuple[Only, Due]]:
    """The due windows that are made of a part of what there is, with that part.

    Those of the same sources are put together, and of one kind those that have no pane in common.
    """
    groups: dict[Hashable, list[tuple[tuple[str, int, int], Only]]] = {}
    for window, only in due.only.items():
        name, which, _ = window
        spec = jobs[name].windows[which]
        apart = only.panes is None or spec.apart
        key = (only.sources, only.panes and (name, which)) if apart else window
        groups.setdefault(key, []).append((window, only))
    for group in groups.values():
        ends: dict[str, list[list[int]]] = {}
        for (name, which, end), _ in group:
            ends.setdefault(name, [[] for _ in jobs[name].windows])[which].append(end)
        panes = [only.panes for _, only in group]
        union = tuple(sorted({p for some in panes for p in some or ()}))
        only = Only(None if panes[0] is None else union, group[0][1].sources)
        yield only, Due({name: [sorted(kind) for kind in kinds] for name, kinds in ends.items()})


def joined(tables: Iterable[Mapping[str, pa.Table]]) -> dict[str, pa.Table]:
    """The rows of each job, one after another."""
    by_job: dict[str, list[pa.Table]] = {}
    for of_jobs in tables:
        for name, rows in of_jobs.items():
            by_job.setdefault(name, []).append(rows)
    return {name: pa.concat_tables(rows) for name, rows in by_job.items()}
