"""What FROM may read besides streams and tables, as it is recognised."""

from __future__ import annotations

import pytest
from sqlglot import exp

from muntin.errors import LanguageError
from muntin.language.latest import is_latest
from muntin.language.script import Script
from muntin.language.sources import OF_JOB


def read(source: str) -> exp.Table:
    script = Script(f"CREATE JOB j AS SELECT count(*) AS n FROM {source} WINDOW 1 MINUTE;")
    table = script.statements[0].args["query"].args["from_"].this
    assert isinstance(table, exp.Table)
    return table


def test_results_of_a_job_are_told_from_a_stream_of_that_name() -> None:
    assert read("JOB x").meta.get(OF_JOB)
    assert not read("x").meta.get(OF_JOB)
    assert read("job").name == "job"  # no name follows


@pytest.mark.parametrize(
    ("source", "given"),
    [
        ("LATEST(x)", ["x"]),
        ("latest(x, '1 hour') AS l", ["x", "1 hour"]),
        ("LATEST(x, 1 HOUR EVERY 5 MINUTES) l", ["x", "1 hour every 5 minutes"]),
        ("LATEST()", []),
    ],
)
def test_a_call_names_a_job_and_one_of_its_windows(source: str, given: list[str]) -> None:
    table = read(source)
    assert is_latest(table)
    assert [each.name for each in table.this.expressions] == given


@pytest.mark.parametrize("source", ["LATEST(x", "LATEST(x y)", "LATEST(1)"])
def test_what_is_no_call_is_refused(source: str) -> None:
    with pytest.raises(LanguageError, match="expected"):
        read(source)
