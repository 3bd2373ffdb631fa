"""Answers about the past as they are sent: Arrow's bytes with all that is known, or JSON."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

from muntin.ask.answering import PastRows, Range
from muntin.ask.keeping import Read
from muntin.errors import WireError
from muntin.fidelity.score import C2, Missing, Reason
from muntin.store.export import json_text, values_of
from muntin.units import moment

ARROW = "application/vnd.apache.arrow.stream"
_TOLD = b"muntin"


def packed(answer: PastRows) -> bytes:
    """The rows as a stream of Arrow's, with ranges and notes in its schema."""
    told = {"ranges": [_range(each) for each in answer.ranges], "notes": answer.notes}
    schema = answer.rows.schema.with_metadata({_TOLD: json.dumps(told).encode()})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        writer.write_table(answer.rows.replace_schema_metadata(schema.metadata))
    data: bytes = sink.getvalue().to_pybytes()
    return data


def unpacked(data: bytes) -> PastRows:
    """The answer from its bytes."""
    try:
        rows = pa.ipc.open_stream(data).read_all()
        told = json.loads((rows.schema.metadata or {})[_TOLD])
        ranges = tuple(_range_of(each) for each in told["ranges"])
    except (pa.ArrowException, KeyError, ValueError, TypeError) as error:
        raise WireError(f"this is no answer of Muntin's: {error}") from error
    return PastRows(rows.replace_schema_metadata(None), ranges, tuple(told["notes"]))


def as_json(answer: PastRows) -> str:
    """The answer as one JSON object."""
    rows, types = answer.rows, answer.rows.schema.types
    names = [json.dumps(name, ensure_ascii=False) for name in rows.column_names]
    lines = []
    for row in zip(*map(values_of, rows.columns), strict=True):
        fields = (f"{n}: {json_text(v, t)}" for n, v, t in zip(names, row, types, strict=True))
        lines.append("{" + ", ".join(fields) + "}")
    ranges = []
    for each in answer.ranges:
        times = {"start": moment(each.start).isoformat(), "end": moment(each.end).isoformat()}
        ranges.append(_range(each) | times)
    told = f'"ranges": {json.dumps(ranges)}, "notes": {json.dumps(list(answer.notes))}'
    return '{"rows": [' + ",\n".join(lines) + f"], {told}}}\n"


def _range(each: Range) -> dict[str, Any]:
    c2 = each.c2
    score = {"reason": c2.reason.value, "area": c2.area, "time": c2.time, "space": c2.space,
             "sources": c2.sources, "runs": c2.runs,
             "missing": [missing._asdict() for missing in c2.missing]}  # fmt: skip
    told = {name: getattr(each, name) for name in ("job", "called", "start", "end", "version")}
    return told | {"c2": score, "read": vars(each.read)}


def _range_of(told: dict[str, Any]) -> Range:
    c2 = told.pop("c2")
    missing = tuple(Missing(**each) for each in c2.pop("missing"))
    runs = tuple((count, panes) for count, panes in c2.pop("runs"))
    score = C2(**c2 | {"reason": Reason(c2["reason"])}, runs=runs, missing=missing)
    return Range(**told | {"c2": score, "read": Read(**told["read"])})
