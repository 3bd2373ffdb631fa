"""Blocks merge on any grid, and what came twice counts once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muntin.kernel import merge as merging
from muntin.kernel.block import Block, Sources
from muntin.kernel.clocks import Clocks
from muntin.kernel.compute import Recipe, compute
from muntin.kernel.due import Due
from muntin.kernel.finish import finish
from muntin.kernel.merge import block_of, distinct, split
from muntin.kernel.slices import finish_in_slices, merge_in_slices
from muntin.model.jobs import Job
from muntin.windows.spec import WindowSpec
from tests.kernel.test_consolidate import ALL, Record, expected, job_of, logs, table_of

SPEC = WindowSpec(24, 12)
JOB = job_of(ALL, SPEC)


def on_grid(pane: int) -> Job:
    windows = tuple(replace(spec, pane=pane) for spec in JOB.windows)
    return replace(JOB, shape=replace(JOB.shape, pane=pane), windows=windows)


def rows_of(table: pa.Table) -> set[tuple[object, ...]]:
    names = ["w", *(f"x{i}" for i in range(len(JOB.outputs)))]
    return {tuple(row[name] for name in names) for row in table.to_pylist()}


def computed(job: Job, records: Sequence[Record], sequence: int, source: str = "web-1") -> Block:
    recipe = Recipe(job.shape, job.windows)
    (table,) = compute(table_of(records), source, [recipe], Clocks())[0].values()
    return block_of(job.shape, table, Sources.of([source]), sequence, records=len(records))


@settings(max_examples=60)
@given(
    pieces=logs,
    grids=st.lists(st.sampled_from([1, 2, 4, 12]), min_size=1, max_size=5),
    now=st.sampled_from([1, 3, 12]),
    slack=st.sampled_from([None, 0, 5]),
)
def test_windows_on_all_grids_answer_the_same_from_mixed_ones(
    pieces: Sequence[tuple[bool, list[Record]]], grids: list[int], now: int, slack: int | None
) -> None:
    clocks, blocks = Clocks(slack), []
    for number, (separate, records) in enumerate(pieces):
        job = on_grid(grids[number % len(grids)])
        recipe = Recipe(job.shape, job.windows, separate)
        for table in compute(table_of(records), "web-1", [recipe], clocks)[0].values():
            blocks.append(block_of(job.shape, table))
    job, every = on_grid(now), [record for _, found in pieces for record in found]
    (spec,) = job.windows
    ends = spec.ends(sorted({record.t // now for record in every}), None, 10**6)
    wanted = expected(spec, every, ends, slack, all_=True)
    if blocks and ends:
        due = Due({"j": [ends]})
        merged = [block.table() for block in merge_in_slices(job.shape, blocks)]
        done = finish(job.shape, {"j": job}, pa.concat_tables(merged), due)
        assert rows_of(done.rows["j"]) == wanted
        (sliced,) = finish_in_slices(job.shape, {"j": job}, blocks, due)
        assert rows_of(sliced["j"]) == wanted


def test_the_same_delivery_twice_counts_once() -> None:
    first = computed(JOB, [Record(1, "a", 1, "x"), Record(2, "b", 2, "y")], 1)
    next_one = computed(JOB, [Record(1, "a", 1, "x"), Record(2, "b", 2, "y")], 2)
    elsewhere = computed(JOB, [Record(1, "a", 1, "x"), Record(2, "b", 2, "y")], 1, "web-2")
    other_group = replace(first, group=1)
    unnumbered = replace(first, sequence=None)
    every = [first, next_one, first, elsewhere, other_group, unnumbered, unnumbered]
    assert distinct(every) == [*every[:2], *every[3:]]
    (once,) = merge_in_slices(JOB.shape, [first, first])
    assert once == first
    (both,) = merge_in_slices(JOB.shape, [first, next_one, first, next_one])
    assert sum(n or 0 for n in both.table()["c0"].to_pylist()) == 4
    assert (both.records, both.sequence, both.sources.names) == (4, None, ("web-1",))
    (rows,) = finish_in_slices(JOB.shape, {"j": JOB}, [first, first], Due({"j": [[2]]}))
    (again,) = finish_in_slices(JOB.shape, {"j": JOB}, [first], Due({"j": [[2]]}))
    assert rows["j"].equals(again["j"])


def test_a_merged_block_says_what_it_is_made_of() -> None:
    one, two = (computed(JOB, [Record(t, "a", 1, "x")], t, f"web-{t}") for t in (13, 50))
    (both,) = merge_in_slices(JOB.shape, [one, two], group=3)
    assert (both.shape, both.pane, both.lower, both.upper) == (JOB.shape.id, 12, 1, 5)
    assert (both.group, both.rows, both.sources.names) == (3, 4, ("web-13", "web-50"))


@pytest.mark.parametrize("at_most", [3, 200_000])
def test_no_key_is_in_two_groups(at_most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many keys this process remembers."""
    monkeypatch.setattr(merging, "_HASHED_AT_MOST", at_most)
    records = [Record(t, f"key {t % 7}", 1, "x") for t in range(40)]
    table = computed(JOB, records, 0).table()
    groups = split(JOB.shape, table, 3)
    keys = [set(rows["k0"].to_pylist()) for rows in groups.values()]
    assert sum(map(len, keys)) == 7 == len(set.union(*keys))
    assert sum(rows.num_rows for rows in groups.values()) == table.num_rows
    assert {at: set(rows["k0"].to_pylist()) for at, rows in split(JOB.shape, table, 3).items()} == {
        at: set(rows["k0"].to_pylist()) for at, rows in groups.items()
    }
