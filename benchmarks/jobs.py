"""What more jobs cost: run time and lag of 1, 10, 100 and 1,000 on one stream and the same cores.

    python -m benchmarks.jobs                      # run time, mixed jobs and one template
    python -m benchmarks.jobs run --jobs 1,100     # some of it
    python -m benchmarks.jobs lag                  # logs that grow while they are followed
    python -m benchmarks.jobs windows              # an hour every second against every minute
    python -m benchmarks.jobs streaming            # as many Structured Streaming queries

Mixed jobs have other filters, keys, aggregates and windows; those of the template differ in one
constant. Ratios are to one job of the same kind, in the same process, and the best run counts.
"""

from __future__ import annotations

import argparse
import random
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import quantiles
from threading import Event, Thread

from pyspark import SparkContext
from rich.console import Console
from rich.table import Table

import muntin
from benchmarks.processes import cpu_of_tree
from benchmarks.shop import COLUMNS, FILE, START, Shop, write_shop
from muntin.spark.context import start_context
from muntin.spark.runner import Settings, SparkRun

AT_MOST = {100: 5.0, 1000: 25.0}  # times one job
WINDOWS_AT_MOST = 3.0
_KEYS = ("store", "event", "server", "product", "server, event", "store, event")
_AGGREGATES = (
    "count(*) AS events",
    "sum(clicks) AS clicks",
    "avg(price) AS price",
    "max(latency_ms) AS slowest",
    "min(price) AS cheapest",
)
_STORES = ("books", "garden", "video_games", "kitchen", "music", "sports", "toys", "clothes")
_EVENTS = ("view", "search", "cart", "buy")
_WINDOWS = (
    "1 MINUTE",
    "5 MINUTES",
    "10 MINUTES EVERY 1 MINUTE",
    "1 HOUR EVERY 5 MINUTES",
    "30 SECONDS",
)
_LIVE = ("2 SECONDS", "5 SECONDS", "10 SECONDS EVERY 2 SECONDS")
_HOURLY = {
    "an hour every minute": "1 HOUR EVERY 1 MINUTE",
    "an hour every second": "1 HOUR EVERY 1 SECOND",
}

_out = Console(highlight=False)


@dataclass(frozen=True)
class Query:
    """One job: what is selected, under which filter, by which keys."""

    keys: str
    aggregates: tuple[str, ...]
    where: str
    window: str

    @property
    def sql(self) -> str:
        top = "ORDER BY 2 DESC LIMIT 10" if self.keys == "product" else ""
        where = f"WHERE {self.where}" if self.where else ""
        return (
            f"SELECT {self.keys}, {', '.join(self.aggregates)} FROM shop {where} "
            f"GROUP BY {self.keys} {top} WINDOW {self.window}"
        )


def mixed(count: int, windows: Sequence[str] = _WINDOWS) -> list[Query]:
    """Jobs of which hardly two are alike; the first few are so for any count."""
    chance = random.Random(16)
    queries = []
    for number in range(count):
        keys = _KEYS[number % len(_KEYS)]
        first = chance.randrange(len(_AGGREGATES))
        some = tuple(_AGGREGATES[(first + i) % len(_AGGREGATES)] for i in range(1 + number % 3))
        conditions = [
            f"store = '{chance.choice(_STORES)}'",
            f"event = '{chance.choice(_EVENTS)}'",
            f"latency_ms > {chance.randrange(50, 400, 10)}",
            f"clicks >= {chance.randrange(1, 5)}",
            f"price < {chance.randrange(10, 90)}",
            f"product LIKE 'p0%{chance.randrange(10)}'",
        ]
        where = " AND ".join(chance.sample(conditions, chance.randrange(3)))
        queries.append(Query(keys, some, where, windows[number % len(windows)]))
    return queries


def template(count: int, windows: Sequence[str] = _WINDOWS) -> list[Query]:
    """The same question of one product after another."""
    some = ("count(*) AS events", "sum(clicks) AS clicks", "max(latency_ms) AS slowest")
    return [Query("server", some, f"product = 'p{n:05}'", windows[0]) for n in range(count)]


SETS: dict[str, Callable[..., list[Query]]] = {"mixed": mixed, "template": template}


def program(folder: Path, queries: Sequence[Query], slack: str = "") -> muntin.Program:
    columns = ", ".join(f'"{name}" {kind}' for name, kind in COLUMNS.items())
    jobs = "".join(f"CREATE JOB job_{n} AS {q.sql};\n" for n, q in enumerate(queries))
    return muntin.sql(
        f"CREATE STREAM shop ({columns}) FROM '{folder}/{{source}}/{FILE}' "
        f"FORMAT json TIMESTAMP ts {slack};\n{jobs}"
    )


def timed(context: SparkContext, asked: muntin.Program, state: Path) -> tuple[float, float]:
    """Seconds of the clock, and of CPU in all processes: others may use the machine too."""
    shutil.rmtree(state, ignore_errors=True)
    started, cpu = time.perf_counter(), cpu_of_tree()
    for _ in SparkRun(asked, context, Settings(state, follow=False)).turns():
        pass
    return time.perf_counter() - started, cpu_of_tree() - cpu


def run(context: SparkContext, folder: Path, given: argparse.Namespace) -> None:
    """From the first byte to the last commit, and the time to read and check the SQL."""
    size = write_shop(folder / "logs", Shop(records=given.records))
    _out.print(f"{given.records:,} records, {size / 1e6:,.0f} MB")
    for name in given.sets:
        table = Table(
            "jobs", "seconds", "times one", "CPU", "times one", "at most", "SQL checked in",
            title=name,
        )  # fmt: skip
        one = (0.0, 0.0)
        for count in given.jobs:
            started = time.perf_counter()
            asked = program(folder / "logs", SETS[name](count))
            checked = time.perf_counter() - started
            repeat = given.repeat if count < 1000 else 1
            if count == given.jobs[0]:
                timed(context, asked, folder / "state")  # to get warm
            runs = [timed(context, asked, folder / "state") for _ in range(repeat)]
            best = min(wall for wall, _ in runs), min(cpu for _, cpu in runs)
            one = one if any(one) else best
            wanted = f"{AT_MOST[count]:.0f}" if count in AT_MOST else ""
            told = [text for each, first in zip(best, one, strict=True)
                    for text in (f"{each:.2f}", f"{each / first:.1f}")]  # fmt: skip
            table.add_row(f"{count:,}", *told, wanted, f"{checked:.1f} s")
        _out.print(table)


def windows(context: SparkContext, folder: Path, given: argparse.Namespace) -> None:
    """Top 10 of 10,000 products in an hour, every minute and every second."""
    write_shop(folder / "logs", Shop(records=given.records))
    best: dict[str, tuple[float, float]] = {}
    for _ in range(given.repeat + 1):
        for name, window in _HOURLY.items():
            query = Query("product", ("sum(clicks) AS clicks",), "", window)
            took = timed(context, program(folder / "logs", [query]), folder / "state")
            best[name] = min(took, best.get(name, took))
    for name, (wall, cpu) in best.items():
        _out.print(f"{name}: {wall:.2f} s, {cpu:.2f} s of CPU")
    minute, second = best.values()
    _out.print(
        f"{second[0] / minute[0]:.1f} times, {second[1] / minute[1]:.1f} times the CPU; at most "
        f"{WINDOWS_AT_MOST:.0f} wanted"
    )


def lag(context: SparkContext, folder: Path, given: argparse.Namespace) -> None:
    """How long after their end windows leave while logs are followed, from the tenth second on."""
    for name in given.sets:
        table = Table("jobs", "windows", "lag p50", "p99", "batches/s", title=f"{name}, live")
        for count in given.jobs:
            logs, state = folder / f"live-{name}-{count}", folder / f"state-{name}-{count}"
            asked = program(logs, SETS[name](count, _LIVE), "SLACK 200 MILLISECONDS")
            lags: list[float] = []
            with Writer(logs, given.rate):
                begun, batches = time.monotonic(), 0
                warm = begun + 10.0 + count / 50
                for turn in SparkRun(asked, context, Settings(state, follow=True)).turns():
                    if time.monotonic() < warm:
                        continue
                    batches += bool(turn.bytes)
                    now = time.time()
                    for left in turn.emission.windows:
                        lags += [now - left.bounds(kind)[1] / 1e6 for kind in left.counts]
                    if time.monotonic() - warm > given.seconds:
                        break
            cuts = quantiles(lags, n=100) if len(lags) > 1 else [float("nan")] * 99
            table.add_row(
                f"{count:,}",
                f"{len(lags):,}",
                f"{cuts[49]:.2f} s",
                f"{cuts[98]:.2f} s",
                f"{batches / given.seconds:.1f}",
            )
            _out.print(table)


class Writer:
    """Four servers of the shop that write so many records a second in all, as of now."""

    def __init__(self, folder: Path, rate: int) -> None:
        scratch = folder / "written"
        write_shop(scratch, Shop(records=100_000, servers=4, hours=100_000 / rate / 3600))
        self._lines = [list(_lines(path)) for path in sorted(scratch.glob(f"*/{FILE}"))]
        shutil.rmtree(scratch)
        self._files = [folder / f"web-{n + 1}" / FILE for n in range(len(self._lines))]
        self._rate = rate
        self._stop = Event()
        self._thread = Thread(target=self._write, daemon=True)

    def __enter__(self) -> Writer:
        for path in self._files:
            path.parent.mkdir(parents=True)
            path.touch()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _write(self) -> None:
        begun, each, written = time.time(), self._rate / len(self._files), 0
        while not self._stop.wait(0.05):
            upto = int((time.time() - begun) * each)
            for path, lines in zip(self._files, self._lines, strict=True):
                now = [
                    line.replace(b"@", _stamp(begun + n / each), 1)
                    for n in range(written, upto)
                    for line in (lines[n % len(lines)],)
                ]
                with path.open("ab") as file:
                    file.write(b"".join(now))
            written = upto


def _stamp(at: float) -> bytes:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ").encode()


def _lines(path: Path) -> Iterator[bytes]:
    """The lines of a log, with @ in place of their time."""
    for line in path.read_bytes().splitlines(keepends=True):
        start = line.index(f"{START.year}-".encode())
        yield line[:start] + b"@" + line[line.index(b'"', start) :]


def streaming(context: SparkContext, folder: Path, given: argparse.Namespace) -> None:
    """The same mixed jobs as that many queries, all at once, over the same files."""
    context.stop()
    from benchmarks.pyspark_batch import SCHEMA, SETTINGS, start_plain_session
    from benchmarks.structured_streaming import STREAMING_SETTINGS, WATERMARK, stage

    write_shop(folder / "logs", Shop(records=given.records))
    stage(folder / "logs", folder / "input")
    session = start_plain_session(given.cores, SETTINGS | STREAMING_SETTINGS)
    table = Table("queries", "seconds", "times one", title="Structured Streaming, mixed")
    one = 0.0
    for count in given.jobs:
        started = time.perf_counter()
        records = session.readStream.schema(SCHEMA).json(f"{folder}/input/*/{FILE}")
        records.withWatermark("ts", WATERMARK).createOrReplaceTempView("shop")
        running = []
        for number, query in enumerate(mixed(count)):
            # A top 10 of each window needs a second query over the first's rows: left out here.
            output = folder / f"out-{count}-{number}"
            writer = session.sql(_plain_sql(query)).writeStream.outputMode("append")
            writer = writer.trigger(availableNow=True).format("parquet")
            writer = writer.option("checkpointLocation", str(output / "checkpoint"))
            running.append(writer.option("path", str(output / "rows")).start())
        until = started + given.patience
        in_time = all(e.awaitTermination(max(1, int(until - time.perf_counter()))) for e in running)
        took = time.perf_counter() - started
        if not in_time:
            table.add_row(f"{count:,}", f"not within {given.patience:.0f}", "")
            break
        one = one or took
        table.add_row(f"{count:,}", f"{took:.1f}", f"{took / one:.1f}")
        _out.print(table)
    _out.print(table)
    for each in session.streams.active:
        each.stop()
    session.stop()


def _plain_sql(query: Query) -> str:
    """The query as Spark's SQL says it."""
    extent, _, slide = query.window.partition(" EVERY ")
    bounds = ", ".join(f"'{each.lower()}'" for each in (extent, slide) if each)
    where = f"WHERE {query.where}" if query.where else ""
    return (
        f"SELECT window.start AS window_start, {query.keys}, {', '.join(query.aggregates)} "
        f"FROM shop {where} GROUP BY window(ts, {bounds}), {query.keys}"
    )


QUESTIONS = {"run": run, "lag": lag, "windows": windows, "streaming": streaming}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("questions", nargs="*", metavar="question", help=", ".join(QUESTIONS))
    parser.add_argument("--records", type=int, default=Shop.records)
    parser.add_argument("--jobs", default="1,10,100,1000")
    parser.add_argument("--sets", default="mixed,template")
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=2)
    parser.add_argument("--rate", type=int, default=2000, help="records a second, of live logs")
    parser.add_argument(
        "--patience", type=float, default=300.0, help="seconds that queries of Spark may take"
    )
    parser.add_argument("--seconds", type=float, default=20.0, help="that live logs are measured")
    given = parser.parse_args()
    given.jobs = [int(count) for count in given.jobs.split(",")]
    given.sets = given.sets.split(",")
    context = start_context(f"local[{given.cores}]")
    for name in given.questions or ["run"]:
        with tempfile.TemporaryDirectory(prefix="muntin-bench-") as folder:
            QUESTIONS[name](context, Path(folder), given)
    context.stop()


if __name__ == "__main__":
    main()
