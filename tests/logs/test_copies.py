"""Names that rotation makes, and files that have the text of others."""

from __future__ import annotations

import gzip
import random
import zlib
from pathlib import Path

import pytest

from muntin.logs.copies import is_copy, is_one_log, is_rotated, log_of, text_holds
from muntin.logs.files import FilePosition, checksum

TEXT = "".join(f"a line of some length with a number {n}\n" for n in range(100)).encode()


@pytest.mark.parametrize(
    ("name", "log"),
    [
        ("access.log", "access.log"),
        ("access.log.1", "access.log"),
        ("access.log.12.gz", "access.log"),
        ("access.log-20260301.gz", "access.log"),
        ("access.log.2026-03-01T12:00", "access.log"),
        ("access.log.old", "access.log"),
        ("access.log~", "access.log"),
        ("web-1.log", "web-1.log"),
        ("web-1", "web"),
        ("1", "1"),
    ],
)
def test_a_file_is_part_of_a_log(name: str, log: str) -> None:
    assert log_of(f"/logs/{name}") == f"/logs/{log}"


@pytest.mark.parametrize(
    "other",
    [
        "a.log",
        "a.log.1",
        "a.log.1.gz",
        "a.log.gz",
        "a.log-20260301",
        "a-20260301.log",
        "a.1.log.gz",
    ],
)
def test_names_that_rotation_makes(other: str) -> None:
    for pair in [("a.log", other), (other, "a.log"), ("x/a.log", f"y/{other}")]:
        assert is_one_log(*pair)


@pytest.mark.parametrize(
    ("name", "other"),
    [("web-1.log", "web-2.log"), ("web-1.log", "web-10.log"), ("a.log", "ab.log"), ("a", "b")],
)
def test_names_of_different_logs(name: str, other: str) -> None:
    assert not is_one_log(name, other)


def known(path: Path, position: int) -> FilePosition:
    with path.open("rb") as file:
        crc = checksum(file, position)
    head = TEXT[:256]
    return FilePosition("a", str(path), 1, 1, position, position, crc, 256, zlib.crc32(head))


@pytest.mark.parametrize("position", [1000, len(TEXT)])
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_copy_holds_what_was_read(tmp_path: Path, position: int, pack: type[bytes]) -> None:
    log, copy = tmp_path / "a.log", tmp_path / f"b{'' if pack is bytes else '.gz'}"
    log.write_bytes(TEXT)
    for text, same in [
        (TEXT, True),
        (TEXT + b"more\n", True),
        # First bytes and length tell whether all of a compressed file was read.
        (TEXT[:-5] + b"other", position == 1000 or pack is not bytes),
        (TEXT[:900], False),
        (b"", False),
    ]:
        copy.write_bytes(pack(text))
        assert text_holds(copy, known(log, position)) == same


@pytest.mark.parametrize("cut", [9, 60, 200])
def test_a_damaged_copy_that_ends_before_what_was_read_holds_it(tmp_path: Path, cut: int) -> None:
    """Seed 17-3 of `make faults`: such a copy was taken for a new log, and read once more."""
    log, copy = tmp_path / "a.log", tmp_path / "a.log.1.gz"
    chance = random.Random(1)
    text = TEXT[:256] + b"".join(b"%d\n" % chance.getrandbits(60) for _ in range(300))
    log.write_bytes(text)
    packed = gzip.compress(text)
    copy.write_bytes(packed[:-cut])
    assert text_holds(copy, known(log, len(text)))
    copy.write_bytes(gzip.compress(b"other" + text)[:-cut])
    assert not text_holds(copy, known(log, len(text)))


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_all_of_a_copy_is_in_its_original(tmp_path: Path, pack: type[bytes]) -> None:
    log, copy = tmp_path / "a.log", tmp_path / f"b{'' if pack is bytes else '.gz'}"
    log.write_bytes(TEXT)
    for text, same in [
        (TEXT, True),
        (TEXT[:900], True),
        (TEXT[:10], True),
        (TEXT + b"more\n", False),
        (TEXT[:899] + b"!", False),
        (b"", False),
    ]:
        copy.write_bytes(pack(text))
        assert is_copy(copy, log) == same


@pytest.mark.parametrize(
    ("name", "log", "rotated"),
    [
        ("a.log.1", "a.log", True),
        ("a.log.2.gz", "a.log", True),
        ("a.log-20260301", "a.log", True),
        ("a-2026-03-01T12:00.log", "a.log", True),
        ("a.log.old", "a.log", True),
        ("a.log", "a.log", False),
        ("a-debug.log", "a.log", False),
        ("a.log.bak", "a.log", False),
        ("web-2.log", "web-1.log", False),
        ("web-1.log.3", "web-1.log", True),
        ("b.log.1", "a.log", False),
    ],
)
def test_names_that_rotation_gives(name: str, log: str, rotated: bool) -> None:
    assert is_rotated(f"/x/{name}", f"/x/{log}") is rotated
