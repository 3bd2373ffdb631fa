"""PREVIOUS(job): a window sees the rows of the result one step before it, whatever the batches.

The oracle is DuckDB, window after window, with the user's own text over the records of the window
and a table of the rows that it had for the window before.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from muntin.language.explain import explain
from muntin.language.program import sql
from muntin.run.inline import ignore, run_inline, windows_inline
from muntin.run.results import Result
from muntin.windows.choice import Sharing
from tests.effort import examples
from tests.oracle import Record, same, write_logs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.usefixtures("looking_at_all")

QUERIES = {  # with the types of their columns
    """SELECT k, g.n, g.n - coalesce(p.n, 0) AS more, coalesce(p.total, 0) + g.n AS total
    FROM (SELECT k, count(*) AS n FROM logs GROUP BY k) g LEFT JOIN PREVIOUS(job) p USING (k)""": (
        "k VARCHAR, n BIGINT, more BIGINT, total BIGINT"
    ),
    """SELECT k, g.s, coalesce(p.age, 0) + 1 AS age, 100 * (g.s - p.s) / p.s AS percent
    FROM (SELECT k, sum(x) AS s FROM logs GROUP BY k) g FULL JOIN PREVIOUS(job) AS p USING (k)
    WHERE p.age IS NULL OR p.age < 3""": "k VARCHAR, s DOUBLE, age INTEGER, percent DOUBLE",
    "SELECT count(*) AS n, (SELECT max(n) FROM PREVIOUS(job)) AS before FROM logs": (
        "n BIGINT, before BIGINT"
    ),
    """SELECT k, max(n) AS top FROM logs GROUP BY k
    HAVING max(n) > coalesce((SELECT max(previous.top) FROM PREVIOUS(job)), -9)""": (
        "k VARCHAR, top BIGINT"
    ),
    """SELECT g.k, list_sort(list_distinct(g.l || coalesce(p.l, []))) AS l
    FROM (SELECT k, list(n) AS l FROM logs WHERE n IS NOT NULL GROUP BY k) g
    LEFT JOIN PREVIOUS(job) p ON p.k IS NOT DISTINCT FROM g.k""": "k VARCHAR, l BIGINT[]",
}
KINDS = [((60, 60),), ((60, 20),), ((60, 20), (40, 40)), ((20, 50),)]
records = st.lists(
    st.fixed_dictionaries(
        {
            "t": st.integers(0, 240),
            "k": st.sampled_from(["a", "b", None]),
            "n": st.one_of(st.none(), st.integers(-5, 5)),
            "x": st.integers(-8, 8).map(lambda v: v / 4),
        }
    ),
    min_size=1,
    max_size=20,
).map(lambda several: sorted(several, key=itemgetter("t")))
sources = st.dictionaries(st.sampled_from(["web-1", "web-2"]), records, min_size=1)
_SCHEMA = pa.schema({"t": pa.int64(), "k": pa.string(), "n": pa.int64(), "x": pa.float64()})
Rows = dict[tuple[int, int], list[tuple[Any, ...]]]  # by where windows start and end, in seconds
Kinds = Sequence[tuple[int, int]]


def stream_text(folder: str | Path) -> str:
    return (
        "CREATE STREAM logs (t BIGINT, k VARCHAR, n BIGINT, x DOUBLE) "
        f"FROM '{folder}/{{source}}.jsonl' FORMAT json TIMESTAMP t SLACK 0 SECONDS;\n"
    )


def job_text(query: str, kinds: Kinds, name: str = "job") -> str:
    windows = ", ".join(f"{length} SECONDS EVERY {slide} SECONDS" for length, slide in kinds)
    return f"CREATE JOB {name} AS {query.replace('(job)', f'({name})')} WINDOW {windows};\n"


def answers(query: str, types: str, logs: dict[str, Sequence[Record]], kinds: Kinds) -> Rows:
    every = [record for of_source in logs.values() for record in of_source]
    text = query.replace("PREVIOUS(job) p", "before p").replace("PREVIOUS(job) AS p", "before p")
    text = text.replace("PREVIOUS(job)", "before AS previous")
    con = duckdb.connect(config={"threads": 1})
    found: Rows = {}
    for length, slide in kinds:
        con.execute(f"CREATE OR REPLACE TABLE before ({types})")
        for start in range(-length // slide * slide, 300, slide):
            inside = [r for r in every if start <= r["t"] < start + length]
            con.register("logs", pa.Table.from_pylist(inside, schema=_SCHEMA))
            wanted = f"CREATE OR REPLACE TABLE now AS SELECT * FROM ({text})"
            con.execute(wanted if inside else "CREATE OR REPLACE TABLE now AS FROM before LIMIT 0")
            con.execute(f"CREATE OR REPLACE TABLE before ({types})")
            con.execute("INSERT INTO before FROM now")
            if rows := con.execute("FROM before").fetchall():
                found[start, start + length] = rows
    return found


def rows_of(results: Iterable[Result]) -> Rows:
    return {
        (result.start // 1_000_000, result.end // 1_000_000): [
            tuple(row.values()) for row in result.rows.to_pylist()
        ]
        for result in results
    }


def equal(found: Rows, wanted: Rows) -> bool:
    return found.keys() == wanted.keys() and all(
        same(sorted(found[window], key=str), sorted(wanted[window], key=str)) for window in found
    )


@pytest.mark.parametrize("query", QUERIES)
@examples(6)
@given(
    logs=sources,
    kinds=st.sampled_from(KINDS),
    batch=st.integers(150, 2000),
    sharing=st.sampled_from(["auto", "separate"]),
)
def test_inline_equals_window_after_window(
    query: str, logs: dict[str, Sequence[Record]], kinds: Kinds, batch: int, sharing: Sharing
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        write_logs(Path(folder), logs)
        program = sql(stream_text(folder) + job_text(query, kinds))
        leaving = windows_inline(program, ignore, ignore, batch, sharing=sharing)
        found = rows_of(result for each in leaving for result in each.results())
    wanted = answers(query, QUERIES[query], logs, kinds)
    assert equal(found, wanted), (found, wanted)


BASE = 1_699_999_200  # where windows of all kinds start


@pytest.mark.usefixtures("spark")
@examples(2)
@given(logs=sources, kinds=st.sampled_from(KINDS), cuts=st.lists(st.integers(0, 240), max_size=4))
def test_spark_equals_it_after_restarts(
    spark: SparkSession, logs: dict[str, Sequence[Record]], kinds: Kinds, cuts: list[int]
) -> None:
    """All that is written up to each cut is read by a run of its own."""
    from muntin.spark.runner import Settings, StreamRun

    found: dict[str, list[Result]] = {}
    with tempfile.TemporaryDirectory() as name:
        jobs = "".join(job_text(q, kinds, f"job{i}") for i, q in enumerate(QUERIES))
        program = sql(stream_text(name) + jobs)
        settings = Settings(Path(name) / "state", follow=True, idle_seconds=1e6)
        before = -1
        for cut in [*sorted(cuts), 240, 1000]:
            for source, of_source in logs.items():
                new = [r for r in of_source if before < r["t"] <= cut]
                last = [{"t": 900, "k": "z"}] * 3 if cut == 1000 else []  # so that all are over
                with (Path(name) / f"{source}.jsonl").open("a") as log:
                    for record in [*new, *last]:
                        log.write(json.dumps({**record, "t": BASE + record["t"]}) + "\n")
            before = cut
            run = StreamRun(
                spark.sparkContext,
                program.streams["logs"],
                program.jobs_of("logs"),
                settings,
                lambda: BASE + 5000.0,
            )
            for result in run.loop.turn().emission.results():
                found.setdefault(result.job, []).append(result)
            run.close()
    for number, (query, types) in enumerate(QUERIES.items()):
        rows = rows_of(found.get(f"job{number}", []))
        mine = {(start - BASE, end - BASE): several for (start, end), several in rows.items()}
        wanted = answers(query, types, logs, kinds)
        assert equal(mine, wanted), (query, mine, wanted)


def results_of(tmp_path: Path, job: str, *moments: tuple[int, str], notes: list[str]) -> list[Any]:
    logs: dict[str, Sequence[Record]] = {"web": [{"t": t, "k": k} for t, k in moments]}
    write_logs(tmp_path, logs)
    found = run_inline(sql(stream_text(tmp_path) + job), notes.append)
    return [(r.start // 1_000_000, r.rows.to_pylist()) for r in found]


def test_a_window_without_a_result_is_nothing_to_look_back_at(tmp_path: Path) -> None:
    query = """SELECT n, (SELECT n FROM PREVIOUS(job)) AS before
    FROM (SELECT count(*) AS n FROM logs WHERE k <> 'x')"""
    moments = [(1, "a"), (11, "a"), (12, "a"), (21, "x"), (31, "a"), (51, "a")]
    found = results_of(tmp_path, job_text(query, [(10, 10)]), *moments, notes=[])
    assert found == [
        (0, [{"n": 1, "before": None}]),
        (10, [{"n": 2, "before": 1}]),
        (30, [{"n": 1, "before": None}]),
        (50, [{"n": 1, "before": None}]),
    ]


def test_a_window_that_the_finish_fails_on_is_nothing_to_look_back_at(tmp_path: Path) -> None:
    query = """SELECT s, (SELECT s FROM PREVIOUS(job)) AS before
    FROM (SELECT sum(CAST(k AS INT)) AS s FROM (SELECT k FROM logs GROUP BY k))"""
    notes: list[str] = []
    moments = [(1, "1"), (11, "2"), (21, "x"), (31, "3"), (41, "4")]
    found = results_of(tmp_path, job_text(query, [(10, 10)]), *moments, notes=notes)
    assert [(start, rows[0]["before"]) for start, rows in found] == [
        (0, None),
        (10, 1),
        (30, None),
        (40, 3),
    ]
    assert "the finish failed" in notes[0]


def test_days_and_windows_that_cumulate_follow_each_other(tmp_path: Path) -> None:
    query = "SELECT count(*) AS n, (SELECT n FROM PREVIOUS(job)) AS before FROM logs"
    hours = [0, 1, 1, 2, 22, 23, 23, 24 + 1, 24 + 23]
    begin = int(datetime(2026, 3, 28, 23, tzinfo=UTC).timestamp())  # in Berlin, 23 hours follow
    logs: dict[str, Sequence[Record]] = {"web": [{"t": begin + 3600 * h, "k": "a"} for h in hours]}
    write_logs(tmp_path, logs)
    jobs = (
        f"CREATE JOB days AS {query.replace('(job)', '(days)')} "
        "WINDOW 1 DAY AT TIME ZONE 'Europe/Berlin';"
        f"CREATE JOB steps AS {query.replace('(job)', '(steps)')} "
        "WINDOW 3 HOURS CUMULATE 1 HOUR;"
    )
    found = list(run_inline(sql(stream_text(tmp_path) + jobs)))
    rows = {
        job: [tuple(r.rows.to_pylist()[0].values()) for r in found if r.job == job]
        for job in ("days", "steps")
    }
    assert rows["days"] == [(5, None), (3, 5), (1, 3)]
    #       23h  24h 1h 2h       21h 22h(none) ...
    starts = [(r.start, r.end) for r in found if r.job == "steps"]
    for (start, end), (_, before) in zip(starts, rows["steps"], strict=True):
        expected = next((row[0] for (s, e), row in zip(starts, rows["steps"], strict=True)
                         if e == end - 3_600_000_000), None)  # fmt: skip
        assert before == expected, (start, end)


def test_explain_tells_that_a_job_looks_back(tmp_path: Path) -> None:
    query = "SELECT count(*) AS n, (SELECT n FROM PREVIOUS(job)) AS before FROM logs"
    told = explain(sql(stream_text(tmp_path) + job_text(query, [(10, 10)])))
    assert "  previous the rows of the result one step earlier, none if there was none\n" in told


def test_a_job_that_has_changed_looks_back_at_nothing(spark: SparkSession, tmp_path: Path) -> None:
    from muntin.spark.runner import Settings, SparkRun

    query = "SELECT count(*) AS n, (SELECT n FROM PREVIOUS(job)) AS before FROM logs"
    wider = query.replace("FROM logs", ", 'x' AS more FROM logs")
    befores = []
    for number, text in enumerate((query, query, wider)):
        with (tmp_path / "web.jsonl").open("a") as log:
            log.write(json.dumps({"t": BASE + 10 * number, "k": "a"}) + "\n")
        program = sql(stream_text(tmp_path) + job_text(text, [(10, 10)], "job"))
        settings = Settings(tmp_path / "state", follow=False)
        for turn in SparkRun(program, spark.sparkContext, settings).turns():
            befores += [r.rows.to_pylist()[0]["before"] for r in turn.emission.results()]
    assert befores == [None, 1, None]
