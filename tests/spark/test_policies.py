"""What may be dropped of a collection, and when its steps are merged."""

from __future__ import annotations

from dataclasses import replace

import pytest

from muntin.kernel.block import Block
from muntin.kernel.due import Emitted
from muntin.language.program import sql
from muntin.spark import policies
from muntin.spark.policies import (
    ByExecutor,
    Moved,
    Span,
    is_many,
    is_needed,
    joined,
    may_wait,
    pays_to_merge,
    spans_of,
)
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


def test_few_rows_wait_to_be_merged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policies, "ROWS_THAT_WAIT", 5)
    assert may_wait([])
    assert may_wait([Span("a", 10, 0, 1, rows=2), Span("b", 10, 0, 1, rows=3)])
    assert not may_wait(joined([Span("a", 10, 0, 1, rows=2), Span("a", 10, 4, 5, rows=4)]))


MB = 1e6
GBIT = 125 * MB  # bytes a second


def merged_share(tasks: int, shared: float) -> float:
    """Of keys of tasks that share so many with all others, the rest being each task's own."""
    return shared / tasks + 1 - shared


@pytest.mark.parametrize(
    ("tasks", "shared", "speed", "megabytes"),
    [
        (8, 1.0, GBIT, 5),
        (8, 0.5, GBIT, 13),
        (4, 1.0, GBIT, 6),
        (8, 1.0, 10 * GBIT, 90),
        (4, 0.1, GBIT, None),
        (2, 1.0, GBIT, None),
        (4, 1.0, 10 * GBIT, None),
        (8, 0.5, 10 * GBIT, None),
    ],
)
def test_merging_by_executor_pays_from_what_was_measured_on(
    tasks: int, shared: float, speed: float, megabytes: int | None
) -> None:
    kept = merged_share(tasks, shared)
    if megabytes is None:
        assert not pays_to_merge(1e6 * MB, kept, tasks, speed)
    else:
        assert not pays_to_merge(0.85 * megabytes * MB, kept, tasks, speed)
        assert pays_to_merge(1.15 * megabytes * MB, kept, tasks, speed)


def test_executors_merge_when_the_last_batches_say_that_it_pays() -> None:
    """Ten executors of eight tasks each."""
    many = Moved(int(400 * MB), int(400 * MB))

    def pays(known: ByExecutor, tasks: int = 80, executors: int = 10, speed: float = GBIT) -> bool:
        return known.pays(tasks, executors, speed)

    nothing = ByExecutor()
    assert not pays(nothing)
    seen = nothing.after(many, merged=False)
    assert pays(seen)  # it is tried, as the best is believed
    assert not pays(seen, tasks=20)
    assert not pays(seen, executors=1)  # nothing is sent to another
    assert not pays(nothing.after(Moved(1000, 1000), merged=False))
    # Merged by key group, nearly all of it was left: keys are not shared.
    assert not pays(nothing.after(replace(many, left=int(390 * MB)), merged=False))
    shared = seen.after(replace(many, sent=int(60 * MB)), merged=True)
    assert shared.kept == 0.15
    assert pays(shared)
    fewer = shared
    for _ in range(8):
        fewer = fewer.after(Moved(1000, 1000), merged=False)
    assert not pays(fewer)


def test_it_is_tried_again_after_many_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policies, "_BATCHES_KNOWN", 3)
    apart = Moved(int(400 * MB), int(400 * MB))
    known = ByExecutor().after(apart, merged=False).after(apart, merged=True)
    tried = []
    for _ in range(4):
        tried.append(known.pays(80, 10, GBIT))
        known = known.after(apart, merged=False)
    assert tried == [False, False, False, True]


def test_a_batch_without_partials_tells_nothing() -> None:
    known = ByExecutor(made=8.0, kept=0.5, least=0.25)
    assert known.after(Moved(), merged=True) == ByExecutor(4.0, 0.5, 0.25, ago=1)
