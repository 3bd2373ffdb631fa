"""What is shed is what would come too late; what is kept comes in time, by the same estimate."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muntin.fidelity.score import EVER
from muntin.fidelity.shedding import Backlog, Speed, Wanted, plan

SECOND = 1_000_000
PANE = 10 * SECOND


def speed(seconds: float, **shares: float) -> Speed:
    known = Speed()
    known.take(1000, seconds * 1000, shares)
    return known


def test_a_measurement_counts_for_four_fifths() -> None:
    known = speed(1.0, a=0.5)
    known.take(10, 20.0, {"a": 1.0})
    assert known.seconds == pytest.approx(1.8)
    assert known.shares == {"a": pytest.approx(0.9)}
    assert known.without({"a": None}) == pytest.approx(0.18)
    known.take(0, 5.0, {})  # nothing was read, so nothing is known
    assert known.seconds == pytest.approx(1.8)


def test_who_keeps_up_sheds_nothing() -> None:
    backlog = Backlog(96 * SECOND, 100 * SECOND, 4000)  # a thousand bytes a second
    for seconds in (0.0001, 0.0004):
        assert plan(backlog, speed(seconds), {"a": Wanted(PANE, 12 * SECOND)}, False) == ({}, False)


def test_the_first_look_is_after_some_of_a_pane() -> None:
    hopeless, wanted = speed(1.0), {"a": Wanted(PANE, 12 * SECOND)}
    assert plan(Backlog(92 * SECOND, 100 * SECOND, 8000), hopeless, wanted, False) == ({}, False)
    ends, unread = plan(Backlog(93 * SECOND, 100 * SECOND, 7000), hopeless, wanted, False)
    assert (bool(ends), unread) == (True, True)


def test_cheap_shapes_are_not_shed_for_dear_ones() -> None:
    backlog = Backlog(55 * SECOND, 100 * SECOND, 45_000)
    wanted = {"cheap": Wanted(PANE, 60 * SECOND), "dear": Wanted(PANE, 60 * SECOND)}
    ends, unread = plan(backlog, speed(0.01, cheap=0.01, dear=0.95), wanted, False)
    assert list(ends) == ["dear"]
    assert not unread
    ends, unread = plan(backlog, speed(0.01, cheap=0.01, dear=0.01), wanted, False)
    assert set(ends) == {"cheap", "dear"}
    assert unread
    ends, unread = plan(backlog, speed(0.01, cheap=0.01, dear=0.01), wanted, True)
    assert set(ends) == {"cheap", "dear"}
    assert not unread  # somebody else needs the bytes


@given(
    at=st.integers(0, 90),
    size=st.integers(1, 1_000_000),
    seconds=st.floats(1e-9, 1e-3),
    share=st.floats(0, 1),
    useful=st.integers(11, 100),
    others=st.booleans(),
)
def test_the_next_pane_is_the_first_that_is_done_in_time(
    at: int, size: int, seconds: float, share: float, useful: int, others: bool
) -> None:
    backlog = Backlog(at * SECOND, 100 * SECOND, size)
    shape, known = Wanted(PANE, useful * SECOND), speed(seconds, a=share)
    ends, unread = plan(backlog, known, {"a": shape}, others)
    if not ends:
        assert not unread
        return
    assert unread is not others
    rest = known.without({"a": shape}) if others else 0.0
    density = size / ((100 - at) * SECOND)

    def done(start: int) -> float:
        """When a pane is ready, if only what has to be is done up to its start."""
        before = (start - backlog.at) * density * rest * 1e6
        return backlog.now + before + PANE * density * seconds * 1e6

    (end,) = ends.values()
    assert end % PANE == 0
    assert end > backlog.at
    if shape.next(backlog, seconds, rest) == EVER:
        return  # not even the others are in time
    assert done(end) <= end + shape.useful + SECOND / 1000
    if end - PANE > backlog.at:
        assert done(end - PANE) > end - PANE + shape.useful - SECOND / 1000
