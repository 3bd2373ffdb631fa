"""What the answer must be: record by record, window by window, then one plain DuckDB query.

Nothing here uses Muntin's panes, cells or statements.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isinf, isnan
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

Record = dict[str, Any]
_EPOCH = 1_700_000_000

# How each aggregate reads in Muntin, and in DuckDB where ties have to be decided.
AGGREGATES = {
    "count(*)": "count(*)",
    "count(x)": "count(x)",
    "count(DISTINCT s)": "count(DISTINCT s)",
    "sum(n)": "sum(n)",
    "sum(x)": "sum(x)",
    "sum(DISTINCT n)": "sum(DISTINCT n)",
    "min(x)": "min(x)",
    "max(s)": "max(s)",
    "avg(n)": "avg(n)",
    "stddev(x)": "stddev(x)",
    "variance(n)": "variance(n)",
    "var_pop(x)": "var_pop(x)",
    "median(x)": "median(x)",
    "quantile(n, 0.9)": "quantile_disc(n, 0.9)",
    "quantile_cont(x, 0.25)": "quantile_cont(x, 0.25)",
    "first(s)": "first(s ORDER BY t, s NULLS LAST)",
    "last(n)": "last(n ORDER BY t, n NULLS LAST)",
    "arg_min(s, x)": "first(s ORDER BY x, s) FILTER (WHERE s IS NOT NULL AND x IS NOT NULL)",
    "arg_max(n, x)": "last(n ORDER BY x, n) FILTER (WHERE n IS NOT NULL AND x IS NOT NULL)",
    "mode(s)": "arg_max(s, (mode_count, -mode_rank))",
    "bool_and(n > 0)": "bool_and(n > 0)",
    "bool_or(x > 5)": "bool_or(x > 5)",
    "count(*) FILTER (WHERE n > 2)": "count(*) FILTER (WHERE n > 2)",
    "sum(n) / count(*)": "sum(n) / count(*)",
    "max(x) - min(x)": "max(x) - min(x)",
    "histogram(n)": "histogram(n)",
    "sem(x)": "sem(x)",
    "skewness(x)": "skewness(x)",
    "kurtosis(n % 100)": "kurtosis(n % 100)",
    "kurtosis_pop(x)": "kurtosis_pop(x)",
    "corr(n % 100, x)": "corr(n % 100, x)",
    "covar_pop(n % 100, x)": "covar_pop(n % 100, x)",
    "covar_samp(x, n % 100)": "covar_samp(x, n % 100)",
    "regr_count(n % 100, x)": "regr_count(n % 100, x)",
    "regr_avgx(n % 100, x)": "regr_avgx(n % 100, x)",
    "regr_avgy(n % 100, x)": "regr_avgy(n % 100, x)",
    "regr_sxx(n % 100, x)": "regr_sxx(n % 100, x)",
    "regr_syy(n % 100, x)": "regr_syy(n % 100, x)",
    "regr_sxy(n % 100, x)": "regr_sxy(n % 100, x)",
    "product(n % 100)": "product(n % 100)",
    "fsum(x)": "fsum(x)",
    "favg(x)": "favg(x)",
    "bit_and(n)": "bit_and(n)",
    "bit_or(n)": "bit_or(n)",
    "bit_xor(n)": "bit_xor(n)",
    "geomean(abs(n) + 1)": "geomean(abs(n) + 1)",
    "entropy(s)": "entropy(s)",
    "mad(x)": "mad(x)",
    "max(x, 2)": "max(x, 2)",
    "min(s, 3)": "min(s, 3)",
    "arg_max(s, n, 2)": "(list(s ORDER BY n DESC, s DESC) FILTER (WHERE s IS NOT NULL AND n "
    "IS NOT NULL))[:2]",
    "list(n)": "list(n ORDER BY t, n NULLS LAST)",
    "array_agg(s ORDER BY x DESC)": "list(s ORDER BY x DESC NULLS LAST, t, s NULLS LAST)",
    "list(DISTINCT s)": "list(DISTINCT s ORDER BY s) FILTER (WHERE s IS NOT NULL)",
    "string_agg(s, '-' ORDER BY n)": "string_agg(s, '-' ORDER BY n NULLS LAST, t, s)",
    "quantile_cont(x, [0.1, 0.9])": "quantile_cont(x, [0.1, 0.9])",
    "percentile_cont(0.2) WITHIN GROUP (ORDER BY x DESC)": "quantile_cont(x, 0.8)",
}


@dataclass(frozen=True)
class Window:
    """In seconds."""

    range_s: int
    slide_s: int
    offset_s: int = 0

    def muntin(self) -> str:
        start = f" FROM '1970-01-01 00:00:{self.offset_s:02}'" if self.offset_s else ""
        return f"{self.range_s} SECONDS EVERY {self.slide_s} SECONDS{start}"


@dataclass(frozen=True)
class Question:
    """One job's text, in parts, so that Muntin's and DuckDB's form come from the same."""

    aggregates: tuple[str, ...]
    keys: tuple[str, ...]
    where: str | None
    having: str | None
    limit: int | None
    windows: tuple[Window, ...]
    slack_s: int | None

    def muntin(self, folder: Path) -> str:
        slack = f" SLACK {self.slack_s} SECONDS" if self.slack_s is not None else ""
        select = ", ".join([*self.keys, *(f"{a} AS a{i}" for i, a in enumerate(self.aggregates))])
        return (
            f"CREATE STREAM logs (t BIGINT, k VARCHAR, s VARCHAR, n BIGINT, x DOUBLE) "
            f"FROM '{folder}/{{source}}.jsonl' FORMAT json TIMESTAMP t{slack};\n"
            f"CREATE JOB job AS SELECT {select} FROM logs{self._tail()} "
            f"WINDOW {', '.join(window.muntin() for window in self.windows)};"
        )

    def _tail(self) -> str:
        where = f" WHERE {self.where}" if self.where else ""
        group = f" GROUP BY {', '.join(self.keys)}" if self.keys else ""
        having = f" HAVING {self.having}" if self.having else ""
        limit = f" ORDER BY a0 DESC LIMIT {self.limit}" if self.limit is not None else ""
        return where + group + having + limit

    def answer(self, sources: dict[str, Sequence[Record]]) -> list[tuple[Any, ...]]:
        """(window start, window end, keys…, aggregates…) in the order of results."""
        found = [
            (row[1], number, row)
            for number, window in enumerate(self.windows)
            for row in self._answer(window, sources)
        ]
        return [row for _, _, row in sorted(found, key=lambda item: item[:2])]

    def _answer(self, window: Window, sources: dict[str, Sequence[Record]]) -> list[Any]:
        rows = [
            {**record, "w": start, "source": source}
            for source, records in sources.items()
            for record, starts in self._starts(window, records)
            for start in starts
        ]
        if not rows:
            return []
        schema = pa.schema([("t", pa.int64()), ("k", pa.string()), ("s", pa.string()),
                            ("n", pa.int64()), ("x", pa.float64()), ("w", pa.int64()),
                            ("source", pa.string())])  # fmt: skip
        table = pa.Table.from_pylist(rows, schema=schema)
        con = duckdb.connect(config={"threads": 1})
        con.register("expanded", table)
        return con.execute(self._duckdb(window)).fetchall()

    def _duckdb(self, window: Window) -> str:
        names = [f"k{i}" for i in range(len(self.keys))]
        keys = [f"{key} AS {name}" for key, name in zip(self.keys, names, strict=True)]
        aggregates = [f"{self._aggregate(a)} AS a{i}" for i, a in enumerate(self.aggregates)]
        by = ", ".join(["w", *self.keys])
        where = f"WHERE {self.where}" if self.where else ""
        counted = (
            f"SELECT *, CASE WHEN s IS NOT NULL THEN count(s) OVER (PARTITION BY {by}, s) END "
            f"AS mode_count, rank() OVER (PARTITION BY {by} ORDER BY s) AS mode_rank "
            f"FROM expanded {where}"
        )
        having = f"HAVING {self.having}" if self.having else ""
        named = ", ".join(["w", f"w + {window.range_s}", *names,
                           *(f"a{i}" for i in range(len(aggregates)))])  # fmt: skip
        order = ", ".join((["a0 DESC NULLS LAST"] if self.limit is not None else []) + names)
        ranked = f"row_number() OVER (PARTITION BY w ORDER BY {order or '1'})"
        limit = f"WHERE r <= {self.limit}" if self.limit is not None else ""
        grouped = (
            f"SELECT {', '.join(['w', *keys, *aggregates])} FROM ({counted}) GROUP BY {by} {having}"
        )
        return (
            f"SELECT {named} FROM (SELECT *, {ranked} AS r FROM ({grouped})) {limit} ORDER BY w, r"
        )

    def _aggregate(self, text: str) -> str:
        """How DuckDB is asked for an aggregate of Muntin's."""
        return AGGREGATES[text]

    def _starts(self, window: Window, records: Sequence[Record]) -> list[tuple[Record, list[int]]]:
        """For every record the starts of the windows that count it, by the letter of the rule."""
        found = []
        for number, record in enumerate(records, 1):
            t = record["t"]
            reached = stream_time([r["t"] for r in records[:number]], self.slack_s)
            since = t - window.offset_s
            numbers = range((since - window.range_s) // window.slide_s + 1,
                            since // window.slide_s + 1)  # fmt: skip
            starts = [k * window.slide_s + window.offset_s for k in numbers]
            if self.slack_s is not None:
                late_before = reached - self.slack_s
                starts = [s for s in starts if s + window.range_s > late_before]
            found.append((record, starts))
        return found


def stream_time(times: Sequence[int], slack: int | None, minute: int = 60) -> int:
    """How far a source has come that has written records of these times, by the letter.

    From the lowest time on, each is believed that lies at most a minute beyond the one before it,
    or that at least three records have come to.
    """
    if slack is None:
        return max(times)
    ordered = sorted(times)
    reached = ordered[0]
    for number, time in enumerate(ordered):
        if time - reached > minute and len(ordered) - number < 3:
            break
        reached = time
    return reached


def write_logs(folder: Path, sources: Mapping[str, Sequence[Record]]) -> None:
    for source, records in sources.items():
        lines = "".join(json.dumps(record) + "\n" for record in records)
        (folder / f"{source}.jsonl").write_text(lines, encoding="utf-8")


def same(found: Sequence[Sequence[Any]], wanted: Sequence[Sequence[Any]]) -> bool:
    """Equal rows; floating-point numbers may differ in their last digits."""
    return len(found) == len(wanted) and all(
        len(a) == len(b) and all(_close(x, y) for x, y in zip(a, b, strict=True))
        for a, b in zip(found, wanted, strict=True)
    )


def _close(a: Any, b: Any) -> bool:
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(_close(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, float) and isinstance(b, float):
        if isnan(a) or isnan(b):
            return isnan(a) and isnan(b)
        if isinf(a) or isinf(b):
            return a == b
        return abs(a - b) <= 1e-9 * max(1.0, abs(a), abs(b))
    return bool(a == b)
