"""Whatever is inserted, flushed and emptied with whatever limits, a tree is a plain aggregate."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from muntin.agent.buffers import Buffers
from muntin.agent.tree import BufferTree
from muntin.kernel.clocks import Clocks
from muntin.kernel.compute import Recipe, compute
from muntin.kernel.kinds import kind_of
from muntin.kernel.merge import merge
from muntin.language.program import sql
from muntin.model.records import POSITION
from tests.effort import examples

STREAM = "CREATE STREAM logs (t DOUBLE, k VARCHAR, n BIGINT) FROM 'x' FORMAT json TIMESTAMP t;"
COUNTS = "CREATE JOB j AS SELECT k, count(*) AS c FROM logs GROUP BY k WINDOW 1 MINUTE"
SHAPE = sql(f"{STREAM}{COUNTS};").jobs["j"].shape
Rows = Sequence[tuple[int, str | None, int]]  # pane, key and count


def block(rows: Rows) -> pa.Table:
    panes, keys, counts = zip(*rows, strict=True) if rows else ((), (), ())
    none = [None] * len(rows)
    fields = [("pane", pa.int64()), ("spec", pa.int32()), ("not_before", pa.int64()),
              ("part", pa.int8()), ("k0", pa.string()), ("c0", pa.int64())]  # fmt: skip
    columns = [panes, [0] * len(rows), none, [0] * len(rows), keys, counts]
    return pa.table(list(map(list, columns)), schema=pa.schema(fields))


def counted(tables: Sequence[pa.Table]) -> Counter[tuple[int, str | None]]:
    """The rows by pane and key, each of which has to be there once."""
    found: Counter[tuple[int, str | None]] = Counter()
    for table in tables:
        columns = (table[name].to_pylist() for name in ("pane", "k0", "c0"))
        for pane, key, count in zip(*columns, strict=True):
            assert (pane, key) not in found
            found[pane, key] = count
    return found


class Beside:
    """A tree, and what should be in it."""

    def __init__(self, folder: Path, limit: int, full: int, children: int) -> None:
        self.folder = folder / "open"
        self.buffers = Buffers(limit, self.folder)
        by = kind_of(SHAPE).alike
        self.tree = BufferTree(partial(merge, SHAPE), by, self.buffers, full, children)
        self.expected: Counter[tuple[int, str | None]] = Counter()

    def insert(self, rows: Rows) -> None:
        once = {(pane, key): count for pane, key, count in rows}
        self.tree.insert(block([(*place, count) for place, count in once.items()]))
        self.expected.update(once)

    def flush(self) -> None:
        assert counted(list(self.tree.flush())) == self.expected

    def empty(self) -> None:
        self.tree.empty()
        self.expected.clear()
        assert self.buffers.held == 0
        assert not list(self.folder.glob("*"))


keys = st.one_of(st.none(), st.sampled_from("ab"), st.integers(0, 200).map(str))
rows = st.lists(st.tuples(st.integers(-1, 1), keys, st.integers(1, 9)), max_size=30)
Happening = Callable[[Beside], None]
happenings = st.one_of(
    rows.map(lambda some: lambda beside: beside.insert(some)),
    st.lists(rows, max_size=20).map(lambda many: lambda beside: [*map(beside.insert, many)]),
    st.just(Beside.flush),
    st.just(Beside.empty),
)


@examples(80)
@given(
    st.lists(happenings, max_size=12),
    st.sampled_from([0, 500, 5_000, 1 << 30]),
    st.sampled_from([1, 100, 2_000, 1 << 20]),
    st.sampled_from([2, 3, 16]),
)
def test_a_tree_is_a_plain_aggregate(
    happen: list[Happening], limit: int, full: int, children: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        beside = Beside(Path(folder), limit, full, children)
        for happening in happen:
            happening(beside)
            assert beside.buffers.held <= limit
        beside.flush()
        beside.flush()  # it is kept
        beside.empty()
        beside.flush()


def test_few_rows_are_a_list_of_tables(tmp_path: Path) -> None:
    merged = []

    def merging(tables: Sequence[pa.Table]) -> pa.Table:
        merged.append([table.num_rows for table in tables])
        return merge(SHAPE, tables)

    buffers = Buffers(1 << 30, tmp_path)
    tree = BufferTree(merging, kind_of(SHAPE).alike, buffers)
    tree.insert(block([(0, str(i), 1) for i in range(1000)]))
    for i in range(40):
        tree.insert(block([(1, str(i), 1)]))
    (whole,) = tree.flush()
    assert whole.num_rows == 1040
    # What is large is not merged again for the sake of few rows, until all is asked for.
    assert all(1000 not in sizes for sizes in merged[:-1])
    assert len(merged) == 3


def test_hot_keys_stay_in_the_root(tmp_path: Path) -> None:
    """Where merging leaves few rows, nothing is passed on."""
    beside = Beside(tmp_path, 1 << 30, 10_000, 4)
    for _ in range(100):
        beside.insert([(0, str(i), 1) for i in range(50)])
    (whole,) = beside.tree.flush()
    assert whole.num_rows == 50


def test_a_tree_of_many_keys_takes_a_part_of_their_bytes(tmp_path: Path) -> None:
    rows = 200_000
    buffers = Buffers(1 << 40, tmp_path)
    by = kind_of(SHAPE).alike
    tree = BufferTree(partial(merge, SHAPE), by, buffers, full=1 << 20)
    ids = np.random.default_rng(1).permutation(rows)
    for some in np.array_split(ids, 20):
        tree.insert(block([(0, f"product-{i:08}", 1) for i in some.tolist()]))
    parts = list(tree.flush())
    assert sum(part.num_rows for part in parts) == rows
    assert max(part.nbytes for part in parts) <= 1 << 20
    assert buffers.held < sum(part.nbytes for part in parts) / 3
    tree.empty()
    assert buffers.held == 0


@pytest.mark.parametrize(
    "text",
    [
        "SELECT count(DISTINCT k) AS c FROM logs WINDOW 20 us",
        "SELECT k, count(DISTINCT n) AS c, sum(n) AS s FROM logs GROUP BY k WINDOW 20 us",
        "SELECT count(*) AS c FROM logs WINDOW 2 us",
        "SELECT n % 20 / -3 AS x, max(k) AS c FROM logs GROUP BY x WINDOW 20 us",
        "SELECT k, count(*) AS c FROM logs GROUP BY k WINDOW SESSION 9 us",
        "SELECT count(*) AS c FROM logs WINDOW SESSION 4 us",
        "PYTHON 'tests.python_jobs:Spread' FROM logs WINDOW 20 us",
    ],
)
def test_rows_of_every_kind_of_job_meet(tmp_path: Path, text: str) -> None:
    """Those that merge have equal hashes, whatever makes rows of a shape alike."""
    job = sql(f"{STREAM}CREATE JOB j AS {text};").jobs["j"]
    kind, random = kind_of(job.shape), np.random.default_rng(1)
    blocks: list[pa.Table] = []
    for times in np.sort(random.integers(0, 1000, 2000)).reshape(20, 100):
        numbers = random.integers(-99, 99, 100)
        names = [f"key {n}" for n in random.integers(0, 30, 100).tolist()]
        records = pa.table(
            {"t": times / 1e6, "k": names, "n": numbers, POSITION: times, "source": ["web"] * 100}
        )
        blocks += compute(records, "web", [Recipe(job.shape, job.windows)], Clocks())[0].values()
    buffers = Buffers(1 << 30, tmp_path)
    tree = BufferTree(kind.merge, kind.alike, buffers, full=2_000, children=3)
    for each in blocks:
        tree.insert(each)
    found, expected = pa.concat_tables(tree.flush()), kind.merge(blocks)
    assert sorted(map(repr, found.to_pylist())) == sorted(map(repr, expected.to_pylist()))
