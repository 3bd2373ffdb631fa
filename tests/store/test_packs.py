"""Rows with a checksum come back as they were, or not at all."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from muntin.errors import StateError
from muntin.store.packs import packed, read_file, unpacked

ROWS = pa.table({"k": ["a", "b", None], "n": [1, 2, 3], "l": [[1], [], [2, 3]]})


def test_rows_come_back() -> None:
    assert unpacked(packed(ROWS)).equals(ROWS)
    assert unpacked(packed(ROWS.slice(0, 0))).equals(ROWS.slice(0, 0))


def test_every_bit_counts() -> None:
    data = packed(ROWS)
    for bit in range(0, 8 * len(data), 7):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        with pytest.raises(ValueError, match="checksum"):
            unpacked(bytes(changed))
    for wrong in (b"", data[:-1], data + b"x", data + data):
        with pytest.raises(ValueError, match="checksum"):
            unpacked(wrong)


def test_a_file_is_of_either_kind(tmp_path: Path) -> None:
    with pa.ipc.new_file(tmp_path / "old.arrow", ROWS.schema) as writer:
        writer.write_table(ROWS)
    (tmp_path / "new.tape").write_bytes(packed(ROWS))
    for name in ("old.arrow", "new.tape"):
        path = tmp_path / name
        assert read_file(str(path)).equals(ROWS)
        path.write_bytes(path.read_bytes()[:-5])
        with pytest.raises(StateError, match=f"{name} is damaged"):
            read_file(str(path))
        path.unlink()
        with pytest.raises(StateError, match=f"{name} cannot be read"):
            read_file(str(path))
