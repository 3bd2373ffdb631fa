"""What may be dropped of a collection, and when its steps are merged."""

from __future__ import annotations

from dataclasses import replace

import pytest

from muntin.kernel.block import Block
from muntin.kernel.due import Emitted
from muntin.language.program import sql
from muntin.spark import policies
from muntin.spark.policies import Span, is_many, is_needed, joined, spans_of
from muntin.windows.spec import WindowSpec

TEXT = (
    "CREATE STREAM s (t BIGINT, k VARCHAR) FROM 'x' FORMAT json TIMESTAMP t;"
    "CREATE JOB panes AS SELECT k, count(*) FROM s GROUP BY k WINDOW 60 us EVERY 20 us;"
    "CREATE JOB visits AS SELECT k, count(*) FROM s GROUP BY k WINDOW SESSION 10 us;"
)
SHAPES = {name: job.shape for name, job in sql(TEXT).jobs.items()}
SPEC = WindowSpec(60, 20)


def test_a_step_is_needed_while_a_window_to_come_holds_a_pane_of_it() -> None:
    """Windows [0, 60) to [40, 100) have left, so [60, 120) is next: pane 3 is the first of it."""
    emitted = {"panes": Emitted({SPEC: 5})}
    assert emitted["panes"].oldest_pane == 3
    assert not is_needed([Span("panes", 20, -5, 3)], SHAPES, emitted)
    assert is_needed([Span("panes", 20, -5, 4)], SHAPES, emitted)
    assert is_needed([Span("panes", 20, -5, 3)], SHAPES, {"panes": Emitted({SPEC: None})})
    assert is_needed([Span("panes", 20, -5, 3)], SHAPES, {})


def test_a_step_on_another_grid_is_told_by_its_positions() -> None:
    emitted = {"panes": Emitted({SPEC: 5})}
    assert not is_needed([Span("panes", 10, -5, 6)], SHAPES, emitted)
    assert is_needed([Span("panes", 10, -5, 7)], SHAPES, emitted)
    assert not is_needed([Span("panes", 60, -5, 1)], SHAPES, emitted)
    finer = {"panes": Emitted({replace(SPEC, pane=10): 10})}
    assert is_needed([Span("panes", 20, -5, 3)], SHAPES, finer)  # not told on this grid


def test_sessions_and_shapes_without_jobs() -> None:
    emitted = {"visits": Emitted({}, sessions=10_000)}
    assert is_needed([Span("visits", 0, 0, 5)], SHAPES, emitted)
    assert not is_needed([Span("gone", 20, 0, 500)], SHAPES, emitted)
    assert not is_needed([], SHAPES, emitted)


def test_spans_hold_all_blocks_of_a_shape() -> None:
    block = Block("panes", b"", 3, 20, 1, 4)
    others = [replace(block, lower=7, upper=8), replace(block, pane=10, lower=0, upper=1)]
    empty = replace(block, rows=0, lower=-100)
    assert spans_of([block, *others, empty]) == [Span("panes", 20, 1, 8), Span("panes", 10, 0, 1)]
    assert joined([]) == []
    assert Span("panes", 20, 1, 8).positions == (20, 160)
    assert Span("visits", 0, 1, 8).positions == (1, 8)


def test_steps_are_merged_when_they_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policies, "STEPS_AT_MOST", 3)
    assert [is_many(steps) for steps in (0, 2, 3, 4)] == [False, False, True, True]
