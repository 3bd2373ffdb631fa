"""Demand: a count that halves with time."""

from __future__ import annotations

import pytest

from muntin.collections.demand import Demand


def test_demand_adds_up_and_halves() -> None:
    demand: Demand[str] = Demand(half_life=10.0)
    assert demand.of("a", 5.0) == 0
    demand.note(["a", "b"], 0.0)
    demand.note(["a"], 0.0)
    assert (demand.of("a", 0.0), demand.of("b", 0.0)) == (2, 1)
    assert demand.of("a", 10.0) == pytest.approx(1.0)
    demand.note(["a"], 10.0)
    assert demand.of("a", 20.0) == pytest.approx(1.0)
    demand.forget("a")
    assert demand.of("a", 20.0) == 0
