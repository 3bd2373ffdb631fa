"""Positions whose files are gone, or have other bytes now: who goes on for them, and what is lost.

Logs are copied before they are truncated, renamed and compressed, replaced as a whole by tools like
rsync. Whoever has the bytes of such a file goes on where that was read. What nobody has is lost.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from muntin.fidelity.losses import Loss
from muntin.fidelity.score import NEVER
from muntin.logs.copies import is_all_read, is_one_log, log_of, text_holds
from muntin.logs.files import (
    FilePosition,
    Key,
    Surroundings,
    first_print,
    place_of_last,
    prints,
    written_until,
)
from muntin.logs.gunzip import is_gzip
from muntin.logs.sightings import Sighting, sight

_REMEMBERED_SECONDS = 3600.0  # in which a file that is gone may come back, or a copy of it


@dataclass(frozen=True)
class Orphan:
    """A position without its file, and how many bytes were seen there and not read.

    `blind`: nobody was looking, so that more may have been written before it went. `cut`: the file
    is still there, with other bytes.
    """

    file: FilePosition
    left: int
    blind: bool
    cut: bool

    @property
    def may_lose(self) -> bool:
        return self.left > 0 or self.blind

    def lost(self, now: float, replaced: bool) -> Loss | None:
        """What is lost if nobody has its bytes; `replaced` if its log goes on in another file."""
        if not self.may_lose:
            return None
        file = self.file
        why = "was truncated" if self.cut else "is gone" if self.left else "was not found again"
        begun = file.position or file.skip
        ends_now = self.left or replaced
        upper = int(now * 1e6) + 1 if ends_now else written_until(file.modified // 1000)
        return Loss(
            file.source,
            file.path,
            why,
            log_of(file.path),
            self.left or None,
            file.since if begun else NEVER,
            upper,
        )


class Orphans:
    """Those that wait for somebody who has their bytes."""

    def __init__(self) -> None:
        self._waiting: dict[Key, Orphan] = {}
        self._over: list[tuple[float, FilePosition]] = []  # nobody had them, and since when
        self._searched: set[tuple[Key, Key]] = set()  # for whom a file was searched in vain

    def __iter__(self) -> Iterator[Orphan]:
        return iter(list(self._waiting.values()))

    def __contains__(self, key: Key) -> bool:
        return key in self._waiting

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, orphan: Orphan) -> None:
        self._waiting[orphan.file.key] = orphan

    def give_up(self, orphan: Orphan, now: float) -> None:
        """Nobody has it; but it may come back, or a compressed copy of it from elsewhere."""
        del self._waiting[orphan.file.key]
        self._searched = {pair for pair in self._searched if pair[0] in self._waiting}
        self._over = [(at, file) for at, file in self._over if now - at < _REMEMBERED_SECONDS]
        self._over.append((now, orphan.file))

    def adopt(self, orphan: Orphan, f: Sighting) -> FilePosition:
        """The position at which a file goes on for one whose bytes it has."""
        del self._waiting[orphan.file.key]
        return inherited(f, orphan.file)

    def adopt_edited(self, orphan: Orphan, f: Sighting) -> FilePosition | None:
        """The position in a file of the same name that has its last lines in another place."""
        key = orphan.file.key, f.key
        if str(f.path) != orphan.file.path or key in self._searched:
            return None
        with f.open() as file:
            place = place_of_last(file, orphan.file)
            if place is None:
                self._searched.add(key)
                return None
            known = prints(file, place)
        return replace(self.adopt(orphan, f), position=place, print_end=place, **known._asdict())

    def had_name_of(self, f: Sighting, now: float) -> FilePosition | None:
        """The one whose name a file has, if that has been gone for an hour at most."""
        gone = (file for at, file in self._over if now - at < _REMEMBERED_SECONDS)
        known = [*gone, *(orphan.file for orphan in self._waiting.values())]
        return next((file for file in reversed(known) if file.path == str(f.path)), None)

    def adopt_late(self, f: Sighting, now: float) -> FilePosition | None:
        """The position at which one goes on that was given up: it was away, or is compressed."""
        for at, file in self._over:
            if now - at < _REMEMBERED_SECONDS and _is_back(f, file):
                self._over.remove((at, file))
                return inherited(f, file)
        return None


def _is_back(f: Sighting, file: FilePosition) -> bool:
    """Whether a file is one that was given up, or what has become of it."""
    if is_gzip(f.path) > is_gzip(file.path):
        return has_bytes_of(f, file)
    known_by_lines = file.last_size > 0 and str(f.path) == file.path
    return known_by_lines and has_bytes_of(f, file)


def found_near(
    file: FilePosition, known: Collection[Key], near: Surroundings
) -> Iterator[Sighting]:
    """Files that no pattern matches, beside one that is gone: they may have its bytes."""
    for path in near.around(Path(file.path)):
        f = sight(path, file.source, False) if is_one_log(path, file.path) else None
        if f is not None and f.key not in known:
            yield f


def has_bytes_of(f: Sighting, file: FilePosition) -> bool:
    """Whether a file near another one has all of that which was read."""
    is_near = f.source == file.source or f.path.parent == Path(file.path).parent
    return is_near and text_holds(f.path, file)


def inherited(f: Sighting, old: FilePosition) -> FilePosition:
    """The position of a file that has the text of another one, which was read so far."""
    here = replace(old, path=str(f.path), device=f.key[0], inode=f.key[1], original=0)
    if is_gzip(f.path) == is_gzip(old.path):
        return here
    with f.open() as file:
        known = first_print(file)
    over = is_all_read(f.path, old)
    return replace(
        here,
        position=f.size if over else 0,
        skip=0 if over else old.position,
        print_end=known.end,
        print_crc=known.crc,
        last_size=0,
        last_hash="",
        seen=f.size,
        modified=f.modified,
    )
