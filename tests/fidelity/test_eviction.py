"""A window leaves for the first reason that holds, or stays."""

from __future__ import annotations

import pytest

from muntin.fidelity.eviction import Policy
from muntin.fidelity.score import Board, Only, Reason, State, Track
from muntin.fidelity.scoreboard import Moment
from muntin.model.jobs import Bounds, Form

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
        # Two of eight panes are lost, which is too much whatever else comes.
        (Bounds(fidelity=0.9), (WHOLE, DEAD), 200, Reason.EXHAUSTED),
        (Bounds(fidelity=0.9), (HALF, DEAD), 100, Reason.EXHAUSTED),
        (Bounds(fidelity=0.85), (HALF, HALF, HALF, DEAD), 100, None),  # 14 of 16 may come
        (Bounds(fidelity=0.88), (HALF, HALF, HALF, DEAD), 100, Reason.EXHAUSTED),
        (Bounds(fidelity=0.9), (HALF, DEAD), 101, None),  # before its end nothing is waited for
    ],
)
def test_reason(bounds: Bounds, tracks: tuple[Track, ...], end: int, reason: Reason | None) -> None:
    assert decided(bounds, *tracks, end=end) == reason


def test_what_lies_there_to_be_read_is_read_before_a_window_is_given_up() -> None:
    bounds = Bounds(fidelity=0.9)
    behind = Moment(100.0, behind=frozenset({"web-0"}))
    assert decided(bounds, HALF, DEAD, at=behind) is None
    assert decided(bounds, WHOLE, DEAD, at=behind) == Reason.EXHAUSTED


def test_late_records_put_a_target_out_of_reach() -> None:
    board = Board({"a": WHOLE, "b": Track(0, whole=3)}, late={"a": {1: 4}})
    policy = Policy(Bounds(fidelity=0.9), board, NOW, True, 0)
    c2 = policy.decide(0, 4, 100 * SECOND)
    assert c2 is not None
    assert (c2.reason, c2.area) == (Reason.EXHAUSTED, 0.75)


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
