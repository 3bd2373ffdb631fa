"""Pieces of log files as Arrow tables of fields, still as text where the format is text.

A work order names a byte range of a file (row groups of a Parquet file). A line belongs to
the range in which it starts, so ranges that touch give every line exactly once. Compressed
files cannot be entered in the middle: their order is the whole file, read piece by piece.
"""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from muntin.errors import InputError
from muntin.model import Format

PIECE_BYTES = 16 << 20
LINE = "line"
_LINE_BYTES = 64 << 10
_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class WorkOrder:
    """Read `[start, end)` of a file; `since` is the source's stream time before it, if known."""

    stream: str
    source: str
    path: str
    start: int
    end: int
    since: int | None = None


@dataclass(frozen=True)
class Chunk:
    """Fields in log order. Rows that could not even be split are `broken`: row -> text."""

    fields: pa.Table
    start: int
    size: int
    broken: dict[int, str]


def is_gzip(path: Path | str) -> bool:
    return str(path).endswith(".gz")


def read_chunks(order: WorkOrder, format_: Format, columns: list[str]) -> Iterator[Chunk]:
    """The chunks of a work order. A file that cannot be read on raises InputError."""
    path = Path(order.path)
    try:
        if format_.kind == "parquet":
            yield from _row_groups(path, order, columns)
        elif is_gzip(path):
            with gzip.open(path, "rb") as file:
                yield from _pieces(file, order, format_)
        else:
            with path.open("rb") as file:
                yield from _pieces(file, order, format_)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"{path} is not a readable gzip file: {error}") from error
    except pa.ArrowException as error:
        raise InputError(f"{path} is not a readable {format_.kind} file: {error}") from error
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from error


def _row_groups(path: Path, order: WorkOrder, columns: list[str]) -> Iterator[Chunk]:
    file = pyarrow.parquet.ParquetFile(path)
    for group in range(order.start, min(order.end, file.num_row_groups)):
        size = file.metadata.row_group(group).total_byte_size
        yield Chunk(file.read_row_groups([group], columns=columns), group, size, {})


def _pieces(file: BinaryIO, order: WorkOrder, format_: Format) -> Iterator[Chunk]:
    names = _csv_names(file, format_) if format_.kind == "csv" else None
    end = None if is_gzip(order.path) else order.end
    position = _first_line_start(file, order.start)
    carried = b""  # read already, but belongs to the next piece
    while end is None or position < end:
        room = PIECE_BYTES if end is None else min(PIECE_BYTES, end - position)
        text = carried + file.read(room + _LINE_BYTES - len(carried))
        if not text:
            return
        cut = _line_end(text, room)
        while cut > len(text):
            more = file.read(_LINE_BYTES)
            text += more
            cut = _line_end(text, room) if more else len(text)
        yield _chunk(memoryview(text)[:cut], position, names, format_)
        position += cut
        carried = text[cut:]


def _line_end(text: bytes, room: int) -> int:
    """The end of the line that crosses `room`; past the text where it is not there yet."""
    if len(text) <= room:
        return len(text)
    found = text.find(b"\n", room - 1)
    return found + 1 if found >= 0 else len(text) + 1


def _first_line_start(file: BinaryIO, start: int) -> int:
    """The first line that starts at or after `start`."""
    if start == 0:
        file.seek(0)
        return 0
    file.seek(start - 1)
    return start - 1 + len(file.readline())


def _chunk(text: memoryview, start: int, names: list[str] | None, format_: Format) -> Chunk:
    size = len(text)
    clean = _clean(text, start)
    if names is None:
        return Chunk(pa.table({LINE: split_lines(clean)}), start, size, {})
    body = bytes(clean)
    if start == 0 and format_.header:
        body = body[body.index(b"\n") + 1 :] if b"\n" in body else b""
    table, broken = split_csv(body, names, format_.delimiter)
    return Chunk(table, start, size, broken)


def _clean(text: memoryview, start: int) -> memoryview:
    """UTF-8 without byte order mark and carriage returns; usually the text as it is."""
    whole = text.obj
    assert isinstance(whole, bytes)
    if start == 0 and whole.startswith(_MARK):
        text = text[len(_MARK) :]
    if b"\r" in whole:
        text = memoryview(bytes(text).replace(b"\r\n", b"\n"))
    return text if whole.isascii() else memoryview(_utf8(bytes(text)))


def _utf8(text: bytes) -> bytes:
    """Bytes that are not UTF-8 become U+FFFD, as in every viewer of logs."""
    try:
        text.decode("utf-8")
    except UnicodeDecodeError:
        return text.decode("utf-8", "replace").encode()
    return text


def split_lines(text: memoryview) -> pa.Array:
    """The lines that are not blank, without copying the text."""
    ends = np.flatnonzero(np.frombuffer(text, np.uint8) == 0x0A)
    complete = not text or text[-1] == 0x0A
    offsets = np.zeros(len(ends) + (1 if complete else 2), np.int64)
    offsets[1 : len(ends) + 1] = ends + 1
    if not complete:
        offsets[-1] = len(text)
    buffers = (pa.py_buffer(offsets), pa.py_buffer(text))
    lines = pa.LargeStringArray.from_buffers(len(offsets) - 1, *buffers)
    blank = np.diff(offsets) == 1
    return lines.filter(pa.array(~blank)) if blank.any() else lines


def split_csv(text: bytes, names: list[str], delimiter: str) -> tuple[pa.Table, dict[int, str]]:
    """Every field as text; rows with another number of fields are told apart."""
    broken: dict[int, str] = {}

    def on_invalid(row: pyarrow.csv.InvalidRow) -> str:
        broken[(row.number or 1) - 1] = row.text
        return "skip"

    if not text.strip():
        return pa.table({name: pa.array([], pa.string()) for name in names}), broken
    table = pyarrow.csv.read_csv(
        io.BytesIO(text),
        pyarrow.csv.ReadOptions(column_names=names, use_threads=False, block_size=len(text) + 1),
        pyarrow.csv.ParseOptions(
            delimiter=delimiter, newlines_in_values=True, invalid_row_handler=on_invalid
        ),
        pyarrow.csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()),
            strings_can_be_null=True,
            null_values=[""],
            quoted_strings_can_be_null=False,
        ),
    )
    return table, broken


def _csv_names(file: BinaryIO, format_: Format) -> list[str]:
    """Names of a CSV file's fields; fields past the header's are column8, column9 and so on."""
    file.seek(0)
    return csv_names([file.readline(), file.readline()], format_)


def csv_names(first_lines: list[bytes], format_: Format) -> list[str]:
    rows = [_csv_row(line, format_.delimiter) for line in first_lines]
    names = rows[0] if format_.header else []
    width = max(len(row) for row in rows)
    return names + [f"column{i + 1}" for i in range(len(names), width)]


def _csv_row(line: bytes, delimiter: str) -> list[str]:
    import csv

    text = _utf8(line.removeprefix(_MARK)).decode().rstrip("\r\n")
    return next(csv.reader([text], delimiter=delimiter), [])
