"""Clocks agree with the rule of stream time at every record, in any pieces and without order."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from muntin.fidelity.scoreboard import Source
from muntin.fidelity.stream_time import Leap, leapt
from muntin.kernel.clocks import BatchClock, Clock, Clocks
from muntin.model.records import NOWHERE, TIME
from tests.effort import examples
from tests.oracle import stream_time

SECOND = 1_000_000
moments = st.one_of(st.integers(0, 30), st.integers(0, 400), st.sampled_from([900, 5000, 9000]))
# Long calm stretches, so that records are looked at many at once, and one by one.
logs = st.lists(
    st.one_of(
        moments.map(lambda moment: [moment]),
        st.tuples(moments, st.integers(1, 400)).map(lambda run: list(range(run[0], sum(run)))),
        st.just([None]),
    ),
    max_size=8,
).map(lambda runs: [moment for run in runs for moment in run])
slacks = st.sampled_from([0, 15, 600])


def array(log: Sequence[int | None]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array([NOWHERE if m is None else m * SECOND for m in log], np.int64)


@examples(60)
@given(logs, slacks, st.lists(st.integers(0, 2000), max_size=5))
def test_every_record_has_the_stream_time_of_all_before_it(
    log: list[int | None], slack: int, cuts: list[int]
) -> None:
    clocks, found = Clocks(slack * SECOND), []
    points = sorted({0, len(log), *(cut % (len(log) + 1) for cut in cuts)})
    for start, stop in pairwise(points):
        assert clocks.doubt is not None
        clocks = Clocks.since(clocks.reached(), slack * SECOND, None, clocks.doubt)
        found += clocks.of(TIME).advance(array(log[start:stop])).tolist()
    expected: list[int] = []
    known: list[int] = []
    for moment in log:
        if moment is not None:
            known.append(moment)
        if not known:
            expected.append(NOWHERE)
        elif moment is None or (expected and moment * SECOND <= expected[-1] and len(known) > 3):
            expected.append(expected[-1])
        else:
            expected.append(stream_time(known, slack) * SECOND)
    assert found == expected


@given(st.lists(st.lists(moments), max_size=4), slacks, st.integers(1, 3))
def test_batches_without_order_come_to_the_same(
    batches: list[list[int]], slack: int, parts: int
) -> None:
    source = Source()
    for batch in batches:
        before = None if source.doubt.young else source.reached.get(TIME.column)
        for part in range(parts):  # as if tasks had some rows each
            clocks = Clocks(slack * SECOND, {TIME.column: (clock := BatchClock(before))})
            mine = array(batch[part::parts])
            marks = clock.advance(mine)
            assert marks.tolist() == (mine.tolist() if before is None else [before] * len(mine))
            assert clocks.doubt is not None
            source.advance({}, clocks.reached(), clocks.doubt, loose=True)
    every = [moment for batch in batches for moment in batch]
    expected = stream_time(every, slack) * SECOND if every else None
    assert source.reached.get(TIME.column) == expected


def test_where_nothing_is_late_all_is_believed() -> None:
    clock = Clock()
    assert clock.advance(array([1, 9000, 2])).tolist() == [m * SECOND for m in (1, 9000, 9000)]
    assert clock.place(np.array([NOWHERE, 7]), array([3])).tolist() == [3 * SECOND, 7]


def test_a_leap_is_between_neighbours_however_far_a_batch_goes() -> None:
    log = [*range(500), *range(700, 1200), *range(1300, 1400)]
    for pieces in (1, 7):
        clock = Clock(0, step=60 * SECOND)
        for piece in np.array_split(array(log), pieces):
            clock.advance(piece)
        assert clock.leap == Leap(499 * SECOND, 702 * SECOND)  # which three records confirm
    without = BatchClock(0, step=60 * SECOND)
    without.advance(array(log[::-1]))
    assert without.leap == Leap(499 * SECOND, 700 * SECOND)


def test_parts_without_order_fill_the_gaps_of_each_other() -> None:
    first, second, filling = Leap(0, 400), Leap(100, 500), Leap(400, 600)
    assert leapt([first, None, second]) == first
    assert leapt([first, second], in_order=False) == Leap(100, 400)
    assert leapt([first, second, filling], in_order=False) is None
    assert leapt([first, None], in_order=False) is None
    assert leapt([]) is leapt([], in_order=False) is None
