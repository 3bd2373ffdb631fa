"""How work is shared out among tasks."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from muntin.logs.chunks import WorkOrder
from muntin.run.files import shared_out

sizes = st.lists(st.integers(0, 100), max_size=30)


@given(sizes=sizes, most=st.integers(1, 9))
def test_lanes_are_shared_out_evenly(sizes: list[int], most: int) -> None:
    lanes = [(WorkOrder("s", f"web-{i}", "f", 5, 5 + size),) for i, size in enumerate(sizes)]
    tasks = shared_out(lanes, most)
    found = [order.source for task in tasks for (order,) in task]
    assert sorted(found) == sorted(order.source for (order,) in lanes)
    assert len(tasks) == min(most, len(lanes))
    lengths = [sum(order.end - order.start for (order,) in task) for task in tasks]
    if lengths:
        assert max(lengths) - min(lengths) <= max(sizes)
