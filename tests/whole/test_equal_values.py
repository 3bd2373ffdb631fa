"""What SQL takes for equal is one group everywhere: collations, zeros in lists, equal intervals."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from muntin.language.program import sql
from muntin.run.inline import windows_inline
from muntin.run.results import Result
from tests.effort import examples

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAMES = ["ann", "Ann", "ANN", "Änn", "änn", "bob", "BOB", "Zoë", "zoe", "", None]
LENGTHS = ["30 days", "1 month", "24 hours", "1 day", "10 days", "9 days", "-1 hour", None]
ZEROS = [0.0, -0.0, 1.5, None]
COLUMNS = "t BIGINT, k VARCHAR, d VARCHAR, x DOUBLE"

# Of each: what a job selects, and the rest of its query. One that groups shows spellings, of which
# the smallest is taken; in the query to compare with, that has to be said.
QUESTIONS = {
    "a collated key": ("k COLLATE NOCASE AS k, count(*) AS n", "GROUP BY k COLLATE NOCASE"),
    "its alias": ("k COLLATE NOCASE AS name, sum(x) AS n", "GROUP BY name"),
    "accents": ("k COLLATE NOCASE.NOACCENT AS k, count(*) AS n", "GROUP BY 1"),
    "a language": ("k COLLATE de AS k, count(*) AS n", "GROUP BY 1 ORDER BY k COLLATE de"),
    "by a function": ("upper(k COLLATE NOCASE) AS k, count(*) AS n", "GROUP BY 1"),
    "distinct": ("DISTINCT k COLLATE NOCASE AS k", ""),
    "a condition": ("k COLLATE NOCASE AS k, count(*) AS n", "GROUP BY 1 HAVING k <> 'bOb'"),
    "rows in order": ("k, count(*) AS n", "GROUP BY k ORDER BY k COLLATE NOCASE DESC, k LIMIT 3"),
    "aggregates": (
        "count(DISTINCT k COLLATE NOCASE) AS n, count(DISTINCT d::INTERVAL) AS m, "
        "lower(max(k COLLATE NOCASE)) AS top, count(DISTINCT (k COLLATE C)) AS c",
        "",
    ),
    "largest lengths": (
        "max(d::INTERVAL)::VARCHAR IN ('30 days', '1 month') AS a, "
        "min(d::INTERVAL) < INTERVAL 1 DAY AS b, arg_max(x, d::INTERVAL) IS NULL AS c, "
        "epoch(quantile(d::INTERVAL, 0.5)) AS q",
        "",
    ),
    "lengths": ("epoch(d::INTERVAL) AS seconds, count(*) AS n", "GROUP BY d::INTERVAL"),
    "lengths in order": (
        "max(epoch(d::INTERVAL)) AS seconds",
        "GROUP BY d::INTERVAL ORDER BY d::INTERVAL DESC LIMIT 4",
    ),
    "zero in a list": ("[x, 1] AS k, count(*) AS n", "GROUP BY [x, 1]"),
    "in a struct": ("{'a': x, 'b c': [x]} AS k, count(*) AS n", "GROUP BY ALL"),
    "in a map": ("MAP {'a': x} AS k, count(*) AS n", "GROUP BY 1"),
    "no number": ("x / x AS k, x AS y, count(*) AS n", "GROUP BY ALL"),
    "lengths in a list": ("count(*) AS n, max(epoch(d::INTERVAL)) AS e", "GROUP BY [d::INTERVAL]"),
    "kinds": (
        "max(if(x > 0, 'low', 'high')::ENUM('low', 'high')) AS most, count(*) AS n",
        "GROUP BY if(x > 0, 'low', 'high')::ENUM('low', 'high')",
    ),
    "around": (
        "k COLLATE NOCASE AS k, count(*) AS n, row_number() OVER (ORDER BY count(*) DESC, "
        "k COLLATE NOCASE) AS place",
        "GROUP BY 1",
    ),
    "subtotals": ("k COLLATE NOCASE AS k, count(*) AS n", "GROUP BY ROLLUP (k COLLATE NOCASE)"),
    "in a subquery": ("name, count(*) AS n", "GROUP BY name"),
}
records = st.lists(
    st.tuples(
        st.integers(0, 20), st.sampled_from(NAMES), st.sampled_from(LENGTHS), st.sampled_from(ZEROS)
    ),
    min_size=1,
    max_size=30,
)


def text(folder: Path, name: str) -> str:
    items, rest = QUESTIONS[name]
    read = "(SELECT k COLLATE NOCASE AS name FROM s)" if name == "in a subquery" else "s"
    return (
        f"CREATE STREAM s ({COLUMNS}) FROM '{folder}/{{source}}.log' FORMAT json TIMESTAMP t;"
        f"CREATE JOB j AS SELECT {items} FROM {read} {rest} WINDOW 1 MINUTE"
    )


def write(folder: Path, rows: Iterable[tuple[int, Any, Any, Any]]) -> list[str]:
    lines = [json.dumps({"t": t, "k": k, "d": d, "x": x}) + "\n" for t, k, d, x in rows]
    (folder / "a.log").write_text("".join(lines[::2]))
    (folder / "b.log").write_text("".join(lines[1::2]))
    return lines


def by_duckdb(rows: list[tuple[int, Any, Any, Any]], name: str) -> list[tuple[Any, ...]]:
    items, rest = QUESTIONS[name]
    read = "(SELECT k COLLATE NOCASE AS name FROM s)" if name == "in a subquery" else "s"
    with duckdb.connect() as con:
        con.execute(f"CREATE TABLE s ({COLUMNS})")
        con.executemany("INSERT INTO s VALUES (?, ?, ?, ?)", rows)
        return con.execute(f"SELECT {items} FROM {read} {rest}").fetchall()


def folded(rows: Iterable[Iterable[Any]], name: str) -> list[str]:
    """Rows as texts to compare, whichever spelling of a key they show."""
    found = [
        [value.casefold() if isinstance(value, str) else value for value in row] for row in rows
    ]
    if "accent" in name or "language" in name:
        found = [[_without_accents(value) for value in row] for row in found]
    texts = [repr(row).replace("-0.0", "0.0") for row in found]
    return texts if "order" in name else sorted(texts)


def _without_accents(value: Any) -> Any:
    return value.replace("ä", "a").replace("ë", "e") if isinstance(value, str) else value


def of_results(results: Iterable[Result]) -> list[list[Any]]:
    return [list(map(_plain, r.values())) for result in results for r in result.rows.to_pylist()]


def _plain(value: Any) -> Any:
    return dict(value) if isinstance(value, list) and value and type(value[0]) is tuple else value


@pytest.mark.parametrize("name", QUESTIONS)
@given(rows=records, pieces=st.integers(1, 6))
@examples(8)
def test_equal_values_are_one_in_any_pieces(
    name: str, rows: list[tuple[int, Any, Any, Any]], pieces: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        size = max(1, sum(map(len, write(Path(folder), rows))) // pieces)
        program = sql(text(Path(folder), name))
        left = windows_inline(program, pytest.fail, batch_bytes=size, piece_bytes=size)
        found = of_results(result for windows in left for result in windows.results())
    assert folded(found, name) == folded(by_duckdb(rows, name), name)


ROWS = [(i % 20, NAMES[i % 11], LENGTHS[i % 8], ZEROS[i % 4]) for i in range(200)]


def test_on_spark(spark: SparkSession, tmp_path: Path) -> None:
    from muntin.api import run_on_spark

    write(tmp_path, ROWS)
    stream, _, _ = text(tmp_path, "around").partition("CREATE JOB")
    jobs = {f"j{number}": name for number, name in enumerate(QUESTIONS)}
    every = (
        text(tmp_path, name).partition("CREATE JOB j")[2].join([f"CREATE JOB {job}", ""])
        for job, name in jobs.items()
    )
    program = sql(f"{stream}{';'.join(every)}")
    results = list(run_on_spark(program, tmp_path / "state", spark))
    for job, name in jobs.items():
        found = of_results(result for result in results if result.job == job)
        assert folded(found, name) == folded(by_duckdb(ROWS, name), name), name


def test_the_smallest_spelling_is_shown(tmp_path: Path) -> None:
    write(tmp_path, [(0, "bob", "1 day", 0), (1, "Bob", "24 hours", 0), (2, "bOB", "1 day", 0)])
    select = (
        "SELECT k COLLATE NOCASE AS k, d::INTERVAL AS d, mode(k COLLATE NOCASE) AS often, "
        "list(DISTINCT k COLLATE NOCASE) AS names, max(d::INTERVAL) AS longest FROM s GROUP BY 1, 2"
    )
    stream, _, _ = text(tmp_path, "around").partition("CREATE JOB")
    program = sql(f"{stream}CREATE JOB j AS {select} WINDOW 1 MINUTE")
    left = windows_inline(program, pytest.fail, batch_bytes=60, piece_bytes=60)
    (found,) = of_results(result for windows in left for result in windows.results())
    assert found == ["Bob", "1 day", "Bob", ["Bob"], "24:00:00"]
