"""Panes and windows against the definition: window k starts at k * slide + offset."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muntin.windows.calendar import Calendar
from muntin.windows.spec import Units, WindowSpec, calendar_windows


@st.composite
def specs(draw: st.DrawFn) -> WindowSpec:
    slide = draw(st.integers(1, 40))
    return WindowSpec(draw(st.integers(1, 200)), slide, draw(st.integers(0, slide)))


def ends_holding(spec: WindowSpec, pane: int) -> list[int]:
    """By brute force: ends, in panes, of every window that holds the pane."""
    low, high = pane * spec.pane, (pane + 1) * spec.pane
    around = range(low // spec.slide - spec.length - 2, high // spec.slide + 2)
    starts = [k * spec.slide + spec.offset for k in around]
    return [
        (start + spec.range) // spec.pane
        for start in starts
        if start <= low and high <= start + spec.range
    ]


@given(spec=specs(), pane=st.integers(-500, 500))
def test_first_and_last_window_of_a_pane(spec: WindowSpec, pane: int) -> None:
    ends = ends_holding(spec, pane)
    assert list(spec.ends_holding(pane)) == ends
    assert (spec.first_end(pane) <= spec.last_end(pane)) == bool(ends)
    if ends:
        assert (spec.first_end(pane), spec.last_end(pane)) == (ends[0], ends[-1])


@given(
    spec=specs(),
    panes=st.lists(st.integers(-300, 300), max_size=8, unique=True).map(sorted),
    after=st.one_of(st.none(), st.integers(-400, 400)),
    upto=st.integers(-400, 600),
    many=st.sampled_from([0, 64]),
)
def test_ends_of_windows_with_panes(
    spec: WindowSpec, panes: list[int], after: int | None, upto: int, many: int
) -> None:
    every = {end for pane in panes for end in ends_holding(spec, pane)}
    wanted = sorted(e for e in every if e <= upto and (after is None or e > after))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("muntin.windows.spec._MANY_ENDS", many)
        assert spec.ends(panes, after, upto) == wanted


@given(spec=specs(), emitted=st.integers(-500, 500))
def test_the_oldest_pane_still_needed(spec: WindowSpec, emitted: int) -> None:
    needed = [
        pane
        for pane in range(emitted - 300, emitted + 300)
        if any(end > emitted for end in ends_holding(spec, pane))
    ]
    assert spec.oldest_pane(emitted) == needed[0]


@given(spec=specs(), pane=st.integers(-500, 500))
def test_bounds_are_whole_panes(spec: WindowSpec, pane: int) -> None:
    for end in ends_holding(spec, pane):
        start_us, end_us = spec.bounds(end)
        assert end_us - start_us == spec.range
        assert (start_us - spec.offset) % spec.slide == 0
        assert start_us <= pane * spec.pane < end_us


def test_far_apart_panes_cost_nothing() -> None:
    spec = WindowSpec(3_600_000_000, 1_000_000)
    assert len(spec.ends([0, 10**12], None, 2 * 10**12)) == 7200


@pytest.mark.parametrize(
    "spec",
    [
        WindowSpec(60, 20, 5),
        WindowSpec(20, 50),
        WindowSpec(60, 60, step=20),
        WindowSpec(70, 70, step=20),
        calendar_windows(Units(Calendar("day", "Europe/Berlin"), 2, 1)),
        calendar_windows(Units(Calendar("month", "UTC"), 1, 1)),
        calendar_windows(Units(Calendar("day", "Europe/Berlin"), 7, 7, 4), step=3_600_000_000),
        calendar_windows(Units(Calendar("month", "UTC"), 1, 1, by=Calendar("day", "UTC"), step=1)),
        calendar_windows(Units(Calendar("day", "UTC"), 6, 6, 4, by=Calendar("day", "UTC"), step=2)),
    ],
    ids=lambda spec: spec.key,
)
def test_one_window_ends_before_the_next(spec: WindowSpec) -> None:
    """Also in the weeks in which clocks change."""
    begin = 1_742_000_000_000_000 if spec.units is not None else -1000
    end = spec.first_end(begin // spec.pane)
    for _ in range(60):
        following = spec.first_end(end)
        assert spec.end_before(following) == end
        end = following
