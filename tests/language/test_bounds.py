"""WITHIN, FIDELITY, STRAGGLERS and REVISE: what they become, and what is wrong with them."""

from __future__ import annotations

import pytest

from muntin.errors import LanguageError
from muntin.model.jobs import Bounds
from muntin.model.shapes import Sample
from tests.language.cases import Mistake, mistakes, program


@pytest.mark.parametrize("case", mistakes("bounds_errors.sql"), ids=lambda case: case.text)
def test_mistake_is_shown_at_its_place(case: Mistake) -> None:
    with pytest.raises(LanguageError) as raised:
        program(case.text)
    assert str(raised.value) == case.shown()


def test_bounds_become() -> None:
    said = "WITHIN 1500 MILLISECONDS AT 99.9% STRAGGLERS WAIT REVISE FIDELITY 12.5 PERCENT SAMPLED"
    text = f"CREATE JOB j AS SELECT count(*) FROM shop WINDOW 1 DAY, 1 HOUR {said}"
    (job,) = program(text).jobs.values()
    assert job.bounds == Bounds(1_500_000, 0.999, 0.125, "sampled", False, 86_400_000_000)
    assert job.shape.sample == Sample("j", 0.125)
    (job,) = program(text.replace("12.5 PERCENT SAMPLED", "12.5 PERCENT OF TIME")).jobs.values()
    assert (job.bounds.form, job.shape.by_source, len(job.shape.answered.keys)) == ("time", True, 0)


@pytest.mark.parametrize(
    ("said", "bounds"),
    [
        ("", Bounds()),
        ("WITHIN 1 SECOND", Bounds(within_us=1_000_000)),
        ("FIDELITY 90%", Bounds(fidelity=0.9)),
        ("FIDELITY 50 PERCENT OF SPACE", Bounds(fidelity=0.5, form="space")),
        ("STRAGGLERS LEAP", Bounds(leap=True)),
        ("REVISE", Bounds(revise_us=3_600_000_000)),  # an hour, or the longest window
        ("REVISE FOR 5 SECONDS", Bounds(revise_us=5_000_000)),
    ],
)
def test_each_clause_says_one_thing(said: str, bounds: Bounds) -> None:
    text = f"CREATE JOB j AS SELECT count(*) FROM shop WINDOW 1 MINUTE {said}"
    (job,) = program(text).jobs.values()
    assert job.bounds == bounds


@pytest.mark.parametrize(("said", "limit"), [("", 100), ("MAX ERRORS 0", 0), ("max errors 7", 7)])
@pytest.mark.parametrize("window", ["1 MINUTE", "SESSION 1 MINUTE"])
def test_a_job_in_sql_survives_some_errors(window: str, said: str, limit: int) -> None:
    text = f"CREATE JOB j AS SELECT count(*) FROM shop WINDOW {window} {said}"
    (job,) = program(text).jobs.values()
    assert job.max_errors == limit
