"""Jobs over several streams: rows are those of the query itself, C² is that of all of them.

The oracle is DuckDB, with the user's own text over the records of the window, of each stream by
its own format and slack.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from muntin.language.explain import explain
from muntin.language.program import sql
from muntin.run.inline import InlineRun, ignore, run_inline, windows_inline
from muntin.run.loop import Rules
from muntin.run.results import Result
from muntin.windows.choice import Sharing
from tests.effort import examples
from tests.oracle import Record, same, stream_time

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.usefixtures("looking_at_all")

QUERIES = [
    """SELECT auction, bids, ask
    FROM (SELECT auction, count(*) AS bids FROM bids GROUP BY auction) b
    JOIN (SELECT auction, min(price) AS ask FROM asks GROUP BY auction) a USING (auction)""",
    """WITH b AS (SELECT auction, max(price) AS best, count(DISTINCT who) AS n FROM bids
      WHERE price > 1 GROUP BY auction),
    a AS (SELECT auction, avg(price) AS mid FROM asks GROUP BY auction)
    SELECT auction, best, n, mid, best / mid AS r FROM b FULL JOIN a USING (auction)""",
    # nexmark q8: who has come and opened an auction in the same window
    """SELECT p.id, p.name, a.reserve FROM
    (SELECT id, name FROM people GROUP BY id, name) p
    JOIN (SELECT auction AS seller, price AS reserve FROM asks GROUP BY 1, 2) a
    ON p.id = a.seller""",
    "SELECT 'bids' AS what, count(*) AS n FROM bids UNION ALL SELECT 'asks', count(*) FROM asks",
    """SELECT auction, sum(n) AS n FROM (
      SELECT auction, count(*) AS n FROM bids GROUP BY 1
      UNION ALL SELECT auction, -count(*) FROM asks WHERE price < 4 GROUP BY 1
      UNION ALL SELECT id, 100 * count(*) FROM people GROUP BY 1) GROUP BY auction""",
    """SELECT b.auction, b.n, c.n AS high, a.n AS asked, b.source
    FROM (SELECT auction, source, count(*) AS n FROM bids GROUP BY ALL) b
    LEFT JOIN (SELECT auction, count(*) AS n FROM bids WHERE price > 5 GROUP BY 1) c USING (auction)
    LEFT JOIN (SELECT auction, count(*) AS n FROM asks GROUP BY 1) a USING (auction)""",
    "SELECT (SELECT max(price) FROM bids) AS high, (SELECT min(price) FROM asks) AS low",
    """SELECT auction, count(*) AS n FROM bids GROUP BY auction
    HAVING auction IN (SELECT auction FROM asks GROUP BY auction)""",
    "SELECT auction FROM bids GROUP BY 1 EXCEPT SELECT auction FROM asks GROUP BY 1",
    """WITH fine AS (SELECT auction AS k, price * 2 AS twice FROM bids WHERE price IS NOT NULL)
    SELECT k, s, m FROM (SELECT k, sum(twice) AS s FROM fine GROUP BY k) x
    LEFT JOIN (SELECT auction, median(price) AS m FROM asks GROUP BY ROLLUP (auction)) y
    ON x.k IS NOT DISTINCT FROM y.auction""",
]
COLUMNS = {
    "bids": {"t": "BIGINT", "auction": "BIGINT", "price": "BIGINT", "who": "VARCHAR"},
    "asks": {"at": "BIGINT", "auction": "BIGINT", "price": "DOUBLE"},
    "people": {"t": "BIGINT", "id": "BIGINT", "name": "VARCHAR"},
}
TIMES = {"bids": "t", "asks": "at", "people": "t"}
FORMATS = {"bids": "json", "asks": "csv", "people": "json"}
times, keys = st.integers(0, 150), st.integers(0, 3)
bid = st.fixed_dictionaries(
    {
        "t": times,
        "auction": keys,
        "price": st.one_of(st.none(), st.integers(0, 9)),
        "who": st.sampled_from(["ann", "bob", "", "ü"]),
    }
)
ask = st.fixed_dictionaries(
    {"at": times, "auction": keys, "price": st.integers(0, 40).map(lambda v: v / 4)}
)
person = st.fixed_dictionaries({"t": times, "id": keys, "name": st.sampled_from(["ann", "bob"])})


def logs_of(record: st.SearchStrategy[Record]) -> st.SearchStrategy[dict[str, list[Record]]]:
    records = st.lists(record, min_size=1, max_size=25)
    return st.dictionaries(st.sampled_from(["web-1", "web-2"]), records, min_size=1)


Logs = dict[str, dict[str, list[Record]]]  # by stream and source
Slacks = Mapping[str, int | None]  # by stream, in seconds
logs = st.fixed_dictionaries(
    {"bids": logs_of(bid), "asks": logs_of(ask), "people": logs_of(person)}
)
windows = st.sampled_from([(60, 60), (60, 20), (150, 50)])
Rows = dict[int, list[tuple[Any, ...]]]  # by where windows start, in seconds


def write(folder: Path, written: Logs) -> None:
    """Adds records to logs; those of CSV begin with a header."""
    for stream, sources in written.items():
        (folder / stream).mkdir(parents=True, exist_ok=True)
        for source, records in sources.items():
            path = folder / stream / f"{source}.log"
            lines = [json.dumps(record) for record in records]
            if FORMATS[stream] == "csv":
                lines = [",".join(str(r[name]) for name in COLUMNS[stream]) for r in records]
                lines = lines if path.exists() else [",".join(COLUMNS[stream]), *lines]
            with path.open("a") as log:
                log.writelines(f"{line}\n" for line in lines)


def streams_text(folder: Path, slacks: Slacks | None = None) -> str:
    texts = []
    for name, columns in COLUMNS.items():
        slack = (slacks or {}).get(name)
        declared = ", ".join(f"{column} {kind}" for column, kind in columns.items())
        texts.append(
            f"CREATE STREAM {name} ({declared}) FROM '{folder}/{name}/{{source}}.log' "
            f"FORMAT {FORMATS[name]} TIMESTAMP {TIMES[name]}"
            f"{'' if slack is None else f' SLACK {slack} SECONDS'};\n"
        )
    return "".join(texts)


def program_text(
    folder: Path, query: str, window: tuple[int, int], slacks: Slacks | None = None
) -> str:
    kinds = f"WINDOW {window[0]} SECONDS EVERY {window[1]} SECONDS"
    return f"{streams_text(folder, slacks)}CREATE JOB job AS {query} {kinds};"


def answers(
    query: str, written: Logs, window: tuple[int, int], slacks: Slacks | None = None
) -> Rows:
    """The query's own rows over the records that count in each window, if there are any.

    A stream that the query does not read makes no window.
    """
    length, slide = window
    found: Rows = {}
    con = duckdb.connect(config={"threads": 1})
    for start in range(-length // slide * slide, 200, slide):
        there = False
        for stream, sources in written.items():
            slack = (slacks or {}).get(stream)
            inside = []
            for source, records in sources.items():
                moments = [record[TIMES[stream]] for record in records]
                for number, record in enumerate(records, 1):
                    mark = stream_time(moments[:number], slack) - (slack or 0)
                    counts = slack is None or start + length > mark
                    if start <= record[TIMES[stream]] < start + length and counts:
                        inside.append({**record, "source": source})
            there |= bool(inside) and f"FROM {stream}" in query
            columns = {**COLUMNS[stream], "source": "VARCHAR"}
            empty = ", ".join(f"NULL::{kind} AS {name}" for name, kind in columns.items())
            schema = con.sql(f"SELECT {empty} LIMIT 0").to_arrow_table().schema
            con.register(stream, pa.Table.from_pylist(inside, schema=schema))
        rows = con.execute(query).fetchall() if there else []
        if rows:
            found[start] = rows
    return found


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


slacks_drawn = st.fixed_dictionaries(
    {name: st.one_of(st.none(), st.sampled_from([0, 5, 40])) for name in COLUMNS}
)


@pytest.mark.parametrize("query", QUERIES)
@examples(5)
@given(
    written=logs,
    window=windows,
    slacks=slacks_drawn,
    batch=st.integers(100, 3000),
    piece=st.integers(1, 1500),
    sharing=st.sampled_from(["auto", "shared", "separate"]),
)
def test_inline_equals_the_query_itself(
    query: str,
    written: Logs,
    window: tuple[int, int],
    slacks: Slacks,
    batch: int,
    piece: int,
    sharing: Sharing,
) -> None:
    with tempfile.TemporaryDirectory() as name:
        write(Path(name), written)
        program = sql(program_text(Path(name), query, window, slacks))
        leaving = windows_inline(program, ignore, ignore, batch, piece, sharing)
        found = rows_of(result for each in leaving for result in each.results())
    wanted = answers(query, written, window, slacks)
    assert equal(found, wanted), (found, wanted)


@pytest.mark.usefixtures("spark")
@examples(3)
@given(written=logs, window=windows, slacks=slacks_drawn, batch=st.integers(200, 3000))
def test_spark_equals_the_query_itself(
    spark: SparkSession, written: Logs, window: tuple[int, int], slacks: Slacks, batch: int
) -> None:
    from muntin.spark.runner import Settings, SparkRun

    with tempfile.TemporaryDirectory() as name:
        write(Path(name), written)
        jobs = "".join(
            f"\nCREATE JOB job{number} AS {query} "
            f"WINDOW {window[0]} SECONDS EVERY {window[1]} SECONDS;"
            for number, query in enumerate(QUERIES)
        )
        settings = Settings(Path(name) / "state", follow=False, batch_bytes=batch)
        program = sql(streams_text(Path(name), slacks) + jobs)
        assert {*program.streams} - {*COLUMNS} == {"asks+bids", "asks+people", "asks+bids+people"}
        steps = SparkRun(program, spark.sparkContext, settings).turns()
        results = [result for step in steps for result in step.emission.results()]
    for number, query in enumerate(QUERIES):
        found = rows_of(result for result in results if result.job == f"job{number}")
        wanted = answers(query, written, window, slacks)
        assert equal(found, wanted), (query, found, wanted)


BASE = 1_700_000_000
BOTH = """SELECT auction, bids, asked FROM
(SELECT auction, count(*) AS bids FROM bids GROUP BY 1) b
FULL JOIN (SELECT auction, count(*) AS asked FROM asks GROUP BY 1) a USING (auction)"""


def bids(*seconds: int) -> dict[str, list[Record]]:
    return {"web": [{"t": BASE + t, "auction": 7, "price": 1, "who": "ann"} for t in seconds]}


def asks(*seconds: int) -> dict[str, list[Record]]:
    return {"web": [{"at": BASE + t, "auction": 7, "price": 0.5} for t in seconds]}


def live(folder: Path, bounds: str = "", slacks: Slacks | None = None) -> InlineRun:
    text = f"{streams_text(folder, slacks)}CREATE JOB j AS {BOTH} WINDOW 10 SECONDS {bounds};"
    program = sql(text)
    (job,) = program.jobs.values()
    return InlineRun(program.streams[job.stream], [job], Rules(follow=True, idle_seconds=30))


Left = list[tuple[int, list[tuple[Any, ...]], list[tuple[str, str]], float]]


def left(results: Iterable[Result]) -> Left:
    """Of each window its start, rows, what is missing, and the area of C²."""
    return [
        (
            result.start // 1_000_000 - BASE,
            [tuple(row.values()) for row in result.rows.to_pylist()],
            [(missing.source, missing.why) for missing in result.c2.missing],
            result.c2.area,
        )
        for result in results
    ]


def test_a_window_waits_for_both_streams(tmp_path: Path) -> None:
    write(tmp_path, {"bids": bids(1, 2, 12), "asks": asks(3)})
    run = live(tmp_path)
    assert left(run.turn(BASE + 13.0).results()) == []
    write(tmp_path, {"asks": asks(15)})
    assert left(run.turn(BASE + 16.0).results()) == [(0, [(7, 2, 1)], [], 1.0)]


def test_a_stream_that_falls_silent_is_missing_in_the_score(tmp_path: Path) -> None:
    write(tmp_path, {"bids": bids(1), "asks": asks(3)})
    run = live(tmp_path)
    run.turn(BASE + 4.0)
    write(tmp_path, {"bids": bids(12, 41)})
    (first, second) = left(run.turn(BASE + 41.0).results())
    assert first == (0, [(7, 1, 1)], [("asks/web", "dead")], 0.5)
    assert second == (10, [(7, 1, None)], [("asks/web", "dead")], 0.5)


def test_a_deadline_lets_a_window_leave_without_the_other_stream(tmp_path: Path) -> None:
    write(tmp_path, {"bids": bids(1, 12), "asks": asks(3)})
    run = live(tmp_path, "WITHIN 2 SECONDS")
    assert left(run.turn(BASE + 11.0).results()) == []
    found = left(run.turn(BASE + 12.5).results())
    assert found == [(0, [(7, 1, 1)], [("asks/web", "awaited")], 0.5)]


def test_slack_is_that_of_each_stream(tmp_path: Path) -> None:
    write(tmp_path, {"bids": bids(1, 14, 2), "asks": asks(1, 14, 2)})
    run = live(tmp_path, slacks={"bids": 5, "asks": 0})
    assert left(run.turn(BASE + 15.0).results()) == []
    write(tmp_path, {"bids": bids(16), "asks": asks(16)})
    found = left(run.turn(BASE + 17.0).results())
    assert found == [(0, [(7, 2, 1)], [("asks/web", "late")], 0.5)]
    assert run.loop.progress.late["j"].records == 1


def test_what_one_stream_lacks_is_told_by_its_name(tmp_path: Path) -> None:
    write(tmp_path, {"bids": bids(1), "asks": asks(3)})
    with (tmp_path / "asks/web.log").open("a") as log:
        log.write("soon,7,1\n")
    text = streams_text(tmp_path).replace("who VARCHAR", "whom VARCHAR")
    notes: list[str] = []
    query = "SELECT (SELECT count(DISTINCT whom) FROM bids) AS n, (SELECT count(*) FROM asks) AS m"
    (result,) = run_inline(sql(f"{text}CREATE JOB j AS {query} WINDOW 10 SECONDS"), notes.append)
    assert result.rows.to_pylist() == [{"n": 0, "m": 1}]
    assert (result.counts.read, result.counts.bad) == (2, 1)
    bad, missing = notes
    assert bad.startswith(f"{tmp_path}/asks/web.log, line 3:")
    assert missing == "stream 'bids': no record has column 'whom'; did you mean who?"


def test_a_declared_source_counts_by_its_stream(tmp_path: Path) -> None:
    write(tmp_path, {"bids": bids(1), "asks": asks(3)})
    text = streams_text(tmp_path).replace("TIMESTAMP at", "TIMESTAMP at SOURCES 'db'")
    notes: list[str] = []
    program = sql(f"{text}CREATE JOB j AS {BOTH} WINDOW 10 SECONDS")
    ((_, rows, missing, area),) = left(run_inline(program, notes.append))
    assert (rows, missing) == ([(7, 1, 1)], [("asks/db", "dead")])
    assert area == pytest.approx(2 / 3)
    assert "no source 'asks/db', which SOURCES declares" in notes[0]


@pytest.mark.usefixtures("spark")
def test_restarts_and_commands_know_both_streams(spark: SparkSession, tmp_path: Path) -> None:
    from muntin.spark.runner import Settings, StreamRun
    from muntin.store.results import Results

    program = sql(f"{streams_text(tmp_path)}CREATE JOB j AS {BOTH} WINDOW 10 SECONDS;")
    stream, jobs = program.streams["asks+bids"], list(program.jobs.values())
    settings = Settings(tmp_path / "state", follow=True, idle_seconds=30)
    for second in range(0, 60, 3):  # a new run every time
        write(tmp_path, {"bids": bids(second, second), "asks": asks(second + 1)})
        now = BASE + 1000.0 + second
        run = StreamRun(spark.sparkContext, stream, jobs, settings, lambda now=now: now)  # type: ignore[misc]
        run.loop.turn()
        run.close()
    rows = Results(tmp_path / "state").read("j").to_pylist()
    found = [(r["window_start"].timestamp() - BASE, r["bids"], r["asked"]) for r in rows]
    inside = {
        start: [s for s in range(0, 60, 3) if start <= s < start + 10] for start in range(0, 50, 10)
    }
    asked = {
        start: [s for s in range(1, 61, 3) if start <= s < start + 10] for start in range(0, 50, 10)
    }
    assert found == [(start, 2 * len(inside[start]), len(asked[start])) for start in inside]

    from muntin.store.status import status

    _, sources = status(tmp_path / "state")
    assert [(row["stream"], row["source"]) for row in sources] == [
        ("asks+bids", "asks/web"),
        ("asks+bids", "bids/web"),
    ]


def test_explain_shows_which_stream_a_core_reads(tmp_path: Path) -> None:
    program = sql(f"{streams_text(tmp_path)}CREATE JOB j AS {BOTH} WINDOW 10 SECONDS;")
    told = explain(program)
    assert "STREAM asks+bids\n  members    asks, bids\n" in told
    assert "JOB j on asks+bids" in told
    lines = [" ".join(line.split()) for line in told.splitlines()]
    assert "__c0_1 bids count(*)" in lines
    assert "__c1_1 asks count(*)" in lines


@pytest.mark.parametrize("spans", ["TOUCH", "SPLIT"])
def test_spans_of_both_streams_count_as_those_of_each(tmp_path: Path, spans: str) -> None:
    text = ""
    for name, length in (("calls", 30), ("chats", 60)):
        (tmp_path / name).mkdir()
        records = [{"t": t, "e": t + length, "k": t % 2} for t in range(0, 100, 25)]
        log = "".join(json.dumps(record) + "\n" for record in records)
        (tmp_path / name / "web.log").write_text(log)
        text += (
            f"CREATE STREAM {name} (t BIGINT, e BIGINT, k BIGINT) FROM '{tmp_path}/{name}/*.log'"
        )
        text += f" FORMAT json TIMESTAMP t TO e BY {spans};\n"

    def answer(query: str) -> Rows:
        return rows_of(run_inline(sql(f"{text}CREATE JOB j AS {query} WINDOW 1 MINUTE")))

    calls, chats = (
        f"SELECT k, count(*) AS n FROM {name} GROUP BY k" for name in ("calls", "chats")
    )
    both = answer(f"SELECT 'calls', * FROM ({calls}) UNION ALL SELECT 'chats', * FROM ({chats})")
    for name, query in (("calls", calls), ("chats", chats)):
        mine = {start: [row[1:] for row in rows if row[0] == name] for start, rows in both.items()}
        assert {start: rows for start, rows in mine.items() if rows} == answer(query)


def test_a_record_that_sql_refuses_is_told_by_its_stream(tmp_path: Path) -> None:
    write(tmp_path, {"bids": bids(1, 2), "asks": asks(1)})
    query = "SELECT (SELECT sum(CAST(who AS INT)) FROM bids) AS b, (SELECT count(*) FROM asks) AS a"
    notes: list[str] = []
    text = f"{streams_text(tmp_path)}CREATE JOB j AS {query} WINDOW 10 SECONDS"
    (result,) = run_inline(sql(text), notes.append)
    assert result.rows.to_pylist() == [{"b": None, "a": 1}]
    assert (result.counts.read, result.counts.failed) == (3, 2)
    assert notes[0].startswith(
        f"job 'j': an expression failed on bids.who = 'ann' ({tmp_path}/bids/web.log, line 1): "
        "Could not convert string 'ann' to INTEGER; TRY_CAST gives NULL"
    )
