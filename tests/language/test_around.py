"""A query split into cores and the statement over their rows."""

from __future__ import annotations

import pytest

from tests.language.cases import Pair, facts_of_job, pairs, program


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
