"""Blocks to rows: due windows of all jobs of a shape, finished and ordered by their kind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from muntin.kernel.due import NOTHING_BEFORE, Due, Previous
from muntin.kernel.kinds import kind_of
from muntin.kernel.kinds.kind import Finished, Made
from muntin.model.jobs import Job
from muntin.model.shapes import Shape
from muntin.windows.shelf import Complete


def finish(
    shape: Shape, jobs: Mapping[str, Job], block: pa.Table, due: Due, made: Made = ()
) -> Finished:
    """Rows of a shape's due windows from one key group, not yet ordered across key groups.

    `made` are complete windows from before, of which larger ones may be made. If more windows
    will come, those that are complete now and may be of use for them are given back too.
    """
    mine = {name: job for name, job in jobs.items() if job.shape.id == shape.id}
    asked = due.of(mine, shape.id)
    return kind_of(shape).finish(mine, block, asked, made) if asked else Finished()


def order(job: Job, rows: Sequence[pa.Table], previous: Previous = NOTHING_BEFORE) -> pa.Table:
    """Rows of all key groups as the result's rows, window by window.

    A job that looks back is told of the results that were `previous` to these.
    """
    return kind_of(job.shape).order(job, rows, previous)


def completed(shape: str, made: Made, group: int = 0) -> Iterator[Complete[pa.Table]]:
    """Windows that were made just now, as they are kept for larger ones."""
    for spec, table in made:
        if table.num_rows:
            yield Complete(shape, spec, pc.max(table["w"]).as_py(), table, group)
