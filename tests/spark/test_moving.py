"""Rows that wait in a shuffle's files, and what their tasks tell the driver."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from pyspark import RDD
from pyspark.accumulators import _accumulatorRegistry
from pyspark.errors import PythonException
from pyspark.sql import SparkSession

from muntin.spark.moving import move
from muntin.spark.telling import Told
from tests.waiting import PATIENCE

# A user's accumulator fails in the driver, after which Spark updates none of this context.
DEAF = """
import sys
from pathlib import Path

import muntin as mt
from muntin.errors import MuntinError
from muntin.spark.context import start_context
from muntin.spark.runner import Settings, SparkRun
from muntin.store.results import Results
from pyspark import AccumulatorParam

class Faulty(AccumulatorParam):
    def zero(self, value):
        return 0
    def addInPlace(self, value1, value2):
        return value1 / value2

folder = Path(sys.argv[1])
program = mt.sql(f'''
CREATE STREAM s FROM '{folder}/{{source}}.jsonl' FORMAT json TIMESTAMP ts;
CREATE JOB sums AS SELECT sum(n) AS n FROM s WINDOW 1 MINUTE;
''')
state = folder / "state"
with start_context("local[2]") as context:
    faulty = context.accumulator(0, Faulty())
    context.parallelize([1], 1).foreach(faulty.add)
    try:
        list(SparkRun(program, context, Settings(state, follow=False)).turns())
    except MuntinError as error:
        print(error)
with start_context("local[2]") as context:
    list(SparkRun(program, context, Settings(state, follow=False)).turns())
print(Results(state).read("sums")["n"].to_pylist())
"""


Pair = tuple[int, tuple[str, list[int]]]


def apart(_: int, items: Iterable[Pair]) -> Iterator[tuple[int, str] | Told[int]]:
    for key, (value, news) in items:
        yield key, value
        yield from map(Told, news)


def test_pairs_find_their_partitions_and_news_the_driver(spark: SparkSession) -> None:
    pairs = [(n % 3, (f"v{n}", [n, -n] if n % 2 else [])) for n in range(10)]
    known = len(_accumulatorRegistry)
    rows = spark.sparkContext.parallelize(pairs, 4)
    moved, news = move(rows, apart, 3, lambda key: key)
    assert news == [x for n in range(10) if n % 2 for x in (n, -n)]
    for _ in range(2):  # out of the files
        found = [sorted(part) for part in moved.glom().collect()]
        assert found == [[(k, f"v{n}") for n in range(10) if n % 3 == k] for k in range(3)]
    assert len(_accumulatorRegistry) == known


def test_nothing_moves_where_there_is_no_task(spark: SparkSession) -> None:
    nothing: RDD[Pair] = spark.sparkContext.emptyRDD()
    moved, news = move(nothing, apart, 3, lambda key: key)
    assert (moved.glom().collect(), news) == ([[], [], []], [])


def test_what_a_task_raises_comes_first(spark: SparkSession) -> None:
    def refuse(task: int, items: Iterable[tuple[int, str]]) -> Iterator[tuple[int, str]]:
        for _, value in items:
            raise ValueError(f"{value} is refused")
        yield from items

    known = len(_accumulatorRegistry)
    with pytest.raises(PythonException, match="ValueError: v is refused") as raised:
        move(spark.sparkContext.parallelize([(0, "v")], 1), refuse, 1, lambda key: key)
    assert "awaitResult" not in str(raised.value)
    assert len(_accumulatorRegistry) == known


@pytest.mark.jvm
def test_news_that_do_not_arrive_end_the_run_before_its_commit(tmp_path: Path) -> None:
    line = '{"ts": "2026-03-01T12:00:03Z", "n": 1}\n'
    for source in ("web-1", "web-2"):
        (tmp_path / f"{source}.jsonl").write_text(line * 3)
    done = subprocess.run(
        [sys.executable, "-c", DEAF, str(tmp_path)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert not done.returncode, done.stderr
    told = done.stdout.splitlines()
    assert told[0].startswith("the reports of 2 of 2 Spark tasks did not reach the driver")
    assert told[1:] == ["[6]"]
