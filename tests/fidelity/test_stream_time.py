"""How far a source has come: by which records were read, whatever their order and pieces."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from muntin.fidelity.stream_time import NO_DOUBT, Doubt, Span, after, settled
from tests.oracle import stream_time

STEP = 60
times = st.lists(st.sampled_from([0, 10, 50, 70, 100, 131, 132, 500, 510, 1000, 9000]), min_size=1)


def spans(*moments: int) -> list[Span]:
    return [Span(moment, moment) for moment in moments]


def test_one_record_from_the_future_is_not_believed() -> None:
    assert settled(100, spans(110, 9000), STEP) == (110, (Span(9000, 9000),))


def test_two_are_not_either_and_three_are() -> None:
    assert settled(100, spans(8000, 9000), STEP)[0] == 100
    assert settled(100, spans(7000, 8000, 9000), STEP) == (7000, tuple(spans(8000, 9000)))


def test_what_lies_within_a_step_is_believed_at_once() -> None:
    assert settled(100, spans(160, 220, 281), STEP) == (220, tuple(spans(281)))


def test_a_source_comes_to_what_was_ahead_of_it() -> None:
    assert settled(440, spans(500), STEP) == (500, ())


def test_the_first_record_may_be_the_one_from_the_future() -> None:
    reached, doubt = after(None, NO_DOUBT, spans(9000), STEP)
    assert (reached, doubt.young) == (9000, True)
    reached, doubt = after(reached, doubt, spans(10), STEP)
    assert (reached, doubt.young) == (10, True)
    assert after(reached, doubt, spans(20), STEP) == (20, Doubt(tuple(spans(9000))))


@given(times, st.lists(st.integers(0, 9)))
def test_order_and_pieces_do_not_matter(moments: Sequence[int], cuts: Sequence[int]) -> None:
    expected = stream_time(moments, 0)
    for order in (moments, sorted(moments), sorted(moments, reverse=True)):
        reached, doubt = None, NO_DOUBT
        points = sorted({0, len(moments), *(cut % (len(moments) + 1) for cut in cuts)})
        for start, stop in pairwise(points):
            reached, doubt = after(reached, doubt, spans(*order[start:stop]), STEP)
        assert reached == expected
