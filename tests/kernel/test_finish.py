"""Rows of windows are told apart, and stay in order."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from muntin.kernel.due import Due
from muntin.kernel.finish import by_window, completed, finish
from muntin.windows.spec import WindowSpec
from tests.kernel.test_consolidate import ALL, SUMS, job_of

places = st.lists(st.tuples(st.integers(0, 2), st.integers(-3, 3)), max_size=20)


@given(places)
def test_rows_by_window(found: list[tuple[int, int]]) -> None:
    wins, ends = [which for which, _ in found], [end for _, end in found]
    columns = {"win": pa.array(wins, pa.int32()), "w": pa.array(ends, pa.int64())}
    rows = pa.table({**columns, "n": pa.array(range(len(found)), pa.int64())})
    apart = dict(by_window(rows))
    assert set(apart) == set(found)
    for place, mine in apart.items():
        assert mine["n"].to_pylist() == [n for n, other in enumerate(found) if other == place]


def test_where_nothing_of_a_shape_is_due_nothing_is_done() -> None:
    job = job_of(SUMS, WindowSpec(10, 10))
    other = job_of(ALL, WindowSpec(10, 10))
    done = finish(job.shape, {"j": other}, pa.table({}), Due({"j": [[1]]}))
    assert (done.rows, list(completed(job.shape.id, done.made))) == ({}, [])
