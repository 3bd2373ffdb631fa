"""`LATEST(x)`: which result of which job is meant, and what is not there."""

from __future__ import annotations

import pytest

from muntin.errors import LanguageError
from muntin.language.explain import explain
from muntin.language.program import sql

JOBS = (
    "CREATE STREAM s (t BIGINT, k VARCHAR) FROM 'x/{source}.jsonl' FORMAT json TIMESTAMP t;"
    "CREATE JOB two AS SELECT k, count(*) AS n FROM s GROUP BY k WINDOW 10 SECONDS, 1 MINUTE;"
)
WRONG = {
    "SELECT k FROM (SELECT k FROM s GROUP BY k) JOIN LATEST(nobody) USING (k)": "unknown job",
    "SELECT k FROM (SELECT k FROM s GROUP BY k) JOIN LATEST() USING (k)": "the name of a job",
    "SELECT k FROM (SELECT k FROM s GROUP BY k) JOIN LATEST(two) USING (k)": "several windows",
    "SELECT k FROM (SELECT k FROM s GROUP BY k) JOIN LATEST(two, '3 days') USING (k)": "no window",
}


@pytest.mark.parametrize("query", WRONG)
def test_what_has_no_newest_result_is_refused(query: str) -> None:
    with pytest.raises(LanguageError, match=WRONG[query]):
        sql(f"{JOBS}CREATE JOB j AS {query} WINDOW 10 SECONDS;")


def test_one_of_several_windows_is_said_and_explained() -> None:
    query = "SELECT s.k FROM s JOIN LATEST(two, '1 minute') USING (k) GROUP BY s.k"
    program = sql(f"{JOBS}CREATE JOB j AS {query} WINDOW 10 SECONDS;")
    assert "the newest result of job two: 1 minute" in explain(program)
