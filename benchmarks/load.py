"""How much a program holds, what it does when there is more, and how soon it recovers.

    python -m benchmarks.load                           # 1 and 20 jobs, five minutes each and more
    python -m benchmarks.load --jobs 1 --seconds 60     # shorter
    python -m benchmarks.load --streaming               # the same of Structured Streaming

Servers write JSON lines at a rate that is raised until windows of a second, WITHIN 1 SECOND, are
not complete in time any more. A rate that is not held is tried once more, as others may have had a
core at that moment, and the highest one is looked for between. It is then held for long, with a
look at the memory, and exceeded by half and by as much again before it falls. Lags are from the end
of a window to when its rows can be read in the table. The servers take a part of the same cores.
`--rate` leaves out the search: it holds that rate, and exceeds it.

Structured Streaming cannot follow a file that grows, so the servers write it a new file each tenth
of a second. It has no bounds: its lag is whatever it is, and what it cannot hold comes later.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Protocol

import numpy as np

from benchmarks.processes import Memory, cpu_of_machine, memory_of_tree
from muntin.errors import MuntinError
from muntin.store.results import Results

SERVERS = 4
BOUND = 1.0  # seconds, of the job
STORES = ("books", "garden", "games", "kitchen", "music", "sports", "toys", "clothes")
KEYS = ("product", "event", "server", "latency_ms")
_FIRST_RATE = 8_000  # records a second
_FASTER = 1.5
_STEPS = 12  # of the search at most, in one direction
_BETWEEN = 2  # more of them, between a rate that is held and one that is not
_LONG_TRIES = 4  # at most, to hold a rate for long
_CALM = 0.5  # of the highest rate, at which it recovers
_LEAST_AREA = 0.999
_SETTLE_SECONDS = 3.0  # of a phase that are not counted
_PATIENCE_SECONDS = 120.0


def job_texts(jobs: int) -> list[str]:
    """The jobs: the first ten of a store by different keys."""
    return [
        f"CREATE JOB job_{number} AS SELECT {key} AS k, count(*) AS n, sum(clicks) AS clicks "
        f"FROM shop WHERE store = '{store}' GROUP BY {key} ORDER BY clicks DESC, k LIMIT 10 "
        "WINDOW 1 SECOND PANE 100 MILLISECONDS WITHIN 1 SECOND;"
        for number, key, store in questions(jobs)
    ]


def sql_of(folder: Path, jobs: int) -> str:
    """The program, over logs in a folder."""
    columns = "t DOUBLE, server VARCHAR, product VARCHAR, store VARCHAR, event VARCHAR, "
    columns += "clicks BIGINT, latency_ms BIGINT"
    stream = f"CREATE STREAM shop ({columns}) FROM '{folder}/logs/{{source}}.log' "
    stream += "FORMAT json TIMESTAMP t;"
    return "\n".join([stream, *job_texts(jobs)]) + "\n"


def questions(jobs: int) -> Iterator[tuple[int, str, str]]:
    for number in range(jobs):
        yield number, KEYS[number // len(STORES) % len(KEYS)], STORES[number % len(STORES)]


@dataclass(frozen=True)
class Left:
    """A window that has left: its end, how long after that, and how much of it was there."""

    end: float
    lag: float
    area: float


class Contestant(Protocol):
    """What reads the logs."""

    pid: int

    def left(self, since: float, until: float) -> list[Left]:
        """The windows that ended between two moments, as far as they have left."""


@dataclass(frozen=True)
class Phase:
    """So many records a second for some time, and what came of it."""

    name: str
    rate: int
    seconds: float
    windows: int
    wanted: int  # windows that have ended
    lag_p50: float
    lag_p99: float
    late: int  # left after the bound, by more than a tenth of a second
    area: float
    area_least: float
    memory: Memory
    grown: float  # of Python and Java, from its first third to its last, as a share

    @property
    def is_held(self) -> bool:
        everything = self.windows >= self.wanted - 1
        return everything and self.lag_p99 <= BOUND and self.area >= _LEAST_AREA

    def __str__(self) -> str:
        return (
            f"{self.name:10} {self.rate:9,}/s  {self.windows:4} of {self.wanted:4} windows  "
            f"lag {self.lag_p50:5.2f} s, p99 {self.lag_p99:5.2f} s, {self.late} late  "
            f"area {self.area:6.1%}, least {self.area_least:6.1%}  "
            f"memory {self.memory.python >> 20:,} + {self.memory.jvm >> 20:,} MB, "
            f"{self.grown:+.0%}"
        )


class Load:
    """Servers whose rate can be changed, and somebody who reads what they write."""

    def __init__(self, folder: Path, contestant: Contestant, jobs: int) -> None:
        self._rate = folder / "rate"
        self._contestant = contestant
        self._jobs = jobs
        self.phases: list[Phase] = []

    def phase(self, name: str, rate: int, seconds: float) -> Phase:
        """Writes so much for so long, and looks at the windows that ended meanwhile."""
        set_rate(self._rate, rate)
        began = time.time()
        memories = []
        while (now := time.time()) < began + seconds:
            memories.append(memory_of_tree(self._contestant.pid))
            time.sleep(min(1.0, max(0.0, began + seconds - now)))
        since, until = began + min(_SETTLE_SECONDS, seconds / 3), time.time()
        time.sleep(2 * BOUND)  # while the last ones leave
        left = self._contestant.left(since, until)
        lags, areas = np.array([each.lag for each in left]), [each.area for each in left]
        third = max(1, len(memories) // 3)
        sizes = [memory.python + memory.jvm for memory in memories]
        phase = Phase(
            name,
            rate,
            seconds,
            len(left),
            self._jobs * (int(until) - int(since)),
            float(np.quantile(lags, 0.5)) if left else float("nan"),
            float(np.quantile(lags, 0.99)) if left else float("nan"),
            int((lags > BOUND + 0.1).sum()),
            # A window that has not left has nothing.
            sum(areas) / max(1, len(areas)),
            min(areas, default=0.0),
            max(memories, key=lambda memory: memory.python + memory.jvm),
            float(np.mean(sizes[-third:]) / np.mean(sizes[:third]) - 1),
        )
        print(phase, flush=True)
        self.phases.append(phase)
        return phase

    def recover(self, rate: int) -> float:
        """How long it takes, at a rate that can be held, until windows are complete in time."""
        began = time.time()
        while time.time() - began < _PATIENCE_SECONDS:
            if self.phase("recovery", rate, 5.0).is_held:
                return time.time() - began
        return float("inf")

    def holds(self, rate: int, step: float) -> bool:
        """Whether a rate is held: one that is not is tried once more, after a calm."""
        for _ in range(2):
            if self.phase("search", rate, step).is_held:
                return True
            self.recover(int(rate * _CALM / _FASTER))
        return False

    def run(
        self, step: float, seconds: float, over: float, first: int, known: int | None = None
    ) -> None:
        """The highest rate, held; more than that; and the way back. It may be known."""
        rate = known or highest(lambda rate: self.holds(rate, step), first)
        if not rate:
            print(f"no rate is held, from {first:,} records a second downwards", flush=True)
            return
        for _ in range(_LONG_TRIES):
            self.recover(int(rate * _CALM))
            if self.phase("held", rate, seconds).is_held:
                break
            rate = int(rate * 0.85)
        for factor in (1.5, 2.0) if over else ():
            self.phase(f"{factor}x", int(factor * rate), over)
            took = self.recover(int(rate * _CALM))
            print(f"recovered after {took:.0f} s", flush=True)


def highest(holds: Callable[[int], bool], first: int) -> int:
    """The highest rate that is held, to a ninth or so, or 0.

    It is raised until one is not held, or lowered until one is; then the middle is tried. A rate is
    tried once, so whoever knows that a machine has moments should have `holds` try again.
    """
    held, above, rate = 0, 0, first
    for _ in range(_STEPS):
        if holds(rate):
            held = rate
            rate = int(rate * _FASTER)
        else:
            above = rate
            rate = int(rate / _FASTER)
        if held and above:
            break
    for _ in range(_BETWEEN if held and above else 0):
        middle = int((held * above) ** 0.5)
        held, above = (middle, above) if holds(middle) else (held, middle)
    return held


class Muntin:
    """`muntin run` on local[2]."""

    def __init__(self, folder: Path, jobs: int, cores: int) -> None:
        self._state, self._jobs = folder / "state", jobs
        sql = folder / "jobs.sql"
        sql.write_text(sql_of(folder, jobs))
        command = ["run", str(sql), "--state", str(self._state), "--master", f"local[{cores}]"]
        log = (folder / "muntin.txt").open("w")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "muntin", *command], stdout=log, stderr=log
        )
        self.pid = self._process.pid

    def left(self, since: float, until: float) -> list[Left]:
        found = []
        for number in range(self._jobs):
            try:
                rows = Results(self._state).read(f"job_{number}").to_pylist()
            except MuntinError:
                continue
            shown = shown_at(self._state / "results" / f"job_{number}")
            windows = {row["window_end"].timestamp(): row for row in rows}
            for end, row in windows.items():
                if since < end <= until:
                    lag = shown.get(end, row["emitted_at"].timestamp()) - end
                    found.append(Left(end, lag, row["c2"]["area"]))
        return found

    def end(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(60)


def shown_at(table: Path) -> dict[float, float]:
    """By the end of a window, when its rows could first be read: when its entry was written."""
    shown: dict[float, float] = {}
    for entry in sorted((table / "_delta_log").glob("*.json")):
        actions = [json.loads(line) for line in entry.read_text().splitlines()]
        if not any("txn" in action for action in actions):
            continue  # files that were merged
        for stats in (json.loads(a["add"]["stats"]) for a in actions if "add" in a):
            first, last = (
                datetime.fromisoformat(stats[which]["window_end"]).timestamp()
                for which in ("minValues", "maxValues")
            )
            for end in range(int(first), int(last) + 1):
                shown.setdefault(float(end), entry.stat().st_mtime)
    return shown


class Streaming:
    """Structured Streaming in a process of its own, a query a job."""

    def __init__(self, folder: Path, jobs: int, cores: int) -> None:
        self._told = folder / "windows.jsonl"
        log = (folder / "streaming.txt").open("w")
        words = ["benchmarks.load_streaming", str(folder), str(jobs), str(cores)]
        self._process = subprocess.Popen([sys.executable, "-m", *words], stdout=log, stderr=log)
        self.pid = self._process.pid

    def left(self, since: float, until: float) -> list[Left]:
        if not self._told.exists():
            return []
        lines = map(json.loads, self._told.read_text().splitlines())
        return [
            Left(end, at - end, 1.0) for end, at in ((o["end"], o["at"]) for o in lines)
            if since < end <= until
        ]  # fmt: skip

    def end(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(60)


def set_rate(path: Path, rate: int) -> None:
    new = path.with_suffix(".new")
    new.write_text(str(rate))
    new.rename(path)


@contextmanager
def writing(folder: Path, files: bool) -> Iterator[None]:
    """Servers in a process of their own; as `files`, with one for every moment."""
    set_rate(folder / "rate", 100)
    command = [sys.executable, "-m", "benchmarks.load_servers", str(folder), str(int(files))]
    servers = subprocess.Popen(command)
    try:
        yield
    finally:
        servers.terminate()
        servers.wait()


def measure(jobs: int, given: argparse.Namespace) -> list[Phase]:
    with tempfile.TemporaryDirectory(prefix="muntin-load-", dir=given.folder) as name:
        folder = Path(name)
        with writing(folder, given.streaming):
            kind = Streaming if given.streaming else Muntin
            contestant = kind(folder, jobs, given.cores)
            try:
                began = time.time()
                while not contestant.left(began, time.time()):
                    time.sleep(0.5)
                    if time.time() - began > _PATIENCE_SECONDS:
                        raise TimeoutError(f"no window has left within {_PATIENCE_SECONDS:.0f} s")
                load = Load(folder, contestant, jobs)
                load.run(given.step, given.seconds, given.over, given.first, given.rate)
            finally:
                contestant.end()
    return load.phases


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--jobs", type=int, nargs="+", default=[1, 20])
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=300.0, help="for which a rate is held")
    parser.add_argument("--step", type=float, default=20.0, help="seconds of a step of the search")
    parser.add_argument("--over", type=float, default=60.0, help="seconds of 1.5x and 2x")
    parser.add_argument("--first", type=int, default=_FIRST_RATE, help="records/s to begin with")
    parser.add_argument("--rate", type=int, help="records/s that are known to be held")
    parser.add_argument("--streaming", action="store_true", help="Structured Streaming")
    parser.add_argument("--folder", help="where logs and state are; best on a real disk")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args(arguments)
    told = {}
    for jobs in given.jobs:
        machine, began = cpu_of_machine(), time.time()
        print(f"{jobs} jobs, {'Structured Streaming' if given.streaming else 'Muntin'}", flush=True)
        told[jobs] = [asdict(phase) for phase in measure(jobs, given)]
        used = (cpu_of_machine() - machine) / (time.time() - began)
        print(f"all processes of the machine used {used:.1f} of {os.cpu_count()} cores", flush=True)
    if given.json is not None:
        given.json.write_text(json.dumps(told, indent=2) + "\n")


if __name__ == "__main__":
    main()
