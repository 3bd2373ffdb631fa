"""Files of panes: each row is in one of them, and small ones become large ones."""

from __future__ import annotations

import json
import pickle
import tempfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import muntin as mt
from muntin.errors import StateError
from muntin.kernel.block import Block
from muntin.kernel.merge import block_of
from muntin.model.shapes import Shape
from muntin.run.past import Past
from muntin.store.blocks import BlockFiles
from muntin.store.panes import (
    FOLDER,
    PIECE_ROWS,
    PaneFile,
    PaneFiles,
    Piece,
    merged,
    store,
)
from muntin.store.settling import Settling
from muntin.store.storage import LocalFolder
from tests.effort import examples

JOB = """CREATE STREAM s (t BIGINT, k VARCHAR) FROM '{folder}/*.log' FORMAT json TIMESTAMP t;
CREATE JOB j AS SELECT k, count(*) AS c FROM s GROUP BY k WINDOW 1 MINUTE RETAIN 1 DAY;"""
MINUTE = 60_000_000


@pytest.fixture
def shape(tmp_path: Path) -> Shape:
    return mt.sql(JOB.format(folder=tmp_path)).jobs["j"].shape


def rows(panes: range, keys: int = 3) -> pa.Table:
    many = [(pane, f"k{key}") for pane in panes for key in range(keys)]
    return pa.table(
        {
            "pane": pa.array([pane for pane, _ in many], pa.int64()),
            "spec": pa.array([0] * len(many), pa.int32()),
            "not_before": pa.nulls(len(many), pa.int64()),
            "part": pa.array([0] * len(many), pa.int8()),
            "k0": [key for _, key in many],
            "c0": pa.array([1] * len(many), pa.int64()),
        }
    )


def keep(files: PaneFiles, past: Mapping[str, Past], shape: Shape, blocks: list[Block]) -> None:
    saved = BlockFiles(files.folder)
    name, length = saved.write(blocks)
    saved = replace(saved, lengths={name: length})
    Settling(files).keep(past, {shape.id: shape}, saved)


def counted(files: PaneFiles, shape: Shape) -> dict[int, int]:
    """How many rows each pane has in all files."""
    found: dict[int, int] = {}
    for name in files.of(shape.id, 0, 1 << 60):
        for piece in files.pieces(name):
            for pane in piece["pane"].to_pylist():
                found[pane] = found.get(pane, 0) + 1
    return found


def test_panes_move_once_and_files_are_merged(tmp_path: Path, shape: Shape) -> None:
    files, past = PaneFiles(LocalFolder(tmp_path)), Past(MINUTE, 0, 0, 0)
    blocks: list[Block] = []
    for step in range(20):
        blocks.append(block_of(shape, rows(range(step, step + 2))))
        past.settled = past.until = (step + 1) * MINUTE
        keep(files, {shape.id: past}, shape, blocks)
        while files.many:
            files.merge()
        assert files.moved[shape.id] == past.settled
    assert counted(files, shape) == dict.fromkeys(range(20), 3)
    assert len(files.files) < 8
    (tmp_path / FOLDER / "stray.arrow").touch()
    assert f"{FOLDER}/stray.arrow" in files.strays()
    assert not {f"{FOLDER}/{name}" for name in files.files} & {*files.strays()}


def test_what_is_not_kept_any_longer_does_not_grow(
    tmp_path: Path, shape: Shape, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files that become one again and again always end with what is newest."""
    monkeypatch.setattr("muntin.store.panes.PIECE_ROWS", 12)  # four panes
    files, past = PaneFiles(LocalFolder(tmp_path)), Past(MINUTE, 0, 0, 0)
    for step in range(200):
        past.settled = past.until = (step + 1) * MINUTE
        past.began = max(0, step - 10) * MINUTE
        keep(files, {shape.id: past}, shape, [block_of(shape, rows(range(step, step + 1)))])
        while files.many:
            files.merge()
        told = counted(files, shape)
        assert all(told[pane] == 3 for pane in range(max(0, step - 10), step + 1))
        assert len(told) < 40


def test_keys_of_any_size_are_merged(tmp_path: Path) -> None:
    folder, files = LocalFolder(tmp_path), dict[str, PaneFile]()
    for number in range(9):
        keys = pa.array([2**63 + number, number], pa.uint64())
        table = pa.table({"pane": pa.array([number, number]), "k0": keys})
        files |= store(folder, "s", MINUTE, table)
    made, damaged = merged(folder, files)
    (told,) = made.values()
    assert (told.rows, damaged) == (18, {})
    with PaneFiles(folder, made).opened(next(iter(made))) as opened:
        (piece,) = opened.index
    assert (piece.least, piece.most) == (0, 2**63 + 8)


def test_files_of_which_nothing_is_kept_go_when_they_would_become_one(tmp_path: Path) -> None:
    files = PaneFiles(LocalFolder(tmp_path))
    for number in range(9):
        table = pa.table({"pane": pa.array([number]), "k0": ["x"]})
        files.add(store(files.folder, "s", MINUTE, table))
    files.began = {"s": 9 * MINUTE}
    assert files.merge() == []
    assert files.files == {}


def test_a_damaged_file_is_told_and_stays(tmp_path: Path, shape: Shape) -> None:
    files, past = PaneFiles(LocalFolder(tmp_path)), Past(MINUTE, 0, 0, 0)
    for step in range(9):
        past.settled = past.until = (step + 1) * MINUTE
        keep(files, {shape.id: past}, shape, [block_of(shape, rows(range(step, step + 1)))])
    damaged = next(iter(files.files))
    (tmp_path / FOLDER / damaged).write_bytes(b"nothing of ours")
    (note,) = files.merge()
    assert f"{damaged} is damaged" in note
    assert "put back" in note
    assert damaged in files.files
    assert len(files.files) == 2
    assert not files.many
    assert files.merge() == []


@examples(20)
@given(
    several=st.lists(
        st.lists(st.tuples(st.integers(0, 9), st.sampled_from([*"abcdeé", None])), min_size=1),
        min_size=1,
        max_size=6,
    ),
    most=st.integers(1, 12),
)
def test_merged_files_have_all_rows_and_tell_of_them(
    several: list[list[tuple[int, str | None]]], most: int
) -> None:
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        patch.setattr("muntin.store.panes.PIECE_ROWS", most)
        folder, files = LocalFolder(Path(name)), dict[str, PaneFile]()
        for some in several:
            files |= store(folder, "s", MINUTE, _table(some))
        made, damaged = merged(folder, files)
        assert not damaged
        ((name, told),) = made.items()
        panes = [pane for some in several for pane, _ in some]
        assert (told.lower, told.upper) == (min(panes) * MINUTE, (max(panes) + 1) * MINUTE)
        assert told.rows == len(panes)
        kept, found = PaneFiles(folder, made), []
        with kept.opened(name) as opened:
            index = opened.index
        for piece, table in zip(index, kept.pieces(name), strict=True):
            rows = [(r["pane"], r["k0"]) for r in table.to_pylist()]
            assert len(rows) == piece.rows <= most
            inside = [pane for pane, _ in rows]
            assert (min(inside), max(inside) + 1) == (piece.lower, piece.upper)
            keys = [key for _, key in rows if key is not None]
            bounds = (min(keys), max(keys)) if len(keys) == len(rows) else (None, None)
            assert (piece.least, piece.most) == bounds
            found += rows
        assert Counter(found) == Counter(row for some in several for row in some)


def _table(some: list[tuple[int, str | None]]) -> pa.Table:
    return pa.table(
        {
            "pane": pa.array([pane for pane, _ in some], pa.int64()),
            "k0": pa.array([key for _, key in some], pa.string()),
        }
    )


def test_a_file_that_is_damaged_within_stays_and_the_others_become_one(
    tmp_path: Path, shape: Shape
) -> None:
    folder, files = LocalFolder(tmp_path), dict[str, PaneFile]()
    for step in range(3):
        files |= store(folder, shape.id, MINUTE, rows(range(step, step + 1), 30_000))
    first, broken, last = files
    path = tmp_path / FOLDER / broken
    data = path.read_bytes()
    middle = len(data) // 2
    path.write_bytes(data[:middle] + bytes(20_000) + data[middle + 20_000 :])
    made, damaged = merged(folder, files)
    assert [*damaged] == [broken]
    ((name, told),) = made.items()
    assert told.rows == files[first].rows + files[last].rows
    PaneFiles(folder, made).verify(name)
    assert {*folder.names(FOLDER)} == {*files, name}  # and nothing half-written


def test_old_files_and_those_of_nobody_go(tmp_path: Path, shape: Shape) -> None:
    files, past = PaneFiles(LocalFolder(tmp_path)), Past(MINUTE, 0, 5 * MINUTE, 5 * MINUTE)
    keep(files, {shape.id: past}, shape, [block_of(shape, rows(range(5)))])
    past.began = 6 * MINUTE
    keep(files, {shape.id: past}, shape, [])
    assert not files.files
    keep(files, {}, shape, [])
    assert not files.moved


def test_pieces_tell_what_is_in_them(tmp_path: Path) -> None:
    made = store(LocalFolder(tmp_path), "s", MINUTE, rows(range(3), PIECE_ROWS))
    with PaneFiles(LocalFolder(tmp_path), made).opened(next(iter(made))) as opened:
        index = opened.index
    assert [piece.rows for piece in index] == [PIECE_ROWS] * 3
    assert [(piece.lower, piece.upper) for piece in index] == [(0, 1), (1, 2), (2, 3)]
    assert Piece(1, 0, 5, "b", "d").has(2, 3, {"a", "c"})
    assert not Piece(1, 0, 5, "b", "d").has(2, 3, {"a", "é"})
    assert not Piece(1, 0, 5).has(5, 9, None)
    assert Piece(1, 0, 5).has(4, 9, {"x"})


def test_a_damaged_file_is_named(tmp_path: Path, shape: Shape) -> None:
    files, past = PaneFiles(LocalFolder(tmp_path)), Past(MINUTE, 0, MINUTE, MINUTE)
    keep(files, {shape.id: past}, shape, [block_of(shape, rows(range(1)))])
    (name,) = files.files
    (tmp_path / FOLDER / name).write_bytes(b"nothing")
    with pytest.raises(StateError, match=f"{name} is damaged.*until a copy of it is put back"):
        files.verify(name)


def test_every_bit_of_a_file_is_told_when_it_changes(tmp_path: Path) -> None:
    folder = LocalFolder(tmp_path)
    files = PaneFiles(folder, store(folder, "s", MINUTE, rows(range(2), 4)))
    (name,) = files.files
    path = tmp_path / FOLDER / name
    data = path.read_bytes()
    files.verify(name)
    for bit in range(0, 8 * len(data), 13):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        path.write_bytes(changed)
        with pytest.raises(StateError, match=f"{name} is damaged") as refused:
            list(files.pieces(name))
        assert str(pickle.loads(pickle.dumps(refused.value))) == str(refused.value)
    path.write_bytes(data + b"more")
    with pytest.raises(StateError, match=f"{name} is damaged: 8 rows in"):
        files.verify(name)


def test_files_of_earlier_versions_are_read_and_become_new_ones(tmp_path: Path) -> None:
    folder, files = LocalFolder(tmp_path), dict[str, PaneFile]()
    (tmp_path / FOLDER).mkdir()
    for number in range(3):
        table = rows(range(number, number + 1))
        index = json.dumps([[3, number, number + 1, "k0", "k2"]]).encode()
        schema = table.schema.with_metadata({b"muntin": index})
        path = tmp_path / FOLDER / f"s-{number}.arrow"
        with pa.ipc.new_file(path, schema) as writer:
            writer.write_table(table)
        size = path.stat().st_size
        files[path.name] = PaneFile("s", MINUTE, number * MINUTE, (number + 1) * MINUTE, 3, size)
    old = PaneFiles(folder, files)
    for name in files:
        old.verify(name)
    made, damaged = merged(folder, files)
    ((name, told),) = made.items()
    assert (damaged, told.rows, told.index > 0) == ({}, 9, True)
    (piece,) = PaneFiles(folder, made).pieces(name)
    assert piece["pane"].to_pylist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    path = tmp_path / FOLDER / "s-0.arrow"
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(StateError, match="is damaged"):
        old.verify("s-0.arrow")
