"""Following, restarting and refusing, with real files, real Spark and real signals."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import muntin as mt
from muntin.run.loop import Turn
from muntin.spark.runner import Settings, SparkRun
from muntin.store.results import Results
from tests.waiting import wait_for

pytestmark = pytest.mark.usefixtures("looking_at_all")

STREAM = """
CREATE STREAM logs (t BIGINT, k VARCHAR, n BIGINT) FROM '{folder}/{{source}}/*.log'
FORMAT json TIMESTAMP t{slack};
CREATE JOB sums AS SELECT k, sum(n) AS n, count(*) AS c FROM logs GROUP BY k WINDOW 10 SECONDS;
"""
BASE = 1_700_000_000


def program(folder: Path, slack: str = "") -> mt.Program:
    return mt.sql(STREAM.format(folder=folder, slack=slack))


def write(folder: Path, source: str, *rows: tuple[int, str, int], name: str = "a.log") -> None:
    (folder / source).mkdir(parents=True, exist_ok=True)
    with (folder / source / name).open("a") as log:
        log.writelines(json.dumps({"t": BASE + t, "k": k, "n": n}) + "\n" for t, k, n in rows)


class Follower:
    """A run that is stepped by hand, with a clock of its own."""

    def __init__(self, spark: SparkSession, folder: Path, slack: str = "") -> None:
        from muntin.spark.runner import StreamRun

        self.now = BASE + 1000.0
        settings = Settings(folder / "state", follow=True, idle_seconds=30)
        program_ = program(folder / "logs", slack)
        context = spark.sparkContext
        stream, jobs = program_.streams["logs"], program_.jobs_of("logs")
        self.run = StreamRun(context, stream, jobs, settings, lambda: self.now)

    def step(self) -> list[tuple[int, str, int]]:
        """(window start, key, sum) of what left."""
        self.now += 1
        return [
            (result.start // 1_000_000 - BASE, row["k"], row["n"])
            for result in self.run.loop.turn().emission.results()
            for row in result.rows.to_pylist()
        ]


def stored(folder: Path) -> list[tuple[int, str, int, int]]:
    rows = Results(folder / "state").read("sums").to_pylist()
    return [(int(r["window_start"].timestamp()) - BASE, r["k"], r["n"], r["c"]) for r in rows]


def test_a_window_leaves_when_every_source_has_passed_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    logs = tmp_path / "logs"
    #   web-1  3      12
    #   web-2      8         21
    write(logs, "web-1", (3, "a", 1), (12, "a", 2))
    write(logs, "web-2", (8, "a", 4))
    follower = Follower(spark, tmp_path)
    assert follower.step() == []  # web-2 may still write before 10
    write(logs, "web-2", (21, "b", 8))
    assert follower.step() == [(0, "a", 5)]
    write(logs, "web-1", (25, "a", 16))
    assert follower.step() == [(10, "a", 2)]
    assert stored(tmp_path) == [(0, "a", 5, 2), (10, "a", 2, 1)]


def test_an_idle_source_holds_nothing_back(spark: SparkSession, tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    write(logs, "web-1", (3, "a", 1))
    write(logs, "web-2", (3, "a", 1))
    follower = Follower(spark, tmp_path)
    assert follower.step() == []
    write(logs, "web-1", (15, "a", 2))
    assert follower.step() == []
    follower.now += 40  # web-2 has been silent for longer than the idle time
    write(logs, "web-1", (16, "a", 4))
    assert follower.step() == [(0, "a", 2)]
    # What it says later about that window is late, and counted.
    write(logs, "web-2", (4, "a", 100))
    assert follower.step() == []
    assert follower.run.loop.progress.late["sums"].records == 1


def test_new_servers_rotation_and_growth_are_followed(spark: SparkSession, tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    write(logs, "web-1", (1, "a", 1))
    follower = Follower(spark, tmp_path, " SLACK 5 SECONDS")
    assert follower.step() == []
    write(logs, "web-1", (2, "a", 2))
    (logs / "web-1" / "a.log").rename(logs / "web-1" / "a.log.1")  # no longer matches
    write(logs, "web-1", (3, "a", 4))
    write(logs, "web-2", (4, "a", 8))
    assert follower.step() == []
    write(logs, "web-1", (16, "b", 0))
    write(logs, "web-2", (17, "b", 0))
    assert follower.step() == [(0, "a", 15)]


def test_a_restart_at_any_point_gives_the_same_results(spark: SparkSession, tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    expected = []
    for second in range(0, 60, 3):
        write(logs, "web-1", (second, "a", second))
        Follower(spark, tmp_path).step()  # a new program every time
    for start in range(0, 50, 10):
        inside = [s for s in range(0, 60, 3) if start <= s < start + 10]
        expected.append((start, "a", sum(inside), len(inside)))
    assert stored(tmp_path) == expected


def test_killed_before_publishing_it_publishes_on_restart(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "logs", "web-1", (1, "a", 1), (11, "a", 2))

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Results, "publish", die)
        with pytest.raises(KeyboardInterrupt):
            Follower(spark, tmp_path).step()
    Follower(spark, tmp_path)
    assert stored(tmp_path) == [(0, "a", 1, 1)]
    Follower(spark, tmp_path)
    assert stored(tmp_path) == [(0, "a", 1, 1)]


def test_a_table_may_be_moved_away(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "logs", "web-1", (1, "a", 1), (11, "a", 2))
    Follower(spark, tmp_path).step()
    (tmp_path / "state" / "results" / "sums").rename(tmp_path / "old")
    write(tmp_path / "logs", "web-1", (21, "a", 4))
    follower = Follower(spark, tmp_path)
    assert "its table was taken away" in follower.run.loop.notes()[0]
    follower.step()
    assert stored(tmp_path) == [(10, "a", 2, 1)]


def test_checkpoints_are_rewritten_and_still_complete(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("muntin.store.journal.SAVES_PER_REWRITE", 3)
    monkeypatch.setattr("muntin.spark.policies.STEPS_AT_MOST", 2)
    follower = Follower(spark, tmp_path)
    for second in range(9):
        write(tmp_path / "logs", "web-1", (second, "a", 1))
        assert follower.step() == []
    write(tmp_path / "logs", "web-1", (10, "a", 1))
    restarted = Follower(spark, tmp_path)
    assert restarted.step() == [(0, "a", 9)]


def test_a_finite_run_says_what_it_did(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "logs", "web-1", (1, "a", 1), (11, "a", 2), (2, "b", 4))
    with (tmp_path / "logs" / "web-1" / "a.log").open("a") as log:
        log.write("not json\n")
    run = SparkRun(
        program(tmp_path / "logs"), spark.sparkContext, Settings(tmp_path / "state", follow=False)
    )
    steps: list[Turn] = list(run.turns())
    assert next(note for step in steps for note in step.notes).startswith(str(tmp_path))
    totals = run.summary.to_json()
    assert {k: totals[k] for k in ("records", "bad", "late", "windows")} == {
        "records": 3,
        "bad": 1,
        "late": 0,
        "windows": 2,
    }
    assert totals["bytes"] == (tmp_path / "logs" / "web-1" / "a.log").stat().st_size
    # A second run finds nothing new; what came since is added, and what is emitted is final.
    before = stored(tmp_path)
    again = SparkRun(
        program(tmp_path / "logs"), spark.sparkContext, Settings(tmp_path / "state", False)
    )
    list(again.turns())
    assert again.summary.records == 0
    write(tmp_path / "logs", "web-1", (3, "a", 1), (31, "a", 5))
    more = SparkRun(
        program(tmp_path / "logs"), spark.sparkContext, Settings(tmp_path / "state", False)
    )
    list(more.turns())
    assert stored(tmp_path) == [*before, (30, "a", 5, 1)]
    assert more.summary.late == {"sums": 1}
    again = SparkRun(
        program(tmp_path / "logs"), spark.sparkContext, Settings(tmp_path / "state", False)
    )
    list(again.turns())
    assert again.summary.late == {}


def test_states_that_cannot_be_used_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "logs", "web-1", (1, "a", 1))
    settings = Settings(tmp_path / "state", follow=True, seconds=0)
    running = SparkRun(program(tmp_path / "logs"), spark.sparkContext, settings).turns()
    next(running)
    with pytest.raises(mt.StateError, match=f"in use by process {os.getpid()}"):
        next(SparkRun(program(tmp_path / "logs"), spark.sparkContext, settings).turns())
    del running
    (tmp_path / "file").write_text("")
    blocked = Settings(tmp_path / "file" / "state", follow=False)
    with pytest.raises(mt.StateError, match="cannot be used"):
        next(SparkRun(program(tmp_path / "logs"), spark.sparkContext, blocked).turns())


def test_a_changed_job_starts_again_and_says_so(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "logs", "web-1", (1, "a", 1), (11, "a", 2))
    assert Follower(spark, tmp_path).step() == [(0, "a", 1)]
    changed = STREAM.replace("sum(n) AS n", "max(n) AS n")
    text = changed.format(folder=tmp_path / "logs", slack="")
    write(tmp_path / "logs", "web-1", (12, "a", 7), (21, "a", 3), (22, "a", 2), (31, "a", 2))
    settings = Settings(tmp_path / "state", follow=True, seconds=0)
    turns = list(SparkRun(mt.sql(text), spark.sparkContext, settings).turns())
    assert "job 'sums' has changed" in turns[0].notes[0]
    # Of the window from 10 on, one record was read by the old definition.
    assert stored(tmp_path) == [(0, "a", 1, 1), (20, "a", 3, 2)]


def test_a_job_that_is_added_changes_no_other(spark: SparkSession, tmp_path: Path) -> None:
    """Its windows are shorter, so that both share smaller panes than those that were saved."""
    write(tmp_path / "logs", "web-1", (1, "a", 1), (11, "a", 2), (13, "b", 4))
    assert Follower(spark, tmp_path).step() == [(0, "a", 1)]
    added = "CREATE JOB short AS SELECT k, sum(n) AS n, count(*) AS c FROM logs GROUP BY k "
    text = STREAM.format(folder=tmp_path / "logs", slack="") + added + "WINDOW 2 SECONDS;"
    write(tmp_path / "logs", "web-1", (13, "a", 8), (15, "a", 16), (17, "b", 32), (21, "a", 64))
    settings = Settings(tmp_path / "state", follow=True, seconds=0)
    (turn,) = SparkRun(mt.sql(text), spark.sparkContext, settings).turns()
    assert turn.notes == []
    assert stored(tmp_path) == [(0, "a", 1, 1), (10, "a", 26, 3), (10, "b", 36, 2)]
    rows = Results(tmp_path / "state").read("short").to_pylist()
    starts = [int(row["window_start"].timestamp()) - BASE for row in rows]
    assert list(zip(starts, (row["n"] for row in rows), strict=True)) == [(14, 16), (16, 32)]
    assert all(row["c2"]["area"] == 1 for row in rows)


def is_stored(folder: Path, row: tuple[int, str, int, int]) -> bool:
    return "sums" in Results(folder / "state").jobs() and row in stored(folder)


@pytest.mark.jvm
def test_a_killed_program_loses_and_repeats_nothing(tmp_path: Path) -> None:
    """A real `muntin run` is killed with SIGKILL again and again while logs grow."""
    logs = tmp_path / "logs"
    file = tmp_path / "jobs.sql"
    file.write_text(STREAM.format(folder=logs, slack=""))
    command = [sys.executable, "-m", "muntin", "run", str(file), "--state", str(tmp_path / "state")]
    second = 0
    for _ in range(3):
        process = subprocess.Popen([*command, "--master", "local[2]"])
        try:
            for _ in range(4):
                write(logs, "web-1", *((second + i, "a", 1) for i in range(10)))
                second += 10
                wanted = (second - 20, "a", 10, 10)
                if second > 10:
                    wait_for(partial(is_stored, tmp_path, wanted))
        finally:
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
    assert stored(tmp_path) == [(start, "a", 10, 10) for start in range(0, second - 10, 10)]


def test_keys_that_pause_are_not_counted_again_after_a_restart(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A batch without rows for a key group must not save that group's older rows once more."""
    keys = [f"key-{i}" for i in range(8)]
    write(tmp_path / "logs", "web-1", *((1, key, 1) for key in keys))
    follower = Follower(spark, tmp_path)
    follower.step()
    for key in keys:
        write(tmp_path / "logs", "web-1", (2, key, 10))
        follower.step()
        follower.step()  # and a batch with nothing at all
    write(tmp_path / "logs", "web-1", (11, "end", 0))
    assert sorted(Follower(spark, tmp_path).step()) == [(0, key, 11) for key in keys]


def test_windows_that_leave_without_new_records_are_saved_as_gone(
    spark: SparkSession, tmp_path: Path
) -> None:
    write(tmp_path / "logs", "web-1", (1, "a", 1), (12, "a", 2))
    write(tmp_path / "logs", "web-2", (3, "a", 4))
    follower = Follower(spark, tmp_path)
    assert follower.step() == []
    follower.now += 40  # both are idle now, so nothing more is awaited
    assert follower.step() == [(0, "a", 5), (10, "a", 2)]
    write(tmp_path / "logs", "web-1", (31, "a", 7), (41, "a", 0))
    write(tmp_path / "logs", "web-2", (41, "a", 0))
    assert Follower(spark, tmp_path).step() == [(30, "a", 7)]


def test_a_changed_job_never_gets_its_old_blocks_back(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "logs", "web-1", (1, "a", 1000))
    Follower(spark, tmp_path).step()
    changed = mt.sql(
        STREAM.replace("sum(n) AS n", "sum(n % 10) AS n").format(folder=tmp_path / "logs", slack="")
    )
    settings = Settings(tmp_path / "state", follow=True, seconds=0)
    for row in ((2, "a", 3), (12, "a", 3), (13, "a", 14), (21, "a", 0)):
        write(tmp_path / "logs", "web-1", row)
        list(SparkRun(changed, spark.sparkContext, settings).turns())
    assert stored(tmp_path) == [(10, "a", 7, 2)]


def test_a_restart_makes_nobody_idle(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "logs", "web-1", (1, "a", 1), (12, "a", 1))
    write(tmp_path / "logs", "web-2", (4, "a", 1))
    assert Follower(spark, tmp_path).step() == []
    assert Follower(spark, tmp_path).step() == []  # web-2 may still write before 10


def test_a_clock_ahead_does_not_close_the_future(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "logs", "web-1", (1, "a", 1))
    write(tmp_path / "logs", "web-2", (90_000, "a", 1), (90_020, "a", 1))
    follower = Follower(spark, tmp_path)
    follower.step()
    follower.now += 40  # all are silent
    assert follower.step() == [(0, "a", 1)]
    assert follower.run.loop.progress.emitted == {
        ("sums", "10000000/10000000/0"): (BASE + 10) * 1_000_000
    }


def test_errors_in_tasks_are_ours(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "logs" / "web-1").mkdir(parents=True)
    (tmp_path / "logs" / "web-1" / "a.log").write_text("nonsense\n")
    failing = program(tmp_path / "logs", " ON BAD ROW FAIL")
    with pytest.raises(mt.BadRowError, match="nonsense"):
        list(
            SparkRun(
                failing, spark.sparkContext, Settings(tmp_path / "state", follow=False)
            ).turns()
        )


def test_results_that_change_their_type_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "logs", "web-1", (1, "a", 1), (11, "a", 2))
    Follower(spark, tmp_path).step()
    other = STREAM.replace("sum(n) AS n", "avg(n) AS n").format(folder=tmp_path / "logs", slack="")
    run = SparkRun(
        mt.sql(other), spark.sparkContext, Settings(tmp_path / "state", follow=True, seconds=0)
    )
    with pytest.raises(mt.StateError, match="column 'n' of job 'sums' is now double"):
        next(run.turns())
    assert stored(tmp_path) == [(0, "a", 1, 1)]


def test_larger_windows_have_what_came_too_late_for_smaller_ones(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """web-2 is silent while the first ten seconds leave, and then speaks of them after all."""
    several = STREAM.replace("WINDOW 10 SECONDS", "WINDOW 10 SECONDS, 20 SECONDS, 40 SECONDS")
    monkeypatch.setitem(globals(), "STREAM", several)
    logs = tmp_path / "logs"
    write(logs, "web-1", (3, "a", 1))
    write(logs, "web-2", (2, "a", 2))
    follower = Follower(spark, tmp_path)
    follower.step()
    follower.now += 40
    write(logs, "web-1", (15, "a", 4))
    assert follower.step() == [(0, "a", 3)]
    write(logs, "web-2", (4, "a", 100))  # late for the first window alone
    write(logs, "web-1", (25, "a", 8))
    follower.step()
    write(logs, "web-2", (26, "a", 16))
    assert follower.step() == [(10, "a", 4), (0, "a", 107)]
    write(logs, "web-1", (45, "a", 32))
    write(logs, "web-2", (45, "a", 64))
    left = follower.step()
    assert (0, "a", 131) in left


@pytest.mark.parametrize("writing", [False, True])
def test_a_state_folder_that_is_removed_ends_the_run_at_once(
    spark: SparkSession, tmp_path: Path, writing: bool
) -> None:
    logs, state = tmp_path / "logs", tmp_path / "state"
    write(logs, "web-1", (1, "a", 1), (11, "a", 2))
    run = SparkRun(program(logs), spark.sparkContext, Settings(state, follow=True))
    turns = run.turns()
    next(turns)
    shutil.rmtree(state)
    if writing:
        write(logs, "web-1", (21, "a", 4))
    with pytest.raises(mt.StateError, match="was removed or replaced while this run used it"):
        next(turns)
    assert not state.exists()


@pytest.mark.parametrize("follow", [False, True])
def test_a_stream_that_fails_takes_nothing_from_what_others_have_committed(
    spark: SparkSession, tmp_path: Path, follow: bool
) -> None:
    (tmp_path / "good.jsonl").write_text('{"t": 0}\n{"t": 60}\n')
    (tmp_path / "damaged.jsonl").write_text('{"t": 0}\nnonsense\n')
    stream = "CREATE STREAM {0} (t BIGINT) FROM '{1}/{0}.jsonl' FORMAT json TIMESTAMP t{2};"
    job = "CREATE JOB of_{0} AS SELECT count(*) AS c FROM {0} WINDOW 1 MINUTE;"
    text = "".join(
        stream.format(name, tmp_path, fail) + job.format(name)
        for name, fail in (("good", ""), ("damaged", " ON BAD ROW FAIL"))
    )
    settings = Settings(tmp_path / "state", follow, seconds=30)
    told: list[mt.Result] = []

    def listen() -> None:
        for turn in SparkRun(mt.sql(text), spark.sparkContext, settings).turns():
            told.extend(turn.emission.results())

    with pytest.raises(mt.InputError, match=r"damaged.jsonl, line 2"):
        listen()
    stored = mt.results("of_good", tmp_path / "state").num_rows
    assert len(told) == stored == (1 if follow else 2)
    # The next start goes on behind what was told.
    (tmp_path / "damaged.jsonl").unlink()
    with (tmp_path / "good.jsonl").open("a") as file:
        file.write('{"t": 130}\n')
    program_ = mt.sql(text.split("CREATE STREAM damaged")[0])
    again = SparkRun(program_, spark.sparkContext, Settings(tmp_path / "state", False)).turns()
    starts = [r.start // 60_000_000 for turn in again for r in turn.emission.results()]
    assert starts == ([1, 2] if follow else [2])


def turn_once(spark: SparkSession, folder: Path, text: str) -> list[str]:
    """A short run that follows the logs; what it says."""
    settings = Settings(folder / "state", follow=True, seconds=0)
    turns = list(SparkRun(mt.sql(text), spark.sparkContext, settings).turns())
    return [note for turn in turns for note in turn.notes]


def test_a_state_that_was_lost_repeats_no_window(spark: SparkSession, tmp_path: Path) -> None:
    logs, text = tmp_path / "logs", STREAM.format(folder=tmp_path / "logs", slack="")
    write(logs, "web-1", (1, "a", 1), (11, "a", 2), (21, "a", 4))
    assert turn_once(spark, tmp_path, text) == []
    before = stored(tmp_path)
    assert before == [(0, "a", 1, 1), (10, "a", 2, 1)]
    shutil.rmtree(tmp_path / "state" / "streams")
    write(logs, "web-1", (31, "a", 8))
    assert "stream 'logs' has no state, but results" in turn_once(spark, tmp_path, text)[0]
    assert stored(tmp_path) == [*before, (20, "a", 4, 1)]
    assert len(mt.results("sums", tmp_path / "state")) == 3


def test_a_stream_that_was_renamed_repeats_no_window(spark: SparkSession, tmp_path: Path) -> None:
    logs, text = tmp_path / "logs", STREAM.format(folder=tmp_path / "logs", slack="")
    write(logs, "web-1", (1, "a", 1), (11, "a", 2), (12, "a", 4))
    assert turn_once(spark, tmp_path, text) == []
    write(logs, "web-1", (13, "a", 8), (21, "a", 4))
    (note,) = turn_once(spark, tmp_path, text.replace(" logs", " access"))
    assert note.startswith("stream 'access' goes on where stream 'logs' stood")
    assert stored(tmp_path) == [(0, "a", 1, 1), (10, "a", 14, 3)]
