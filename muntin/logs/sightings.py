"""Files as they look from outside, and what was seen in those that look the same since."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from muntin.logs.files import FilePosition, Key, Prints, Surroundings, is_absence, open_inode

_TICK_SECONDS = 0.1  # writes that are closer together may leave the same time of change


@dataclass(frozen=True)
class Sighting:
    """A file as it looks from outside; `matched` by a pattern, or renamed so that none does."""

    path: Path
    source: str
    matched: bool
    key: Key
    size: int
    modified: int

    def open(self) -> BinaryIO:
        return open_inode(self.path, self.key[1])


@dataclass(frozen=True)
class Look:
    """What was seen in a file that has looked the same since."""

    sighting: Sighting
    since: float
    at: float
    settled: bool
    end: int
    unit_bytes: int = 1
    prints: Prints | None = None  # of the bytes before the end

    def still(self, f: Sighting) -> bool:
        """Whether a file that looks like this one cannot have changed either."""
        same = self.sighting is f or self.sighting == f
        return same and self.at - f.modified / 1e9 >= _TICK_SECONDS


def times(looks: Iterable[Look]) -> dict[str, float]:
    """When a file of each source was last changed, in seconds."""
    changed: dict[str, float] = {}
    for look in looks:
        source, when = look.sighting.source, look.sighting.modified / 1e9
        changed[source] = max(changed.get(source, when), when)
    return changed


def sight(
    path: Path | str, source: str, matched: bool, known: Mapping[Key, Sighting] | None = None
) -> Sighting | None:
    """A file as it looks now, the very value that is `known` if it looks the same."""
    try:
        stat = os.stat(path)  # noqa: PTH116
    except OSError:
        return None
    key, now = (stat.st_dev, stat.st_ino), (stat.st_size, stat.st_mtime_ns)
    old = known.get(key) if known is not None else None
    looks = *now, source, matched, str(path)
    if old is not None and looks == (
        old.size,
        old.modified,
        old.source,
        old.matched,
        str(old.path),
    ):
        return old
    return Sighting(Path(path), source, matched, key, *now)


def refusal(path: Path | str) -> str | None:
    """Why a file that is perhaps there cannot be looked at; None if it can, or is not there."""
    try:
        os.stat(path)  # noqa: PTH116
    except OSError as error:
        return None if is_absence(error) else error.strerror or str(error)
    return None


def find_again(file: FilePosition, near: Surroundings) -> Sighting | None:
    """A file that no pattern matches any more: where it was last, or renamed near there."""
    there = sight(Path(file.path), file.source, False)
    if there is None or there.key != file.key:
        moved = near.find(Path(file.path), file.inode, bool(file.print_end))
        there = sight(moved, file.source, False) if moved else None
    return there if there is not None and there.key == file.key else None
