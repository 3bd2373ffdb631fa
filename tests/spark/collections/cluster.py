"""Collections on executors of their own: a program that tells what Spark has measured, as JSON.

python -m tests.spark.collections.cluster FOLDER
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Thread
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

import muntin as mt
from muntin.collections.demand import Demand
from muntin.collections.groups import Group
from muntin.collections.keys import Selection
from muntin.spark.cluster import Cluster, Plan
from muntin.spark.collections import internals
from muntin.spark.collections.piece import Piece
from muntin.spark.settings import prepare_environment, settings_on
from tests.ask.keeping import Kept
from tests.ports import free_port
from tests.show.test_console import children
from tests.waiting import PATIENCE, wait_for

EXECUTORS = 3
PARTITIONS = 12
RECOVERY = 300  # seconds: for a loaded machine, and far from what it takes on another
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


# An aggregate that ends the executor it runs in, once.
MORTAL = """
import os, signal
from pathlib import Path

class Longest:
    returns = "VARCHAR"
    def zero(self): return ""
    def add(self, longest, text): return max(longest, text or "", key=lambda t: (len(t), t))
    def merge(self, a, b):
        end_executor_once()
        return self.add(a, b)
    def finish(self, longest): return longest

def end_executor_once():
    process = os.getpid()
    while process > 1:
        if b"CoarseGrainedExecutorBackend" in Path(f"/proc/{{process}}/cmdline").read_bytes():
            try:
                os.close(os.open({marker!r}, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                return
            os.kill(process, signal.SIGKILL)
            return
        status = Path(f"/proc/{{process}}/status").read_text()
        process = int(status.split("PPid:")[1].split()[0])
"""
PAST = """CREATE STREAM s (t BIGINT, k VARCHAR, s VARCHAR) FROM '{folder}/{{source}}.log'
FORMAT json TIMESTAMP t SLACK 1 SECOND; CREATE AGGREGATE longest AS PYTHON 'mortal:Longest';
CREATE JOB j AS SELECT k, longest(s) AS long, count(*) AS c FROM s GROUP BY k
WINDOW 1 MINUTE PANE 10 SECONDS RETAIN 1 DAY;
"""


def at(step: int) -> datetime:
    return NOON + step * timedelta(minutes=5)


@contextmanager
def cluster(folder: Path) -> Iterator[tuple[SparkSession, Cluster]]:
    """Executors of one host, so that Spark cannot tell them apart by that, of one core each."""
    there, plan = Cluster(folder), Plan(1, EXECUTORS, f"{512 * EXECUTORS}m", free_port())
    there.up(plan)
    prepare_environment()
    settings = settings_on(plan.master) | {
        "spark.executor.cores": "1",
        "spark.executor.memory": "512m",
        "spark.locality.wait": "20s",  # this machine may be slow
        "spark.task.maxFailures": "8",
        "spark.sql.shuffle.partitions": "4",
    }
    try:
        context = SparkContext(conf=SparkConf().setAll(list(settings.items())))
        session = SparkSession(context)
        wait_for(lambda: len(internals.executors(context)) == EXECUTORS)
        yield session, there
        session.stop()
    finally:
        there.down()


def numbers(session: SparkSession, rows: int, hot: int = 0) -> Any:
    """Keys 0 to 11, as many rows each; and `hot` rows more of key 0."""
    keys = session.range(rows).selectExpr(f"id % {PARTITIONS} AS key", "repeat('x', 100) AS text")
    return keys.union(session.range(hot).selectExpr("0L AS key", "repeat('x', 100) AS text"))


def held(collection: mt.Collection) -> dict[str, dict[int, list[str]]]:
    """By dataset and partition, who holds it."""
    return {name: holders_of(collection, piece) for name, piece in collection._pieces.items()}


def holders_of(collection: mt.Collection, piece: Piece) -> dict[int, list[str]]:
    """Waits until Spark has heard of all."""

    def known() -> dict[int, list[str]] | None:
        found = internals.holders(collection._context, piece.packs)
        return found if len(found) == PARTITIONS else None

    return wait_for(known) or {}


def facts(session: SparkSession, name: str, asked: Any) -> list[dict[str, Any]]:
    """Runs a question as a job group, and tells what Spark has measured of its tasks."""
    context = session.sparkContext
    context.setJobGroup(name, name)
    asked()
    found = wait_for(lambda: internals.facts(context, name))
    context.setJobGroup("others", "others")
    return [vars(each) for each in found]


def count(tables: dict[datetime, Any]) -> list[int]:
    return [sum(table.num_rows for table in tables.values())]


@dataclass(frozen=True)
class Held:
    """Counts as soon as a file is there; begins with a file that says so."""

    folder: Path

    def __call__(self, tables: dict[datetime, Any]) -> list[int]:
        (self.folder / f"begun-{os.getpid()}").touch()
        limit = time.monotonic() + PATIENCE
        while not self.released.exists() and time.monotonic() < limit:
            time.sleep(0.01)  # executors have no tests to wait with
        return count(tables)

    @property
    def released(self) -> Path:
        return self.folder / "released"

    @property
    def begun(self) -> int:
        """How many processes have begun."""
        return len(list(self.folder.glob("begun-*")))


def tell(session: SparkSession, there: Cluster, folder: Path) -> dict[str, Any]:
    notes: list[str] = []
    collection = mt.Collection(
        session,
        "numbers",
        key="key",
        bounds=list(range(1, PARTITIONS)),
        split_above="400 KB",
        merge_below="10 KB",
        newest=1,
        folder=folder / "kept",
        recovery=f"{RECOVERY} seconds",
        note=notes.append,
    )
    told: dict[str, Any] = {}
    for n in range(4):
        collection.add(at(n), numbers(session, 6000))
    told["homes"] = _told(collection)
    told["held"] = held(collection)
    told["cogroup"] = facts(session, "cogroup", lambda: collection.cogroup().count())
    told["union"] = facts(session, "union", lambda: collection.frame().where("key < 0").collect())
    told["rows"] = collection.between().per_group(count).sum()

    collection.add(at(4), numbers(session, 6000, hot=6000))  # 12 times as much of one key
    told["split"] = _told(collection)
    told["held after"] = held(collection)
    told["rows after"] = collection.between().per_group(count).sum()
    collection.add(at(5), numbers(session, 60))  # hardly anything
    told["merged"] = _told(collection)
    told["rows merged"] = collection.between().per_group(count).sum()
    collection.add(at(6), numbers(session, 6000))

    for _ in range(60):
        collection.tasks([], Selection(keys=(5,)))
    collection.tend()
    told["hot"] = _told(collection)
    hot = [
        facts(session, f"hot {n}", lambda: collection.keys(5).cogroup().count()) for n in range(8)
    ]
    told["hot facts"] = hot
    collection._places.demand = Demand(60.0)  # as if an hour had passed
    collection.tend()
    told["cold"] = _told(collection)

    told["expected"] = collection.between().per_group(count).sum()
    told.update(lose(session, collection, there, folder))
    told.update(ask(session, folder / "past"))
    told["notes"] = notes
    return told


def lose(
    session: SparkSession, collection: mt.Collection, there: Cluster, folder: Path
) -> dict[str, Any]:
    """Kills an executor in the middle of a question; tells its answer, and that of the next."""
    answers: list[int] = []
    held = Held(folder)
    asking = Thread(target=lambda: answers.append(collection.between().per_group(held).sum()))
    asking.start()
    homes = {each for homes in collection.homes.values() for each in homes}
    wait_for(lambda: held.begun >= len(homes))
    lost = collection.homes[collection.groups.leaves[0]][0]
    os.kill(_process_of(lost.id, there), signal.SIGKILL)
    held.released.touch()
    asking.join(PATIENCE)
    began = time.perf_counter()
    wait_for(lambda: lost not in internals.executors(session.sparkContext))
    collection._places._looked = -1e9
    again = collection.between().per_group(count).sum()
    seconds = time.perf_counter() - began
    return {
        "answer": answers,
        "again": again,
        "seconds": seconds,
        "bound": max(collection.lineage.recovery.values()),
        "lost": lost.id,
        "after": _told(collection),
    }


def ask(session: SparkSession, folder: Path) -> dict[str, Any]:
    """Asks about the past while the executor of a task is killed; tells the same of here."""
    marker = folder / "killed"
    folder.mkdir()
    (folder / "mortal.py").write_text(MORTAL.format(marker=str(marker)))
    (folder / "program.sql").write_text(PAST.format(folder=folder))
    for source in "ab":
        rows = ({"t": 36_000 + n, "k": "xyz"[n % 3], "s": source * (n % 17)} for n in range(600))
        (folder / f"{source}.log").write_text("".join(json.dumps(row) + "\n" for row in rows))
    Kept(mt.load(folder / "program.sql"), folder / "state", batch_bytes=3_000).finish(3)
    question = "SELECT k, long, c FROM j GROUP BY k BETWEEN '10:01' AND '10:08' ORDER BY k"
    here = mt.ask(question, state=folder / "state")
    before = marker.exists()
    there = mt.ask(question, state=folder / "state", spark=session)
    return {
        "past here": here.rows.to_pylist(),
        "past there": there.rows.to_pylist(),
        "killed": [before, marker.exists()],
    }


def _process_of(executor: str, there: Cluster) -> int:
    """The process of an executor of the cluster's worker."""
    up = json.loads((there.folder / "cluster.json").read_text())
    for pid in children(up["processes"]["worker-1"]["pid"]):
        words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
        if words[words.index("--executor-id") + 1] == executor:
            return pid
    raise LookupError(executor)


def _told(collection: mt.Collection) -> dict[str, list[str]]:
    return {
        f"{group.lower}-{group.upper}": [home.id for home in homes]
        for group, homes in collection.homes.items()
    }


def group_of(text: str) -> Group:
    lower, upper = text.split("-")
    return Group(int(lower), int(upper))


if __name__ == "__main__":
    place = Path(sys.argv[1])
    with cluster(place / "cluster") as (running, started):
        print(json.dumps(tell(running, started, place)))
