"""Results as they are told to clients: one JSON object a result, each with its position.

Positions of one job's results are in the order in which these have left, and the same whether a
result is read from memory or from the job's table, before or after a restart. So a client that
names the last position it has seen misses nothing, and gets nothing twice.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote

import pyarrow as pa

from muntin.errors import InputError
from muntin.run.results import USED
from muntin.store.export import json_text, values_of
from muntin.store.history import IN_ALL

_EVER = 1 << 63
_WINDOW = ("emitted_at", "window_end", "window_start", "revision", "window_name")
_COUNTS = ("records_read", "records_bad", "records_late", "records_failed")
_OURS = {"job", "job_version", "c2", "c2_records", "results_used", IN_ALL, *_WINDOW, *_COUNTS}
_SCORE = ("area", "time", "space", "reason", "sources", "missing")


@dataclass(frozen=True, order=True)
class Position:
    """Where a result stands among those of its job: when it left, then its window."""

    at_us: int
    end: int
    start: int
    revision: int
    name: str

    def __str__(self) -> str:
        return f"{self.at_us}.{self.end}.{self.start}.{self.revision}.{quote(self.name)}"

    @classmethod
    def of(cls, text: str) -> Position:
        """The position that a text is; an InputError if it is none."""
        try:
            *numbers, name = text.split(".", 4)
            at_us, end, start, revision = map(int, numbers)
        except ValueError:
            message = f"'{text[:100]}' is no id of a result"
            raise InputError(f"{message}; give the id of the last event as it came") from None
        return cls(at_us, end, start, revision, unquote(name))

    @classmethod
    def behind(cls, at_us: int) -> Position:
        """Behind everything that left then or before."""
        return cls(at_us, _EVER, _EVER, _EVER, "")


FIRST = Position(-_EVER, 0, 0, 0, "")  # before every result


@dataclass(frozen=True)
class Told:
    """A result: where it stands, its number of rows, and the object that it is in JSON.

    One that was withdrawn is a revision that takes back what there was.
    """

    position: Position
    rows: int
    text: str
    withdrawn: bool = False


def told(table: pa.Table) -> Iterator[Told]:
    """The results that rows as they are stored make up, in the order of their positions."""
    places: dict[Position, list[int]] = {}
    columns = [_numbers(table[name]) for name in _WINDOW]
    for number, window in enumerate(zip(*columns, strict=True)):
        places.setdefault(Position(*window), []).append(number)
    for position in sorted(places):
        rows = table.take(pa.array(places[position]))
        yield _told(position, rows)


def _told(position: Position, table: pa.Table) -> Told:
    first = {name: values_of(table[name].slice(0, 1))[0] for name in _OURS & {*table.column_names}}
    withdrawn = first["c2"] is None  # a revision that has no rows is stored as one
    rows = [] if withdrawn else list(_rows(table))
    schema = table.schema
    parts = {
        "id": json.dumps(str(position)),
        "job": json.dumps(first["job"]),
        "version": str(first.get("job_version") or 1),
        "window": json.dumps(position.name),
        "start": json_text(first["window_start"], schema.field("window_start").type),
        "end": json_text(first["window_end"], schema.field("window_end").type),
        "revision": str(position.revision),
        "emitted_at": json_text(first["emitted_at"], schema.field("emitted_at").type),
        "records": json.dumps({name.removeprefix("records_"): first[name] for name in _COUNTS}),
        "c2": "null" if withdrawn else json.dumps({name: first["c2"][name] for name in _SCORE}),
        "used": json_text(first.get("results_used") or [], USED),
        "rows": f"[{', '.join(rows)}]",
    }
    if not withdrawn and first.get(IN_ALL, 0) > len(rows):
        parts[IN_ALL] = str(first[IN_ALL])
    text = "{" + ", ".join(f'"{name}": {value}' for name, value in parts.items()) + "}"
    return Told(position, len(rows), text, withdrawn)


def _rows(table: pa.Table) -> Iterator[str]:
    shown = [name for name in table.column_names if name not in _OURS]
    types = [table.schema.field(name).type for name in shown]
    names = [json.dumps(name, ensure_ascii=False) for name in shown]
    if not shown:
        yield from ["{}"] * table.num_rows
    for row in zip(*(values_of(table[name]) for name in shown), strict=True):
        fields = (f"{n}: {json_text(v, t)}" for n, v, t in zip(names, row, types, strict=True))
        yield "{" + ", ".join(fields) + "}"


def _numbers(column: pa.ChunkedArray) -> list[Any]:
    """Times as microseconds: years may be beyond Python's calendar."""
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
    return list(column.to_pylist())
