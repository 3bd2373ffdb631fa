"""A bad row looked at again, to say where it stands and what is wrong with it.

Only one row of many is told of, so this may take its time.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa

from muntin.errors import harmless
from muntin.kernel.engine import literal, quote, run
from muntin.logs.chunks import LINE, Chunk, WorkOrder, is_blank
from muntin.logs.formats import (
    PATTERNS,
    Wanted,
    records_sql,
    text_sql,
    time_text_sql,
    wrong_columns_sql,
)
from muntin.logs.gunzip import is_gzip
from muntin.logs.times import clause_for
from muntin.model.records import POSITION
from muntin.model.streams import Format, Stream

_SHOWN = 200
_COUNTED_BYTES = 1 << 30  # in which lines are counted to say where one is
_FILES_AT_MOST = 1000
_counted: dict[tuple[int, int], tuple[int, int]] = {}  # file -> up to which byte, and lines
_TIME = 40  # letters of a time that are shown


@dataclass(frozen=True)
class BadRow:
    """The number of a row among those of its chunk, its text, and why it is bad."""

    number: int
    text: str
    reason: str

    def described(self, order: WorkOrder, chunk: Chunk, stream: Stream) -> str:
        place = _place(self.number, order, chunk, stream.format)
        text = self.text.strip() if len(self.text) <= _SHOWN else self.text[:_SHOWN] + "…"
        return (
            f"{order.path}{place}: a row does not fit stream '{stream.name}': {self.reason}: "
            f"{harmless(text)}"
        )


def first_bad_row(chunk: Chunk, records: pa.Table, stream: Stream, wanted: Wanted) -> BadRow:
    """The first row of the chunk that could not be split or has no position."""
    if chunk.broken:
        number, text = next(iter(chunk.broken.items()))
        names = len(chunk.fields.column_names)
        return BadRow(number, text, f"expected {names} fields in one line")
    number = records.column(POSITION).is_null().index(True).as_py()
    fields = chunk.fields.slice(number, 1)
    text = _text(chunk, number, stream)
    unlike = _unlike(fields, text, stream.format)
    if unlike is not None:
        return BadRow(number, text, unlike)
    present = frozenset(fields.column_names)
    read = run(records_sql(stream, wanted, present), {"fields": fields}, "looking at a bad row")
    if read[POSITION][0].is_valid:
        clause = f"TIMESTAMP {stream.timestamp}"
        return BadRow(number, text, f"{clause} gives a time out of the years 1 to 9999")
    wrong = run(wrong_columns_sql(stream, wanted, present),
                {"fields": fields}, "looking at a bad row")["wrong"].to_pylist()  # fmt: skip
    hint = _time_hint(fields, stream, wrong)
    if wrong:
        return BadRow(number, text, f"{' and '.join(wrong)}{hint}")
    if stream.until is not None:
        clause = f"TIMESTAMP {stream.timestamp} TO {stream.until}"
        return BadRow(number, text, f"{clause} gives no time, or an end before the start")
    return BadRow(number, text, f"TIMESTAMP {stream.timestamp} gives no time{hint}")


def _time_hint(fields: pa.Table, stream: Stream, wrong: Sequence[str]) -> str:
    """What to declare where the time is a text that is not understood."""
    if stream.format.kind in PATTERNS:
        return ""
    column = next((c for c in stream.columns if quote(c.name) == stream.timestamp), None)
    if column is None:
        return "" if wrong else _expression_hint(fields, stream)
    if wrong and not any(words.startswith(f"column {quote(column.name)} ") for words in wrong):
        return ""
    sql = text_sql(stream, column, frozenset(fields.column_names))
    (text,) = run(sql, {"fields": fields}, "looking at a bad row")["text"].to_pylist()
    if not text:
        return ", as the row has none"
    if column.type not in ("VARCHAR", "TIMESTAMP"):
        return ""
    known = column.name if column.name.isidentifier() else quote(column.name)
    declared = "" if column.type == "VARCHAR" else f"declare {known} VARCHAR and "
    return f"; if {harmless(repr(text[:_TIME]))} is one, {declared}say {clause_for(text, known)}"


def _expression_hint(fields: pa.Table, stream: Stream) -> str:
    """The same where the time is a text that is made of columns."""
    sql = time_text_sql(stream, frozenset(fields.column_names))
    if sql is None:
        return ""
    (text,) = run(sql, {"fields": fields}, "looking at a bad row")["text"].to_pylist()
    clause = None if not text else clause_for(text, stream.timestamp)
    return f"; if {harmless(repr(text[:_TIME]))} is one, say {clause}" if clause else ""


def first_fall(
    chunk: Chunk, records: pa.Table, stream: Stream, wanted: Wanted, reached: Mapping[str, int]
) -> BadRow:
    """The first row whose sequence number is lower than one before it in its source."""
    valid = records.column(POSITION).is_valid().to_pylist()
    for axis in wanted.sequences:
        highest = reached.get(axis.column)
        numbers = zip(valid, records.column(axis.column).to_pylist(), strict=True)
        for number, value in ((n, value) for n, (good, value) in enumerate(numbers) if good):
            if highest is not None and value < highest:
                reason = f"{axis.sql} is {value} after {highest}, but a sequence must not fall"
                return BadRow(
                    _number_among_all(number, chunk), _text(chunk, number, stream), reason
                )
            highest = value
    raise AssertionError("no sequence number is lower than one before it")


def place_of(number: int, order: WorkOrder, chunk: Chunk, format_: Format) -> str:
    """Where a record stands, by its number among those of its chunk that could be split."""
    return f"{order.path}{_place(_number_among_all(number, chunk), order, chunk, format_)}"


def _number_among_all(number: int, chunk: Chunk) -> int:
    """The number of a record among all rows of its chunk, also those that could not be split."""
    for broken in sorted(chunk.broken):
        number += broken <= number
    return number


def _text(chunk: Chunk, number: int, stream: Stream) -> str:
    row = chunk.fields.slice(number, 1).to_pylist()[0]
    return str(row) if stream.format.kind in ("csv", "parquet") else str(row[LINE])


def _unlike(fields: pa.Table, text: str, format_: Format) -> str | None:
    """Why a line is not of the format at all."""
    if format_.kind == "json":
        return None if _is_object(text) else "it is not a JSON object"
    pattern = format_.pattern or PATTERNS.get(format_.kind)
    if pattern is None:
        return None
    sql = f"SELECT regexp_matches({LINE}, {literal(pattern)}) AS fits FROM fields"
    (fits,) = run(sql, {"fields": fields}, "looking at a bad row")["fits"].to_pylist()
    return None if fits else f"it does not match FORMAT {format_.kind}"


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


def _place(number: int, order: WorkOrder, chunk: Chunk, format_: Format) -> str:
    """The line, or far behind the beginning of a large file the byte; unknown in gzip."""
    if format_.kind == "parquet":
        return f", row {number + 1} of row group {chunk.start}"
    if is_gzip(order.path):
        return ""
    header = format_.kind == "csv" and format_.header and chunk.start == 0
    left, at = number + header, chunk.start
    with suppress(OSError), Path(order.path).open("rb") as file:
        before = _lines(file, chunk.start) if chunk.start <= _COUNTED_BYTES else None
        file.seek(chunk.start)
        for line_number, line in enumerate(file, start=1):
            left -= not is_blank(line, format_)
            if left < 0:
                return f", byte {at}" if before is None else f", line {before + line_number}"
            at += len(line)
    return ""


def _lines(file: BinaryIO, upto: int) -> int:
    """How many lines end before a byte of a file; those counted before are not counted again."""
    about = os.fstat(file.fileno())
    key = about.st_dev, about.st_ino
    start, lines = _counted.get(key, (0, 0))
    if start > upto:
        start, lines = 0, 0
    file.seek(start)
    while start < upto and (data := file.read(min(upto - start, 1 << 20))):
        lines += data.count(b"\n")
        start += len(data)
    if len(_counted) >= _FILES_AT_MOST:
        _counted.clear()
    _counted[key] = start, lines
    return lines


def ahead_text(name: str, records: int) -> str:
    """What is wrong with records of a time that nobody can have lived."""
    return (
        f"{name}: {records:,} records are of a time more than a day ahead of the clock here, and "
        f"count as bad"
    )
