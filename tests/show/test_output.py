"""Rows as JSON lines and CSV, and what is not in the answers in words."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import pyarrow as pa
import pytest

from muntin.run.due import EMPTIED
from muntin.run.results import RECORDS
from muntin.show import OutputFormat
from muntin.show.output import RowWriter, late_text, losses, note
from tests.show.test_table import emitted, rows

VALUES = ({"path": 'a "b", c', "n": 2**60}, {"path": None, "n": None})


def table() -> pa.Table:
    return emitted(rows(*VALUES))


def written(form: OutputFormat, **options: bool) -> str:
    out = io.StringIO()
    writer = RowWriter(form, out, **options)
    for _ in range(2):
        writer.write("paths", table())
    return out.getvalue()


def test_a_line_of_json_a_row() -> None:
    lines: list[dict[str, Any]] = [json.loads(t) for t in written(OutputFormat.JSON).splitlines()]
    assert [(line["path"], line["n"]) for line in lines] == [('a "b", c', 2**60), (None, None)] * 2
    assert lines[0]["window_start"] == "2026-03-01T12:00:00Z"
    assert lines[0]["c2"] == {"area": 1.0, "time": 1.0, "space": 1.0, "reason": "complete"}
    assert "emitted_at" not in lines[0]
    (detailed, *_) = written(OutputFormat.JSON, detail=True).splitlines()
    assert json.loads(detailed)["c2"]["sources"] == 2
    assert "revision" in json.loads(detailed)
    assert json.loads(detailed)["c2"]["records"] is None  # a table of an earlier version


def test_a_table_says_that_somebody_has_emptied_the_job() -> None:
    """Programs have the reason as it is, and what is missing with all detail."""
    why = f"cancelled: {EMPTIED}"
    c2 = {"area": 0.25, "time": 0.25, "space": 1.0, "reason": "exhausted", "sources": 1}
    c2 |= {"panes": [], "missing": [{"source": "web", "why": why, "panes": 3}]}
    stored = table().drop_columns(["c2"]).append_column("c2", pa.array([c2] * len(VALUES)))
    told = {}
    for form in OutputFormat:
        out = io.StringIO()
        RowWriter(form, out).write("paths", stored)
        told[form] = out.getvalue()
    assert "25 % exhausted, reset" in told[OutputFormat.TABLE]
    assert "reset" not in told[OutputFormat.JSON] + told[OutputFormat.CSV]


def test_records_of_panes_are_told_with_every_row_of_their_window() -> None:
    records = [{"source": "web-1", "panes": [2, 0]}]
    out = io.StringIO()
    stored = emitted(rows(*VALUES)).append_column("c2_records", pa.array([records, None], RECORDS))
    RowWriter(OutputFormat.JSON, out, detail=True).write("paths", stored)
    assert [json.loads(t)["c2"]["records"] for t in out.getvalue().splitlines()] == [records] * 2
    out = io.StringIO()
    RowWriter(OutputFormat.JSON, out).write("paths", stored)
    assert "c2_records" not in out.getvalue()


def test_csv_has_one_header_and_the_score_in_columns() -> None:
    header, *lines = csv.reader(io.StringIO(written(OutputFormat.CSV)))
    assert [name for name in header if name.startswith("c2_")] == [
        "c2_area",
        "c2_time",
        "c2_space",
        "c2_reason",
    ]
    assert [line[header.index("path")] for line in lines] == ['a "b", c', ""] * 2
    assert [line[header.index("n")] for line in lines] == [str(2**60), ""] * 2


def test_revisions_are_numbered_where_all_are_asked_for() -> None:
    (line, *_) = written(OutputFormat.JSON, revisions=True).splitlines()
    assert json.loads(line)["revision"] == 0
    (line, *_) = written(OutputFormat.JSON).splitlines()
    assert "revision" not in json.loads(line)


def test_tables_tell_scores_where_a_window_is_not_complete_or_all_are_asked_for() -> None:
    assert "100 %" not in written(OutputFormat.TABLE)
    assert "100 %" in written(OutputFormat.TABLE, scored=True)


@pytest.mark.parametrize(
    ("slack", "said"),
    [
        (1, "SLACK 1 SECOND would have kept them"),
        (61_000_001, "SLACK 62 SECONDS would have kept them"),
        (0, "REVISE lets windows leave again"),
    ],
)
def test_what_came_too_late_is_told_with_what_would_have_kept_it(slack: int, said: str) -> None:
    told = late_text("j", 2, slack)
    assert told.startswith("job 'j': 2 records came too late")
    assert told.endswith(said)
    assert late_text("j", 1, slack).startswith("job 'j': 1 record came")


def test_losses_are_told_in_words() -> None:
    told = list(losses(5000, 1, {"j": 3}, {"j": 1}))
    assert told[0] == "1 row was bad; records read: 5,000"
    assert len(told) == 2
    assert list(losses(5000, 0, {}, {})) == []
    assert note("[red]:smile:").plain == "note: [red]:smile:"
