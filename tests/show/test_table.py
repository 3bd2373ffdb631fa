"""Tables for people in terminals of any width: nothing is cut."""

from __future__ import annotations

import io
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from rich.console import Console

from muntin.show import OutputFormat
from muntin.show.output import RowWriter
from muntin.show.table import TableText

START = datetime(2026, 3, 1, 12, tzinfo=UTC)


def rows(*values: dict[str, Any], minute: int = 0) -> pa.Table:
    window = {
        "job": "paths",
        "window_name": "1 minute",
        "window_start": START + timedelta(minutes=minute),
        "window_end": START + timedelta(minutes=minute + 1),
    }
    counts = {"records_read": 9, "records_bad": 0, "records_late": 0, "records_failed": 0}
    table = pa.Table.from_pylist([window | value | counts for value in values])
    c2 = {"area": 1.0, "time": 1.0, "space": 1.0, "reason": "complete", "sources": 2, "panes": []}
    c2["missing"] = []
    return table.append_column("c2", pa.array([c2] * len(values)))


def emitted(table: pa.Table) -> pa.Table:
    """The rows with what is told in detail only."""
    numbers = pa.array([0] * len(table))
    return table.append_column("revision", numbers).append_column("emitted_at", numbers)


WIDE = {
    "path": "/a/rather/long/path/to/some/page",
    "number_of_requests": 1234567,
    "average_milliseconds": 7654321.0,
    "number_of_errors": 42,
}


def drawn(table: pa.Table, width: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width)
    console.print(TableText("paths", table.drop_columns(["c2"]), width).drawn())
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def test_values_do_nothing_to_the_terminal() -> None:
    key = "a\x1b[31m\u200d\u00a0\nø"
    text = "\n".join(drawn(rows({"key": key, "large": 1e300, "small": -2.5e-7}), 120))
    assert "a\\x1b[31m\u200d\u00a0\\nø" in text
    assert "1e+300" in text
    assert "-2.5e-07" in text


@pytest.mark.parametrize("width", [24, 40, 60, 80, 120, 200])
def test_no_number_and_no_letter_is_cut(width: int) -> None:
    lines = drawn(rows(WIDE), width)
    assert max(map(len, lines)) <= width
    text = "\n".join(lines)
    for number in ("1,234,567", "7,654,321", "42", "2026-03-01", "12:00:00", "12:01:00"):
        assert number in text
    assert "…" not in text
    letters = "".join(re.findall(r"\w", text))
    assert all(letters.count(letter) >= 1 for letter in "patherrormilliseconds")


def test_a_wide_terminal_has_a_row_on_a_line() -> None:
    lines = drawn(rows(WIDE, WIDE), 200)
    assert lines[0].strip() == "paths"
    assert len(lines) == 7


def test_a_narrow_terminal_has_a_column_on_a_line() -> None:
    lines = drawn(rows(WIDE), 56)
    assert lines[:3] == [
        "paths",
        "              window  2026-03-01 12:00:00 – 12:01:00",
        "                path  /a/rather/long/path/to/some/page",
    ]


def test_text_is_shown_as_it_is() -> None:
    assert any("[red]:smile:[/x]" in line for line in drawn(rows({"p": "[red]:smile:[/x]"}), 100))


def test_rows_that_follow_stand_under_the_same_header() -> None:
    out = io.StringIO()
    writer = RowWriter(OutputFormat.TABLE, out)
    writer.write("paths", emitted(rows({"path": "/longest", "n": 1000})))
    writer.write("paths", emitted(rows({"path": "/a", "n": 1}, minute=1)))
    writer.write("paths", emitted(rows({"path": "/b", "n": 1_000_000_000}, minute=2)))  # too wide
    text = out.getvalue()
    assert text.count("window") == 2
    assert len({len(line) for line in text.splitlines()[1:8]}) == 1
