"""Answers about the past as text: rows, and how complete each range is."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TextIO

import pyarrow as pa
from rich.table import Table
from rich.text import Text

from muntin.fidelity.score import C2, Missing
from muntin.show import OutputFormat
from muntin.show.output import json_lines, note
from muntin.show.terminal import console
from muntin.show.values import cell_text, is_number, score_text, window_text
from muntin.store.export import text, values_of

if TYPE_CHECKING:
    from muntin.ask.answering import PastRows, Range

_REASONS = 3  # that are told of a range
_HEAVY = ("lost", "late", "shed", "cancelled", "dead", "leapt", "awaited")


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
    to = console(out)
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
    gone = _missing(each.c2.missing)
    more = f" and {len(gone) - _REASONS:,} more" if len(gone) > _REASONS else ""
    told = f"; missing {', '.join(gone[:_REASONS])}{more}" if gone else ""
    count = _many(each.c2.sources, "source")
    return f"{called} {window_text(start, end)}: C² {score}, {count}{told}"


def _missing(every: Sequence[Missing]) -> list[str]:
    """What is missing, by its reasons: first what is gone for good, last what may still come."""
    by_reason: dict[str, list[Missing]] = {}
    for each in every:
        by_reason.setdefault(each.why, []).append(each)
    told = []
    for why, alike in sorted(by_reason.items(), key=lambda item: _weight(item[0])):
        whose = alike[0].source if len(alike) == 1 else _many(len(alike), "source")
        told.append(f"{whose}: {_many(sum(each.panes for each in alike), 'pane')} {why}")
    return told


def _weight(why: str) -> int:
    word = why.partition(":")[0]
    return _HEAVY.index(word) if word in _HEAVY else len(_HEAVY) - 1


def _many(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


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
