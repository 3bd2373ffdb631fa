"""Rows as text: JSON lines, CSV, or a table for people."""

from __future__ import annotations

import csv
import json
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import StrEnum
from math import isfinite
from typing import Any, TextIO

import pyarrow as pa
from rich.console import Console
from rich.table import Table

from muntin.language.durations import describe

_UNCUT = 1000  # columns of a table that goes into a file or a pipe
_COUNTS = ("records_read", "records_bad", "records_late")


class OutputFormat(StrEnum):
    TABLE = "table"
    JSON = "json"
    CSV = "csv"


class RowWriter:
    """Writes tables of result rows one after another, with CSV headers only once a job."""

    def __init__(self, format_: OutputFormat, out: TextIO) -> None:
        self._format = format_
        self._out = out
        self._headers: set[str] = set()

    def write(self, job: str, rows: pa.Table) -> None:
        if self._format is OutputFormat.JSON:
            for line in json_lines(rows):
                self._out.write(line + "\n")
        elif self._format is OutputFormat.CSV:
            self._csv(job, rows)
        else:
            width = None if self._out.isatty() else _UNCUT
            Console(file=self._out, width=width).print(rich_table(job, rows))
        self._out.flush()

    def _csv(self, job: str, rows: pa.Table) -> None:
        writer = csv.writer(self._out, lineterminator="\n")
        if job not in self._headers:
            self._headers.add(job)
            writer.writerow(rows.column_names)
        types = rows.schema.types
        for row in zip(*(column.to_pylist() for column in rows.columns), strict=True):
            writer.writerow([_text(v, t) for v, t in zip(row, types, strict=True)])


def json_lines(rows: pa.Table) -> Iterable[str]:
    """One object a row; times in ISO 8601, UTC; integers and decimals with all their digits."""
    names = [json.dumps(name, ensure_ascii=False) for name in rows.column_names]
    types = rows.schema.types
    for row in zip(*(column.to_pylist() for column in rows.columns), strict=True):
        fields = (f"{n}: {_json(v, t)}" for n, v, t in zip(names, row, types, strict=True))
        yield "{" + ", ".join(fields) + "}"


def rich_table(job: str, rows: pa.Table, limit: int | None = None) -> Table:
    """A table with the window as one column; counts are shown where something is wrong."""
    table = Table(title=job, title_justify="left", title_style="bold", header_style="bold")
    hidden = {"job", "window_start", "window_end", "records_read"}
    hidden |= {c for c in _COUNTS if c in rows.column_names and not any(rows[c].to_pylist())}
    if len(set(rows["window_name"].to_pylist())) < 2:
        hidden.add("window_name")
    shown = [name for name in rows.column_names if name not in hidden]
    table.add_column("window", no_wrap=True)
    for name in shown:
        number = _is_number(rows.schema.field(name).type)
        table.add_column(name, justify="right" if number else "left")
    previous = ""
    for row in rows.slice(0, limit).to_pylist():
        window = window_text(row["window_start"], row["window_end"])
        cells = [_cell(row[n], rows.schema.field(n).type) for n in shown]
        table.add_row("" if window == previous else window, *cells)
        previous = window
    return table


def window_text(start: datetime | int, end: datetime | int) -> str:
    """A window in the fewest words that say it: the date once, seconds where they matter."""
    if isinstance(start, int) or isinstance(end, int):
        return f"{start:,} – {end:,}"
    same_day = start.date() == end.date()
    return f"{_moment(start)} – {_moment(end)[11:] if same_day else _moment(end)}"


def losses(
    records: int, bad: int, late: Mapping[str, int], slack_us: Mapping[str, int]
) -> Iterator[str]:
    """What is not in the answers, in words."""
    if bad:
        yield f"{bad:,} of {records + bad:,} rows were bad"
    for job, lost in late.items():
        yield late_text(job, lost, slack_us[job])


def late_text(job: str, records: int, slack_us: int) -> str:
    """What was lost to lateness, and what would have kept it."""
    came = f"job '{job}': {records:,} record{'' if records == 1 else 's'} came too late"
    if slack_us <= 0:
        return f"{came}: the source had been silent; a longer --idle waits for such"
    needed = describe(-(-slack_us // 1_000_000) * 1_000_000).upper()
    return f"{came}; SLACK {needed} would have kept them"


def _moment(time: datetime) -> str:
    text = time.strftime("%Y-%m-%d %H:%M:%S")
    return f"{text}.{time.microsecond:06d}".rstrip("0") if time.microsecond else text


def _cell(value: Any, kind: pa.DataType) -> str:
    if isinstance(value, float):
        return f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return "" if value is None else _text(value, kind)


def _text(value: Any, kind: pa.DataType) -> str:
    if value is None:
        return ""
    if isinstance(value, datetime):
        return _iso(value)
    if isinstance(value, str):
        return value
    return _json(value, kind).strip('"')


def _json(value: Any, kind: pa.DataType) -> str:
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, float):
        return repr(value) if isfinite(value) else "null"
    if isinstance(value, datetime):
        return f'"{_iso(value)}"'
    if isinstance(value, date):
        return f'"{value.isoformat()}"'
    if isinstance(value, bytes):
        return json.dumps(b64encode(value).decode())
    if pa.types.is_map(kind) and value is not None:
        pairs = ((_text(k, kind.key_type), _json(v, kind.item_type)) for k, v in value)
        return "{" + ", ".join(f"{json.dumps(k, ensure_ascii=False)}: {v}" for k, v in pairs) + "}"
    if isinstance(value, dict):
        pairs = ((k, _json(v, kind.field(k).type)) for k, v in value.items())
        return "{" + ", ".join(f"{json.dumps(k, ensure_ascii=False)}: {v}" for k, v in pairs) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_json(v, kind.value_type) for v in value) + "]"
    return json.dumps(value, ensure_ascii=False)


def _iso(time: datetime) -> str:
    utc = time if time.tzinfo is None else time.astimezone(UTC)
    return utc.replace(tzinfo=None).isoformat() + "Z"


def _is_number(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    )
