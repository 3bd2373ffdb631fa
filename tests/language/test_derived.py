"""`FROM JOB x`: what its records have, and what has no results that could be read."""

from __future__ import annotations

import pytest

from muntin.errors import LanguageError
from muntin.language.program import sql

JOBS = (
    "CREATE STREAM s (t BIGINT, k VARCHAR, n BIGINT) FROM 'x/{source}.jsonl' FORMAT json "
    "TIMESTAMP t;"
    "CREATE JOB low AS SELECT k, sum(n) AS n FROM s GROUP BY k WINDOW 1 MINUTE;"
    "CREATE JOB high AS SELECT l.k, max(l.n) AS n FROM JOB low AS l GROUP BY l.k WINDOW 1 HOUR;"
)


def test_results_have_the_columns_of_their_job_and_of_their_window() -> None:
    stream = sql(JOBS).streams["JOB low"]
    assert [(column.name, column.type) for column in stream.visible_columns()] == [
        ("k", "VARCHAR"),
        ("n", "BIGINT"),
        ("result_start", "TIMESTAMP WITH TIME ZONE"),
        ("result_end", "TIMESTAMP WITH TIME ZONE"),
        ("result_window", "VARCHAR"),
        ("result_area", "DOUBLE"),
    ]


def test_a_job_is_chosen_with_what_it_reads() -> None:
    chosen = sql(JOBS).only("high")
    assert list(chosen.jobs) == ["low", "high"]
    assert list(chosen.streams) == ["s", "JOB low"]


def test_a_subquery_may_read_results() -> None:
    text = (
        "CREATE JOB x AS SELECT avg(n) AS mean FROM (SELECT k, sum(n) AS n FROM JOB low GROUP BY k)"
        " WINDOW 1 HOUR;"
    )
    assert sql(JOBS + text).jobs["x"].stream == "JOB low"


WRONG = {
    "CREATE JOB x AS SELECT k FROM JOB nobody GROUP BY k WINDOW 1 MINUTE": "unknown job 'nobody'",
    "CREATE JOB x AS SELECT k FROM low GROUP BY k WINDOW 1 MINUTE": "say FROM JOB low",
    "CREATE JOB x AS SELECT source FROM JOB low GROUP BY source WINDOW 1 MINUTE": "source",
    "CREATE JOB x AS SELECT k FROM JOB x GROUP BY k WINDOW 1 MINUTE": "unknown job 'x'",
    "CREATE JOB r AS SELECT k FROM s GROUP BY k WINDOW 1 MINUTE REVISE FOR 1 HOUR;"
    "CREATE JOB x AS SELECT k FROM JOB r GROUP BY k WINDOW 1 HOUR": "leave out REVISE",
    "CREATE JOB r AS SELECT k FROM s GROUP BY k WINDOW 10 RECORDS;"
    "CREATE JOB x AS SELECT k FROM JOB r GROUP BY k WINDOW 1 HOUR": "no spans of time",
    "DROP JOB low": "job 'high' reads its results",
}


@pytest.mark.parametrize("more", WRONG)
def test_what_cannot_be_read_is_refused(more: str) -> None:
    with pytest.raises(LanguageError, match=WRONG[more]):
        sql(JOBS + more)
