"""What collections use of Spark's own, one test each: another Spark that changes one fails here."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from muntin.collections.homes import Executor
from muntin.spark.collections import internals
from muntin.spark.collections.internals import DISK, MEMORY
from tests.waiting import wait_for


@pytest.fixture
def packs(spark: SparkSession) -> internals.Packs:
    """Three partitions with one pack each: b"0", b"1" and b"2"."""
    rdd = spark.sparkContext.parallelize(range(3), 3).map(lambda n: str(n).encode())
    return internals.packs_of(rdd)


def listed(spark: SparkSession, packs: internals.Packs) -> list[list[bytes]]:
    return internals.as_rdd(spark.sparkContext, packs).glom().collect()


def test_packs_are_bytes_as_they_are(spark: SparkSession, packs: internals.Packs) -> None:
    assert listed(spark, packs) == [[b"0"], [b"1"], [b"2"]]
    frame = internals.as_frame(spark, packs)
    assert [bytes(row[0]) for row in frame.collect()] == [b"0", b"1", b"2"]
    assert listed(spark, internals.packs_of_frame(frame)) == [[b"0"], [b"1"], [b"2"]]


def test_some_partitions_and_several_rdds(spark: SparkSession, packs: internals.Packs) -> None:
    context = spark.sparkContext
    both = internals.union(context, [packs, packs])
    assert listed(spark, internals.only(context, both, [1, 3, 5])) == [[b"1"], [b"0"], [b"2"]]


def test_a_task_has_all_packs_at_home(spark: SparkSession, packs: internals.Packs) -> None:
    context = spark.sparkContext
    (executor,) = internals.executors(context)
    assert executor.id == "driver"
    assert listed(spark, internals.at(internals.home(context, executor), packs)) == [
        [b"0", b"1", b"2"]
    ]


def test_each_element_prefers_an_executor(spark: SparkSession) -> None:
    given = spark.sparkContext.parallelize(["a", "b", "c"], 3)
    executors = [Executor("here", "1"), Executor("there", "2"), Executor("here", "1")]
    placed = internals.each_at(executors, given)
    assert placed.glom().collect() == [["a"], ["b"], ["c"]]
    scala = placed._jrdd.rdd().dependencies().apply(0).rdd()  # pairs, of which these are values
    wanted = [scala.preferredLocations(part).mkString() for part in scala.partitions()]
    assert wanted == ["executor_here_1", "executor_there_2", "executor_here_1"]


def test_what_is_kept_is_known(spark: SparkSession, packs: internals.Packs) -> None:
    context = spark.sparkContext
    assert internals.holders(context, packs) == {}
    for level in (MEMORY, DISK):
        kept = internals.persist(context, internals.only(context, packs, range(3)), level)
        kept.count()

        def known(kept: internals.Packs = kept) -> bool:
            return len(internals.holders(context, kept)) == 3

        wait_for(known)
        assert internals.holders(context, kept) == {n: ["driver"] for n in range(3)}
        kept.unpersist(True)


def test_ancestors_are_the_nearest_of_those_known(
    spark: SparkSession, packs: internals.Packs
) -> None:
    context = spark.sparkContext
    child = internals.packs_of(internals.as_rdd(context, packs).map(lambda pack: pack * 2))
    moved = internals.as_rdd(context, child).map(lambda pack: (pack, pack)).partitionBy(2).values()
    grandchild = internals.packs_of(moved)
    assert internals.ancestors(context, grandchild, {packs.id()}) == {packs.id()}
    assert internals.ancestors(context, grandchild, {packs.id(), child.id()}) == {child.id()}
    assert internals.ancestors(context, packs, {child.id()}) == set()


def test_what_was_computed_is_written_and_restored(spark: SparkSession, tmp_path: Path) -> None:
    context = spark.sparkContext
    runs = context.accumulator(0)

    def computed(number: int) -> bytes:
        runs.add(1)
        return str(number).encode()

    packs = internals.packs_of(context.parallelize(range(3), 3).map(computed))
    internals.persist(context, packs, MEMORY).count()
    assert not internals.has_folder(context)
    path = internals.write(context, packs, str(tmp_path))
    assert not internals.has_folder(context)
    packs.unpersist(True)
    assert listed(spark, packs) == [[b"0"], [b"1"], [b"2"]]
    assert listed(spark, internals.restored(context, path)) == [[b"0"], [b"1"], [b"2"]]
    assert runs.value == 3  # neither of them computed again
    assert str(tmp_path) in path
    for _ in range(2):
        internals.erase(context, path)
        assert not list(tmp_path.iterdir())


def test_what_spark_has_measured_of_tasks(spark: SparkSession) -> None:
    context = spark.sparkContext
    rows = spark.createDataFrame(pa.table({"n": range(100)})).cache()
    context.setJobGroup("measured", "measured")
    rows.rdd.map(lambda row: (row.n, 1)).groupByKey(2).count()
    context.setJobGroup("other", "other")
    found = wait_for(lambda: internals.facts(context, "measured"))
    assert {fact.executor for fact in found} == {"driver"}
    assert all(fact.seconds >= 0 and fact.shuffle_remote == 0 for fact in found)
    rows.unpersist()
