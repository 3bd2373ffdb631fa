"""What one batch costs the driver, without Spark's part, and what an hour of them leaves.

    python -m benchmarks.driver [--sources 10,100,1000] [--panes 60,600,3600]
                                [--jobs 10,100,1000] [--batches 20] [--rows]
                                [--hour 3600] [--month 43200] [--sync 200]

Drives the real loop and the real journal with a collection that does nothing and with made-up
readings: every second a batch, in which every source has some records of that second. `take` notes
what was read, `due` decides which windows leave, `commit` writes the checkpoint. Times are medians;
the CPU time is that of all threads, and the bytes those that all writes of a commit have.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from rich.console import Console
from rich.table import Table

import muntin
from muntin.fidelity.scoreboard import Source
from muntin.kernel.compute import Recipe
from muntin.kernel.due import Due, Emitted
from muntin.kernel.reading import Reading
from muntin.kernel.statements import WINDOW, WINDOW_END
from muntin.logs.files import FilePosition
from muntin.model.counts import Tally
from muntin.model.jobs import Job
from muntin.model.records import POSITION
from muntin.run.catalog import Catalog
from muntin.run.contracts import Answer, Batch, Request, Task, Work
from muntin.run.loop import Loop, Rules
from muntin.run.results import Emission, no_windows
from muntin.schedule.pace import Pace
from muntin.store import delta
from muntin.store.blocks import BlockFiles
from muntin.store.journal import Journal
from muntin.store.results import Results

SECOND = 1_000_000
BASE = 1_700_000_000  # the first second of the logs
SHAPES = 30
MOST_MS = 50
MOST_BESIDE_RESULTS = 20_000_000
_TRIAL = 100  # batches to see how long one takes
_HISTORY = 60  # panes of a batch while the past is read

_out = Console(highlight=False, width=110)


@dataclass(frozen=True)
class Spent:
    """What one batch took, in milliseconds, and wrote."""

    take: float
    due: float
    commit: float
    cpu: float
    written: int

    @property
    def whole(self) -> float:
        return self.take + self.due + self.commit


@dataclass(frozen=True)
class Made:
    """Work that is done: what was read of every source."""

    readings: list[Reading]

    def tasks(self, most: int) -> Sequence[Task]:
        return []


class Nothing:
    """A collection without blocks; if `rows`, each due window has one row all the same."""

    def __init__(self, jobs: Sequence[Job], rows: bool) -> None:
        self._no_rows = {job.name: no_windows(job).rows for job in jobs} if rows else {}

    def add(self, work: Work, recipes: Sequence[Recipe], final: Mapping[str, int]) -> list[Reading]:
        assert isinstance(work, Made)
        return work.readings

    def answer(
        self, catalog: Catalog, due: Due, save: Mapping[str, Emitted] | None = None
    ) -> Answer:
        rows = {name: self._rows(name, ends) for name, ends in due.ends.items() if self._no_rows}
        return Answer(rows)

    def _rows(self, name: str, ends: Sequence[Sequence[int]]) -> pa.Table:
        schema = self._no_rows[name].schema
        kinds = [(which, end) for which, each in enumerate(ends) for end in each]
        columns = {field.name: [1] * len(kinds) for field in schema}
        columns[WINDOW] = [which for which, _ in kinds]
        columns[WINDOW_END] = [end for _, end in kinds]
        return pa.table({f.name: pa.array(columns[f.name]).cast(f.type) for f in schema}, schema)

    def forget(self, catalog: Catalog, emitted: Mapping[str, Emitted]) -> None: ...

    def inherit(self, catalog: Catalog, shape: str, heir: str) -> None: ...

    def compact(self, catalog: Catalog) -> None: ...

    def restore(self, catalog: Catalog, blocks: BlockFiles) -> None: ...


class Driver:
    """One stream of so many sources, and the jobs over it. It is the intake of its loop."""

    def __init__(self, state: Path, sources: int, panes: int, jobs: int, rows: bool) -> None:
        program = muntin.sql(_statements(panes, jobs))
        asked = program.jobs_of("logs")
        catalog, nothing = Catalog.of(program.streams["logs"], asked), Nothing(asked, rows)
        self._journal = Journal(state, catalog, nothing)
        self.progress, self.before = self._journal.progress, self._journal.before
        self.notes: list[str] = []
        self._names = [f"server-{number:04}" for number in range(sources)]
        self._batch = Batch()
        self._now, self._read_at, self._commit_s = 0.0, 0.0, 0.0
        self._loop = Loop(catalog, self, nothing, self, Rules(True), lambda: self._now, Pace())

    def next(self, request: Request) -> Batch:
        return self._batch

    def names(self, now: float) -> frozenset[str]:
        return frozenset()

    def behind(self, sources: Mapping[str, Source]) -> frozenset[str]:
        self._read_at = time.perf_counter()
        return frozenset()

    def store(self, catalog: Catalog, emission: Emission) -> Emission:
        return self._journal.store(catalog, emission)

    def commit(
        self,
        catalog: Catalog,
        emission: Emission,
        positions: tuple[FilePosition, ...] | None = None,
        whole: bool = False,
    ) -> Emission:
        started = time.perf_counter()
        emission = self._journal.commit(catalog, emission, positions, whole)
        self._commit_s = time.perf_counter() - started
        return emission

    def require(self, job: Job) -> None: ...

    def remember(self, panes: int) -> None:
        """Reads so many seconds of the past."""
        for first in range(0, panes, _HISTORY):
            self._turn(first, min(panes, first + _HISTORY))

    def batch(self, second: int) -> Spent:
        """Reads, emits and commits one second of all sources."""
        before = _written()
        started, over, cpu = self._turn(second, second + 1)
        take, due = self._read_at - started, over - self._read_at - self._commit_s
        commit = self._commit_s
        return Spent(1000 * take, 1000 * due, 1000 * commit, 1000 * cpu, _written() - before)

    def _turn(self, first: int, last: int) -> tuple[float, float, float]:
        """When the turn began, when it was over and its CPU time; without making up readings."""
        touched = dict.fromkeys(self._names, _clock(last))
        work, size = Made(self._readings(first, last)), 100 * len(self._names)
        self._batch = Batch(work, size, positions=self._positions(last), touched=touched)
        self._now = _clock(last)
        cpu, started = time.process_time(), time.perf_counter()
        self._loop.turn(self._loop.wake_at())
        return started, time.perf_counter(), time.process_time() - cpu

    def keep_rows(self, name: str, rows: pa.Table) -> str | None:
        return None

    def tidy(self, room: float | None = None) -> list[str]:
        for note in self._journal.tidy(room):
            _out.print(note)
        return []

    def _readings(self, first: int, last: int) -> list[Reading]:
        low, high = (BASE + first) * SECOND, (BASE + last) * SECOND
        return [
            Reading(
                name,
                tallies=tuple(
                    Tally(name, POSITION, SECOND, BASE + second, None, 7, 0, high)
                    for second in range(first, last)
                ),
                records=7 * (last - first),
                reached={POSITION: high},
                first={POSITION: low},
            )
            for name in self._names
        ]

    def _positions(self, second: int) -> tuple[FilePosition, ...]:
        return tuple(
            FilePosition(name, f"/logs/{name}/a.log", 1, number, 100 * second, 100 * second, second)
            for number, name in enumerate(self._names)
        )


def _clock(second: int) -> float:
    return float(BASE + second)


def _statements(panes: int, jobs: int) -> str:
    texts = [
        "CREATE STREAM logs (t BIGINT, k VARCHAR, n BIGINT) "
        "FROM '/logs/{source}/*.log' FORMAT json TIMESTAMP t;"
    ]
    for number in range(jobs):
        texts.append(
            f"CREATE JOB job_{number} AS SELECT count(*) AS c FROM logs "
            f"WHERE n > {number % SHAPES} "
            f"WINDOW {panes} SECONDS EVERY 1 SECOND;"
        )
    return "\n".join(texts)


def _written() -> int:
    """Bytes that this process has written, to whatever it was."""
    told = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(told["wchar"])


def _resident_mb() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 1e6


def measure(sources: int, panes: int, jobs: int, batches: int, rows: bool) -> list[Spent]:
    """Batches after `panes` seconds of the past were read."""
    with tempfile.TemporaryDirectory(prefix="muntin-driver-") as state:
        driver = Driver(Path(state), sources, panes, jobs, rows)
        driver.remember(panes)
        return [driver.batch(panes + number) for number in range(batches)]


def table(title: str, cells: Sequence[tuple[int, int, int]], batches: int, rows: bool) -> None:
    shown = Table(
        "sources", "panes", "jobs", "take", "due", "commit", "ms a batch", "worst", "CPU", "kB",
        title=title,
    )  # fmt: skip
    for sources, panes, jobs in cells:
        spent = measure(sources, panes, jobs, batches, rows)
        middle = [
            statistics.median(getattr(each, name) for each in spent)
            for name in ("take", "due", "commit", "whole")
        ]
        told = [f"{value:,.1f}" for value in middle]
        told.append(f"{max(each.whole for each in spent):,.1f}")
        told.append(f"{statistics.median(each.cpu for each in spent):,.1f}")
        told.append(f"{statistics.median(each.written for each in spent) / 1e3:,.0f}")
        shown.add_row(f"{sources:,}", f"{panes:,}", f"{jobs:,}", *told)
    _out.print(shown)


def hour(sources: int, seconds: int) -> None:
    """So many one-second windows of one job: memory over time, and what they leave on disk.

    Batches follow each other faster than seconds do. What is kept for ten minutes of real time is
    kept here for as long as ten minutes of batches take.
    """
    shown = Table("batches", "resident MB", "files", "MB of results", "MB beside", title="an hour")
    with tempfile.TemporaryDirectory(prefix="muntin-driver-") as folder:
        started = time.perf_counter()
        driver = Driver(Path(folder, "trial"), sources, 1, 1, rows=True)
        for second in range(_TRIAL):
            driver.batch(second)
        kept = round(600 * (time.perf_counter() - started) / _TRIAL)
        for name in ("delta.deletedFileRetentionDuration", "delta.logRetentionDuration"):
            delta._SETTINGS[name] = f"interval {kept} seconds"
        state = Path(folder, "state")
        driver = Driver(state, sources, 1, 1, rows=True)
        for second in range(seconds):
            driver.batch(second)
            driver.tidy()
            if (second + 1) % max(1, seconds // 6) == 0:
                files, results, beside = _space(state)
                told = (f"{results / 1e6:,.1f}", f"{beside / 1e6:,.1f}")
                shown.add_row(f"{second + 1:,}", f"{_resident_mb():,.0f}", f"{files:,}", *told)
    _out.print(shown)
    _out.print(f"at most {MOST_BESIDE_RESULTS / 1e6:.0f} MB beside results wanted")


def month(windows: int) -> None:
    """Reads the newest of so many one-minute windows, which lie in many files."""
    rows, each = 10, 400
    with tempfile.TemporaryDirectory(prefix="muntin-driver-") as folder:
        store = Results(Path(folder))
        for batch, first in enumerate([*range(0, windows, each), *range(windows, windows + 63)]):
            ends = range(first, first + (each if first < windows else 1))
            table = _minutes(ends, rows)
            if not batch:
                store.prepare({"top": table.schema})
            store.publish("logs", batch, store.write(batch, {"top": [table]}))
        took = []
        for _ in range(20):
            cpu, started = time.process_time(), time.perf_counter()
            found = store.read("top", latest=True)
            wall = time.perf_counter() - started
            took.append((1000 * wall, 1000 * (time.process_time() - cpu)))
            assert found["window_end"].to_pylist() == table["window_end"].to_pylist()
        files = len(list((Path(folder) / "results" / "top").glob("*.parquet")))
    wall, cpu = (statistics.median(each) for each in zip(*took, strict=True))
    _out.print(
        f"the newest of {windows + 63:,} windows in {files} files: {wall:.1f} ms, {cpu:.1f} ms of "
        f"CPU; at most {MOST_MS} ms wanted"
    )


def sync(batches: int) -> None:
    """What it costs that commits are on disk: batches with and without, in turns."""
    shown = Table("jobs", "synced, ms", "not synced, ms", "ratio", title="commits with results")
    for jobs in (1, 10):
        with tempfile.TemporaryDirectory(prefix="muntin-driver-", dir=".") as folder:
            drivers = [Driver(Path(folder, name), 10, 1, jobs, rows=True) for name in ("a", "b")]
            took: tuple[list[float], list[float]] = ([], [])
            for second in range(batches):
                for driver, spent, leave_out in zip(drivers, took, (False, True), strict=True):
                    with _not_synced() if leave_out else nullcontext():
                        spent.append(driver.batch(second).commit)
        with_sync, without = (statistics.median(each[10:]) for each in took)
        ratio = f"{with_sync / without:.2f}"
        shown.add_row(f"{jobs:,}", f"{with_sync:.1f}", f"{without:.1f}", ratio)
    _out.print(shown)


@contextmanager
def _not_synced() -> Iterator[None]:
    real = os.fsync
    os.fsync = lambda fd: None
    try:
        yield
    finally:
        os.fsync = real


def _minutes(numbers: range, rows: int) -> pa.Table:
    times = pa.timestamp("us", "UTC")
    ends = pa.array([60 * SECOND * number for number in numbers for _ in range(rows)])
    return pa.table(
        {
            "window_name": ["1 minute"] * len(ends),
            "window_start": ends.cast(times),
            "window_end": ends.cast(times),
            "product": [f"product-{row % rows}" for row in range(len(ends))],
            "clicks": list(range(len(ends))),
            "c2": [{"area": 1.0, "reason": "complete"}] * len(ends),
            "revision": [0] * len(ends),
            "emitted_at": ends.cast(times),
        }
    )


def _space(state: Path) -> tuple[int, int, int]:
    """Files, bytes on disk of those that the result tables are made of, and bytes beside them."""
    from deltalake import DeltaTable

    current = {
        Path(folder, name).resolve()
        for folder in (state / "results").iterdir()
        for name in pa.table(DeltaTable(folder).get_add_actions())["path"].to_pylist()
    }
    files = list(_files(state))
    sizes = {path: path.stat().st_blocks * 512 for path in files}
    results = sum(sizes[path] for path in files if path.resolve() in current)
    return len(files), results, sum(sizes.values()) - results


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.is_file())


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.driver")
    parser.add_argument("--sources", default="10,100,1000")
    parser.add_argument("--panes", default="60,600,3600")
    parser.add_argument("--jobs", default="10,100,1000")
    parser.add_argument("--batches", type=int, default=20)
    parser.add_argument("--rows", action="store_true", help="each due window has a row to store")
    parser.add_argument("--hour", type=int, default=0, help="so many seconds of one-second windows")
    parser.add_argument("--month", type=int, default=0, help="so many windows to find the last of")
    parser.add_argument("--sync", type=int, default=0, help="so many batches, on disk and not")
    given = parser.parse_args()
    sources, panes, jobs = (
        [int(value) for value in text.split(",") if value]
        for text in (given.sources, given.panes, given.jobs)
    )
    cells = [(each, length, SHAPES) for length in panes for each in sources]
    if cells:
        table(
            f"sources and panes, {SHAPES} jobs of as many shapes", cells, given.batches, given.rows
        )
    if jobs:
        cells = [(10, 60, count) for count in jobs]
        table(f"jobs in {SHAPES} shapes", cells, given.batches, given.rows)
    if given.hour:
        hour(10, given.hour)
    if given.month:
        month(given.month)
    if given.sync:
        sync(given.sync)
    _out.print(f"at most {MOST_MS} ms a batch wanted")


if __name__ == "__main__":
    main()
