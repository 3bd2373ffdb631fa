"""Partials merged by executor before they are sent: fewer bytes, and everything else the same."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark import SparkConf

import muntin as mt
from muntin.collections.homes import Executor
from muntin.errors import BlockError, StartError
from muntin.kernel.block import Block
from muntin.kernel.clocks import Clocks
from muntin.kernel.compute import Recipe, compute
from muntin.kernel.due import Due
from muntin.kernel.reading import Reading
from muntin.model.records import POSITION
from muntin.run.catalog import Catalog
from muntin.run.contracts import Delivery, Task
from muntin.spark.cluster import Cluster, Plan
from muntin.spark.collection import SparkCollection
from muntin.spark.combining import SPEED, Slots, merging, network_speed
from muntin.spark.holdings import TELLING, Held, Holding, Shapes
from muntin.spark.policies import ByExecutor
from muntin.spark.runner import Settings, SparkRun
from tests.effort import examples
from tests.oracle import Record, write_logs
from tests.ports import free_port
from tests.spark.test_sessions import results_of, sources
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STREAM = "CREATE STREAM logs (t BIGINT, k VARCHAR, s VARCHAR, n BIGINT) FROM '{}/{{source}}.jsonl' "
JOBS = (
    "CREATE JOB sums AS SELECT k, count(*) AS c, sum(n) AS n, count(DISTINCT n) AS d FROM logs "
    "GROUP BY k WINDOW 1 MINUTE EVERY 10 SECONDS; "
    "CREATE JOB top AS SELECT k, max(n) AS n FROM logs GROUP BY k ORDER BY n DESC, k LIMIT 2 "
    "WINDOW 20 SECONDS; "
    "CREATE JOB visits AS SELECT k, count(*) AS c, list(n ORDER BY n LIMIT 2) AS l FROM logs "
    "GROUP BY k WINDOW SESSION 10 SECONDS; "
    "CREATE JOB counted AS PYTHON 'tests.python_jobs:Sums' FROM logs WINDOW 1 MINUTE;"
)


class Merging:
    """Has collections of this machine merge as those of a cluster with three executors would."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.pays = True
        self.steps = 0
        three = [Executor("localhost", "driver")] * 3
        merged = Slots.merged

        def counted(slots: Slots, computed: Held, shapes: Shapes) -> Held:
            self.steps += 1
            return merged(slots, computed, shapes)

        patch.setattr("muntin.spark.collection.is_local", lambda _: False)
        patch.setattr("muntin.spark.collection.is_alone", lambda _: False)
        patch.setattr("muntin.spark.collections.internals.executors", lambda _: three)
        patch.setattr(ByExecutor, "pays", lambda *_: self.pays)
        patch.setattr(Slots, "merged", counted)


@pytest.fixture
def forced(monkeypatch: pytest.MonkeyPatch) -> Merging:
    return Merging(monkeypatch)


@examples(3)
@given(logs=sources, batch=st.integers(500, 4000), slack=st.sampled_from([0, 15]))
def test_rows_counts_and_scores_are_the_same(
    spark: SparkSession, logs: Mapping[str, Sequence[Record]], batch: int, slack: int
) -> None:
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        folder = Path(name)
        write_logs(folder, logs)
        stream = STREAM.format(folder) + f"FORMAT json TIMESTAMP t SLACK {slack} SECONDS; "
        program, forced = mt.sql(stream + JOBS), Merging(patch)
        found = []
        for pays in (False, True):
            forced.pays = pays
            settings = Settings(folder / str(pays), follow=False, batch_bytes=batch)
            turns = list(SparkRun(program, spark.sparkContext, settings).turns())
            left = [windows for turn in turns for windows in turn.emission.windows]
            found.append({job: results_of(left, job) for job in program.jobs})
            assert bool(forced.steps) == (pays and any(logs.values()))
        assert found[1] == found[0]


@dataclass(frozen=True)
class Sent:
    """A delivery of some seconds, as an agent would send it."""

    source: str
    number: int
    seconds: tuple[int, ...]

    def deliver(self, recipes: Sequence[Recipe]) -> Iterator[Delivery]:
        times = pa.array([t * 1_000_000 for t in self.seconds], pa.int64())
        keys = pa.array([f"key {t}" for t in self.seconds])
        blocks, reading = compute(
            pa.table({POSITION: times, "k": keys}), self.source, recipes, Clocks()
        )
        yield Delivery(blocks, (replace(reading, sequence=self.number),))


@dataclass(frozen=True)
class Post:
    """Deliveries, a task each."""

    sent: tuple[Sent, ...]

    def tasks(self, most: int) -> Sequence[Task]:
        return self.sent


COUNTS = "CREATE JOB counts AS SELECT k, count(*) AS c FROM logs GROUP BY k WINDOW 1 MINUTE;"


def counted(
    spark: SparkSession, sent: Sequence[Sent]
) -> tuple[list[Reading], dict[str, int], SparkCollection]:
    program = mt.sql(STREAM.format("x") + f"FORMAT json TIMESTAMP t; {COUNTS}")
    catalog = Catalog.of(program.streams["logs"], program.jobs.values())
    collection = SparkCollection(spark.sparkContext)
    readings = collection.add(Post(tuple(sent)), catalog.recipes, {})
    rows = collection.answer(catalog, Due({"counts": [[1]]})).rows["counts"]
    assert isinstance(rows, pa.Table)
    rows_by_key = {row["k"]: row["c"] for row in rows.to_pylist()}
    plain = [
        replace(r, costs={s: replace(c, seconds=0.0) for s, c in r.costs.items()})
        for r in sorted(readings, key=lambda r: (r.source, r.sequence))
    ]
    return plain, rows_by_key, collection


def test_fewer_bytes_are_sent_of_what_tasks_share(spark: SparkSession, forced: Merging) -> None:
    seconds = tuple(range(50))
    sent = [Sent(f"web-{n}", 1, seconds) for n in range(6)]
    forced.pays = False
    apart, rows, collection = counted(spark, sent)
    assert collection._by_executor.kept is None
    assert 0 < collection._by_executor.least < 0.5  # once merged by key group
    forced.pays = True
    merged, merged_rows, collection = counted(spark, sent)
    assert forced.steps == 1
    assert merged == apart
    assert merged_rows == rows == {f"key {second}": 6 for second in seconds}
    kept = collection._by_executor.kept
    assert kept is not None
    assert 0.4 < kept < 0.6  # two tasks an executor, with all keys in common


def test_what_two_tasks_deliver_counts_once(spark: SparkSession, forced: Merging) -> None:
    """The same from tasks of two slots, in each merged with something else."""
    sent = [
        Sent("a", 1, (1, 2)), Sent("a", 1, (1, 2)), Sent("b", 1, (2,)),
        Sent("c", 1, (2,)), Sent("d", 1, (1,)), Sent("e", 1, (3,)),
    ]  # fmt: skip
    _, rows, collection = counted(spark, sent)
    assert forced.steps == 1
    assert rows == {"key 1": 2, "key 2": 3, "key 3": 1}
    assert len(collection.steps) == 1
    assert collection._by_executor.kept == 1.0  # so that it is not tried again at once


def test_what_cannot_be_merged_is_told_with_what_was_read() -> None:
    program = mt.sql(STREAM.format("x") + f"FORMAT json TIMESTAMP t; {COUNTS}")
    shape = program.jobs["counts"].shape
    damaged = Holding({shape.id: [Block(shape.id, b"?", 1, shape.pane, 0, 1)] * 2})
    read = Holding(news=(Reading("web-1"),))
    (other, kept), (group, told) = merging({shape.id: shape})([(0, read), (1, damaged)])
    assert (group, other) == (TELLING, 0)
    assert isinstance(told, Holding)
    assert [type(each) for each in told.news] == [BlockError]
    assert isinstance(kept, Holding)
    assert kept.news == (Reading("web-1"),)


@pytest.mark.parametrize("speed", ["fast", "0", "-1"])
def test_a_network_without_a_speed_is_refused(speed: str) -> None:
    with pytest.raises(StartError, match=f"{SPEED} is a number of Mbit/s, 1 or more, not '"):
        network_speed(SparkConf(loadDefaults=False).set(SPEED, speed))
    assert network_speed(SparkConf(loadDefaults=False)) == 1_250_000_000


FAILS = """
from dataclasses import dataclass
from typing import Any

from pyspark import TaskContext


@dataclass(frozen=True)
class Fails:
    task: Any
    at_first: bool

    def deliver(self, recipes):
        for delivery in self.task.deliver(recipes):
            yield delivery
            if self.at_first and not TaskContext.get().attemptNumber():
                raise RuntimeError("once")


@dataclass(frozen=True)
class Work:
    work: Any

    def tasks(self, most):
        tasks = self.work.tasks(most)
        return [Fails(task, number == 1) for number, task in enumerate(tasks)]
"""
# Reads the same logs in all ways, two batches each, of which one task fails at first.
PROGRAM = """
import json
import sys
import time
from pathlib import Path

import muntin as mt
from muntin.fidelity.scoreboard import Source
from muntin.kernel.due import Due
from muntin.run.catalog import Catalog
from muntin.run.contracts import Request
from muntin.run.files import LogFiles
from muntin.spark.collection import SparkCollection
from muntin.spark.collections.internals import executors, facts
from muntin.spark.context import start_context
from muntin.spark.policies import ByExecutor

folder, master = Path(sys.argv[1]), sys.argv[2]
program = mt.sql(f'''
CREATE STREAM s (t BIGINT, k VARCHAR, n BIGINT) FROM '{folder}/{{source}}.jsonl'
FORMAT json TIMESTAMP t;
CREATE JOB sums AS SELECT k, sum(n) AS n FROM s GROUP BY k WINDOW 1 MINUTE;
''')
context = start_context(master)
while len(executors(context)) < 2:
    time.sleep(0.1)
context.addPyFile(str(folder / "fails.py"))
from fails import Work

catalog = Catalog.of(program.streams["s"], program.jobs.values())
runs = {
    (pays, once): (LogFiles(program.streams["s"], True), SparkCollection(context, once=once), {})
    for pays in (False, True) for once in (False, True)
}
for batch in range(2):
    for source in range(4):
        with (folder / f"web-{source}.jsonl").open("a") as log:
            for n in range(5000):
                row = {"t": 60 * batch + 30, "k": f"key {n * 7919 % 100003}", "n": n * source}
                log.write(json.dumps(row) + "\\n")
    for (pays, once), (files, collection, sources) in runs.items():
        ByExecutor.pays = lambda *_, pays=pays: pays
        found = files.next(Request(1.0, True, None, sources, 0, None))
        group = f"{pays} {once} {batch}"
        context.setJobGroup(group, group)
        readings = collection.add(Work(found.work), catalog.recipes, {})
        for each in readings:
            sources[each.source] = Source(sequence=each.sequence)
        rows = collection.answer(catalog, Due({"sums": [[batch + 1]]})).rows["sums"].to_pylist()
        tasks = facts(context, group)
        print(json.dumps({
            "way": [pays, once, batch],
            "rows": sorted((row["k"], row["n"]) for row in rows),
            "readings": sorted((r.source, r.sequence, r.records, str(r.tallies)) for r in readings),
            "kept": collection._by_executor.kept,
            "remote": sum(task.shuffle_remote for task in tasks),
            "executors": len({task.executor for task in tasks}),
            "speculation": context.getConf().get("spark.speculation"),
        }))
context.stop()
"""


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    cluster, plan = Cluster(tmp_path_factory.mktemp("cluster")), Plan(2, 2, port=free_port())
    cluster.up(plan)
    yield plan.master
    cluster.down()


@pytest.mark.jvm
@pytest.mark.xdist_group("cluster")
def test_a_cluster_sends_less_and_a_task_that_runs_again_changes_nothing(
    tmp_path: Path, master: str
) -> None:
    (tmp_path / "fails.py").write_text(FAILS)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path), master],
        cwd=Path(__file__).parents[2],
        # Spark would let one executor do all while another starts its Python.
        env=os.environ | {"PYSPARK_SUBMIT_ARGS": "--conf spark.speculation=false pyspark-shell"},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    told = [json.loads(line) for line in done.stdout.splitlines()]
    by_way = {tuple(each["way"]): each for each in told}
    assert len(by_way) == 8
    for pays, once, batch in by_way:
        mine, plain = by_way[pays, once, batch], by_way[False, False, batch]
        assert dict(mine["rows"]) == {f"key {n * 7919 % 100003}": 6 * n for n in range(5000)}
        assert mine["readings"] == plain["readings"]
        assert len(mine["readings"]) == 4
        assert (mine["executors"], mine["speculation"]) == (2, "false")
        assert (mine["kept"] or 1.0) < 0.8 if pays else mine["kept"] is None
    remote = {pays: sum(e["remote"] for e in told if e["way"][0] == pays) for pays in (True, False)}
    assert remote[True] < remote[False], remote
