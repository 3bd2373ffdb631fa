"""Columns found in files: the type that most values have, and that gives them back as written."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest

from muntin.errors import InputError
from muntin.logs.infer import infer_columns, names_in_files
from muntin.model.streams import Format, Stream


def kinds(format_: Format, *patterns: Path | str) -> dict[str, str]:
    stream = Stream("s", tuple(map(str, patterns)), format_, (), "")
    return {column.name: column.type for column in infer_columns(stream)}


def kind_of(folder: Path, *values: str) -> str:
    """The type of a CSV column with these values."""
    path = folder / "x.csv"
    path.write_text("x;y\n" + "".join(f"{value};\n" for value in values))
    return kinds(Format("csv", delimiter=";"), path)["x"]


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["1", "-2", "0"], "BIGINT"),
        (["1", ""], "BIGINT"),
        (["1700000000123456789"], "BIGINT"),
        (["9007199254740993", "1"], "BIGINT"),
        (["12345678901234567890", "-1"], "HUGEINT"),
        (["9" * 39], "VARCHAR"),
        (["1", "2.5"], "DOUBLE"),
        (["1.", ".5", "1e-7", "nan", "-inf"], "DOUBLE"),
        (["12345678901234567.5"], "DOUBLE"),
        (["1234567890123456789", "2.5"], "VARCHAR"),
        (["007", "1"], "VARCHAR"),
        (["00.5"], "VARCHAR"),
        (["1_000"], "VARCHAR"),
        (["0x1F"], "VARCHAR"),
        (["true", "FALSE"], "BOOLEAN"),
        (["Y", "N"], "VARCHAR"),
        (["2023-11-14", "2023-11-14 22:13:20.1234567", "2023-11-14T22:13:20+02:00"], "TIMESTAMP"),
        (["2023-11-14", "2023-02-30"], "VARCHAR"),
        (["2023-11"], "VARCHAR"),
        (["infinity"], "DOUBLE"),
        (["10.0.0.1"], "VARCHAR"),
        (["", ""], "VARCHAR"),
        (["1", "2", "3", "n/a"], "BIGINT"),
        (["1", "2", "n/a"], "VARCHAR"),
        ([*"123456789", *"123456789", "n/a", "-"], "BIGINT"),
        ([*"123456789", *"12345678", "n/a", "-", "?"], "VARCHAR"),
        (["1", "2.5", "3", "x", *"12345678"], "DOUBLE"),
        ([*"123456789", "007"], "VARCHAR"),
        (["true", "false", "true", "maybe"], "BOOLEAN"),
        (["2023-11-14 22:13:20,123", "2023-11-14 22:13:21,1", "2023-11-14 22:13:22"], "TIMESTAMP"),
        (["2023-11-14", "2023-11-15", "2023-11-16", "soon"], "TIMESTAMP"),
        (["14/Nov/2023:22:13:20 +0100", "14/Nov/2023:22:13:21 +0100"], "TIMESTAMP"),
    ],
)
def test_csv_types(tmp_path: Path, values: list[str], kind: str) -> None:
    assert kind_of(tmp_path, *values) == kind


def test_csv_columns_of_several_files(tmp_path: Path) -> None:
    (tmp_path / "1.csv").write_text("t,n\n1,1\n")
    (tmp_path / "2.csv").write_text("t,n,new\n2,x,1.5\n")
    found = kinds(Format("csv"), tmp_path / "*.csv")
    assert found == {"t": "BIGINT", "n": "VARCHAR", "new": "DOUBLE"}


def test_files_are_sampled_from_first_to_last(tmp_path: Path) -> None:
    for number in range(30):
        (tmp_path / f"{number:02}.csv").write_text(f"{'z' if number == 29 else 'n'}\n1\n")
    assert kinds(Format("csv"), tmp_path / "*.csv") == {"n": "BIGINT", "z": "BIGINT"}


def test_csv_header_of_all_sorts(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_bytes(b'\xef\xbb\xbf,"a,b",\xc3\xbc,"say ""hi"""\r\n0,1,2,3,4\r\n')
    found = kinds(Format("csv"), path)
    assert found == {"a,b": "BIGINT", "ü": "BIGINT", 'say "hi"': "BIGINT", "column5": "BIGINT"}


def test_csv_header_with_a_name_twice(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("n,N\n1,2\n")
    with pytest.raises(InputError, match=r"x\.csv names two columns 'N'"):
        kinds(Format("csv"), tmp_path / "x.csv")


def test_csv_with_a_header_alone(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("t,n\n")
    assert kinds(Format("csv"), tmp_path / "x.csv") == {"t": "VARCHAR", "n": "VARCHAR"}


def json_kinds(folder: Path, *lines: object) -> dict[str, str]:
    path = folder / "x.jsonl"
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    path.write_text("\n".join(texts), encoding="utf-8")
    return kinds(Format("json"), path)


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1, -1], "BIGINT"),
        ([2**63 - 1, -(2**63)], "BIGINT"),
        ([2**53 + 1, 1], "BIGINT"),
        ([2**64 - 1, -1], "HUGEINT"),
        ([10**30, 1], "HUGEINT"),
        ([1, 1.5], "DOUBLE"),
        ([1e300, 12345678901234567.0], "DOUBLE"),
        ([True, None], "BOOLEAN"),
        ([None], "VARCHAR"),
        ([1, "x"], "VARCHAR"),
        ([True, 1], "VARCHAR"),
        (["1", "2"], "VARCHAR"),
        (["x", {"a": 1}], "JSON"),
        (["2023-11-14T22:13:20Z"], "TIMESTAMP"),
        (["2023-11-14T22:13:20.123+02:00", None], "TIMESTAMP"),
        (["2023-11-14"], "TIMESTAMP"),
        (["2023-11-14T22:13:20Z", "soon"], "VARCHAR"),
        (["10:00:00"], "VARCHAR"),
        (["550e8400-e29b-41d4-a716-446655440000"], "VARCHAR"),
        ([["a"], []], "VARCHAR[]"),
        ([{"n": 1, "t": "2023-11-14T22:13:20+02:00"}], "STRUCT(n BIGINT, t TIMESTAMP)"),
        ([{"x": None, "d": "2023-11-14"}], "STRUCT(x VARCHAR, d TIMESTAMP)"),
        ([1, 2, 3, "x"], "BIGINT"),
        ([1, 2, "x"], "VARCHAR"),
        ([1, 2.5, 3, "x"], "DOUBLE"),
        (["a", "b", "c", 1], "VARCHAR"),
        ([1, "2"], "BIGINT"),
        ([True, False, True, "x"], "BOOLEAN"),
        ([{"n": 1}, {"n": 2}, {"n": 3}, "none"], "STRUCT(n BIGINT)"),
        ([{"n": 1}, {"n": 2}, {"n": 3}, {"n": "x", "m": 1.5}], "STRUCT(n BIGINT, m DOUBLE)"),
        ([[1], [2], [3], 4], "BIGINT[]"),
        (["2023-11-14 22:13:20,123", "2023-11-14T22:13:21Z", "2023-11-14"], "TIMESTAMP"),
        (["2023-11-14", "2023-11-15", "2023-11-16", "soon"], "TIMESTAMP"),
        (["2023-11-14T22:13:20Z", "2023-11-14T22:13:20.5Z"], "TIMESTAMP"),
        (["2023-11-14 22:13:20", "2023-11-14 22:13:20.123456"], "TIMESTAMP"),
        (["Tue, 14 Nov 2023 22:13:20 GMT", "Wed, 15 Nov 2023 22:13:20 +0100"], "TIMESTAMP"),
        (["Tue Nov 14 22:13:20 2023", "Tue Nov 14 22:13:20.25 2023"], "TIMESTAMP"),
        (["20231114T221320Z", "20231114T221320.5Z"], "TIMESTAMP"),
        (["14 Nov 2023 22:13:20", "14 Nov 2023 22:13:20.5"], "TIMESTAMP"),
        (["may be", "Mon day"], "VARCHAR"),
        (
            [{"At": t, "d": {"t": t}, "x": "y"} for t in ("2023-11-14 22:13:20", "2023-11-14")],
            'STRUCT("At" TIMESTAMP, d STRUCT(t TIMESTAMP), x VARCHAR)',
        ),
        (["17-06-09 20:10:40", "17-06-10"], "VARCHAR"),
    ],
)
def test_json_types(tmp_path: Path, values: list[object], kind: str) -> None:
    assert json_kinds(tmp_path, *({"x": value} for value in values)) == {"x": kind}


def test_json_with_broken_lines_between(tmp_path: Path) -> None:
    found = json_kinds(tmp_path, "starting up", "42", {"a": 1}, '{"a": 2', "[1]", "", {"b": "ü"})
    assert found == {"a": "BIGINT", "b": "VARCHAR"}


def test_json_names(tmp_path: Path) -> None:
    line = {"id.orig_h": 1, "a b": 1, 'q"q': 1, "it's": 1, "a/b~c": 1}
    assert json_kinds(tmp_path, line) == dict.fromkeys(line, "BIGINT")


def test_json_without_objects(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none of the first 2 lines is a JSON object.*: hello"):
        json_kinds(tmp_path, "hello", "42")
    with pytest.raises(InputError, match=r"is a JSON object, for example: .blank"):
        json_kinds(tmp_path, "\n\n")


def test_regex_types(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_text("081109 12 a\r\n  continued\r\n081110 13 b\r\n")
    pattern = r"^(?P<date>\d{6}) (?P<n>\d+) (?P<rest>\S+)( (?P<never>.*))?$"
    found = kinds(Format("regex", pattern), path)
    assert found == {"date": "VARCHAR", "n": "BIGINT", "rest": "VARCHAR", "never": "VARCHAR"}


def test_regex_that_matches_nothing(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_text("hello\nworld\n")
    with pytest.raises(InputError, match=r"none of the first 2 lines matches.*: hello"):
        kinds(Format("regex", "^(?P<n>[0-9]+)$"), path)


def test_parquet_types(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    table = pa.table({"t": pa.array([0], pa.timestamp("us")), "s": [{"a": [1.5]}]})
    pyarrow.parquet.write_table(table, path)
    assert kinds(Format("parquet"), path) == {"t": "TIMESTAMP", "s": "STRUCT(a DOUBLE[])"}
    path.write_text("not parquet")
    with pytest.raises(InputError, match=r"x\.parquet is not a readable parquet file"):
        kinds(Format("parquet"), path)


def test_no_file_with_content(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").touch()
    (tmp_path / "empty.jsonl.gz").write_bytes(gzip.compress(b""))
    for name in ("empty.jsonl", "empty.jsonl.gz", "nowhere/*.jsonl"):
        with pytest.raises(InputError, match=r"stream 's': no file with content matches.*declare"):
            kinds(Format("json"), tmp_path / name)


def test_files_that_cannot_be_read_do_not_hide_the_others(tmp_path: Path) -> None:
    (tmp_path / "a.gz").write_bytes(gzip.compress(b'{"a": 1}\n' * 99)[:-20])
    with pytest.raises(InputError, match=r"a\.gz is not a readable gzip file"):
        kinds(Format("json"), tmp_path / "*.gz")
    (tmp_path / "b.gz").write_bytes(gzip.compress(b'{"b": 1}\n'))
    assert kinds(Format("json"), tmp_path / "*.gz") == {"b": "BIGINT"}
    stream = Stream("s", (str(tmp_path / "*.gz"),), Format("json"), (), "", on_bad_row="fail")
    with pytest.raises(InputError, match=r"a\.gz is not a readable gzip file"):
        infer_columns(stream)


def test_json_is_not_taken_for_csv(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text('{"ts": 1, "n": 2}\n{"ts": 2, "n": 2}\n')
    with pytest.raises(InputError, match=r"a\.log looks like JSON; expected csv"):
        kinds(Format("csv"), tmp_path / "a.log")


def test_one_line_among_others_may_be_deep_wide_or_long(tmp_path: Path) -> None:
    usual = [{"n": number} for number in range(20)]
    deep = '{"n": 1, "d": ' + "[" * 10_000 + "]" * 10_000 + "}"
    wide = {"n": 1} | {f"k{number}": number for number in range(20_000)}
    long = {"n": 1, "x": "x" * 20_000_000}
    for odd in (deep, wide, long):
        assert json_kinds(tmp_path, *usual, odd) == {"n": "BIGINT"}


def test_lines_that_are_all_wide_or_long(tmp_path: Path) -> None:
    wide = {f"k{number}": number for number in range(1000)}
    assert json_kinds(tmp_path, *[wide] * 3) == dict.fromkeys(wide, "BIGINT")
    assert json_kinds(tmp_path, {"x": "x" * 17_000_000}) == {"x": "VARCHAR"}
    deep = '{"d": ' + "[" * 200 + "]" * 200 + "}"
    with pytest.raises(InputError, match="stream 's': every line is nested more than 128 levels"):
        json_kinds(tmp_path, deep)


@pytest.mark.parametrize(
    ("format_", "text"),
    [
        (Format("json"), '{"a": 1, "b.c": 2}\n[1]\n{"ü": 3}\n'),
        (Format("csv"), "a,b.c,ü\n1,2,3\n"),
        (Format("regex", r"(?P<a>.)(?P<b>.)"), "12\n"),
        (Format("common"), "x\n"),
    ],
)
def test_names_in_files(format_: Format, text: str, tmp_path: Path) -> None:
    (tmp_path / "x").write_text(text)
    found = names_in_files(Stream("s", (str(tmp_path / "x"),), format_, (), ""))
    known = {"json": ["a", "b.c", "ü"], "csv": ["a", "b.c", "ü"], "regex": ["a", "b"]}
    assert sorted(found)[:3] == known.get(format_.kind, ["bytes", "host", "ident"])
    assert names_in_files(Stream("s", ("nowhere",), format_, (), "")) == []
