"""Whatever SQL stands around a core: the rows of a window are those of the query itself.

The oracle is DuckDB, with the user's own text over the records of the window.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from muntin.language.program import sql
from muntin.run.inline import InlineRun, ignore, run_inline, windows_inline
from muntin.run.loop import Rules
from muntin.run.results import Result
from muntin.windows.choice import Sharing
from tests.effort import examples
from tests.oracle import Record, same, write_logs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUERIES = [
    # top-k of each group
    """SELECT k, s, count(*) AS c, row_number() OVER (PARTITION BY k ORDER BY c DESC, s) AS r
    FROM logs GROUP BY k, s QUALIFY r <= 2 ORDER BY k, r""",
    "SELECT k, sum(n) AS total, rank() OVER (ORDER BY total DESC NULLS LAST) FROM logs GROUP BY k",
    """SELECT k, count(*) AS c, 100.0 * c / sum(c) OVER () AS share, lag(c) OVER (ORDER BY k) AS b
    FROM logs WHERE x IS NOT NULL OR n > 0 GROUP BY k""",
    "SELECT k, sum(count(*)) FILTER (WHERE k > 'a') OVER (ORDER BY k) AS m FROM logs GROUP BY k",
    # around groups
    "SELECT avg(total) FROM (SELECT s, sum(x) AS total FROM logs GROUP BY s)",
    """SELECT k, max(m) AS best, string_agg(s, ',' ORDER BY s) AS names
    FROM (SELECT k, s, count(DISTINCT n) AS m FROM logs GROUP BY k, s HAVING count(*) > 1)
    GROUP BY k""",
    """WITH by_k AS (SELECT k, count(*) AS n, median(x) AS mid FROM logs GROUP BY k),
    whole AS (SELECT sum(n) AS n FROM by_k)
    SELECT k, by_k.n / whole.n AS share, mid FROM by_k, whole ORDER BY share DESC, k LIMIT 3""",
    "SELECT k, count(*) AS c FROM logs GROUP BY k ORDER BY c DESC, k LIMIT 2 OFFSET 1",
    "SELECT DISTINCT k, n % 2 AS odd FROM logs WHERE n IS NOT NULL",
    "SELECT DISTINCT count(*) AS n FROM logs GROUP BY k",
    "SELECT count(*) AS users FROM (SELECT DISTINCT k FROM logs)",
    """SELECT k, unnest(map_keys(h)) AS value, unnest(map_values(h)) AS times
    FROM (SELECT k, histogram(s) AS h FROM logs GROUP BY k)""",
    "SELECT k, v FROM (SELECT k, [min(n), max(n)] AS l FROM logs GROUP BY k), unnest(l) AS t(v)",
    """SELECT k, count(*) AS n FROM logs GROUP BY k
    HAVING count(*) >= (SELECT avg(n) FROM (SELECT count(*) AS n FROM logs GROUP BY k))""",
    # what subqueries show of records
    """WITH good AS (SELECT k AS name, x * 2 AS twice FROM logs WHERE x > 0)
    SELECT name, sum(twice), count(*) FROM good GROUP BY name""",
    "SELECT upper(k) AS u, count(*) FROM (SELECT * FROM logs WHERE k <> '') l GROUP BY l.k, u",
    "WITH c(s, name) AS (SELECT k, s FROM logs) SELECT s, max(name) FROM c GROUP BY s",
    "SELECT a, count(b) FROM (SELECT s, k, x FROM logs) t(a, b) WHERE x > 0 OR a = '' GROUP BY a",
    # elements of lists that records have
    """SELECT word, count(*), sum(x) FROM logs, unnest([k, s, 'x']) AS w(word) GROUP BY word""",
    """SELECT t.name, w.c, count(*) AS m, max(count(*)) OVER () AS most
    FROM logs l CROSS JOIN unnest(string_split(l.k || 'b', '')) w(c) JOIN names t ON t.k = w.c
    GROUP BY t.name, w.c""",
    "SELECT k, unnest([min(n), max(n)]) AS bound FROM logs GROUP BY k",
    # several sets of keys
    "SELECT k, s, count(*), sum(x), count(DISTINCT n) FROM logs GROUP BY ROLLUP (k, s)",
    """SELECT k, n % 2 AS odd, grouping(k, odd) AS g, grouping(k), median(x), max(s)
    FROM logs GROUP BY CUBE (k, odd) HAVING count(*) > 1""",
    """SELECT s, k, avg(n), count(*) FILTER (WHERE x > 0) AS c FROM logs WHERE n IS NOT NULL
    GROUP BY GROUPING SETS ((s, k), k, (), ()), s ORDER BY s, k, c""",
    "SELECT k, s, count(*) FROM logs GROUP BY k, ROLLUP (s, (n, x))",
    """SELECT k, s, c, c / max(c) OVER (PARTITION BY g) AS share FROM (
    SELECT k, s, grouping_id(k, s) AS g, count(*) AS c FROM logs GROUP BY CUBE (k, s))""",
    """WITH r AS (SELECT k, s, count(*) AS c, grouping(s) AS g FROM logs GROUP BY ROLLUP (k, s)),
    t AS (SELECT s, sum(x) AS x, grouping(s) AS g FROM logs WHERE x > 0
      GROUP BY GROUPING SETS (s, ()))
    SELECT r.k, r.s, r.c, t.x FROM r LEFT JOIN t ON r.s IS NOT DISTINCT FROM t.s AND r.g = t.g""",
    # several cores
    """SELECT 'all' AS what, count(*) AS n FROM logs
    UNION ALL SELECT 'positive', count(*) FROM logs WHERE n > 0
    UNION ALL SELECT k, sum(n) FROM logs WHERE k IS NOT NULL GROUP BY k ORDER BY what, n""",
    """WITH a AS (SELECT k, count(*) AS n FROM logs GROUP BY k),
    b AS (SELECT s, max(x) AS top, count(DISTINCT n) AS d FROM logs WHERE n > 0 GROUP BY s)
    SELECT k, a.n, b.top, b.d FROM a LEFT JOIN b ON a.k = b.s""",
    """SELECT k, sum(n) AS s, (SELECT max(x) FROM logs) AS top FROM logs GROUP BY k""",
    "SELECT k FROM logs GROUP BY k EXCEPT SELECT s FROM logs WHERE x > 0 GROUP BY s",
    "FROM logs l JOIN names USING (k) SELECT name, count(*) AS c, max(c) OVER () GROUP BY name",
    # tables, beside groups and beside records; there are two rows of 'a', and none of 'ü'
    """SELECT name, c FROM (SELECT k, count(*) AS c FROM logs GROUP BY k) g
    LEFT JOIN names ON g.k = names.k""",
    "SELECT k, sum(n) AS s FROM logs GROUP BY k HAVING k IN (SELECT k FROM names WHERE w > 1)",
    """SELECT t.name, sum(l.x * t.w) AS s, count(*), median(n) FROM logs l
    JOIN names t ON l.k = t.k WHERE w > 0 GROUP BY t.name HAVING count(*) > 1""",
    """SELECT names.k IS NULL AS strange, count(*), count(DISTINCT name) FROM logs
    LEFT JOIN names USING (k) GROUP BY 1""",
    """WITH rich AS (SELECT name, x * w AS worth FROM logs LEFT OUTER JOIN names USING (k))
    SELECT name, sum(worth) AS total, rank() OVER (ORDER BY sum(worth), name) FROM rich
    GROUP BY name""",
    """SELECT a.name AS a, b.name AS b, count(*) FROM logs LEFT JOIN names a USING (k)
    LEFT JOIN names b ON logs.s = b.k AND b.w > a.w GROUP BY ROLLUP (a.name, b.name)""",
]
NAMES = "k,name,w\na,Anna,1\na,Ada,2.5\nb,Bea,0\n"
texts = st.one_of(st.none(), st.sampled_from(["a", "b", "ü", ""]))
records = st.lists(
    st.fixed_dictionaries(
        {
            "t": st.integers(0, 150),
            "k": texts,
            "s": texts,
            "n": st.one_of(st.none(), st.integers(-5, 5)),
            "x": st.one_of(st.none(), st.integers(-40, 40).map(lambda v: v / 4)),
        }
    ),
    min_size=1,
    max_size=40,
)
sources = st.dictionaries(st.sampled_from(["web-1", "web-2", "db"]), records, min_size=1)
windows = st.sampled_from([(60, 60), (60, 20), (150, 50)])
_SCHEMA = pa.schema(
    {"t": pa.int64(), "k": pa.string(), "s": pa.string(), "n": pa.int64(), "x": pa.float64()}
)
Rows = dict[int, list[tuple[Any, ...]]]  # by where windows start, in seconds


def program_text(folder: str, query: str, window: tuple[int, int]) -> str:
    Path(folder, "names.csv").write_text(NAMES)
    return (
        f"CREATE TABLE names FROM '{folder}/names.csv'; "
        "CREATE STREAM logs (t BIGINT, k VARCHAR, s VARCHAR, n BIGINT, x DOUBLE) "
        f"FROM '{folder}/{{source}}.jsonl' FORMAT json TIMESTAMP t;\n"
        f"CREATE JOB job AS {query} WINDOW {window[0]} SECONDS EVERY {window[1]} SECONDS;"
    )


def answers(query: str, logs: dict[str, Sequence[Record]], window: tuple[int, int]) -> Rows:
    """The query's own rows over the records of each window that has any."""
    every = [record for of_source in logs.values() for record in of_source]
    length, slide = window
    first = min(record["t"] for record in every) // slide * slide - length
    found: Rows = {}
    con = duckdb.connect(config={"threads": 1})
    values = ", ".join(str(tuple(line.split(","))) for line in NAMES.split()[1:])
    con.execute(
        f"CREATE TABLE names AS SELECT k, name, w::DOUBLE AS w FROM (VALUES {values}) v(k, name, w)"
    )
    for start in range(first, 200, slide):
        inside = [r for r in every if start <= r["t"] < start + length]
        if inside:
            con.register("logs", pa.Table.from_pylist(inside, schema=_SCHEMA))
            found[start] = con.execute(query).fetchall()
    return {start: rows for start, rows in found.items() if rows}


def rows_of(results: Iterable[Result]) -> Rows:
    return {
        result.start // 1_000_000: [tuple(row.values()) for row in result.rows.to_pylist()]
        for result in results
    }


def equal(found: Rows, wanted: Rows) -> bool:
    """The same rows in every window; their order is another test's matter."""
    return found.keys() == wanted.keys() and all(
        same(sorted(found[start], key=_key), sorted(wanted[start], key=_key)) for start in found
    )


def _key(row: Sequence[Any]) -> list[tuple[bool, str]]:
    numbers = (float(v) if isinstance(v, int | float) else v for v in row)
    return [(value is None, str(value)) for value in numbers]


@pytest.mark.parametrize("query", QUERIES)
@examples(6)
@given(
    logs=sources,
    window=windows,
    batch=st.integers(1, 3000),
    piece=st.integers(1, 1500),
    sharing=st.sampled_from(["auto", "shared", "separate"]),
)
def test_inline_equals_the_query_itself(
    query: str,
    logs: dict[str, Sequence[Record]],
    window: tuple[int, int],
    batch: int,
    piece: int,
    sharing: Sharing,
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        write_logs(Path(folder), logs)
        program = sql(program_text(folder, query, window))
        leaving = windows_inline(program, ignore, ignore, batch, piece, sharing)
        found = rows_of(result for each in leaving for result in each.results())
    wanted = answers(query, logs, window)
    assert equal(found, wanted), (found, wanted)


@pytest.mark.usefixtures("spark")
@examples(4)
@given(logs=sources, window=windows, batch=st.integers(200, 3000))
def test_spark_equals_the_query_itself(
    spark: SparkSession, logs: dict[str, Sequence[Record]], window: tuple[int, int], batch: int
) -> None:
    from muntin.spark.runner import Settings, SparkRun

    with tempfile.TemporaryDirectory() as folder:
        write_logs(Path(folder), logs)
        stream, _, _ = program_text(folder, "", window).partition("\n")
        jobs = "".join(
            f"\nCREATE JOB job{number} AS {query} "
            f"WINDOW {window[0]} SECONDS EVERY {window[1]} SECONDS;"
            for number, query in enumerate(QUERIES)
        )
        settings = Settings(Path(folder) / "state", follow=False, batch_bytes=batch)
        steps = SparkRun(sql(stream + jobs), spark.sparkContext, settings).turns()
        results = [result for step in steps for result in step.emission.results()]
    for number, query in enumerate(QUERIES):
        found = rows_of(result for result in results if result.job == f"job{number}")
        wanted = answers(query, logs, window)
        assert equal(found, wanted), (query, found, wanted)


def test_rows_are_in_the_order_of_the_query_and_then_of_all_columns(tmp_path: Path) -> None:
    logs: dict[str, Sequence[Record]]
    logs = {"a": [{"t": 1, "k": k, "s": s} for k in "cab" for s in "yxz"] * 2}
    write_logs(tmp_path, logs)
    query = """SELECT s, k, n FROM (SELECT k, s, count(*) AS n FROM logs GROUP BY k, s)
    ORDER BY s DESC LIMIT 5"""
    (result,) = run_inline(sql(program_text(str(tmp_path), query, (60, 60))))
    rows = [tuple(row.values()) for row in result.rows.to_pylist()]
    assert rows == [("z", "a", 2), ("z", "b", 2), ("z", "c", 2), ("y", "a", 2), ("y", "b", 2)]


def rows(text: str) -> list[dict[str, Any]]:
    return [row for result in run_inline(sql(text)) for row in result.rows.to_pylist()]


STREAM = "CREATE STREAM logs (t BIGINT, k VARCHAR) FROM '{}/*.jsonl' FORMAT json TIMESTAMP t;"


@pytest.mark.parametrize(
    ("query", "window", "wanted"),
    [
        (
            "SELECT window_start, k, count(*) / epoch(window_end - window_start) AS rate FROM logs "
            "GROUP BY window_start, window_end, k HAVING window_end > '1970-01-01 00:01:30+00'",
            "1 MINUTE",
            [{"k": "b", "rate": 0.05}],
        ),
        (
            "SELECT window_name || ' from ' || epoch(window_start)::INT AS w, count(*) AS n "
            "FROM logs GROUP BY ALL",
            "1 MINUTE, 2 MINUTES",
            [
                {"w": "1 minute from 0", "n": 1},
                {"w": "1 minute from 60", "n": 3},
                {"w": "2 minutes from 0", "n": 4},
            ],
        ),
        (
            "SELECT k, epoch(window_end - window_start) AS lasted, window_name AS name FROM logs "
            "GROUP BY k",
            "SESSION 10 SECONDS",
            [
                {"k": "a", "lasted": 10.0, "name": "session 10 seconds"},
                {"k": "b", "lasted": 15.0, "name": "session 10 seconds"},
            ],
        ),
        (
            "SELECT window_start * 10 + window_end AS w, count(*) AS n FROM logs",
            "2 RECORDS",
            [{"w": 2, "n": 2}, {"w": 24, "n": 2}],
        ),
        (
            "SELECT window_start, k, epoch(c.window_end) - epoch(first) AS since FROM "
            "(SELECT window_end, k, min(make_timestamptz(t * 1000000)) AS first FROM logs "
            "GROUP BY 1, 2) c WHERE window_name = '1 minute'",
            "1 MINUTE",
            [{"k": "a", "since": 59.0}, {"k": "b", "since": 60.0}],
        ),
    ],
)
def test_bounds_and_name_of_the_window_stand_in_expressions(
    tmp_path: Path, query: str, window: str, wanted: list[dict[str, Any]]
) -> None:
    logs: dict[str, Sequence[Record]]
    logs = {"a": [{"t": 1, "k": "a"}, *({"t": t, "k": "b"} for t in (60, 62, 65))]}
    write_logs(tmp_path, logs)
    text = f"{STREAM.format(tmp_path)} CREATE JOB job AS {query} WINDOW {window};"
    assert rows(text) == wanted


def test_a_window_that_the_finish_fails_on_is_left_out_and_counted(tmp_path: Path) -> None:
    logs: dict[str, Sequence[Record]]
    logs = {"a": [{"t": t, "k": k} for t, k in ((1, "3"), (70, "x"), (71, "4"), (130, "5"))]}
    write_logs(tmp_path, logs)
    jobs = """CREATE JOB bad AS SELECT sum(CAST(k AS INT)) AS s FROM (SELECT k FROM logs GROUP BY k)
    WINDOW 1 MINUTE; CREATE JOB good AS SELECT count(*) AS n FROM logs WINDOW 1 MINUTE;"""
    notes: list[str] = []
    results = list(run_inline(sql(STREAM.format(tmp_path) + jobs), notes.append))
    bad = [row for each in results if each.job == "bad" for row in each.rows.to_pylist()]
    assert bad == [{"s": 3}, {"s": 5}]
    assert sum(each.job == "good" for each in results) == 3
    (note,) = notes
    assert "job 'bad': the finish failed on the window from 1970-01-01 00:01:00" in note


def test_a_finish_that_fails_too_often_stops_its_job(tmp_path: Path) -> None:
    logs: dict[str, Sequence[Record]]
    logs = {"a": [{"t": t, "k": k} for t, k in ((1, "3"), (70, "x"), (130, "5"))]}
    write_logs(tmp_path, logs)
    job = """CREATE JOB bad AS SELECT sum(CAST(k AS INT)) AS s FROM (SELECT k FROM logs GROUP BY k)
    WINDOW 1 MINUTE MAX ERRORS 0;"""
    notes: list[str] = []
    results = list(run_inline(sql(STREAM.format(tmp_path) + job), notes.append))
    assert [each.rows.to_pylist() for each in results] == [[{"s": 3}]]
    assert "stops" in notes[-1]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT name, count(*) AS c FROM logs JOIN names USING (k) GROUP BY name",
        "SELECT name, c FROM (SELECT k, count(*) AS c FROM logs GROUP BY k) JOIN names USING (k)",
    ],
)
def test_a_table_that_changes_is_read_again_while_logs_are_followed(
    tmp_path: Path, query: str
) -> None:
    log, table = tmp_path / "a.jsonl", tmp_path / "names.csv"
    log.write_text('{"t": 1, "k": "a"}\n{"t": 61, "k": "z"}\n')
    text = program_text(str(tmp_path), query, (60, 60))
    table.write_text("k,name\na,Anna\n")
    program = sql(text)
    (stream,) = program.streams.values()
    run = InlineRun(stream, tuple(program.jobs.values()), Rules(follow=True))
    found = list(run.turn(200.0).results())
    replacement = tmp_path / "new.csv"
    replacement.write_text("k,name\na,Ada\nb,Bea\n")
    replacement.rename(table)
    with log.open("a") as more:
        more.write('{"t": 121, "k": "a"}\n{"t": 122, "k": "b"}\n{"t": 181, "k": "z"}\n')
    found += run.turn(201.0).results()
    assert [(each.start // 1_000_000, each.rows.to_pylist()) for each in found] == [
        (0, [{"name": "Anna", "c": 1}]),
        (120, [{"name": "Ada", "c": 1}, {"name": "Bea", "c": 1}]),
    ]
