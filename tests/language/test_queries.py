"""SELECT to a job: keys, cells, outputs and what they are made of."""

from __future__ import annotations

import pytest

from muntin.errors import LanguageError
from muntin.language.queries import result_type
from tests.language.cases import (
    Mistake,
    Pair,
    facts_of_job,
    mistakes,
    pairs,
    program,
)


@pytest.mark.parametrize("case", mistakes("queries_errors.sql"), ids=lambda case: case.text)
def test_mistake_is_shown_at_its_place(case: Mistake) -> None:
    with pytest.raises(LanguageError) as raised:
        program(case.text)
    assert str(raised.value) == case.shown()


@pytest.mark.parametrize("case", pairs("jobs.sql"), ids=lambda case: case.text)
def test_job_becomes(case: Pair) -> None:
    (job,) = program(case.text).jobs.values()
    facts = facts_of_job(job)
    assert {kind: facts[kind] for kind in case.facts} == case.facts


@pytest.mark.parametrize(
    ("kind", "result"),
    [
        ("VARCHAR", "VARCHAR"),
        ("HUGEINT", "BIGINT"),
        ("UBIGINT", "DECIMAL(20,0)"),
        ("UINTEGER", "BIGINT"),
        ("USMALLINT", "INTEGER"),
        ("DECIMAL(38,2)", "DECIMAL(38,2)"),
        ("TIMESTAMP", "TIMESTAMP WITH TIME ZONE"),
        ("TIMESTAMP_NS", "TIMESTAMP WITH TIME ZONE"),
        ("DATE", "DATE"),
        ("UUID", "VARCHAR"),
        ("INTERVAL", "VARCHAR"),
        ("MAP(VARCHAR, UBIGINT)", "MAP(VARCHAR, DECIMAL(20,0))"),
        ("STRUCT(at TIMESTAMP)[]", "STRUCT(at TIMESTAMP WITH TIME ZONE)[]"),
    ],
)
def test_results_have_types_that_tables_have(kind: str, result: str) -> None:
    assert result_type(kind) == result
