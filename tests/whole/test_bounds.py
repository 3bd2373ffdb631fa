"""Deadlines, revisions, and sources that do what they should not."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

import muntin as mt
from muntin.logs.tail import BATCH_BYTES
from muntin.run.contracts import Answer
from muntin.run.files import LogFiles
from muntin.run.inline import InlineCollection, InlineRun
from muntin.run.loop import Loop, Rules
from muntin.schedule.pace import Measure

STREAM = (
    "CREATE STREAM s (t DOUBLE, k VARCHAR, n BIGINT) FROM '{folder}/{{source}}.log' "
    "FORMAT json TIMESTAMP t{clauses};"
)
JOB = "CREATE JOB j AS SELECT k, count(*) AS c, sum(n) AS n FROM s GROUP BY k WINDOW "


class Run:
    """A live run that is stepped by hand: `at` sets the clock, reads, and says what left."""

    def __init__(
        self,
        folder: Path,
        window: str,
        clauses: str = "",
        idle: float = 5,
        job: str = JOB,
        batch_bytes: int = BATCH_BYTES,
    ) -> None:
        self.folder = folder
        program = mt.sql(STREAM.format(folder=folder, clauses=clauses) + job + window)
        (stream,), jobs = program.streams.values(), list(program.jobs.values())
        self.notes: list[str] = []
        self.files = LogFiles(stream, True, batch_bytes=batch_bytes)
        self.run = InlineRun(stream, jobs, Rules(True, idle), self.notes.append, self.files)

    @property
    def loop(self) -> Loop:
        return self.run.loop

    @property
    def next_deadline(self) -> float | None:
        """With a pace of no time at all, windows set off when they have to be there."""
        return self.loop.wake_at()

    def some(self, now: float, most: int) -> list[mt.Result]:
        """A turn that reads only so many bytes."""
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(self.loop.pace, "most", lambda *_: most)
            self.run._now = now
            return list(self.loop.turn(wake_at=now + 1000).emission.results())

    def write(self, source: str, *times: float, at: float, **fields: Any) -> None:
        with (self.folder / f"{source}.log").open("a") as log:
            log.writelines(json.dumps({"t": t, "k": "x", "n": 1} | fields) + "\n" for t in times)
        self.touch(source, at)

    def touch(self, source: str, at: float) -> None:
        os.utime(self.folder / f"{source}.log", (at, at))

    def at(self, now: float) -> list[mt.Result]:
        return list(self.run.turn(now).results())


def told(results: list[mt.Result]) -> list[tuple[float, int, str, int]]:
    """Start, count, reason and revision of each."""
    return [
        (r.start / 1e6, sum(r.rows["c"].to_pylist()), str(r.c2.reason), r.revision) for r in results
    ]


def test_a_deadline_is_kept_without_data(tmp_path: Path) -> None:
    run = Run(tmp_path, "10 SECONDS WITHIN 3 SECONDS", idle=100)
    run.write("a", 1001, 1011, at=1011)
    run.write("b", 1002, at=1002)
    assert run.at(1011) == []
    assert run.next_deadline == 1013
    assert run.at(1012.9) == []
    assert told(run.at(1013)) == [(1000, 2, "deadline", 0)]
    assert run.next_deadline == 1023
    assert told(run.at(1023)) == [(1010, 1, "deadline", 0)]
    assert run.next_deadline == 1033  # something may come until then
    run.at(1100)
    assert run.next_deadline is None


def test_a_window_sets_off_early_enough_to_be_in_time(tmp_path: Path) -> None:
    run = Run(tmp_path, "10 SECONDS WITHIN 3 SECONDS", idle=100)
    run.loop.pace.leaving = Measure(0.5)
    run.write("a", 1001, at=1001)
    assert run.at(1012.4) == []
    assert told(run.at(1012.5)) == [(1000, 1, "deadline", 0)]


def test_history_has_no_deadline(tmp_path: Path) -> None:
    """What ended long before the run began leaves when it is complete, not at once."""
    run = Run(tmp_path, "10 SECONDS WITHIN 1 SECOND", idle=100)
    run.write("a", 1001, 1011, at=5000)
    run.write("b", 1002, at=5000)
    assert run.at(5000) == []
    run.write("b", 1012, at=5001)
    assert told(run.at(5001)) == [(1000, 2, "complete", 0)]
    assert run.loop.progress.timings["j"].lags == {}


def test_late_data_revises_what_has_left(tmp_path: Path) -> None:
    run = Run(tmp_path, "10 SECONDS EVERY 5 SECONDS REVISE FOR 20 SECONDS")
    run.write("a", 1001, 1006, 1021, at=1021)
    assert told(run.at(1021)) == [
        (995, 1, "complete", 0), (1000, 2, "complete", 0), (1005, 1, "complete", 0),
    ]  # fmt: skip
    run.write("a", 1007, at=1022)
    assert told(run.at(1022)) == [(1000, 3, "complete", 1), (1005, 2, "complete", 1)]
    run.write("a", 1008, 1031, at=1031)
    assert told(run.at(1031)) == [
        (1000, 4, "complete", 2), (1005, 3, "complete", 2), (1015, 1, "complete", 0),
        (1020, 1, "complete", 0),
    ]  # fmt: skip
    assert "j" not in run.loop.progress.late
    run.write("a", 1051, at=1051)
    run.at(1051)
    run.write("a", 1009, at=1052)
    assert told(run.at(1052)) == []  # too late for revisions too
    assert run.loop.progress.late["j"].records == 1
    (left,) = run.loop.progress.left.values()
    assert min(left) > 1_020_000_000


def test_a_source_that_speaks_of_the_future_passes_nothing_by_it(tmp_path: Path) -> None:
    """A clock an hour ahead: its records wait until they are due, and others are not cut off."""
    run = Run(tmp_path, "10 SECONDS", idle=100)
    run.write("a", 1001, at=1001)
    run.write("b", 1002, 4600, 4601, 4602, at=1002)
    assert run.at(1002) == []
    run.write("a", 1011, at=1011)
    found = run.at(1011)
    assert told(found) == [(1000, 2, "complete", 0)]
    run.write("a", 1012, 1021, at=1021)
    assert told(run.at(1021)) == [(1010, 2, "complete", 0)]


def test_a_source_from_another_age_has_bad_rows(tmp_path: Path) -> None:
    run = Run(tmp_path, "10 SECONDS", idle=100)
    run.write("a", 1001, 4_000_000_000, 1002, 1011, at=1011)
    assert told(run.at(1011)) == [(1000, 2, "complete", 0)]
    assert run.loop.progress.bad == 1
    assert any("more than a day ahead of the clock" in note for note in run.notes)


def test_a_clock_that_jumps_back_reopens_nothing(tmp_path: Path) -> None:
    run = Run(tmp_path, "10 SECONDS WITHIN 2 SECONDS", idle=100)
    run.write("a", 1001, at=1001)
    assert run.at(1001) == []
    assert told(run.at(1012)) == [(1000, 1, "deadline", 0)]
    run.write("a", 1003, 1013, at=990)
    assert run.at(990) == []
    assert run.loop.progress.late["j"].records == 1
    assert told(run.at(1022)) == [(1010, 1, "deadline", 0)]


def test_a_pane_that_comes_twice_is_merged_once(tmp_path: Path) -> None:
    """A source that goes back in time has passed those panes; what it repeats is late."""
    run = Run(tmp_path, "10 SECONDS", idle=100)
    run.write("a", 1001, 1002, 1011, 1001, 1002, 1021, at=1021)
    assert told(run.at(1021)) == [(1000, 2, "exhausted", 0), (1010, 1, "complete", 0)]
    assert run.loop.progress.late["j"].records == 2


def test_a_touch_tells_a_quiet_source_from_a_dead_one(tmp_path: Path) -> None:
    run = Run(tmp_path, "10 SECONDS PANE 5 SECONDS")
    for source in ("loud", "quiet", "dead"):
        run.write(source, 1001, at=1001)
    run.at(1001)
    run.write("loud", 1012, at=1012)
    run.touch("quiet", 1012)
    (result,) = run.at(1012)
    cells = {n: [mt.State(s).name for s in row] for n, row in
             zip(result.c2.names, result.c2.cells, strict=True)}  # fmt: skip
    assert cells == {"loud": ["MERGED"] * 2, "quiet": ["MERGED"] * 2, "dead": ["DEAD"] * 2}
    assert (result.c2.area, result.c2.panes, str(result.c2)) == (4 / 6, [2, 2], "67 % exhausted")


def test_declared_sources_count_before_they_speak(tmp_path: Path) -> None:
    run = Run(tmp_path, "10 SECONDS", " SOURCES 'a', 'b'")
    run.write("a", 1001, 1011, at=1011)
    assert run.at(1011) == []  # b has the idle time to come
    (result,) = run.at(1016.1)
    assert (result.c2.area, result.c2.space, str(result.c2.reason)) == (0.5, 0.5, "exhausted")
    (tmp_path / "a.log").unlink()
    run.write("b", 1021, 1031, at=1031)
    assert [r.c2.sources for r in run.at(1031)] == [2, 2]  # a goes on counting
    assert result.c2.missing == (("b", "dead", 1),)


def test_what_nobody_needs_is_not_parsed(tmp_path: Path) -> None:
    """A straggler's records of windows that have left: their times are read, and nothing else."""
    run = Run(tmp_path, "10 SECONDS WITHIN 1 SECOND", idle=100)
    run.write("a", 1001, 1010.5, at=1010.5)
    run.write("b", 1001, at=1001)
    assert run.at(1009) == []
    assert told(run.at(1011)) == [(1000, 2, "deadline", 0)]
    run.write("b", 1002, 1003, at=1012, n="not a number")
    run.at(1012)
    assert (run.loop.progress.bad, run.loop.progress.late["j"].records) == (0, 2)
    run.write("b", 1012, at=1013, n="not a number")
    run.at(1013)
    assert run.loop.progress.bad == 1


def test_sessions_have_deadlines_too(tmp_path: Path) -> None:
    run = Run(tmp_path, "SESSION 4 SECONDS WITHIN 2 SECONDS", idle=100)
    run.write("a", 1001, 1002, at=1002)
    run.write("b", 1002, at=1002)
    assert run.at(1003) == []
    (result,) = run.at(1009)
    assert (result.end / 1e6, result.counts.read, str(result.c2)) == (1006, 3, "0 % deadline")


@pytest.mark.parametrize("form", ["", " SAMPLED", " OF SPACE", " OF TIME"])
def test_finite_input_is_answered_from_what_is_enough(tmp_path: Path, form: str) -> None:
    """Of two sources, 60 percent are both."""
    write = Run(tmp_path, "10 SECONDS")
    for source in ("a", "b"):
        write.write(source, *range(1000, 1100), at=1100)
    bounds = f"50 SECONDS PANE 1 SECOND FIDELITY 60 PERCENT{form}"
    text = STREAM.format(folder=tmp_path, clauses="") + JOB + bounds
    results = list(mt.run(mt.sql(text)))
    counts = [sum(r.rows["c"].to_pylist()) for r in results]
    if form != " OF TIME":
        assert (
            all(40 < count < 80 for count in counts) if form == " SAMPLED" else counts == [60, 60]
        )
        assert [c.c2.area for c in results] == [count / 100 for count in counts]
        assert [r.counts.read for r in results] == counts
        assert {str(r.c2.reason) for r in results} == {"fidelity"}
    else:
        assert counts == [100, 100]
        assert {str(r.c2) for r in results} == {"100 % complete"}


def test_larger_windows_have_what_smaller_ones_were_revised_for(tmp_path: Path) -> None:
    run = Run(tmp_path, "10 SECONDS, 60 SECONDS PANE 5 SECONDS REVISE", idle=100)
    run.write("a", 1021, 1026, 1031, at=1031)
    run.at(1031)
    run.write("a", 1022, at=1032)
    assert told(run.at(1032)) == [(1020, 3, "complete", 1)]
    run.write("a", 1081, at=1081)
    assert told(run.at(1081)) == [(1030, 1, "complete", 0), (1020, 4, "complete", 0)]


def test_a_revision_without_rows_takes_back_what_there_was(tmp_path: Path) -> None:
    job = "CREATE JOB j AS SELECT k, count(*) AS c FROM s GROUP BY k HAVING count(*) < 2 WINDOW "
    run = Run(tmp_path, "10 SECONDS REVISE", idle=100, job=job)
    run.write("a", 1001, 1011, at=1011)
    assert told(run.at(1011)) == [(1000, 1, "complete", 0)]
    run.write("a", 1002, at=1012)
    assert told(run.at(1012)) == [(1000, 0, "complete", 1)]
    run.write("a", 1003, 1021, at=1021)
    assert [(r.revision, r.rows.num_rows) for r in run.at(1021)] == [(0, 1), (2, 0)]


def test_late_records_that_change_nothing_revise_nothing(tmp_path: Path) -> None:
    job = "CREATE JOB j AS SELECT count(*) AS c FROM s WHERE n > 0 WINDOW "
    run = Run(tmp_path, "10 SECONDS REVISE", idle=100, job=job)
    run.write("a", 1001, 1011, at=1011)
    run.at(1011)
    run.write("a", 1002, at=1012, n=0)
    assert run.at(1012) == []


def test_a_revision_has_the_reason_and_the_sources_of_the_first(tmp_path: Path) -> None:
    run = Run(tmp_path, "10 SECONDS PANE 5 SECONDS FIDELITY 50 PERCENT OF TIME REVISE", idle=100)
    run.write("a", 1001, 1011, at=1011)
    run.write("b", 1002, at=1011)
    assert told(run.at(1011)) == [(1000, 1, "fidelity", 0)]
    run.write("b", 1003, at=1012)
    run.write("a", 1004, at=1012)
    (result,) = run.at(1012)
    assert told([result]) == [(1000, 2, "fidelity", 1)]
    assert result.c2.area == 0.5


def test_the_last_write_of_a_source_is_no_heartbeat(tmp_path: Path) -> None:
    """Its log lags: what it wrote at 1012 was of 1001, and then it died."""
    run = Run(tmp_path, "10 SECONDS PANE 5 SECONDS")
    run.write("b", 1001, at=1012)
    run.write("a", 1011, at=1012)
    run.at(1012)
    run.write("a", 1018, at=1018)
    (result,) = run.at(1018)
    assert str(result.c2) == "0 % exhausted"
    run.write("b", 1005, at=1019)
    run.at(1019)
    assert run.loop.progress.late["j"].records == 1


def test_sources_begin_where_their_records_do(tmp_path: Path) -> None:
    """Whatever other jobs look at, and in sessions too."""
    jobs = "CREATE JOB hourly AS SELECT count(*) AS c FROM s WINDOW 1 HOUR; " + JOB
    run = Run(tmp_path, "10 SECONDS PANE 1 SECOND", idle=100, job=jobs)
    run.write("a", 1000, 1010, at=1010)
    run.write("b", 1005, 1010, at=1010)
    (result,) = run.at(1010)
    assert (result.c2.panes, result.c2.area) == ([1] * 5 + [2] * 5, 1.0)
    (tmp_path / "sessions").mkdir()
    run = Run(tmp_path / "sessions", "SESSION 2 SECONDS", idle=5)
    for source in ("a", "b", "dead"):
        run.write(source, 1001, at=1001)
    run.at(1001)
    run.write("a", 1007, at=1007)
    run.write("b", 1007, at=1007)
    (session, *_) = run.at(1007)
    assert (session.c2.sources, str(session.c2)) == (3, "67 % exhausted")


def test_history_does_not_hold_deadlines_back(tmp_path: Path) -> None:
    run = Run(tmp_path, "10 SECONDS WITHIN 1 SECOND", idle=100)
    run.write("b", 1001, at=5000)
    run.write("a", 5001, at=5001)
    assert run.at(5001) == []
    assert told(run.at(5011)) == [(1000, 1, "deadline", 0), (5000, 1, "deadline", 0)]


def test_live_windows_go_ahead_of_history_that_is_being_read(tmp_path: Path) -> None:
    run = Run(tmp_path, "10 SECONDS WITHIN 1 SECOND", idle=100)
    run.write("a", 5001, at=5001)
    run.write("b", *range(1000, 1100), at=5001)

    run.some(5001, 200)
    ahead = run.some(5011, 200)
    assert told(ahead)[-1] == (5000, 1, "deadline", 0)
    while not (late := run.some(5012, 2000)):
        pass
    found = [*told(ahead)[:-1], *told(late)]
    run.write("b", 1100, 5011, 5012, 5012, at=5013)
    found += told(run.at(5013))
    history = [(start, count) for start, count, _, _ in found if start < 2000]
    assert history == [(start, 10) for start in range(1000, 1100, 10)] + [(1100, 1)]
    assert "j" not in run.loop.progress.late


def test_what_a_deadline_cuts_off_is_late_with_fidelity_too(tmp_path: Path) -> None:
    run = Run(tmp_path, "10 SECONDS FIDELITY 90 PERCENT WITHIN 1 SECOND", idle=100)
    run.write("a", 1001, at=1001)
    run.write("b", 1001, at=1001)
    run.at(1001)
    assert told(run.at(1011)) == [(1000, 2, "deadline", 0)]
    run.write("b", 1002, at=1012)
    run.at(1012)
    assert run.loop.progress.late["j"].records == 1


def test_a_declared_source_that_does_not_come_is_told_of_once(tmp_path: Path) -> None:
    run = Run(tmp_path, "10 SECONDS", " SOURCES 'a', 'ghost'")
    run.write("a", 1001, at=1001)
    for now in (1001, 1005, 1007, 1009):
        run.at(now)
    assert [note for note in run.notes if "no file matches" not in note] == [
        "stream 's' has no source 'ghost', which SOURCES declares: results count it as missing; "
        "there are: a"
    ]


def test_no_session_that_ends_is_no_emission(tmp_path: Path) -> None:
    run = Run(tmp_path, "SESSION 3 SECONDS")
    run.write("a", 1001, 1002, at=1002)
    run.at(1002)
    run.write("a", 1003, at=1003)
    assert run.run.turn(1003).windows == ()


def test_the_word_of_a_quiet_source_holds_after_a_restart(tmp_path: Path) -> None:
    run = Run(tmp_path, "10 SECONDS", idle=5)
    run.write("quiet", 1001, at=1001)
    run.write("loud", 1001, at=1001)
    run.at(1001)
    run.write("loud", 1008, at=1008)
    run.at(1008)
    run.touch("quiet", 1012)
    assert run.at(1012) == []
    progress = run.loop.progress
    for source in progress.sources.values():
        source.heard_at = None  # as it is read from a checkpoint
    again = Run(tmp_path, "10 SECONDS", idle=5)
    stream, jobs = run.loop.catalog.stream, list(run.loop.catalog.jobs.values())
    collection = run.loop.collection
    assert isinstance(collection, InlineCollection)
    again.run = InlineRun(
        stream, jobs, Rules(True, 5), again.notes.append, run.files, collection, progress
    )
    again.write("loud", 1013, at=1013)
    assert told(again.at(1013)) == [(1000, 3, "complete", 0)]


def test_sessions_keep_deadlines_once_history_is_read(tmp_path: Path) -> None:
    """Old logs are read to their end first; under load, what is live does not wait."""
    run = Run(tmp_path, "SESSION 5 SECONDS WITHIN 3 SECONDS", idle=100, batch_bytes=150)
    run.write("old", *range(900, 912), 1001, *range(1030, 1060), at=1000)
    run.write("new", 1001, at=1001)
    reached, now, found = run.loop.progress.sources, 1010.0, run.at(1000)
    while not found:
        assert reached["old"].reached["__position"] < 997e6
        assert run.loop._request(now, None).most is None  # history may take what it takes
        now += 1
        found = run.at(now)
    assert told(found) == [(900, 12, "complete", 0), (1001, 2, "deadline", 0)]
    assert reached["old"].reached["__position"] < 1050e6  # there is more to read
    assert run.loop._request(now, None).most == run.loop.pace.most(3.0)


def test_sessions_are_looked_for_only_when_one_may_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(tmp_path, "SESSION 5 SECONDS WITHIN 3 SECONDS", idle=100)
    asked = []
    real = InlineCollection.answer

    def answer(collection: InlineCollection, *given: Any) -> Answer:
        asked.append(given)
        return real(collection, *given)

    monkeypatch.setattr(InlineCollection, "answer", answer)
    run.write("a", 1001, 1004, at=1004)
    found = [run.at(1004 + tick / 10) for tick in range(200)]
    assert [told(left) for left in found if left] == [[(1001, 2, "deadline", 0)]]
    assert len(asked) == 2  # when there were new records, and when their session was due
    run.write("a", 1025, at=1025)
    run.at(1025)
    assert len(asked) == 3


def test_records_in_time_are_not_late_for_sessions(tmp_path: Path) -> None:
    """Though it takes as long to let them leave as it may."""
    run = Run(tmp_path, "SESSION 4 SECONDS WITHIN 1 SECOND", idle=100)
    run.loop.pace.leaving = Measure(2.0)
    for now in range(1000, 1030):
        run.write("a", now, at=now)
        run.at(now + 0.001)
    assert "j" not in run.loop.progress.late
