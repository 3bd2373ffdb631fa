"""Shapes that take long are left out, the dearest first, and cheap ones never."""

from __future__ import annotations

import pytest

from muntin.schedule.loads import NEGLIGIBLE, Loads
from muntin.schedule.pace import Pace


def measured(size: int, **costs: float) -> Loads:
    loads = Loads()
    for _ in range(2):
        loads.take(size, sum(costs.values()), costs)
    return loads


def test_what_takes_hardly_any_time_is_no_load() -> None:
    loads = measured(1000, cheap=NEGLIGIBLE)
    assert loads.seconds("cheap", 1_000_000) == 0.0
    assert loads.misfits(["cheap"], 1_000_000, room=0.0) == []


def test_one_slow_batch_says_nothing_of_the_next() -> None:
    loads = Loads()
    loads.take(1000, 9.0, {"a": 9.0})
    assert loads.seconds("a", 1000) == 0.0
    assert loads.each(["a"]) == pytest.approx((9.0 - NEGLIGIBLE) / 1000)
    loads.take(1000, 0.01, {"a": 0.01})
    assert loads.seconds("a", 1000) == 0.0
    loads.take(1000, 9.0, {"a": 9.0})
    assert loads.seconds("a", 1000) == 0.0


def test_of_tasks_side_by_side_a_batch_is_as_long_as_it_took() -> None:
    loads = Loads()
    for _ in range(2):
        assert loads.take(100, 2.0, {"a": 3.0, "b": 5.0}) == pytest.approx(2.0 - 2 * NEGLIGIBLE)
    assert loads.seconds("a", 100) == pytest.approx(3.0 / 4 - NEGLIGIBLE)


@pytest.mark.parametrize(("batch", "statement"), [(0.1, 0.02), (1.0, 0.5), (10.0, 2.0), (3.0, 3.0)])
def test_a_busy_machine_reads_no_less_and_less(batch: float, statement: float) -> None:
    """Seed 17-6, with thirty processes that wait for two cores: batches read a second of log."""
    pace, loads, waits = Pace(), Loads(), 4000.0
    for _ in range(20):
        size = min(int(waits), pace.most(0.5, loads.each(["a"])))
        took = batch + statement  # whatever the size
        waits += 4000 * took - size
        dear = loads.take(size, took, {"a": statement})
        pace.read(size, took - dear)
    assert waits <= 2 * 4000 * (batch + statement)


def test_the_price_of_records_counts_beside_any_batch() -> None:
    loads = Loads()
    for _ in range(2):
        assert loads.take(1000, 12.0, {"a": 10.0, "b": 1.0}) == pytest.approx(10.0)
    assert loads.seconds("a", 2000) == pytest.approx(19.0)


def test_the_dearest_go_first_and_no_more_than_have_to() -> None:
    loads = measured(100, a=1.0, b=4.0, c=0.01, d=2.0)
    every = ["a", "b", "c", "d"]
    assert loads.misfits(every, 100, room=10.0) == []
    assert loads.misfits(every, 100, room=3.5) == ["b"]
    assert loads.misfits(every, 100, room=1.2) == ["b", "d"]
    assert loads.misfits(every, 100, room=-5.0) == ["b", "d", "a"]
    loads.keep(["a", "c"])
    assert loads.misfits(every, 100, room=-5.0) == ["a"]
