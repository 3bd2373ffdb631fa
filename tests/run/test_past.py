"""What is known of panes that are kept: runs of states, which add up to the scores of windows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muntin.fidelity.score import EVER, Board, Gap, Reason, State, Track
from muntin.run import past as known_past
from muntin.run.past import Bad, Past, joined, runs_of
from muntin.windows.spec import WindowSpec
from tests.effort import examples

PANE = 60
WINDOWS = (WindowSpec(PANE, PANE),)


def tracks() -> st.SearchStrategy[Track]:
    gaps = st.builds(
        lambda lower, length, state: Gap(lower, lower + length, state, f"{state}"),
        st.integers(0, 30),
        st.integers(1, 9),
        st.sampled_from([State.LOST, State.SHED, State.CANCELLED]),
    )
    return st.builds(
        lambda first, length, whole, rest, never: Track(
            first, EVER if length is None else first + length, whole, rest, tuple(sorted(never))
        ),
        st.integers(0, 20),
        st.none() | st.integers(1, 30),
        st.integers(0, 40),
        st.sampled_from([State.AWAITED, State.DEAD]),
        st.lists(gaps, max_size=2),
    )


@given(st.dictionaries(st.sampled_from("abc"), tracks(), min_size=1), st.data())
def test_scores_are_those_of_windows_over_the_same_panes(
    known: dict[str, Track], data: st.DataObject
) -> None:
    board = Board(known)
    past = Past(PANE, 0, 0, 0)
    upto = 0
    for _ in range(3):  # panes settle a few at a time
        upto = data.draw(st.integers(upto, 40))
        start, end = past.settled // PANE, 41
        past.note(upto * PANE, end * PANE, runs_of(board, WINDOWS, PANE, start, end), {})
    start = data.draw(st.integers(0, 40))
    end = data.draw(st.integers(start + 1, 41))
    mine = past.board(PANE, start * PANE, end * PANE).score(start, end, Reason.COMPLETE)
    window = board.score(start, end, Reason.COMPLETE)
    assert (mine.area, mine.time, mine.space) == (window.area, window.time, window.space)
    assert {(m.source, m.panes) for m in mine.missing} == {
        (m.source, m.panes) for m in window.missing
    }


def test_what_came_too_late_for_every_window_is_missing() -> None:
    sliding = (WindowSpec(2 * PANE, PANE),)
    board = Board({"a": Track(0, EVER, 10)}, late={"a": {3: 4, 5: 7}})
    runs = runs_of(board, sliding, PANE, 0, 8)
    states = [(lower // PANE, State(state)) for lower, _, state, _ in runs["a"]]
    # A record of pane 3 was late for a window that ended at 4, and is in the one that ended at 5.
    assert states == [(0, State.MERGED), (5, State.LATE), (6, State.MERGED)]


def test_neighbours_that_are_alike_are_one_run() -> None:
    one, two = ((0, 5, 0, ""),), ((5, 9, 0, ""), (9, 12, 4, ""))
    assert joined([one, two]) == ((0, 9, 0, ""), (9, 12, 4, ""))


def test_runs_that_are_final_are_not_touched_again() -> None:
    past = Past(1, 0, 0, 0)
    for at in range(200):
        past.note(at + 1, at + 1, {"a": ((at, at + 1, at % 2 * 4, ""),)}, {})
    assert [len(runs) for runs in past.runs["a"].values()] == [64, 64, 64, 8]
    assert past.board(1, 0, 200).score(0, 200, Reason.COMPLETE).area == 0.5
    past.forget(100)
    assert list(past.runs["a"]) == [1, 2, 3]


def test_panes_of_a_job_that_was_not_there_are_not_whole() -> None:
    past = Past(PANE, 0, 0, 0)
    past.note(5 * PANE, 5 * PANE, {"a": ((0, 5 * PANE, 0, ""),)}, {})
    past.skip(8 * PANE)
    assert past.board(PANE, 0, 8 * PANE).score(4, 8, Reason.COMPLETE).area == 0.25


def test_panes_of_another_size_are_remembered() -> None:
    past = Past(PANE, 0, 0, 600)
    past.regrid(10)
    assert [past.grid(at) for at in (0, 599, 600)] == [60, 60, 10]
    past.forget(600)
    assert past.grid(0) == 10


def test_records_that_came_too_late_count_against_panes_that_have_settled() -> None:
    past = Past(10, 0, 0, 0)
    past.note(
        100, 100, {"a": ((0, 60, int(State.MERGED), ""), (60, 100, int(State.LOST), "x"))}, {}
    )
    past.miss("a", 25)
    past.miss("a", 60)  # which is missing anyway
    past.miss("b", 0)  # of which nothing was known there
    assert past.runs_in(0, 100) == {
        "b": ((0, 10, int(State.LATE), ""),),
        "a": (
            (0, 20, int(State.MERGED), ""),
            (20, 30, int(State.LATE), ""),
            (30, 60, int(State.MERGED), ""),
            (60, 100, int(State.LOST), "x"),
        ),
    }


@examples(60)
@given(
    st.lists(st.tuples(st.integers(0, 60), st.integers(1, 5)), max_size=40),
    st.sampled_from([3, 1024]), st.integers(0, 60), st.integers(1, 30), st.integers(0, 60),
)  # fmt: skip
def test_bad_records_are_told_and_never_too_few(
    read: list[tuple[int, int]], spans: int, settled: int, long: int, start: int
) -> None:
    """Records are read in two turns: in the first one, panes up to `settled` settle."""
    truth: dict[int, int] = {}
    for pane, bad in read:
        truth[pane * PANE] = truth.get(pane * PANE, 0) + bad
    known = Bad()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(known_past, "_SPANS", spans)
        known.note(PANE, settled * PANE, truth)
        known.note(PANE, 50 * PANE, {at: n for at, n in truth.items() if at >= settled * PANE})
        assert len(known.spans) <= spans
        lower, upper = start * PANE, (start + long) * PANE
        expected = sum(bad for at, bad in truth.items() if lower <= at < upper)
        told, exactly = known.between(lower, upper)
        assert told == expected if exactly else told >= expected
        assert exactly or spans == 3
        known.settle(PANE)
        known.add(PANE, {PANE: 2})  # of which a log tells late
        assert known.between(0, 1 << 40) == (sum(truth.values()) + 2, True)
        known.forget(30 * PANE)
        assert known.between(0, 1 << 40)[0] >= sum(n for at, n in truth.items() if at >= 30 * PANE)
