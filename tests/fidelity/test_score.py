"""C² against counting cell by cell, and boards that merge in any order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import reduce

from hypothesis import given
from hypothesis import strategies as st

from muntin.fidelity.score import EVER, NEVER, Board, Gap, Only, Reason, State, Track

NAMES = ["a", "b", "c"]
LOST = (
    State.SHED, State.CANCELLED, State.DEAD, State.LEAPT, State.AWAITED, State.LOST, State.LATE
)  # fmt: skip
never = st.tuples(
    st.integers(0, 8), st.integers(1, 4), st.sampled_from([State.SHED, State.CANCELLED, State.LOST])
)
tracks = st.builds(
    lambda first, until, whole, rest, never: Track(
        first, until, whole, rest, tuple(sorted(Gap(low, low + n, s) for low, n, s in never))
    ),
    st.sampled_from([NEVER, 0, 2, 5]),
    st.sampled_from([EVER, EVER, 7, 9]),
    st.integers(-1, 12) | st.sampled_from([NEVER, EVER]),
    st.sampled_from([State.AWAITED, State.DEAD, State.LEAPT]),
    st.sets(never, max_size=2),
)
late = st.dictionaries(
    st.sampled_from(NAMES), st.dictionaries(st.integers(-2, 12), st.integers(0, 16), max_size=3)
)
boards = st.builds(
    lambda tracks, late: Board(tracks, late=late),
    st.dictionaries(st.sampled_from(NAMES), tracks, max_size=3),
    late,
)


def state_of(track: Track, pane: int) -> State:
    """What a track says of one pane."""
    if pane < track.first:
        return State.LATER
    if pane >= track.until:
        return State.REMOVED
    for low, high, state, _ in reversed(track.never):
        if low <= pane < high:
            return state
    return State.MERGED if pane < track.whole else track.rest


@given(board=boards, start=st.integers(-2, 8), length=st.integers(1, 8))
def test_score_equals_counting(board: Board, start: int, length: int) -> None:
    panes = range(start, start + length)
    cells = {(n, p): state_of(board.tracks[n], p) for n in board.tracks for p in panes}
    for cell, state in cells.items():
        if state is State.MERGED and board.late.get(cell[0], {}).get(cell[1], NEVER) >= panes.stop:
            cells[cell] = State.LATE
    counted = {c for c, s in cells.items() if s not in (State.LATER, State.REMOVED)}
    whole = {cell for cell in counted if cells[cell] is State.MERGED}
    names = {name for name, _ in counted}
    c2 = board.score(start, start + length, Reason.DEADLINE)
    assert c2.area == (len(whole) / len(counted) if counted else 1.0)
    expected = {pane for _, pane in counted}
    assert c2.time == (len({p for _, p in whole}) / len(expected) if expected else 1.0)
    assert c2.space == (len({n for n, _ in whole}) / len(names) if names else 1.0)
    assert c2.sources == len(names)
    assert c2.panes == [sum((n, p) in whole for n in board.tracks) for p in panes]
    found = {(n, p): State(c2.cells[i, j]) for i, n in enumerate(c2.names)
             for j, p in enumerate(panes)}  # fmt: skip
    assert found == cells
    lost = Counter((n, s) for (n, _), s in cells.items() if s in LOST)
    assert {(m.source, m.why): m.panes for m in c2.missing} == {
        (name, state.name.lower()): count for (name, state), count in lost.items()
    }


@given(parts=st.lists(boards, max_size=5), order=st.permutations(range(5)), data=st.data())
def test_boards_merge_in_any_order_and_as_often_as_they_meet(
    parts: list[Board], order: Sequence[int], data: st.DataObject
) -> None:
    """As reports do on their way through tasks, relays and the driver."""

    def merged(boards: Iterable[Board]) -> Board:
        return reduce(Board.merge, boards, Board())

    whole = merged(parts)
    assert merged([parts[i] for i in order if i < len(parts)]) == whole
    cut = data.draw(st.integers(0, len(parts)))
    assert merged(parts[:cut]).merge(merged(parts[cut:])) == whole
    assert merged([*parts, *parts]) == whole
    assert whole.merge(Board()) == whole


def test_a_drawing_shows_every_source_and_why_panes_are_missing() -> None:
    board = Board({"web-1": Track(0, whole=4), "web-22": Track(2, whole=3, rest=State.DEAD)})
    assert board.score(0, 4, Reason.EXHAUSTED).drawing().splitlines() == [
        " web-1 ████",
        "web-22   █†",
        "█ merged, † dead",
        "83 % of the area, 100 % of time, 100 % of 2 sources: exhausted",
    ]
    long = Board({"a": Track(0, whole=900)}).score(0, 1000, Reason.DEADLINE).drawing(width=52)
    assert long.splitlines()[0] == "a " + "█" * 45 + "░" * 5


def test_what_is_left_out_counts_as_cancelled() -> None:
    board = Board({"a": Track(0, whole=4), "b": Track(0, whole=2)})
    c2 = board.scored(board.cells(0, 4), 0, Reason.FIDELITY, Only(panes=(0, 1)))
    assert (c2.area, c2.time, c2.space, c2.panes) == (0.5, 0.5, 1.0, [2, 2, 0, 0])
    assert c2.cells.tolist() == [[0, 0, 3, 3], [0, 0, 8, 8]]
