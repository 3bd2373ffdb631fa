"""Rows as text: JSON lines, CSV, or a table for people."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TextIO

import pyarrow as pa
import pyarrow.compute as pc
from rich.text import Text

from muntin.errors import as_text
from muntin.run.due import EMPTIED
from muntin.run.results import RECORDS, SCORE, SCORE_IN_SHORT
from muntin.show import OutputFormat
from muntin.show.table import TableText
from muntin.show.terminal import console
from muntin.store.export import json_text, text, values_of
from muntin.units import describe


class RowWriter:
    """Writes tables of result rows one after another, with headers only once a job."""

    def __init__(
        self,
        format_: OutputFormat,
        out: TextIO,
        detail: bool = False,
        scored: bool = False,
        revisions: bool = False,
    ) -> None:
        """`scored` tables show how complete results are even if all are."""
        self._format = format_
        self._out = out
        self._detail = detail
        self._scored = scored
        self._revisions = revisions
        self._headers: set[str] = set()
        self._tables: dict[str, TableText] = {}

    def write(self, job: str, rows: pa.Table) -> None:
        """Rows as they are stored; what is told with `detail` alone is left out otherwise."""
        in_words = self._format is OutputFormat.TABLE
        flat = self._format is OutputFormat.CSV
        rows = shown(rows, self._detail, flat, self._revisions, in_words)
        if self._format is OutputFormat.JSON:
            for line in json_lines(rows):
                self._out.write(line + "\n")
        elif self._format is OutputFormat.CSV:
            self._csv(job, rows)
        else:
            self._table(job, rows)
        self._out.flush()

    def _table(self, job: str, rows: pa.Table) -> None:
        out = console(self._out)
        above = self._tables.get(job)
        if not self._scored and set(pc.struct_field(rows["c2"], "area").to_pylist()) <= {1.0}:
            rows = rows.drop_columns(["c2"])
        self._tables[job] = TableText(job, rows, out.width, above)
        out.print(self._tables[job].drawn())

    def _csv(self, job: str, rows: pa.Table) -> None:
        writer = csv.writer(self._out, lineterminator="\n")
        if job not in self._headers:
            self._headers.add(job)
            writer.writerow(rows.column_names)
        types = rows.schema.types
        for row in zip(*map(values_of, rows.columns), strict=True):
            writer.writerow([text(v, t) for v, t in zip(row, types, strict=True)])


def shown(
    rows: pa.Table,
    detail: bool = False,
    flat: bool = False,
    revisions: bool = False,
    in_words: bool = False,
) -> pa.Table:
    """Stored rows with their score as it is told: with all that is known of panes, or in short.

    `flat` makes columns of it. Numbers of revisions are told where all `revisions` are. `in_words`
    says in short, too, that somebody has emptied the job.
    """
    index = rows.column_names.index("c2")
    scores: list[dict[str, Any]] = rows["c2"].to_pylist()
    for c2, records in zip(scores, _records(rows), strict=True):
        runs = c2.pop("panes")
        if detail:
            c2["panes"] = [run["sources"] for run in runs for _ in range(run["panes"])]
            c2["records"] = records
        else:
            if in_words and any(each["why"].endswith(EMPTIED) for each in c2["missing"]):
                c2["reason"] += ", reset"
            del c2["sources"], c2["missing"]
    fields = _SCORE_IN_DETAIL if detail else SCORE_IN_SHORT
    told = pa.array(scores, pa.struct(fields))
    rows = rows.set_column(index, "c2", told)
    rows = rows.drop_columns([name for name in rows.column_names if name == _RECORDS])
    if flat:
        rows = rows.remove_column(index)
        for name, column in reversed(list(zip(fields, told.flatten(), strict=True))):
            rows = rows.add_column(index, f"c2_{name}", column)
    if detail:
        return rows
    unwanted = ("emitted_at", "job_version", "results_used", *(() if revisions else ("revision",)))
    return rows.drop_columns([name for name in rows.column_names if name in unwanted])


_SCORE_IN_DETAIL = SCORE | {"panes": pa.list_(pa.int32()), "records": RECORDS}
_RECORDS = "c2_records"
_WINDOW = "window_name", "window_start", "window_end", "revision"


def _records(rows: pa.Table) -> Iterator[Any]:
    """The records of each pane for every row; they are stored with the first one of a window."""
    if _RECORDS not in rows.column_names:  # of an earlier version
        yield from [None] * rows.num_rows
        return
    known: dict[tuple[Any, ...], Any] = {}
    windows = zip(*(values_of(rows[name]) for name in _WINDOW), strict=True)
    for window, records in zip(windows, rows[_RECORDS].to_pylist(), strict=True):
        if records is not None:
            known[window] = records
        yield known.get(window)


def json_lines(rows: pa.Table) -> Iterable[str]:
    """One object a row; times in ISO 8601, UTC; integers and decimals with all their digits."""
    names = [json.dumps(name, ensure_ascii=False) for name in rows.column_names]
    types = rows.schema.types
    for row in zip(*map(values_of, rows.columns), strict=True):
        fields = (f"{n}: {json_text(v, t)}" for n, v, t in zip(names, row, types, strict=True))
        yield "{" + ", ".join(fields) + "}"


def note(text: str) -> Text:
    """Something a user should know, as it is: brackets and colons in it mean nothing."""
    return Text.assemble(("note:", "yellow"), " ", as_text(text))


def losses(
    records: int, bad: int, late: Mapping[str, int], slack_us: Mapping[str, int]
) -> Iterator[str]:
    """What is not in the answers, in words."""
    if bad:
        rows = "row was" if bad == 1 else "rows were"
        yield f"{bad:,} {rows} bad; records read: {records:,}"
    for job, lost in late.items():
        yield late_text(job, lost, slack_us[job])


def late_text(job: str, records: int, slack_us: int) -> str:
    """What was lost to lateness, and what would have kept it."""
    came = f"job '{job}': {records:,} record{'' if records == 1 else 's'} came too late"
    if slack_us <= 0:
        left = "their windows had left, in a run before or while the source was silent or behind"
        return f"{came}: {left}; a longer --idle waits for sources, REVISE lets windows leave again"
    needed = describe(-(-slack_us // 1_000_000) * 1_000_000).upper()
    return f"{came}; SLACK {needed} would have kept them"
