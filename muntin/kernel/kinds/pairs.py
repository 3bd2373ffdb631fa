"""Jobs in Python over windows: MapReduce pairs, and updates in time order.

Blocks hold the pickled values of each key in each pane. Rows that leave are pickled pairs where a
job has more rounds, which run when all pairs of a window have met.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from muntin.kernel.consolidate import Algorithm
from muntin.kernel.due import NOTHING_BEFORE, Due, Previous
from muntin.kernel.kinds.kind import Finished, Given, Made, Operator, Ordering, Outcome, Place
from muntin.kernel.kinds.panes import some
from muntin.kernel.kinds.windowed import Windowed, joined, parts, whole
from muntin.kernel.python.mapping import map_pairs
from muntin.kernel.python.partials import merge_blocks
from muntin.kernel.python.reducing import (
    finish_windows,
    later_rounds,
    order_windows,
    removes_panes,
)
from muntin.kernel.statements import Windows, selected_sql
from muntin.model.jobs import Job
from muntin.windows.spec import WindowSpec


@dataclass(frozen=True)
class Pairs(Windowed):
    """Mapper, combiner and reducer; or map, init, update and finalize over a window's values."""

    @property
    def has_cells(self) -> bool:
        return False

    @property
    def alike(self) -> tuple[str, ...]:
        return ("k0",)

    @property
    def tells_sources(self) -> bool:
        return True

    def always_shared(self, windows: Windows) -> str | None:
        if self.shape.sample is not None or self.shape.apart is not None:
            return "its windows may be made of some of their panes"
        return "jobs in Python work on panes"

    def compute_sql(self, windows: Windows, marked: bool, separate: bool = False) -> str:
        return selected_sql(self.shape, windows, marked)

    def compute(self, given: Given) -> Outcome:
        mapped = map_pairs(self.shape, given)
        return Outcome(mapped.block, mapped.faults)

    def merge(self, blocks: Sequence[pa.Table]) -> pa.Table:
        return blocks[0] if len(blocks) == 1 else merge_blocks(self.shape, blocks)

    def finish(self, jobs: Mapping[str, Job], block: pa.Table, due: Due, made: Made) -> Finished:
        every = [finish_windows(self.shape, jobs, block, whole(due).ends)]
        for only, these in parts(jobs, due):
            rows = some(self.shape, block, only)
            every.append(finish_windows(self.shape, jobs, rows, these.ends))
        return Finished(joined(every))

    def more_rounds(self, job: Job) -> bool:
        return job.shape.code is not None and job.shape.code.chained

    def later_rounds(self, job: Job, rows: Sequence[pa.Table]) -> pa.Table:
        return later_rounds(job, rows) if self.more_rounds(job) else pa.concat_tables(rows)

    def ordering(self, job: Job) -> Ordering | None:
        if self.more_rounds(job):
            return None
        return (("w", ""), ("win", ""), *((f"x{i}", "") for i in range(len(job.outputs))))

    def by_window(self, job: Job) -> bool:
        return True

    def order(
        self, job: Job, rows: Sequence[pa.Table], previous: Previous = NOTHING_BEFORE
    ) -> pa.Table:
        return order_windows(job, rows)

    def algorithm(self, spec: WindowSpec) -> str:
        if spec.length == 1:
            return f"{Algorithm.PANES}: {Algorithm.PANES.meaning}"
        if removes_panes(self.shape, spec):
            return f"{Algorithm.REMOVE}: {Algorithm.REMOVE.meaning}"
        return "merge: of all their panes"

    def operators(self, job: Job, windows: Windows, separate: bool) -> Iterator[Operator]:
        selected = self.compute_sql(windows, marked=False)
        yield Operator("select", "the records that Python is given", Place.SOURCE, selected)
        yield Operator("compute", "records to the values of keys", Place.SOURCE)
        yield Operator("merge", "values of keys to fewer", Place.ANYWHERE)
        yield Operator("finish", "values of keys to rows", Place.GROUP)
        if self.more_rounds(job):
            yield Operator("rounds", "the rounds that follow, over all pairs", Place.WINDOW)
        yield Operator("order", "rows of all key groups to results", Place.DRIVER)
