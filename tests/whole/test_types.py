"""What goes in comes out: nulls, unicode, large integers, decimals and times, on both runners."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import muntin as mt

ROWS = [
    {"t": "2026-01-01T00:00:01+02:00", "k": "日本 ☃", "big": 2**53 + 1, "d": "1234567890123.45"},
    {"t": "2025-12-31T22:00:02Z", "k": "日本 ☃", "big": 2**62, "d": "0.05"},
    {"t": "2025-12-31 22:00:03.123456", "k": None, "big": None, "d": None},
    {"t": "2025-12-31T22:00:04Z", "k": "", "big": -(2**62), "d": "-0.01"},
]
TEXT = """
CREATE STREAM s (t TIMESTAMP, k VARCHAR, big BIGINT, d DECIMAL(18,2))
FROM '{folder}/*.jsonl' FORMAT json TIMESTAMP t;
CREATE JOB j AS SELECT k, sum(big) AS big, min(d) AS low, sum(d) AS total, max(t) AS seen,
  count(big) AS n, first(big) AS first_big, histogram(k) AS names, last(t) AS last_t
FROM s GROUP BY k WINDOW 1 HOUR;
"""


def write(folder: Path) -> str:
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in ROWS)
    (folder / "a.jsonl").write_text(lines, encoding="utf-8")
    return TEXT.format(folder=folder)


def check(rows: list[dict[str, Any]]) -> None:
    by_key = {row["k"]: row for row in rows}
    assert set(by_key) == {"日本 ☃", None, ""}
    named = by_key["日本 ☃"]
    assert named["big"] == 2**53 + 1 + 2**62
    assert named["first_big"] == 2**53 + 1
    assert named["total"] == Decimal("1234567890123.50")
    assert named["low"] == Decimal("0.05")
    assert named["seen"] == datetime(2025, 12, 31, 22, 0, 2, tzinfo=UTC)
    assert named["names"] == [("日本 ☃", 2)]
    nothing = by_key[None]
    assert (nothing["big"], nothing["low"], nothing["n"], nothing["names"]) == (None, None, 0, None)
    assert nothing["last_t"] == datetime(2025, 12, 31, 22, 0, 3, 123456, tzinfo=UTC)
    assert by_key[""]["big"] == -(2**62)


def test_inline(tmp_path: Path) -> None:
    (result,) = mt.run(mt.sql(write(tmp_path)))
    assert result.end == datetime(2025, 12, 31, 23, tzinfo=UTC).timestamp() * 1_000_000
    check(result.rows.to_pylist())


def test_spark_and_the_stored_table(spark: SparkSession, tmp_path: Path) -> None:
    (result,) = mt.run_on_spark(mt.sql(write(tmp_path)), tmp_path / "state", spark)
    check(result.rows.to_pylist())
    check(mt.results("j", tmp_path / "state").to_pylist())


def test_a_value_that_does_not_convert_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"t": 1, "n": "x3"}\n')
    text = (
        f"CREATE STREAM s (t BIGINT, n VARCHAR) FROM '{tmp_path}/a.jsonl' FORMAT json TIMESTAMP t;"
        "CREATE JOB j AS SELECT sum({}(n AS INT)) AS n FROM s WINDOW 1 HOUR;"
    )
    notes: list[str] = []
    assert list(mt.run(mt.sql(text.replace("{}", "CAST")), notes.append)) == []
    assert notes == [
        f"job 'j': CAST(\"n\" AS INT) failed on n = 'x3' ({tmp_path}/a.jsonl, line 1): Could not "
        "convert string 'x3' to INTEGER; TRY_CAST gives NULL for such a value"
    ]
    (result,) = mt.run(mt.sql(text.replace("{}", "TRY_CAST")))
    assert result.rows.to_pylist() == [{"n": None}]


def test_a_sum_that_does_not_fit_is_an_error_not_a_number(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(f'{{"t": 1, "n": {2**63 - 1}}}\n' * 2)
    text = (
        f"CREATE STREAM s (t BIGINT, n BIGINT) FROM '{tmp_path}/a.jsonl' FORMAT json TIMESTAMP t;"
        "CREATE JOB j AS SELECT {} AS n FROM s WINDOW 1 HOUR;"
    )
    notes: list[str] = []
    assert list(mt.run(mt.sql(text.replace("{}", "sum(n)")), notes.append)) == []
    (note,) = notes
    window = "the window from 1970-01-01 00:00:00 to 1970-01-01 01:00:00"
    assert note.startswith(f"job 'j': column 'n' failed on {window}: ")
    assert "out of range" in note
    (result,) = mt.run(mt.sql(text.replace("{}", "sum(n::DECIMAL(38,0))")))
    assert result.rows.to_pylist() == [{"n": 2 * (2**63 - 1)}]


def test_sums_of_wide_integers_stay_exact(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(f"t,x\n1,{10**22}\n2,{3 * 10**22 + 1}\n")
    text = (
        f"CREATE STREAM s (t BIGINT, x HUGEINT) FROM '{tmp_path}/a.csv' FORMAT csv TIMESTAMP t;"
        "CREATE JOB j AS SELECT sum(x) AS x FROM s WINDOW 1 HOUR;"
    )
    (result,) = mt.run(mt.sql(text))
    assert result.rows.to_pylist() == [{"x": 4 * 10**22 + 1}]


def test_times_and_large_integers_within_others_are_stored(
    spark: SparkSession, tmp_path: Path
) -> None:
    large = [{"t": 1, "u": 2**64 - 1, "h": 10**36}, {"t": 2, "u": 3, "h": 4}]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in large))
    asked = (
        f"CREATE STREAM s (t BIGINT, u UBIGINT, h HUGEINT) FROM '{tmp_path}/a.jsonl' FORMAT json "
        "TIMESTAMP t; CREATE JOB j AS SELECT histogram(u) AS many, first(u) AS u, first(h) AS h, "
        "list(to_timestamp(t)) AS times, {'at': max(to_timestamp(t))} AS held, "
        "map(['a'], [max(make_timestamp(t * 1000000))]) AS named FROM s WINDOW 1 DAY;"
    )
    at = [datetime.fromtimestamp(second, UTC) for second in (1, 2)]
    wanted = {
        "many": [(Decimal(3), 1), (Decimal(2**64 - 1), 1)], "u": Decimal(2**64 - 1),
        "h": Decimal(10**36), "times": at, "held": {"at": at[1]}, "named": [("a", at[1])],
    }  # fmt: skip
    (result,) = mt.run_on_spark(mt.sql(asked), tmp_path / "state", spark)
    assert result.rows.to_pylist() == [wanted]
    stored = mt.results("j", tmp_path / "state").select(list(wanted)).to_pylist()
    assert stored == [wanted]
