"""Every kind of job answers the whole protocol, and is told by its shape alone."""

from __future__ import annotations

import pytest

from muntin.kernel.kinds import kind_of
from muntin.kernel.kinds.kind import Kind
from muntin.kernel.kinds.living import Living
from muntin.kernel.kinds.pairs import Pairs
from muntin.kernel.kinds.panes import Panes
from muntin.kernel.kinds.sessions import Sessions
from muntin.language.program import sql
from muntin.model.jobs import Job

STREAM = "CREATE STREAM logs (t BIGINT, k VARCHAR, n BIGINT) FROM 'x' FORMAT json TIMESTAMP t;"
SQL = "CREATE JOB j AS SELECT k, count(*) AS c FROM logs GROUP BY k WINDOW {};"
PYTHON = "CREATE JOB j AS PYTHON 'tests.python_jobs:{}' FROM logs{};"


def job_of(text: str) -> Job:
    return sql(STREAM + text).jobs["j"]


JOBS: dict[type[Kind], str] = {
    Panes: SQL.format("10 SECONDS EVERY 5 SECONDS"),
    Sessions: SQL.format("SESSION 5 SECONDS"),
    Pairs: PYTHON.format("Spread", " WINDOW 10 SECONDS"),
    Living: PYTHON.format("Tops", ""),
}


@pytest.mark.parametrize("kind", JOBS)
def test_the_kind_of_a_shape(kind: type[Kind]) -> None:
    assert type(kind_of(job_of(JOBS[kind]).shape)) is kind


def test_values_in_python_that_sql_combines_are_panes() -> None:
    assert isinstance(kind_of(job_of(PYTHON.format("Batches", " WINDOW 9 us")).shape), Panes)


@pytest.mark.parametrize("kind", JOBS)
def test_what_is_told_of_a_kind(kind: type[Kind]) -> None:
    job = job_of(JOBS[kind])
    found: Kind = kind_of(job.shape)
    operators = list(found.operators(job, job.windows, separate=False))
    names = [operator.name for operator in operators]
    in_sql = kind in (Panes, Sessions)
    assert [name for name in names if name not in ("select", "rounds")] == [
        "compute",
        "merge",
        "finish",
        "order",
    ]
    assert all(operator.sql for operator in operators) == in_sql
    assert ("select" in names) == (not in_sql)
    assert found.has_cells == in_sql
    assert found.alike == (("part", "k0") if kind is Panes else ("k0",))
    assert found.has_panes == (kind is not Sessions)
    assert found.has_windows == (kind is not Living)
    assert found.in_slices == (kind in (Panes, Pairs))
    assert (found.always_shared(()) is None) == (kind is Panes)
    assert (found.headline() is None) == (kind in (Panes, Pairs))
    assert found.names(job)[0] == found.name(job, (0, 10))
