"""Windows that are due one after another, each made of what the one before left for it."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from muntin.kernel import consolidate
from muntin.kernel.clocks import Clocks
from muntin.kernel.compute import Recipe, compute
from muntin.kernel.consolidate import Consolidation, overlaps
from muntin.kernel.due import Due, Emitted
from muntin.kernel.finish import completed, finish
from muntin.kernel.kinds import kind_of
from muntin.kernel.merge import merge
from muntin.windows.shelf import Shelf
from muntin.windows.spec import WindowSpec
from tests.effort import examples
from tests.kernel.test_consolidate import (
    ALL,
    SPECS,
    SUMS,
    Record,
    expected,
    job_of,
    records,
    table_of,
)

OVERLAPPING = [spec for spec in SPECS if overlaps(spec)]


@examples(60)
@given(
    spec=st.sampled_from(OVERLAPPING),
    log=st.lists(records, max_size=60),
    after_all=st.lists(st.tuples(st.integers(0, 40), records), max_size=3),
    all_=st.booleans(),
)
def test_every_window_is_right(
    spec: WindowSpec, log: list[Record], after_all: list[tuple[int, Record]], all_: bool
) -> None:
    """Some records come when windows that should have had them are gone."""
    job = job_of(ALL if all_ else SUMS, spec)
    shape, shelf = job.shape, Shelf[pa.Table]()
    every = [*log, *(record for _, record in after_all)]
    ends = spec.ends(sorted({record.t // spec.pane for record in every}), None, 10**6)
    kept: list[pa.Table] = []
    known: list[Record] = []
    for number, end in enumerate(ends):
        low, high = (ends[number - 1] if number else -(10**9)), end
        new = [r for r in log if low <= r.t // spec.pane < high]
        new += [r for at, r in after_all if at == number and r.t // spec.pane < high]
        known += new
        if new:
            blocks, reading = compute(
                table_of(new), "web-1", [Recipe(shape, job.windows)], Clocks()
            )
            kept += blocks.values()
            shelf.drop_touched({shape.id: shape}, reading.tallies)
        if kept:
            block = merge(shape, kept)
            useful = [(c.spec, c.rows) for c in shelf.useful({shape.id: [spec]})]
            done = finish(shape, {"j": job}, block, Due({"j": [[end]]}, more=True), useful)
            rows = done.rows["j"]
            shelf.put(completed(shape.id, done.made))
            names = ["w", *(f"x{i}" for i in range(len(job.outputs)))]
            found = {tuple(row[name] for name in names) for row in rows.to_pylist()}
            assert found == expected(spec, known, [end], None, all_)
            emitted = Emitted({spec: end})
            shelf.drop_before({shape.id: emitted.oldest_pane})
            kept = [kind_of(shape).without(block, emitted)]


@pytest.mark.parametrize(("columns", "most"), [(SUMS, 2), (ALL, 30)])
def test_a_window_of_many_panes_is_made_of_few_pieces(columns: str, most: int) -> None:
    spec = WindowSpec(100, 1)
    job = job_of(columns, spec)
    log = table_of([Record(t, "x", 1, "a") for t in range(300)])
    (block,) = compute(log, "web-1", [Recipe(job.shape, job.windows)], Clocks())[0].values()
    made: list[tuple[WindowSpec, pa.Table]] = []
    for end in range(100, 250):
        consolidation = Consolidation(job.shape, block, known=made)
        consolidation.windows(spec, [end], again=False, ahead=True)
        made += consolidation.fresh
        assert consolidation.merges.tiles <= (most if end > 100 else 200)


def test_small_windows_do_not_look_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consolidate, "WORTH_LOOKING_AHEAD", 1000)
    job = job_of(SUMS, WindowSpec(20, 1))
    log = table_of([Record(t, "x", 1, "a") for t in range(30)])
    (block,) = compute(log, "web-1", [Recipe(job.shape, job.windows)], Clocks())[0].values()
    consolidation = Consolidation(job.shape, block)
    consolidation.windows(job.windows[0], [20], again=False, ahead=True)
    assert consolidation.fresh == []
