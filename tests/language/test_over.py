"""What follows WINDOW: windows, panes, sessions, and what is wrong with them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muntin.errors import LanguageError
from muntin.model.records import TIME, Axis
from muntin.units import counted, describe_window
from muntin.windows.spec import WindowSpec
from tests.language.cases import Mistake, Pair, facts_of_job, mistakes, pairs, program

AXES = [TIME, Axis("records"), Axis("bytes"), Axis("sequence", '"id"')]


@pytest.mark.parametrize("case", mistakes("windows_errors.sql"), ids=lambda case: case.text)
def test_mistake_is_shown_at_its_place(case: Mistake) -> None:
    with pytest.raises(LanguageError) as raised:
        program(case.text)
    assert str(raised.value) == case.shown()


@pytest.mark.parametrize("case", pairs("windows.sql"), ids=lambda case: case.text)
def test_windows_become(case: Pair) -> None:
    (job,) = program(case.text).jobs.values()
    facts = facts_of_job(job)
    named = [*case.facts, "bound"]
    assert {kind: facts[kind] for kind in named} == {"bound": [], **case.facts}


def test_sessions_beside_other_windows_are_jobs_with_one_title() -> None:
    text = "CREATE JOB j AS SELECT count(*) FROM shop WINDOW {} BEGIN '2026-01-01' WITHIN 1 MINUTE"
    found = program(text.format("SESSION 30 MINUTES, 1 DAY, SESSION 1 HOUR, 1 HOUR PANE 1 MINUTE"))
    windows, first, second = found.jobs.values()
    assert (windows.name, windows.title, len(windows.windows)) == ("j", "j", 2)
    assert (windows.shape.pane, windows.shape.gap) == (60_000_000, None)
    assert [(job.name, job.title) for job in (first, second)] == [
        ("j (session 30 minutes)", "j"),
        ("j (session 1 hour)", "j"),
    ]
    assert (first.shape.gap, second.shape.gap) == (1_800_000_000, 3_600_000_000)
    assert {(job.shape.begin, job.bounds) for job in found.jobs.values()} == {
        (windows.shape.begin, windows.bounds)
    }
    assert found.titles == ("j",)
    assert found.only("j").jobs == found.jobs
    assert not program(text.format("SESSION 1 HOUR, 1 DAY") + "; DROP JOB j").jobs


@given(
    axis=st.sampled_from(AXES),
    slide=st.integers(1, 10**6),
    times=st.integers(1, 50),
    offset=st.integers(0, 10**6),
)
def test_the_name_of_a_window_means_the_window(
    axis: Axis, slide: int, times: int, offset: int
) -> None:
    """What `window_name` says can be written behind WINDOW again."""
    spec = WindowSpec(slide * times, slide, offset % slide)
    length, _, start = describe_window(axis, spec).partition(" from ")
    text = f"CREATE JOB j AS SELECT count(*) FROM shop WINDOW {length}"
    (found,) = program(text).jobs["j"].windows
    assert (found.range, found.slide) == (spec.range, spec.slide)
    assert bool(start) == bool(spec.offset)


@pytest.mark.parametrize(
    ("unit", "axis", "size"),
    [
        ("record", "records", 1),
        ("RECORDS", "records", 1),
        ("byte", "bytes", 1),
        ("KB", "bytes", 1024),
        ("megabytes", "bytes", 1024**2),
        ("Gigabyte", "bytes", 1024**3),
    ],
)
def test_units_of_counts(unit: str, axis: str, size: int) -> None:
    assert counted(unit) == (axis, size)


@pytest.mark.parametrize("unit", ["minutes", "KBS", "", "lines", "b"])
def test_what_counts_nothing(unit: str) -> None:
    assert counted(unit) is None
