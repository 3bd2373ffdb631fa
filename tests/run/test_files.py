"""How work is shared out among tasks."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from muntin.fidelity.scoreboard import Source
from muntin.language.program import sql
from muntin.logs.chunks import WorkOrder
from muntin.run.contracts import Request
from muntin.run.files import LaneWork, LogFiles, shared_out

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


def test_deliveries_of_a_source_go_on_counting_and_so_do_those_of_one_that_returns(
    tmp_path: Path,
) -> None:
    program = sql(
        f"CREATE STREAM logs (t BIGINT) FROM '{tmp_path}/{{source}}.jsonl' FORMAT json TIMESTAMP t"
    )
    for source in ("known", "returned"):
        (tmp_path / f"{source}.jsonl").write_text('{"t": 1}\n')
    known = {"known": Source(sequence=4)}
    intake = LogFiles(program.streams["logs"], follow=True)
    batch = intake.next(Request(1.0, True, None, known, 0, None, released=7))
    assert isinstance(batch.work, LaneWork)
    numbers = {lane[0].source: lane[0].sequence for lane in batch.work.lanes}
    assert numbers == {"known": 5, "returned": 8}
