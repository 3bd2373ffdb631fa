"""A window leaves for the first reason that holds, or stays."""

from __future__ import annotations

import pytest

from muntin.fidelity.eviction import Policy
from muntin.fidelity.score import Board, Only, Reason, State, Track
from muntin.fidelity.scoreboard import Moment
from muntin.model import Bounds, Form

SECOND = 1_000_000
NOW = Moment(100.0)


def decided(bounds: Bounds, *tracks: Track, at: Moment = NOW, end: int = 100) -> Reason | None:
    """Of the window of panes [0, 4), which ends at `end` seconds."""
    board = Board({f"web-{i}": track for i, track in enumerate(tracks)})
    c2 = Policy(bounds, board, at, True, 0).decide(0, 4, end * SECOND)
    return None if c2 is None else c2.reason


WHOLE, HALF, NONE = Track(0, whole=4), Track(0, whole=2), Track(0, whole=0)
DEAD = Track(0, whole=2, rest=State.DEAD)


@pytest.mark.parametrize(
    ("bounds", "tracks", "end", "reason"),
    [
        #       web-0  web-1   now is 100
        (Bounds(), (WHOLE, WHOLE), 200, Reason.COMPLETE),
        (Bounds(), (WHOLE, HALF), 100, None),
        (Bounds(), (WHOLE, DEAD), 100, Reason.EXHAUSTED),
        (Bounds(), (DEAD, DEAD), 101, None),  # nobody, and not the clock, has come to its end
        (Bounds(within_us=5 * SECOND), (WHOLE, HALF), 95, Reason.DEADLINE),
        (Bounds(within_us=5 * SECOND), (WHOLE, HALF), 96, None),
        (Bounds(fidelity=0.75), (WHOLE, HALF), 200, Reason.FIDELITY),
        (Bounds(fidelity=0.76), (WHOLE, HALF), 200, None),
        (Bounds(fidelity=0.5, form="time"), (WHOLE, HALF), 200, Reason.FIDELITY),
        (Bounds(fidelity=0.6, form="time"), (WHOLE, HALF), 200, None),
        (Bounds(fidelity=0.5, form="space"), (WHOLE, HALF), 200, Reason.FIDELITY),
        (Bounds(fidelity=0.5, form="space"), (WHOLE, NONE), 200, None),
        # Two of eight panes are lost, and those who can still come have come.
        (Bounds(fidelity=0.9), (WHOLE, DEAD), 200, Reason.EXHAUSTED),
        (Bounds(fidelity=0.9), (HALF, DEAD), 200, None),
    ],
)
def test_reason(bounds: Bounds, tracks: tuple[Track, ...], end: int, reason: Reason | None) -> None:
    assert decided(bounds, *tracks, end=end) == reason


def test_everything_leaves_at_the_end() -> None:
    assert decided(Bounds(), WHOLE, DEAD, at=Moment(0.0, final=True)) == Reason.EXHAUSTED


def test_a_window_sets_off_before_its_deadline_and_never_before_its_end() -> None:
    def due(end: int, lead: float, started: int = 0) -> bool:
        bounds = Bounds(within_us=5 * SECOND)
        policy = Policy(bounds, Board(), NOW, True, started * SECOND, int(lead * SECOND))
        return policy.is_due(end * SECOND)

    assert [due(96, 0.5), due(96, 1.0), due(101, 9.0)] == [False, True, False]
    assert not due(80, 0, started=90)  # its deadline is history


@pytest.mark.parametrize(
    ("form", "only"),
    [("space", Only(panes=(0, 1))), ("time", Only(sources=("a",))), ("area", None)],
)
def test_forms_of_fidelity_say_what_the_result_is_made_of(form: Form, only: Only | None) -> None:
    board = Board({"a": WHOLE, "b": HALF})
    policy = Policy(Bounds(fidelity=0.5, form=form), board, NOW, True, 0)
    assert policy.scored(0, 4, Reason.FIDELITY).only == only
