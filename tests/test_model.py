"""Values: what follows from their fields, and names that are the same everywhere."""

from __future__ import annotations

import subprocess
import sys

import pytest

from muntin.language.program import sql
from muntin.model import Axis, Counts, Finish, Format, Program, Stream

TEXT = """
CREATE STREAM a (t BIGINT, k VARCHAR) FROM 'x' FORMAT json TIMESTAMP t;
CREATE STREAM b (t BIGINT, source VARCHAR) FROM 'y' FORMAT json TIMESTAMP t;
CREATE JOB one AS SELECT k, count(*) AS n FROM a GROUP BY k WINDOW 1 MINUTE;
CREATE JOB two AS SELECT k, count(*) AS m FROM a GROUP BY k HAVING count(*) > 1 WINDOW 1 MINUTE;
CREATE JOB three AS SELECT count(*) AS n FROM b WINDOW 1 MINUTE;
"""


@pytest.fixture(scope="module")
def program() -> Program:
    return sql(TEXT)


def test_jobs_that_make_different_things_of_the_same_blocks_have_one_shape(
    program: Program,
) -> None:
    one, two, three = (program.jobs[name].shape for name in ("one", "two", "three"))
    assert one == two
    assert one.id == two.id != three.id


def test_a_shape_has_the_same_name_in_every_process(program: Program) -> None:
    code = (
        "import sys; from muntin.language.program import sql;"
        "print(sql(sys.argv[1]).jobs['one'].shape.id)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, TEXT], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == program.jobs["one"].shape.id


def test_a_program_knows_what_each_stream_and_job_needs(program: Program) -> None:
    assert [job.name for job in program.jobs_of("a")] == ["one", "two"]
    alone = program.only("three")
    assert (list(alone.streams), list(alone.jobs)) == (["b"], ["three"])


def test_records_have_a_source_unless_they_bring_their_own(program: Program) -> None:
    a, b = (program.streams[name] for name in "ab")
    assert [c.name for c in a.visible_columns()] == ["t", "k", "source"]
    assert [c.name for c in b.visible_columns()] == ["t", "source"]
    shouting = Stream("c", ("x",), Format("text"), b.columns[:1], "t")
    assert [c.name for c in shouting.visible_columns()] == ["t", "source"]


def test_axes_have_columns_of_their_own() -> None:
    axes = [Axis(), Axis("records"), Axis("bytes"), Axis("sequence", "a"), Axis("sequence", "b")]
    assert len({axis.column for axis in axes}) == 5


def test_a_part_without_records_counts_none() -> None:
    assert Finish("a0", 1, "sum(c1)", zero=True).column == "coalesce(p1.a0, 0)"
    assert Finish("a0", 1, "max(c1)").column == "p1.a0"
    assert Counts(1, 2, 3, 4) + Counts(10, 20, 30, 40) == Counts(11, 22, 33, 44)
