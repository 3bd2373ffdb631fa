"""What answers take, and when one may hold others up."""

from __future__ import annotations

from muntin.schedule.shares import Shares, fitting


def test_one_slow_answer_says_nothing_of_the_next() -> None:
    shares = Shares()
    for seconds in (0.1, 5.0):
        shares.take(0.0, {"j": 1}, {"j": seconds})
    assert shares.seconds("j") == 0.1
    shares.take(0.0, {"j": 2}, {"j": 10.0})
    assert shares.seconds("j") == 5.0


def test_what_is_negligible_is_nobodys_time() -> None:
    shares = Shares()
    assert shares.take(7.0, {"a": 1, "b": 1}, {"a": 0.01, "b": 2.0}) == 2.0
    assert (shares.waited_since("a"), shares.waited_since("b")) == (0.0, 7.0)


def test_who_holds_others_up_is_not_soon_to_do_it_again() -> None:
    shares = Shares()
    assert shares.free_at == 0.0
    shares.hold_up(100.0, 3.0)
    assert shares.free_at == 200.0


def test_jobs_that_are_gone_are_forgotten() -> None:
    shares = Shares()
    shares.take(7.0, {"a": 1, "b": 1}, {"a": 1.0, "b": 2.0})
    shares.keep({"b": None})
    assert (shares.seconds("a"), shares.seconds("b")) == (0.0, 2.0)


def test_half_of_the_time_there_is_may_be_planned_with() -> None:
    assert fitting(None, 1.0) is None
    assert fitting(10.0, 1.0) == 5
    assert fitting(1.0, 1.0) == 0
    assert fitting(-1.0, 1.0) == 0
