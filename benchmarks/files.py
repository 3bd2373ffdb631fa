"""What many files and sources cost: idle ones, small ones, and servers that write little.

    python -m benchmarks.files            # all of it, about four minutes
    python -m benchmarks.files small      # one question of: idle, small, sources, servers, spark

All but the last run in one process without Spark. What is counted is CPU time.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from threading import Event, Thread

from benchmarks.processes import cpu_of_tree
from muntin.language.program import sql
from muntin.logs.events import FileEvents
from muntin.logs.tail import Tail
from muntin.model.jobs import Program
from muntin.run.files import LogFiles
from muntin.run.inline import InlineRun
from muntin.run.loop import Rules
from muntin.run.results import Emission

BASE = 1_700_000_000
POLL_SECONDS = 0.1
SLACK_SECONDS = 1
JOB = (
    "CREATE JOB clicks AS SELECT product, count(*) AS clicks, sum(n) AS total FROM logs "
    "GROUP BY product WINDOW 10 SECONDS"
)


def program(folder: Path) -> Program:
    return sql(
        f"CREATE STREAM logs (t DOUBLE, product VARCHAR, n BIGINT) FROM '{folder}/{{source}}.json' "
        f"FORMAT json TIMESTAMP t SLACK {SLACK_SECONDS} SECOND; {JOB}"
    )


def line(at: float, number: int) -> str:
    return json.dumps({"t": at, "product": f"p{number % 50}", "n": number}) + "\n"


def write(folder: Path, files: int, records: int) -> Path:
    """As many records in all, shared out to the files in the order of their times."""
    each = records // files
    for number in range(files):
        rows = (line(BASE + 60 * i / each, i * files + number) for i in range(each))
        (folder / f"web-{number:05}.json").write_text("".join(rows))
    return folder


def read_once(folder: Path) -> float:
    """CPU seconds to read a folder to its end."""
    logs = program(folder)
    (stream,) = logs.streams.values()
    started = time.process_time()
    run = InlineRun(stream, list(logs.jobs.values()), Rules(False))
    windows = 0
    while not run.is_over:
        windows += sum(len(w.counts) for w in run.turn(time.time()).windows)
    taken = time.process_time() - started
    print(f"  {run.loop.progress.records:,} records, {windows} windows: {taken:.2f} s of CPU")
    return taken


def idle(folder: Path, files: int = 10_000, seconds: float = 30.0) -> None:
    write(folder, files, files)
    logs = program(folder)
    (stream,) = logs.streams.values()
    tail = Tail(stream, follow=True, events=FileEvents())
    started = time.process_time()
    read = sum(len(tail.next_batch(time.time(), in_order=True).lanes) for _ in range(2))
    print(f"  {read:,} files found first: {time.process_time() - started:.2f} s of CPU")
    started, begun = time.process_time(), time.monotonic()
    looks = 0
    while time.monotonic() - begun < seconds:
        tail.next_batch(time.time(), in_order=True)
        looks += 1
        time.sleep(POLL_SECONDS)
    share = (time.process_time() - started) / (time.monotonic() - begun)
    print(f"  {files:,} idle files, {looks} looks: {share:.1%} of a core")


def small(folder: Path, files: int = 20_000) -> None:
    started = time.monotonic()
    taken = read_once(write(folder, files, 5 * files))
    wall = time.monotonic() - started
    print(f"  {files:,} files of 5 lines: {taken:.1f} s of CPU, {wall:.1f} s with writing them")


def sources(folder: Path, records: int = 500_000) -> None:
    taken = {}
    for count in (5, 500):
        (folder / str(count)).mkdir()
        taken[count] = read_once(write(folder / str(count), count, records))
    print(f"  500 sources against 5: {taken[500] / taken[5]:.2f} times")


def servers(folder: Path, files: int = 1000, seconds: float = 30.0) -> None:
    """In this process without Spark: looks, reading, computing, and what is due."""
    logs = program(folder)
    (stream,) = logs.streams.values()
    intake = LogFiles(stream, follow=True, events=FileEvents())
    run = InlineRun(stream, list(logs.jobs.values()), Rules(True), intake=intake)
    lags: list[float] = []
    with Writers(folder, files) as writers:
        time.sleep(1.0)
        started, begun = time.process_time() - writers.used, time.monotonic()
        while time.monotonic() - begun < seconds:
            lags += _lags(run.turn(time.time()))
            time.sleep(POLL_SECONDS)
        used = time.process_time() - writers.used - started
        _tell_servers(files, used / (time.monotonic() - begun), lags)


def spark(folder: Path, files: int = 1000, seconds: float = 30.0) -> None:
    """On Spark: CPU time of the driver, of Java and of all workers."""
    from muntin.spark.context import start_context
    from muntin.spark.runner import Settings, SparkRun

    logs = program(folder / "logs")
    (folder / "logs").mkdir()
    run = SparkRun(logs, start_context("local[2]"), Settings(folder / "state", follow=True))
    lags: list[float] = []
    with Writers(folder / "logs", files) as writers:
        started, begun, batches = 0.0, time.monotonic() + 15.0, 0  # for what is loaded and compiled
        for turn in run.turns():
            now = time.monotonic()
            if now >= begun and not started:
                started, begun = cpu_of_tree() - writers.used, now
            lags += _lags(turn.emission) if started else []
            batches += bool(started and turn.bytes)
            if started and now - begun >= seconds:
                used = cpu_of_tree() - writers.used - started
                break
        share = used / (now - begun)
        print(
            f"  {batches / (now - begun):.1f} batches a second, {used / batches * 1e3:.0f} ms each"
        )
        _tell_servers(files, share, lags)


def _lags(emission: Emission) -> list[float]:
    """How long after their end, slack aside, windows have left."""
    now = time.time() - SLACK_SECONDS
    return [now - w.bounds(kind)[1] / 1e6 for w in emission.windows for kind in w.scores]


def _tell_servers(files: int, share: float, lags: list[float]) -> None:
    lag = median(lags) if lags else 0.0
    print(f"  {files:,} servers with a line a second: {share:.1%} of a core, {lag:.2f} s of lag")


class Writers:
    """Servers that write a line a second each, one after another, in a thread."""

    def __init__(self, folder: Path, files: int) -> None:
        self.used = 0.0  # seconds of CPU
        self._files = [(folder / f"web-{i:04}.json").open("a", buffering=1) for i in range(files)]
        self._stop = Event()
        self._thread = Thread(target=self._write, daemon=True)

    def __enter__(self) -> Writers:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        for file in self._files:
            file.close()

    def _write(self) -> None:
        begun, written = time.time(), 0
        while not self._stop.wait(0.02):
            while written < (time.time() - begun) * len(self._files):
                at = begun + written / len(self._files)
                self._files[written % len(self._files)].write(line(at, written))
                written += 1
            self.used = time.thread_time()


QUESTIONS: dict[str, Callable[[Path], None]] = {
    "idle": idle,
    "small": small,
    "sources": sources,
    "servers": servers,
    "spark": spark,
}

if __name__ == "__main__":
    for name in sys.argv[1:] or QUESTIONS:
        print(name)
        with tempfile.TemporaryDirectory(prefix="muntin-") as place:
            QUESTIONS[name](Path(place))
