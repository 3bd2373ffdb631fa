"""What is planned with is what was measured, and never less than one small batch."""

from __future__ import annotations

import pytest

from muntin.schedule.pace import Measure, Pace, rest_after, rest_towards

MB = 1 << 20


def test_measures_come_close_to_what_they_are_given() -> None:
    measure = Measure(0.2)
    for _ in range(40):
        measure.take(1.0)
    assert measure.mean == pytest.approx(1.0, rel=0.01)
    assert measure.mean <= measure.high < 1.01


def test_what_varies_is_expected_to_be_high() -> None:
    measure = Measure(0.5)
    for seconds in [0.1, 0.9] * 20:
        measure.take(seconds)
    assert measure.high > 0.9


def test_small_batches_tell_what_a_batch_costs_and_large_ones_a_byte() -> None:
    pace = Pace()
    for _ in range(40):
        pace.read(10, 0.1)
        pace.read(100 * MB, 2.1)
    assert pace.batch.mean == pytest.approx(0.1, rel=0.01)
    assert pace.byte_seconds == pytest.approx(2.0 / (100 * MB), rel=0.01)
    # Of ten seconds, half may be planned with.
    assert pace.most(10.0) == pytest.approx(4.9 / 2.0 * 100 * MB, rel=0.02)


def test_there_is_always_something_to_read() -> None:
    slow = Pace(Measure(0.1), byte_seconds=1e-6)
    assert slow.most(-5.0) == slow.most(0.0) == MB
    # What takes no longer than a batch by itself makes none more than twice as long.
    fast = Pace(Measure(0.1), byte_seconds=1e-9)
    assert fast.most(-5.0) == fast.most(0.0) == 100_000_000
    assert fast.most(0.0, more=1e-7) < MB


def test_the_shortest_batch_reads_what_waits_or_for_as_long_as_it_takes_itself() -> None:
    pace = Pace(Measure(0.1, 0.05), byte_seconds=1e-8)
    assert pace.least(0) == pytest.approx(0.2)
    assert pace.least(5_000_000) == pytest.approx(0.25)
    assert pace.least(500_000_000) == pytest.approx(0.3)


def test_batches_that_are_all_large_tell_what_one_costs_at_most() -> None:
    pace = Pace()
    for _ in range(40):
        pace.read(10 * MB, 0.12)
    assert pace.batch.mean == pytest.approx(0.12, rel=0.01)
    assert pace.takes(10 * MB) < 0.14


def test_a_small_batch_that_took_long_by_chance_says_little_of_bytes() -> None:
    pace = Pace(Measure(0.1))
    for _ in range(40):
        pace.read(50 * MB, 0.6)
    before = pace.byte_seconds
    pace.read(MB, 0.6)
    assert pace.byte_seconds < 1.3 * before
    pace.read(50 * MB, 1.1)
    assert pace.byte_seconds > 1.3 * before


def test_how_much_is_written_is_what_was_found_lately() -> None:
    pace = Pace()
    for _ in range(40):
        pace.found(5 * MB, 0.5)
    pace.found(MB, 0.0)  # the clock stood still
    assert pace.written == pytest.approx(10 * MB, rel=0.01)


def test_the_shortest_time_to_a_commit_is_remembered() -> None:
    pace = Pace()
    for whole in (0.9, 0.4, 0.7):
        pace.left(0.1, whole)
    assert pace.shortest == 0.4
    assert pace.leaving.mean < 0.2


def test_batches_take_a_quarter_of_the_time_and_are_never_far_apart() -> None:
    assert rest_after(0.01, 0.1) == 0.1
    assert rest_after(0.2, 0.1) == pytest.approx(0.6)
    assert rest_after(60.0, 0.1) == 2.0


def test_how_long_something_takes_and_what_is_not_dared_fades() -> None:
    pace = Pace(Measure(0.1, 0.05), byte_seconds=1e-6)
    assert pace.takes(MB) == pytest.approx(0.2 + MB * 1e-6)
    before = pace.takes(MB)
    pace.fade()
    assert pace.takes(MB) == pytest.approx(0.8 * before)


def test_a_batch_begins_right_behind_the_end_of_windows() -> None:
    assert rest_towards(0.6, None, 0.2) == 0.6  # nobody has a bound
    assert rest_towards(0.1, 0.9, 0.2) == 0.1  # it is over before they are
    assert rest_towards(0.6, 0.3, 0.2) == pytest.approx(0.35)  # not after they have waited
    assert rest_towards(0.1, 0.25, 0.2) == pytest.approx(0.3)  # not across their end
    assert rest_towards(0.6, -0.02, 0.2) == pytest.approx(0.03)  # they ended while one was read


def test_what_takes_long_to_read_is_read_before_windows_end() -> None:
    assert rest_towards(0.6, 0.9, 0.2, 0.3) == pytest.approx(0.4)  # over when they are
    assert rest_towards(0.35, 0.9, 0.2, 0.3) == pytest.approx(0.4)  # not twice before that
    assert rest_towards(0.1, 2.0, 0.2, 0.3) == 0.1  # there is time for another one
    assert rest_towards(0.6, 0.9, 0.2, 0.01) == 0.6  # hardly anything: it can be read then
    assert rest_towards(0.6, 0.3, 0.2, 0.3) == pytest.approx(0.35)  # it would be over too late
