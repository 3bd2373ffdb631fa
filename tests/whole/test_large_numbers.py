"""Integers beyond 64 bits, bits and very large floating-point numbers: right, and without noise."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pytest

from muntin.language.program import sql
from muntin.run.inline import windows_inline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = "t BIGINT, u UBIGINT, h HUGEINT, b VARCHAR, x DOUBLE"
BITS = ["101", "111", "001", "111"]
ROWS = [(i, 2**63 + i % 4, 2**70 + i % 4, BITS[i % 4], 1e300 * (i + 1)) for i in range(12)]
WIDE = (
    "first(u) AS a, last(h) AS b, sum(DISTINCT u) AS c, sum(DISTINCT h) AS d, sum(u) AS e, "
    "sum(h) AS f, max(h) AS g, min(u) AS h, count(DISTINCT h) AS i, mode(u) AS j, "
    "list(DISTINCT h) AS k, max(u, 2) AS l, histogram(u) AS m, histogram(h) AS n"
)
OF_BITS = (
    "bit_and(b::BIT) AS a, bit_or(b::BIT) AS b, bit_xor(b::BIT) AS c, first(b::BIT) AS d, "
    "count(DISTINCT b::BIT) AS e, mode(b::BIT) AS f, list(b::BIT) AS g"
)


def text(folder: Path, select: str, window: str = "1 DAY") -> str:
    names = [name.split()[0] for name in COLUMNS.split(", ")]
    lines = (json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in ROWS)
    (folder / "a.log").write_text("".join(lines))
    return (
        f"CREATE STREAM s ({COLUMNS}) FROM '{folder}/a.log' FORMAT json TIMESTAMP t;"
        f"CREATE JOB j AS SELECT {select} FROM s WINDOW {window}"
    )


def by_duckdb(select: str) -> tuple[Any, ...]:
    with duckdb.connect() as con:
        con.execute(f"CREATE TABLE s ({COLUMNS})")
        con.executemany("INSERT INTO s VALUES (?, ?, ?, ?, ?)", ROWS)
        row = con.execute(f"SELECT {select} FROM s").fetchone()
    assert row is not None
    return row


def plain(value: Any) -> Any:
    """Integers whichever type they are of, and bits as texts."""
    if isinstance(value, list):
        pairs = value and isinstance(value[0], tuple)
        return plain(dict(value)) if pairs else [plain(each) for each in value]
    if isinstance(value, dict):
        return {plain(key): plain(each) for key, each in value.items()}
    return int(value) if isinstance(value, Decimal) else value


@pytest.mark.parametrize("select", [WIDE, OF_BITS])
@pytest.mark.parametrize("size", [1 << 20, 200])
def test_they_are_as_wide_as_they_came(tmp_path: Path, select: str, size: int) -> None:
    program = sql(text(tmp_path, select))
    left = windows_inline(program, pytest.fail, batch_bytes=size, piece_bytes=size)
    (row,) = [r for w in left for result in w.results() for r in result.rows.to_pylist()]
    assert [plain(value) for value in row.values()] == [plain(v) for v in by_duckdb(select)]


def test_on_spark(spark: SparkSession, tmp_path: Path) -> None:
    from muntin.api import run_on_spark

    (result,) = run_on_spark(sql(text(tmp_path, WIDE)), tmp_path / "state", spark)
    (row,) = result.rows.to_pylist()
    assert [plain(value) for value in row.values()] == [plain(v) for v in by_duckdb(WIDE)]


@pytest.mark.parametrize("call", ["stddev", "variance", "avg", "sum", "product", "max", "fsum"])
def test_very_large_numbers_in_sliding_windows(tmp_path: Path, call: str) -> None:
    """What NumPy would warn of is an error in tests."""
    program = sql(text(tmp_path, f"{call}(x * 1e7) AS v", "4 SECONDS EVERY 1 SECOND"))
    rows = [r for w in windows_inline(program, pytest.fail) for each in w.results()
            for r in each.rows.to_pylist()]  # fmt: skip
    assert len(rows) == 15
    assert rows[0]["v"] is None or rows[0]["v"] == pytest.approx(1e307)
