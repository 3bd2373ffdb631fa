"""Rows of partitions: cut and joined, none lost; as bytes and back; chosen and grouped by key."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from muntin.collections.keys import ByHash, ByRange, Selection
from muntin.collections.rows import (
    Part,
    Size,
    by_step,
    cogrouped,
    cut,
    joined,
    of_pairs,
    packed,
    size_of,
    unpacked,
)

PAIRS = st.lists(st.tuples(st.integers(0, 9), st.text(max_size=3)), max_size=20)


@given(PAIRS, st.sampled_from([ByHash(4), ByRange((3, 6))]))
def test_rows_are_cut_and_joined(pairs: list[tuple[int, str]], partitioner: Any) -> None:
    table = of_pairs(pairs, pa.int64(), "x")
    parts = dict(cut(table, table.column("key"), partitioner))
    for number, rows in parts.items():
        assert rows.num_rows
        assert set(partitioner.of(rows.column("key")).tolist()) == {number}
    if parts:
        assert sorted(map(str, joined(list(parts.values())).to_pylist())) == sorted(
            map(str, table.to_pylist())
        )
    else:
        assert not pairs


@given(PAIRS)
def test_packs_say_whose_they_are(pairs: list[tuple[int, str]]) -> None:
    part = Part(-5, 7, of_pairs(pairs, pa.int64(), "x"))
    pack = packed(part)
    assert unpacked(pack) == part
    assert size_of(pack) == (7, Size(len(pairs), len(pack)))


@given(st.dictionaries(st.integers(0, 3), PAIRS), st.none() | st.sets(st.integers(0, 9)))
def test_cogroups_are_those_of_dictionaries(
    steps: dict[int, list[tuple[int, str]]], keys: set[int] | None
) -> None:
    packs = []
    for step, pairs in steps.items():
        table = of_pairs(pairs, pa.int64(), "x")
        parts = cut(table, table.column("key"), ByHash(3))
        packs += [packed(Part(step, n, rows)) for n, rows in parts]
    order = sorted(steps)
    selection = Selection(None if keys is None else tuple(keys))
    expected: dict[int, tuple[list[str], ...]] = defaultdict(lambda: tuple([] for _ in order))
    for at, step in enumerate(order):
        for key, value in steps[step]:
            if keys is None or key in keys:
                expected[key][at].append(value)
    found = dict(cogrouped(by_step(packs, "key", selection), order, "key", True))
    assert found == expected


def test_rows_of_frames_are_dictionaries() -> None:
    table = pa.table({"user": ["a", "b"], "n": [1, 2]})
    found = cogrouped({0: table}, [0, 1], "user", False)
    assert dict(found) == {"a": ([{"user": "a", "n": 1}], []), "b": ([{"user": "b", "n": 2}], [])}
