"""What questions read is made once, and anew when packs have come or gone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from pyspark.sql import SparkSession

import muntin as mt
from muntin.collections.keys import Selection

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def at(step: int) -> datetime:
    return NOON + step * timedelta(minutes=5)


def test_a_question_has_the_rdd_of_one_that_read_the_same(spark: SparkSession) -> None:
    numbers = mt.Collection(spark, "read", key="id", bounds=[10, 20, 30])
    for n in range(3):
        numbers.add(at(n), spark.range(40).select("id"))

    def asked(first: int, last: int, *keys: int) -> int:
        steps = numbers.starts(at(first), at(last))
        return int(numbers.packs(numbers.tasks(steps, Selection(keys=keys or None))).id())

    whole, some = asked(0, 3), asked(0, 3, 5)
    assert asked(0, 3) == whole
    assert asked(0, 3, 7) == some  # in the same partition
    assert len({whole, some, asked(0, 2), asked(0, 3, 15), asked(1, 3, 5)}) == 5
    assert numbers.keys(5, 35).frame().count() == 6

    numbers.add(at(3), spark.range(5, 6).select("id"))
    assert asked(0, 3, 5) != some  # groups may have changed
    assert numbers.keys(5).frame().count() == 4
    numbers.drop_before(at(2))
    assert numbers.keys(5).frame().count() == 2


def test_nothing_of_what_was_dropped_stays_in_memory(spark: SparkSession) -> None:
    scala = spark.sparkContext._jsc.sc()
    before = {each.id() for each in scala.getRDDStorageInfo()}
    numbers = mt.Collection(spark, "gone", key="id", partitions=2, memory="20 KB")
    for n in range(3):
        numbers.add(at(n), spark.range(1000).select("id"))
        assert numbers.frame().count() == 1000 * (n + 1)
    assert {each.id() for each in scala.getRDDStorageInfo()} > before
    numbers.drop_before(at(3))
    assert {each.id() for each in scala.getRDDStorageInfo()} <= before
    assert numbers.steps() == []
