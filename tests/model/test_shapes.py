"""Shapes: what blocks have in common, and names that are the same everywhere."""

from __future__ import annotations

import subprocess
import sys

import pytest

from muntin.language.program import sql
from muntin.model.jobs import Program

TEXT = """
CREATE STREAM a (t BIGINT, k VARCHAR) FROM 'x' FORMAT json TIMESTAMP t;
CREATE JOB one AS SELECT k, count(*) AS n FROM a GROUP BY k WINDOW 1 MINUTE;
CREATE JOB two AS SELECT k, count(*) AS m FROM a GROUP BY k HAVING count(*) > 1 WINDOW 1 MINUTE;
CREATE JOB three AS SELECT count(*) AS n FROM a WINDOW 1 MINUTE;
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
