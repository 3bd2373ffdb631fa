"""Jobs and programs: what follows from their fields."""

from __future__ import annotations

from muntin.language.program import sql
from muntin.model.jobs import Finish

TEXT = """
CREATE STREAM a (t BIGINT, k VARCHAR) FROM 'x' FORMAT json TIMESTAMP t;
CREATE STREAM b (t BIGINT, k VARCHAR) FROM 'y' FORMAT json TIMESTAMP t;
CREATE JOB one AS SELECT k, count(*) AS n FROM a GROUP BY k WINDOW 1 MINUTE;
CREATE JOB two AS SELECT k, count(*) AS m FROM a GROUP BY k HAVING count(*) > 1 WINDOW 1 MINUTE;
CREATE JOB three AS SELECT count(*) AS n FROM b WINDOW 1 MINUTE;
"""


def test_a_program_knows_what_each_stream_and_job_needs() -> None:
    program = sql(TEXT)
    assert [job.name for job in program.jobs_of("a")] == ["one", "two"]
    alone = program.only("three")
    assert (list(alone.streams), list(alone.jobs)) == (["b"], ["three"])


def test_a_part_without_records_counts_none() -> None:
    assert Finish("a0", 1, "sum(c1)", zero=True).column == "coalesce(p1.a0, 0)"
    assert Finish("a0", 1, "max(c1)").column == "p1.a0"
