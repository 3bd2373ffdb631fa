"""What is known of sources: how far they have come, who is awaited, and what holds windows back."""

from __future__ import annotations

from muntin.fidelity.score import EVER, NEVER, State, Track
from muntin.fidelity.scoreboard import Moment, Scoreboard, Source
from muntin.model.records import TIME
from muntin.model.streams import Format, Stream

SECOND = 1_000_000
T = TIME.column


def board(
    *declared: str, follow: bool = True, slack: int | None = 0, **reached: float
) -> Scoreboard:
    """Sources that have come so far, all heard at 100 seconds; idle for 10 they are dead."""
    slack_us = None if slack is None else slack * SECOND
    stream = Stream("s", ("x",), Format("text"), (), "t", slack_us, sources=declared)
    sources = {
        name: Source({T: int(at * SECOND)}, {T: 90 * SECOND}, heard_at=100.0)
        for name, at in reached.items()
    }
    found = Scoreboard(stream, sources, follow, 10.0)
    found.awaken(100.0)
    return found


def test_the_slowest_who_is_awaited_holds_windows_back() -> None:
    known = board(a=95, b=98)
    assert known.horizon(T, Moment(100)) == 95 * SECOND
    known.sources["b"].heard_at = 105.0
    assert known.horizon(T, Moment(111)) == 98 * SECOND  # a is dead
    assert known.horizon(T, Moment(130)) == 130 * SECOND  # all are
    assert known.furthest(T) == 98 * SECOND


def test_slack_is_time_in_which_records_may_still_come() -> None:
    assert board(slack=3, a=95).horizon(T, Moment(100)) == 92 * SECOND
    assert board(follow=False, slack=None, a=95).horizon(T, Moment(100)) is None
    assert board(follow=False, slack=None, a=95).horizon(T, Moment(100, final=True)) == EVER


def test_nobody_has_passed_what_is_yet_to_happen() -> None:
    assert board(a=500).horizon(T, Moment(100)) == 100 * SECOND


def test_a_declared_source_is_awaited_before_it_speaks() -> None:
    known = board("a", "b", a=95)
    assert known.horizon(T, Moment(105)) is None
    assert known.unseen(Moment(105)) == []
    assert known.unseen(Moment(111)) == ["b"]
    known.sources["a"].heard_at = 111.0
    assert known.horizon(T, Moment(111)) == 95 * SECOND
    assert known.board(Moment(111), T, 10 * SECOND).tracks == {
        "a": Track(NEVER, EVER, 9, State.AWAITED),
        "b": Track(NEVER, rest=State.DEAD),
    }


def test_who_is_behind_is_awaited_however_long_it_was_silent() -> None:
    known = board(a=95, b=99)
    late = Moment(500, behind=frozenset({"a"}))
    assert known.horizon(T, late) == 95 * SECOND
    assert known.read_up_to(T, late) == 95 * SECOND
    assert known.read_up_to(T, Moment(500)) == EVER
    assert known.horizon(T, Moment(500, behind=frozenset({"new"}))) is None


def test_a_touch_is_a_sign_of_life_and_a_file_that_is_gone_an_end() -> None:
    known = board(a=95, b=95)
    known.seen({"a": 150.0}, [], 150.0)
    tracks = known.board(Moment(155), T, 10 * SECOND).tracks
    assert tracks["a"] == Track(9, EVER, 15, State.AWAITED)  # nothing from before the touch follows
    assert tracks["b"] == Track(9, 10, 10, State.DEAD)


def test_leaping_leaves_behind_who_is_two_panes_behind_the_middle() -> None:
    known = board(a=95, b=96, c=70)
    rest = {
        n: t.rest for n, t in known.board(Moment(100), T, 10 * SECOND, leap=True).tracks.items()
    }
    assert rest == {"a": State.AWAITED, "b": State.AWAITED, "c": State.LEAPT}
