"""FIDELITY on finite input: the rows and scores of what is enough, cell by cell in plain Python."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

import muntin as mt
from muntin.run.inline import windows_inline

PANE = 10  # seconds
Form = Literal["area", "space", "time"]
Logs = dict[str, list[int]]  # the seconds of each source's records
_WORDS = {"area": "", "space": " OF SPACE", "time": " OF TIME"}


@dataclass(frozen=True)
class Question:
    length: int  # panes
    slide: int
    percent: int
    form: Form
    slack: int | None = None
    declared: tuple[str, ...] = ()

    def program(self, folder: Path) -> mt.Program:
        named = ", ".join(f"'{name}'" for name in self.declared)
        slack = f" SLACK {self.slack} SECONDS" if self.slack is not None else ""
        return mt.sql(
            f"CREATE STREAM s (t BIGINT) FROM '{folder}/{{source}}.log' FORMAT json TIMESTAMP t"
            f"{slack}{f' SOURCES {named}' if named else ''};"
            f"CREATE JOB j AS SELECT source, count(*) AS n FROM s GROUP BY source "
            f"WINDOW {self.length * PANE} SECONDS EVERY {self.slide * PANE} SECONDS "
            f"PANE {PANE} SECONDS FIDELITY {self.percent} PERCENT{_WORDS[self.form]};"
        )


@dataclass(frozen=True)
class Window:
    start: int  # panes
    rows: tuple[tuple[str, int], ...]
    read: int
    reason: str
    area: float
    inside: frozenset[tuple[str, int]]


def write(folder: Path, logs: Logs) -> None:
    folder.mkdir(exist_ok=True)
    for source, seconds in logs.items():
        lines = "".join(json.dumps({"t": at}) + "\n" for at in seconds)
        (folder / f"{source}.log").write_text(lines)


def answers(folder: Path, question: Question, batch: int = 1 << 20) -> list[Window]:
    found = []
    for windows in windows_inline(question.program(folder), batch_bytes=batch):
        for result in windows.results():
            start = result.start // 1_000_000 // PANE
            merged = [
                (name, start + i)
                for name, row in zip(result.c2.names, result.c2.cells, strict=True)
                for i, state in enumerate(row)
                if state == mt.State.MERGED
            ]
            rows = tuple(sorted((row["source"], row["n"]) for row in result.rows.to_pylist()))
            window = Window(
                start,
                rows,
                result.counts.read,
                str(result.c2.reason),
                round(result.c2.area, 9),
                frozenset(merged),
            )
            found += [window] if rows else []
    return sorted(found, key=lambda window: window.start)


def expected(question: Question, logs: Logs, picked: frozenset[str]) -> list[Window]:
    """Every window with what is enough of it, decided with all in view."""
    logs = {source: seconds for source, seconds in logs.items() if seconds}
    unread = {s for s in logs if question.form == "time" and s not in picked}
    first = {s: min(seconds) // PANE for s, seconds in logs.items()}
    first |= dict.fromkeys([*unread, *question.declared], -(10**9))
    panes = [at // PANE for seconds in logs.values() for at in seconds]
    last_start = max(panes) // question.slide * question.slide
    found = []
    start = (min(panes) - question.length) // question.slide * question.slide
    while start <= last_start:
        span = range(start, start + question.length)
        counted = {(s, p) for s in first for p in span if p >= first[s]}
        there = {(s, p) for s, p in counted if s in logs and s not in unread}
        inside, reason = enough(question, counted, there, span)
        records = [
            (s, at) for s, seconds in logs.items() for at in seconds if (s, at // PANE) in inside
        ]
        rows = tuple(sorted(Counter(s for s, _ in records).items()))
        area = round(len(inside) / len(counted), 9) if counted else 1.0
        if rows:
            found.append(Window(start, rows, len(records), reason, area, frozenset(inside)))
        start += question.slide
    return found


def enough(
    question: Question, counted: set[tuple[str, int]], there: set[tuple[str, int]], span: range
) -> tuple[set[tuple[str, int]], str]:
    share = question.percent / 100
    everything = there, "complete" if there == counted else "exhausted"
    if question.form == "time":
        sources = {s for s, _ in counted}
        full = {s for s in sources if all(c in there for c in counted if c[0] == s)}
        if there != counted and len(full) / len(sources) >= share:
            return {c for c in there if c[0] in full}, "fidelity"
        return everything
    expected_panes = [p for p in span if any(c[1] == p for c in counted)]
    taken: list[int] = []
    for pane in expected_panes:
        of_pane = {c for c in counted if c[1] == pane}
        if question.form == "space" and not of_pane <= there:
            continue
        if not of_pane & there:
            continue
        taken.append(pane)
        inside = {c for c in there if c[1] in taken}
        reached = (
            len(taken) / len(expected_panes)
            if question.form == "space"
            else len(inside) / len(counted)
        )
        if reached >= share:
            return inside, "complete" if there == inside == counted else "fidelity"
    return everything


@st.composite
def questions(draw: st.DrawFn) -> Question:
    length = draw(st.integers(1, 6))
    return Question(
        length,
        draw(st.integers(1, length)),
        draw(st.sampled_from([1, 10, 25, 50, 60, 99, 100])),
        draw(st.sampled_from(["area", "space", "time"])),
        draw(st.sampled_from([None, 0, 25])),
        draw(st.sampled_from([(), (), ("a",), ("z",), ("a", "z")])),
    )


@st.composite
def all_logs(draw: st.DrawFn) -> Logs:
    """Logs of a few sources, in order but for some seconds, with gaps and late beginnings."""
    names = draw(st.lists(st.sampled_from("abcd"), min_size=1, unique=True))
    return {name: sorted(draw(st.lists(st.integers(0, 200), max_size=12))) for name in names}


@given(questions(), all_logs(), st.sampled_from([60, 1 << 20]))
def test_finite_input_is_answered_from_what_is_enough(
    tmp_path_factory: pytest.TempPathFactory, question: Question, logs: Logs, batch: int
) -> None:
    folder = tmp_path_factory.mktemp("logs")
    write(folder, logs)
    if not any(logs.values()):
        return
    found = answers(folder, question, batch)
    read = {source for source, seconds in logs.items() if seconds}
    taken = {source for window in found for source, _ in window.inside}
    picked = frozenset(taken) if question.form == "time" else frozenset(read)
    if question.form == "time":
        every = {*read, *question.declared}
        assert len(picked) <= -(-question.percent * len(every) // 100)
    assert found == expected(question, logs, picked)
