"""What holds after a restart: orders, until the program's file says something else of the job."""

from __future__ import annotations

from pathlib import Path

import pytest

import muntin as mt
from tests.run.test_succession import STREAM, Deployment, text

TEN = "10 SECONDS"
FILE = "CREATE " + text(3, "count(*)", TEN)
SUM = text(3, "sum(n)", TEN)


def started(folder: Path, program: str = FILE) -> Deployment:
    return Deployment(folder, program, folder / "state")


def again(run: Deployment, program: str) -> list[str]:
    """Starts again with another text of the program's file; returns what there is to say."""
    run.program = mt.sql(STREAM.format(folder=run.folder) + program)
    run.notes = []
    run.start()
    return run.notes


def version(run: Deployment, job: str = "j") -> tuple[int, str]:
    found = run.loop.catalog.jobs[job]
    return found.edition.number, found.shape.parts[0].cells[-1].sql


@pytest.fixture
def run(tmp_path: Path) -> Deployment:
    deployment = started(tmp_path)
    deployment.write(("a", 101, "x", 5), ("b", 102, "x", 5))
    deployment.turn()
    return deployment


def test_an_order_holds_while_the_file_says_what_it_said(run: Deployment) -> None:
    run.order("CREATE OR REPLACE " + SUM)
    changed = version(run)
    notes = again(run, FILE.replace("GROUP", "\n  GROUP"))  # spaces change nothing
    assert version(run) == changed
    assert changed[0] == 2
    assert "goes on as it was changed while it ran (version 2)" in " ".join(notes)


def test_a_file_that_was_edited_holds(run: Deployment) -> None:
    run.order("CREATE OR REPLACE " + SUM)
    notes = again(run, "CREATE " + text(4, "max(n)", TEN))
    assert version(run)[0] == 3
    assert "the program's file was edited since" in " ".join(notes)


def test_without_orders_a_file_that_is_edited_is_another_version(run: Deployment) -> None:
    again(run, "CREATE " + text(4, "max(n)", TEN))
    assert version(run)[0] == 2
    run.turn()
    again(run, "CREATE " + text(4, "max(n)", TEN))
    assert version(run)[0] == 2


def test_jobs_that_were_created_dropped_or_paused_stay_so(run: Deployment) -> None:
    run.order(f"CREATE {text(1, 'sum(n)', TEN, 'k')}; DROP JOB j")
    notes = again(run, FILE)
    assert [*run.loop.catalog.jobs] == ["k"]
    assert "job 'j' is in the program's file, but was dropped by DROP JOB" in notes
    assert "job 'k' was created while the program ran, and goes on" in notes
    run.order("PAUSE JOB k")
    assert "job 'k' is paused" not in again(run, FILE)  # no file has it: nothing to explain
    assert [*run.loop.catalog.paused] == ["k"]
    again(run, "CREATE " + text(4, "count(*)", TEN))
    assert version(run)[0] == 2  # the second of its name


def test_values_of_parameters_are_kept(run: Deployment) -> None:
    run.order("SET j.least = 7")
    again(run, FILE)
    assert dict(run.loop.catalog.jobs["j"].edition.values) == {"least": "7"}
    (effect,) = run.order("SET j.least = 8").effects
    assert (effect.does, effect.version, effect.by) == ("set", 1, "end")


def test_a_column_cannot_become_of_another_type(run: Deployment) -> None:
    before = run.loop.catalog
    with pytest.raises(mt.MuntinError, match="column 'c' of job 'j' is now"):
        run.order("CREATE OR REPLACE JOB j AS SELECT k, max(k) AS c FROM s GROUP BY k WINDOW 1 DAY")
    assert run.loop.catalog is before


TWO = "CREATE OR REPLACE JOB j AS SELECT k, {} AS c FROM s GROUP BY k WINDOW 10 SECONDS, {}"
SESSION = "SESSION 5 SECONDS"


def test_a_job_of_several_shapes_is_kept_as_a_whole(tmp_path: Path) -> None:
    """Its shapes may be others than in the file, and none of those comes back."""
    file = TWO.format("count(*)", SESSION)
    run = started(tmp_path, file)
    run.write(("a", 101, "x", 5), ("b", 102, "x", 5))
    run.turn()
    other = "SESSION 7 SECONDS"
    run.order(TWO.format("sum(n)", other))
    open_ = {n for n, job in run.loop.catalog.jobs.items() if job.term.is_open}
    assert len(open_) == 2
    notes = again(run, file)
    assert {n for n, job in run.loop.catalog.jobs.items() if job.term.is_open} == open_
    assert {job.edition.number for job in run.loop.catalog.jobs.values() if job.term.is_open} == {2}
    assert len([note for note in notes if "goes on as it was changed" in note]) == 1
    run.order("PAUSE JOB j")
    again(run, file)
    assert not any(job.term.is_open for job in run.loop.catalog.jobs.values())
    run.order("RESUME JOB j; DROP JOB j")
    notes = again(run, file)
    assert not run.loop.catalog.jobs
    assert len([note for note in notes if "was dropped" in note]) == 1
    again(run, file.replace("count(*)", "max(n)"))
    assert {job.edition.number for job in run.loop.catalog.jobs.values()} == {3}
