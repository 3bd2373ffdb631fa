"""What tasks tell the driver beside what they make."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest
from pyspark.accumulators import _accumulatorRegistry
from pyspark.sql import SparkSession

from muntin.errors import InputError
from muntin.spark.telling import Telling, Told, _ByTask


def test_a_task_that_ran_again_is_heard_once() -> None:
    first, again = {0: ["late", "gone"], 1: ["other"]}, {0: ["whole"]}
    assert _ByTask().addInPlace(first, again) == {0: ["whole"], 1: ["other"]}


def test_what_is_told_is_no_part_of_what_is_made(spark: SparkSession) -> None:
    def halves(task: int, items: Iterable[int]) -> Iterator[int | Told[tuple[int, int]]]:
        for n in items:
            if n % 2:
                yield n
            else:
                yield Told((task, n))

    telling: Telling[tuple[int, int]] = Telling(spark.sparkContext)
    made = telling.made(spark.sparkContext.parallelize(range(8), 2), halves)
    assert made.glom().collect() == [[1, 3], [5, 7]]
    assert telling.heard(2) == [(0, 0), (0, 2), (1, 4), (1, 6)]


def test_errors_of_ours_are_values_until_the_driver_raises_them(spark: SparkSession) -> None:
    def refuse(task: int, items: Iterable[int]) -> Iterator[int]:
        for n in items:
            if n == 3:
                raise InputError("three is refused")
            yield n

    known = len(_accumulatorRegistry)
    telling: Telling[int] = Telling(spark.sparkContext)
    telling.made(spark.sparkContext.parallelize(range(4), 2), refuse).count()
    with pytest.raises(InputError, match="three is refused"):
        telling.heard(2)
    assert len(_accumulatorRegistry) == known
