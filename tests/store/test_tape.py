"""Records are there as a whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from muntin.errors import StateError
from muntin.store import tape


def test_what_was_cut_off_is_not_there(tmp_path: Path) -> None:
    path = tmp_path / "a.tape"
    first = tape.create(path, [b"one", b"1"])
    whole = tape.add(path, [b"two" * 100])
    data = path.read_bytes()
    assert len(data) == whole
    for length in range(first, whole):
        path.write_bytes(data[:length])
        assert list(tape.read(path)) == [b"one", b"1"]
        assert list(tape.read(path, first)) == [b"one", b"1"]
        with pytest.raises(StateError, match="is damaged"):
            list(tape.read(path, whole))
    for tail in (data[first:-1] + b"x", bytes(whole - first)):
        path.write_bytes(data[:first] + tail)
        assert list(tape.read(path)) == [b"one", b"1"]
    for at in range(first):  # what stands before a whole record was not cut off
        path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        with pytest.raises(StateError, match="is damaged at byte"):
            list(tape.read(path))
    path.write_bytes(b"")
    with pytest.raises(StateError, match="is damaged at byte 0"):
        list(tape.read(path))
    with pytest.raises(StateError, match=r"cannot be read: No such file"):
        list(tape.read(tmp_path / "b.tape"))


def test_after_an_error_a_file_is_as_before(tmp_path: Path) -> None:
    class Full(bytes):
        def __radd__(self, other: bytes) -> bytes:
            raise OSError(28, "No space left on device")

    path = tmp_path / "a.tape"
    tape.create(path, [b"one"])
    with pytest.raises(StateError, match="No space left"):
        tape.add(path, [b"two", Full(b"three")])
    tape.add(path, [b"four"])
    assert list(tape.read(path)) == [b"one", b"four"]
    with pytest.raises(StateError, match="cannot be written"):
        tape.create(path / "b.tape", [])


def test_records_are_had_from_where_they_begin(tmp_path: Path) -> None:
    path = tmp_path / "tape"
    end = tape.create(path, [b"one", b"three", b"five"])
    found = list(tape.places(path))
    assert [record for _, record in found] == [b"one", b"three", b"five"]
    assert found[-1][0] + tape.length(b"five") == end
    starts = [start for start, _ in found]
    assert list(tape.at(path, [starts[2], starts[0]])) == [b"five", b"one"]
    for wrong in (1, end, end + 5):
        with pytest.raises(StateError, match=f"is damaged at byte {wrong}"):
            list(tape.at(path, [wrong]))
    with pytest.raises(StateError, match="cannot be read: No such file"):
        list(tape.at(tmp_path / "none", [0]))
