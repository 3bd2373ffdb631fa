"""Records are there as a whole or not at all, wherever a file was cut or damaged."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muntin.errors import StateError
from muntin.store.tape import add, create, read

records = st.lists(st.binary(max_size=20), min_size=1, max_size=5)


@given(first=records, more=st.lists(records, max_size=3))
def test_what_was_added_is_read_in_order(first: list[bytes], more: list[list[bytes]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "new" / "tape"
        length = create(path, first)
        for part in more:
            assert list(read(path, length))  # a reader that knows of less sees less
            length = add(path, part)
        together = [*first, *(record for part in more for record in part)]
        assert list(read(path)) == list(read(path, length)) == together
        assert [each.name for each in path.parent.iterdir()] == ["tape"]


@given(written=records, data=st.data())
def test_a_file_that_was_cut_has_its_whole_records(
    written: list[bytes], data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tape"
        length = create(path, written)
        cut = data.draw(st.integers(0, length - 1))
        path.write_bytes(path.read_bytes()[:cut])
        found = list(read(path))
        assert found == written[: len(found)]
        with pytest.raises(StateError, match=r"tape is damaged at byte [\d,]+; use another"):
            list(read(path, length))


def test_a_changed_byte_is_met(tmp_path: Path) -> None:
    length = create(tmp_path / "tape", [b"one", b"two", b"three"])
    data = bytearray((tmp_path / "tape").read_bytes())
    data[data.index(b"two")] ^= 1
    (tmp_path / "tape").write_bytes(data)
    assert list(read(tmp_path / "tape")) == [b"one"]
    with pytest.raises(StateError, match="damaged"):
        list(read(tmp_path / "tape", length))


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(StateError, match="none cannot be read: No such file"):
        list(read(tmp_path / "none"))
    with pytest.raises(StateError, match="cannot be written: Is a directory"):
        add(tmp_path, [b"x"])
