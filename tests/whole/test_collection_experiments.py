"""The experiments on collections in their smallest form: systems that agree, and fewer bytes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from benchmarks.experiments.collections.checkpoints import simulated
from benchmarks.experiments.collections.data import pages, requests, trips, zones
from benchmarks.experiments.collections.questions import (
    Found,
    WithWord,
    by_district,
    summed,
    vowels,
)
from benchmarks.experiments.collections.systems import Plain, Stark, System
from muntin.collections.keys import ByRange, Selection
from muntin.collections.lineage import Dataset


def history(steps: int) -> list[Dataset]:
    """A chain of steps, each with a small dataset that the next needs and large ones before it."""
    found: list[Dataset] = []
    for n in range(steps):
        before = (f"res {n - 1}",) if n else ()
        found += [
            Dataset(f"ctt {n}", (), 50, 1.0),
            Dataset(f"cctt {n}", (f"ctt {n}", *before), 90, 1.0),
            Dataset(f"acnt {n}", before, 5, 1.0),
            Dataset(f"jall {n}", (f"cctt {n}", f"acnt {n}"), 60, 1.0),
            Dataset(f"res {n}", (f"jall {n}",), 20, 1.0),
        ]
    return found


@pytest.mark.parametrize("bound", [3.0, 5.0, 9.0])
def test_a_cut_writes_no_more_than_the_edge(bound: float) -> None:
    written = {name: simulated(history(12), bound, name) for name in ("Stark-1", "Stark-3", "Edge")}
    for totals, longest in written.values():
        assert len(totals) == 12
        assert longest <= bound
    assert written["Stark-1"][0][-1] <= written["Edge"][0][-1]
    assert written["Stark-3"][0][-1] <= written["Edge"][0][-1]


def test_all_systems_give_the_same_answers(spark: SparkSession) -> None:
    known = zones(Path("nowhere"))
    tables = [trips(300, number, known, (0.2, 0.2) if number else None) for number in range(3)]
    bounds = ByRange.fitted(tables[0].column("cell").combine_chunks(), 6).bounds
    systems: list[System] = [
        Plain(spark, "cell", 3, own_ranges=True),
        Plain(spark, "cell", 3, own_ranges=False),
        Stark(spark, "Stark-H", "cell", 3),
        Stark(spark, "Stark-E", "cell", 6, bounds, elastic=True),
    ]
    lower, upper = sorted((bounds[1], bounds[3]))
    found: dict[tuple[int, Selection], dict[int, int]] = {}
    for numbers in ([0], [0, 1, 2]):
        for selection in (Selection(), Selection(ranges=((lower, upper),))):
            expected = sum(rows_in(tables[number], selection) for number in numbers)
            for system in systems:
                for number in range(3):
                    if numbers == [0] and selection == Selection():
                        system.add(number, tables[number])
                assert sum(system.ask(numbers, selection, vowels)) == expected
                districts = summed(system.ask(numbers, selection, by_district))
                assert sum(districts.values()) == expected
                found.setdefault((len(numbers), selection), districts)
                assert found[len(numbers), selection] == districts
                assert len(system.sizes(numbers)) >= 1
    for system in systems:
        system.drop()


def rows_in(table: pa.Table, selection: Selection) -> int:
    ranges: Sequence[tuple[int, int]] = selection.ranges or ((-1, 1 << 62),)
    keys = table.column("cell").to_pylist()
    return sum(any(lower <= key < upper for lower, upper in ranges) for key in keys)


def test_a_group_of_which_nothing_is_asked_for_has_no_districts() -> None:
    cells = pa.table({"cell": pa.array([1, 1 << 22, 5], pa.int64())})
    assert by_district({0: cells.filter([False, False, False])}) == []
    assert sorted(by_district({0: cells, 1: cells})) == [(0, 4), (1, 2)]


def test_words_are_counted_as_python_counts_them() -> None:
    tables = {number: requests(500, number, pages(Path("nowhere"))) for number in range(3)}
    lines = [line for table in tables.values() for line in table.column("line").to_pylist()]
    answers = [*WithWord("film")(tables), *WithWord("film")({})]
    assert Found.together(answers) == Found(sum("film" in line for line in lines), 1500)


def test_data_is_generated_where_there_is_none() -> None:
    known = pages(Path("nowhere"))
    assert requests(10, 1, known).num_rows == 10
    assert requests(10, 1, known) == requests(10, 1, known)
