"""Answers about the past for people and programs."""

from __future__ import annotations

from io import StringIO

import pytest

from muntin.show import OutputFormat
from muntin.show.past import write
from tests.ask.test_parcels import ANSWER


@pytest.mark.parametrize(
    ("format_", "expected"),
    [
        (OutputFormat.CSV, "k,n\na,1\n,2\n"),
        (
            OutputFormat.JSON,
            '{"k": "a", "n": 1, "c2": {"area": 0.5, "time": 1.0, "space": 1.0, "reason": "open"}}\n'
            '{"k": null, "n": 2, "c2": {"area": 0.5, "time": 1.0, "space": 1.0, '
            '"reason": "open"}}\n',
        ),
    ],
)
def test_programs_get_rows(format_: OutputFormat, expected: str) -> None:
    out, notes = StringIO(), StringIO()
    write(ANSWER, format_, out, notes)
    assert out.getvalue() == expected
    assert notes.getvalue() == "note: something to say\n"


def test_people_get_a_table_and_the_score() -> None:
    out = StringIO()
    write(ANSWER, OutputFormat.TABLE, out, StringIO())
    told = out.getvalue()
    assert "│ a │ 1 │" in told
    assert (
        "now (j) 1970-01-01 00:00:00 – 00:01:00: C² 50 % open, 2 sources; "
        "missing b: 3 panes awaited" in told
    )
