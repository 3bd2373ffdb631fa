"""Pieces of log files as Arrow tables of fields, still as text where the format is text.

A work order names a byte range of a file (row groups of a Parquet file). A line belongs to
the range in which it starts, so ranges that touch give every line exactly once. A gzip file
cannot be entered in the middle: its ranges are whole members, read piece by piece. A row of
CSV is a line: a quote that is left open spoils its own row, never those after it.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.csv
from numpy.typing import NDArray

from muntin.errors import InputError
from muntin.fidelity.stream_time import NO_DOUBT, Doubt
from muntin.logs.files import Fingerprint, open_same
from muntin.logs.gunzip import BLOCK_BYTES, Gunzip, is_gzip, skip
from muntin.model.streams import Format

PIECE_BYTES = 8 << 20
LINE = "line"
LONGEST_LINE = 64 << 20
_IS_BLANK = np.isin(np.arange(256), list(b" \t\n\r\v\f"))  # by byte
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_VIEW_BYTES = 12  # Arrow keeps strings up to this size in the view itself


@dataclass(frozen=True)
class WorkOrder:
    """Read `[start, end)` of a file; `since` says how far the source had come on each axis.

    What it was not believed to have come to is in `doubt`.
    Records after the `latest` time, of a future that no clock can have meant, are bad. Of the text
    of a gzip file some may have been read before it was compressed, and is to `skip`.
    """

    stream: str
    source: str
    path: str
    start: int
    end: int
    since: Mapping[str, int] = field(default_factory=dict)
    latest: int | None = None
    fingerprint: Fingerprint | None = None
    sequence: int = 0  # of the delivery that the first order of a lane begins
    skip: int = 0  # bytes
    modified: int | None = None  # when the file was last written, in microseconds
    doubt: Doubt = NO_DOUBT


@dataclass(frozen=True)
class Chunk:
    """Fields in log order. Rows that could not even be split are `broken`: row -> text."""

    fields: pa.Table
    start: int
    size: int
    broken: dict[int, str]


@dataclass(frozen=True)
class Piece:
    """Whole lines from byte `start` on: some text, and the rest of its last line.

    Those of CSV have the names of their fields. Some of the first text of a file may be no lines.
    """

    start: int
    text: bytes
    rest: bytes
    names: tuple[str, ...] | None = None

    @property
    def size(self) -> int:
        return len(self.text) + len(self.rest)

    def complete(self) -> Piece:
        """Without a last line that has no end."""
        if (self.rest or self.text).endswith(b"\n"):
            return self
        return Piece(self.start, self.text[: self.text.rfind(b"\n") + 1], b"")


@dataclass(frozen=True)
class Overlong:
    """A line that is longer than any record: it is passed over, and what follows is read."""

    path: str
    start: int
    size: int

    def __str__(self) -> str:
        megabytes = f"{self.size >> 20:,} MB, more than {LONGEST_LINE >> 20} MB"
        return f"{self.path}, byte {self.start}: a line has {megabytes}, and counts as a bad row"


@dataclass(frozen=True)
class Bundle:
    """The fields of several pieces in one table; of each its number of rows, and broken ones."""

    fields: pa.Table
    rows: Sequence[int]
    broken: Sequence[Mapping[int, str]]


def is_blank(line: bytes, format_: Format) -> bool:
    """Whether a line is no record: it has nothing but blanks, of which a delimiter is none."""
    if format_.blanks:
        return False
    return not line.strip(_blanks(format_.delimiter) + b"\n" if format_.kind == "csv" else None)


def read_chunks(
    order: WorkOrder,
    format_: Format,
    columns: list[str],
    piece_bytes: int = PIECE_BYTES,
    bare: bool = True,
) -> Generator[Chunk, None, None]:
    """The chunks of a work order. A file that cannot be read on raises InputError.

    Lines may keep their ends, which JSON does not mind, unless they are to be `bare`.
    """
    for piece in read_pieces(order, format_, columns, piece_bytes):
        if isinstance(piece, Chunk):
            yield piece
        elif isinstance(piece, Piece):
            with _readable(order.path, format_):
                bundle = split([piece], format_, bare)
            yield Chunk(bundle.fields, piece.start, piece.size, dict(bundle.broken[0]))


def read_pieces(
    order: WorkOrder, format_: Format, columns: list[str], piece_bytes: int = PIECE_BYTES
) -> Generator[Piece | Chunk | Overlong, None, None]:
    """The pieces of a work order: text that is still to be split, or row groups as they are.

    A file that cannot be read on raises InputError.
    """
    with _readable(order.path, format_), open_same(Path(order.path), order.fingerprint) as file:
        if format_.kind == "parquet":
            yield from _row_groups(file.name, order, columns)
        elif format_.kind == "csv":
            names = tuple(csv_names(file, order.path, format_))
            for piece in _pieces(file, order, piece_bytes):
                yield replace(piece, names=names) if isinstance(piece, Piece) else piece
        else:
            yield from _pieces(file, order, piece_bytes)


@contextmanager
def _readable(path: str, format_: Format) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, csv.Error) as error:
        raise InputError(f"{path} is not a readable {format_.kind} file: {error}") from error
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from error


def fits_beside(piece: Piece | Chunk, other: Piece | Chunk) -> bool:
    """Whether two pieces of one format can be in one bundle."""
    if isinstance(piece, Piece) and isinstance(other, Piece):
        return piece.names == other.names
    if isinstance(piece, Chunk) and isinstance(other, Chunk):
        return bool(piece.fields.schema.equals(other.fields.schema))
    return False


def split(pieces: Sequence[Piece | Chunk], format_: Format, bare: bool) -> Bundle:
    """The fields of pieces that fit beside each other; lines may be left with their ends."""
    chunks = [piece for piece in pieces if isinstance(piece, Chunk)]
    texts = [piece for piece in pieces if isinstance(piece, Piece)]
    if chunks:
        return _put_together([(chunk.fields, chunk.broken) for chunk in chunks])
    if format_.kind == "csv":
        return _csv_bundle(texts, format_)
    bare |= format_.kind != "json"
    if len(texts) == 1:
        lines = _lines(texts[0], bare, format_.blanks)
        return Bundle(lines, [lines.num_rows], [{}])
    return _lines_of_many(texts, bare, format_.blanks)


def _put_together(tables: Sequence[tuple[pa.Table, Mapping[int, str]]]) -> Bundle:
    fields = pa.concat_tables([fields for fields, _ in tables])
    rows = [fields.num_rows for fields, _ in tables]
    return Bundle(fields if len(tables) == 1 else fields.combine_chunks(), rows,
                  [broken for _, broken in tables])  # fmt: skip


def _row_groups(path: str, order: WorkOrder, columns: list[str]) -> Iterator[Chunk]:
    from pyarrow.parquet import ParquetFile  # agents seldom need it

    with ParquetFile(path) as file:
        names = file.schema_arrow.names
        # Rows count even where a file has none of the columns: they are bad ones.
        present = [name for name in columns if name in names] or names[:1]
        for group in range(order.start, order.end):
            size = file.metadata.row_group(group).total_byte_size
            rows = file.read_row_groups([group], columns=present, use_threads=False)
            yield Chunk(rows, group, size, {})


def _pieces(file: BinaryIO, order: WorkOrder, piece_bytes: int) -> Iterator[Piece | Overlong]:
    """The lines of a range, a bounded number of bytes at once unless a line is longer."""
    if not is_gzip(order.path):
        start = _first_line_start(file, order.start)
        yield from _cut(file, order.path, start, order.end, piece_bytes)
        return
    members = Gunzip(file, order.start, order.end)
    text = io.BufferedReader(members, BLOCK_BYTES)
    start = order.start
    if order.skip:
        start += skip(text, order.skip - 1) + len(text.readline())  # to where a line starts
    for piece in _cut(text, order.path, start, None, piece_bytes):
        whole = piece
        if isinstance(piece, Piece) and members.damage is not None:
            whole = piece.complete()
        if whole.size:
            yield whole
    if members.damage is not None:
        raise InputError(f"{order.path} is not a readable gzip file: {members.damage}")


def _cut(
    file: BinaryIO, path: str, position: int, end: int | None, piece_bytes: int
) -> Iterator[Piece | Overlong]:
    while end is None or position < end:
        text = file.read(piece_bytes if end is None else min(piece_bytes, end - position))
        if not text and end is None:
            return
        if not text:
            raise InputError(f"{path} shrank to {position} bytes while it was read")
        rest = b"" if text.endswith(b"\n") else file.readline(LONGEST_LINE)
        piece = Piece(position, text, rest)
        position += piece.size
        if len(rest) < LONGEST_LINE:
            yield piece
            continue
        before = piece.complete()
        if before.size:
            yield before
        while rest and not rest.endswith(b"\n"):
            rest = file.readline(PIECE_BYTES)
            position += len(rest)
        start = piece.start + before.size
        yield Overlong(path, start, position - start)


def _first_line_start(file: BinaryIO, start: int) -> int:
    """The first line that starts at or after `start`."""
    if start == 0:
        return file.seek(0)
    position = file.seek(start - 1)
    while text := file.readline(PIECE_BYTES):
        position += len(text)
        if text.endswith(b"\n"):
            break
    return position


def _lines(piece: Piece, bare: bool, blanks: bool) -> pa.Table:
    """The lines, those that are blank only if they count; only a line cut in two is copied."""
    cut = piece.text.rfind(b"\n") + 1
    texts = [memoryview(piece.text)[:cut], memoryview(piece.text[cut:] + piece.rest)]
    texts = [text for text in texts if text]
    if piece.start == 0 and texts[0][:3] == _BYTE_ORDER_MARK:
        texts[0] = texts[0][3:]
    ascii_ = piece.text.isascii() and piece.rest.isascii()
    if ascii_ and not bare:
        ended = [_split_ended(text) for text in texts]
        if None not in ended:
            return pa.table({LINE: pa.chunked_array(ended, pa.string())})
    lines = [_split(text, blanks)[0] if ascii_ else _split_any(text, blanks) for text in texts]
    return pa.table({LINE: pa.chunked_array(lines, pa.string_view())})


def _lines_of_many(pieces: Sequence[Piece], bare: bool, blanks: bool) -> Bundle:
    """The same of pieces that are small: their texts are copied into one."""
    texts = []
    for piece in pieces:
        text = piece.text + piece.rest if piece.rest else piece.text
        text = text.removeprefix(_BYTE_ORDER_MARK) if piece.start == 0 else text
        texts.append(_utf8(text if text.endswith(b"\n") else text + b"\n"))
    whole = memoryview(b"".join(texts))
    ends = np.cumsum([len(text) for text in texts])
    lines = None if bare else _split_ended(whole)
    if lines is None:
        lines, starts = _split(whole, blanks)
    else:
        starts = np.frombuffer(lines.buffers()[1], np.int32)[:-1].astype(np.int64)
    rows = np.diff(np.searchsorted(starts, ends), prepend=0).tolist()
    return Bundle(pa.table({LINE: lines}), rows, [{}] * len(rows))


def _split_ended(text: memoryview) -> pa.Array | None:
    """The lines with their ends, which is faster; None if one may be blank."""
    data = np.frombuffer(text, np.uint8)
    ends = np.flatnonzero(data == 0x0A)
    ends += 1
    if not len(ends) or ends[-1] != len(data):
        ends = np.append(ends, len(data))
    offsets = np.concatenate([[0], ends]).astype(np.int32)
    if np.diff(offsets).min() <= len(b"\r\n") or _IS_BLANK[data[offsets[:-1]]].any():
        return None
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(text)]
    return pa.Array.from_buffers(pa.string(), len(ends), buffers)


def _split_any(text: memoryview, blanks: bool) -> pa.Array:
    """Lines of text that may not be UTF-8: wrong bytes become U+FFFD, as in viewers of logs."""
    lines, _ = _split(text, blanks)
    try:
        lines.validate(full=True)
    except pa.ArrowInvalid:
        return _split(memoryview(_utf8(bytes(text))), blanks)[0]
    return lines


def _split(text: memoryview, blanks: bool) -> tuple[pa.Array, NDArray[np.int64]]:
    """The lines as views into the text, and where each starts; without blank ones, or with."""
    data = np.frombuffer(text, np.uint8)
    ends = np.flatnonzero(data == 0x0A)
    if len(data) and data[-1] != 0x0A:
        ends = np.append(ends, len(data))
    starts = np.zeros_like(ends)
    starts[1:] = ends[:-1] + 1
    ends -= data[ends - 1] == 0x0D
    full = ends > starts
    if blanks:
        ends = np.maximum(starts, ends)
    elif not full.all():
        starts, ends = starts[full], ends[full]
    if not blanks and _IS_BLANK[data[starts]].any():
        full = ~_are_blank(data, starts, ends)
        starts, ends = starts[full], ends[full]
    views = pa.py_buffer(_views(data, starts, ends - starts))
    buffers = [None, views, pa.py_buffer(text)]
    return pa.Array.from_buffers(pa.string_view(), len(starts), buffers), starts


def _are_blank(
    data: NDArray[np.uint8], starts: NDArray[np.int64], ends: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Which of some stretches, none of them empty, are nothing but blanks."""
    seen = np.append(~_IS_BLANK[data], False)
    bounds = np.stack([starts, ends], axis=1).ravel()
    return ~np.logical_or.reduceat(seen, bounds)[::2] if len(starts) else np.zeros(0, bool)


def _views(
    data: NDArray[np.uint8], starts: NDArray[np.int64], sizes: NDArray[np.int64]
) -> NDArray[np.int32]:
    """Arrow's string views: size, first four bytes, buffer and offset, or the string itself."""
    views = np.zeros((len(starts), 4), np.int32)
    views[:, 0], views[:, 3] = sizes, starts
    short = sizes <= _VIEW_BYTES
    every_four = np.ndarray(max(0, len(data) - 3), np.int32, data, strides=(1,))
    views[~short, 1] = every_four[starts[~short]]
    if short.any():
        column = np.arange(_VIEW_BYTES)
        inside = column < sizes[short, None]
        letters = np.zeros(inside.shape, np.uint8)
        letters[inside] = data[(starts[short, None] + column)[inside]]
        views[short, 1:] = letters.view(np.int32)
    return views


def _utf8(text: bytes) -> bytes:
    return text if text.isascii() else text.decode("utf-8", "replace").encode()


def _csv_bundle(pieces: Sequence[Piece], format_: Format) -> Bundle:
    """Rows of CSV files that have the same fields; one by one where a row may span lines."""
    names = list(pieces[0].names or ())
    texts = [_csv_text(piece, format_) for piece in pieces]
    whole = b"".join(texts)
    if len(texts) == 1 or b'"' in whole or b"\r" in whole:
        return _put_together([split_csv(text, names, format_.delimiter) for text in texts])
    fields, broken = split_csv(whole, names, format_.delimiter)
    lines = [text.count(b"\n") - _blank_lines(text) for text in texts]
    ends = np.cumsum(lines)
    apart: list[dict[int, str]] = [{} for _ in texts]
    for row, text in broken.items():
        number = int(np.searchsorted(ends, row, side="right"))
        apart[number][row - int(ends[number]) + lines[number]] = text
    rows = [count - len(mine) for count, mine in zip(lines, apart, strict=True)]
    return Bundle(fields, rows, apart)


def _csv_text(piece: Piece, format_: Format) -> bytes:
    """The rows of a piece, without the header and with an end to the last one."""
    text = _utf8(piece.text + piece.rest)
    if piece.start == 0:
        text = text.removeprefix(_BYTE_ORDER_MARK)
        text = text.partition(b"\n")[2] if format_.header else text
    if text[:1].isspace() or any(b"\n" + blank in text for blank in (b" ", b"\t", b"\r")):
        text = _blank(format_.delimiter).sub(b"", text)
    return text if text.endswith(b"\n") or not text else text + b"\n"


def _blanks(delimiter: str) -> bytes:
    return b" \t\r".replace(delimiter.encode(), b"")


@cache
def _blank(delimiter: str) -> re.Pattern[bytes]:
    """What a line has that is nothing but blanks; a delimiter is none."""
    return re.compile(b"(?m)^[" + re.escape(_blanks(delimiter)) + b"]+$")


def _blank_lines(text: bytes) -> int:
    return len(re.findall(rb"(?m)^\n", text)) if b"\n\n" in text or text[:1] == b"\n" else 0


def split_csv(text: bytes, names: list[str], delimiter: str) -> tuple[pa.Table, dict[int, str]]:
    """Every field as text; lines that are not one row of as many fields are told apart."""
    if b"\r" in text:
        text = text.replace(b"\r\n", b"\n").removesuffix(b"\r")
    table, broken = _parse_csv(text, names, delimiter)
    if b'"' not in text and b"\r" not in text:
        return table, broken
    lines = [line for line in text.split(b"\n") if line]
    # A row that spans lines leaves fewer rows than lines, unless there is no line after it.
    as_many = table.num_rows + len(broken) == len(lines)
    if b"\r" not in text and as_many and (not lines or _row(delimiter).fullmatch(lines[-1])):
        return table, broken
    return _split_lines_of_csv(lines, names, delimiter)


def _split_lines_of_csv(
    lines: list[bytes], names: list[str], delimiter: str
) -> tuple[pa.Table, dict[int, str]]:
    row = _row(delimiter)
    whole = [i for i, line in enumerate(lines) if row.fullmatch(line)]
    table, broken = _parse_csv(b"\n".join(lines[i] for i in whole), names, delimiter)
    spanning = sorted(set(range(len(lines))) - set(whole))
    texts = {i: lines[i].decode() for i in spanning}
    texts |= {whole[i]: text for i, text in broken.items()}
    return table, dict(sorted(texts.items()))


@cache
def _row(delimiter: str) -> re.Pattern[bytes]:
    """A line that is a row by itself: no quote left open, no carriage return outside quotes."""
    other = b"[^\r" + re.escape(delimiter.encode()) + b"]*+"
    field = b'(?:"(?:[^"]++|"")*+"' + other + b'|(?!")' + other + b")"
    return re.compile(field + b"(?:" + re.escape(delimiter.encode()) + field + b")*+")


def _parse_csv(text: bytes, names: list[str], delimiter: str) -> tuple[pa.Table, dict[int, str]]:
    broken: dict[int, str] = {}

    def on_invalid(row: pyarrow.csv.InvalidRow) -> str:
        broken[row.number - 1] = row.text
        return "skip"

    if not text.endswith(b"\n"):
        text += b"\n"  # else Arrow takes a last field that is empty for a quoted one
    if not text.strip(b"\n"):
        return pa.table({name: pa.array([], pa.string()) for name in names}), broken
    table = pyarrow.csv.read_csv(
        pa.BufferReader(text),
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


def csv_names(file: BinaryIO, path: str, format_: Format) -> list[str]:
    """Names of a CSV file's fields; fields past the header's are column8, column9 and so on."""
    file.seek(0)
    text = io.BufferedReader(Gunzip(file, 0, None)) if is_gzip(path) else file
    lines = [text.readline(LONGEST_LINE) for _ in range(2)]
    if any(len(line) == LONGEST_LINE for line in lines):
        raise InputError(f"{path} has a line of more than {LONGEST_LINE >> 20} MB; is it a log?")
    return _column_names(lines, format_)


def _column_names(first_lines: list[bytes], format_: Format) -> list[str]:
    rows = [_csv_row(line, format_.delimiter) for line in first_lines]
    names = rows[0] if format_.header else []
    width = max(len(row) for row in rows)
    return names + [f"column{i + 1}" for i in range(len(names), width)]


def _csv_row(line: bytes, delimiter: str) -> list[str]:
    text = _utf8(line.removeprefix(_BYTE_ORDER_MARK)).decode().rstrip("\r\n")
    return next(csv.reader([text], delimiter=delimiter), [])
