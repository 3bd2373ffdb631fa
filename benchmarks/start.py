"""From the command to the first result on small local logs, and what the time goes into.

    python -m benchmarks.start                  # five runs of this code
    python -m benchmarks.start --against DIR    # in turns with the code of another folder

Each run is a process of its own, `muntin run FILE --once`. The first result is there when its
table has taken it in, as another process sees it. Seconds are medians; CPU is that of all
processes of the run. What else the machine does shows as its load.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).parents[1]
LOG = """{"ts": "2026-03-01T12:00:03Z", "path": "/cart", "status": 200, "ms": 12.5}
{"ts": "2026-03-01T12:00:41Z", "path": "/item", "status": 200, "ms": 3.1}
{"ts": "2026-03-01T12:01:05Z", "path": "/cart", "status": 500, "ms": 230.0}
"""
SQL = """
CREATE STREAM access FROM 'logs/{source}/*.jsonl' FORMAT json TIMESTAMP ts;
CREATE JOB errors AS
SELECT path, count(*) AS requests, count(*) FILTER (WHERE status >= 500) AS errors
FROM access GROUP BY path ORDER BY errors DESC WINDOW 1 MINUTE;
"""
# What a run does one after the other, by the function whose end is the end of the part.
PARTS = {
    "Python, the command line, Java and workers on their way": "muntin.spark.gateway:start",
    "modules": "muntin.api:seconds_of",
    "the program read and planned": "muntin.language.program:load",
    "Java answers": "muntin.spark.gateway:Jvm.connect",
    "Spark's context": "muntin.spark.context:_new_context",
    "workers and classes warm": "muntin.spark.context:_warm",
    "the first batch, committed": "muntin.store.journal:Journal.commit",
}


@dataclass(frozen=True)
class Run:
    """Seconds from the command to the first result and to the end, and of CPU."""

    first: float
    end: float
    cpu: float


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--against", type=Path)
    given = parser.parse_args()
    codes = [ROOT, *([given.against.resolve()] if given.against else [])]
    with tempfile.TemporaryDirectory() as name:
        folder = written(Path(name))
        run_once(folder, ROOT)  # compiles modules, and makes the archive of classes
        _await_archive()
        print(f"load {os.getloadavg()[0]:.1f} before")
        runs: dict[Path, list[Run]] = {code: [] for code in codes}
        for _ in range(given.runs):
            for code in codes:
                runs[code].append(run_once(folder, code))
        for code, found in runs.items():
            first, end, cpu = (
                median(getattr(r, f) for r in found) for f in ("first", "end", "cpu")
            )
            least = min(r.first for r in found)
            print(f"{code}: first result {first:.2f} s (least {least:.2f}), ", end="")
            print(f"end {end:.2f} s, CPU {cpu:.2f} s")
        print(f"load {os.getloadavg()[0]:.1f} after")
        _print_parts(folder, given.runs)


def written(folder: Path) -> Path:
    """The logs of two servers and a question, in a folder."""
    for server in ("web-1", "web-2"):
        log = folder / "logs" / server / "access.jsonl"
        log.parent.mkdir(parents=True)
        log.write_text(LOG)
    (folder / "errors.sql").write_text(SQL)
    return folder


def run_once(folder: Path, code: Path, *python: str) -> Run:
    """One command, watched from outside."""
    state = Path(tempfile.mkdtemp(dir=folder))
    results = state / "results" / "errors" / "_delta_log"
    started = time.time()
    command = [sys.executable, *(python or ("-m", "muntin")), "run", "errors.sql", "--once"]
    process = subprocess.Popen(
        [*command, "--state", str(state)],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(code), "STARTED": str(started)},
        stderr=subprocess.DEVNULL,
    )
    first = 0.0
    while not os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
        if not first and len(list(results.glob("*.json"))) > 1:  # the first one has no rows
            first = time.time() - started
        time.sleep(0.005)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert (process.returncode, bool(first)) == (0, True)
    return Run(first, time.time() - started, used.ru_utime + used.ru_stime)


def _await_archive() -> None:
    from muntin.spark.archive import Archive
    from muntin.spark.java import Java

    java = Java.plain("local", os.environ)
    archive = Archive.of(java) if java is not None else None
    if archive is not None:
        while archive.path.with_suffix(".making").exists() and not archive.path.exists():
            time.sleep(1)


def _print_parts(folder: Path, runs: int) -> None:
    found: dict[str, list[float]] = {}
    for _ in range(runs):
        run_once(folder, ROOT, "-c", "from benchmarks.start import traced; traced()")
        for line in (folder / "parts").read_text().splitlines():
            name, seconds = line.rsplit(" ", 1)
            found.setdefault(name, []).append(float(seconds))
    before = 0.0
    for name, times in found.items():
        at = median(times)
        print(f"{at:6.2f} s  {at - before:+.2f}  {name}")
        before = at


def traced() -> None:
    """The command line in this process, with the times at which parts end written to a file."""
    from muntin.cli import app

    started, folder = float(os.environ["STARTED"]), Path.cwd()
    ends: dict[str, float] = {}
    sys.meta_path.insert(0, Watch(lambda part: ends.setdefault(part, time.time() - started)))
    try:
        app()
    finally:
        ends["the end"] = time.time() - started
        (folder / "parts").write_text("".join(f"{name} {at}\n" for name, at in ends.items()))


class Watch:
    """Finds modules as the others do, and has the ends of parts told when they are loaded."""

    def __init__(self, tell: Callable[[str], Any]) -> None:
        self._tell = tell

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        parts = {part: place for part, place in PARTS.items() if place.startswith(f"{name}:")}
        if not parts:
            return None
        others = sys.meta_path[sys.meta_path.index(self) + 1 :]
        spec: Any = next(s for f in others if (s := f.find_spec(name, path, target)) is not None)
        load = spec.loader.exec_module

        def exec_module(module: Any) -> None:
            load(module)
            for part, place in parts.items():
                self._wrap(module, place.split(":")[1].split("."), part)

        spec.loader.exec_module = exec_module
        return spec

    def _wrap(self, owner: Any, path: list[str], part: str) -> None:
        for name in path[:-1]:
            owner = getattr(owner, name)
        inner = getattr(owner, path[-1])

        def wrapped(*args: Any, **options: Any) -> Any:
            try:
                return inner(*args, **options)
            finally:
                self._tell(part)

        setattr(owner, path[-1], wrapped)


if __name__ == "__main__":
    main()
