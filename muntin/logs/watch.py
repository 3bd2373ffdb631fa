"""What is there to read in the files of one stream, and how far each has been read.

Files are looked at, not into: one that looks as it did the last time is not opened. Finite
input is what the first look found, so that logs which grow meanwhile cannot keep it going.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from operator import itemgetter
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet

from muntin.errors import InputError
from muntin.logs.chunks import WorkOrder, is_gzip
from muntin.logs.files import (
    MARK_BYTES,
    FilePosition,
    Key,
    Surroundings,
    checksum,
    holds,
    last_line_end,
    mark_start,
    open_inode,
    open_marked,
)
from muntin.logs.patterns import described, path_patterns
from muntin.model import Stream

_SETTLED_SECONDS = 2.0
_FINISHED_SECONDS = 3600.0
_TICK_SECONDS = 0.1  # writes that are closer together may leave the same time of change
_GZIP_RATIO = 8


@dataclass(frozen=True)
class Unread:
    """A file with the end up to which it can be read now, in bytes or row groups."""

    file: FilePosition
    end: int
    unit_bytes: int  # about how much text one byte or row group stands for
    whole: bool  # cannot be read in parts

    @property
    def bytes(self) -> int:
        return (self.end - self.file.position) * self.unit_bytes

    def cut(self, share: int) -> int:
        """Where to stop so that about `share` bytes of text are read, but always some."""
        if self.whole:
            return self.end
        return min(self.end, self.file.position + max(1, share // self.unit_bytes))


@dataclass(frozen=True)
class _Found:
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
class _Look:
    """What was seen in a file that has looked the same since."""

    found: _Found
    since: float
    at: float
    settled: bool
    end: int
    unit_bytes: int = 1

    def still(self, f: _Found) -> bool:
        """Whether a file that looks like this one cannot have changed either."""
        return self.found == f and self.at - f.modified / 1e9 >= _TICK_SECONDS


class Watch:
    """The files of one stream."""

    def __init__(self, stream: Stream, follow: bool, positions: Iterable[FilePosition]) -> None:
        self._stream = stream
        self._patterns = path_patterns(stream.patterns)
        self._follow = follow
        self._positions = {p.key: p for p in positions}
        self._looks: dict[Key, _Look] = {}
        self._told: dict[Path, str] = {}
        self._notes: list[str] = []
        if follow and not self._positions and not self.matches():
            self._notes.append(f"{self.nothing_matches} yet; waiting for one")

    @property
    def positions(self) -> tuple[FilePosition, ...]:
        return tuple(self._positions.values())

    @property
    def touched(self) -> dict[str, float]:
        """When a file of each source was last changed, in seconds."""
        times: dict[str, float] = {}
        for look in self._looks.values():
            source, when = look.found.source, look.found.modified / 1e9
            times[source] = max(times.get(source, when), when)
        return times

    def notes(self) -> tuple[str, ...]:
        """What happened to files since this was last asked."""
        notes, self._notes = self._notes, []
        return tuple(notes)

    @property
    def nothing_matches(self) -> str:
        wanted = described(self._stream.patterns)
        return f"stream '{self._stream.name}': no file matches {wanted}"

    def matches(self) -> bool:
        """Whether any file is there at all."""
        return any(True for pattern in self._patterns for _ in pattern.find())

    def look(self, now: float) -> None:
        """Finds out what there is to read."""
        if self._looks and not self._follow:
            return
        self._forget_finished(now)
        found = self._find()
        self._identify(found)
        looks = {}
        for f in found.values():
            with self._telling(f.path):
                if f.key in self._positions:
                    looks[f.key] = self._look_into(f, now)
                    self._told.pop(f.path, None)
        self._looks = looks

    def unread(self) -> list[Unread]:
        """What the last look found and nobody was handed yet, by source, oldest first."""
        left = []
        for key, look in self._looks.items():
            file = self._positions[key]
            if look.end > file.position:
                whole = is_gzip(file.path)
                order = (file.source, look.found.modified, file.path)
                left.append((order, Unread(file, look.end, look.unit_bytes, whole)))
        return [unread for _, unread in sorted(left, key=itemgetter(0))]

    def hand_out(self, unread: Unread, end: int) -> WorkOrder | None:
        """The order to read a file up to `end`, or None if it has become unreadable."""
        file, look = unread.file, self._looks[unread.file.key]
        size = look.found.size
        mark_end = size if self._parquet else max(end, min(size, MARK_BYTES))
        with self._telling(look.found.path):
            with open_marked(look.found.path, file.mark) as bytes_:
                crc = checksum(bytes_, mark_end)
            read = replace(file, position=end, mark_end=mark_end, mark_crc=crc)
            self._positions[file.key] = read
            # Workers have other current folders.
            path = str(Path(file.path).absolute())
            name = self._stream.name
            return WorkOrder(name, file.source, path, file.position, end, mark=read.mark)
        self._looks[file.key] = replace(look, end=file.position)
        return None

    @property
    def _parquet(self) -> bool:
        return self._stream.format.kind == "parquet"

    def _find(self) -> dict[Key, _Found]:
        """Files that match, and files that did until they were renamed."""
        found: dict[Key, _Found] = {}
        for pattern in self._patterns:
            for path, source in pattern.find():
                f = _stat(path, source, True)
                if f is not None:
                    found.setdefault(f.key, f)
        near = Surroundings()
        for file in self._positions.values():
            f = _find_again(file, near) if file.key not in found else None
            if f is not None:
                found[f.key] = f
        return found

    def _forget_finished(self, now: float) -> None:
        """Lets go of files that no pattern matches any more once nobody writes them either."""
        for key, look in self._looks.items():
            finished = look.settled and look.end <= self._positions[key].position
            silent = now - look.since >= _FINISHED_SECONDS
            if finished and silent and not look.found.matched:
                del self._positions[key]

    def _identify(self, found: Mapping[Key, _Found]) -> None:
        """Gives every file its position: its own, one it inherits, or the start."""
        strange = {}
        for key, f in found.items():
            with self._telling(f.path):
                if not self._is_known(f):
                    strange[key] = f
                elif self._positions[key].path != str(f.path):
                    self._positions[key] = replace(self._positions[key], path=str(f.path))
        gone = [p for key, p in self._positions.items() if key not in found or key in strange]
        for file in gone:
            del self._positions[file.key]
        lost = [file for file in gone if file.mark_end]
        for f in strange.values():
            with self._telling(f.path):
                if f.matched:
                    self._positions[f.key] = _position(f, lost)
        self._tell_lost(lost, found)

    def _is_known(self, f: _Found) -> bool:
        known = self._positions.get(f.key)
        if known is None or (f.matched and not known.mark_end):
            return False
        look = self._looks.get(f.key)
        if look is not None and look.still(f):
            return True
        with f.open() as file:
            return holds(file, known.mark)

    def _look_into(self, f: _Found, now: float) -> _Look:
        last = self._looks.get(f.key)
        if last is not None and last.settled and last.still(f):
            return last
        since = last.since if last is not None and last.found == f else now
        position = self._positions[f.key].position
        if not self._settled(f, since, now):
            return _Look(f, since, now, False, position)
        return _Look(f, since, now, True, *self._end(f, position))

    def _settled(self, f: _Found, since: float, now: float) -> bool:
        """Files that are read as a whole have to be complete first."""
        if not self._follow or not (self._parquet or is_gzip(f.path)):
            return True
        return now - min(since, f.modified / 1e9) >= _SETTLED_SECONDS

    def _end(self, f: _Found, position: int) -> tuple[int, int]:
        """Up to where a file can be read now, and the text that each unit stands for."""
        if self._parquet:
            with f.open() as file, pyarrow.parquet.ParquetFile(file) as parquet:
                groups = parquet.num_row_groups
            return groups, max(1, f.size // max(1, groups))
        if is_gzip(f.path):
            return f.size, _GZIP_RATIO
        if not self._follow:
            return f.size, 1
        with f.open() as file:
            return last_line_end(file, position, f.size), 1

    @contextmanager
    def _telling(self, path: Path) -> Iterator[None]:
        """A file that cannot be read is told of once, or refused where the stream says FAIL."""
        try:
            yield
        except (FileNotFoundError, InputError) as error:
            # A file may be rotated away while it is looked at. The next look finds it, if any.
            if not self._follow:
                gone = InputError(f"{path} is gone")
                self._tell(path, error if isinstance(error, InputError) else gone)
        except (OSError, pa.ArrowException) as error:
            reason = getattr(error, "strerror", None) or error
            self._tell(path, InputError(f"{path} cannot be read: {reason}"))

    def _tell(self, path: Path, error: InputError) -> None:
        if self._stream.on_bad_row == "fail":
            raise error
        if self._told.get(path) != str(error):
            self._told[path] = str(error)
            self._notes.append(str(error))

    def _tell_lost(self, lost: list[FilePosition], found: Mapping[Key, _Found]) -> None:
        sources = {f.source for f in self._positions.values()}
        for file in lost:
            there = found.get(file.key)
            look = self._looks.get(file.key)
            unread = (look.end - file.position) * look.unit_bytes if look else 0
            if there is not None and str(there.path) == file.path:
                text = f"{file.path} was truncated or rewritten; reading it from the start"
                self._notes += [text] if file.position else []
            elif self._follow and unread:
                self._notes.append(f"{file.path} is gone; {unread} bytes of it were not read")
            elif self._follow and file.source not in sources:
                self._notes.append(f"{file.path} is gone; source '{file.source}' has ended")


def _stat(path: Path, source: str, matched: bool) -> _Found | None:
    try:
        stat = path.stat()
    except OSError:
        return None
    key = stat.st_dev, stat.st_ino
    return _Found(path, source, matched, key, stat.st_size, stat.st_mtime_ns)


def _find_again(file: FilePosition, near: Surroundings) -> _Found | None:
    """A file that no pattern matches any more: where it was last, or renamed near there."""
    there = _stat(Path(file.path), file.source, False)
    if there is None or there.key != file.key:
        moved = near.find(Path(file.path), file.inode, bool(file.mark_end))
        there = _stat(moved, file.source, False) if moved else None
    return there if there is not None and there.key == file.key else None


def _position(f: _Found, lost: list[FilePosition]) -> FilePosition:
    """The position of a file that is new here: the start, unless it is a lost one's copy.

    Logs are copied before they are truncated, and replaced as a whole by tools like rsync.
    """
    with f.open() as file:
        near = [o for o in lost if o.mark_end <= f.size and Path(o.path).parent == f.path.parent]
        for old in near:
            if holds(file, old.mark):
                lost.remove(old)
                return replace(old, path=str(f.path), device=f.key[0], inode=f.key[1])
        mark = mark_start(file)
    return FilePosition(f.source, str(f.path), *f.key, 0, mark.end, mark.crc)
