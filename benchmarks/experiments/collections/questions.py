"""What is asked in the experiments: the same functions, in the tasks of all systems."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

DISTRICT = 1 << 22  # keys of places in one, of 2 ** 32


class Found(NamedTuple):
    """Rows with a word, and all rows, over all pages."""

    having: int
    rows: int

    @staticmethod
    def together(answers: Iterable[Found]) -> Found:
        listed = list(answers)
        return Found(sum(each.having for each in listed), sum(each.rows for each in listed))


@dataclass(frozen=True)
class WithWord:
    """Cogroups rows of all datasets by page, and counts those with a word."""

    word: str

    def __call__(self, tables: dict[int, pa.Table]) -> list[Found]:
        if not tables:
            return []
        rows = pa.concat_tables(tables.values())
        found = _connection().from_arrow(rows).query("requests", self.sql)
        assert found is not None  # as it is a SELECT
        return [Found(int(having), int(all_)) for having, all_ in found.fetchall()]

    @property
    def sql(self) -> str:
        pages = (
            f"SELECT page, count(*) FILTER (contains(line, '{self.word}')) AS having_, "
            "count(*) AS rows_ FROM requests GROUP BY page"
        )
        return f"SELECT coalesce(sum(having_), 0), coalesce(sum(rows_), 0) FROM ({pages})"


def by_district(tables: dict[int, pa.Table]) -> list[tuple[int, int]]:
    """Districts with the number of trips that began there, over all steps."""
    if not tables:
        return []
    chunks = [c for each in tables.values() for c in each.column("cell").chunks]
    counted = pc.value_counts(pc.divide(pa.chunked_array(chunks, pa.int64()), DISTRICT))
    values, counts = counted.field("values").to_pylist(), counted.field("counts").to_pylist()
    return list(zip(values, counts, strict=True))


def summed(answers: Iterable[tuple[int, int]]) -> dict[int, int]:
    """Of all tasks together."""
    total: dict[int, int] = {}
    for district, trips in answers:
        total[district] = total.get(district, 0) + trips
    return total


def vowels(tables: dict[int, pa.Table]) -> list[int]:
    """Work that takes as long as there are rows, for which their number is the answer."""
    if not tables:
        return []
    whole = pa.concat_tables(tables.values())
    cells = pc.divide(whole.column("cell"), DISTRICT)
    found = pc.count_substring_regex(whole.column("line"), "[aeiou][a-z]")
    pa.table({"cell": cells, "n": found}).group_by("cell").aggregate([("n", "sum")])
    return [whole.num_rows]


@cache
def _connection() -> duckdb.DuckDBPyConnection:
    """One for each worker, which has one core."""
    return duckdb.connect(config={"threads": 1})
