"""What agents cost and save: speed, memory, bytes shipped, lag of many, and a shipper beside one.

    python -m benchmarks.agents           # all of it, about ten minutes
    python -m benchmarks.agents speed     # one question of: speed, idle, shipper, many, shedding

The pipeline runs in this process, without Spark. Agents are processes of their own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import mean, quantiles
from threading import Event, Thread

from pyarrow import flight

from benchmarks.shop import FILE, Shop, write_shop
from muntin.language.program import sql
from muntin.run.agents import Agents, PullWork
from muntin.run.contracts import Batch, Request
from muntin.run.inline import InlineRun
from muntin.run.loop import Rules
from muntin.run.results import Result
from muntin.units import moment

TOP = (
    "CREATE JOB top AS SELECT product, sum(clicks) AS clicks FROM shop WHERE store = 'video_games' "
    "GROUP BY product ORDER BY clicks DESC LIMIT 10 WINDOW {window};"
)
CLAUSES = {"format": "json", "timestamp": "ts", "slack": "10 SECONDS"}
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass
class AgentBeside:
    """`muntin agent` for a folder, and what it has used."""

    name: str
    folder: Path
    options: Mapping[str, str] = field(default_factory=dict)
    core: int | None = None
    address: str = "127.0.0.1:0"

    def __enter__(self) -> AgentBeside:
        clauses = "\n".join(f"{key} = '{text}'" for key, text in CLAUSES.items())
        settings = self.folder / "agent.toml"
        settings.write_text(f"[streams.shop]\npaths = '{self.folder}/*.jsonl'\n{clauses}\n")
        options = {
            "--name": self.name,
            "--config": str(settings),
            "--state": str(self.folder / "state"),
            "--listen": self.address,
            "--nice": "0",
            **self.options,
        }
        words = [word for option in options.items() for word in option]
        on = [] if self.core is None else ["taskset", "-c", str(self.core)]
        self.process = subprocess.Popen(
            [*on, sys.executable, "-m", "muntin", "agent", *words],
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "COLUMNS": "200"},
        )
        assert self.process.stderr is not None
        told = self.process.stderr.readline()
        self.address = told.split("listens at ")[1].split(";")[0]
        self.started = self.cpu  # seconds that it took to start
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait()

    @property
    def cpu(self) -> float:
        """Seconds of CPU time so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    @property
    def most_memory(self) -> int:
        """Resident bytes, at the most so far."""
        return self._told("status")["VmHWM:"]

    @property
    def memory(self) -> str:
        """What is resident now, and whose it is: files of libraries are shared with others."""
        told = self._told("smaps_rollup")
        own = told["Private_Dirty:"]
        alone = own + told["Private_Clean:"]
        sizes = [size / 1e6 for size in (told["Rss:"], told["Pss:"], alone, own)]
        return "{:.0f} MB resident ({:.0f} Pss, {:.0f} Uss, {:.0f} of it written)".format(*sizes)

    def _told(self, file: str) -> dict[str, int]:
        """Sizes in a file that the kernel has of the process, in bytes."""
        lines = Path(f"/proc/{self.process.pid}/{file}").read_text().splitlines()
        return {
            line.split()[0]: int(line.split()[1]) << 10 for line in lines if line.endswith("kB")
        }


class Counting(Agents):
    """Agents, and how many bytes were fetched from them."""

    fetched = 0

    def next(self, request: Request) -> Batch:
        batch = super().next(request)
        if isinstance(batch.work, PullWork):
            self.fetched += batch.bytes
        return batch


class Pipeline:
    """A run in this process that fetches from agents."""

    def __init__(self, addresses: list[str], job: str, idle: float = 10.0) -> None:
        places = ", ".join(map(repr, addresses))
        program = sql(f"CREATE STREAM shop FROM AGENTS {places}; {job}")
        (stream,) = program.streams.values()
        self.intake = Counting(stream, "benchmark")
        rules = Rules(True, idle)
        self._run = InlineRun(stream, list(program.jobs.values()), rules, intake=self.intake)
        self.results: list[tuple[float, Result]] = []  # with the time when they left

    def turn(self) -> None:
        now = time.time()
        self.results += [(time.time(), result) for result in self._run.turn(now).results()]

    @property
    def records(self) -> int:
        return self._run.loop.progress.records

    def close(self) -> None:
        self.intake.close()


@contextmanager
def read(records: int, core: int | None = 0) -> Iterator[tuple[AgentBeside, Pipeline, int, float]]:
    """An agent that has read a log of so many records to its end, and how long that took."""
    with tempfile.TemporaryDirectory() as made:
        size = write_shop(Path(made), Shop(records=records, servers=1, hours=records / 2e6))
        folder = Path(made) / "web-1"
        with AgentBeside("web-1", folder, core=core) as agent:
            pipeline = Pipeline([agent.address], TOP.format(window="1 MINUTE"))
            started = time.monotonic()
            while pipeline.records < records:
                pipeline.turn()
                time.sleep(0.02)
            yield agent, pipeline, size, time.monotonic() - started
            pipeline.close()


def speed(records: int = 4_000_000) -> None:
    """One agent on one core, for the top products of each minute."""
    with read(records) as (agent, pipeline, size, seconds):
        shipped = pipeline.intake.fetched
        print(f"speed: {size / 1e6:.0f} MB in {seconds:.2f} s, {size / seconds / 1e6:.0f} MB/s")
        reading = size / (agent.cpu - agent.started) / 1e6
        print(f"  by its CPU time {size / agent.cpu / 1e6:.0f} MB/s; at least 200 wanted")
        print(f"  without its start, of {agent.started:.1f} s, {reading:.0f} MB/s")
        print(f"  shipped {shipped / 1e6:.2f} MB, {shipped / size:.2%}; below 1 % wanted")
        print(f"  at most {agent.most_memory / 1e6:.0f} MB resident; at most 250 wanted")
        follow(pipeline, 3.0)
        print(f"  when all is read, {agent.memory}")


def idle(seconds: float = 20.0) -> None:
    """An agent that has nothing to do, with a pipeline that looks at it."""
    with read(1000, core=None) as (agent, pipeline, _, _):
        for _ in range(30):
            pipeline.turn()
            time.sleep(0.1)
        before, started = agent.cpu, time.monotonic()
        while time.monotonic() - started < seconds:
            pipeline.turn()
            time.sleep(0.1)
        share = (agent.cpu - before) / (time.monotonic() - started)
        print(f"idle: {share:.1%} of a core, below 1 % wanted; {agent.memory}, 130 wanted")


class _Sink(flight.FlightServerBase):  # type: ignore[misc]  # pyarrow has no types
    """Takes lines, and counts their bytes."""

    bytes = 0

    def do_put(self, context: object, descriptor: object, reader: object, writer: object) -> None:
        for chunk in reader:  # type: ignore[attr-defined]
            self.bytes += sum(map(len, chunk.data.column(0).to_pylist()))


_SHIPPER = """
import sys, pyarrow as pa
from pyarrow import flight
client = flight.connect(f"grpc+tcp://{sys.argv[1]}")
schema = pa.schema([("lines", pa.binary())])
writer, _ = client.do_put(flight.FlightDescriptor.for_path("lines"), schema)
with open(sys.argv[2], "rb") as file:
    while text := b"".join(file.readlines(1 << 20)):
        writer.write_batch(pa.record_batch([pa.array([text], pa.binary())], schema))
writer.close()
"""


def shipper(records: int = 2_000_000) -> None:
    """The same log sent line by line over Flight: what that costs on the server."""
    with read(records) as (agent, pipeline, size, _):
        mine, shipped = agent.cpu, pipeline.intake.fetched
    with tempfile.TemporaryDirectory() as made:
        write_shop(Path(made), Shop(records=records, servers=1, hours=records / 2e6))
        sink = _Sink("grpc+tcp://127.0.0.1:0")
        before = os.times()
        path = str(Path(made) / "web-1" / FILE)
        where = f"127.0.0.1:{sink.port}"
        subprocess.run([sys.executable, "-c", _SHIPPER, where, path], check=True)
        after = os.times()
        sink.shutdown()
    theirs = after.children_user + after.children_system
    theirs -= before.children_user + before.children_system
    print(
        f"shipper: of {size / 1e6:.0f} MB an agent sends {shipped / 1e6:.2f} MB with {mine:.1f} s"
    )
    print(
        f"  of CPU; sending lines {sink.bytes / 1e6:.0f} MB with {theirs:.1f} s, and then somebody"
    )
    print(f"  else has to parse them: {sink.bytes / max(1, shipped):.0f}x the bytes")


class Writers:
    """Servers that write so many records a second each, from a thread of this process."""

    def __init__(self, folders: list[Path], rate: int) -> None:
        self._folders = folders
        self._rate = rate
        self._stop = Event()
        self._thread = Thread(target=self._write)

    def __enter__(self) -> Writers:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _write(self) -> None:
        files = [(folder / "live.jsonl").open("a") for folder in self._folders]
        number = 0
        while not self._stop.wait(0.1):
            for file in files:
                number += 1
                file.write(_line(time.time(), number) * (self._rate // 10))
                file.flush()
        for file in files:
            file.close()


def _line(at: float, number: int) -> str:
    told = moment(int(at * 1e6)).isoformat()
    event = {"ts": told, "product": f"p{number % 500}", "store": "video_games", "clicks": 1}
    return json.dumps(event) + "\n"


def many(agents: int = 50, rate: int = 50, seconds: float = 60.0) -> None:
    """Many agents on this machine into one pipeline; some are killed and come back."""
    CLAUSES["slack"] = "100 MILLISECONDS"
    with tempfile.TemporaryDirectory() as made:
        folders = [Path(made) / f"web-{n:02}" for n in range(agents)]
        for folder in folders:
            folder.mkdir()
            (folder / "live.jsonl").write_text(_line(time.time(), 0))
        running = [AgentBeside(folder.name, folder).__enter__() for folder in folders]
        try:
            pipeline = Pipeline([a.address for a in running], TOP.format(window="1 SECOND"))
            with Writers(folders, rate):
                _settle(pipeline, agents)
                follow(pipeline, seconds)
                _tell_lags(f"many: {agents} agents with {rate} records/s", pipeline.results)
                killed = running[:5]
                for agent in killed:
                    agent.process.kill()
                    agent.process.wait()
                follow(pipeline, 3.0)
                began = time.time()
                for agent in killed:
                    agent.__enter__()
                pipeline.results.clear()
                while not any(r.c2.sources == agents and r.c2.area == 1.0
                              and r.start / 1e6 > began for _, r in pipeline.results):  # fmt: skip
                    follow(pipeline, 0.5)
                    if time.time() - began > 60:
                        break
                print(f"  five that were killed are back after {time.time() - began:.1f} s")
            pipeline.close()
        finally:
            for agent in running:
                agent.__exit__()


def _settle(pipeline: Pipeline, agents: int, most: float = 240.0) -> None:
    """Follows until everything has been loaded everywhere, and windows leave soon after their end.

    So many processes that start at once take minutes of this machine's time.
    """
    until = time.monotonic() + most
    while time.monotonic() < until:
        pipeline.results.clear()
        follow(pipeline, 5.0)
        recent = [(left - r.end / 1e6, r.c2.sources) for left, r in pipeline.results]
        if len(recent) >= 4 and all(lag < 2 and count == agents for lag, count in recent):
            break
    pipeline.results.clear()


def follow(pipeline: Pipeline, seconds: float, pause: float = 0.02) -> None:
    """Makes turns for so long."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        pipeline.turn()
        time.sleep(pause)


def _tell_lags(what: str, results: list[tuple[float, Result]]) -> None:
    lags = [left - result.end / 1e6 for left, result in results]
    cuts = quantiles(lags, n=100)
    area = mean(result.c2.area for _, result in results)
    print(f"{what}: {len(lags)} windows of a second, lag {cuts[49]:.2f} s, p99 {cuts[98]:.2f} s")
    print(f"  (below 1 s wanted), area {area:.1%}")


_BURN = "import time\nwhile True:\n    sum(range(1_000_000))\n"


def shedding(seconds: float = 40.0) -> None:
    """An agent that shares its core with others, with and without shedding."""
    rows = []
    for burners in (0, 1, 3, 7):
        for bound in ("", " WITHIN 4 SECONDS"):
            with tempfile.TemporaryDirectory() as made:
                rows.append(_pressed(Path(made), burners, bound, seconds))
    for row in rows:
        print(f"shedding: {row}")


def _pressed(folder: Path, burners: int, bound: str, seconds: float) -> str:
    """How complete results are, and how late, while others burn the agent's core."""
    rate = 250_000
    CLAUSES["slack"] = "100 MILLISECONDS"
    (folder / "live.jsonl").write_text(_line(time.time(), 0))
    others: list[subprocess.Popen[bytes]] = []
    with AgentBeside("web-1", folder, core=0) as agent:
        window = f"4 SECONDS PANE 1 SECOND{bound}"
        pipeline = Pipeline([agent.address], TOP.format(window=window), idle=60)
        try:
            with Writers([folder], rate):
                follow(pipeline, 3.0)
                on_core = ["taskset", "-c", "0", sys.executable, "-c", _BURN]
                others += [subprocess.Popen(on_core) for _ in range(burners)]
                follow(pipeline, seconds)
        finally:
            for other in others:
                other.kill()
                other.wait()
        pipeline.close()
    ended = datetime.now(UTC) - timedelta(seconds=seconds / 2)
    late = [(at, r) for at, r in pipeline.results if r.end / 1e6 > ended.timestamp()]
    what = f"{burners} burners{bound or ' without a bound'}: {len(late)} windows"
    if not late:
        return f"{what} left in the second half, so there is no area and no lag"
    lags, areas = [at - r.end / 1e6 for at, r in late], [r.c2.area for _, r in late]
    shed = mean(any(m.why == "shed" for m in r.c2.missing) for _, r in late)
    return (
        f"{what}, area {mean(areas):.0%} ({min(areas):.0%} to {max(areas):.0%}), lag "
        f"{mean(lags):.1f} s, at most {max(lags):.2f} s; {shed:.0%} of them have something shed"
    )


QUESTIONS: dict[str, Callable[[], None]] = {
    "speed": speed,
    "idle": idle,
    "shipper": shipper,
    "many": many,
    "shedding": shedding,
}

if __name__ == "__main__":
    for name in sys.argv[1:] or QUESTIONS:
        QUESTIONS[name]()
