"""Answers about ranges of the past against DuckDB over the records that were read."""

from __future__ import annotations

import json
import random
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import muntin as mt
from muntin.ask.answering import Asking
from muntin.ask.keeping import Memory
from muntin.cli import app
from muntin.control.access import Access
from muntin.control.feed import Feed
from muntin.control.service import serving
from muntin.run.door import Door
from tests.ask.keeping import Kept

HOUR = 3600
BEGIN = 10 * HOUR
STREAM = """CREATE STREAM clicks (t DOUBLE, product VARCHAR, land VARCHAR, ms DOUBLE, n BIGINT)
FROM '{folder}/{{source}}.log' FORMAT json TIMESTAMP t SLACK 5 SECONDS{more};
"""
JOB = """CREATE JOB hot AS SELECT product, upper(land) AS land, count(*) AS clicks, sum(n) AS total,
avg(ms) AS ms, min(ms) AS least, max(ms) AS most, quantile_cont(ms, 0.9) AS p90,
count(DISTINCT n) AS kinds, stddev(ms) AS spread, sum(n) / count(*) AS each
FROM clicks WHERE n > 0 GROUP BY product, land HAVING count(*) > 1 ORDER BY clicks DESC LIMIT 2
WINDOW 10 MINUTES EVERY 2 MINUTES RETAIN 7 DAYS;
"""
COLUMNS = {
    "clicks": "count(*)",
    "sum(clicks)": "count(*)",
    "total": "sum(n)",
    "ms": "avg(ms)",
    "avg(ms)": "avg(ms)",
    "min(least)": "min(ms)",
    "most": "max(ms)",
    "p90": "quantile_cont(ms, 0.9)",
    "kinds": "count(DISTINCT n)",
    "count(DISTINCT n)": "count(DISTINCT n)",
    "spread": "stddev(ms)",
    "each": "sum(n) / count(*)",
    "count(*)": "count(*)",
}
FILTERS = ("true", "product = 'a'", "product IN ('b', 'c') AND land <> 'DE'", "land = 'FR'")
GROUPS = ("product, land", "land", "product", "length(product)", "")


Rows = dict[str, list[dict[str, Any]]]  # records by source


def records(seed: int, many: int, begin: float = BEGIN) -> Rows:
    """Records of two sources, each in the order of time but for a few seconds."""
    rand = random.Random(seed)
    found: Rows = {}
    for source in "ab":
        at = begin
        for _ in range(many):
            at += rand.expovariate(many / HOUR)
            found.setdefault(source, []).append(
                {
                    "t": round(at - rand.random() * 4, 3),
                    "product": rand.choice(["a", "b", "c", "dd"]),
                    "land": rand.choice(["de", "fr"]),
                    "ms": rand.choice([None, rand.randint(1, 40) / 4]),
                    "n": rand.randint(0, 5),
                }
            )
    return found


def write(folder: Path, found: Rows) -> None:
    for source, rows in found.items():
        with (folder / f"{source}.log").open("a") as log:
            log.writelines(json.dumps(row) + "\n" for row in rows)


def expected(found: list[Rows], sql: str) -> list[tuple[object, ...]]:
    """What DuckDB says of the records."""
    con = duckdb.connect()
    every = [row for each in found for rows in each.values() for row in rows]
    con.register("raw", pa.Table.from_pylist(every))
    return con.execute(sql).fetchall()


def moment(seconds: int) -> str:
    return f"{seconds // HOUR:02d}:{seconds // 60 % 60:02d}"


def near(one: list[tuple[object, ...]], other: list[tuple[object, ...]]) -> bool:
    if len(one) != len(other):
        return False
    return all(
        x == pytest.approx(y, rel=1e-9) if isinstance(y, float) else x == y
        for a, b in zip(one, other, strict=True)
        for x, y in zip(a, b, strict=True)
    )


def rows_of(answer: mt.PastRows) -> list[tuple[object, ...]]:
    return [tuple(row.values()) for row in answer.rows.to_pylist()]


@settings(max_examples=8, deadline=None)
@given(
    st.integers(0, 10**6),
    st.integers(5, 120),
    st.sampled_from([4_000, 1 << 20]),
    st.sampled_from([0, 1, 3]),
    st.booleans(),
    st.data(),
)
def test_any_range_is_what_the_records_say(
    seed: int, many: int, batch: int, rewrite: int, again: bool, data: st.DataObject
) -> None:
    with TemporaryDirectory() as name:
        folder, state = Path(name), Path(name) / "state"
        found = [records(seed, many)]
        write(folder, found[0])
        program = mt.sql(STREAM.format(folder=folder, more="") + JOB)
        Kept(program, state, batch_bytes=batch).finish(rewrite)
        if again:  # what was let go in the run before is kept as well
            found.append(records(seed + 1, many, BEGIN + 3 * HOUR))
            write(folder, found[1])
            Kept(program, state, batch_bytes=batch).finish(rewrite)
        asking = Asking(state)
        times = [t for each in found for rows in each.values() for t in (r["t"] for r in rows)]
        first, last = int(min(times)) // 120, int(max(times)) // 120 + 1
        for _ in range(3):
            start = data.draw(st.integers(first, last - 1)) * 120
            end = data.draw(st.integers(start // 120 + 1, last)) * 120
            group, where = data.draw(st.sampled_from(GROUPS)), data.draw(st.sampled_from(FILTERS))
            columns = data.draw(st.lists(st.sampled_from([*COLUMNS]), min_size=1, unique=True))
            # Without an aggregate and without groups, it would be the rows of the job.
            columns += ["count(*)"] if not group and "count(*)" not in columns else []
            inside = f"n > 0 AND t >= {start} AND t < {end} AND {where}"
            listed = ", ".join([*group.split(", "), *columns] if group else columns)
            raw = ", ".join([*group.split(", "), *(COLUMNS[c] for c in columns)] if group
                            else [COLUMNS[c] for c in columns])  # fmt: skip
            by = f"GROUP BY {group}" if group else ""
            ordered = " ORDER BY ALL"
            asked = (
                f"SELECT {listed} FROM hot WHERE {where} {by} "
                f"BETWEEN '{moment(start)}' AND '{moment(end)}'{ordered}"
            )
            oracle = (
                f"SELECT {raw} FROM (SELECT * REPLACE (upper(land) AS land) FROM raw) "
                f"WHERE {inside} {by}{ordered}"
            )
            answer = asking.ask(asked)
            assert near(rows_of(answer), expected(found, oracle)), asked
            assert answer.c2.area == 1.0
            assert answer.c2.reason == mt.Reason.COMPLETE
            assert answer.ranges[0].start == start * 10**6
            assert not answer.notes


def kept(folder: Path, job: str = JOB, more: str = "", many: int = 60) -> tuple[Asking, list[Rows]]:
    found = records(7, many)
    write(folder, found)
    program = mt.sql(STREAM.format(folder=folder, more=more) + job)
    Kept(program, folder / "state", batch_bytes=3_000).finish(2)
    return Asking(folder / "state"), [found]


def test_a_source_that_is_missing_is_in_the_score(tmp_path: Path) -> None:
    asking, _ = kept(tmp_path, more=" SOURCES 'a', 'b', 'c'")
    answer = asking.ask("SELECT count(*) FROM hot BETWEEN '10:10' AND '10:20'")
    assert answer.c2.area == pytest.approx(2 / 3)
    assert answer.c2.sources == 3
    assert [(m.source, m.panes) for m in answer.c2.missing] == [("c", 5)]


def test_panes_that_are_open_count_as_far_as_they_were_read(tmp_path: Path) -> None:
    found = records(3, 200)
    program = mt.sql(STREAM.format(folder=tmp_path, more="") + JOB)
    so_far: Rows = {"a": [], "b": []}
    (tmp_path / "a.log").touch()
    (tmp_path / "b.log").touch()
    run = Kept(program, tmp_path / "state", follow=True)
    asking = Asking(tmp_path / "state")
    for number, at in enumerate(range(0, 200, 40)):
        some = {source: rows[at : at + 40] for source, rows in found.items()}
        write(tmp_path, some)
        so_far = {source: so_far[source] + rows for source, rows in some.items()}
        if number % 2:
            run.whole()
        if number == 3:  # as after a kill
            run = Kept(program, tmp_path / "state", follow=True)
        run.turn()
        answer = asking.ask("SELECT product, clicks, total FROM hot GROUP BY product ORDER BY 1")
        sql = "SELECT product, count(*), sum(n) FROM raw WHERE n > 0 GROUP BY 1 ORDER BY 1"
        assert rows_of(answer) == expected([so_far], sql)
        assert answer.c2.reason == mt.Reason.OPEN
        assert 0.5 < answer.c2.area < 1
    settled = asking.ask("SELECT sum(clicks) FROM hot BETWEEN '10:04' AND '10:20'")
    assert settled.c2.area == 1.0


def test_ranges_side_by_side(tmp_path: Path) -> None:
    asking, found = kept(tmp_path)
    answer = asking.ask(
        "SELECT product, land, now.clicks - before.clicks AS more FROM hot BETWEEN '10:20' AND "
        "'10:40' AS now JOIN hot BETWEEN '10:00' AND '10:20' AS before USING (product, land) "
        "ORDER BY 1, 2"
    )
    one, two = (
        f"(SELECT product, upper(land) AS land, count(*) AS c FROM raw WHERE n > 0 AND "
        f"t >= {a} AND t < {a + 1200} GROUP BY ALL)"
        for a in (BEGIN + 1200, BEGIN)
    )
    sql = f"SELECT product, land, n.c - b.c FROM {one} n JOIN {two} b USING (product, land)"
    assert rows_of(answer) == expected(found, f"{sql} ORDER BY 1, 2")
    assert [each.called for each in answer.ranges] == ["now", "before"]
    assert all(each.c2.area == 1.0 for each in answer.ranges)


def test_the_same_hour_of_the_day_before(tmp_path: Path) -> None:
    found = [records(day, 200, BEGIN + day * 24 * HOUR) for day in (0, 1)]
    for day in found:
        write(tmp_path, day)
    program = mt.sql(STREAM.format(folder=tmp_path, more="") + JOB)
    Kept(program, tmp_path / "state", batch_bytes=3_000).finish(2)
    asking = Asking(tmp_path / "state")
    counted = (
        "SELECT product, count(*) AS c FROM raw WHERE n > 0 AND t >= {begin} AND t < {end} AND "
        "product IN ('a', 'b', 'c') GROUP BY product"
    )
    today = {"begin": BEGIN + 24 * HOUR, "end": BEGIN + 24 * HOUR + 36 * 60}
    answer = asking.ask(
        "SELECT product, sum(clicks) FROM hot WHERE product IN ('a', 'b', 'c') GROUP BY product "
        "BETWEEN '10:00' AND '10:36' ORDER BY 2 DESC, 1 LIMIT 2"
    )
    truth = f"{counted.format(**today)} ORDER BY 2 DESC, 1 LIMIT 2"
    assert rows_of(answer) == expected(found, truth)
    grouped = "(SELECT product, sum(clicks) AS c FROM hot GROUP BY product {})"
    end = asking.ask("SELECT clicks FROM hot LAST 2 MINUTES").ranges[0].end // 10**6
    answer = asking.ask(
        f"SELECT product, now.c, before.c FROM {grouped.format('LAST 30 MINUTES')} AS now JOIN "
        f"{grouped.format('LAST 30 MINUTES 1 DAY AGO')} AS before USING (product) "
        "WHERE product <> 'dd' ORDER BY 1"
    )
    now, before = (counted.format(begin=end - 1800 - ago, end=end - ago) for ago in (0, 24 * HOUR))
    truth = f"SELECT product, n.c, b.c FROM ({now}) n JOIN ({before}) b USING (product) ORDER BY 1"
    assert rows_of(answer) == expected(found, truth)
    assert [each.end - each.start for each in answer.ranges] == [1800 * 10**6] * 2


def test_sql_around_is_duckdbs(tmp_path: Path) -> None:
    asking, found = kept(tmp_path)
    answer = asking.ask(
        "WITH p AS (SELECT product, clicks FROM hot GROUP BY product) SELECT product, clicks, "
        "rank() OVER (ORDER BY clicks DESC) AS place FROM p QUALIFY place <= 2 ORDER BY place"
    )
    sql = (
        "SELECT product, count(*) AS c, rank() OVER (ORDER BY c DESC) AS p FROM raw WHERE n > 0 "
        "GROUP BY 1 QUALIFY p <= 2 ORDER BY p"
    )
    assert rows_of(answer) == expected(found, sql)
    whole = asking.ask("SELECT * FROM hot WHERE product = 'a' AND clicks > 0 ORDER BY land")
    assert whole.rows.column_names[:3] == ["product", "land", "clicks"]
    assert whole.rows.num_rows == 2  # all of them: HAVING and LIMIT are of windows


@pytest.mark.parametrize(
    ("question", "message"),
    [
        ("SELECT sum(clicks) FROM hot BETWEEN '07:00' AND '08:00'", "hot' has panes from"),
        ("SELECT median(n) FROM hot", "panes do not hold median.*aggregates: clicks"),
        ("SELECT sum(ms) FROM hot", "without sum"),
        ("SELECT sum(clicks) FROM hot WHERE n > 3", "WHERE can ask for keys only"),
        ("SELECT sum(clicks) FROM hot WHERE clicks > 3", "HAVING asks for aggregates"),
        ("SELECT clicks FROM hot GROUP BY clicks", "GROUP BY can have keys only"),
        ("SELECT product, clicks FROM hot GROUP BY land", "neither grouped by nor aggregated"),
        ("SELECT clicks FROM hut", "did you mean hot"),
        ("SELECT 1", "a job or a stream that is retained: hot"),
        ("SELECT * FROM read_text('/etc/hosts')", "cannot be asked"),
        ("SELECT sum(clicks) FROM hot BETWEEN 'noon' AND '12:00'", "is not a time"),
        ("SELECT sum(clicks) FROM hot BETWEEN '11:00' AND '10:00'", "is not behind"),
        ("SELECT sum(clicks) FROM hot BETWEEN '11:00'", "expected AND"),
        (
            "SELECT sum(clicks) FROM hot WHERE product = 5",
            r"keys do not fit.*Could not convert string.*types: product \(VARCHAR\), land",
        ),
        (
            "SELECT sum(clicks) FROM hot WHERE product > 5",
            r"column 35: cannot compare values of type VARCHAR and type INTEGER; a CAST may help; "
            r"keys of job 'hot' and their types: product \(VARCHAR\), land",
        ),
        ("SELECT * FROM hot WHERE product > 5", "column 25: cannot compare.*types: product"),
        (
            "SELECT nothing(product) FROM hot GROUP BY 1",
            r"column 8: unknown function 'nothing'.*\| +\^{16}$",
        ),
        ("SELECT blah(clicks) FROM hot GROUP BY land", "column 8: unknown function 'blah'"),
        (
            "SELECT product,\n  foo FROM hot LAST 1 HOUR",
            "line 2, column 3: there is no column 'foo'; a range of job 'hot' has product, land, c",
        ),
        ("SELECT window_start FROM hot", "column 8: there is no column 'window_start'"),
        ("SELECT user FROM hot", "column 8: there is no column 'user'; a range of job 'hot' has"),
        ("SELECT clicks FROM hot AS a, hot AS b", "column 8: ambiguous reference.*clicks"),
        (
            "SELECT land, clicks FROM hot GROUP BY land ORDER BY 7",
            "column 53: ORDER term out of range - should be between 1 and 2",
        ),
        ("SELECT land FROM hot LIMIT 'é'", "column 28: could not convert string 'é' to BIGINT\n"),
        (
            "SELECT clicks + blah(land || 'x') + clicks AS more FROM hot GROUP BY land",
            r"column 17: unknown function 'blah'.*\| {17}\^{17}$",
        ),
        (
            "WITH p AS (SELECT land FROM hot) SELECT * FROM p LAST 1 HOUR",
            "column 50: this is the range of no job or stream",
        ),
        (
            "SELECT * FROM hot LAST 1 HOUR AS h LAST 2 HOURS",
            "column 36: this is the range of no job or stream",
        ),
        ("SELECT count(DISTINCT product) FROM hot", "in a subquery"),
        ("DROP JOB hot", "expected SELECT"),
        ("SELECT FROM WHERE", ""),
    ],
)
def test_questions_that_cannot_be_answered_say_why(
    tmp_path_factory: pytest.TempPathFactory, question: str, message: str
) -> None:
    folder = tmp_path_factory.getbasetemp() / "refusals"
    if not folder.exists():
        folder.mkdir()
        kept(folder)
    with pytest.raises(mt.MuntinError, match=f"(?s){message}"):
        Asking(folder / "state").ask(question)


def test_a_range_that_reaches_out_of_what_is_retained_is_told(tmp_path: Path) -> None:
    asking, found = kept(tmp_path)
    answer = asking.ask("SELECT count(*) FROM hot BETWEEN '09:00' AND '10:21'")
    sql = f"SELECT count(*) FROM raw WHERE n > 0 AND t < {BEGIN + 1320}"
    assert rows_of(answer) == expected(found, sql)
    assert "has panes from 1970-01-01" in answer.notes[0]
    assert "panes of 2 minutes" in answer.notes[1]


def test_panes_expire(tmp_path: Path) -> None:
    asking, _ = kept(tmp_path, JOB.replace("7 DAYS", "20 MINUTES"), many=300)
    answer = asking.ask("SELECT count(*) FROM hot")
    (only,) = answer.ranges
    assert (only.end - only.start) / 60e6 <= 24
    with pytest.raises(mt.InputError, match="nothing is retained"):
        asking.ask("SELECT count(*) FROM hot BETWEEN '10:00' AND '10:20'")


def test_a_state_without_retained_panes_says_so(tmp_path: Path) -> None:
    write(tmp_path, records(1, 20))
    program = mt.sql(STREAM.format(folder=tmp_path, more="") + JOB.replace("RETAIN 7 DAYS", ""))
    Kept(program, tmp_path / "state").finish()
    with pytest.raises(mt.InputError, match="RETAIN 7 DAYS"):
        Asking(tmp_path / "state").ask("SELECT 1 FROM hot")


def test_rows_that_cannot_be_parsed_are_told_in_a_note(tmp_path: Path) -> None:
    def row(second: int) -> str:
        return json.dumps({"t": BEGIN + second, "product": "a", "land": "de", "ms": 1.0, "n": 1})

    lines = [row(second) for second in range(0, 1_800, 10)]
    lines[31:31], lines[2:2] = ["}"], ["{", "no json"]  # behind 10:05:00 and 10:00:10
    (tmp_path / "a.log").write_text("\n".join(lines) + "\n")
    program = mt.sql(STREAM.format(folder=tmp_path, more="") + JOB)
    run = Kept(program, tmp_path / "state", follow=True, now=BEGIN + HOUR)
    run.turn()
    for more in (range(1_800, 3_600, 10), ()):  # panes that are open at first settle then
        asking = Asking(tmp_path / "state")
        answer = asking.ask("SELECT count(*) FROM hot")
        assert answer.notes == (
            "3 rows of the logs of job 'hot' in this range could not be parsed, and are not in the "
            "answer; its score does not count them",
        )
        answer = asking.ask("SELECT count(*) FROM hot BETWEEN '10:04' AND '10:10'")
        assert [note.partition(" of")[0] for note in answer.notes] == ["1 row"]
        assert asking.ask("SELECT count(*) FROM hot BETWEEN '10:10' AND '10:20'").notes == ()
        with (tmp_path / "a.log").open("a") as log:
            log.writelines(row(second) + "\n" for second in more)
        run.turn()


@pytest.mark.parametrize("place", ["nowhere", "file", "."])
def test_a_place_without_a_state_says_so(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("something else")
    with pytest.raises(mt.InputError, match=f"there is no state in {tmp_path / place}: no program"):
        Asking(tmp_path / place).ask("SELECT 1 FROM hot")


def test_a_range_may_stand_behind_what_the_job_is_called(tmp_path: Path) -> None:
    asking, _ = kept(tmp_path)
    one = asking.ask("SELECT sum(clicks) FROM hot BETWEEN '10:10' AND '10:20' AS h")
    assert asking.ask("SELECT sum(clicks) FROM hot AS h BETWEEN '10:10' AND '10:20'") == one


def test_explaining_says_what_would_be_read(tmp_path: Path) -> None:
    asking, _ = kept(tmp_path)
    told = asking.explain("SELECT clicks FROM hot WHERE product = 'a' BETWEEN '10:00' AND '10:20'")
    assert "panes    10 of 2 minutes" in told
    assert "filter   product = 'a'" in told
    assert "from disk" in told


def test_explaining_knows_which_open_panes_are_in_memory(tmp_path: Path) -> None:
    kept(tmp_path)
    asking, question = Asking(tmp_path / "state", Memory()), "SELECT clicks FROM hot"
    assert " open rows from disk; " in asking.explain(question)
    asking.ask(question)
    told = asking.explain(question)
    assert " open rows from memory; 0 bytes" in told
    assert ", 0 from disk)" in told


def again(folder: Path, job: str, found: list[Rows]) -> Asking:
    """Goes on with another program, and records of three hours later."""
    found.append(records(8, 60, BEGIN + 3 * HOUR))
    write(folder, found[-1])
    program = mt.sql(STREAM.format(folder=folder, more="") + job)
    Kept(program, folder / "state", batch_bytes=3_000).finish(2)
    return Asking(folder / "state")


def test_a_job_that_means_something_else_has_its_own_panes_and_the_older_version_its(
    tmp_path: Path,
) -> None:
    _, found = kept(tmp_path)
    asking = again(tmp_path, JOB.replace("n > 0", "n > 2"), found)
    answer = asking.ask("SELECT sum(clicks) FROM hot")
    assert rows_of(answer) == expected(found[1:], "SELECT count(*) FROM raw WHERE n > 2")
    assert answer.ranges[0].version == 2
    before = asking.ask("SELECT sum(clicks) FROM hot BETWEEN '10:00' AND '11:00'")
    sql = f"SELECT count(*) FROM raw WHERE n > 0 AND t < {BEGIN + HOUR}"
    assert rows_of(before) == expected(found[:1], sql)
    assert before.ranges[0].version == 1
    with pytest.raises(mt.InputError, match="version 2 from 1970-01-01 11:02:00"):
        asking.ask("SELECT clicks FROM hot BETWEEN '10:00' AND '14:00'")


def test_panes_become_smaller_where_another_job_needs_it(tmp_path: Path) -> None:
    _, found = kept(tmp_path)
    other = JOB.replace("JOB hot", "JOB fine").replace("10 MINUTES EVERY 2 MINUTES", "1 MINUTE")
    asking = again(tmp_path, JOB + other, found)
    for job, start, end, notes in (
        ("hot", BEGIN + 600, BEGIN + 1200, 0),
        ("hot", BEGIN + 660, BEGIN + 1200, 1),  # which is not on the panes of before
        ("hot", BEGIN + 3 * HOUR + 660, BEGIN + 3 * HOUR + 1500, 0),
        ("hot", BEGIN + 600, BEGIN + 3 * HOUR + 660, 0),
        ("fine", BEGIN + 3 * HOUR + 660, BEGIN + 3 * HOUR + 720, 0),
    ):
        answer = asking.ask(
            f"SELECT count(*) FROM {job} BETWEEN '{moment(start)}' AND '{moment(end)}'"
        )
        assert len(answer.notes) == notes
        first = answer.ranges[0].start // 10**6
        assert first == start - 60 * notes
        sql = f"SELECT count(*) FROM raw WHERE n > 0 AND t >= {first} AND t < {end}"
        assert rows_of(answer) == expected(found, sql)
        assert answer.c2.area == 1.0


def test_a_job_that_is_gone_can_be_asked_about(tmp_path: Path) -> None:
    before, found = kept(tmp_path)
    first = rows_of(before.ask("SELECT sum(clicks) FROM hot"))
    asking = again(tmp_path, JOB.replace("JOB hot", "JOB other").replace("n > 0", "n > 1"), found)
    assert rows_of(asking.ask("SELECT sum(clicks) FROM hot")) == first
    assert asking.ask("SELECT clicks FROM hot").c2.area == 1.0


def test_sql_around_a_job_is_part_of_its_rows_and_its_core_is_asked(tmp_path: Path) -> None:
    job = (
        "CREATE JOB hot AS WITH p AS (SELECT product, count(*) AS c, sum(n) AS s FROM clicks "
        "GROUP BY product) SELECT product, c, rank() OVER (ORDER BY c DESC) AS place FROM p "
        "WINDOW 10 MINUTES PANE 2 MINUTES RETAIN 1 DAY;"
    )
    asking, found = kept(tmp_path, job)
    answer = asking.ask("SELECT product, place FROM hot BETWEEN '10:10' AND '10:24' ORDER BY 2, 1")
    sql = (
        "SELECT product, rank() OVER (ORDER BY count(*) DESC) AS place FROM raw WHERE "
        f"t >= {BEGIN + 600} AND t < {BEGIN + 1440} GROUP BY product ORDER BY 2, 1"
    )
    assert rows_of(answer) == expected(found, sql)
    answer = asking.ask("SELECT sum(n), count(*) FROM hot WHERE product <> 'a'")
    sql = "SELECT sum(n), count(*) FROM raw WHERE product <> 'a'"
    assert rows_of(answer) == expected(found, sql)


def test_a_commit_that_fails_leaves_each_pane_in_one_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, state = [records(5, 120)], tmp_path / "state"
    write(tmp_path, found[0])
    program = mt.sql(STREAM.format(folder=tmp_path, more="") + JOB)
    run = Kept(program, state, batch_bytes=3_000)
    for _ in range(5):
        run.turn()
    run.whole()
    with monkeypatch.context() as broken:  # when files of panes are written, and nothing names them

        def fail(*_: object) -> None:
            raise mt.StateError("the disk is gone")

        broken.setattr("muntin.store.checkpoint.Checkpoint._write_blocks", fail)
        with pytest.raises(mt.StateError, match="the disk is gone"):
            run.turn()
    written = {*(state / "streams" / "clicks" / "panes").iterdir()}
    assert written
    asking = Asking(state)
    so_far = asking.ask("SELECT count(*) FROM hot").rows.to_pylist()
    Kept(program, state, batch_bytes=3_000).finish(2)
    total = asking.ask("SELECT count(*) FROM hot")
    assert rows_of(total) == expected(found, "SELECT count(*) FROM raw WHERE n > 0")
    assert so_far[0]["count(*)"] < rows_of(total)[0][0]
    named = asking._keeping.jobs()["hot"][0].panes
    assert not named.strays()
    assert not written & {state / "streams" / "clicks" / "panes" / n for n in named.files}


def test_a_program_that_runs_answers_from_its_memory(tmp_path: Path) -> None:
    asking, _ = kept(tmp_path)
    state = tmp_path / "state"
    question = "SELECT product, clicks, p90 FROM hot GROUP BY product ORDER BY 1"
    with serving(Access(), Door(), Feed(state), state):
        client = mt.connect(state)
        first, second = mt.ask(question, state=state), client.ask(question)
        assert first.rows.equals(asking.ask(question).rows)
        assert second.rows.equals(first.rows)
        assert first.c2.area == 1.0
        assert (first.ranges[0].read.remembered, second.ranges[0].read.bytes) == (0, 0)
        assert "0 from disk" in client.explain(question)
        with pytest.raises(mt.LanguageError, match="panes do not hold"):
            client.ask("SELECT median(n) FROM hot")
        with pytest.raises(mt.InputError, match="nothing is retained"):
            client.ask("SELECT clicks FROM hot BETWEEN '01:00' AND '02:00'")
    assert mt.ask(question, state=state).rows.equals(first.rows)


LARGE = "SELECT product, clicks, unnest(range(100000)) AS n FROM hot GROUP BY product"


def test_answers_that_are_too_large_to_be_sent_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept(tmp_path)
    state = tmp_path / "state"
    with serving(Access(), Door(), Feed(state), state) as service:
        client = mt.connect(state)
        assert client.ask(LARGE).rows.num_rows == 400_000  # more than JSON would have
        url = f"http://127.0.0.1:{service.port}/ask"
        sent = Request(
            url, json.dumps({"text": LARGE}).encode(), {"content-type": "application/json"}
        )
        with pytest.raises(HTTPError) as refused:
            urlopen(sent)
        with refused.value:
            assert "the answer has 400,000 rows" in refused.value.read().decode()
        monkeypatch.setattr("muntin.control.reading.ANSWER", 1 << 20)
        with pytest.raises(mt.MuntinError, match=r"MB, and 1 are the most.*LIMIT ask for less"):
            client.ask(LARGE)
        assert client.ask(f"{LARGE} LIMIT 5").rows.num_rows == 5


def test_programs_with_a_token_and_several_streams_answer_those_who_have_it(tmp_path: Path) -> None:
    asking, _ = kept(tmp_path)
    other = (
        f"CREATE STREAM visits (t DOUBLE, product VARCHAR) FROM '{tmp_path}/{{source}}.log' FORMAT "
        "json TIMESTAMP t SLACK 5 SECONDS; CREATE JOB seen AS SELECT product, count(*) AS visits "
        "FROM visits GROUP BY product WINDOW 10 MINUTES RETAIN 1 DAY;"
    )
    state = tmp_path / "state"
    Kept(mt.sql(other), state).finish()
    question = (
        "SELECT product, clicks, visits FROM (SELECT product, clicks FROM hot GROUP BY product) "
        "JOIN (SELECT product, visits FROM seen GROUP BY product) USING (product) ORDER BY 1"
    )
    there = asking.ask(question)
    assert [each.job for each in there.ranges] == ["hot", "seen"]
    assert all(row["clicks"] <= row["visits"] for row in there.rows.to_pylist())
    secret = tmp_path / "secret"
    secret.write_text("a-secret-of-the-test\n")
    access = Access(token="a-secret-of-the-test", file=secret)
    with serving(access, Door(), Feed(state), state) as service:
        url = f"http://127.0.0.1:{service.port}"
        assert mt.connect(url, "a-secret-of-the-test").ask(question).rows.equals(there.rows)
        assert mt.ask(question, state=state).ranges[0].read.bytes == 0  # it has read it before
        with pytest.raises(mt.MuntinError, match="token"):
            mt.connect(url, "a-secret-of-another").ask(question)
        words = ["ask", question, "--url", url, "--control-token", str(secret), "--format", "csv"]
        told = CliRunner().invoke(app, words)
        assert told.output.splitlines()[0] == "product,clicks,visits"
        assert CliRunner().invoke(app, [*words, "--master", "local"]).exit_code != 0
