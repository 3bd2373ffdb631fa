"""What is there to read in the files of one stream, and how far each has been read.

Files are looked at, not into: one that looks as it did the last time is not opened. Finite
input is what the first look found, so that logs which grow meanwhile cannot keep it going.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from operator import itemgetter
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet

from muntin.errors import InputError
from muntin.logs.chunks import WorkOrder, is_gzip
from muntin.logs.events import Events
from muntin.logs.files import (
    PRINT_BYTES,
    FilePosition,
    Key,
    Surroundings,
    checksum,
    first_print,
    holds,
    last_line_end,
    open_inode,
    open_same,
)
from muntin.logs.folders import Folders
from muntin.logs.patterns import Walk, described, path_patterns
from muntin.model import Stream

_SETTLED_SECONDS = 2.0
_FINISHED_SECONDS = 3600.0
_TICK_SECONDS = 0.1  # writes that are closer together may leave the same time of change
_GZIP_RATIO = 8
_ALL_SECONDS = 10.0  # after which files are looked at whether or not events tell of them


@dataclass(frozen=True)
class Unread:
    """A file with the end up to which it can be read now, in bytes or row groups."""

    file: FilePosition
    end: int
    unit_bytes: int  # about how much text one byte or row group stands for
    whole: bool  # can only be read at once

    @property
    def bytes(self) -> int:
        return (self.end - self.file.position) * self.unit_bytes

    def cut(self, share: int) -> int:
        """Where to stop so that about `share` bytes of text are read, but always some."""
        if self.whole:
            return self.end
        return min(self.end, self.file.position + max(1, share // self.unit_bytes))


@dataclass(frozen=True)
class _Sighting:
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

    sighting: _Sighting
    since: float
    at: float
    settled: bool
    end: int
    unit_bytes: int = 1
    crc: int | None = None  # of the bytes before the end

    def still(self, f: _Sighting) -> bool:
        """Whether a file that looks like this one cannot have changed either."""
        same = self.sighting is f or self.sighting == f
        return same and self.at - f.modified / 1e9 >= _TICK_SECONDS


class Watch:
    """The files of one stream.

    With events, a look is at the files that they tell of, and at all files every few seconds.
    Without, it is always at all.
    """

    def __init__(
        self,
        stream: Stream,
        follow: bool,
        positions: Iterable[FilePosition],
        events: Events | None = None,
    ) -> None:
        self._stream = stream
        self._patterns = path_patterns(stream.patterns, stream.source)
        self._follow = follow
        self._positions = {p.key: p for p in positions}
        self._sightings: dict[Key, _Sighting] = {}
        self._keys: dict[str, Key] = {}  # of the files there are, by path
        self._looks: dict[Key, _Look] = {}
        self._unread: set[Key] = set()  # of which there is more than was handed out
        self._unsettled: set[Key] = set()  # may be read later, whether or not they change
        self._renamed: set[Key] = set()  # so that no pattern matches them
        self._touched: dict[str, float] = {}
        self._ends: dict[Key, tuple[_Sighting, int, int]] = {}  # seen when a file was identified
        self._told: dict[Path, str] = {}
        self._notes: list[str] = []
        self._folders = Folders(self._patterns, events) if follow and events is not None else None
        self._looked_at: float | None = None  # when all files were looked at
        self.quiet = False  # whether the last look has seen no change at all
        if follow and not self._positions and not self.matches():
            self._notes.append(f"{self.nothing_matches} yet; waiting for one")

    @property
    def positions(self) -> tuple[FilePosition, ...]:
        return tuple(self._positions.values())

    @property
    def touched(self) -> Mapping[str, float]:
        """When a file of each source was last changed, in seconds."""
        return dict(self._touched)

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

    def look(self, now: float, thorough: bool = False) -> None:
        """Finds out what there is to read, looking at all files where that has to be sure."""
        if self._looks and not self._follow:
            return
        names = None if self._folders is None else self._folders.changed()
        last = self._looked_at
        if thorough or names is None or last is None or not 0 <= now - last < _ALL_SECONDS:
            self._look_at_all(now, names)
        else:
            self._look_at(names, now)

    def _look_at_all(self, now: float, names: Collection[str] | None) -> None:
        """Looks at all files there are, of which those with the given names are known to change."""
        self.quiet = False
        self._forget_finished(now)
        walks = [pattern.walk() for pattern in self._patterns]
        sightings = self._find(walks)
        if self._folders is not None:
            trouble = None
            if names is not None:
                trouble = self._folders.expect(self._grown(sightings) - set(names))
            unmatched = [str(f.path) for f in sightings.values() if not f.matched]
            trouble = trouble or self._folders.follow(walks, unmatched)
            if trouble is not None:
                self._folders.close()
                self._folders = None
                text = f"{trouble}; all files are looked at every time instead"
                self._notes.append(f"stream '{self._stream.name}': {text}")
        self._looked_at, self._sightings = now, sightings
        self._keys = {str(f.path): key for key, f in sightings.items()}
        changed = {key: f for key, f in sightings.items() if not self._is_as_before(f)}
        gone = (self._positions.keys() | self._looks.keys()) - sightings.keys()
        self._take(changed, changed.keys() | gone, now)
        self._touched = _times(self._looks.values())

    def _is_as_before(self, f: _Sighting) -> bool:
        """Whether there is nothing more to know of a file than there was."""
        look = self._looks.get(f.key)
        return look is not None and look.settled and look.still(f) and f.key in self._positions

    def _grown(self, sightings: Mapping[Key, _Sighting]) -> set[str]:
        """The files that are not as they were when they were last looked at."""
        pairs = ((self._sightings.get(key), f) for key, f in sightings.items())
        changed = ((old, f) for old, f in pairs if old is not None and old is not f)
        return {str(f.path) for old, f in changed if old.path == f.path and old != f}

    def _look_at(self, names: Collection[str], now: float) -> None:
        """Looks at the files with these names, and at those that had not settled."""
        keys = {key for name in names if (key := self._keys.get(name)) is not None}
        for key in keys & self._looks.keys():  # whatever it looks like from outside
            self._looks[key] = replace(self._looks[key], at=0.0)
        keys |= self._forget_finished(now) | self._unsettled
        self.quiet = not names and not keys
        if self.quiet:
            return
        sightings: dict[Key, _Sighting] = {}
        for name in sorted(names):
            f = self._find_one(name)
            if f is not None:
                other = self._sightings.get(f.key)  # the same file by another name
                if other is None or f.key in keys or not other.matched:
                    sightings.setdefault(f.key, f)
        near = Surroundings()
        for key in keys - sightings.keys():
            old = self._sightings.get(key)  # none, if it was gone at the last look
            f = None
            if old is not None and (old.matched or key in self._positions):
                f = _stat(old.path, old.source, old.matched)
            if (f is None or f.key != key) and key in self._positions:
                f = _find_again(self._positions[key], near)
            if f is not None and f.key == key:
                sightings[key] = f
        gone = keys - sightings.keys()
        for key in keys & self._sightings.keys():
            old = self._sightings.pop(key)
            if self._keys.get(str(old.path)) == key:
                del self._keys[str(old.path)]
        self._sightings |= sightings
        self._keys |= {str(f.path): key for key, f in sightings.items()}
        self._take(sightings, keys | sightings.keys(), now)
        if self._folders is not None:
            self._folders.know(str(f.path) for f in sightings.values())
        if gone:
            self._touched = _times(self._looks.values())
        for source, at in _times(self._looks[k] for k in sightings if k in self._looks).items():
            self._touched[source] = max(at, self._touched.get(source, at))

    def _find_one(self, name: str) -> _Sighting | None:
        known = self._sightings.get(self._keys.get(name, (-1, -1)))
        if known is not None and known.matched:
            f = _stat(name, known.source, True, self._sightings)
            if f is not None and f.key == known.key:
                return f
        path = Path(name)
        sources = (pattern.source_of(path) for pattern in self._patterns)
        source = next((source for source in sources if source is not None), None)
        f = None if source is None else _stat(path, source, True)
        return f if f is not None and path.is_file() else None

    def _take(self, sightings: Mapping[Key, _Sighting], keys: Collection[Key], now: float) -> None:
        """Takes what was found of the files with these keys, or that they are gone."""
        self._ends.clear()
        self._identify(sightings, keys)
        looks: dict[Key, _Look] = {}
        for f in sightings.values():
            with self._telling(f.path):
                if f.key in self._positions:
                    looks[f.key] = self._look_into(f, now)
                    self._told.pop(f.path, None)
        for key in keys:
            look = looks.get(key)
            if look is None:
                self._looks.pop(key, None)
            else:
                self._looks[key] = look
            for some in (self._unread, self._unsettled, self._renamed):
                some.discard(key)
            if look is not None and look.end > self._positions[key].position:
                self._unread.add(key)
            if key in sightings and (look is None or not look.settled):
                self._unsettled.add(key)
            if key in sightings and not sightings[key].matched:
                self._renamed.add(key)

    def unread(self) -> list[Unread]:
        """What the last look found and nobody was handed yet, by source, oldest first."""
        left = []
        for key in self._unread:
            file, look = self._positions[key], self._looks[key]
            whole = is_gzip(file.path)
            order = (file.source, look.sighting.modified, file.path)
            left.append((order, Unread(file, look.end, look.unit_bytes, whole)))
        return [unread for _, unread in sorted(left, key=itemgetter(0))]

    def hand_out(self, unread: Unread, end: int) -> WorkOrder | None:
        """The order to read a file up to `end`, or None if it has become unreadable."""
        file, look = unread.file, self._looks[unread.file.key]
        size = look.sighting.size
        print_end = size if self._parquet else max(end, min(size, PRINT_BYTES))
        with self._telling(look.sighting.path):
            crc = look.crc
            if crc is None or print_end != look.end:
                with open_same(look.sighting.path, file.fingerprint) as bytes_:
                    crc = checksum(bytes_, print_end)
            read = replace(file, position=end, print_end=print_end, print_crc=crc)
            self._positions[file.key] = read
            if end >= look.end:
                self._unread.discard(file.key)
            # Workers have other current folders.
            here = file.path.startswith("/")
            path = file.path if here else str(Path(file.path).absolute())
            name, known = self._stream.name, read.fingerprint
            return WorkOrder(name, file.source, path, file.position, end, fingerprint=known)
        self._looks[file.key] = replace(look, end=file.position, crc=None)
        self._unread.discard(file.key)
        return None

    @property
    def _parquet(self) -> bool:
        return self._stream.format.kind == "parquet"

    def _find(self, walks: Iterable[Walk]) -> dict[Key, _Sighting]:
        """Files that match, and files that did until they were renamed."""
        sightings: dict[Key, _Sighting] = {}
        for walk in walks:
            for path, source in walk.files:
                f = _stat(path, source, True, self._sightings)
                if f is not None:
                    sightings.setdefault(f.key, f)
        near = Surroundings()
        for file in self._positions.values():
            f = _find_again(file, near) if file.key not in sightings else None
            if f is not None:
                sightings[f.key] = f
        return sightings

    def _forget_finished(self, now: float) -> set[Key]:
        """Lets go of files that no pattern matches any more once nobody writes them either."""
        finished = set()
        for key in self._renamed & self._looks.keys():
            look = self._looks[key]
            is_read = look.settled and look.end <= self._positions[key].position
            if is_read and now - look.since >= _FINISHED_SECONDS:
                del self._positions[key]
                finished.add(key)
        return finished

    def _identify(self, sightings: Mapping[Key, _Sighting], keys: Collection[Key]) -> None:
        """Gives every file its position: its own, one it inherits, or the start.

        Of the files with these keys, those that were not found are gone.
        """
        strange = {}
        for key, f in sightings.items():
            with self._telling(f.path):
                if not self._is_known(f):
                    strange[key] = f
                elif self._positions[key].path != str(f.path):
                    self._positions[key] = replace(self._positions[key], path=str(f.path))
        known = (self._positions[key] for key in keys if key in self._positions)
        gone = [p for p in known if p.key not in sightings or p.key in strange]
        for file in gone:
            del self._positions[file.key]
        lost = [file for file in gone if file.print_end]
        for f in strange.values():
            with self._telling(f.path):
                if f.matched:
                    self._positions[f.key] = _position(f, lost)
        self._tell_lost(lost, sightings)

    def _is_known(self, f: _Sighting) -> bool:
        known = self._positions.get(f.key)
        if known is None or (f.matched and not known.print_end):
            return False
        look = self._looks.get(f.key)
        if look is not None and look.still(f):
            return True
        with f.open() as file:
            same = holds(file, known.fingerprint)
            if same and self._grows(f):
                end = last_line_end(file, known.position, f.size)
                self._ends[f.key] = f, end, checksum(file, end)
        return same

    def _grows(self, f: _Sighting) -> bool:
        """Whether a file is read line by line while somebody writes it."""
        return self._follow and not self._parquet and not is_gzip(f.path)

    def _look_into(self, f: _Sighting, now: float) -> _Look:
        last = self._looks.get(f.key)
        if last is not None and last.settled and last.still(f):
            return last
        since = last.since if last is not None and last.sighting == f else now
        position = self._positions[f.key].position
        if not self._settled(f, since, now):
            return _Look(f, since, now, False, position)
        end, unit_bytes, crc = self._end(f, position)
        return _Look(f, since, now, True, end, unit_bytes, crc)

    def _settled(self, f: _Sighting, since: float, now: float) -> bool:
        """Files that are read as a whole have to be complete first."""
        if not self._follow or not (self._parquet or is_gzip(f.path)):
            return True
        return now - min(since, f.modified / 1e9) >= _SETTLED_SECONDS

    def _end(self, f: _Sighting, position: int) -> tuple[int, int, int | None]:
        """Up to where a file can be read now, the text that each unit stands for, and perhaps
        the checksum there."""
        if self._parquet:
            with f.open() as file, pyarrow.parquet.ParquetFile(file) as parquet:
                groups = parquet.num_row_groups
            return groups, max(1, f.size // max(1, groups)), None
        if is_gzip(f.path):
            return f.size, _GZIP_RATIO, None
        if not self._follow:
            return f.size, 1, None
        seen, end, crc = self._ends.pop(f.key, (None, 0, 0))
        if seen is f and self._positions[f.key].position <= end:
            return end, 1, crc
        with f.open() as file:
            end = last_line_end(file, position, f.size)
            return end, 1, checksum(file, end)

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

    def _tell_lost(self, lost: list[FilePosition], sightings: Mapping[Key, _Sighting]) -> None:
        sources = {f.source for f in self._positions.values()}
        for file in lost:
            there = sightings.get(file.key)
            look = self._looks.get(file.key)
            unread = (look.end - file.position) * look.unit_bytes if look else 0
            if there is not None and str(there.path) == file.path:
                text = f"{file.path} was truncated or rewritten; reading it from the start"
                self._notes += [text] if file.position else []
            elif self._follow and unread:
                self._notes.append(f"{file.path} is gone; {unread} bytes of it were not read")
            elif self._follow and file.source not in sources:
                self._notes.append(f"{file.path} is gone; source '{file.source}' has ended")


def _times(looks: Iterable[_Look]) -> dict[str, float]:
    """When a file of each source was last changed, in seconds."""
    times: dict[str, float] = {}
    for look in looks:
        source, when = look.sighting.source, look.sighting.modified / 1e9
        times[source] = max(times.get(source, when), when)
    return times


def _stat(
    path: Path | str, source: str, matched: bool, known: Mapping[Key, _Sighting] | None = None
) -> _Sighting | None:
    """A file as it looks now, the very value that is `known` if it looks the same."""
    try:
        stat = os.stat(path)  # noqa: PTH116
    except OSError:
        return None
    key, now = (stat.st_dev, stat.st_ino), (stat.st_size, stat.st_mtime_ns)
    old = known.get(key) if known is not None else None
    if (
        old is not None
        and (old.size, old.modified, old.source, old.matched)
        == (
            *now,
            source,
            matched,
        )
        and str(old.path) == str(path)
    ):
        return old
    return _Sighting(Path(path), source, matched, key, *now)


def _find_again(file: FilePosition, near: Surroundings) -> _Sighting | None:
    """A file that no pattern matches any more: where it was last, or renamed near there."""
    there = _stat(Path(file.path), file.source, False)
    if there is None or there.key != file.key:
        moved = near.find(Path(file.path), file.inode, bool(file.print_end))
        there = _stat(moved, file.source, False) if moved else None
    return there if there is not None and there.key == file.key else None


def _position(f: _Sighting, lost: list[FilePosition]) -> FilePosition:
    """The position of a file that is new here: the start, unless it is a lost one's copy.

    Logs are copied before they are truncated, and replaced as a whole by tools like rsync.
    """
    with f.open() as file:
        near = [o for o in lost if o.print_end <= f.size and Path(o.path).parent == f.path.parent]
        for old in near:
            if holds(file, old.fingerprint):
                lost.remove(old)
                return replace(old, path=str(f.path), device=f.key[0], inode=f.key[1])
        fingerprint = first_print(file)
    return FilePosition(f.source, str(f.path), *f.key, 0, fingerprint.end, fingerprint.crc)
