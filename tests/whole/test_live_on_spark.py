"""The same on Spark: scores, deadlines in real time, and what a restart must remember."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
import threading
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pytest
from hypothesis import given

import muntin as mt
from muntin.cli import main
from muntin.store.results import Results
from tests.effort import examples
from tests.whole.scoring import IDLE, STARTED, Happening, Model, Question, happen, left
from tests.whole.test_live import questions, steps_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from muntin.spark.runner import StreamRun

pytestmark = pytest.mark.usefixtures("looking_at_all")

Steps = list[tuple[float, tuple[Happening, ...]]]


class Clock:
    def __init__(self) -> None:
        self.now = STARTED

    def __call__(self) -> float:
        return self.now


def started(spark: SparkSession, folder: Path, program: mt.Program, clock: Clock) -> StreamRun:
    from muntin.schedule.pace import Measure
    from muntin.spark.runner import Settings, StreamRun

    settings_ = Settings(folder / "state", follow=True, idle_seconds=IDLE)
    (stream,) = program.streams.values()
    # Events of the system may come a moment later; the clock here has no such moments.
    with patch.object(StreamRun, "_watch", return_value=None):
        run = StreamRun(spark.sparkContext, stream, program.jobs_of(stream.name), settings_, clock)
    run.loop.pace.leaving = Measure(0.0)  # the clock stands still while windows leave
    return run


@examples(5)
@given(question=questions(), steps=steps_of())
def test_spark_equals_count_by_hand(spark: SparkSession, question: Question, steps: Steps) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder, clock, model = Path(name), Clock(), Model(question)
        (folder / "logs").mkdir()
        run = started(spark, folder, question.program(folder / "logs"), clock)
        for seconds, happenings in steps:
            clock.now += seconds
            for happening in happenings:
                happen(folder / "logs", happening, clock.now)
            found = [left(r, question.pane) for r in run.loop.turn().emission.results()]
            assert found == model.step(clock.now, happenings)
        run.close()


PROGRAM = """
CREATE STREAM s (t DOUBLE, k VARCHAR) FROM '{folder}/{{source}}.log' FORMAT json TIMESTAMP t;
CREATE JOB j AS SELECT k, count(*) AS c FROM s GROUP BY k WINDOW {window};
"""


def write(folder: Path, source: str, *times: float, at: float | None = None) -> None:
    path = folder / f"{source}.log"
    with path.open("a") as log:
        log.writelines(json.dumps({"t": t, "k": "x"}) + "\n" for t in times)
    if at is not None:
        os.utime(path, (at, at))


def printed(capsys: pytest.CaptureFixture[str], *args: object) -> str:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["muntin", *map(str, args)])
        patch.setenv("COLUMNS", "160")
        with contextlib.suppress(SystemExit):
            main()
    return capsys.readouterr().out


def test_revisions_and_timings_survive_a_restart(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    clock, program = Clock(), mt.sql(
        PROGRAM.format(folder=tmp_path, window="10 SECONDS PANE 5 SECONDS REVISE WITHIN 4 SECONDS")
    )  # fmt: skip
    for times in ((1001.0, 1011.0), (1002.0,), (1003.0, 1021.0)):
        clock.now += 11
        write(tmp_path, "a", *times, at=clock.now)
        run = started(spark, tmp_path, program, clock)  # a new program every time
        run.loop.turn()
        run.close()
    rows = Results(tmp_path / "state").read("j", revisions=True).to_pylist()
    assert [(r["revision"], r["c"]) for r in rows] == [(0, 1), (1, 2), (2, 3), (0, 1)]
    newest = Results(tmp_path / "state").read("j").to_pylist()
    assert [(r["revision"], r["c"]) for r in newest] == [(2, 3), (0, 1)]
    state = ("--state", tmp_path / "state")
    lines = printed(
        capsys, "results", "j", *state, "--detail", "--format", "json", "--window", "all"
    )
    assert [json.loads(line)["c2"]["records"] for line in lines.splitlines()] == [
        [{"source": "a", "panes": [3, 0]}],
        [{"source": "a", "panes": [1, 0]}],
    ]
    shown = json.loads(printed(capsys, "status", *state, "--json"))
    (job,) = shown["jobs"]
    assert (job["windows"], job["within"], job["misses"], job["c2_area"]) == (2, 4.0, 0, 1.0)
    assert job["lag_p50"] == pytest.approx(1.0, rel=0.02)
    assert shown["sources"] == [
        {
            "stream": "s",
            "source": "a",
            "from": "1970-01-01T00:16:41Z",
            "to": "1970-01-01T00:17:01Z",
            "heard": "1970-01-01T00:17:13Z",
            "ended": False,
            "seen": True,
            "agent": False,
        },
    ]
    table = printed(capsys, "status", *state)
    assert all(word in table for word in ("mean C²", "100 %", "1.00 s"))


def test_what_finite_runs_have_left_may_be_revised(spark: SparkSession, tmp_path: Path) -> None:
    from muntin.spark.runner import Settings, SparkRun

    program = mt.sql(PROGRAM.format(folder=tmp_path, window="10 SECONDS REVISE"))
    settings_ = Settings(tmp_path / "state", follow=False, batch_bytes=40)
    for times in ((1001.0, 1002.0, 1011.0, 1003.0), (1004.0,), (1005.0, 1012.0)):
        write(tmp_path, "a", *times)
        run = SparkRun(program, spark.sparkContext, settings_)
        assert sum(step.bytes > 0 for step in run.turns()) >= len(times) // 2
    rows = Results(tmp_path / "state").read("j", revisions=True).to_pylist()
    assert [(r["revision"], r["c"]) for r in rows] == [(0, 3), (1, 4), (2, 5), (0, 1), (1, 2)]


def test_a_finite_run_saves_though_its_last_batch_is_empty(
    spark: SparkSession, tmp_path: Path
) -> None:
    from muntin.spark.runner import Settings, StreamRun

    program = mt.sql(PROGRAM.format(folder=tmp_path, window="10 SECONDS REVISE"))
    (stream,), jobs = program.streams.values(), program.jobs_of("s")
    small, large = (Settings(tmp_path / "state", False, batch_bytes=size) for size in (90, 1000))
    write(tmp_path, "a", 1001.0, 1002.0, 1011.0)
    write(tmp_path, "b", *[1001.0] * 100)
    run = StreamRun(spark.sparkContext, stream, jobs, small)
    assert run.loop.turn().remaining
    (tmp_path / "b.log").unlink()
    while run.loop.turn().remaining:
        pass
    run.close()
    write(tmp_path, "a", 1003.0)
    run = StreamRun(spark.sparkContext, stream, jobs, large)
    run.loop.turn()
    run.close()
    counts = Results(tmp_path / "state").read("j", revisions=True)["c"].to_pylist()
    assert counts[1] == counts[0] + 1


def test_a_window_that_was_taken_back_is_not_shown(spark: SparkSession, tmp_path: Path) -> None:
    clock = Clock()
    text = PROGRAM.format(folder=tmp_path, window="10 SECONDS REVISE")
    program = mt.sql(text.replace("GROUP BY k", "GROUP BY k HAVING count(*) < 2"))
    run = started(spark, tmp_path, program, clock)
    for times in ((1001.0, 1011.0), (1002.0,)):
        write(tmp_path, "a", *times, at=clock.now)
        clock.now += 12
        run.loop.turn()
    run.close()
    store = Results(tmp_path / "state")
    assert store.read("j").num_rows == 0
    assert store.read("j", revisions=True)["c"].to_pylist() == [1]


def test_results_tell_how_complete_they_are(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = Clock()
    window = "10 SECONDS PANE 5 SECONDS WITHIN 1 SECOND"
    run = started(spark, tmp_path, mt.sql(PROGRAM.format(folder=tmp_path, window=window)), clock)
    write(tmp_path, "a", 1001, 1007, 1010, at=1000)
    write(tmp_path, "b", 1002, at=1000)
    run.loop.turn()
    clock.now += 4
    run.loop.turn()
    clock.now += 7
    write(tmp_path, "b", 1003, at=clock.now)
    assert len(run.loop.turn().emission.windows) == 1
    state = ("--state", tmp_path / "state")
    rows = printed(capsys, "results", "j", *state, "--format", "json")
    assert printed(capsys, "results", "--all", *state, "--format", "json") == rows
    assert printed(capsys, "results", "j", "j", *state, "--format", "json") == rows + rows
    short = {"area": 0.5, "time": 1.0, "space": 0.5, "reason": "deadline"}
    assert json.loads(rows)["c2"] == short
    assert "emitted_at" not in rows
    row = json.loads(printed(capsys, "results", "j", *state, "--format", "json", "--detail"))
    missing = [{"source": "b", "why": "awaited", "panes": 2}]
    records = [{"source": "a", "panes": [1, 1]}, {"source": "b", "panes": [2, 0]}]
    detail = {"sources": 2, "panes": [1, 1], "missing": missing, "records": records}
    assert row["c2"] == short | detail
    assert (row["revision"], row["emitted_at"]) == (0, "1970-01-01T00:16:51Z")
    assert "50 % deadline" in printed(capsys, "results", "j", *state)
    table = printed(capsys, "results", "j", *state, "--detail")
    told = "50 % deadline, time 100 %, space 50 % of 2, panes 1 1, missing b 2 awaited"
    assert f"{told}, records a 1 1, b 2 0" in table
    line = printed(capsys, "results", "j", *state, "--format", "csv").splitlines()[1]
    assert line.endswith(",0.5,1.0,0.5,deadline")
    run.close()


def test_deadlines_are_kept_while_a_source_catches_up(spark: SparkSession, tmp_path: Path) -> None:
    """A new server brings much history; what the others write leaves in time all the while."""
    from muntin.spark.runner import Settings, SparkRun

    window = "1 SECOND WITHIN 3 SECONDS"
    program = mt.sql(PROGRAM.format(folder=tmp_path, window=window))
    stop, over = threading.Event(), time.time() + 14
    # So that history comes in pieces, however fast it could be read.
    settings_ = Settings(tmp_path / "state", follow=True, idle_seconds=60, batch_bytes=16 << 20)
    write(tmp_path, "a", time.time())
    write(tmp_path, "b", time.time())

    def servers() -> None:
        history = False
        while time.time() < over:
            for source in ("a", "b"):
                write(tmp_path, source, time.time())
            if not history and time.time() > over - 10:
                history = True
                line = json.dumps({"t": time.time() - 86_400, "k": "old"}) + "\n"
                (tmp_path / "c.log").write_text(line * 1_500_000)
            stop.wait(0.05)
        stop.set()

    writer = threading.Thread(target=servers)
    writer.start()
    run = SparkRun(program, spark.sparkContext, settings_, stop)
    lags: list[float] = []
    behind = 0
    for step in run.turns():
        behind += bool(step.remaining)
        for windows in step.emission.windows:
            ends = (result.end / 1e6 for result in windows.results())
            lags += [time.time() - end for end in ends if end > over - 13]
    writer.join()
    assert behind  # the history came in pieces
    assert len(lags) >= 9
    assert median(lags) <= 3.0  # a busy machine may pause now and then


@pytest.mark.parametrize("window", ["SESSION 5 SECONDS", "10 SECONDS EVERY 1 SECOND"])
def test_what_was_written_while_nobody_read_counts(
    spark: SparkSession, tmp_path: Path, window: str
) -> None:
    """Deadlines are not kept by giving up what is there to be read."""
    clock = Clock()
    other = "CREATE JOB other AS SELECT count(*) AS c FROM s WINDOW 10 s EVERY 1 s WITHIN 3 s;"
    text = PROGRAM.format(folder=tmp_path, window=f"{window} WITHIN 3 SECONDS")
    program = mt.sql(text + other)
    for now, first, last in ((1003, 1000, 1002), (1009.9, 1002, 1009), (1040, 1009, 1040),
                             (1060, 1040, 1040)):  # fmt: skip
        write(tmp_path, "a", *(t / 2 for t in range(2 * first, 2 * last)), at=now)
        clock.now = now
        run = started(spark, tmp_path, program, clock)
        run.loop.turn(run.loop.wake_at())
        run.close()
    rows = Results(tmp_path / "state").read("j").to_pylist()
    for row in rows:
        start, end = row["window_start"].timestamp(), row["window_end"].timestamp()
        written = 2 * (min(1040, end) - max(1000, start))
        assert row["c"] == written
    assert len(rows) > 25 or [row["c"] for row in rows] == [80]
    assert "j" not in run.loop.progress.late


def test_a_bound_that_cannot_be_kept_is_told(spark: SparkSession, tmp_path: Path) -> None:
    clock: Any = time.time
    now = time.time()
    window = "1 SECOND WITHIN 1 MILLISECOND"
    run = started(spark, tmp_path, mt.sql(PROGRAM.format(folder=tmp_path, window=window)), clock)
    write(tmp_path, "a", now - 3, now - 1.5)
    run.loop.turn()  # the first batch is slow, and tells nothing
    write(tmp_path, "a", now + 0.5)
    notes = list(run.loop.turn().notes)
    assert any("WITHIN 1 MILLISECOND is shorter than one batch takes here" in n for n in notes)
    assert any("the smallest bound that can be kept is" in n for n in notes)
    run.close()
