"""Jobs that use one another: who uses whom, and types that are known only then."""

from __future__ import annotations

import pytest

from muntin.errors import LanguageError
from muntin.language.cycles import cycles, unwindowed, used_by
from muntin.language.program import orders, sql
from muntin.model.jobs import Program

STREAM = (
    "CREATE STREAM s (t BIGINT, k VARCHAR, n BIGINT) FROM 'none/{source}.jsonl' FORMAT json "
    "TIMESTAMP t;"
)


def job(name: str, uses: str, window: str = "WINDOW 10 SECONDS") -> str:
    """One that counts what another had of a key beside its own."""
    return (
        f"CREATE JOB {name} AS SELECT s.k, count(*) AS n, max(l.n) AS other "
        f"FROM s LEFT JOIN LATEST({uses}) l USING (k) GROUP BY s.k {window};"
    )


def program(*jobs: str) -> Program:
    return sql(STREAM + "".join(jobs))


def test_cycles_are_found_once_each() -> None:
    found = program(job("a", "b"), job("b", "c"), job("c", "a"), job("d", "d"), job("e", "a"))
    assert cycles(found) == [("a", "b", "c"), ("d",)]
    assert used_by(found.jobs["e"], found.streams) == {"a": "LATEST(a)"}
    assert not list(unwindowed(found))


def test_types_are_those_of_the_results_that_are_used() -> None:
    found = program(
        "CREATE JOB a AS SELECT k, sum(n) / 2 AS half, 'x' || k AS word FROM s GROUP BY k "
        "WINDOW 5 SECONDS;",
        "CREATE JOB b AS SELECT g.k, l.half, upper(l.word) AS word, coalesce(own.times, 0) + 1 AS "
        "times FROM (SELECT k FROM s GROUP BY k) g LEFT JOIN LATEST(a) l USING (k) "
        "LEFT JOIN LATEST(b) own USING (k) WINDOW 5 SECONDS;",
    )
    kinds = {output.name: output.type for output in found.jobs["b"].outputs}
    assert kinds == {"k": "VARCHAR", "half": "DOUBLE", "word": "VARCHAR", "times": "INTEGER"}


def test_what_one_job_needs_is_all_of_its_cycle() -> None:
    found = program(job("a", "b"), job("b", "a"), job("c", "c"))
    assert {*found.only("a").jobs} == {"a", "b"}
    assert {*found.only("c").jobs} == {"c"}


def test_orders_may_close_a_cycle_and_set_what_is_in_one() -> None:
    found = program(job("a", "a"))
    asked = (
        job("b", "a")
        .replace("b AS", "b (least DEFAULT 1) AS")
        .replace("GROUP", "WHERE s.n > $least GROUP", 1)
    )
    ordered = orders(asked + "CREATE OR REPLACE " + job("a", "b").removeprefix("CREATE "), found)
    assert cycles(ordered.program) == [("b", "a")]
    (changed,) = orders("SET b.least = 7;", ordered.program).orders
    assert "7" in (changed.job.shape.where or "")
    assert changed.job.latest == ("a",)


def test_columns_that_others_use_have_to_stay() -> None:
    found = program(job("a", "a"), job("b", "a"))
    text = "CREATE OR REPLACE JOB a AS SELECT k FROM s GROUP BY k WINDOW 10 SECONDS;"
    with pytest.raises(LanguageError, match="job 'b' reads column 'n' of its results"):
        orders(text, found)
    orders(text, program(job("a", "a")))
