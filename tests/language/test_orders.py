"""What a text asks of a running program, and which versions can follow each other at a pane."""

from __future__ import annotations

import pytest

import muntin as mt
from muntin.errors import LanguageError
from muntin.language.orders import Create, Drop, Pause, Replace, Reset, Set, unlike
from muntin.language.program import orders

STREAM = "CREATE STREAM s (t BIGINT, k VARCHAR, n BIGINT) FROM 'x' FORMAT json TIMESTAMP t;"
FIRST = (
    "JOB j (least DEFAULT 1, factor DEFAULT 1) AS SELECT k, sum(n * $factor) AS c FROM s "
    "WHERE n > $least GROUP BY k ORDER BY c DESC LIMIT 3 WINDOW 10 SECONDS"
)
PROGRAM = mt.sql(STREAM + "CREATE " + FIRST)


def test_each_statement_sees_those_before_it() -> None:
    ordered = orders(
        "CREATE STREAM other (t BIGINT) FROM 'y' FORMAT json TIMESTAMP t;"
        "CREATE JOB new AS SELECT count(*) AS c FROM other WINDOW 1 DAY;"
        "SET j.least = 5; RESET JOB j; PAUSE JOB new; DROP JOB IF EXISTS nobody; DROP JOB j",
        PROGRAM,
    )
    kinds = [type(order) for order in ordered.orders]
    assert kinds == [Create, Set, Reset, Pause, Drop]
    assert [*ordered.program.jobs] == ["new"]
    assert ordered.paused == {"new"}


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        (("n > $least", "n < $least AND k <> 'x'"), None),
        (("LIMIT 3", "LIMIT 5"), None),
        (("ORDER BY c DESC", "HAVING sum(n * $factor) > 2 ORDER BY k"), None),
        (("10 SECONDS", "10 SECONDS WITHIN 2 SECONDS"), None),
        (("sum(n", "avg(n"), "it has other aggregates"),
        (("SELECT k,", "SELECT k || 'x' AS k,"), "it groups by other keys"),
        (("10 SECONDS", "20 SECONDS"), "its windows differ; so far they are 10 seconds"),
        (("10 SECONDS", "10 RECORDS"), "its windows are measured on something else"),
        (("10 SECONDS", "10 SECONDS REVISE FOR 1 DAY"), "more or others have to be kept"),
        (("10 SECONDS", "SESSION 10 SECONDS"), "it has no windows that are made of panes"),
    ],
)
def test_what_may_differ_at_the_next_pane(changed: tuple[str, str], why: str | None) -> None:
    text = FIRST.replace(*changed)
    if "k || 'x'" in text:
        text = text.replace("GROUP BY k", "GROUP BY 1")
    if "SESSION" in text:
        text = text.replace("ORDER BY c DESC LIMIT 3", "")
    (order,) = orders(f"CREATE OR REPLACE {text}", PROGRAM).orders
    assert isinstance(order, Replace)
    told = unlike(PROGRAM.jobs["j"], order.job)
    assert (told is None) == (why is None)
    assert (why or "") in (told or "")


def test_a_parameter_of_cells_changes_with_the_next_window() -> None:
    of_filter, of_cells = orders("SET j.least = 2; SET j.factor = 2", PROGRAM).orders
    assert isinstance(of_filter, Set)
    assert isinstance(of_cells, Set)
    assert (of_filter.at, of_cells.at) == ("pane", "window")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("PAUSE JOB j", None),
        ("PAUSE JOB j; PAUSE JOB j", "job 'j' is paused already"),
        ("PAUSE JOB j; SET j.least = 2", "job 'j' is paused; RESUME JOB j first"),
        ("PAUSE JOB j; RESET JOB j", "job 'j' is paused; RESUME JOB j begins anew"),
        (
            "CREATE JOB k AS SELECT sum(c) AS c FROM JOB j WINDOW 1 DAY; DROP JOB j",
            "job 'k' reads its results; drop that first",
        ),
        (
            "CREATE JOB k AS SELECT sum(c) AS c FROM JOB j WINDOW 1 DAY; PAUSE JOB j",
            "job 'k' reads its results; PAUSE JOB k first",
        ),
        (
            "CREATE JOB k AS SELECT sum(c) AS c FROM JOB j WINDOW 1 DAY;"
            f"CREATE OR REPLACE {FIRST.replace('AS c', 'AS d').replace('BY c', 'BY d')}",
            "job 'k' reads column 'c' of its results",
        ),
        (
            "CREATE STREAM z (t BIGINT) FROM 'z' FORMAT json TIMESTAMP t;"
            "CREATE OR REPLACE JOB j AS SELECT count(*) AS c FROM z WINDOW 1 DAY",
            "a job stays with its stream",
        ),
    ],
)
def test_what_cannot_be_is_told(text: str, message: str | None) -> None:
    if message is None:
        assert orders(text, PROGRAM).orders
        return
    with pytest.raises(LanguageError) as raised:
        orders(text, PROGRAM)
    assert message in str(raised.value)


def test_a_value_that_does_not_fit_is_told_where_it_stands() -> None:
    with pytest.raises(LanguageError, match="'x' cannot stand for \\$least in job 'j'") as raised:
        orders("SET j.factor = 2;\nSET j.least = 'x'", PROGRAM)
    assert (raised.value.line, raised.value.column) == (2, 15)


def test_orders_are_no_part_of_a_program() -> None:
    with pytest.raises(LanguageError, match="said to jobs that run"):
        mt.sql(f"{STREAM} CREATE {FIRST}; PAUSE JOB j")


BOTH = "JOB b (least DEFAULT 1) AS SELECT k, count(*) AS c FROM s WHERE n > $least GROUP BY k "


def test_a_job_of_several_shapes_is_changed_as_a_whole() -> None:
    created = orders(f"CREATE {BOTH} WINDOW 1 DAY, SESSION 1 HOUR", PROGRAM)
    (order,) = created.orders
    assert isinstance(order, Create)
    assert {job.title for job in order.jobs} == {"b"}
    assert len(order.jobs) == 2
    changed = orders("SET b.least = 2; PAUSE JOB b; RESUME JOB b", created.program).orders
    assert [len(each.jobs) for each in changed] == [2, 2, 2]
    assert isinstance(changed[0], Set)
    assert changed[0].at == "window"
    fewer = orders(f"CREATE OR REPLACE {BOTH} WINDOW 1 DAY", created.program)
    assert [job.name for job in fewer.orders[0].jobs] == ["b"]
    assert "b" in fewer.program.jobs
    assert not [job for job in fewer.program.jobs.values() if job.part_of == "b"]
    dropped = orders("DROP JOB b", created.program)
    assert len(dropped.orders[0].jobs) == 2
    assert "b" not in dropped.program.titles
    with pytest.raises(LanguageError, match="no windows that are made of panes"):
        orders(
            f"CREATE OR REPLACE {BOTH} WINDOW 1 DAY, SESSION 1 HOUR AT NEXT PANE", created.program
        )
    with pytest.raises(LanguageError, match="cannot be emptied"):
        orders("RESET JOB b", created.program)
