"""A query split into cores and the statement over their rows."""

from __future__ import annotations

import pytest

from muntin.errors import LanguageError
from tests.language.cases import Mistake, Pair, facts_of_job, mistakes, pairs, program


@pytest.mark.parametrize("case", pairs("around.sql"), ids=lambda case: case.text)
def test_query_becomes(case: Pair) -> None:
    (job,) = program(case.text).jobs.values()
    facts = facts_of_job(job)
    assert {kind: facts[kind] for kind in case.facts} == case.facts


def test_a_query_without_a_finish_is_all_core() -> None:
    text = "CREATE JOB j AS SELECT product, count(*) AS n FROM shop GROUP BY 1 WINDOW 1 DAY"
    (job,) = program(text).jobs.values()
    assert job.around is None
    assert job.core is job


def test_a_core_shares_blocks_with_a_job_that_is_the_same_without_a_finish() -> None:
    plain = "SELECT product, count(*) AS n FROM shop GROUP BY 1"
    ranked = f"SELECT *, rank() OVER (ORDER BY n) AS r FROM ({plain})"
    jobs = program(
        f"CREATE JOB a AS {plain} WINDOW 1 DAY; CREATE JOB b AS {ranked} WINDOW 1 DAY"
    ).jobs
    assert jobs["a"].shape.id == jobs["b"].shape.id
    assert jobs["a"].version != jobs["b"].version


def test_results_have_types_that_tables_have() -> None:
    text = """CREATE JOB j AS SELECT sum(n) AS total, list(product) AS names
    FROM (SELECT product, count(*) AS n FROM shop GROUP BY 1) WINDOW 1 DAY"""
    (job,) = program(text).jobs.values()
    assert [(o.name, o.type) for o in job.outputs] == [("total", "BIGINT"), ("names", "VARCHAR[]")]


@pytest.mark.parametrize(
    ("query", "types"),
    [
        (
            "SELECT product, g.n, coalesce(p.total, 0) + g.n AS total, g.n / p.n AS r FROM "
            "(SELECT product, sum(clicks) AS n FROM shop GROUP BY 1) g "
            "LEFT JOIN PREVIOUS(j) p USING (product)",
            ["VARCHAR", "BIGINT", "BIGINT", "DOUBLE"],
        ),
        (
            "SELECT max(price) AS top, (SELECT greatest(top, best) FROM PREVIOUS(j)) AS best "
            "FROM shop",
            ["DECIMAL(10,2)", "DECIMAL(10,2)"],
        ),
        (
            "SELECT min(ts) AS first, (SELECT list_append(all_first, previous.first) "
            'FROM PREVIOUS("J")) AS all_first FROM shop',
            ["TIMESTAMP WITH TIME ZONE", "TIMESTAMP WITH TIME ZONE[]"],
        ),
    ],
)
def test_types_that_depend_on_themselves_settle(query: str, types: list[str]) -> None:
    (job,) = program(f"CREATE JOB j AS {query} WINDOW 1 DAY").jobs.values()
    assert [output.type for output in job.outputs] == types


@pytest.mark.parametrize("case", mistakes("previous_errors.sql"), ids=lambda case: case.text)
def test_mistakes_in_looking_back_are_shown_at_their_place(case: Mistake) -> None:
    with pytest.raises(LanguageError) as raised:
        program(case.text)
    assert str(raised.value) == case.shown()
