"""What is there to read in the files of one stream, and how far each has been read.

Files are looked at, not into: one that looks as it did the last time is not opened. Finite
input is what the first look found, so that logs which grow meanwhile cannot keep it going.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from operator import itemgetter
from pathlib import Path
from zlib import crc32

from muntin.errors import InputError
from muntin.fidelity.losses import Loss
from muntin.fidelity.score import EVER, NEVER
from muntin.logs.chunks import WorkOrder
from muntin.logs.copies import first_bytes
from muntin.logs.events import Events
from muntin.logs.files import (
    PRINT_BYTES,
    FilePosition,
    Key,
    Prints,
    Surroundings,
    last_line_end,
    open_same,
    prints,
)
from muntin.logs.folders import Folders
from muntin.logs.gunzip import is_gzip
from muntin.logs.index import FIRST_BYTES, first_time
from muntin.logs.patterns import Walk, described, path_patterns, unmatched
from muntin.logs.register import Register
from muntin.logs.sightings import Look, Sighting, find_again, sight, times
from muntin.model.streams import Stream

_FINISHED_SECONDS = 3600.0
_GZIP_RATIO = 8
_AMID_SECONDS = 60.0  # in which a line is ended, or it never is
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
        self._patterns = path_patterns(stream.patterns, stream.source, stream.before)
        self._follow = follow
        self._sightings: dict[Key, Sighting] = {}
        self._keys: dict[str, Key] = {}  # of the files there are, by path
        self._looks: dict[Key, Look] = {}
        self._unread: set[Key] = set()  # of which there is more than was handed out
        self._unsettled: set[Key] = set()  # may be read later, whether or not they change
        self._renamed: set[Key] = set()  # so that no pattern matches them
        self._touched: dict[str, float] = {}
        self._register = Register(stream, follow, positions, self._looks)
        self._folders = Folders(self._patterns, events) if follow and events is not None else None
        self._looked_at: float | None = None  # when all files were looked at
        self._last_look: float | None = None  # when any were
        self._blind = True  # whether a long time has passed before this look
        self.quiet = False  # whether the last look has seen no change at all
        if follow and not self._register.positions and not self.matches():
            self._register.note(f"{self.nothing_matches}; waiting for one")

    @property
    def positions(self) -> tuple[FilePosition, ...]:
        return self._register.saved

    @property
    def behind(self) -> frozenset[str]:
        """Sources of which something was not read whose place is not known yet."""
        waiting = (self._register.positions[key] for key in self._unread)
        held = {file.source for file in waiting if self._register.waits(file)}
        return self._register.behind | held

    @property
    def unreadable(self) -> Mapping[str, Sequence[Loss]]:
        """By source, what is there and cannot be read now."""
        return self._register.unreadable

    @property
    def touched(self) -> Mapping[str, float]:
        """When a file of each source was last changed, in seconds."""
        return dict(self._touched)

    def is_amid_line(self, now: float) -> bool:
        """Whether a line was begun lately that has no end yet: its record is still to come."""
        return any(
            look.end < look.sighting.size
            and now - look.sighting.modified / 1e9 < _AMID_SECONDS
            and self._register.grows(look.sighting.path)
            for look in self._looks.values()
        )

    def notes(self) -> tuple[str, ...]:
        """What happened to files since this was last asked."""
        return self._register.notes()

    def lost(self) -> tuple[Loss, ...]:
        """What was found to be lost since this was last asked."""
        return self._register.lost()

    @property
    def nothing_matches(self) -> str:
        wanted, why = described(self._stream.patterns), unmatched(self._patterns)
        return f"stream '{self._stream.name}': no file matches {wanted}{why}"

    def matches(self) -> bool:
        """Whether any file is there at all."""
        return any(True for pattern in self._patterns for _ in pattern.find())

    def look(self, now: float, thorough: bool = False) -> None:
        """Finds out what there is to read, looking at all files where that has to be sure."""
        if self._looks and not self._follow:
            return
        names = None if self._folders is None else self._folders.changed()
        self._blind = self._last_look is None or now - self._last_look >= _ALL_SECONDS
        self._last_look, last = now, self._looked_at
        if thorough or names is None or last is None or not 0 <= now - last < _ALL_SECONDS:
            self._look_at_all(now, names)
        else:
            self._look_at(names, now)
            if self._register.has_orphans:  # wherever their bytes are now
                self._look_at_all(now, None)
        if self._follow:
            self._register.look_around(now)

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
                self._register.note(f"stream '{self._stream.name}': {text}")
        self._looked_at, self._sightings = now, sightings
        self._keys = {str(f.path): key for key, f in sightings.items()}
        changed = {key: f for key, f in sightings.items() if not self._is_as_before(f)}
        gone = (self._register.known | self._looks.keys()) - sightings.keys()
        self._take(changed, changed.keys() | gone, now, walks)
        self._touched = times(self._looks.values())

    def _is_as_before(self, f: Sighting) -> bool:
        """Whether there is nothing more to know of a file than there was."""
        look = self._looks.get(f.key)
        return (
            look is not None
            and look.settled
            and look.still(f)
            and f.key in self._register.positions
        )

    def _grown(self, sightings: Mapping[Key, Sighting]) -> set[str]:
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
        sightings: dict[Key, Sighting] = {}
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
            if old is not None and (old.matched or key in self._register.positions):
                f = sight(old.path, old.source, old.matched)
            if (f is None or f.key != key) and key in self._register.positions:
                f = find_again(self._register.positions[key], near)
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
            self._touched = times(self._looks.values())
        for source, at in times(self._looks[k] for k in sightings if k in self._looks).items():
            self._touched[source] = max(at, self._touched.get(source, at))

    def _find_one(self, name: str) -> Sighting | None:
        known = self._sightings.get(self._keys.get(name, (-1, -1)))
        if known is not None and known.matched:
            f = sight(name, known.source, True, self._sightings)
            if f is not None and f.key == known.key:
                return f
        path = Path(name)
        sources = (pattern.source_of(path) for pattern in self._patterns)
        source = next((source for source in sources if source is not None), None)
        f = None if source is None else sight(path, source, True)
        return f if f is not None and path.is_file() else None

    def _take(
        self,
        found: Mapping[Key, Sighting],
        keys: Collection[Key],
        now: float,
        walks: Sequence[Walk] | None = None,
    ) -> None:
        """Takes what was found of the files with these keys, or that they are gone.

        After a look at all files the walks that were made say what else there is.
        """
        register = self._register
        sightings = dict(found)
        if walks is not None:
            register.refuse(walks, self._keys)
        handed_on = register.identify(found, keys, now, self._blind)
        if walks is not None:
            beside = register.place_orphans(self._sightings, now)
            self._sightings |= beside
            self._keys |= {str(f.path): key for key, f in beside.items()}
            handed_on |= beside
        sightings |= {key: f for key, f in handed_on.items() if key not in sightings}
        keys = {*keys, *sightings}
        looks: dict[Key, Look] = {}
        for f in sightings.values():
            with register.telling(f):
                if f.key in register.positions:
                    looks[f.key] = self._look_into(f, now)
                    register.read_well(f)
        for key in keys:
            look = looks.get(key)
            if look is None:
                self._looks.pop(key, None)
                register.held.let_go(key)
            else:
                self._looks[key] = look
                if self._follow and register.grows(look.sighting.path):
                    register.held.keep(look.sighting)
            for some in (self._unread, self._unsettled, self._renamed):
                some.discard(key)
            file = self._register.positions.get(key)
            if look is not None and file is not None and not file.original:
                self._unread |= {key} if look.end > file.position else set()
            if key in sightings and (look is None or not look.settled):
                self._unsettled.add(key)
            if key in sightings and not sightings[key].matched:
                self._renamed.add(key)

    def unread(self) -> list[Unread]:
        """What the last look found and nobody was handed yet, by source, oldest first.

        What was written to a log after a part of it that cannot be read yet is not among it: the
        records of that part would be late.
        """
        left = []
        for key in self._unread:
            file, look = self._register.positions[key], self._looks[key]
            if self._register.waits(file):
                continue
            whole = is_gzip(file.path)
            order = (file.source, look.sighting.modified, file.path)
            left.append((order, Unread(file, look.end, look.unit_bytes, whole)))
        return [unread for _, unread in sorted(left, key=itemgetter(0))]

    def hand_out(self, unread: Unread, end: int, since: int | None) -> WorkOrder | None:
        """The order to read a file up to `end`, or None if it has become unreadable.

        `since` is how far its source has come in time.
        """
        file, look = unread.file, self._looks[unread.file.key]
        size = look.sighting.size
        begins = self._first_time(file, look) if file.again and since is not None else EVER
        if begins is not None and since is not None and begins < since - self._stream.far_us:
            if not look.sighting.matched:  # an archive that was written anew
                self._register.positions[file.key] = replace(file, position=look.end, again=False)
                self._unread.discard(file.key)
                return None
            self._register.doubt(file, None if begins == NEVER else begins, since)
        print_end = size if self._parquet else max(end, min(size, PRINT_BYTES))
        with self._register.telling(look.sighting):
            known: Prints | None = look.prints if print_end == look.end else None
            if known is None:
                with open_same(look.sighting.path, file.fingerprint) as bytes_:
                    known = prints(bytes_, print_end)
            read = replace(
                file,
                position=end,
                print_end=print_end,
                **known._asdict(),
                again=begins is None,
                skip=0,
                seen=size,
                modified=look.sighting.modified,
                since=since,
            )
            if file.head_end < min(size, PRINT_BYTES) and not is_gzip(file.path):
                first = first_bytes(look.sighting.path, min(size, PRINT_BYTES))
                read = replace(read, head_end=len(first), head_crc=crc32(first))
            self._register.positions[file.key] = read
            if end >= look.end:
                self._unread.discard(file.key)
            return WorkOrder(
                self._stream.name,
                file.source,
                absolute(file.path),
                file.position,
                end,
                fingerprint=read.fingerprint,
                skip=file.skip,
                modified=look.sighting.modified // 1000,
            )
        self._looks[file.key] = replace(look, end=file.position, prints=None)
        self._unread.discard(file.key)
        return None

    def _first_time(self, file: FilePosition, look: Look) -> int | None:
        """When a file begins; NEVER if no time is near its start, None if it has none yet."""
        if self._parquet:
            return EVER
        path, end = str(look.sighting.path), look.end
        order = WorkOrder(
            self._stream.name, file.source, path, 0, end, fingerprint=file.fingerprint
        )
        first: int | None = None
        with suppress(OSError, InputError):  # told of when it is read
            first = first_time(order, self._stream)
        return NEVER if first is None and end >= FIRST_BYTES else first

    @property
    def _parquet(self) -> bool:
        return self._stream.format.kind == "parquet"

    def _find(self, walks: Iterable[Walk]) -> dict[Key, Sighting]:
        """Files that match, and files that did until they were renamed."""
        sightings: dict[Key, Sighting] = {}
        for walk in walks:
            for path, source in walk.files:
                f = sight(path, source, True, self._sightings)
                if f is not None:
                    sightings.setdefault(f.key, f)
        near = Surroundings()
        for file in self._register.positions.values():
            f = find_again(file, near) if file.key not in sightings else None
            if f is not None:
                sightings[f.key] = f
        return sightings

    def _forget_finished(self, now: float) -> set[Key]:
        """Lets go of files that no pattern matches any more once nobody writes them either."""
        finished = set()
        for key in self._renamed & self._looks.keys():
            look = self._looks[key]
            is_read = look.settled and look.end <= self._register.positions[key].position
            if is_read and now - look.since >= _FINISHED_SECONDS:
                del self._register.positions[key]
                finished.add(key)
        return finished

    def _look_into(self, f: Sighting, now: float) -> Look:
        last = self._looks.get(f.key)
        if last is not None and last.settled and last.still(f):
            return last
        since = self._register.seen_since(f, now)
        since = last.since if last is not None and last.sighting == f else since
        position = self._register.positions[f.key].position
        if not self._register.settled(f, since, now):
            return Look(f, since, now, False, position)
        return Look(f, since, now, True, *self._end(f, position))

    def _end(self, f: Sighting, position: int) -> tuple[int, int, Prints | None]:
        """Up to where a file can be read now, the text that each unit stands for, and perhaps
        the checksums there."""
        if self._parquet:
            from pyarrow.parquet import ParquetFile  # agents seldom need it

            with f.open() as file, ParquetFile(file) as parquet:
                groups = parquet.num_row_groups
            return groups, max(1, f.size // max(1, groups)), None
        if is_gzip(f.path):
            return f.size, _GZIP_RATIO, None
        if not self._follow:
            return f.size, 1, None
        seen, end, known = self._register.ends.pop(f.key, (None, 0, None))
        if seen is f and self._register.positions[f.key].position <= end:
            return end, 1, known
        with f.open() as file:
            end = last_line_end(file, position, f.size)
            return end, 1, prints(file, end)


def absolute(path: str) -> str:
    """The path as workers know it, which have other current folders."""
    return path if path.startswith("/") else str(Path(path).absolute())
