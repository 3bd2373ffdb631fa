"""Which steps stay in memory: within the limit, by demand and age, and without taking turns."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from muntin.collections.memory import Kept, to_keep

STEPS = st.lists(
    st.builds(Kept, st.integers(0, 50), st.integers(0, 100), st.floats(0, 9), st.booleans()),
    unique_by=lambda kept: kept.start,
)


@given(STEPS, st.integers(0, 500))
def test_the_limit_is_kept(steps: list[Kept], limit: int) -> None:
    kept = to_keep(steps, limit)
    assert sum(step.size for step in steps if step.start in kept) <= limit
    if sum(step.size for step in steps) <= limit:
        assert kept == {step.start for step in steps}


@given(STEPS, st.integers(0, 500))
def test_what_was_chosen_stays_chosen(steps: list[Kept], limit: int) -> None:
    kept = to_keep(steps, limit)
    after = [Kept(s.start, s.size, s.demand, s.start in kept) for s in steps]
    again = to_keep(after, limit)
    final = [Kept(s.start, s.size, s.demand, s.start in again) for s in steps]
    assert to_keep(final, limit) == again


def test_old_ones_go_first_and_those_that_are_asked_for_stay() -> None:
    equal = [Kept(start, 10, 0.0) for start in range(4)]
    assert to_keep(equal, 20) == {2, 3}
    asked = [Kept(0, 10, 8.0), *equal[1:]]
    assert to_keep(asked, 20) == {0, 3}
    waiting = [Kept(0, 10, 4.0, in_memory=False), Kept(1, 10, 3.0)]
    assert to_keep(waiting, 10) == {1}  # not worth an exchange yet
    assert to_keep([Kept(0, 10, 7.0, in_memory=False), Kept(1, 10, 3.0)], 10) == {0}
