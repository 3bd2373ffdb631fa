"""Only what is due is finished."""

from __future__ import annotations

import pyarrow as pa

from muntin.kernel.due import Due
from muntin.kernel.finish import completed, finish
from muntin.windows.spec import WindowSpec
from tests.kernel.test_consolidate import ALL, SUMS, job_of


def test_where_nothing_of_a_shape_is_due_nothing_is_done() -> None:
    job = job_of(SUMS, WindowSpec(10, 10))
    other = job_of(ALL, WindowSpec(10, 10))
    done = finish(job.shape, {"j": other}, pa.table({}), Due({"j": [[1]]}))
    assert (done.rows, list(completed(job.shape.id, done.made))) == ({}, [])
