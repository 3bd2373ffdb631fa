"""Every format, from bytes of a file to typed records: what survives, and what is a bad row."""

from __future__ import annotations

import gzip
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

from muntin.kernel.engine import run
from muntin.language import program
from muntin.logs.chunks import WorkOrder, read_chunks
from muntin.logs.formats import Wanted, records_sql
from muntin.model.records import POSITION
from muntin.model.streams import Stream
from muntin.run.inline import run_inline

EPOCH = "2023-11-14T22:13:20Z"  # 1,700,000,000 seconds
EPOCH_US = 1_700_000_000_000_000


def stream_of(path: Path, columns: str, rest: str) -> Stream:
    return program.sql(f"CREATE STREAM s {columns} FROM '{path}' {rest}").streams["s"]


def records(path: Path, columns: str, rest: str) -> list[dict[str, Any]]:
    """All rows of a file with every column; a bad row has no position."""
    stream = stream_of(path, columns, rest)
    names = tuple(c.name for c in stream.columns)
    end = 1 if stream.format.kind == "parquet" else path.stat().st_size
    order = WorkOrder("s", "", str(path), 0, end)
    found: list[dict[str, Any]] = []
    for chunk in read_chunks(order, stream.format, list(names)):
        sql = records_sql(stream, Wanted(names), frozenset(chunk.fields.column_names))
        found += run(sql, {"fields": chunk.fields}, "reading").to_pylist()
        found += [{POSITION: None} for _ in chunk.broken]
    return found


def written(folder: Path, text: str | bytes, name: str = "log") -> Path:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def answer(path: Path, stream: str, select: str) -> dict[str, Any]:
    """The one row of a job over the file."""
    text = f"CREATE STREAM s FROM '{path}' {stream}; CREATE JOB j AS {select} WINDOW 100 DAYS"
    (result,) = run_inline(program.sql(text))
    (row,) = result.rows.to_pylist()
    return dict(row)


def positions(rows: list[dict[str, Any]]) -> list[int | None]:
    return [row[POSITION] for row in rows]


# JSON


def test_json_keeps_every_type(tmp_path: Path) -> None:
    line = {
        "t": EPOCH,
        "text": 'ünï "quoted" \\ 漢字 \u0007',
        "long": 9007199254740993,
        "huge": 170141183460469231731687303715884105727,
        "flag": True,
        "share": 0.1,
        "nothing": None,
        "list": [1, 2],
    }
    path = written(tmp_path, json.dumps(line))
    (row,) = records(
        path,
        "(t TIMESTAMP, text VARCHAR, long BIGINT, huge HUGEINT, flag BOOLEAN, share DOUBLE, "
        "nothing VARCHAR, missing BIGINT, list BIGINT[])",
        "FORMAT json TIMESTAMP t",
    )
    assert row == line | {
        "t": datetime(2023, 11, 14, 22, 13, 20),
        "missing": None,
        POSITION: EPOCH_US,
    }


def test_of_a_key_that_is_there_twice_the_first_counts(tmp_path: Path) -> None:
    path = written(tmp_path, '{"t": 1700000000, "n": 1, "t": 1, "n": 2, "o": {"a": 1, "a": 2}}')
    for columns in ("(t BIGINT, n BIGINT)", "(t BIGINT, n BIGINT, o STRUCT(a BIGINT))"):
        (row,) = records(path, columns, "FORMAT json TIMESTAMP t")
        assert (row[POSITION], row["n"], row.get("o", {"a": 1})) == (EPOCH_US, 1, {"a": 1})


def test_json_decimals_keep_all_digits(tmp_path: Path) -> None:
    lines = [
        '{"t": 1700000000, "price": 12345678901234567.89}',
        '{"t": 1700000000, "price": "0.10"}',
        '{"t": 1700000000, "price": 1e2}',
        '{"t": 1700000000, "price": null}',
        '{"t": 1700000000, "price": 1.005}',
        '{"t": 1700000000, "price": "cheap"}',
        '{"t": 1700000000, "price": 123456789012345678901}',
    ]
    path = written(tmp_path, "\n".join(lines))
    rows = records(path, "(t BIGINT, price DECIMAL(20, 2))", "FORMAT json TIMESTAMP t")
    assert [row["price"] for row in rows[:4]] == [
        Decimal("12345678901234567.89"),
        Decimal("0.10"),
        Decimal("100.00"),
        None,
    ]
    assert positions(rows) == [EPOCH_US] * 4 + [None] * 3


@pytest.mark.parametrize(
    "line",
    [
        "not json",
        '{"t": 1700000000, "n": 1',
        '{"t": 1700000000, "n": 1} and more',
        "42",
        "[1]",
        "null",
        '"text"',
        '{"n": 1}',
        '{"t": null, "n": 1}',
        '{"t": "soon", "n": 1}',
        '{"t": 1700000000, "n": "many"}',
        '{"t": 1700000000, "n": 1.5}',
        '{"t": 1700000000, "n": 15e-1}',
        '{"t": 1700000000, "n": true}',
        '{"t": 1700000000, "n": {"x": 1}}',
        '{"t": 1700000000, "n": 9223372036854775808}',
        '{"t": 1700000000, "n": ""}',
    ],
)
def test_json_bad_rows(tmp_path: Path, line: str) -> None:
    path = written(tmp_path, f'{{"t": 1700000000, "n": 1}}\n{line}\n{{"t": 1700000000}}\n')
    rows = records(path, "(t BIGINT, n BIGINT)", "FORMAT json TIMESTAMP t")
    assert positions(rows) == [EPOCH_US, None, EPOCH_US]


def test_json_integers_may_be_written_in_other_ways(tmp_path: Path) -> None:
    values = ["1.0", "1e3", '"7"', "-0", "9223372036854775807", "9007199254740993"]
    path = written(tmp_path, "\n".join(f'{{"t": 1700000000, "n": {v}}}' for v in values))
    rows = records(path, "(t BIGINT, n BIGINT)", "FORMAT json TIMESTAMP t")
    assert [row["n"] for row in rows] == [1, 1000, 7, 0, 2**63 - 1, 2**53 + 1]
    assert None not in positions(rows)


def test_json_nested_fields_by_dot(tmp_path: Path) -> None:
    lines = [
        {"at": {"t": "2023-11-15T00:13:20+02:00"}, "user": {"id": 2**53 + 1, "tags": ["a", "ü"]}},
        {"at": {"t": EPOCH}, "user": {"id": -1, "tags": []}},
        {"at": {"t": EPOCH}},
    ]
    path = written(tmp_path, "\n".join(map(json.dumps, lines)))
    row = answer(
        path,
        "FORMAT json TIMESTAMP at.t",
        "SELECT max(user.id) AS id, max(user.tags[2]) AS tag, min(at.t) AS t, count(*) AS n FROM s",
    )
    at = datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
    assert row == {"id": 2**53 + 1, "tag": "ü", "t": at, "n": 3}


@pytest.mark.parametrize(
    "user", ['{"id": "x"}', '{"id": 1.5}', '{"deep": [{"n": "x"}]}', '{"deep": [{"n": 0.5}]}']
)
def test_json_nested_values_are_as_strict(tmp_path: Path, user: str) -> None:
    lines = [f'{{"t": 1700000000, "user": {u}}}' for u in ('{"id": 1, "deep": [{"n": 2}]}', user)]
    rows = records(
        written(tmp_path, "\n".join(lines)),
        "(t BIGINT, user STRUCT(id BIGINT, deep STRUCT(n BIGINT)[]))",
        "FORMAT json TIMESTAMP t",
    )
    assert rows[0]["user"] == {"id": 1, "deep": [{"n": 2}]}
    assert positions(rows) == [EPOCH_US, None]


def test_json_maps_and_free_form_fields(tmp_path: Path) -> None:
    path = written(tmp_path, '{"t": 1700000000, "m": {"a": 1}, "j": {"x": [1, "y"]}}')
    (row,) = records(path, "(t BIGINT, m MAP(VARCHAR, BIGINT), j JSON)", "FORMAT json TIMESTAMP t")
    assert dict(row["m"]) == {"a": 1}
    assert json.loads(row["j"]) == {"x": [1, "y"]}


def test_json_names_with_dots_quotes_and_spaces(tmp_path: Path) -> None:
    line = {"t": EPOCH, "id.orig_h": "10.0.0.1", "a b": 1, 'q"q': 2, "it's": 3, "id": {"x": 4}}
    row = answer(
        written(tmp_path, json.dumps(line)),
        "FORMAT json TIMESTAMP t",
        'SELECT "id.orig_h" AS host, max("a b") AS ab, max("q""q") AS q, max("it\'s") AS i, '
        'max(id.x) AS x FROM s GROUP BY "id.orig_h"',
    )
    assert row == {"host": "10.0.0.1", "ab": 1, "q": 2, "i": 3, "x": 4}


def test_only_wanted_columns_are_looked_at(tmp_path: Path) -> None:
    lines = '{"t": 1700000000, "n": "many", "m": 1}\n{"t": 1700000000, "n": 1, "m": 1}'
    path = written(tmp_path, lines)
    stream = "(t BIGINT, n BIGINT, m BIGINT)"
    sql = f"CREATE STREAM s {stream} FROM '{path}' FORMAT json TIMESTAMP t;"
    for used, counted in (("m", 2), ("n", 1)):
        job = f"CREATE JOB j AS SELECT sum({used}) AS x, count(*) AS n FROM s WINDOW 1 DAY"
        assert sum(r.counts.read for r in run_inline(program.sql(f"{sql} {job}"))) == counted


# CSV


def test_csv_keeps_every_type(tmp_path: Path) -> None:
    text = (
        "t,text,long,price,day,flag,empty\r\n"
        '2023-11-14 22:13:20,"a ""b"", ü",9007199254740993,0.10,2023-11-14,true,\r\n'
    )
    (row,) = records(
        written(tmp_path, text),
        "(t TIMESTAMP, text VARCHAR, long BIGINT, price DECIMAL(10, 2), day DATE, flag BOOLEAN, "
        "empty VARCHAR, absent BIGINT)",
        "FORMAT csv TIMESTAMP t",
    )
    assert row == {
        "t": datetime(2023, 11, 14, 22, 13, 20),
        "text": 'a "b", ü',
        "long": 2**53 + 1,
        "price": Decimal("0.10"),
        "day": date(2023, 11, 14),
        "flag": True,
        "empty": None,
        "absent": None,
        POSITION: EPOCH_US,
    }


@pytest.mark.parametrize(
    "line",
    ["1700000000", "1700000000,1,2", "soon,1", ",1", "1700000000,many", "1700000000,1.5",
     "1700000000,0x1F", "1700000000,1 2", '"1700000000,1'],
)  # fmt: skip
def test_csv_bad_rows(tmp_path: Path, line: str) -> None:
    path = written(tmp_path, f"t,n\n1700000000,1\n{line}\n1700000000,2\n")
    rows = records(path, "(t BIGINT, n BIGINT)", "FORMAT csv TIMESTAMP t")
    assert sorted(map(str, positions(rows))) == [str(EPOCH_US)] * 2 + ["None"]
    assert sum(row["n"] for row in rows if row[POSITION]) == 3


def test_csv_with_tabs_and_more_fields_than_its_header(tmp_path: Path) -> None:
    path = written(tmp_path, "host\ttime\nünï\t1700000000\t\tx\nb\t1700000001\t\t\n")
    rows = records(path, "", "FORMAT csv (DELIMITER '\\t') TIMESTAMP time")
    assert [(r["host"], r["column3"], r["column4"]) for r in rows] == [
        ("ünï", None, "x"),
        ("b", None, None),
    ]


def test_csv_with_everything_in_quotes(tmp_path: Path) -> None:
    path = written(tmp_path, '"t","n","s"\n"1700000000","5","x"\n"1700000000","",""\n')
    rows = records(path, "", "FORMAT csv TIMESTAMP t")
    assert [(row["n"], row["s"]) for row in rows] == [(5, "x"), (None, "")]
    assert None not in positions(rows)


def test_csv_with_fields_that_have_no_name(tmp_path: Path) -> None:
    path = written(tmp_path, ",t,\n0,1700000000,x\n")
    assert records(path, "", "FORMAT csv TIMESTAMP t") == [{"t": 1700000000, POSITION: EPOCH_US}]


def test_csv_without_header(tmp_path: Path) -> None:
    path = written(tmp_path, "1700000000;a\n1700000001;b\n")
    stream = "FORMAT csv (HEADER false, DELIMITER ';') TIMESTAMP column1"
    rows = records(path, "", stream)
    assert [row["column2"] for row in rows] == ["a", "b"]


# Web servers


WEB = (
    '10.0.0.1 - ann lee [14/Nov/2023:23:13:20 +0100] "{request}" {status} {bytes} '
    '"http://x/?q=\\"a\\"" "Mozilla/5.0 (X11; \\"q\\")"'
)


def test_combined(tmp_path: Path) -> None:
    line = WEB.format(request="GET /a b?c=[d] HTTP/1.1", status=200, bytes="5120")
    (row,) = records(written(tmp_path, line + ' 0.003 "extra"\n'), "", "FORMAT combined")
    assert row == {
        "host": "10.0.0.1",
        "ident": None,
        "user": "ann lee",
        "time": datetime(2023, 11, 14, 22, 13, 20),
        "request": "GET /a b?c=[d] HTTP/1.1",
        "method": "GET",
        "path": "/a b?c=[d]",
        "protocol": "HTTP/1.1",
        "status": 200,
        "bytes": 5120,
        "referer": 'http://x/?q=\\"a\\"',
        "agent": 'Mozilla/5.0 (X11; \\"q\\")',
        POSITION: EPOCH_US,
    }


@pytest.mark.parametrize(
    ("request_", "parts"),
    [
        ("GET / HTTP/2.0", ("GET", "/", "HTTP/2.0")),
        ("GET /old", ("GET", "/old", None)),
        ("OPTIONS * RTSP/1.0", ("OPTIONS", "* RTSP/1.0", None)),
        ("-", (None, None, None)),
        ("", (None, None, None)),
        ("\\x16\\x03\\x01", (None, None, None)),
    ],
)
def test_requests_of_all_sorts(
    tmp_path: Path, request_: str, parts: tuple[str | None, ...]
) -> None:
    path = written(tmp_path, WEB.format(request=request_, status=400, bytes="-"))
    (row,) = records(path, "", "FORMAT common")
    assert (row["method"], row["path"], row["protocol"]) == parts
    assert (row["status"], row["bytes"], row[POSITION]) == (400, None, EPOCH_US)


@pytest.mark.parametrize(
    "line",
    [
        "starting up",
        WEB.format(request="GET / HTTP/1.1", status=200, bytes=1)[:-3],
        WEB.format(request="GET / HTTP/1.1", status=200, bytes=1).replace("Nov", "Nov."),
        WEB.format(request="GET / HTTP/1.1", status=200, bytes=1).replace(" +0100", ""),
        WEB.format(request="GET / HTTP/1.1", status="abc", bytes=1),
    ],
)
def test_combined_bad_rows(tmp_path: Path, line: str) -> None:
    rows = records(written(tmp_path, line), "", "FORMAT combined")
    assert positions(rows) == [None]


# Regular expressions and text


def test_regex(tmp_path: Path) -> None:
    pattern = r"^(?<time>\S+) \[(?P<level>\w+)\](?: took (?P<ms>\d+) ms)?( .*)?$"
    lines = [f"{EPOCH} [WARN] took 15 ms", f"{EPOCH} [INFO]", "  at a.b(c)", f"{EPOCH} [INFO] hi"]
    rows = records(
        written(tmp_path, "\r\n".join(lines)), "", f"FORMAT regex '{pattern}' TIMESTAMP time"
    )
    assert [(r["level"], r["ms"]) for r in rows if r[POSITION]] == [
        ("WARN", 15),
        ("INFO", None),
        ("INFO", None),
    ]
    assert positions(rows) == [EPOCH_US, EPOCH_US, None, EPOCH_US]


def test_text(tmp_path: Path) -> None:
    path = written(tmp_path, b"081109 203615 caf\xc3\xa9 \xff\nno time\n")
    rows = records(path, "", "FORMAT text TIMESTAMP strptime(line[:13], '%y%m%d %H%M%S')")
    assert rows[0]["line"] == "081109 203615 café \ufffd"
    assert positions(rows) == [1226262975000000, None]


# Parquet


def parquet(path: Path, **columns: pa.Array) -> Path:
    pyarrow.parquet.write_table(pa.table(columns), path)
    return path


def test_parquet_keeps_every_type(tmp_path: Path) -> None:
    path = parquet(
        tmp_path / "x.parquet",
        t=pa.array([EPOCH_US * 1000 + 999], pa.timestamp("ns")),
        name=pa.array(["ü"]),
        long=pa.array([2**53 + 1]),
        price=pa.array([Decimal("12345678901234567.89")]),
        user=pa.array([{"id": 2**53 + 1}]),
    )
    (row,) = records(path, "", "FORMAT parquet TIMESTAMP t")
    assert (row["name"], row["long"], row["price"], row["user"], row[POSITION]) == (
        "ü",
        2**53 + 1,
        Decimal("12345678901234567.89"),
        {"id": 2**53 + 1},
        EPOCH_US,  # nanoseconds are cut off, never rounded up into the next window
    )


def test_parquet_files_that_differ_in_type(tmp_path: Path) -> None:
    declared = "(t BIGINT, n BIGINT, absent VARCHAR)"
    for kind, values in (("int", [1, 2, 3]), ("double", [1.0, 1.5, 2.0]), ("text", ["1", "x", ""])):
        path = parquet(
            tmp_path / f"{kind}.parquet", t=pa.array([1700000000] * 3), n=pa.array(values)
        )
        rows = records(path, declared, "FORMAT parquet TIMESTAMP t")
        good = {row["n"] for row in rows if row[POSITION]}
        assert good == {"int": {1, 2, 3}, "double": {1, 2}, "text": {1}}[kind]


# Time


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("2023-11-14T22:13:20Z", EPOCH_US),
        ("2023-11-14 22:13:20", EPOCH_US),
        ("2023-11-14T22:13:20.123456789Z", EPOCH_US + 123456),
        ("2023-11-14 22:13:20.9999999", EPOCH_US + 999999),
        ("2023-11-15T00:13:20+02:00", EPOCH_US),
        ("2023-11-14T17:13:20-0500", EPOCH_US),
        ("2023-11-14T22:13Z", EPOCH_US - 20_000_000),
        ("2023-11-14", 1699920000000000),
        ("1969-12-31T23:59:59.5Z", -500_000),
        ("2023-02-30T00:00:00Z", None),
        ("infinity", None),
        ("yesterday", None),
        ("2023-11-14 22:13:20,123", EPOCH_US + 123000),
        ("14/Nov/2023:23:13:20 +0100", EPOCH_US),
        ("1700000000", EPOCH_US),
        ("1700000000.123", EPOCH_US + 123000),
        ("17000000", None),
    ],
)
@pytest.mark.parametrize("kind", ["TIMESTAMP", "VARCHAR", "TIMESTAMP WITH TIME ZONE"])
def test_times_as_text(tmp_path: Path, text: str, position: int | None, kind: str) -> None:
    path = written(tmp_path, f't\n"{text}"\n')
    assert positions(records(path, f"(t {kind})", "FORMAT csv TIMESTAMP t")) == [position]
    path = written(tmp_path, f'{{"t": "{text}"}}\n{{"t": "\\"{text}\\""}}')
    assert positions(records(path, f"(t {kind})", "FORMAT json TIMESTAMP t")) == [position] * 2


@pytest.mark.parametrize(
    ("number", "position"),
    [
        ("1700000000", EPOCH_US),
        ("1700000000123", EPOCH_US + 123000),
        ("1700000000123456", EPOCH_US + 123456),
        ("1700000000123456789", EPOCH_US + 123456),
        ("0", 0),
        ("-1", -1_000_000),
        ("-1700000000123456789", -EPOCH_US - 123457),
        ("99999999999", 99_999_999_999_000_000),
        ("100000000000", 100_000_000_000_000),
        ("", None),
    ],
)
@pytest.mark.parametrize("kind", ["BIGINT", "HUGEINT", "DECIMAL(30, 3)", "VARCHAR"])
def test_epochs(tmp_path: Path, number: str, position: int | None, kind: str) -> None:
    path = written(tmp_path, f"t,x\n{number},\n")
    time = "CAST(t AS BIGINT)" if kind == "VARCHAR" else "t"
    rows = records(path, f"(t {kind})", f"FORMAT csv TIMESTAMP {time}")
    assert positions(rows) == [position]


@pytest.mark.parametrize("kind", ["DOUBLE", "DECIMAL(20, 6)"])
def test_epochs_with_a_fraction(tmp_path: Path, kind: str) -> None:
    path = written(tmp_path, "t\n1700000000.25\n1700000000.123456\n-0.5\n")
    rows = records(path, f"(t {kind})", "FORMAT csv TIMESTAMP t")
    assert positions(rows) == [EPOCH_US + 250000, EPOCH_US + 123456, -500000]


def test_time_from_an_expression(tmp_path: Path) -> None:
    path = written(tmp_path, "month,day\nNov-2023,14\nNov-2023,x\nsoon,1\n")
    rows = records(
        path,
        "(month VARCHAR, day INTEGER)",
        "FORMAT csv TIMESTAMP strptime('01-' || month, '%d-%b-%Y') + to_days(day - 1)",
    )
    assert positions(rows) == [1699920000000000, None, None]


# Files


def test_gzip_marks_and_blank_lines(tmp_path: Path) -> None:
    text = b'\xef\xbb\xbf{"t": 1700000000}\r\n\r\n\n{"t": 1700000001}'
    path = written(tmp_path, gzip.compress(text), "log.gz")
    assert len(positions(records(path, "", "FORMAT json TIMESTAMP t"))) == 2
