"""What was lost of a source is a gap on its board, and no longer than has to be."""

from __future__ import annotations

from muntin.fidelity.losses import Loss
from muntin.fidelity.score import EVER, NEVER, Gap, Reason, State, Track
from muntin.fidelity.scoreboard import Moment
from muntin.model.records import TIME
from tests.fidelity.test_scoreboard import SECOND, T, board


def test_a_loss_is_told_with_its_bytes() -> None:
    assert str(Loss("a", "a.log", "is gone")) == "bytes of a.log, which is gone"
    assert str(Loss("a", "a.log", "is gone", bytes=1)) == "1 byte of a.log, which is gone"
    assert str(Loss("a", "a.log", "is gone", bytes=4096)) == "4,096 bytes of a.log, which is gone"


def test_lost_panes_are_missing_and_hold_nothing_back() -> None:
    known = board(slack=2, a=99, b=99)
    loss = Loss("a", "a.log", "is gone", bytes=5, lower=95 * SECOND, upper=97 * SECOND)
    known.lose(loss)
    (gap,) = known.board(Moment(100), T, SECOND).tracks["a"].never
    assert gap == Gap(93, 97, State.LOST, str(loss))
    assert known.horizon(T, Moment(100)) == 97 * SECOND
    c2 = known.board(Moment(100), T, SECOND).score(90, 97, Reason.COMPLETE)
    assert c2.area == 10 / 14
    assert [tuple(m) for m in c2.missing] == [("a", f"lost: {loss}", 4)]


def test_lost_records_are_before_the_next_that_were_read() -> None:
    known = board(a=99)
    known.lose(Loss("a", "a.log", "is gone", "a.log", lower=95 * SECOND, upper=99 * SECOND))
    known.resume("a", "b.log", 96 * SECOND)  # another log
    known.resume("a", "a.log", 94 * SECOND)  # an older part
    assert known.sources["a"].lost[0].upper == 99 * SECOND
    known.resume("a", "a.log", 97 * SECOND)
    assert known.sources["a"].lost[0].upper == 97 * SECOND + 1


def test_a_loss_after_the_first_record_is_not_before_it() -> None:
    known = board(a=99)
    known.lose(Loss("a", "a.log", "is gone", lower=None, upper=98 * SECOND))
    assert known.sources["a"].lost[0].bounds(T) == (90 * SECOND, 98 * SECOND)


def test_times_of_a_file_that_cannot_be_bound_nothing() -> None:
    known = board(a=99)
    known.lose(Loss("a", "a.log", "is gone", lower=95 * SECOND, upper=5))
    assert known.sources["a"].lost[0].bounds(T) == (95 * SECOND, EVER)


def test_what_was_lost_before_anything_was_read_counts_from_the_beginning() -> None:
    known = board(a=99)
    known.lose(Loss("a", "a.log.1", "is gone", upper=80 * SECOND))
    track = known.board(Moment(100), T, SECOND).tracks["a"]
    assert (track.first, track.never[0][:2]) == (NEVER, (NEVER, 80))


def test_a_source_that_is_gone_counts_to_the_end_of_what_it_lost() -> None:
    known = board(a=95)
    known.lose(Loss("a", "a.log", "is gone", lower=95 * SECOND, upper=98 * SECOND))
    known.seen({}, (), 100.0)
    track = known.board(Moment(100), T, SECOND).tracks["a"]
    assert (track.until, track.whole) == (98, 98)


def test_a_source_of_which_nothing_can_be_read_is_lost_in_all_panes() -> None:
    known = board(a=95)
    loss = Loss("b", "b.log", "cannot be read: Permission denied", upper=50 * SECOND)
    known.seen({"a": 95.0}, (), 100.0, {"b": [loss]})
    track = known.board(Moment(100), T, SECOND).tracks["b"]
    assert track == Track(NEVER, EVER, never=(Gap(NEVER, EVER, State.LOST, str(loss)),))
    known.seen({"a": 95.0, "b": 95.0}, (), 100.0)
    assert list(known.board(Moment(100), T, SECOND).tracks) == ["a"]


def test_other_axes_lose_something_where_their_source_stands() -> None:
    known = board(a=95)
    known.sources["a"].reached["n"] = known.sources["a"].first["n"] = 12
    known.lose(Loss("a", "a.log", "is gone", lower=95 * SECOND))
    assert known.board(Moment(100), "n", 10).tracks["a"].never[0][:2] == (1, 2)


def test_a_loss_is_needed_as_long_as_windows_hold_it() -> None:
    loss = Loss("a", "a.log", "is gone", upper=50, reached={"n": 7})
    assert loss.is_needed({TIME.column: 49})
    assert not loss.is_needed({TIME.column: 50})
    assert loss.is_needed({TIME.column: 50, "n": 7})
    assert not loss.is_needed({"other": 0})
