"""Files that are kept open tell how large they were when their names were removed."""

from __future__ import annotations

import os
from pathlib import Path

from muntin.logs.held import Held
from muntin.logs.sightings import Sighting, sight


def seen(path: Path) -> Sighting:
    found = sight(path, "web", True)
    assert found is not None
    return found


def written(path: Path, at: int = 1000) -> Sighting:
    path.write_bytes(b"a line\n")
    os.utime(path, (at, at))
    return seen(path)


def open_files() -> set[str]:
    return {str(link.readlink()) for link in Path("/proc/self/fd").iterdir() if link.is_symlink()}


def test_a_file_without_a_name_has_its_last_size(tmp_path: Path) -> None:
    held, log = Held(), tmp_path / "a.log"
    f = written(log)
    held.keep(f)
    assert held.last_size(f.key) is None  # it is still there, and may grow
    with log.open("ab") as file:
        file.write(b"more\n")
        log.rename(tmp_path / "b.log")
        assert held.last_size(f.key) is None
        (tmp_path / "b.log").unlink()
    assert held.last_size(f.key) == len(b"a line\nmore\n")


def test_a_file_that_is_not_held_tells_nothing(tmp_path: Path) -> None:
    held, log = Held(), tmp_path / "a.log"
    f = written(log)
    held.keep(f)
    held.let_go(f.key)
    log.unlink()
    assert held.last_size(f.key) is None


def test_a_file_that_was_replaced_meanwhile_is_not_held(tmp_path: Path) -> None:
    held, log = Held(), tmp_path / "a.log"
    f = written(log)
    log.rename(tmp_path / "old.log")
    written(log)
    held.keep(f)
    log.unlink()
    (tmp_path / "old.log").unlink()
    assert held.last_size(f.key) is None


def test_those_that_were_written_last_are_kept(tmp_path: Path) -> None:
    held = Held(most=2)
    files = [written(tmp_path / f"{n}.log", at=1000 + n) for n in (2, 1, 3)]
    for f in files:
        held.keep(f)
    for f in files:
        f.path.unlink()
    assert [held.last_size(f.key) for f in files] == [7, None, 7]


def test_files_are_closed_with_their_holder(tmp_path: Path) -> None:
    held, log = Held(), tmp_path / "a.log"
    held.keep(written(log))
    assert str(log) in open_files()
    del held
    assert str(log) not in open_files()
