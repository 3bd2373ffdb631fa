"""Ctrl-C while something is loaded: one word, whatever was being loaded."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import PATIENCE

# Interrupts its process when a module is imported, as a user would who is fast enough.
INTERRUPTED = """
import os, runpy, signal, sys
left = [{module!r}]
class Interrupt:
    def find_spec(self, name, *_):
        if name in left:
            left.clear()
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupt())
sys.argv = {argv!r}
runpy.run_module("muntin", run_name="__main__")
"""


def interrupted(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    script = folder / "interrupted.py"
    script.write_text(code)
    root = str(Path(__file__).parents[1])
    return subprocess.run(
        [sys.executable, str(script)],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": root},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )


@pytest.mark.parametrize(
    ("module", "command"),
    [
        ("muntin.cli", ["--version"]),
        ("muntin.lean", ["--version"]),
        ("typer", ["--version"]),
        ("rich.console", ["--version"]),
        ("sqlglot", ["try", "none.sql"]),
        ("duckdb", ["explain", "none.sql"]),
        ("pyarrow", ["results", "none"]),
        ("deltalake", ["status"]),
        ("muntin.spark.gateway", ["run", "none.sql"]),
    ],
)
def test_an_interrupted_import_says_one_word(
    module: str, command: list[str], tmp_path: Path
) -> None:
    done = interrupted(INTERRUPTED.format(module=module, argv=["muntin", *command]), tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "stopped\n")


# Interrupts its process when a function is called for the first time.
CALLED = """
import os, runpy, signal, sys
def interrupt(frame, event, _):
    name = frame.f_globals.get("__name__"), frame.f_code.co_name
    if event == "call" and name == {called!r}:
        sys.setprofile(None)
        os.kill(os.getpid(), signal.SIGINT)
sys.setprofile(interrupt)
sys.argv = {argv!r}
runpy.run_module({module!r}, run_name="__main__")
"""


@pytest.mark.parametrize(
    ("called", "command"),
    [
        (("muntin.cli", "main"), ["status"]),
        (("muntin.show.terminal", "keep_help_plain"), ["status"]),
        (("typer.main", "get_command"), ["run", "none.sql"]),
        (("muntin.cli", "invoke"), ["run", "none.sql"]),
        (("muntin.cli", "run"), ["run", "none.sql"]),
        (("muntin.spark.master", "require_known"), ["run", "none.sql"]),
        (("muntin.store.status", "status"), ["status"]),
        (("threading", "_shutdown"), ["--version"]),
    ],
)
def test_between_two_imports_nothing_more_is_said(
    called: tuple[str, str], command: list[str], tmp_path: Path
) -> None:
    code = CALLED.format(called=called, argv=["muntin", *command], module="muntin")
    done = interrupted(code, tmp_path)
    assert (done.returncode, done.stderr) == (130, "stopped\n")


@pytest.mark.parametrize("module", ["muntin.agent", "muntin.relay"])
@pytest.mark.parametrize(
    "called", [("muntin.lean", "<module>"), ("muntin.wire.process", "door_of")]
)
def test_agents_and_relays_say_no_more(
    module: str, called: tuple[str, str], tmp_path: Path
) -> None:
    options = {"allow_code": False, "listen": "", "keys": None, "name": "", "mutual": False}
    argv = ["muntin", json.dumps(options | {"from": ""})]
    done = interrupted(CALLED.format(called=called, argv=argv, module=module), tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "stopped\n")


def test_a_signal_that_meets_whoever_waits_for_it_ends_the_wait() -> None:
    """With an Event, whose lock is held now and then when the signal comes, this does not end."""
    code = """
import signal, sys
from muntin.loading import Stop
for number in range(5000):
    stop = Stop()
    signal.signal(signal.SIGALRM, lambda *_: stop.set())
    signal.setitimer(signal.ITIMER_REAL, 2e-5 + number % 50 * 4e-6)
    while not stop.wait(0):
        pass
    assert stop.is_set() and stop.wait()
print("over")
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE
    )
    assert (done.stdout, done.stderr) == ("over\n", "")
