"""Answers about the past as text: rows, and how complete each range is."""

from __future__ import annotations

import csv
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TextIO

import pyarrow as pa
from rich.table import Table
from rich.text import Text

from muntin.fidelity.score import C2
from muntin.show import OutputFormat
from muntin.show.output import json_lines, note
from muntin.show.terminal import console
from muntin.show.values import cell_text, is_number, score_text, window_text
from muntin.store.export import text, values_of

if TYPE_CHECKING:
    from muntin.ask.answering import PastRows, Range

_UNCUT = 1000  # columns of a table that goes into a file or a pipe


def write(answer: PastRows, format_: OutputFormat, out: TextIO, notes: TextIO) -> None:
    """Rows to one place, and what there is to say of them to another; tables have their score."""
    if format_ is OutputFormat.TABLE:
        _table(answer, out)
    elif format_ is OutputFormat.JSON:
        for line in json_lines(_scored(answer)):
            out.write(line + "\n")
    else:
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(answer.rows.column_names)
        for row in zip(*map(values_of, answer.rows.columns), strict=True):
            types = answer.rows.schema.types
            writer.writerow([text(v, t) for v, t in zip(row, types, strict=True)])
    out.flush()
    for each in answer.notes:
        console(notes).print(note(each))


def _table(answer: PastRows, out: TextIO) -> None:
    to = console(out, None if out.isatty() else _UNCUT)
    table = Table(header_style="bold")
    rows = answer.rows
    for field in rows.schema:
        side = "right" if is_number(field.type) else "left"
        table.add_column(Text(field.name), justify=side, overflow="fold")  # type: ignore[arg-type]
    for row in zip(*map(values_of, rows.columns), strict=True):
        cells = (cell_text(v, t) for v, t in zip(row, rows.schema.types, strict=True))
        table.add_row(*map(Text, cells))
    to.print(table)
    for each in answer.ranges:
        to.print(Text(range_text(each)), soft_wrap=True)


def range_text(each: Range) -> str:
    """One range of an answer: which, and how complete it is."""
    called = each.job if each.called == each.job else f"{each.called} ({each.job})"
    start, end = (_moment(at) for at in (each.start, each.end))
    score = score_text({"area": each.c2.area, "reason": each.c2.reason.value})
    gone = ", ".join(f"{m.source}: {m.panes:,} panes {m.why}" for m in each.c2.missing[:3])
    more = len(each.c2.missing) - 3
    told = f"; missing {gone}{f' and {more:,} more' if more > 0 else ''}" if gone else ""
    count = f"{each.c2.sources} source{'' if each.c2.sources == 1 else 's'}"
    return f"{called} {window_text(start, end)}: C² {score}, {count}{told}"


def _moment(at: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=at)


def _scored(answer: PastRows) -> pa.Table:
    """The rows, each with the score: of several ranges, by what the question calls them."""
    scores: dict[str, Any] = {each.called: _short(each.c2) for each in answer.ranges}
    score = next(iter(scores.values())) if len(scores) == 1 else scores
    column = pa.array([score] * len(answer.rows)) if len(answer.rows) else pa.array([], pa.null())
    return answer.rows.append_column("c2", column)


def _short(c2: C2) -> dict[str, Any]:
    return {"area": c2.area, "time": c2.time, "space": c2.space, "reason": c2.reason.value}
