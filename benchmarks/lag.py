"""Where the time goes between the end of a window and its rows in the table.

    python -m benchmarks.lag                             # 100,000 records/s, one job, half a minute
    python -m benchmarks.lag --rate 20000 --jobs 20 --seconds 60

Follows the logs of the servers of `benchmarks.load` on `local[2]`, in this process, and takes the
time of every part of a turn. A lag is from the end of a window to when its rows can be read in the
table, so it is longer than what `emitted_at` tells, by the commit. The servers write each 50 ms on
the same cores, and a window is over for who reads it once all of them have written behind its end.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np

from benchmarks.load import set_rate, sql_of, writing
from muntin.fidelity.score import Reason
from muntin.kernel.reading import costs_of
from muntin.language.program import sql
from muntin.run.files import LogFiles
from muntin.run.results import Departing
from muntin.spark.collection import SparkCollection
from muntin.spark.context import start_context
from muntin.spark.runner import Settings, SparkRun
from muntin.store.checkpoint import Checkpoint
from muntin.store.journal import Journal
from muntin.store.results import Results

_SETTLE_SECONDS = 8.0  # that are not counted: the first batches of a run take longer
PARTS: dict[str, tuple[type, str]] = {
    "look at the logs": (LogFiles, "next"),
    "read, first job of Spark": (SparkCollection, "add"),
    "answer, second job": (SparkCollection, "answer"),
    "commit": (Journal, "commit"),
    "- rows to files": (Journal, "_written"),
    "- checkpoint": (Checkpoint, "save"),
    "- tables": (Results, "publish"),
}


@dataclass
class Turns:
    """Seconds that each part of a turn took, turn by turn."""

    parts: list[dict[str, float]] = field(default_factory=list)
    now: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    shown_at: float = 0.0  # when rows were last in a table

    def take(self, name: str, seconds: float) -> None:
        self.now[name] += seconds
        if name == "- tables":
            self.shown_at = time.time()


@contextmanager
def timed(turns: Turns) -> Iterator[None]:
    """Takes the time of every part while it runs."""

    def wrapped(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            started = time.perf_counter()
            try:
                found = method(*given, **named)
                if name == "read, first job of Spark":
                    computed = sum(cost.seconds for cost in costs_of(found).values())
                    turns.take("- computing, of all tasks", computed)
                return found
            finally:
                turns.take(name, time.perf_counter() - started)

        return call

    before = {name: getattr(*at) for name, at in PARTS.items()}
    try:
        for name, (of, method) in PARTS.items():
            setattr(of, method, wrapped(name, before[name]))
        yield
    finally:
        for name, (of, method) in PARTS.items():
            setattr(of, method, before[name])


@dataclass(frozen=True)
class Window:
    """One that has left: how long after its end its rows could be read, and how complete it is."""

    end: float
    lag: float
    emitted: float
    area: float


def windows_of(left: Departing, at: float) -> Iterator[Window]:
    for kind, c2 in left.scores.items():
        end = left.bounds(kind)[1] / 1e6
        if c2.reason is not Reason.OPEN:
            yield Window(end, at - end, left.at - end, c2.area)


def measure(folder: Path, rate: int, jobs: int, seconds: float, trace: bool) -> dict[str, Any]:
    turns, windows = Turns(), list[Window]()
    program = sql(sql_of(folder, jobs))
    settings, stop = Settings(folder / "state", follow=True), Event()
    context = start_context("local[2]")
    with ExitStack() as stack:
        stack.enter_context(writing(folder, files=False))
        stack.enter_context(timed(turns))
        set_rate(folder / "rate", rate)
        run = SparkRun(program, context, settings, stop)
        began = last = time.time()
        for turn in run.turns():
            now = time.time()
            found = [w for left in turn.emission.windows for w in windows_of(left, turns.shown_at)]
            if now > began + _SETTLE_SECONDS:
                windows += found
                if turn.bytes or found:
                    spent = dict(turns.now) | {"bytes": float(turn.bytes)}
                    turns.parts.append(spent)
                if trace:
                    told = {name: round(1000 * s) for name, s in turns.now.items()}
                    lags = ", ".join(f"{w.lag:.3f} {w.area:.2f}" for w in found)
                    print(f"{now % 100:7.3f} rest and turn {1000 * (now - last):4.0f} ms, "
                          f"{turn.bytes >> 10:6} kB, {turn.remaining >> 10} left {told} {lags}",
                          *turn.notes)  # fmt: skip
            turns.now.clear()
            last = now
            if now > began + _SETTLE_SECONDS + seconds:
                stop.set()
    return summary(turns, windows, rate, jobs)


def summary(turns: Turns, windows: Sequence[Window], rate: int, jobs: int) -> dict[str, Any]:
    def told(values: Sequence[float]) -> dict[str, float]:
        wanted = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}
        return {name: round(1000 * float(np.quantile(values, q)), 1) for name, q in wanted.items()}

    leaving = [parts for parts in turns.parts if "- tables" in parts]
    names = dict.fromkeys(name for parts in turns.parts for name in parts if name != "bytes")
    return {
        "rate": rate,
        "jobs": jobs,
        "windows": len(windows),
        "complete": sum(w.area == 1.0 for w in windows),
        "lag_ms": told([w.lag for w in windows]) if windows else None,
        "emitted_ms": told([w.emitted for w in windows]) if windows else None,
        "turns": len(turns.parts),
        "of them with windows": len(leaving),
        "parts_ms": {n: told([parts.get(n, 0.0) for parts in leaving]) for n in names},
        "batch_kb": round(float(np.mean([p["bytes"] for p in leaving])) / 1024) if leaving else 0,
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rate", type=int, default=100_000, help="records/s")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--trace", action="store_true", help="tell every turn")
    parser.add_argument("--folder", help="where logs and state are; best on a real disk")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="muntin-lag-", dir=given.folder) as name:
        found = measure(Path(name), given.rate, given.jobs, given.seconds, given.trace)
    for name, value in found.items():
        if name == "parts_ms":
            for part, took in value.items():
                print(f"  {part:28} {took}")
        else:
            print(f"{name}: {json.dumps(value)}")


if __name__ == "__main__":
    main()
