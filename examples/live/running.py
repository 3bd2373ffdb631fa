"""What both examples need: a program that runs beside them, on logs that they write."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import muntin as mt

PATIENCE = 180.0  # seconds
T = TypeVar("T")


def write(folder: Path, records: Iterable[tuple[str, Mapping[str, Any]]]) -> None:
    """Adds records to the logs of their servers."""
    logs: dict[str, list[str]] = {}
    for server, record in records:
        logs.setdefault(server, []).append(json.dumps(record) + "\n")
    (folder / "logs").mkdir(exist_ok=True)
    for server, lines in logs.items():
        with (folder / "logs" / f"{server}.jsonl").open("a") as log:
            log.writelines(lines)


@contextmanager
def running(sql: Path, folder: Path) -> Iterator[Any]:
    """Runs a file of SQL over the logs in a folder; gives what asks it and orders it about."""
    command = [sys.executable, "-m", "muntin", "run", str(sql), "--idle", "1h"]
    with (folder / "run.txt").open("w") as told:
        program = subprocess.Popen(command, cwd=folder, stdout=told, stderr=told)
    try:
        yield awaited(lambda: connected(folder), program)
    finally:
        program.terminate()
        program.wait()


def connected(folder: Path) -> Any:
    """A client of the program; None as long as it does not answer."""
    try:
        app = mt.connect(folder / ".muntin")
        return app if app.jobs() else None
    except mt.MuntinError:
        return None


def awaited(ask: Callable[[], T | None], program: subprocess.Popen[bytes] | None = None) -> T:
    """What a question is answered with, once there is an answer."""
    until = time.monotonic() + PATIENCE
    while (answer := ask()) is None:
        if time.monotonic() > until or (program is not None and program.poll() is not None):
            raise SystemExit("the program does not answer; its words are in run.txt")
        time.sleep(0.2)
    return answer


def answered(app: Any, job: str, end: int) -> Any:
    """The final result of the window that ends at a time, once it is there."""

    def ask() -> Any:
        done = (each for each in app.results(job) if each.end.timestamp() == end)
        return next((each for each in done if each.c2["reason"] != "open"), None)

    return awaited(ask)


def show(title: str, rows: Iterable[Mapping[str, Any]]) -> None:
    print(f"\n{title}")
    for row in rows:
        print("  " + ", ".join(f"{name} {value}" for name, value in row.items()))


def shell(folder: Path, text: str) -> str:
    """What `muntin sql` answers, from a shell beside the program."""
    command = [sys.executable, "-m", "muntin", "sql", text]
    asked = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    return asked.stdout
