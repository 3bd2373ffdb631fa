"""Live windows leave when, and with the score and the rows, that a count by hand says."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.effort import examples
from tests.whole.scoring import STARTED, Action, Happening, Question, Record, both

pytestmark = pytest.mark.usefixtures("looking_at_all")
SOURCES = ["a", "b", "c", "d"]
ACTIONS: list[Action] = ["write"] * 9 + ["touch", "remove", "lose"]  # type: ignore[assignment]


@st.composite
def questions(draw: st.DrawFn) -> Question:
    length, slide, pane = draw(
        st.sampled_from([(10, 10, 1), (10, 10, 5), (6, 6, 6), (6, 2, 2), (12, 4, 1), (10, 5, 5)])
    )
    return Question(
        length,
        slide,
        pane,
        slack=draw(st.sampled_from([0, 0, 2])),
        within=draw(st.sampled_from([None, 0.5, 2.0, 8.0])),
        fidelity=draw(st.sampled_from([None, 10, 40, 50, 75, 100])),
        form=draw(st.sampled_from(["area", "sampled", "space", "time"])),
        leap=draw(st.booleans()),
        sources=draw(st.sampled_from([(), (), ("a", "b", "z")])),
    )


@st.composite
def steps_of(draw: st.DrawFn) -> list[tuple[float, tuple[Happening, ...]]]:
    """Servers that write of about now, each a little behind, and sometimes do not.

    Some records have a wrong time, and some servers say nothing for minutes.

    No two write the same, or a file could be taken for another that was renamed.
    """
    now, steps = STARTED, []
    written: set[str] = set()
    lag = {name: draw(st.sampled_from([0, 0, 1, 4, 12, 100])) for name in SOURCES}
    for _ in range(draw(st.integers(1, 14))):
        seconds = draw(st.sampled_from([0.5, 1.0, 1.0, 2.0, 3.0, 7.0, 150.0]))
        now += seconds
        happenings = []
        for name in draw(st.sets(st.sampled_from(SOURCES))):
            what = draw(st.sampled_from(ACTIONS))
            what = "write" if what == "lose" and name not in written else what
            wrong = st.sampled_from([-80, 30, 70, 140, 9000])
            about = st.one_of(*[st.integers(-3, 1)] * 4, wrong)
            times = draw(st.lists(about, max_size=4)) if what in ("write", "lose") else []
            records = tuple(
                Record(int(now) - lag[name] + t, draw(st.sampled_from("xy")), 100 * ord(name) + i)
                for i, t in enumerate(times)
            )
            written |= {name} if records else set()
            written -= {name} if what in ("remove", "lose") else set()
            happenings.append(Happening(name, what, records))
        steps.append((seconds, tuple(happenings)))
    return steps


@examples(300)
@given(question=questions(), steps=steps_of())
def test_pipeline_equals_count_by_hand(
    question: Question, steps: list[tuple[float, tuple[Happening, ...]]]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        found = both(Path(folder), question, steps)
    assert found["live"] == found["model"]
