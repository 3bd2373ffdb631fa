"""Spark's notes on a frame are looked at: each that Spark would refuse is found."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import pytest

from muntin.store.notes import ahead, behind, unreadable
from muntin.store.storage import LocalFolder

NOTES = {
    "metadata": '{"id":"7ac8"}',
    "offsets/0": 'v1\n{"batchWatermarkMs":0}\n{"logOffset":0}',
    "offsets/1": 'v1\n{"batchWatermarkMs":0}\n-',
    "commits/0": 'v1\n{"nextBatchWatermarkMs":0}',
    "sources/0/0": 'v1\n{"path":"file:///a","timestamp":1,"batchId":0}',
}


def with_sums(folder: Path, name: str, text: str) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    sums = b"crc\x00" + struct.pack(">iI", 512, zlib.crc32(text.encode()))
    path.with_name(f".{path.name}.crc").write_bytes(sums)


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    for name, text in NOTES.items():
        with_sums(tmp_path, name, text)
    return tmp_path


def test_notes_as_spark_writes_them_are_whole(notes: Path) -> None:
    assert list(unreadable(LocalFolder(notes))) == []


@pytest.mark.parametrize("name", NOTES)
@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (lambda text: text.replace("0", "1").replace("7", "8") + " ", "not what it was"),
        (lambda text: text[: len(text) // 2], "not what it was"),
    ],
)
def test_what_has_changed_does_not_fit_its_sums(
    notes: Path, name: str, damage: object, told: str
) -> None:
    assert callable(damage)
    (notes / name).write_text(damage(NOTES[name]))
    ((found, why),) = unreadable(LocalFolder(notes))
    assert (found, told in why) == (name, True)


@pytest.mark.parametrize(
    ("content", "told"),
    [(b"", "empty"), (b"{}", "version"), (b"v1\n{", "Expecting"), (b"v1\n\xff", "decode")],
)
def test_without_sums_notes_have_to_be_notes(notes: Path, content: bytes, told: str) -> None:
    (notes / "offsets" / ".1.crc").unlink()
    (notes / "offsets" / "1").write_bytes(content)
    ((name, why),) = unreadable(LocalFolder(notes))
    assert (name, told in why) == ("offsets/1", True)


def test_notes_and_state_go_together(notes: Path) -> None:
    there, state = LocalFolder(notes), LocalFolder(Path("state"))
    assert behind(there, state, "f", 1) is None
    assert "go up to batch 1, but the state has read batch 2" in str(behind(there, state, "f", 2))
    assert ahead(there, state, "f", 0) is None
    assert "up to 0, and the state has read none" in str(ahead(there, state, "f", -1))
