"""Questions about the records of streams, against DuckDB over the records that were read."""

from __future__ import annotations

import json
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import muntin as mt
from muntin.ask import records as asked_records
from muntin.ask.answering import Asking
from muntin.ask.records import database
from muntin.control.access import Access
from muntin.control.feed import Feed
from muntin.control.service import serving
from muntin.run.agents import Agents
from muntin.run.door import Door
from muntin.store import settling
from muntin.store.inspection import show
from muntin.store.results import Results
from muntin.store.status import status
from tests.agent.serving import serving as serving_agent
from tests.ask.keeping import Kept

BEGIN = 10 * 3600
COLUMNS = "t DOUBLE, product VARCHAR, ms DOUBLE, n BIGINT, tags VARCHAR[], store VARCHAR"
NAMES = ("t", "product", "ms", "n", "tags", "store")
STREAM = """CREATE STREAM clicks ({columns}) FROM '{folder}/{{source}}.log' FORMAT json TIMESTAMP t
SLACK 3 SECONDS{more} RETAIN 7 DAYS OF STREAM{kept};
"""
JOB = """CREATE JOB hot AS SELECT product, count(*) AS clicks FROM clicks WHERE n > 0
GROUP BY product WINDOW 2 MINUTES RETAIN 1 DAY;
"""
# Answers that no order of records changes: minus zero is as large as zero, but for `signbit`.
QUESTIONS = (
    "SELECT count(*), sum(n), max(ms) + 0, median(ms) + 0, min(n) FROM {clicks} WHERE {where}",
    "SELECT product, count(*), avg(ms) + 0, count(DISTINCT n), list_sort(list(ms + 0)) "
    "FROM {clicks} WHERE {where} GROUP BY product ORDER BY ALL",
    "SELECT *, signbit(ms) FROM {clicks} WHERE {where} ORDER BY ALL",
    "SELECT product, n, row_number() OVER (PARTITION BY product ORDER BY t, n, ms) AS place "
    "FROM {clicks} WHERE {where} QUALIFY place < 3 ORDER BY ALL",
    "WITH c AS (SELECT store, ms FROM {clicks} WHERE {where}) SELECT a.store, count(*), "
    "max(a.ms) + 0 FROM c AS a JOIN c AS b ON a.store = b.store GROUP BY ALL ORDER BY ALL",
    "SELECT tags[1] AS tag, quantile_cont(n, 0.3), bool_or(ms > 1) FROM {clicks} WHERE {where} "
    "GROUP BY 1 HAVING count(*) > 1 ORDER BY ALL",
)
FILTERS = (
    "true",
    "product = 'lamp'",
    "product IN ('lamp', 'ü desk') AND n >= 1",
    "ms IS NULL OR NOT (n BETWEEN 1 AND 2)",
    "len(tags) > 1 AND product <> 'lamp'",
)
Row = dict[str, Any]
row = st.fixed_dictionaries(
    {
        "at": st.integers(0, 4000),  # tenths of a second
        "product": st.sampled_from(["lamp", "ü desk", None, ""]),
        "ms": st.sampled_from([None, 0.0, -0.0, 1.5, 0.1, 1e300]),
        "n": st.integers(0, 3),
        "tags": st.sampled_from([None, [], ["a, b", None], ["'"], ["x", "y"]]),
        "store": st.sampled_from(["n", "s"]),
    }
)


def write(folder: Path, found: list[Row]) -> list[Row]:
    """The records in the logs of two servers, in the order of time; as they were written."""
    rows = []
    for number, each in enumerate(sorted(found, key=lambda each: each["at"])):
        written = {"t": BEGIN + each["at"] / 10} | {k: v for k, v in each.items() if k != "at"}
        with (folder / f"{'ab'[number % 2]}.log").open("a") as log:
            log.write(json.dumps(written) + "\n")
        rows.append(written)
    return rows


def expected(found: list[Row], sql: str, kept: str = "*") -> list[tuple[object, ...]]:
    """What DuckDB says of the records."""
    con = duckdb.connect()
    con.execute(f"CREATE TABLE raw ({COLUMNS})")
    con.executemany(
        "INSERT INTO raw VALUES (?, ?, ?, ?, ?, ?)", [[r[name] for name in NAMES] for r in found]
    )
    con.execute(f"CREATE VIEW clicks AS SELECT {kept} FROM raw")
    return con.execute(sql).fetchall()


def rows_of(answer: mt.PastRows) -> list[tuple[object, ...]]:
    return [tuple(row.values()) for row in answer.rows.to_pylist()]


def same(one: object, other: object) -> bool:
    """Whether values are alike, to the sign of zero."""
    if isinstance(one, float) and isinstance(other, float):
        return one == pytest.approx(other, rel=1e-9) and str(one)[0] == str(other)[0]
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other


def moment(tenths: int) -> str:
    return f"10:{tenths // 600:02d}:{tenths % 600 / 10:09.6f}"


@settings(max_examples=12, deadline=None)
@given(
    st.lists(row, min_size=1, max_size=60),
    st.lists(row, max_size=20),
    st.sampled_from([300, 2_000, 1 << 20]),
    st.sampled_from([0, 1, 3]),
    st.booleans(),
    st.data(),
)
def test_any_question_is_what_the_records_say(
    first: list[Row], second: list[Row], batch: int, rewrite: int, jobs: bool, data: st.DataObject
) -> None:
    with TemporaryDirectory() as name:
        folder, state = Path(name), Path(name) / "state"
        kept = "product, ms, n, tags, store, t"
        stream = STREAM.format(
            columns=COLUMNS, folder=folder, more="", kept=" (product, ms, n, tags, store)"
        )
        program = mt.sql(stream + JOB if jobs else stream)
        found = write(folder, first)
        Kept(program, state, batch_bytes=batch).finish(rewrite)
        if second:  # after a restart
            later = max(each["at"] for each in first) + 2_000
            found += write(folder, [each | {"at": each["at"] + later} for each in second])
            Kept(program, state, batch_bytes=batch).finish(rewrite)
        asking = Asking(state)
        ends = [round((each["t"] - BEGIN) * 10) for each in found]
        for _ in range(4):
            start = data.draw(st.integers(min(ends) - 600, max(ends)))
            end = data.draw(st.integers(max(start, min(ends)) + 1, max(ends) + 601))
            question, where = (data.draw(st.sampled_from(each)) for each in (QUESTIONS, FILTERS))
            inside = f"t >= {BEGIN + start / 10} AND t < {BEGIN + end / 10}"
            start = max(0, start)
            between = f"BETWEEN '{moment(start)}' AND '{moment(end)}'"
            text = question.format(clicks=f"clicks {between}", where=where)
            oracle = question.format(clicks="clicks", where=f"({where}) AND {inside}")
            answer = asking.ask(text)
            assert same(rows_of(answer), expected(found, oracle, kept)), text
            assert answer.c2.area == 1.0
            assert answer.c2.reason == mt.Reason.COMPLETE


def kept(folder: Path, columns: str = "", more: str = "", job: str = JOB) -> tuple[Asking, Any]:
    found = write(
        folder,
        [
            {"at": at, "product": ["lamp", "desk"][at % 2], "ms": at % 7 / 2, "n": at % 3,
             "tags": ["a"], "store": "ns"[at % 4 // 2]}
            for at in range(0, 4000, 7)
        ],
    )  # fmt: skip
    text = STREAM.format(columns=COLUMNS, folder=folder, more=more, kept=columns)
    Kept(mt.sql(text + job), folder / "state", batch_bytes=5_000).finish(2)
    return Asking(folder / "state"), found


def test_records_are_joined_with_panes_of_jobs_and_other_ranges(tmp_path: Path) -> None:
    asking, found = kept(tmp_path)
    answer = asking.ask(
        "SELECT c.product, h.clicks, count(*) AS now, max(ms) AS most "
        "FROM clicks BETWEEN '10:03' AND '10:04:30' AS c JOIN hot USING (product) "
        "GROUP BY ALL ORDER BY ALL".replace("hot USING", "hot AS h USING")
    )
    sql = (
        "SELECT product, h.clicks, count(*), max(ms) FROM clicks JOIN (SELECT product, count(*) AS "
        f"clicks FROM clicks WHERE n > 0 GROUP BY 1) AS h USING (product) WHERE t >= {BEGIN + 180} "
        f"AND t < {BEGIN + 270} GROUP BY ALL ORDER BY ALL"
    )
    assert rows_of(answer) == expected(found, sql)
    assert [(each.job, each.called) for each in answer.ranges] == [("clicks", "c"), ("hot", "h")]
    answer = asking.ask(
        "SELECT a.n - b.n AS more FROM (SELECT sum(n) AS n FROM clicks BETWEEN '10:02' AND '10:03')"
        " AS a, (SELECT sum(n) AS n FROM clicks BETWEEN '10:01' AND '10:02') AS b"
    )
    one, two = (
        f"(SELECT sum(n) FROM clicks WHERE t >= {BEGIN + at} AND t < {BEGIN + at + 60})"
        for at in (120, 60)
    )
    assert rows_of(answer) == expected(found, f"SELECT {one} - {two}")


def test_rows_that_have_no_partner_are_not_lost_to_a_condition(tmp_path: Path) -> None:
    asking, _ = kept(tmp_path)
    for table in ("clicks", "hot"):
        answer = asking.ask(
            f"WITH w AS (SELECT unnest(['lamp', 'sofa']) AS p) SELECT w.p FROM w LEFT JOIN {table} "
            f"AS c ON c.product = w.p WHERE c.product IS NULL"
        )
        assert answer.rows.to_pylist() == [{"p": "sofa"}]


@pytest.mark.parametrize(
    ("question", "oracle"),
    [
        ("SELECT b, count(*) FROM clicks AS c(a, b) GROUP BY 1 ORDER BY 1",
         "SELECT product, count(*) FROM raw GROUP BY 1 ORDER BY 1"),
        ("SELECT count(COLUMNS('^[mn]')) FROM clicks", "SELECT count(ms), count(n) FROM raw"),
        ("SELECT max(c).n FROM clicks AS c", "SELECT n FROM raw ORDER BY t DESC LIMIT 1"),
        ("SELECT count(*) FROM clicks NATURAL JOIN clicks AS d", "SELECT count(*) FROM raw"),
        ("FROM (PIVOT (SELECT store, n FROM clicks) ON store USING sum(n))",
         "SELECT sum(n) FILTER (store = 'n'), sum(n) FILTER (store = 's') FROM raw"),
    ],
)  # fmt: skip
def test_columns_that_are_not_named_are_there(tmp_path: Path, question: str, oracle: str) -> None:
    asking, found = kept(tmp_path, " (t, product, ms, n, store)", job="")
    assert rows_of(asking.ask(question)) == expected(found, oracle)


def test_records_that_are_alike_are_as_many_as_there_were(tmp_path: Path) -> None:
    with (tmp_path / "a.log").open("w") as log:
        log.writelines('{"t": 36000, "product": "x", "n": 1}\n' for _ in range(500))
    text = STREAM.format(columns=COLUMNS, folder=tmp_path, more="", kept=" (product, n)")
    Kept(mt.sql(text), tmp_path / "state", batch_bytes=4_000).finish()
    answer = Asking(tmp_path / "state").ask("SELECT count(*), sum(n) FROM clicks")
    assert rows_of(answer) == [(500, 500)]
    assert answer.ranges[0].read.rows < 100


def test_values_come_back_as_they_were_parsed(tmp_path: Path) -> None:
    values = """(SELECT * FROM (VALUES
      (TIMESTAMP '2026-01-01 10:00:01.000001', 1.25::DECIMAL(9,2), 'nan'::DOUBLE, '-0.0'::FLOAT,
       ['-0.0'::DOUBLE, 0.0, NULL], {'a': 'x, y', 'b': [1, NULL]}, MAP {'k=': 'v'},
       '\\xAA\\x00'::BLOB, TIME '10:00:00.5', DATE '2026-02-28', true, 255::UTINYINT,
       TIMESTAMPTZ '2026-01-01 00:00:00+02', [['a', ''], []]),
      (TIMESTAMP '2026-01-01 10:00:01.000001', 1.25::DECIMAL(9,2), 'nan'::DOUBLE, '0.0'::FLOAT,
       ['0.0'::DOUBLE, 0.0, NULL], {'a': 'x', 'b': [1, NULL]}, MAP {'k=': 'v'},
       '\\xAA\\x00'::BLOB, TIME '10:00:00.5', DATE '2026-02-28', true, 255::UTINYINT,
       TIMESTAMPTZ '2026-01-01 00:00:00+02', [['a', ''], []]),
      (TIMESTAMP '2026-01-01 10:00:02', NULL, '-inf'::DOUBLE, NULL, NULL, NULL, NULL, NULL, NULL,
       NULL, NULL, NULL, NULL, NULL)
    ) AS v(t, d, x, f, l, s, m, b, tm, da, bo, u, tz, ll))"""
    con = duckdb.connect()
    con.execute("SET TimeZone = 'UTC'")
    con.execute(f"COPY {values} TO '{tmp_path}/a.parquet' (FORMAT parquet)")
    program = mt.sql(
        f"CREATE STREAM s FROM '{tmp_path}/{{source}}.parquet' FORMAT parquet TIMESTAMP t "
        "RETAIN 1 DAY OF STREAM"
    )
    Kept(program, tmp_path / "state").finish()
    answer = Asking(tmp_path / "state").ask("SELECT * EXCLUDE source FROM s ORDER BY t, s")
    con.register("answer", answer.rows)
    raw = con.execute(f"FROM '{tmp_path}/a.parquet' ORDER BY t, s").fetchall()
    back = con.execute("FROM answer ORDER BY t, s").fetchall()
    assert repr(back) == repr(raw)  # to the sign of zero
    assert answer.rows.schema.types[1:3] == [pa.decimal128(9, 2), pa.float64()]


def test_without_a_list_every_column_is_kept(tmp_path: Path) -> None:
    asking, found = kept(tmp_path)
    answer = asking.ask("SELECT source, store, count(*) FROM clicks GROUP BY ALL ORDER BY ALL")
    assert {row[0] for row in rows_of(answer)} == {"a", "b"}
    assert sum(int(str(row[2])) for row in rows_of(answer)) == len(found)


def test_the_job_that_keeps_records_is_not_shown(tmp_path: Path) -> None:
    asking, _ = kept(tmp_path)
    state = tmp_path / "state"
    assert [job["job"] for job in status(state)[0]] == ["hot"]
    assert Results(state).jobs() == ["hot"]
    assert [each.jobs for each in show(state).streams] == [("hot",)]
    assert sorted(asking._jobs()) == ["clicks", "hot"]
    again = Kept(mt.sql(STREAM.format(columns=COLUMNS, folder=tmp_path, more="", kept="") + JOB),
                 state)  # fmt: skip
    assert again.journal.notes == []


@pytest.mark.parametrize(
    ("question", "message"),
    [
        ("SELECT max(price) FROM clicks", "column 12: there is no column 'price'; stream 'clicks' "
         "keeps product, ms, t"),
        ("SELECT clicks.store FROM clicks", "store.*stream 'clicks' keeps product, ms, t"),
        ("SELECT count(*) FROM clicks BETWEEN '07:00' AND '08:00'",
         "nothing is retained.*stream 'clicks' has records from 1970-01-01 10:00:00"),
        ("SELECT count(*) FROM clicks BETWEEN '10:00' AND '10:00'", "is not behind"),
        ("SELECT count(*) FROM click", "no job or stream 'click' that is retained; did you mean"),
        ("SELECT count(*) FROM clicks, read_text('/etc/hosts')", "cannot be asked"),
        ("SELECT ms,\n  nothing(ms) FROM clicks", "line 2, column 3: unknown function 'nothing'"),
        ("SELECT sum(product) FROM clicks", r"column 8: there is no sum\(VARCHAR\)"),
        ("SELECT ms + product FROM clicks", r"column 11: there is no \w+ \+ VARCHAR"),
        ("SELECT count(*), foo FROM clicks", "column 18: there is no column 'foo'"),
        ("SELECT 1 FROM clicks WHERE ms < 0 AND user = ''", "column 39: there is no column 'user'"),
        ("SELECT ms FROM clicks VERSION 1", "column 23: stream 'clicks' has no versions"),
        ("SELECT CAST(product AS INTEGER) FROM clicks", "cannot be answered.*to INTEGER"),
        ("SELECT product FROM clicks GROUP BY ms", "product"),
    ],
)  # fmt: skip
def test_questions_that_cannot_be_answered_say_why(
    tmp_path_factory: pytest.TempPathFactory, question: str, message: str
) -> None:
    folder = tmp_path_factory.getbasetemp() / "records-refused"
    if not folder.exists():
        folder.mkdir()
        kept(folder, " (product, ms)")
    with pytest.raises(mt.MuntinError, match=f"(?s){message}"):
        Asking(folder / "state").ask(question)


def test_a_range_that_reaches_out_is_cut_and_one_within_panes_is_exact(tmp_path: Path) -> None:
    asking, found = kept(tmp_path)
    answer = asking.ask("SELECT count(*) FROM clicks BETWEEN '09:00' AND '10:00:30.5'")
    sql = f"SELECT count(*) FROM clicks WHERE t < {BEGIN + 30.5}"
    assert rows_of(answer) == expected(found, sql)
    assert answer.notes == (
        "stream 'clicks' has records from 1970-01-01 10:00:00 to 1970-01-01 10:07:00: the answer "
        "is about that part of the range",
    )
    assert answer.ranges[0].end == (BEGIN * 10 + 305) * 10**5


def test_a_source_that_is_missing_is_in_the_score(tmp_path: Path) -> None:
    asking, _ = kept(tmp_path, more=" SOURCES 'a', 'b', 'c'")
    answer = asking.ask("SELECT count(*) FROM clicks BETWEEN '10:01:30' AND '10:03:30'")
    assert answer.c2.area == pytest.approx(2 / 3)
    assert [(m.source, m.panes) for m in answer.c2.missing] == [("c", 3)]


def test_records_expire(tmp_path: Path) -> None:
    write(tmp_path, [{"at": at, "product": "x", "ms": 1.0, "n": 1, "tags": [], "store": "n"}
                     for at in range(0, 30_000, 50)])  # fmt: skip
    text = STREAM.format(columns=COLUMNS, folder=tmp_path, more="", kept="")
    program = mt.sql(text.replace("7 DAYS", "10 MINUTES"))
    Kept(program, tmp_path / "state", batch_bytes=4_000).finish(2)
    answer = Asking(tmp_path / "state").ask("SELECT count(*), min(t) FROM clicks")
    ((count, first),) = rows_of(answer)
    assert 100 <= int(str(count)) <= 132
    assert float(str(first)) >= BEGIN + 3000 - 660
    assert sum(f.stat().st_size for f in (tmp_path / "state").rglob("panes/*")) < 100_000


def test_open_panes_count_as_far_as_they_were_read(tmp_path: Path) -> None:
    program = mt.sql(STREAM.format(columns=COLUMNS, folder=tmp_path, more="", kept=""))
    for source in "ab":
        (tmp_path / f"{source}.log").touch()
    run = Kept(program, tmp_path / "state", follow=True)
    found: list[Row] = []
    for number in range(5):
        found += write(tmp_path, [
            {"at": number * 800 + at, "product": "x", "ms": 1.0, "n": at, "tags": [], "store": "n"}
            for at in range(0, 800, 40)
        ])  # fmt: skip
        if number % 2:
            run.whole()
        if number == 3:  # as after a kill
            run = Kept(program, tmp_path / "state", follow=True)
        run.turn()
        answer = Asking(tmp_path / "state").ask("SELECT count(*), sum(n) FROM clicks")
        assert rows_of(answer) == expected(found, "SELECT count(*), sum(n) FROM raw")
        assert answer.c2.reason == mt.Reason.OPEN
        assert answer.c2.area < 1
    settled = Asking(tmp_path / "state").ask(
        "SELECT count(*) FROM clicks BETWEEN '10:00' AND '10:03'"
    )
    assert settled.c2.area == 1.0


def test_a_stream_whose_columns_change_begins_anew(tmp_path: Path) -> None:
    kept(tmp_path, " (product)")
    text = STREAM.format(columns=COLUMNS, folder=tmp_path, more="", kept=" (product, ms)") + JOB
    write(tmp_path, [{"at": at, "product": "x", "ms": 1.0, "n": 1, "tags": [], "store": "n"}
                     for at in range(20_000, 22_000, 50)])  # fmt: skip
    Kept(mt.sql(text), tmp_path / "state").finish()
    answer = Asking(tmp_path / "state").ask("SELECT count(ms) FROM clicks")
    assert rows_of(answer) == [(40,)]


def test_a_name_that_is_of_a_job_too_is_the_one_that_was_kept_last(tmp_path: Path) -> None:
    kept(tmp_path, job="")
    other = "CREATE STREAM s ({columns}) FROM '{folder}/{{source}}.log' FORMAT json TIMESTAMP t;"
    job = (
        "CREATE JOB clicks AS SELECT n, count(*) AS c FROM s GROUP BY n WINDOW 1 MINUTE "
        "RETAIN 1 DAY"
    )
    write(tmp_path, [{"at": at, "product": "x", "ms": 1.0, "n": 1, "tags": [], "store": "n"}
                     for at in range(20_000, 22_000, 50)])  # fmt: skip
    Kept(mt.sql(other.format(columns=COLUMNS, folder=tmp_path) + job), tmp_path / "state").finish()
    answer = Asking(tmp_path / "state").ask("SELECT n, c FROM clicks GROUP BY n ORDER BY n DESC")
    assert answer.rows.column_names == ["n", "c"]


def test_over_http_and_explained(tmp_path: Path) -> None:
    asking, found = kept(tmp_path)
    question = (
        "SELECT product, count(*) FROM clicks WHERE product = 'lamp' GROUP BY 1 LAST 2 MINUTES"
    )
    told = asking.explain(question)
    assert told.startswith("clicks: stream 'clicks', version 1\n  range    1970-01-01 10:05:00 to")
    assert "filter   product = 'lamp'\n  columns  product" in told
    where = f"product = 'lamp' AND t >= {BEGIN + 300}"
    sql = f"SELECT product, count(*) FROM raw WHERE {where} GROUP BY 1"
    state = tmp_path / "state"
    with serving(Access(), Door(), Feed(state), state):
        client = mt.connect(state)
        for answer in (mt.ask(question, state=state), client.ask(question)):
            assert rows_of(answer) == expected(found, sql)
        with pytest.raises(mt.LanguageError, match="stream 'clicks' keeps"):
            client.ask("SELECT price FROM clicks")


def test_memory_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asking, found = kept(tmp_path)
    monkeypatch.setattr(asked_records, "MOST", 2_000)
    with pytest.raises(mt.InputError, match=r"this answer is larger than.*add LIMIT"):
        asking.ask("SELECT * FROM clicks")
    assert rows_of(asking.ask("SELECT count(*) FROM clicks")) == [(len(found),)]
    with (
        database(20 << 20) as records,
        pytest.raises(mt.InputError, match="takes more than 20 MB of memory; ask about a shorter"),
    ):
        records._do("SELECT list(range) FROM range(100_000_000)")


def test_a_record_that_is_later_than_slack_and_a_minute_is_told_by_the_score(
    tmp_path: Path,
) -> None:
    with (tmp_path / "a.log").open("w") as log:
        for t in (*range(0, 300, 10), 241, 235, 100, *range(300, 600, 10)):
            log.write(json.dumps({"t": BEGIN + t, "product": "x", "n": 1}) + "\n")
    text = STREAM.format(columns=COLUMNS, folder=tmp_path, more="", kept=" (product)")
    run = Kept(mt.sql(text), tmp_path / "state", batch_bytes=500)
    run.finish()
    asking = Asking(tmp_path / "state")
    whole = asking.ask("SELECT count(*) FROM clicks BETWEEN '10:03' AND '10:05'")
    assert (rows_of(whole), whole.c2.area) == ([(14,)], 1.0)
    answer = asking.ask("SELECT count(*) FROM clicks BETWEEN '10:01' AND '10:03'")
    assert (rows_of(answer), answer.c2.area) == ([(12,)], 0.5)
    assert "late" in answer.c2.missing[0].why
    assert run.loop.progress.late == {}  # of the user's jobs


def test_panes_move_some_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settling, "SHARE_BYTES", 3_000)
    monkeypatch.setattr("muntin.store.panes._MANY", 1000)  # files stay as they were moved
    asking, found = kept(tmp_path)
    question = "SELECT product, count(*), sum(ms) FROM {} GROUP BY 1 ORDER BY 1"
    assert rows_of(asking.ask(question.format("clicks"))) == expected(found, question.format("raw"))
    assert asking.ask(question.format("clicks")).ranges[0].read.files > 3


def test_through_agents(tmp_path: Path) -> None:
    found = []
    for name in ("web01", "web02"):
        (tmp_path / name).mkdir()
        with (tmp_path / name / "a.log").open("w") as log:
            for i in range(1600):
                each = {"t": 960 + i / 4, "k": "ab"[i % 2], "n": [i, -i, None][i % 3]}
                found.append(each)
                log.write(json.dumps(each) + "\n")
    with ExitStack() as stack:
        places = [
            stack.enter_context(serving_agent(name, tmp_path / name))[1]
            for name in ("web01", "web02")
        ]
        program = mt.sql(
            f"CREATE STREAM logs FROM AGENTS {', '.join(map(repr, places))} RETAIN 1 DAY OF "
            "STREAM (k, n); CREATE JOB few AS SELECT count(*) AS c FROM logs WINDOW 30 SECONDS;"
        )
        (stream,) = program.streams.values()
        intake = Agents(stream, "pipeline", None, 1000.0)
        stack.callback(intake.close)
        run = Kept(program, tmp_path / "state", follow=True, now=time.time(), intake=intake)
        question = (
            "SELECT k, count(*), sum(n), median(n) FROM logs BETWEEN '00:16:30.25' AND '00:20' "
            "GROUP BY k ORDER BY k"
        )
        limit = time.monotonic() + 90
        while True:
            assert time.monotonic() < limit
            run.turn()
            time.sleep(0.05)
            with suppress(mt.InputError):
                answer = Asking(tmp_path / "state").ask(question)
                if answer.c2.area == 1.0 and not answer.notes:
                    break
    con = duckdb.connect()
    con.register("raw", pa.Table.from_pylist(found))
    sql = (
        "SELECT k, count(*), sum(n), median(n) FROM raw WHERE t >= 990.25 AND t < 1200 GROUP BY k "
        "ORDER BY k"
    )
    assert rows_of(answer) == con.execute(sql).fetchall()
    assert answer.c2.sources == 2
