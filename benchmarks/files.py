"""What many files and sources cost: idle ones, small ones, and servers that write little.

    python -m benchmarks.files            # all of it, about two minutes
    python -m benchmarks.files small      # one question of: idle, small, sources, servers

All run in one process without Spark, and count CPU time of this process and its threads.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from muntin.language.program import sql
from muntin.logs.events import FileEvents
from muntin.logs.tail import Tail
from muntin.model import Program
from muntin.run.inline import InlineRun

BASE = 1_700_000_000
POLL_SECONDS = 0.1
JOB = (
    "CREATE JOB clicks AS SELECT product, count(*) AS clicks, sum(n) AS total FROM logs "
    "GROUP BY product WINDOW 10 SECONDS"
)


def program(folder: Path) -> Program:
    return sql(
        f"CREATE STREAM logs (t DOUBLE, product VARCHAR, n BIGINT) FROM '{folder}/{{source}}.json' "
        f"FORMAT json TIMESTAMP t SLACK 1 SECOND; {JOB}"
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
    run = InlineRun(stream, list(logs.jobs.values()))
    windows = 0
    while not run.is_over:
        windows += sum(len(w.counts) for w in run.step(time.time()).windows)
    taken = time.process_time() - started
    print(f"  {run.pipeline.progress.records:,} records, {windows} windows: {taken:.2f} s of CPU")
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
    """Each server writes a line a second, all of them in turn."""
    logs = program(folder)
    (stream,) = logs.streams.values()
    run = InlineRun(stream, list(logs.jobs.values()), follow=True)
    open_files = [(folder / f"web-{i:04}.json").open("a", buffering=1) for i in range(files)]
    begun = time.time()
    written, used, lags = 0, 0.0, []
    while (now := time.time()) - begun < seconds:
        while written < (now - begun) * files:
            at = begun + written / files
            open_files[written % files].write(line(at, written))
            written += 1
        started = time.process_time()
        emission = run.step(time.time())
        used += time.process_time() - started
        for left in emission.windows:
            lags += [time.time() - left.bounds(kind)[1] / 1e6 for kind in left.scores]
        time.sleep(POLL_SECONDS)
    for file in open_files:
        file.close()
    share, lag = used / (time.time() - begun), max(lags[1:], default=0.0)
    print(f"  {files:,} servers with a line a second: {share:.1%} of a core, {lag:.2f} s of lag")


QUESTIONS: dict[str, Callable[[Path], None]] = {
    "idle": idle,
    "small": small,
    "sources": sources,
    "servers": servers,
}

if __name__ == "__main__":
    for name in sys.argv[1:] or QUESTIONS:
        print(name)
        with tempfile.TemporaryDirectory(prefix="muntin-") as place:
            QUESTIONS[name](Path(place))
