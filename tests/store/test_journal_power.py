"""A power cut leaves a whole commit or none, whatever of the rest has reached the disk."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.driver import BASE, Driver
from muntin.store import delta, journal
from muntin.store.results import Results
from tests.store import power

BATCHES = 5  # with files begun anew, and tables merged, once
_ROOT = Path(__file__).parents[2]


def stored(state: Path) -> list[int]:
    """The windows of one second that are stored, by their end."""
    if "job_0" not in Results(state).jobs():
        return []
    rows = Results(state).read("job_0").to_pylist()
    return [int(row["window_end"].timestamp()) - BASE for row in rows]


def program(state: Path, first: int, last: int) -> None:
    """Commits batches, with files begun anew and merged as often as in a long run."""
    journal.SAVES_PER_REWRITE = 1  # twice that where windows leave with every batch
    delta._SIZES = ((1 << 20, 3), (16 << 20, 64))
    driver = Driver(state, 2, 1, 1, rows=True)
    for second in range(first, last):
        driver.batch(second)
        os.write(1, f"committed {second}\n".encode())
        driver.tidy()


def check(state: Path, committed: int) -> None:
    """The state goes on from a batch that is not before the last one that was committed."""
    driver = Driver(state, 2, 1, 1, rows=True)
    reached = [source.reached.values() for source in driver.progress.sources.values()]
    second = max((max(values) for values in reached), default=BASE * 1_000_000) // 1_000_000 - BASE
    assert second >= committed
    assert stored(state) == list(range(1, second + 1))
    driver.batch(second)
    assert stored(state) == list(range(1, second + 2))


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace shows what reaches the disk")
def test_a_power_cut_at_any_moment(tmp_path: Path) -> None:
    traced, trace = tmp_path / "traced", tmp_path / "trace"
    traced.mkdir()
    code = "from tests.store.test_journal_power import *; "
    code += f"program(Path({str(traced)!r}), 0, {BATCHES})"
    command = [*power.command(trace), sys.executable, "-c", code]
    subprocess.run(command, check=True, cwd=_ROOT, env=os.environ | {"PYTHONPATH": str(_ROOT)})
    disk, committed, seen, moment = power.Disk(traced), 0, set(), 0
    for call in power.calls(trace):
        if call.name == "write" and call.texts[0].startswith(b"committed "):
            committed = int(call.texts[0].split()[1]) + 1
        elif disk.see(call) and not call.name.startswith(("write", "pwrite")):
            moment += 1  # between two writes, nothing more is sure to be there
            for loss in ("everything", "contents", "zeros"):
                state = tmp_path / f"{moment}-{loss}"
                disk.root.restore(state, loss)
                found = hashlib.sha256(repr((committed, contents(state))).encode()).digest()
                if found not in seen:
                    seen.add(found)
                    try:
                        check(state, committed)
                    except Exception as error:
                        raise AssertionError(f"{loss} lost after {call}, {moment}") from error
                shutil.rmtree(state)
    assert b'"remove"' in b"".join(path.read_bytes() for path in traced.rglob("*.json"))
    assert stored(traced) == list(range(1, BATCHES + 1))


def contents(folder: Path) -> list[tuple[str, bytes]]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return [(str(path.relative_to(folder)), path.read_bytes()) for path in files]
