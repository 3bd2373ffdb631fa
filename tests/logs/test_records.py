"""A lane gives the same blocks and counts however it is cut, and says what it could not read."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from muntin.errors import BadRowError, InputError
from muntin.kernel.compute import Recipe
from muntin.kernel.due import Due
from muntin.kernel.finish import finish, order
from muntin.kernel.reading import Reading
from muntin.kernel.statements import WINDOW, WINDOW_END
from muntin.language.program import sql
from muntin.logs import records
from muntin.logs.chunks import WorkOrder
from muntin.logs.records import read_lane
from muntin.logs.tail import Tail
from muntin.model.counts import Counts
from muntin.model.jobs import Job, Program
from muntin.model.records import POSITION
from muntin.run.catalog import recipes_of
from muntin.windows.ledger import Ledger
from tests.effort import examples

JOB = (
    "SELECT source, count(*) AS records, sum(n) AS total FROM logs GROUP BY source "
    "WINDOW 10 SECONDS"
)
BASE = 1_700_000_000


def program(pattern: Path, format_: str = "json", bad: str = "SKIP") -> Program:
    return sql(
        f"CREATE STREAM logs (t BIGINT, n BIGINT) FROM '{pattern}' FORMAT {format_} "
        f"TIMESTAMP t ON BAD ROW {bad}; CREATE JOB job AS {JOB};"
    )


def read(
    found: Program, slack_us: int | None = None, piece_bytes: int = 1 << 20, tasks: int = 1
) -> tuple[dict[str, pa.Table], list[Reading]]:
    (stream,) = found.streams.values()
    tail = Tail(stream, follow=False, lane_bytes=1, lanes=tasks)
    lanes = tail.next_batch(0.0, in_order=slack_us is not None).lanes
    done = [read_lane(lane, stream, recipes(found), slack_us, piece_bytes) for lane in lanes]
    blocks = [block for found, _ in done for block in found.values()]
    return {"job": pa.concat_tables(blocks)} if blocks else {}, [report for _, report in done]


def recipes(found: Program) -> Sequence[Recipe]:
    return recipes_of(found.jobs.values())


def answer(found: Program, blocks: dict[str, pa.Table], ends: list[int]) -> list[dict[str, Any]]:
    job: Job = found.jobs["job"]
    rows = finish(job.shape, found.jobs, blocks["job"], Due({"job": [ends]})).rows["job"]
    table: list[dict[str, Any]] = order(job, [rows]).to_pylist()
    return table


lines = st.lists(
    st.one_of(
        st.builds(lambda t, n: json.dumps({"t": BASE + t, "n": n}), *[st.integers(0, 29)] * 2),
        st.sampled_from(["", "no json", '{"t": null, "n": 1}', '{"t": 1, "n": "x"}']),
    ),
    max_size=30,
)


@examples(25)
@given(lines, st.sampled_from([1, 30, 200, 1 << 20]), st.sampled_from([None, 0, 5_000_000]))
def test_pieces_of_any_size_agree(
    tmp_path: Path, text: list[str], piece_bytes: int, slack_us: int | None
) -> None:
    path = tmp_path / "web-1.json"
    path.write_text("\n".join(text))
    found = program(tmp_path / "{source}.json")
    whole, (*reports,) = read(found, slack_us)
    pieces, (*others,) = read(found, slack_us, piece_bytes)
    ends = [BASE // 10 + k for k in range(5)]
    assert bool(whole) == bool(pieces)
    if whole:
        assert answer(found, whole, ends) == answer(found, pieces, ends)
    assert [replace(r, tallies=(), notes=(), costs={}) for r in reports] == [
        replace(r, tallies=(), notes=(), costs={}) for r in others
    ]
    tallies = [set(Ledger(t for r in some for t in r.tallies)) for some in (reports, others)]
    assert tallies[0] == tallies[1]


def test_many_pieces_are_merged_on_the_way(tmp_path: Path) -> None:
    path = tmp_path / "web-1.json.gz"
    text = "".join(json.dumps({"t": BASE + i % 10, "n": i}) + "\n" for i in range(80))
    path.write_bytes(gzip.compress(text.encode()))
    found = program(tmp_path / "{source}.json.gz")
    blocks, (report,) = read(found, piece_bytes=1)
    assert answer(found, blocks, [BASE // 10 + 1]) == [
        {WINDOW: 0, WINDOW_END: BASE // 10 + 1, "source": "web-1", "records": 80, "total": 79 * 40}
    ]
    assert len(report.tallies) == 1
    assert (report.records, report.bad) == (80, 0)
    assert report.reached == {POSITION: (BASE + 9) * 1_000_000}


# DuckDB quotes 47 bytes of a line that it refuses, here with half of the last letter.
IN_A_LETTER = '{"t": 1700000000, "user": "aaaaaa", "city": "København", "n'


@pytest.mark.parametrize(
    "torn",
    ['{"t": 17', IN_A_LETTER, "\ufffd" * 40, '{"t": ' + "[" * 100_000],
    ids=["short", "in a letter", "wrong bytes", "deep"],
)
@pytest.mark.parametrize("kind", ["BIGINT", "DECIMAL(9, 2)"])
def test_a_torn_line_costs_no_other(tmp_path: Path, kind: str, torn: str) -> None:
    path = tmp_path / "web-1.json"
    whole = [json.dumps({"t": BASE, "n": n}) for n in range(6)]
    path.write_text("\n".join([*whole[:3], torn, *whole[4:]]))
    found = sql(
        f"CREATE STREAM logs (t BIGINT, n {kind}) FROM '{tmp_path}/{{source}}.json' FORMAT json "
        f"TIMESTAMP t; CREATE JOB job AS {JOB};"
    )
    for piece_bytes in (1, 50, 1 << 20):
        records._torn.clear()
        blocks, (report,) = read(found, piece_bytes=piece_bytes)
        assert (report.records, report.bad) == (5, 1)
        (row,) = answer(found, blocks, [BASE // 10 + 1])
        assert (row["records"], row["total"]) == (5, 0 + 1 + 2 + 4 + 5)
        (note,) = report.notes
        assert note.startswith(f"{path}, ")
        assert torn[:40] in note


def test_bad_rows_are_counted_and_one_is_told(tmp_path: Path) -> None:
    path = tmp_path / "web-1.csv"
    path.write_text(f't,n\n{BASE},1\n{BASE},1,1\n{BASE},x\n,5\n"{BASE},6\n{BASE},7\n')
    found = program(tmp_path / "{source}.csv", "csv")
    blocks, (report,) = read(found)
    assert answer(found, blocks, [BASE // 10 + 1])[0]["total"] == 8
    assert (report.records, report.bad) == (2, 4)
    assert report.notes == (
        f"{path}, line 3: a row does not fit stream 'logs': "
        f"expected 2 fields in one line: {BASE},1,1",
    )
    counts = Ledger(report.tallies).counts(POSITION, found.jobs["job"].windows[0], BASE // 10 + 1)
    assert counts == Counts(2, 4, 0)


@pytest.mark.parametrize(
    ("name", "format_", "text", "shown"),
    [
        ("a.json", "json", "{}\n" + "x" * 300, "{}"),
        ("a.json", "json", "a\x1b[2J\x00\tø 😀", r"a\x1b[2J\x00\tø 😀"),
        ("a.csv", "csv", "t,n\n1,x\n", "{'t': '1', 'n': 'x'}"),
        ("a.csv", "csv", 't,n\n1,"2\n', '1,"2'),
    ],
)
def test_a_bad_row_is_refused_where_the_stream_says_so(
    tmp_path: Path, name: str, format_: str, text: str, shown: str
) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(BadRowError) as raised:
        read(program(tmp_path / name, format_, "FAIL"))
    assert str(raised.value).endswith(f": {shown}")


GOOD = json.dumps({"t": BASE, "n": 1})
WEB = '1.2.3.4 - - [{}] "GET / HTTP/1.1" {} 5'


@pytest.mark.parametrize(
    ("stream", "lines", "said"),
    [
        ("(t BIGINT, n BIGINT) FROM '{}' FORMAT json", [GOOD, "", "x"], "3: it is not a JSON"),
        (
            "(t BIGINT, n BIGINT) FROM '{}' FORMAT json",
            [GOOD, '{"t": 1, "n": "x"}'],
            '2: column "n" is not BIGINT',
        ),
        (
            "(t BIGINT, n BIGINT) FROM '{}' FORMAT json",
            ["{}"],
            '1: TIMESTAMP "t" gives no time, as the row has none: {}',
        ),
        ("(t BIGINT, n BIGINT) FROM '{}' FORMAT csv", ["t,n", "1,2", ",x"], '3: column "n" is not'),
        (
            "(t BIGINT, n BIGINT) FROM '{}' FORMAT regex '(?P<t>[0-9]+) (?P<n>.+)'",
            ["1 2", "1"],
            "2: it does not match FORMAT regex",
        ),
        (
            "FROM '{}' FORMAT common",
            [WEB.format("01/Jan/2026:00:00:00 +0000", 200), WEB.format("yesterday", 200)],
            '2: TIMESTAMP "time" gives no time',
        ),
    ],
)
def test_a_bad_row_is_told_with_its_place_and_reason(
    tmp_path: Path, stream: str, lines: list[str], said: str
) -> None:
    path = tmp_path / "web-1.log"
    path.write_text("".join(line + "\n" for line in lines))
    timestamp = "" if stream.endswith("common") else "TIMESTAMP t"
    value = "status" if stream.endswith("common") else "n"
    found = sql(
        f"CREATE STREAM logs {stream.format(path)} {timestamp}; "
        f"CREATE JOB job AS SELECT sum({value}) FROM logs WINDOW 1 DAY"
    )
    _, (report,) = read(found)
    number, reason = int(said[0]), said[3:]
    place = f"{path}, line {number}: a row does not fit stream 'logs': "
    assert report.notes[0].startswith(f"{place}{reason}")


@pytest.mark.parametrize(
    ("clauses", "line", "said"),
    [
        (
            "FORMAT text TIMESTAMP line[:17]",
            "17/06/09 20:10:40 INFO up",
            "if '17/06/09 20:10:40' is one, say TIMESTAMP strptime("
            "\"line\"[:17], '%y/%m/%d %H:%M:%S')",
        ),
        (
            "FORMAT csv TIMESTAMP d || ' ' || t",
            "d,t\n081109,203615",
            "if '081109 203615' is one, say TIMESTAMP strptime("
            "\"d\" || ' ' || \"t\", '%y%m%d %H%M%S')",
        ),
        ("FORMAT text TIMESTAMP line[:0]", "x", 'TIMESTAMP "line"[:0] gives no time: x'),
    ],
)
def test_a_time_made_of_text_is_told_with_the_clause_that_understands_it(
    tmp_path: Path, clauses: str, line: str, said: str
) -> None:
    path = tmp_path / "web-1.log"
    path.write_text(line + "\n")
    columns = "(d VARCHAR, t VARCHAR)" if "csv" in clauses else ""
    found = sql(
        f"CREATE STREAM logs {columns} FROM '{path}' {clauses}; "
        "CREATE JOB job AS SELECT count(*) FROM logs WINDOW 1 DAY"
    )
    _, (report,) = read(found)
    assert said in report.notes[0]


@pytest.mark.parametrize("piece_bytes", [len(GOOD) + 1, 1 << 20])
def test_bad_rows_are_told_by_their_line_wherever_they_are(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, piece_bytes: int
) -> None:
    path = tmp_path / "web-1.json"
    path.write_text(f"{GOOD}\n \t\n{GOOD}\nx\n")
    byte = 2 * len(GOOD) + 5
    _, (report,) = read(program(path), piece_bytes=piece_bytes)
    assert report.notes[0].startswith(f"{path}, line 4: ")
    monkeypatch.setattr("muntin.logs.bad._COUNTED_BYTES", 0)  # a file too long to count its lines
    _, (report,) = read(program(path), piece_bytes=len(GOOD) + 1)
    assert report.notes[0].startswith(f"{path}, byte {byte}: ")


@pytest.mark.parametrize(
    ("columns", "value", "said"),
    [
        ("t VARCHAR", "31.01.2026 12:00", "say TIMESTAMP strptime(t, '%d.%m.%Y %H:%M')"),
        (
            "t TIMESTAMP",
            "12:00:00,123",
            "declare t VARCHAR and say TIMESTAMP strptime('2026-01-31 ",
        ),
        ("t VARCHAR", "", ", as the row has none"),
    ],
)
def test_a_time_that_is_not_understood_says_what_to_declare(
    tmp_path: Path, columns: str, value: str, said: str
) -> None:
    path = tmp_path / "web-1.json"
    path.write_text(json.dumps({"t": value}) + "\n")
    found = sql(
        f"CREATE STREAM logs ({columns}) FROM '{path}' FORMAT json TIMESTAMP t; "
        "CREATE JOB job AS SELECT count(*) FROM logs WINDOW 1 DAY"
    )
    _, (report,) = read(found)
    assert said in report.notes[0]


def test_a_missing_sequence_number_is_told(tmp_path: Path) -> None:
    path = tmp_path / "web-1.json"
    path.write_text(f'{GOOD}\n{{"t": {BASE}}}\n')
    found = sql(
        f"CREATE STREAM logs (t BIGINT, n BIGINT) FROM '{path}' FORMAT json TIMESTAMP t; "
        "CREATE JOB job AS SELECT count(*) FROM logs WINDOW 5 OF n"
    )
    _, (report,) = read(found)
    assert '"n" is missing' in report.notes[0]


def test_long_rows_are_cut_in_messages(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("x" * 300)
    _, (report,) = read(program(tmp_path / "a.json"))
    assert report.notes[0].endswith(": " + "x" * 200 + "…")


def test_what_cannot_be_read_is_one_bad_row_and_the_rest_goes_on(tmp_path: Path) -> None:
    good = json.dumps({"t": BASE, "n": 1}).encode() + b"\n"
    (tmp_path / "web-1.1.json.gz").write_bytes(gzip.compress(good * 5)[:-4])
    (tmp_path / "web-1.2.json.gz").write_bytes(gzip.compress(good))
    found = program(tmp_path / "{source}.*.json.gz")
    _, (report,) = read(found, slack_us=0)
    assert (report.source, report.records, report.bad) == ("web-1", 6, 1)
    assert "web-1.1.json.gz is not a readable gzip file" in report.notes[0]
    window = found.jobs["job"].windows[0]
    assert Ledger(report.tallies).counts(POSITION, window, BASE // 10 + 1) == Counts(6, 1, 0)
    with pytest.raises(InputError, match="not a readable gzip file"):
        read(program(tmp_path / "{source}.*.json.gz", bad="FAIL"), slack_us=0)


def test_a_file_that_is_gone_when_it_is_read_counts_once(tmp_path: Path) -> None:
    path = tmp_path / "web-1.json"
    path.write_text(json.dumps({"t": BASE, "n": 1}) + "\n")
    found = program(tmp_path / "{source}.json")
    (stream,) = found.streams.values()
    (lane,) = Tail(stream, follow=False).next_batch(0.0, in_order=True).lanes
    path.unlink()
    blocks, report = read_lane(lane, stream, recipes(found), None)
    assert (blocks, report.records, report.bad) == ({}, 0, 1)
    assert report.notes == (f"{path} was removed before it was read",)


def test_parquet_without_the_columns_is_all_bad(tmp_path: Path) -> None:
    path = tmp_path / "web-1.parquet"
    pa.parquet.write_table(pa.table({"other": [1, 2, 3]}), path)
    blocks, (report,) = read(program(tmp_path / "{source}.parquet", "parquet"))
    assert (blocks, report.records, report.bad) == ({}, 0, 3)
    pa.parquet.write_table(pa.table({"t": [BASE], "n": [7]}), path)
    _, (report,) = read(program(tmp_path / "{source}.parquet", "parquet"))
    assert (report.records, report.bad) == (1, 0)


def test_stream_time_goes_on_where_the_last_batch_stood(tmp_path: Path) -> None:
    path = tmp_path / "web-1.json"
    path.write_text(json.dumps({"t": BASE, "n": 1}) + "\n")
    found = program(tmp_path / "{source}.json")
    (stream,) = found.streams.values()
    since = {POSITION: (BASE + 10) * 1_000_000}
    lane = [WorkOrder("logs", "web-1", str(path), 0, path.stat().st_size, since)]
    for slack_us, late in ((0, 1), (1, 0)):
        _, report = read_lane(lane, stream, recipes(found), slack_us)
        (window,) = found.jobs["job"].windows
        counts = Ledger(report.tallies).counts(POSITION, window, BASE // 10 + 1)
        assert counts == Counts(1, 0, late)
