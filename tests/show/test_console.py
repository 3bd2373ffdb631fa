"""A run as the terminal's user has it: stopped early, refused early, told at the end."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import muntin as mt
from muntin.errors import StateError
from muntin.fidelity.score import Board, Reason
from muntin.model.counts import Counts
from muntin.run.loop import Turn
from muntin.run.results import Emission, no_windows
from muntin.show.console import _View, tell
from muntin.show.terminal import console
from muntin.spark.runner import Summary
from muntin.store.hold import locked, require_free
from tests.waiting import PATIENCE, wait_for

ROWS = '{"ts": "2026-03-01T12:00:03Z", "n": 1}\n{"ts": "2026-03-01T12:01:03Z", "n": 2}\n'
SQL = """
CREATE STREAM s FROM 'logs/{source}.jsonl' FORMAT json TIMESTAMP ts;
CREATE JOB sums AS SELECT sum(n) AS n FROM s WINDOW 1 MINUTE;
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "web.jsonl").write_text(ROWS)
    (tmp_path / "jobs.sql").write_text(SQL)
    return tmp_path


def start(folder: Path, *args: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "muntin", *args],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2]), "TMPDIR": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def children(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for task in tasks for child in task.read_text().split()]


def wait_for_child(process: subprocess.Popen[str]) -> int:
    wait_for(lambda: children(process.pid) or process.poll() is not None)
    assert process.poll() is None
    return children(process.pid)[0]


@pytest.mark.jvm
@pytest.mark.parametrize("loaded", [False, True])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_start_leaves_nothing_behind(
    folder: Path, loaded: bool, number: signal.Signals
) -> None:
    """As soon as there is a JVM, or when all is loaded and only Spark is awaited."""
    process = start(folder, "run", "jobs.sql", "--once")
    jvm = wait_for_child(process)
    if loaded:
        wait_for((folder / ".muntin").exists)
    process.send_signal(number)
    out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out, err.strip()) == (130, "", "stopped")
    assert not Path(f"/proc/{jvm}").exists()
    left = {path.name for path in folder.iterdir()}
    assert left - {".muntin"} == {"jobs.sql", "logs"}


@pytest.mark.jvm
def test_a_wrong_file_is_told_and_leaves_nothing_behind(folder: Path) -> None:
    (folder / "jobs.sql").write_text(SQL.replace("sum(n)", "sum(m)"))
    process = start(folder, "run", "jobs.sql", "--once")
    jvm = wait_for_child(process)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (1, "")
    assert err.startswith("error:")
    assert "Spark" not in err
    assert not Path(f"/proc/{jvm}").exists()
    assert {path.name for path in folder.iterdir()} == {"jobs.sql", "logs"}


@pytest.mark.jvm
@pytest.mark.parametrize("more", [(), ("--local-dir", "scratch")])
def test_a_run_that_fails_leaves_no_files_of_spark(folder: Path, more: tuple[str, ...]) -> None:
    with (folder / "logs" / "web.jsonl").open("a") as log:
        log.write("no JSON\n")
    (folder / "jobs.sql").write_text(SQL.replace("TIMESTAMP ts", "TIMESTAMP ts ON BAD ROW FAIL"))
    process = start(folder, "run", "jobs.sql", "--once", "--state", "st", *more)
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1
    assert err.startswith("error:")
    left = {path.name for path in folder.iterdir()}
    assert left - {"scratch"} == {"jobs.sql", "logs", "st"}
    assert not more or list((folder / "scratch").iterdir()) == []


@pytest.mark.jvm
def test_a_run_ends_with_its_jvm_and_says_what_to_do_next(folder: Path) -> None:
    process = start(folder, "run", "jobs.sql", "--once", "--state", "st", "--master", "local[1]")
    jvm = wait_for_child(process)
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    assert not Path(f"/proc/{jvm}").exists()
    assert "2 records" in err
    assert "MB/s" not in err
    assert "muntin results sums --state st" in err
    assert sorted(path.name for path in folder.iterdir()) == ["jobs.sql", "logs", "st"]
    again = start(folder, "run", "jobs.sql", "--once", "--state", "st", "--master", "local[1]")
    assert "nothing new since the last run" in again.communicate(timeout=PATIENCE)[1]


@pytest.mark.jvm
def test_spark_says_itself_what_it_wants(folder: Path) -> None:
    process = start(folder, "run", "jobs.sql", "--once", "--master", "foo://a")
    _, err = process.communicate(timeout=PATIENCE)
    message = "error: Spark did not start on foo://a: Master must either be yarn or start with"
    assert err.startswith(message)
    assert len(err.strip().splitlines()) == 1


def test_options_of_python_are_refused_as_ours(folder: Path) -> None:
    program = mt.sql(SQL.replace("logs/", f"{folder}/logs/"))
    for idle in ("x", "0s", "3 parsecs"):
        with pytest.raises(mt.MuntinError, match=r"^idle"):
            next(mt.run_on_spark(program, folder / "state", idle=idle))


@pytest.mark.jvm
def test_records_that_wait_for_their_window_are_told(folder: Path) -> None:
    process = start(folder, "run", "jobs.sql", "--for", "1s", "--idle", "60s")
    _, err = process.communicate(timeout=PATIENCE)
    assert "1 record of job 'sums' waits in 1 open window" in err


def test_all_jobs_with_open_windows_are_told() -> None:
    out = io.StringIO()
    summary = Summary(records=9, windows=1, open={"sums": (1, 1), "paths": (1200, 3)})
    tell(summary, console(out))
    assert out.getvalue().splitlines()[1:] == [
        "1 record of job 'sums' waits in 1 open window",
        "1,200 records of job 'paths' wait in 3 open windows",
    ]


def test_a_state_folder_is_refused_before_spark_starts(folder: Path) -> None:
    state = folder / "state"
    with locked(state), pytest.raises(StateError, match=f"is in use by process {os.getpid()}"):
        require_free(state)
    with locked(state):
        process = start(folder, "run", "jobs.sql", "--once", "--state", str(state))
        _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1
    assert f"in use by process {os.getpid()}" in err
    assert "Spark" not in err


def test_windows_that_were_all_shed_are_told() -> None:
    stream = "CREATE STREAM s (t BIGINT) FROM 'x' FORMAT json TIMESTAMP t;"
    program = mt.sql(f"{stream} CREATE JOB j AS SELECT count(*) AS c FROM s WINDOW 1 SECOND;")
    shed = Board().score(0, 1, Reason.DEADLINE).shed()
    windows = replace(no_windows(program.jobs["j"]), scores={(0, 5): shed, (0, 6): shed})
    said = io.StringIO()
    _View(console(said), None).seen(Turn("s", Emission((windows,)), 0, 0, 0, []))
    assert said.getvalue() == "j: 2 windows shed\n"


def test_changes_of_open_windows_are_no_lines_of_their_own() -> None:
    """That there are some is told once a job; a window has its line when it leaves."""
    stream = "CREATE STREAM s (t BIGINT) FROM 'x' FORMAT json TIMESTAMP t;"
    text = f"{stream} CREATE JOB j AS SELECT count(*) AS c FROM s WINDOW 1 SECOND EMIT CHANGES;"
    empty = no_windows(mt.sql(text).jobs["j"])
    end = 1_772_366_400  # in panes of a second
    said = io.StringIO()
    view = _View(console(said), None)
    for reason, revision in ((Reason.OPEN, 0), (Reason.OPEN, 1), (Reason.COMPLETE, 2)):
        c2 = replace(Board().score(0, 1, reason), reason=reason)
        kind = {(0, end): Counts(1)}
        windows = replace(
            empty, counts=kind, scores={(0, end): c2}, revisions={(0, end): revision}, at=float(end)
        )
        view.seen(Turn("s", Emission((windows,)), 0, 0, 0, []))
    first, second = said.getvalue().splitlines()
    assert first == "j: open windows change; `muntin results j` has them as they are"
    assert second.startswith("j: 2026-03-01 11:59:59 – 12:00:00, revision 2, 0 rows, lag 0.0 s")
