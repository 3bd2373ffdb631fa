"""Ctrl-C while something is loaded: one word, whatever was being loaded."""

from __future__ import annotations

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


@pytest.mark.parametrize(
    ("module", "command"),
    [
        ("muntin.cli", ["--version"]),
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
    script = tmp_path / "interrupted.py"
    script.write_text(INTERRUPTED.format(module=module, argv=["muntin", *command]))
    root = str(Path(__file__).parents[1])
    done = subprocess.run(
        [sys.executable, str(script)],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": root},
        capture_output=True,
        text=True,
    )
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
