"""Every way to make windows gives the rows of a recomputation from the records of each."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from muntin.kernel.clocks import Clocks
from muntin.kernel.compute import Recipe, compute
from muntin.kernel.consolidate import Algorithm, Consolidation, algorithm_of, removable
from muntin.kernel.engine import run
from muntin.kernel.merge import merge
from muntin.kernel.statements import bounds_of, finish_sql, spec_id
from muntin.language.program import sql
from muntin.model.jobs import Job
from muntin.model.records import POSITION
from muntin.windows.spec import WindowSpec, on_one_grid
from tests.effort import examples

STREAM = (
    "CREATE STREAM logs (t BIGINT, k VARCHAR, n BIGINT, x DOUBLE, s VARCHAR) "
    "FROM 'logs/*.json' FORMAT json TIMESTAMP t;"
)
SUMS = "count(*) AS c, sum(n) AS n, count(DISTINCT s) AS d"
ALL = f"{SUMS}, sum(x) AS x, min(s) AS low, max(s) AS high"


@dataclass(frozen=True)
class Record:
    t: int
    k: str | None
    n: int | None
    s: str | None

    @property
    def x(self) -> float | None:
        return None if self.n is None else self.n / 4


@cache
def job_of(columns: str, spec: WindowSpec) -> Job:
    windows = f"{spec.range} MICROSECONDS EVERY {spec.slide} MICROSECONDS"
    start = f"FROM '1970-01-01 00:00:00.{spec.offset:06}' PANE {spec.pane} MICROSECONDS"
    text = f"CREATE JOB j AS SELECT k, {columns} FROM logs GROUP BY k WINDOW {windows} {start};"
    return sql(STREAM + text).jobs["j"]


def table_of(records: Sequence[Record]) -> pa.Table:
    return pa.table(
        {
            "k": pa.array([r.k for r in records], pa.string()),
            "n": pa.array([r.n for r in records], pa.int64()),
            "x": pa.array([r.x for r in records], pa.float64()),
            "s": pa.array([r.s for r in records], pa.string()),
            POSITION: pa.array([r.t for r in records], pa.int64()),
        }
    )


def blocks_of(
    job: Job, pieces: Sequence[tuple[bool, Sequence[Record]]], slack: int | None
) -> pa.Table:
    """One block from pieces of a log; of some the windows are computed one by one."""
    clocks = Clocks(slack)
    blocks: list[pa.Table] = []
    for separate, records in pieces:
        recipe = Recipe(job.shape, job.windows, separate)
        found = compute(table_of(records), "web-1", [recipe], clocks)[0]
        blocks += found.values()
    return merge(job.shape, blocks) if blocks else None


def expected(
    spec: WindowSpec, records: Sequence[Record], ends: Sequence[int], slack: int | None, all_: bool
) -> set[tuple[Any, ...]]:
    groups: dict[tuple[int, str | None], list[Record]] = defaultdict(list)
    reached = None
    for record in records:
        reached = record.t if reached is None else max(reached, record.t)
        for end in ends:
            start_us, end_us = spec.bounds(end)
            late = slack is not None and end_us <= reached - slack
            if start_us <= record.t < end_us and not late:
                groups[end, record.k].append(record)
    return {(*key, *columns(found, all_)) for key, found in groups.items()}


def columns(records: Sequence[Record], all_: bool) -> list[Any]:
    numbers = [r.n for r in records if r.n is not None]
    texts = sorted(r.s for r in records if r.s is not None)
    found: list[Any] = [len(records), sum(numbers) if numbers else None, len(set(texts))]
    if all_:
        found.append(sum(numbers) / 4 if numbers else None)
        found += [texts[0], texts[-1]] if texts else [None, None]
    return found


def rows_of(job: Job, blocks: pa.Table, ends: Sequence[int], way: Algorithm, again: bool) -> Any:
    windows = Consolidation(job.shape, blocks).windows(job.windows[0], ends, again, way)
    statement = finish_sql(job, windows.sql, bounds_of(job.shape, job.windows[0]))
    rows = run(statement, windows.tables, "finishing").to_pylist()
    names = ["w", *(f"x{i}" for i in range(len(job.outputs)))]
    found = [tuple(row[name] for name in names) for row in rows]
    assert len(found) == len(set(found))
    return set(found)


SPECS = [
    WindowSpec(1, 1),
    WindowSpec(5, 5),
    WindowSpec(6, 2),
    WindowSpec(7, 3),
    WindowSpec(12, 3, 2, 1),
    WindowSpec(20, 1),
    WindowSpec(12, 4, 2, 2),
    WindowSpec(8, 8, 3, 1),
]
HUGE = 2**60
texts = st.sampled_from(["a", "b", "ü", "", None])
records = st.builds(
    Record,
    t=st.one_of(*[st.integers(-8, 24)] * 5, st.integers(-30, 300)),
    k=st.sampled_from(["x", "y", None]),
    n=st.one_of(st.none(), st.integers(-5, 5), st.just(HUGE)),
    s=texts,
)
logs = st.lists(st.tuples(st.booleans(), st.lists(records, max_size=12)), max_size=4).filter(
    lambda log: sum(record.n == HUGE for _, piece in log for record in piece) < 8  # so sums fit
)
PAUSE = [(False, [Record(t, "x", None if t == 9 else t, "a") for t in (0, 1, 9, 40, 41)])]

LATE = [(False, [Record(t, "x", 1, "a") for t in (10, 7, 3, 12, 9)])]


@examples(150)
@given(
    spec=st.sampled_from(SPECS),
    log=logs,
    slack=st.sampled_from([None, 0, 3]),
    after=st.one_of(st.none(), st.integers(-20, 60)),
    all_=st.booleans(),
    again=st.booleans(),
)
@example(spec=SPECS[2], log=PAUSE, slack=None, after=None, all_=False, again=False)
@example(spec=SPECS[2], log=LATE, slack=0, after=None, all_=False, again=False)
@example(spec=SPECS[5], log=PAUSE, slack=None, after=5, all_=True, again=True)
def test_every_way_gives_the_same_rows(
    spec: WindowSpec,
    log: list[tuple[bool, list[Record]]],
    slack: int | None,
    after: int | None,
    all_: bool,
    again: bool,
) -> None:
    job = job_of(ALL if all_ else SUMS, spec)
    blocks = blocks_of(job, log, slack)
    every = [record for _, found in log for record in found]
    ends = spec.ends(sorted({record.t // spec.pane for record in every}), after, 10**6)
    if not ends or blocks is None:
        return
    wanted = expected(spec, every, ends, slack, all_)
    ways = [Algorithm.SHARE, Algorithm.STACKS, *([] if all_ else [Algorithm.REMOVE])]
    ways += [Algorithm.PANES] if spec.length == 1 else []
    for way in ways:
        assert rows_of(job, blocks, ends, way, again) == wanted, way


@examples(60)
@given(
    specs=st.lists(st.sampled_from(SPECS), min_size=2, max_size=4, unique=True),
    log=logs,
    slack=st.sampled_from([None, 0, 3]),
)
def test_larger_windows_of_smaller_ones_are_right_too(
    specs: list[WindowSpec], log: list[tuple[bool, list[Record]]], slack: int | None
) -> None:
    """What is left out of a window of panes, because it is late for some, is not shared."""
    fitted = sorted(on_one_grid(specs, 1), key=lambda spec: (spec.length, spec.stride))
    jobs = {spec: job_of(ALL, spec) for spec in fitted}
    shape = jobs[fitted[0]].shape
    clocks = Clocks(slack)
    recipes = [Recipe(shape, tuple(fitted), separate) for separate, _ in log]
    found = [
        block
        for recipe, (_, piece) in zip(recipes, log, strict=True)
        for block in compute(table_of(piece), "web-1", [recipe], clocks)[0].values()
    ]
    if not found:
        return
    every = [record for _, piece in log for record in piece]
    consolidation = Consolidation(shape, merge(shape, found))
    for spec in fitted:
        ends = spec.ends(sorted({record.t for record in every}), None, 10**6)
        windows = consolidation.windows(spec, ends, True, Algorithm.SHARE)
        statement = finish_sql(jobs[spec], windows.sql, bounds_of(jobs[spec].shape, spec))
        rows = run(statement, windows.tables, "finishing").to_pylist()
        names = ["w", *(f"x{i}" for i in range(len(jobs[spec].outputs)))]
        seen = {tuple(row[name] for name in names) for row in rows}
        assert seen == expected(spec, every, ends, slack, True)


def test_which_way_is_taken() -> None:
    sums, every = job_of(SUMS, WindowSpec(60, 10)), job_of(ALL, WindowSpec(60, 10))
    assert (removable(sums.shape), removable(every.shape)) == (True, False)
    assert algorithm_of(sums.shape, WindowSpec(60, 60), 9) is Algorithm.PANES
    assert algorithm_of(sums.shape, WindowSpec(60, 60, 0, 10), 9) is Algorithm.SHARE
    assert algorithm_of(sums.shape, WindowSpec(60, 30), 9) is Algorithm.SHARE
    assert algorithm_of(sums.shape, WindowSpec(60, 10), 2) is Algorithm.SHARE
    assert algorithm_of(sums.shape, WindowSpec(60, 10), 3) is Algorithm.REMOVE
    assert algorithm_of(every.shape, WindowSpec(60, 10), 3) is Algorithm.STACKS


def test_kinds_of_windows_are_told_apart() -> None:
    ids = {
        spec_id(WindowSpec(r, s, o)) for r in range(1, 40) for s in range(1, r + 1) for o in (0, 1)
    }
    assert len(ids) == 2 * sum(range(1, 40))
    assert 0 not in ids


def test_a_long_slide_leaves_no_drift() -> None:
    """100,000 windows of 1,000 panes, whose numbers differ by 18 orders of magnitude."""
    length, slides = 1000, 100_000
    chance = random.Random(7)
    numbers = [10 ** chance.uniform(-6, 12) for _ in range(length + slides - 1)]
    spec = WindowSpec(length, 1)
    text = f"CREATE JOB j AS SELECT sum(x) AS x FROM logs WINDOW {length} us EVERY 1 us;"
    job = sql(STREAM + text).jobs["j"]
    rows = pa.table({POSITION: pa.array(range(len(numbers)), pa.int64()), "x": numbers})
    blocks = compute(rows, "web-1", [Recipe(job.shape, job.windows)], Clocks())[0][job.shape.id]
    ends = range(length, length + slides)
    assert algorithm_of(job.shape, spec, len(ends)) is Algorithm.STACKS
    made = Consolidation(job.shape, blocks).windows(spec, ends, again=False).table()
    cell = next(c.name for c in job.shape.parts[0].cells if c.type == "DOUBLE")
    found = dict(zip(made["w"].to_pylist(), made[cell].to_pylist(), strict=True))
    exact = _exact_sums(numbers, length)
    assert exact[::5000] == [math.fsum(numbers[i : i + length]) for i in range(0, slides, 5000)]
    assert sorted(found) == list(ends)
    assert np.array([found[end] for end in ends]) == pytest.approx(np.array(exact), rel=1e-9)


def _exact_sums(numbers: Sequence[float], length: int) -> list[float]:
    """Of every window, as whole numbers: no rounding before the end."""
    scale = 2**80
    upto = [0]
    for number in numbers:
        upto.append(upto[-1] + int(Fraction(number) * scale))
    return [(high - low) / scale for low, high in zip(upto, upto[length:], strict=False)]
