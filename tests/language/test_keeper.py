"""What streams keep of their records: the columns, the job that keeps them, and what is told."""

from __future__ import annotations

import pytest

from muntin.errors import LanguageError
from muntin.language.explain import explain
from muntin.language.program import orders, sql
from muntin.model.jobs import Program
from muntin.model.streams import Keep
from muntin.run.catalog import Catalog

STREAM = (
    "CREATE STREAM clicks (ts VARCHAR, product VARCHAR, ms DOUBLE, tags JSON[]) "
    "FROM 'x/{source}.log' FORMAT json TIMESTAMP ts::TIMESTAMP "
)
DAY = 86_400_000_000


def kept(retain: str) -> Program:
    return sql(STREAM + retain)


@pytest.mark.parametrize(
    ("retain", "columns"),
    [
        ("RETAIN 7 DAYS OF STREAM (product, ms)", ("product", "ms", "ts")),
        ("RETAIN 7 DAYS OF STREAM (TS, source)", ("ts", "source")),
        ("RETAIN 1 WEEK OF ms, product SLACK 1 SECOND", ("ms", "product", "ts")),
        ("RETAIN 168 HOURS OF STREAM", ("ts", "product", "ms", "tags", "source")),
    ],
)
def test_columns_are_those_that_are_named_and_the_time(
    retain: str, columns: tuple[str, ...]
) -> None:
    assert kept(retain).streams["clicks"].keep == Keep(columns, 7 * DAY)


def test_a_keeper_waits_no_longer_than_jobs_that_have_bounds() -> None:
    job = "CREATE JOB {} AS SELECT count(*) AS c FROM clicks WINDOW 1 MINUTE {};"
    stream = "RETAIN 1 DAY OF STREAM;"
    first = stream + job.format("a", "WITHIN 1 SECOND")
    bounded, free = (
        kept(first + job.format("b", "WITHIN 3 SECONDS")),
        kept(first + job.format("b", "")),
    )
    within = []
    for program in (bounded, free, kept(stream)):
        catalog = Catalog.of(program.streams["clicks"], program.jobs.values())
        assert catalog.keeper is not None
        assert catalog.keeper.name not in catalog.jobs
        assert catalog.keeper.shape.id in catalog.retained
        within.append(catalog.keeper.bounds.within_us)
    assert within == [3_000_000, None, None]


def test_what_is_kept_is_explained() -> None:
    told = explain(kept("RETAIN 7 DAYS OF STREAM (product)"))
    line = "  retain     product, ts of every record for 1 week: `muntin ask` answers from them"
    assert line in told.splitlines()


def test_a_running_program_begins_a_stream_with_a_job() -> None:
    program = sql(STREAM.replace("clicks", "others"))
    with pytest.raises(LanguageError, match=r"no job reads stream 'clicks'.*program's file"):
        orders(STREAM + "RETAIN 1 DAY OF STREAM", program)
    job = "; CREATE JOB j AS SELECT count(*) AS c FROM clicks WINDOW 1 MINUTE"
    ordered = orders(STREAM + "RETAIN 1 DAY OF STREAM" + job, program)
    assert ordered.program.streams["clicks"].keep is not None
