"""A run that dies is started again; one that the user has to mend, or that keeps dying, is not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from threading import Timer

import pytest

from muntin.errors import InputError, LostError, SparkError, StartError, StateError
from muntin.store.results import Results
from muntin.supervision import DIED, Supervised, Supervisor
from tests.show.test_console import ROWS, SQL, children, start
from tests.waiting import PATIENCE, wait_for

# Dies as often as it is told to, and writes down that it was there.
DYING = """
import os, signal, sys
from pathlib import Path
from threading import Timer
there = Path(sys.argv[1]); times = len(there.read_text()) if there.exists() else 0
there.write_text("x" * (times + 1))
if times < int(sys.argv[2]):
    os.kill(os.getpid(), signal.SIGKILL) if sys.argv[3] == "killed" else sys.exit(75)
sys.exit(int(sys.argv[4]))
"""
WAITING = """
import signal, sys, time
from pathlib import Path
from threading import Timer
def stop(number, _):
    Path(sys.argv[2]).write_text(signal.Signals(number).name)
    sys.exit(7)
signal.signal(signal.SIGINT, stop); signal.signal(signal.SIGTERM, stop)
Path(sys.argv[1]).touch()
time.sleep(300)
"""
SUPERVISE = """
import sys
from muntin.supervision import Supervisor
sys.exit(Supervisor(sys.argv[1:], print).run())
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "web.jsonl").write_text(ROWS)
    (tmp_path / "jobs.sql").write_text(SQL)
    return tmp_path


def dying(folder: Path, times: int, how: str, code: int = 0) -> list[str]:
    return [sys.executable, "-c", DYING, str(folder / "there"), str(times), how, str(code)]


@pytest.mark.parametrize("how", ["killed", "failed"])
def test_a_run_that_dies_is_started_again(tmp_path: Path, how: str) -> None:
    told: list[str] = []
    assert Supervisor(dying(tmp_path, 2, how), told.append, delays=(0, 0, 0)).run() == 0
    assert (tmp_path / "there").read_text() == "xxx"
    word = "was killed by SIGKILL" if how == "killed" else "has failed"
    assert told == [f"the run {word}; it is started again in 0 s"] * 2


@pytest.mark.parametrize(("how", "code"), [("killed", 137), ("failed", 1)])
def test_one_that_keeps_dying_is_left(tmp_path: Path, how: str, code: int) -> None:
    told: list[str] = []
    assert Supervisor(dying(tmp_path, 99, how), told.append, delays=(0, 0)).run() == code
    assert (tmp_path / "there").read_text() == "xxx"
    assert told[-1].endswith("3 times in a row, and is not started again")


@pytest.mark.parametrize("code", [0, 1, 2, 130])
def test_other_exit_codes_are_kept(tmp_path: Path, code: int) -> None:
    assert Supervisor(dying(tmp_path, 0, "", code), pytest.fail).run() == code
    assert (tmp_path / "there").read_text() == "x"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_end_both(tmp_path: Path, number: signal.Signals) -> None:
    ready, stopped = tmp_path / "ready", tmp_path / "stopped"
    child = [sys.executable, "-c", WAITING, str(ready), str(stopped)]
    process = subprocess.Popen([sys.executable, "-c", SUPERVISE, *child])
    wait_for(ready.exists)
    process.send_signal(number)
    assert process.wait(PATIENCE) == 7
    assert stopped.read_text() == number.name


def test_the_run_ends_when_its_time_is_over(tmp_path: Path) -> None:
    ready, stopped = tmp_path / "ready", tmp_path / "stopped"
    child = [sys.executable, "-c", WAITING, str(ready), str(stopped)]
    code = Supervisor(child, pytest.fail, seconds=3).run()
    assert code == 7 if stopped.exists() else code == 143  # the time was over before it was ready


def test_a_run_ends_with_its_supervisor() -> None:
    ours, theirs = os.pipe()
    watching = (
        "import time; from muntin.supervision import Supervised; Supervised().watch(); "
        "print('ready', flush=True); time.sleep(300)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", watching],
        env=os.environ | {"MUNTIN_SUPERVISED": f"{ours} 0"},
        pass_fds=[ours],
        stdout=subprocess.PIPE,
    )
    os.close(ours)
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        os.close(theirs)
        assert process.wait(PATIENCE) == -signal.SIGTERM


def test_what_is_tried_again() -> None:
    first, second = ({"MUNTIN_SUPERVISED": f"9 {starts}"} for starts in (0, 1))
    for error, codes in (
        (StateError("in use"), (1, 1)),
        (InputError("no file"), (1, 1)),
        (StartError("no Java"), (1, DIED)),  # the user's to mend, unless it was there before
        (SparkError("Spark has ended"), (DIED, DIED)),
        (LostError("an executor", "look"), (DIED, DIED)),
        (ZeroDivisionError(), (DIED, DIED)),
    ):
        assert (Supervised(first).code_of(error), Supervised(second).code_of(error)) == codes
        assert Supervised({}).code_of(error) == 1


def grandchild(process: subprocess.Popen[str], before: int | None = None) -> int:
    """The process of the run, another one than before."""

    def found() -> int:
        assert process.poll() is None
        return next((pid for pid in children(process.pid) if pid != before), 0)

    return wait_for(found)


def javas(pid: int) -> list[int]:
    """The Java processes of a process, as far as the system lists them: it may miss some."""
    return [p for p in children(pid) if "java" in Path(f"/proc/{p}/cmdline").read_text()]


@pytest.mark.jvm
def test_a_real_run_survives_its_process_and_its_jvm(folder: Path) -> None:
    process = start(
        folder, "run", "jobs.sql", "--supervise", "--master", "local[1]", "--state", "st"
    )
    assert process.stderr is not None
    lines = iter(process.stderr.readline, "")
    limit = Timer(4 * PATIENCE, process.kill)  # what is not said would be waited for
    limit.daemon = True
    limit.start()

    def read_to(words: str) -> None:
        assert any(words in line for line in lines)

    read_to("following the logs")
    driver = grandchild(process)
    os.kill(driver, signal.SIGKILL)
    read_to("the run was killed by SIGKILL; it is started again in ")
    read_to("following the logs")
    driver = grandchild(process, driver)
    for pid in wait_for(lambda: javas(driver)):  # one of them may be making an archive of classes
        os.kill(pid, signal.SIGKILL)
    with (folder / "logs" / "web.jsonl").open("a") as log:
        log.write('{"ts": "2026-03-01T12:02:03Z", "n": 4}\n')
    read_to("error: the Java process of Spark was killed or has crashed")
    read_to("the run has failed; it is started again in ")
    results = Results(folder / "st")
    wait_for(lambda: results.has("sums") and 2 in results.read("sums")["n"].to_pylist())
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=PATIENCE)
    limit.cancel()
    assert process.returncode == 0
    assert "results are in st" in err


@pytest.mark.jvm
def test_a_wrong_query_is_not_tried_again(folder: Path) -> None:
    (folder / "jobs.sql").write_text("CREATE JOB x AS SELECT 1")
    process = start(folder, "run", "jobs.sql", "--supervise")
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1
    assert err.count("error:") == 1
    assert "started again" not in err
