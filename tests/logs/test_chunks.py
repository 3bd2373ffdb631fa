"""Ranges that touch give every line of a file exactly once, however they are cut."""

from __future__ import annotations

import csv
import gzip
import io
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from muntin.errors import InputError
from muntin.logs.chunks import LINE, Chunk, Overlong, WorkOrder, read_chunks, read_pieces, split_csv
from muntin.logs.files import Fingerprint, checksum
from muntin.model.streams import Format

TEXT = Format("text")
CSV = Format("csv")

lines = st.one_of(
    st.binary(max_size=40),
    st.text(max_size=20).map(str.encode),
    st.sampled_from(
        [
            b"",
            b"",
            b"\r",
            b" ",
            b" \t  \v\f ",
            b"  x",
            b"twelve bytes",
            b"thirteen byte",
            b"x" * 300,
        ]
    ),
).map(lambda line: line.replace(b"\n", b""))
ends = st.sampled_from([b"\n", b"\n", b"\r\n"])


@st.composite
def texts(draw: st.DrawFn) -> bytes:
    mark = draw(st.sampled_from([b"", b"", b"\xef\xbb\xbf"]))
    body = b"".join(draw(lines) + draw(ends) for _ in range(draw(st.integers(0, 12))))
    return mark + body + draw(lines)


def expected_lines(text: bytes) -> list[str]:
    """By the letter: split at newlines, drop one carriage return, leave blank lines out."""
    found = [line.removesuffix(b"\r") for line in text.removeprefix(b"\xef\xbb\xbf").split(b"\n")]
    return [line.decode("utf-8", "replace") for line in found if line.strip()]


def orders(path: Path, cuts: list[int], size: int) -> list[WorkOrder]:
    points = sorted({0, size, *(cut % (size + 1) for cut in cuts)})
    return [WorkOrder("s", "a", str(path), start, end) for start, end in pairwise(points)]


def read(orders: list[WorkOrder], format_: Format, piece_bytes: int = 1 << 20) -> list[Chunk]:
    return [chunk for order in orders for chunk in read_chunks(order, format_, [], piece_bytes)]


def lines_of(chunks: list[Chunk]) -> list[str]:
    for chunk in chunks:
        chunk.fields.validate(full=True)
    return [line for chunk in chunks for line in chunk.fields[LINE].to_pylist()]


cuts = st.lists(st.integers(0, 1000), max_size=6)
pieces = st.sampled_from([1, 2, 3, 7, 16, 64, 1 << 20])


@given(texts(), cuts, pieces)
@example(b"\xef\xbb\xbf\n\xef\xbb\xbfb", [1, 2, 3, 4], 1)
def test_any_ranges_give_every_line_once(
    tmp_path: Path, text: bytes, cuts: list[int], piece_bytes: int
) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(text)
    chunks = read(orders(path, cuts, len(text)), TEXT, piece_bytes)
    assert lines_of(chunks) == expected_lines(text)
    assert sum(chunk.size for chunk in chunks) == len(text)


@given(st.lists(texts(), min_size=1, max_size=3), pieces)
def test_a_gzip_file_is_read_piece_by_piece(
    tmp_path: Path, members: list[bytes], piece_bytes: int
) -> None:
    path = tmp_path / "a.log.gz"
    path.write_bytes(b"".join(map(gzip.compress, members)))
    order = WorkOrder("s", "a", str(path), 0, path.stat().st_size)
    chunks = read([order], TEXT, piece_bytes)
    assert lines_of(chunks) == expected_lines(b"".join(members))
    longest = max(map(len, b"".join(members).split(b"\n")))
    assert all(chunk.size <= piece_bytes + longest + 1 for chunk in chunks)


def test_members_appended_to_a_gzip_file_are_a_range_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "a.log.gz"
    first, second = gzip.compress(b"one\ntwo\n"), gzip.compress(b"three\n")
    path.write_bytes(first + second)
    ranges = [(0, len(first)), (len(first), len(first + second))]
    found = [lines_of(read([WorkOrder("s", "a", str(path), *r)], TEXT)) for r in ranges]
    assert found == [["one", "two"], ["three"]]


def csv_fields(line: str) -> list[str | None] | None:
    """One line as a row, letter by letter; None if it is not a row by itself."""
    fields: list[str | None] = []
    value, quoted, inside, fresh = "", False, False, True
    letters = iter([*line, ","])
    for letter in letters:
        if inside and letter == '"':
            inside = False
            following = next(letters)
            if following == '"':
                value, inside = value + '"', True
                continue
            letter = following
        elif inside:
            value += letter
            continue
        elif letter == '"' and fresh:
            quoted = inside = True
            fresh = False
            continue
        if letter == "\r":
            return None
        if letter == ",":
            fields.append(value if value or quoted else None)
            value, quoted, fresh = "", False, True
        else:
            value, fresh = value + letter, False
    return None if inside else fields


def expected_rows(text: str, width: int) -> tuple[list[list[str | None]], dict[int, str]]:
    """Rows of `width` fields, and the lines that are none, by their number among both."""
    found = [line.removesuffix("\r") for line in text.split("\n")]
    rows: list[list[str | None]] = []
    broken = {}
    for number, line in enumerate(line for line in found if line.strip(" \t\r")):
        fields = csv_fields(line)
        if fields is None or len(fields) != width:
            broken[number] = line
        else:
            rows.append(fields)
    return rows, broken


csv_values = st.text(alphabet='ab," ü1', max_size=6)
csv_lines = st.one_of(
    st.text(alphabet='ab,," \rü', max_size=12),
    st.lists(csv_values, min_size=3, max_size=3).map(lambda row: _written(row, csv.QUOTE_MINIMAL)),
    st.lists(csv_values, min_size=2, max_size=4).map(lambda row: _written(row, csv.QUOTE_ALL)),
)


def _written(row: list[str], quoting: Any) -> str:
    out = io.StringIO()
    csv.writer(out, quoting=quoting, lineterminator="").writerow(row)
    return out.getvalue()


def rows_of(chunks: list[Chunk]) -> list[list[str | None]]:
    return [list(row.values()) for chunk in chunks for row in chunk.fields.to_pylist()]


def broken_of(chunks: list[Chunk]) -> dict[int, str]:
    found: dict[int, str] = {}
    before = 0
    for chunk in chunks:
        found |= {before + number: text for number, text in chunk.broken.items()}
        before += chunk.fields.num_rows + len(chunk.broken)
    return found


@given(st.lists(csv_lines, max_size=10), st.booleans(), st.booleans(), cuts, pieces)
def test_any_ranges_of_csv_give_every_row_once(
    tmp_path: Path, body: list[str], header: bool, mark: bool, cuts: list[int], piece_bytes: int
) -> None:
    # The first rows say how wide the table is, so that only the others may be broken.
    head = ["x,y,z", "1,2,3"]
    text = "\n".join([*head, *body])
    path = tmp_path / "a.csv"
    path.write_bytes(("\ufeff" * mark + text).encode())
    ranges = orders(path, cuts, path.stat().st_size)
    chunks = read(ranges, Format("csv", header=header), piece_bytes)
    expected, broken = expected_rows("\n".join(head[header:] + body), 3)
    assert rows_of(chunks) == expected
    assert broken_of(chunks) == broken
    names = ["x", "y", "z"] if header else ["column1", "column2", "column3"]
    assert all(chunk.fields.column_names == names for chunk in chunks)


def test_csv_with_carriage_returns_wrong_bytes_and_another_delimiter(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv.gz"
    path.write_bytes(gzip.compress(b'x\ty\r\n1\t"a\tb"\r\n\xff\t"c""d"\r\n3\tlast\r'))
    order = WorkOrder("s", "a", str(path), 0, path.stat().st_size)
    (chunk,) = read([order], Format("csv", delimiter="\t"))
    assert chunk.fields.to_pydict() == {"x": ["1", "\ufffd", "3"], "y": ["a\tb", 'c"d', "last"]}
    assert not chunk.broken


def test_fields_past_the_header_have_names_too(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"x,y\n1,2,\n3,4,5\n")
    (chunk,) = read(orders(path, [], 14), CSV)
    assert chunk.fields.to_pydict() == {"x": ["1", "3"], "y": ["2", "4"], "column3": [None, "5"]}


@pytest.mark.parametrize("text", [b"", b"\n\n", b"\r\n"])
def test_csv_without_rows_has_its_columns(text: bytes) -> None:
    table, broken = split_csv(text, ["x", "y"], ",")
    assert table.to_pydict() == {"x": [], "y": []}
    assert not broken


@given(st.lists(st.integers(0, 30), max_size=5), cuts)
def test_row_groups_are_read_once(tmp_path: Path, sizes: list[int], cuts: list[int]) -> None:
    path = tmp_path / "a.parquet"
    tables = [pa.table({"n": np.arange(size), "unused": np.arange(size)}) for size in sizes]
    with pa.parquet.ParquetWriter(path, pa.schema([("n", "int64"), ("unused", "int64")])) as out:
        for table in tables:
            out.write_table(table, row_group_size=7)
    groups = pa.parquet.ParquetFile(path).num_row_groups
    chunks = [
        chunk
        for order in orders(path, cuts, groups)
        for chunk in read_chunks(order, Format("parquet"), ["n"])
    ]
    assert [n for c in chunks for n in c.fields["n"].to_pylist()] == [
        n for size in sizes for n in range(size)
    ]
    assert all(chunk.fields.column_names == ["n"] for chunk in chunks)


@given(st.data(), pieces)
def test_a_damaged_gzip_file_gives_what_it_has(
    tmp_path: Path, data: st.DataObject, piece_bytes: int
) -> None:
    """At any byte, by an end or by a flipped bit; pieces of any size give the same lines."""
    path = tmp_path / "a.log.gz"
    first = [f"line {n}" for n in range(20)]
    second = [f"more {n}" for n in range(20)]
    members = [gzip.compress("".join(f"{x}\n" for x in part).encode()) for part in (first, second)]
    whole = b"".join(members)
    at = data.draw(st.integers(1, len(whole) - 1))
    cut = data.draw(st.booleans())
    flipped = bytes([whole[at] ^ 1 << data.draw(st.integers(0, 7))])
    path.write_bytes(whole[:at] if cut else whole[:at] + flipped + whole[at + 1 :])
    found, told = _read_damaged(path, piece_bytes)
    assert (found, told) == _read_damaged(path, 1 << 20)
    complete = first * (at >= len(members[0]))
    assert found[: len(complete)] == complete
    if cut:
        assert (first + second)[: len(found)] == found
        assert bool(told) == (at != len(members[0]))
    assert not told or told.startswith(f"{path} is not a readable gzip file: ")
    if not told and not cut:
        assert found == first + second  # the bit was one that says nothing, as in the header


def _read_damaged(path: Path, piece_bytes: int) -> tuple[list[str], str]:
    found: list[Chunk] = []
    order = WorkOrder("s", "a", str(path), 0, path.stat().st_size)
    try:
        found.extend(read_chunks(order, TEXT, [], piece_bytes))
    except InputError as error:
        return lines_of(found), str(error)
    return lines_of(found), ""


def test_zeros_behind_the_last_member_are_not_text(tmp_path: Path) -> None:
    path = tmp_path / "a.log.gz"
    path.write_bytes(gzip.compress(b"one\n") + bytes(200_000) + gzip.compress(b"two\n") + bytes(9))
    order = WorkOrder("s", "a", str(path), 0, path.stat().st_size)
    assert lines_of(read([order], TEXT)) == ["one", "two"]


@pytest.mark.parametrize(
    ("name", "kind", "message"),
    [
        ("a.log.gz", "text", "is not a readable gzip file"),
        ("a.csv.gz", "csv", "is not a readable gzip file"),
        ("a.parquet", "parquet", "is not a readable parquet file"),
        ("missing.log", "text", "cannot be read: No such file"),
        (".", "text", "cannot be read: Is a directory"),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path: Path, name: str, kind: Any, message: str) -> None:
    if name.startswith("a"):
        (tmp_path / name).write_bytes(b"neither gzip nor parquet\n")
    order = WorkOrder("s", "a", str(tmp_path / name), 0, 25)
    with pytest.raises(InputError, match=message) as raised:
        list(read_chunks(order, Format(kind), []))
    assert str(tmp_path / name) in str(raised.value)


def test_a_file_that_shrinks_while_it_is_read_is_told(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(b"a line\n" * 100_000)  # more than Python reads ahead
    chunks = read_chunks(WorkOrder("s", "a", str(path), 0, 700_000), TEXT, [], 7)
    assert lines_of([next(chunks)]) == ["a line"]
    path.write_bytes(b"")
    with pytest.raises(InputError, match="shrank to"):
        list(chunks)


def test_a_line_without_end_does_not_fill_the_memory(tmp_path: Path) -> None:
    path = tmp_path / "disk.img"
    with path.open("wb") as file:
        file.truncate(80 << 20)
    order = WorkOrder("s", "a", str(path), 0, 80 << 20)
    (line,) = read_pieces(order, TEXT, [], 1000)
    assert (
        str(line) == f"{path}, byte 0: a line has 80 MB, more than 64 MB, and counts as a bad row"
    )
    with pytest.raises(InputError, match="a line of more than 64 MB"):
        list(read_chunks(order, CSV, []))


@pytest.mark.parametrize("piece_bytes", [10, 1000, 1 << 20])
@pytest.mark.parametrize("name", ["a.log", "a.log.gz"])
def test_a_line_that_is_too_long_is_passed_over(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, piece_bytes: int
) -> None:
    monkeypatch.setattr("muntin.logs.chunks.LONGEST_LINE", 100)
    path, text = tmp_path / name, b"one\ntwo\n" + b"x" * (2 << 20) + b"\nthree\nfour\n"
    path.write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    order = WorkOrder("s", "a", str(path), 0, path.stat().st_size)
    found = list(read_pieces(order, TEXT, [], piece_bytes))
    (long,) = [piece for piece in found if isinstance(piece, Overlong)]
    assert (long.start, long.size) == (8, (2 << 20) + 1)
    assert lines_of(read([order], TEXT, piece_bytes)) == ["one", "two", "three", "four"]


def test_a_delimiter_is_no_blank(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_bytes(b"x\ty\n1\t2\n \n\t\n \t \n3\t4\n")
    (chunk,) = read(orders(path, [], path.stat().st_size), Format("csv", delimiter="\t"))
    assert chunk.fields["x"].to_pylist() == ["1", None, " ", "3"]


def marked(path: Path, start: int = 0) -> WorkOrder:
    with path.open("rb") as file:
        size = path.stat().st_size
        mark = Fingerprint(path.stat().st_ino, size, checksum(file, size))
    return WorkOrder("s", "a", str(path), start, size, fingerprint=mark)


def test_a_file_renamed_after_planning_is_found(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(b"one\ntwo\n")
    order = marked(path)
    path.rename(tmp_path / "a.log.1")
    assert lines_of(read([order], TEXT)) == ["one", "two"]
    path.write_bytes(b"its successor, and longer\n")
    assert lines_of(read([order], TEXT)) == ["one", "two"]


def test_a_file_renamed_behind_a_link_is_found(tmp_path: Path) -> None:
    (tmp_path / "pods").mkdir()
    (tmp_path / "links").mkdir()
    target = tmp_path / "pods" / "0.log"
    target.write_bytes(b"one\n")
    link = tmp_path / "links" / "web.log"
    link.symlink_to(target)
    order = marked(link)
    target.rename(tmp_path / "pods" / "0.log.1")
    target.write_bytes(b"next\n")
    assert lines_of(read([order], TEXT)) == ["one"]


def test_a_file_replaced_by_its_copy_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(b"one\n")
    order = marked(path)
    (tmp_path / "copy").write_bytes(b"one\ntwo\n")
    (tmp_path / "copy").replace(path)
    assert lines_of(read([order], TEXT)) == ["one"]


@pytest.mark.parametrize("text", [b"", b"new\n", b"new and longer\n"])
def test_a_file_rewritten_after_planning_is_refused(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(b"one\ntwo\n")
    order = marked(path)
    path.write_bytes(text)
    with pytest.raises(InputError, match=r"a\.log was cut or rewritten before it was read"):
        read([order], TEXT)


def test_what_is_wrong_with_gzip_is_said_in_words(tmp_path: Path) -> None:
    path = tmp_path / "a.log.gz"
    path.write_bytes(b"plain text\n")
    assert _read_damaged(path, 1 << 20)[1].endswith("gzip file: this is not gzip data")
    whole = gzip.compress(b"text\n")
    path.write_bytes(whole[:-8] + b"\0" * 4 + whole[-4:])
    assert _read_damaged(path, 1 << 20)[1].endswith("gzip file: its checksum is wrong")
