"""Which way windows are computed, by what it would cost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muntin.windows.choice import Choice, Measured, choose, separate_s, shared_s
from muntin.windows.spec import WindowSpec, on_one_grid

TUMBLING = on_one_grid([WindowSpec(60, 60)], 1)
OVERLAPPING = on_one_grid([WindowSpec(60, 1), WindowSpec(300, 60)])


def seen(rows: float, grouping: float = 1e-7, merging: float = 1e-7) -> Measured:
    return Measured(1000, rows, grouping, merging)


def test_repeating_keys_are_shared() -> None:
    found = choose(OVERLAPPING, seen(rows=10), Choice(), "auto")
    assert not found.separate
    assert "10 keys in 1,000 records of a pane" in found.reason


def test_a_small_gain_changes_nothing() -> None:
    measured = Measured(1000, 900, 1e-7, 5e-8)
    better = separate_s(TUMBLING, measured) < shared_s(TUMBLING, measured)
    assert better
    assert not choose(TUMBLING, measured, Choice(), "auto").separate


def test_a_large_gain_changes_the_way_and_back() -> None:
    dear = Measured(1000, 500, 1e-8, 1e-5)
    changed = choose(TUMBLING, dear, Choice(), "auto")
    assert changed.separate
    assert not choose(OVERLAPPING, seen(rows=2), changed, "auto").separate


@pytest.mark.parametrize("wish", ["shared", "separate"])
def test_a_setting_forces_one(wish: str) -> None:
    found = choose(OVERLAPPING, Measured(), Choice(), wish)  # type: ignore[arg-type]
    assert found == Choice(wish == "separate", "as the setting says")


def test_nothing_is_decided_before_anything_is_measured() -> None:
    assert choose(OVERLAPPING, Measured(), Choice(), "auto") == Choice()


@given(st.lists(st.tuples(st.integers(1000, 10**6), st.floats(1e-6, 10)), min_size=1))
def test_measurements_stay_within_what_was_seen(batches: list[tuple[int, float]]) -> None:
    measured = Measured()
    for records, seconds in batches:
        measured = measured.computed(1, records, records, 1, seconds)
    rates = [seconds / records for records, seconds in batches]
    assert min(rates) * 0.999 <= measured.grouping_s <= max(rates) * 1.001


def test_small_batches_say_nothing() -> None:
    assert Measured().computed(1, 999, 999, 1, 1.0) == Measured()
    assert Measured().merged(999, 1.0) == Measured()


@given(st.lists(st.sampled_from([1e-9, 1e-7, 1e-5]), min_size=1, max_size=200))
def test_changes_come_to_an_end(merging: list[float]) -> None:
    now = Choice()
    for cost in merging:
        now = choose(TUMBLING, Measured(1000, 900, 1e-7, cost), now, "auto")
    assert now.changes <= 20


def test_figures_are_written_out() -> None:
    slow = choose(TUMBLING, Measured(1000, 900, 2e-3, 3e-9), Choice(), "auto").reason
    fast = choose(TUMBLING, Measured(1000, 900, 2e-9, 3e-9), Choice(), "auto").reason
    assert slow.startswith("shared 2,000.00 µs a record, separate 2,000.00 µs, with 900 keys")
    assert fast.startswith("shared 0.00 µs a record")
