"""An answer in slices is the same answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from muntin.fidelity.score import Only
from muntin.kernel import slices
from muntin.kernel.clocks import Clocks
from muntin.kernel.compute import Recipe, compute
from muntin.kernel.due import Due
from muntin.kernel.finish import finish
from muntin.kernel.merge import block_of, merge
from muntin.language.program import sql
from muntin.windows.spec import WindowSpec
from tests.effort import examples
from tests.kernel.test_consolidate import STREAM, Record, logs, table_of

JOBS = sql(
    STREAM + "CREATE JOB several AS SELECT k, count(*) AS c, sum(n) AS n, min(s) AS s FROM logs "
    "GROUP BY k WINDOW 1 MICROSECOND, 6 MICROSECONDS EVERY 2 MICROSECONDS, 12 MICROSECONDS;"
    "CREATE JOB same AS SELECT k, count(*) AS c, sum(n) AS n, min(s) AS s FROM logs "
    "GROUP BY k WINDOW 20 MICROSECONDS EVERY 1 MICROSECOND;"
    "CREATE JOB other AS SELECT max(n) AS n FROM logs WINDOW 3 MICROSECONDS;"
).jobs


def ends(spec: WindowSpec) -> st.SearchStrategy[list[int]]:
    panes = st.lists(st.integers(-40, 320), max_size=40)
    return panes.map(lambda found: sorted({spec.first_end(pane) for pane in found}))


def test_a_block_without_rows_and_one_of_long_ago_do_not_matter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(slices, "ROWS_AT_ONCE", 1000)
    shape = JOBS["other"].shape
    recipe = Recipe(shape, JOBS["other"].windows)
    log = [Record(t, "x", t, "a") for t in (-(10**12), *range(0, 30_000, 3))]
    (block,) = compute(table_of(log), "web-1", [recipe], Clocks())[0].values()
    blocks = [block_of(shape, block), block_of(shape, block.slice(0, 0))]
    sizes = [made.rows for made in slices.merge_in_slices(shape, [*blocks, blocks[1]])]
    assert sum(sizes) == 10_001
    assert max(sizes) < 1300
    assert slices.merge_in_slices(shape, blocks[1:]) == []


def rows(found: Iterable[dict[str, pa.Table]]) -> Counter[Any]:
    return Counter(
        (name, *row.items())
        for tables in found
        for name, table in tables.items()
        for row in table.to_pylist()
    )


@examples(60)
@given(pieces=logs, slack=st.sampled_from([None, 0, 5]), data=st.data())
def test_slices_of_any_size(
    pieces: Sequence[tuple[bool, list[Record]]],
    slack: int | None,
    data: st.DataObject,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(slices, "ROWS_AT_ONCE", data.draw(st.integers(1, 60)))
    clocks = Clocks(slack)
    for shape in {job.shape for job in JOBS.values()}:
        windows = {w for job in JOBS.values() if job.shape == shape for w in job.windows}
        blocks = [
            compute(table_of(found), "web-1", [Recipe(shape, tuple(windows), alone)], clocks)[0]
            for alone, found in pieces
        ]
        tables = [block[shape.id] for block in blocks if shape.id in block]
        kinds = {n: [data.draw(ends(w)) for w in job.windows] for n, job in JOBS.items()}
        mine = [kinds[name] for name, job in JOBS.items() if job.shape == shape]
        if not tables or not any(kind for of_job in mine for kind in of_job):
            continue
        due = Due({name: of_job for name, of_job in kinds.items() if any(of_job)})
        if kinds["several"][1]:
            only = Only(panes=tuple(range(-5, 9)))
            due = replace(due, only={("several", 1, kinds["several"][1][0]): only})
        packed = [block_of(shape, table) for table in tables]
        found = slices.finish_in_slices(shape, JOBS, packed, due)
        whole = finish(shape, JOBS, pa.concat_tables(tables), due).rows
        assert rows(found) == rows([whole])
        merged = slices.merge_in_slices(shape, packed)
        assert rows({"": block.table()} for block in merged) == rows([{"": merge(shape, tables)}])
