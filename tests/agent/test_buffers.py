"""Buffers give back what was put, within the limit, and leave no file behind."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from muntin.agent.buffers import Buffer, Buffers
from muntin.errors import StateError


def table(rows: int) -> pa.Table:
    return pa.table({"n": np.arange(rows)})


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*"))


def test_tables_stay_as_they_are_while_there_is_room(tmp_path: Path) -> None:
    buffers = Buffers(1 << 20, tmp_path / "open")
    one, two = buffers.put(table(100)), buffers.put(table(100), packed=True)
    assert isinstance(one.content, pa.Table)
    assert isinstance(two.content, bytes)
    assert buffers.held == 800 + len(two.content)
    assert (two.rows, two.size) == (100, 800)
    assert buffers.read(one) == buffers.read(two) == table(100)
    assert not (tmp_path / "open").exists()


def test_over_the_limit_the_largest_are_compressed_and_then_written(tmp_path: Path) -> None:
    buffers = Buffers(40_000, tmp_path / "open")
    small, large = buffers.put(table(100)), buffers.put(table(10_000))
    assert isinstance(small.content, pa.Table)
    assert isinstance(large.content, bytes)
    more = [buffers.put(table(10_000 + i)) for i in range(9)]
    assert buffers.held <= 40_000
    assert isinstance(small.content, pa.Table)
    assert any(isinstance(each.content, Path) for each in more)
    assert [buffers.read(each) for each in more] == [table(10_000 + i) for i in range(9)]


def test_files_go_with_their_buffers(tmp_path: Path) -> None:
    buffers = Buffers(0, tmp_path / "open")
    one, two = buffers.put(table(1)), buffers.put(table(2))
    assert buffers.held == 0
    assert files(tmp_path / "open") == ["1", "2"]
    buffers.drop([one])
    assert files(tmp_path / "open") == ["2"]
    assert buffers.read(two) == table(2)
    Buffers(0, tmp_path / "open")  # of the next process, after this one was killed
    assert not (tmp_path / "open").exists()


def test_a_folder_that_cannot_be_used_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StateError, match=r"cannot be written to .*file/open/1: Not a directory"):
        Buffers(0, tmp_path / "file" / "open").put(table(1))
    buffers = Buffers(0, tmp_path / "open")
    buffer: Buffer = buffers.put(table(1))
    (tmp_path / "open" / "1").write_bytes(b"damaged")
    with pytest.raises(StateError, match=r"open/1 cannot be read again: "):
        buffers.read(buffer)
    (tmp_path / "open" / "1").unlink()
    with pytest.raises(StateError, match=r"open/1 cannot be read again: No such file"):
        buffers.read(buffer)
