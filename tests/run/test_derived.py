"""Results of a job as an intake: each once, when it is known whose they are."""

from __future__ import annotations

import pyarrow as pa

from muntin.fidelity.score import EVER, Gap, State, Track
from muntin.fidelity.scoreboard import Source
from muntin.language.program import sql
from muntin.model.records import TIME
from muntin.run.contracts import Request
from muntin.run.derived import JobResults, Lack, Left, ResultTask, Standing

PROGRAM = sql(
    "CREATE STREAM s (t BIGINT, n BIGINT) FROM 'x/{source}.jsonl' FORMAT json TIMESTAMP t;"
    "CREATE JOB low AS SELECT sum(n) AS n FROM s WINDOW 1 SECOND;"
    "CREATE JOB high AS SELECT sum(n) AS n FROM JOB low WINDOW 1 MINUTE;"
)
STREAM = PROGRAM.streams["JOB low"]
SECOND = 1_000_000


def left(at: int, *lacks: Lack) -> Left:
    return Left(at, pa.table({"n": [1], "window_end": pa.array([SECOND], pa.int64())}), lacks)


def asked(sources: dict[str, Source] | None = None) -> Request:
    return Request(0.0, True, None, sources or {}, 0, None)


def standing(upto: int, **tracks: Track) -> Standing:
    return Standing(upto * SECOND, tracks)


def test_results_are_handed_out_once() -> None:
    intake = JobResults(STREAM, follow=True, taken_us=4)
    intake.follow(standing(1, a=Track(0)))
    for at in (4, 5, 5, 3):
        intake.offer(left(at))
    batch = intake.next(asked())
    assert isinstance(batch.work, ResultTask)
    assert batch.work.rows.num_rows == 1
    assert batch.work.number == 5
    assert intake.next(asked()).work is None


def test_versions_that_leave_together_are_all_handed_out() -> None:
    intake = JobResults(STREAM, follow=True)
    intake.follow(standing(1, a=Track(0)))
    intake.offer(left(5), left(5))
    intake.offer(left(5))
    batch = intake.next(asked())
    assert isinstance(batch.work, ResultTask)
    assert batch.work.rows.num_rows == 2


def test_results_wait_until_it_is_known_whose_they_are() -> None:
    intake = JobResults(STREAM, follow=False)
    intake.offer(left(1))
    first = intake.next(asked())
    assert (first.work, first.remaining) == (None, 1)
    intake.follow(standing(1, a=Track(0)), over=True)
    second = intake.next(asked())
    assert isinstance(second.work, ResultTask)
    assert second.remaining == 0


def test_windows_that_were_shed_are_gaps_until_that_is_told() -> None:
    """They are in no table, so that after a restart it is known from where the job stands."""
    intake = JobResults(STREAM, follow=True)
    tracks = {"a": Track(0, whole=EVER)}
    intake.follow(Standing(2 * SECOND, tracks, shed=(2 * SECOND,)))
    intake.follow(Standing(4 * SECOND, tracks, shed=(4 * SECOND,)))
    work = intake.next(asked()).work
    assert isinstance(work, ResultTask)
    ends = (2 * SECOND, 4 * SECOND)
    assert list(work.standing.gaps("a", 0)) == [Gap(e - 1, e, State.SHED) for e in ends]
    assert list(work.standing.gaps("a", 2 * SECOND)) == [
        Gap(4 * SECOND - 1, 4 * SECOND, State.SHED)
    ]
    intake.follow(Standing(6 * SECOND, tracks))
    work = intake.next(asked()).work
    assert isinstance(work, ResultTask)
    assert not work.standing.shed


def test_windows_of_before_a_restart_that_no_table_has_lack_what_was_missing() -> None:
    """Of those that have rows, the table says what; later ones are offered with what they lack."""
    intake = JobResults(STREAM, follow=True)
    tracks = {"a": Track(0, whole=EVER)}
    intake.offer(left(1))
    intake.offer(left(2, Lack(3 * SECOND, "a", State.DEAD, "")))
    lapsed = tuple(end * SECOND for end in (1, 2, 3))
    intake.follow(Standing(4 * SECOND, tracks, lapsed=lapsed))
    intake.follow(Standing(4 * SECOND, tracks, lapsed=(*lapsed, 4 * SECOND)))
    work = intake.next(asked()).work
    assert isinstance(work, ResultTask)
    gap = Gap(2 * SECOND - 1, 2 * SECOND, State.LOST, "had not come in time")
    assert list(work.standing.gaps("a", 0)) == [gap]
    assert list(work.standing.gaps("a", 2 * SECOND)) == []
    intake.follow(Standing(6 * SECOND, tracks, lapsed=lapsed))
    work = intake.next(asked()).work
    assert isinstance(work, ResultTask)
    assert not work.standing.lapsed


def test_that_windows_have_passed_is_told_without_results() -> None:
    intake = JobResults(STREAM, follow=True)
    intake.follow(standing(7, a=Track(0, whole=EVER)))
    work = intake.next(asked()).work
    assert isinstance(work, ResultTask)
    (delivery,) = work.deliver([])
    (reading,) = delivery.readings
    assert reading.reached == {TIME.column: 7 * SECOND}
    assert intake.next(asked()).work is None


def test_a_source_that_only_lacks_goes_on_with_the_others() -> None:
    intake = JobResults(STREAM, follow=True)
    intake.follow(standing(7, a=Track(0)))
    intake.offer(left(1, Lack(5 * SECOND, "z", State.DEAD, "")))
    work = intake.next(asked()).work
    assert isinstance(work, ResultTask)
    assert set(work.since) == {"a", "z"}
    intake.follow(standing(9, a=Track(0)))
    known = {"z": Source({TIME.column: 7 * SECOND}, {TIME.column: 5 * SECOND})}
    work = intake.next(asked(known)).work
    assert isinstance(work, ResultTask)
    assert work.since["z"] == (5 * SECOND, 7 * SECOND)


def test_what_a_source_has_not_given_is_told_from_where_it_was_told_before() -> None:
    lost = Gap(1, 20, State.LOST, "a file")
    track = Track(0, whole=12, rest=State.DEAD, never=(lost,))
    told = list(Standing(15, {"a": track}).gaps("a", since=10))
    assert told == [Gap(12, 15, State.DEAD), Gap(10, 15, State.LOST, "a file")]
    assert list(Standing(15, {"a": track}).gaps("b", since=10)) == []


def test_what_is_awaited_when_results_leave_is_lost_to_who_reads_them() -> None:
    (gap,) = Standing(15, {"a": Track(0, whole=12)}).gaps("a", since=10)
    assert gap == Gap(12, 15, State.LOST, "had not come in time")


def test_a_job_that_has_stopped_answers_nothing_any_more() -> None:
    (gap,) = Standing(15, {"a": Track(0, whole=EVER)}, stopped=14).gaps("a", since=10)
    assert gap == Gap(14, EVER, State.LOST, "has stopped")
