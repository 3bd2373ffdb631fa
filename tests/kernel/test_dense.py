"""The matrix takes what it can take, whole or in chunks, and leaves the rest to SQL."""

from __future__ import annotations

from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muntin.kernel import dense
from muntin.kernel.clocks import Clocks
from muntin.kernel.compute import Recipe, compute
from muntin.kernel.dense import NotDenseError, Top, dense_windows
from muntin.kernel.kinds import kind_of
from muntin.windows.spec import WindowSpec
from tests.kernel.test_consolidate import Record, job_of, table_of

SPEC = WindowSpec(5, 1)
RECORDS = [Record(t, "ab"[t % 2], None if t % 5 == 0 else t, "x") for t in range(12)]


def windows(columns: str, records: pa.Table) -> list[dict[str, Any]]:
    job = job_of(columns, SPEC)
    blocks, _ = compute(records, "web", [Recipe(job.shape, job.windows)], Clocks(None))
    (block,) = blocks.values()
    found = dense_windows(job.shape, block, job.windows[0], range(1, 17), exact=False)
    return sorted(found.to_pylist(), key=lambda row: (row["w"], row["k0"]))


def by_hand(w: int, key: str) -> list[Record]:
    return [r for r in RECORDS if w - SPEC.length <= r.t < w and r.k == key]


SUMS = "count(*) AS c, sum(n) AS n, sum(x) AS x, min(x) AS low, max(n) AS high"


@pytest.mark.parametrize("cells_at_once", [1, 20, 4_000_000])
def test_windows_equal_adding_up(cells_at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dense, "_CELLS_AT_ONCE", cells_at_once)
    found = windows(SUMS, table_of(RECORDS))
    pairs = [(w, k) for w in range(1, 17) for k in "ab" if by_hand(w, k)]
    assert [(row["w"], row["k0"]) for row in found] == pairs
    for row in found:
        records = by_hand(row["w"], row["k0"])
        n, x = [r.n for r in records if r.n is not None], [r.x for r in records if r.x is not None]
        cells = [len(records), sum(n), sum(x), min(x), max(n)] if n else [len(records)] + 4 * [None]
        assert [row[f"c{i}"] for i in range(5)] == cells


@pytest.mark.parametrize(
    ("columns", "change"),
    [
        ("count(*) AS c, min(s) AS low", {}),  # text
        ("count(*) AS c, sum(n) AS n", {"n": 2**62}),  # sums that might not fit
        ("count(*) AS c, max(x) AS x", {"x": float("nan")}),
        ("approx_count_distinct(s) AS d", {}),  # registers are not counted
    ],
)
def test_what_no_matrix_can_hold_is_left_to_sql(columns: str, change: dict[str, Any]) -> None:
    records = table_of(RECORDS)
    for name, value in change.items():
        column = records.column_names.index(name)
        values = pa.array([value] * len(RECORDS), records.schema.field(name).type)
        records = records.set_column(column, name, values)
    with pytest.raises(NotDenseError):
        windows(columns, records)


def test_few_rows_in_many_panes_are_left_to_sql() -> None:
    records = [Record(1000 * t, f"key {t}", t, "x") for t in range(70)]
    with pytest.raises(NotDenseError):
        windows("count(*) AS c", table_of(records))


RECORD = st.tuples(st.integers(0, 12), st.sampled_from("abcdefg"), st.none() | st.integers(-3, 3))


@given(
    st.lists(RECORD, min_size=1, max_size=60),
    st.integers(1, 4),
    st.booleans(),
    st.sampled_from([1, 30, 4_000_000]),
    st.sampled_from(["c0", "c1"]),
    st.sampled_from([1, 2, 64]),
    st.sampled_from([-3, 0]),
)
@settings(deadline=None)
def test_the_first_rows_are_among_those_of_the_top(
    records: list[tuple[int, str, int | None]],
    limit: int,
    largest: bool,
    at_once: int,
    cell: str,
    stretches: int,
    lowest: int,
) -> None:
    """With ties and unknown sums: what is left out is behind the last that is asked for."""
    job = job_of("count(*) AS c, sum(n) AS n", SPEC)
    numbers = [None if n is None else max(n, lowest) for _, _, n in records]
    given_ = table_of([Record(t, k, n, "x") for (t, k, _), n in zip(records, numbers, strict=True)])
    blocks, _ = compute(given_, "web", [Recipe(job.shape, job.windows)], Clocks(None))
    (block,) = blocks.values()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dense, "_CELLS_AT_ONCE", at_once)
        patch.setattr(dense, "_STRETCHES", stretches)
        ask = partial(dense_windows, job.shape, block, job.windows[0], range(1, 18), exact=True)
        every, top = ask().to_pylist(), ask(top=Top(cell, limit, largest)).to_pylist()
    for w in range(1, 18):
        rows = [row for row in every if row["w"] == w]
        rows.sort(key=lambda row: (row[cell] is None, (row[cell] or 0) * (-1 if largest else 1)))
        kept = [row for row in top if row["w"] == w]
        assert all(row in rows for row in kept)
        values = [row[cell] for row in rows[:limit]]
        assert all(row in kept for row in rows if row[cell] in values)


@given(
    st.lists(RECORD, min_size=1, max_size=80),
    st.integers(1, 3),
    st.booleans(),
    st.sampled_from(["c0", "c1", "c2", "c3"]),
)
@settings(deadline=None)
def test_the_first_rows_of_panes_are_among_those_that_may_be(
    records: list[tuple[int, str, int | None]], limit: int, largest: bool, cell: str
) -> None:
    """Of blocks that are not merged yet, with ties and unknown numbers."""
    job = job_of("count(*) AS c, sum(n) AS n, max(n) AS m, sum(x) AS x", WindowSpec(4, 4))
    given_ = [table_of([Record(t, k, n, "x")]) for t, k, n in records]
    recipe = Recipe(job.shape, job.windows)
    made = [compute(each, "web", [recipe], Clocks(None))[0][job.shape.id] for each in given_]
    block = pa.concat_tables(made)
    some = dense.only_first(job.shape, block, Top(cell, limit, largest))
    merge = kind_of(job.shape).merge
    every = merge([block, block.slice(0, 0)]).to_pylist()
    kept = merge([some, some.slice(0, 0)]).to_pylist()
    assert all(row in every for row in kept)  # keys are there as a whole, or not at all
    for pane in {row["pane"] for row in every}:
        rows = [row for row in every if row["pane"] == pane]
        rows.sort(key=lambda row: (row[cell] is None, (row[cell] or 0) * (-1 if largest else 1)))
        values = [row[cell] for row in rows[:limit]]
        assert all(row in kept for row in rows if row[cell] in values)


def test_large_numbers_long_ago_do_not_hide_the_first_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Running sums of real numbers have lost what is small beside them."""
    monkeypatch.setattr(dense, "_STRETCHES", 2)
    job = job_of("count(*) AS c, sum(x) AS x", SPEC)
    values = {("a", 0): 1e18, ("a", 10): 0.01, ("b", 10): 0.02, ("c", 10): 0.03, ("d", 10): 0.001}
    records = table_of([Record(t, k, 1, "x") for k, t in values])
    at = records.column_names.index("x")
    records = records.set_column(at, "x", pa.array(list(values.values())))
    blocks, _ = compute(records, "web", [Recipe(job.shape, job.windows)], Clocks(None))
    (block,) = blocks.values()
    found = dense_windows(
        job.shape, block, job.windows[0], range(1, 17), exact=False, top=Top("c1", 2, True)
    )
    last = {row["k0"] for row in found.to_pylist() if row["w"] == 11}
    assert last >= {"b", "c"}
