"""What is shed is what would come too late; what is kept comes in time, by the same estimate."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muntin.fidelity.score import EVER
from muntin.fidelity.shedding import SHIPPING_US, Backlog, Speed, Use, Wanted, plan
from muntin.windows.spec import WindowSpec

SECOND = 1_000_000
PANE = 10 * SECOND


def wanted(seconds: int, range_: int = 1, slide: int | None = None) -> Wanted:
    """Panes that are of use for so long after the start of their last window, of so many panes."""
    windows = WindowSpec(range_ * PANE, (slide or range_) * PANE, 0, PANE)
    return Wanted(PANE, (Use(windows, seconds * SECOND - range_ * PANE),))


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
        assert plan(backlog, speed(seconds), {"a": wanted(12)}, False) == ({}, False)


def test_the_first_look_is_after_some_of_a_pane() -> None:
    hopeless, shapes = speed(1.0), {"a": wanted(12)}
    assert plan(Backlog(92 * SECOND, 100 * SECOND, 8000), hopeless, shapes, False) == ({}, False)
    ends, unread = plan(Backlog(93 * SECOND, 100 * SECOND, 7000), hopeless, shapes, False)
    assert (bool(ends), unread) == (True, True)


def test_cheap_shapes_are_not_shed_for_dear_ones() -> None:
    backlog = Backlog(55 * SECOND, 100 * SECOND, 45_000)
    shapes = {"cheap": wanted(60), "dear": wanted(60)}
    ends, unread = plan(backlog, speed(0.01, cheap=0.01, dear=0.95), shapes, False)
    assert list(ends) == ["dear"]
    assert not unread
    ends, unread = plan(backlog, speed(0.01, cheap=0.01, dear=0.01), shapes, False)
    assert set(ends) == {"cheap", "dear"}
    assert unread
    ends, unread = plan(backlog, speed(0.01, cheap=0.01, dear=0.01), shapes, True)
    assert set(ends) == {"cheap", "dear"}
    assert not unread  # somebody else needs the bytes


@given(
    at=st.integers(0, 90),
    size=st.integers(1, 1_000_000),
    seconds=st.floats(1e-9, 1e-3),
    share=st.floats(0, 1),
    useful=st.integers(61, 100),
    panes=st.sampled_from([(1, 1), (3, 3), (6, 2), (5, 1), (4, 6)]),
    others=st.booleans(),
)
def test_the_next_pane_is_the_first_that_is_done_in_time(
    at: int,
    size: int,
    seconds: float,
    share: float,
    useful: int,
    panes: tuple[int, int],
    others: bool,
) -> None:
    backlog = Backlog(at * SECOND, 100 * SECOND, size)
    shape, known = wanted(useful, *panes), speed(seconds, a=share)
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
        return backlog.now + before + PANE * density * seconds * 1e6 + SHIPPING_US

    (end,) = ends.values()
    assert end % PANE == 0
    assert end > backlog.at
    if shape.next(backlog, seconds, rest) == EVER:
        return  # not even the others are in time
    slide = PANE * panes[1]

    def until(start: int) -> int:
        """When the last window leaves that begins before a pane."""
        last = max(range(-20 * slide, start + 1, slide))
        return last + useful * SECOND

    assert done(end) <= until(end) + SECOND / 1000
    for before in range(-(-(backlog.at + 1) // PANE) * PANE, end, PANE):
        assert done(before) > until(before) - SECOND / 1000


def test_the_last_pane_of_a_window_is_of_use_for_less_time_than_the_first() -> None:
    """Of windows of a minute that are awaited for ten seconds, one has just ended."""
    shape = wanted(70, 6)
    assert [shape.until(start * SECOND) for start in (0, 50, 60)] == [
        70 * SECOND, 70 * SECOND, 130 * SECOND,
    ]  # fmt: skip
    backlog = Backlog(55 * SECOND, 62 * SECOND, 7000)
    assert not shape.is_late(backlog, 0.001)
    assert shape.is_late(backlog, 0.002)
    assert shape.next(backlog, 0.002, 0.0) == 60 * SECOND
