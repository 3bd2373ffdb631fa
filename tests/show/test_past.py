"""Answers about the past for people and programs."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO

import pytest

from muntin.fidelity.score import Missing
from muntin.show import OutputFormat
from muntin.show.past import range_text, write
from tests.ask.test_parcels import ANSWER, SCORE


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


def test_what_is_lost_is_told_before_what_is_awaited() -> None:
    awaited = [
        Missing(source, "awaited", panes) for source, panes in zip("abc", (1, 2, 3), strict=True)
    ]
    others = [Missing("d", "late", 1), Missing("e", "dead", 4), Missing("f", "shed", 1_000)]
    missing = (*awaited, *others, Missing("g", "lost: 20 bytes of g.log", 1))
    told = [
        range_text(replace(ANSWER.ranges[0], c2=replace(SCORE, missing=tuple(some))))
        for some in (awaited, [*awaited, *others[:1]], missing)
    ]
    assert told[0].endswith("; missing 3 sources: 6 panes awaited")
    assert told[1].endswith("; missing d: 1 pane late, 3 sources: 6 panes awaited")
    assert told[2].endswith(
        "; missing g: 1 pane lost: 20 bytes of g.log, d: 1 pane late, f: 1,000 panes shed "
        "and 2 more"
    )


def test_people_get_a_table_and_the_score() -> None:
    out = StringIO()
    write(ANSWER, OutputFormat.TABLE, out, StringIO())
    told = out.getvalue()
    assert "│ a │ 1 │" in told
    assert (
        "now (j) 1970-01-01 00:00:00 – 00:01:00: C² 50 % open, 2 sources; "
        "missing b: 3 panes awaited" in told
    )
