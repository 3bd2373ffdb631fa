"""Panes that settle: shares have every row once, however work is cut, done and repeated."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import muntin as mt
from muntin.errors import StateError
from muntin.kernel.block import Block, Sources
from muntin.kernel.merge import block_of
from muntin.run.past import Past
from muntin.store import tape
from muntin.store.blocks import BlockFiles
from muntin.store.panes import FOLDER, PaneFiles
from muntin.store.settling import Settling, here, shares_of
from muntin.store.storage import LocalFolder
from tests.effort import examples
from tests.store.test_panes import MINUTE

T = TypeVar("T")
U = TypeVar("U")
SHAPE = (
    mt.sql(
        "CREATE STREAM s (t BIGINT, k VARCHAR) FROM '*.log' FORMAT json TIMESTAMP t; "
        "CREATE JOB j AS SELECT k, count(*) AS c FROM s GROUP BY k WINDOW 1 MINUTE RETAIN 1 DAY;"
    )
    .jobs["j"]
    .shape
)
Counted = dict[tuple[int, str], int]


def block(counted: Mapping[tuple[int, str], int], sequence: int | None = None) -> Block:
    rows = pa.table(
        {
            "pane": pa.array([pane for pane, _ in counted], pa.int64()),
            "spec": pa.array([0] * len(counted), pa.int32()),
            "not_before": pa.nulls(len(counted), pa.int64()),
            "part": pa.array([0] * len(counted), pa.int8()),
            "k0": pa.array([key for _, key in counted], pa.string()),
            "c0": pa.array(list(counted.values()), pa.int64()),
        }
    )
    return block_of(SHAPE, rows, Sources.of(["web"]), sequence)


def saved(folder: Path, files: Sequence[Sequence[Block]]) -> BlockFiles:
    empty = BlockFiles(LocalFolder(folder))
    return replace(empty, lengths=dict(empty.write(blocks) for blocks in files))


def found_in(panes: PaneFiles) -> Counted:
    """What files have, of which each pane and key has one row."""
    found: Counted = {}
    for name in panes.files:
        for row in pa.concat_tables(panes.pieces(name)).to_pylist():
            assert (row["pane"], row["k0"]) not in found
            found[row["pane"], row["k0"]] = row["c0"]
    return found


def twice(do: Callable[[T], U], items: Sequence[T], size: int) -> list[U]:
    """What Spark may do: everything once more, where one of both is heard."""
    here(do, items, size)
    return here(do, items, size)


blocks = st.lists(
    st.dictionaries(
        st.tuples(st.integers(0, 12), st.sampled_from("abcdefg")), st.integers(1, 9), min_size=1
    ),
    min_size=1,
    max_size=6,
)


@examples(10)
@given(
    files=st.lists(blocks, min_size=1, max_size=4),
    steps=st.lists(st.integers(0, 14), max_size=3),
    most=st.sampled_from([500, 3000, 1 << 20]),
)
def test_every_pane_and_key_moves_once(
    files: list[list[Counted]], steps: list[int], most: int
) -> None:
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        patch.setattr("muntin.store.settling.SHARE_BYTES", most)
        folder = Path(name)
        panes = PaneFiles(LocalFolder(folder))
        settling, held = Settling(panes, twice), list[list[Block]]()
        truth: Counted = {}
        settled = 0
        for number, some in enumerate(files):
            upto = sorted(steps)[number] if number < len(steps) else settled
            for counted in some:  # nothing comes to a pane that has settled
                for (pane, key), n in counted.items():
                    if pane >= settled:
                        truth[pane, key] = truth.get((pane, key), 0) + n
            held.append([block({k: n for k, n in c.items() if k[0] >= settled}) for c in some])
            written = replace(saved(folder, held[-1:]), lengths=_lengths(folder))
            settled = max(settled, upto)
            past = Past(MINUTE, 0, settled * MINUTE, 1 << 40)
            settling.keep({SHAPE.id: past}, {SHAPE.id: SHAPE}, written)
            assert found_in(panes) == {k: n for k, n in truth.items() if k[0] < settled}
        strays = {f"{FOLDER}/{name}" for name in panes.folder.names(FOLDER)} - {
            f"{FOLDER}/{name}" for name in panes.files
        }
        assert strays == {*panes.strays()}
        assert bool(strays) == bool(panes.files)


def _lengths(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_size for path in sorted(folder.glob("*.tape"))}


def test_deliveries_that_came_twice_count_once(tmp_path: Path) -> None:
    one, other = block({(0, "a"): 1, (3, "b"): 2}, 7), block({(0, "a"): 5}, 8)
    written = saved(tmp_path, [[one, other], [one]])
    panes = PaneFiles(LocalFolder(tmp_path))
    past = {SHAPE.id: Past(MINUTE, 0, 4 * MINUTE, 4 * MINUTE)}
    Settling(panes).keep(past, {SHAPE.id: SHAPE}, written)
    assert found_in(panes) == {(0, "a"): 6, (3, "b"): 2}


def test_shares_are_of_about_one_size_and_a_large_pane_is_cut_by_keys(tmp_path: Path) -> None:
    even = block({(pane, f"k{n}"): 1 for pane in range(100) for n in range(50)})
    large = block({(200, f"key {n}"): 1 for n in range(20_000)})
    written = saved(tmp_path, [[even], [large]])
    places = [place for name in written.lengths for place in written.placed(name, [SHAPE.id])]
    most = max(place.size for place in places) // 4 + 1
    shares = shares_of(SHAPE, places, 0, 300 * MINUTE, most)
    bounds = sorted({(share.lower, share.upper) for share in shares})
    assert bounds[0][0] == 0
    assert bounds[-1][1] == 300 * MINUTE
    assert all(end == start for (_, end), (start, _) in pairwise(bounds))
    assert {share.parts for share in shares if share.upper > 200 * MINUTE} == {2}
    assert all(share.lower % MINUTE == 0 for share in shares)
    nothing = shares_of(SHAPE, places, 120 * MINUTE, 150 * MINUTE, most)
    assert nothing == []


def test_what_was_looked_at_is_not_looked_at_again(tmp_path: Path) -> None:
    looked: list[int] = []  # where

    def told(do: Callable[[T], U], items: Sequence[T], size: int) -> list[U]:
        looked.extend(item[1] for item in items if isinstance(item, tuple))
        return here(do, items, size)

    panes = PaneFiles(LocalFolder(tmp_path))
    settling = Settling(panes, told)
    folder = LocalFolder(tmp_path)
    folder.put("one.tape", b"")
    for minute in range(1, 5):
        length = folder.append("one.tape", _framed(block({(minute, "a"): minute})))
        written = BlockFiles(folder, {"one.tape": length})
        past = {SHAPE.id: Past(MINUTE, 0, (minute + 1) * MINUTE, 1 << 40)}
        settling.keep(past, {SHAPE.id: SHAPE}, written)
    assert looked == sorted({*looked})
    assert len(looked) == 4
    assert found_in(panes) == {(minute, "a"): minute for minute in range(1, 5)}


def _framed(one: Block) -> bytes:
    return tape.framed([one.encode()])


def test_a_damaged_block_is_named_and_nothing_has_moved(tmp_path: Path) -> None:
    written = saved(tmp_path, [[block({(0, f"key {n}"): 1 for n in range(5000)})]])
    (name,) = written.lengths
    path = tmp_path / name
    data = bytearray(path.read_bytes())
    for at in (5, len(data) - 10):
        broken = bytes([*data[:at], data[at] ^ 255, *data[at + 1 :]])
        path.write_bytes(broken)
        panes = PaneFiles(LocalFolder(tmp_path))
        past = {SHAPE.id: Past(MINUTE, 0, MINUTE, MINUTE)}
        with pytest.raises(StateError, match=f"{name}.* is damaged"):
            Settling(panes).keep(past, {SHAPE.id: SHAPE}, written)
        assert not panes.moved
        assert not panes.files
