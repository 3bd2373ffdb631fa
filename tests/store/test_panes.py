"""Files of panes: each row is in one of them, and small ones become large ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

import muntin as mt
from muntin.errors import StateError
from muntin.kernel.block import Block
from muntin.kernel.merge import block_of
from muntin.model.shapes import Shape
from muntin.run.past import Past
from muntin.store.blocks import BlockFiles
from muntin.store.panes import FOLDER, PIECE_ROWS, PaneFiles, Piece, pieces_of, store
from muntin.store.settling import Settling
from muntin.store.storage import LocalFolder

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
        for pane in files.read(name)["pane"].to_pylist():
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


def test_old_files_and_those_of_nobody_go(tmp_path: Path, shape: Shape) -> None:
    files, past = PaneFiles(LocalFolder(tmp_path)), Past(MINUTE, 0, 5 * MINUTE, 5 * MINUTE)
    keep(files, {shape.id: past}, shape, [block_of(shape, rows(range(5)))])
    past.began = 6 * MINUTE
    keep(files, {shape.id: past}, shape, [])
    assert not files.files
    keep(files, {}, shape, [])
    assert not files.moved


def test_pieces_tell_what_is_in_them(tmp_path: Path) -> None:
    (name,) = store(LocalFolder(tmp_path), "s", MINUTE, rows(range(3), PIECE_ROWS))
    index = pieces_of(pa.ipc.open_file(tmp_path / FOLDER / name))
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
    with pytest.raises(StateError, match=f"{name} is damaged"):
        files.read(name)
