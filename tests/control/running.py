"""A program that runs in this process, without Spark: its service, and its results stored."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

import httpx

import muntin as mt
from muntin.control.access import Access
from muntin.control.address import Address
from muntin.control.feed import Feed
from muntin.control.service import serving
from muntin.run.door import Door
from muntin.run.inline import InlineRun
from muntin.run.loop import Rules
from muntin.run.results import Emission, no_windows
from muntin.store.hold import StateHold, locked
from muntin.store.results import Results
from tests.waiting import wait_for

if TYPE_CHECKING:
    from pyspark import SparkContext

SQL = """
CREATE STREAM clicks (ts TIMESTAMPTZ, product VARCHAR, n BIGINT)
FROM '{folder}/logs/{{source}}.jsonl' FORMAT json TIMESTAMP ts;
CREATE JOB sums AS SELECT product, sum(n) AS n FROM clicks GROUP BY product ORDER BY product
WINDOW 1 SECOND;
"""
START = 1_772_366_400  # 2026-03-01 12:00:00


@dataclass
class Running:
    """A program that follows logs, and a client of its service."""

    folder: Path
    state: Path
    door: Door
    feed: Feed
    address: Address
    client: httpx.Client
    told: list[str] = field(default_factory=list)
    stop: Event = field(default_factory=Event)

    def write(self, *seconds: int, product: str = "pen", source: str = "web") -> None:
        """Adds a record of a product for each of the seconds after noon, n is the second."""
        with (self.folder / "logs" / f"{source}.jsonl").open("a") as file:
            for second in seconds:
                at = datetime.fromtimestamp(START + second, UTC).isoformat()
                file.write(json.dumps({"ts": at, "product": product, "n": second}) + "\n")

    def results(self, job: str, window: str = "all") -> list[dict[str, Any]]:
        answer = self.client.get(f"/jobs/{job}/results", params={"window": window})
        assert answer.status_code == 200, answer.text
        found: list[dict[str, Any]] = answer.json()["results"]
        return found

    def post(self, path: str, **body: Any) -> httpx.Response:
        return self.client.post(path, json=body)


@contextmanager
def running(folder: Path, access: Access | None = None, sql: str = SQL) -> Iterator[Running]:
    """Runs until the block ends; results of an earlier run in the folder are gone on with."""

    def turns(program: mt.Program, told: Running, _: StateHold) -> Iterator[Emission]:
        (stream,) = program.streams.values()
        jobs, stored = program.jobs_of(stream.name), _Stored(told.state)
        run = InlineRun(stream, jobs, Rules(True, 3600), door=told.door)
        while not told.stop.is_set():
            emission = run.turn(time.time())
            stored.write(emission)
            yield emission
            told.door.rest(0.02, told.stop)
        told.door.close()

    with _running(folder, access or Access(), sql, turns) as told:
        yield told


@contextmanager
def running_on_spark(folder: Path, context: SparkContext) -> Iterator[Running]:
    """The same on Spark."""
    from muntin.spark.runner import Settings, SparkRun

    def turns(program: mt.Program, told: Running, hold: StateHold) -> Iterator[Emission]:
        settings = Settings(told.state, True, 3600)
        run = SparkRun(program, context, settings, told.stop, hold=hold, door=told.door)
        for turn in run.turns():
            yield turn.emission

    with _running(folder, Access(), SQL, turns) as told:
        yield told


Turns = Callable[[mt.Program, Running, StateHold], Iterator[Emission]]


@contextmanager
def _running(folder: Path, access: Access, sql: str, turns: Turns) -> Iterator[Running]:
    (folder / "logs").mkdir(exist_ok=True)
    (folder / "logs" / "web.jsonl").touch()
    state = folder / "state"
    program = mt.sql(sql.format(folder=folder))
    door, feed = Door(), Feed(state)
    with locked(state) as hold, serving(access, door, feed, state) as address:
        headers = {} if access.token is None else {"authorization": f"Bearer {access.token}"}
        with httpx.Client(base_url=address.url, headers=headers, timeout=60) as client:
            told = Running(folder, state, door, feed, address, client)

            def run() -> None:
                for emission in turns(program, told, hold):
                    feed.take(emission)

            thread = Thread(target=run)
            thread.start()
            try:
                wait_for(lambda: client.get("/jobs").status_code != 503)
                yield told
            finally:
                told.stop.set()
                thread.join()


class _Stored:
    """Result tables, written as a journal does."""

    def __init__(self, state: Path) -> None:
        self._results = Results(state)
        self._batch = time.time_ns()

    def write(self, emission: Emission) -> None:
        rows: dict[str, list[Any]] = {}
        for windows in emission.windows:
            self._results.prepare({windows.job.title: no_windows(windows.job).table().schema})
            rows.setdefault(windows.job.title, []).extend(windows.tables())
        self._batch += 1
        files = self._results.write(self._batch, rows)
        self._results.publish("writer", self._batch, files)


def events(lines: Iterator[str], count: int) -> list[dict[str, Any]]:
    """The next so many results of a stream of events."""
    found: list[dict[str, Any]] = []
    for line in lines:
        if line.startswith("data: ") and '"rows"' in line:
            found.append(json.loads(line.removeprefix("data: ")))
        if len(found) == count:
            break
    return found


def sums(results: Sequence[dict[str, Any]]) -> list[tuple[str, str, int]]:
    """When windows start, and what was counted in them."""
    return [(r["start"][17:19], row["product"], row["n"]) for r in results for row in r["rows"]]
