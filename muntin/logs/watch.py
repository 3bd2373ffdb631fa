"""What is there to read in the files of one stream, and how far each has been read.

Files are looked at, not into: one that looks as it did the last time is not opened. Finite
input is what the first look found, so that logs which grow meanwhile cannot keep it going.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from operator import itemgetter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet

from muntin.errors import InputError
from muntin.fidelity.losses import Loss
from muntin.fidelity.score import NEVER
from muntin.logs.chunks import WorkOrder
from muntin.logs.copies import head, is_copy, is_one_log, log_of
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
    open_same,
)
from muntin.logs.folders import Folders
from muntin.logs.gunzip import is_gzip
from muntin.logs.orphans import Orphan, Orphans
from muntin.logs.patterns import Denied, Walk, described, path_patterns
from muntin.logs.sightings import Look, Sighting, find_again, refusal, sight, times
from muntin.model import Stream

_SETTLED_SECONDS = 2.0
_FINISHED_SECONDS = 3600.0
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
        self._patterns = path_patterns(stream.patterns)
        self._follow = follow
        self._positions = {p.key: p for p in positions}
        self._sightings: dict[Key, Sighting] = {}
        self._keys: dict[str, Key] = {}  # of the files there are, by path
        self._looks: dict[Key, Look] = {}
        self._unread: set[Key] = set()  # of which there is more than was handed out
        self._unsettled: set[Key] = set()  # may be read later, whether or not they change
        self._renamed: set[Key] = set()  # so that no pattern matches them
        self._touched: dict[str, float] = {}
        self._ends: dict[Key, tuple[Sighting, int, int]] = {}  # seen when a file was identified
        self._strangers: dict[Key, tuple[Sighting, float]] = {}  # not settled, and since when
        self._orphans = Orphans()
        self._lost: list[Loss] = []
        self._unreadable: dict[Key, Loss] = {}  # files that are there
        self._denied: dict[str, Loss] = {}  # what cannot even be looked at, by path
        self._told: dict[str, str] = {}
        self._notes: list[str] = []
        self._folders = Folders(self._patterns, events) if follow and events is not None else None
        self._looked_at: float | None = None  # when all files were looked at
        self._last_look: float | None = None  # when any were
        self._blind = True  # whether a long time has passed before this look
        self.quiet = False  # whether the last look has seen no change at all
        if follow and not self._positions and not self.matches():
            self._notes.append(f"{self.nothing_matches} yet; waiting for one")

    @property
    def positions(self) -> tuple[FilePosition, ...]:
        return (*self._positions.values(), *(orphan.file for orphan in self._orphans))

    @property
    def behind(self) -> frozenset[str]:
        """Sources of which something was not read whose place is not known yet."""
        return frozenset(orphan.file.source for orphan in self._orphans if orphan.may_lose)

    @property
    def unreadable(self) -> dict[str, list[Loss]]:
        """By source, what is there and cannot be read now."""
        found: dict[str, list[Loss]] = {}
        for loss in (*self._unreadable.values(), *self._denied.values()):
            found.setdefault(loss.source, []).append(loss)
        return found

    @property
    def touched(self) -> Mapping[str, float]:
        """When a file of each source was last changed, in seconds."""
        return dict(self._touched)

    def notes(self) -> tuple[str, ...]:
        """What happened to files since this was last asked."""
        notes, self._notes = self._notes, []
        return tuple(notes)

    def lost(self) -> tuple[Loss, ...]:
        """What was found to be lost since this was last asked."""
        lost, self._lost = self._lost, []
        return tuple(lost)

    @property
    def nothing_matches(self) -> str:
        wanted = described(self._stream.patterns)
        denied = (denied for pattern in self._patterns for denied in pattern.walk().denied)
        refused = "".join(f"; {d.path} cannot be read: {d.reason}" for d in denied)
        return f"stream '{self._stream.name}': no file matches {wanted}{refused}"

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
            if self._orphans:  # wherever their bytes are now
                self._look_at_all(now, None)

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
        self._take(changed, changed.keys() | gone, now, walks)
        self._touched = times(self._looks.values())

    def _is_as_before(self, f: Sighting) -> bool:
        """Whether there is nothing more to know of a file than there was."""
        look = self._looks.get(f.key)
        return look is not None and look.settled and look.still(f) and f.key in self._positions

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
            if old is not None and (old.matched or key in self._positions):
                f = sight(old.path, old.source, old.matched)
            if (f is None or f.key != key) and key in self._positions:
                f = find_again(self._positions[key], near)
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
        self._ends.clear()
        for key in {*keys, *found}:
            self._unreadable.pop(key, None)
        if walks is not None:
            self._denied = dict(self._refused(walks))
            self._strangers = {k: v for k, v in self._strangers.items() if k in self._sightings}
        sightings = dict(found)
        self._identify(sightings, keys, now)
        if walks is not None:
            self._place_orphans(sightings, now)
        keys = {*keys, *sightings}
        looks: dict[Key, Look] = {}
        for f in sightings.values():
            with self._telling(f):
                if f.key in self._positions:
                    looks[f.key] = self._look_into(f, now)
                    self._told.pop(str(f.path), None)
        for key in keys:
            look = looks.get(key)
            if look is None:
                self._looks.pop(key, None)
            else:
                self._looks[key] = look
            for some in (self._unread, self._unsettled, self._renamed):
                some.discard(key)
            file = self._positions.get(key)
            if look is not None and file is not None and not file.original:
                self._unread |= {key} if look.end > file.position else set()
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

    def hand_out(self, unread: Unread, end: int, since: int | None) -> WorkOrder | None:
        """The order to read a file up to `end`, or None if it has become unreadable.

        `since` is how far its source has come in time.
        """
        file, look = unread.file, self._looks[unread.file.key]
        size = look.sighting.size
        print_end = size if self._parquet else max(end, min(size, PRINT_BYTES))
        with self._telling(look.sighting, look.end):
            crc = look.crc
            if crc is None or print_end != look.end:
                with open_same(look.sighting.path, file.fingerprint) as bytes_:
                    crc = checksum(bytes_, print_end)
            read = replace(
                file,
                position=end,
                print_end=print_end,
                print_crc=crc,
                skip=0,
                seen=size,
                modified=look.sighting.modified,
                since=since,
            )
            if file.head_end < min(size, PRINT_BYTES) and not is_gzip(file.path):
                first = head(look.sighting.path, min(size, PRINT_BYTES))
                read = replace(read, head_end=first[0], head_crc=first[1])
            self._positions[file.key] = read
            if end >= look.end:
                self._unread.discard(file.key)
            # Workers have other current folders.
            here = file.path.startswith("/")
            path = file.path if here else str(Path(file.path).absolute())
            return WorkOrder(
                self._stream.name,
                file.source,
                path,
                file.position,
                end,
                fingerprint=read.fingerprint,
                skip=file.skip,
                modified=look.sighting.modified // 1000,
            )
        self._looks[file.key] = replace(look, end=file.position, crc=None)
        self._unread.discard(file.key)
        return None

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
        for file in self._positions.values():
            f = find_again(file, near) if file.key not in sightings else None
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

    def _refused(self, walks: Sequence[Walk]) -> Iterator[tuple[str, Loss]]:
        """What walks could not look at: folders of which nothing is known, and files."""
        for denied in dict.fromkeys(d for walk in walks for d in walk.denied):
            inside = f"{denied.path.rstrip('/')}/"
            if not any(file.path.startswith(inside) for file in self._positions.values()):
                yield denied.path, self._tell_denied(denied)
        for walk in walks:
            for path, source in walk.files:
                reason = refusal(path) if path not in self._keys else None
                if reason is not None:
                    yield path, self._tell_denied(Denied(path, source, reason))

    def _tell_denied(self, denied: Denied) -> Loss:
        self._tell(denied.path, InputError(f"{denied.path} cannot be read: {denied.reason}"))
        why = f"cannot be read: {denied.reason}"
        return Loss(denied.source, denied.path, why, log_of(denied.path))

    def _identify(self, sightings: dict[Key, Sighting], keys: Collection[Key], now: float) -> None:
        """Gives every file its position: its own, one it inherits, or the start.

        Of the files with these keys, those that were not found are gone.
        """
        newest: dict[tuple[str, str], int] = {}
        for file in self._positions.values():
            log = file.source, log_of(file.path)
            newest[log] = max(file.modified, newest.get(log, 0))
        strange = {}
        for key, f in sightings.items():
            with self._telling(f):
                if not self._is_known(f):
                    strange[key] = f
                elif self._positions[key].path != str(f.path):
                    self._positions[key] = replace(self._positions[key], path=str(f.path))
        for file in [self._positions[key] for key in keys if key in self._positions]:
            if file.key not in sightings or file.key in strange:
                live = file.modified >= newest[file.source, log_of(file.path)]
                self._orphan(file, live, file.key in strange)
        copies = [file for file in self._positions.values() if file.original]
        for file in self._orphans.handed_on(copies):
            self._positions[file.key] = file
            there = self._sightings.get(file.key)
            if there is not None:
                sightings.setdefault(file.key, there)
        for f in strange.values():
            with self._telling(f):
                if f.matched and self._has_settled(f, now):
                    position = self._orphans.adopted(f)
                    self._positions |= {} if position is None else {f.key: position}
        self._begin(strange.values(), now)

    def _orphan(self, file: FilePosition, live: bool, cut: bool) -> None:
        """Takes that a file is gone, or has other bytes: unless it just cannot be looked at."""
        reason = None if cut else refusal(file.path)
        if reason is not None:
            self._tell(file.path, InputError(f"{file.path} cannot be read: {reason}"))
            self._unreadable[file.key] = self._unread_of(file, f"cannot be read: {reason}")
            return
        del self._positions[file.key]
        grows = not self._parquet and not is_gzip(file.path)
        if file.print_end and not file.original:
            left = self._left(file)
            self._orphans.add(Orphan(file, left, self._blind and live and grows, cut))

    def _left(self, file: FilePosition) -> int:
        """How many bytes of a file were seen and not read."""
        look = self._looks.get(file.key)
        if self._parquet:
            return 0 if look is None else (look.end - file.position) * look.unit_bytes
        seen = file.seen if look is None else look.sighting.size
        return max(0, seen - file.position)

    def _unread_of(self, file: FilePosition, why: str, size: int | None = None) -> Loss:
        """What is not read of a file that is known, if it cannot be read."""
        look = self._looks.get(file.key)
        modified = file.modified if look is None else look.sighting.modified
        lower = file.since if file.position or file.skip else NEVER
        log = log_of(file.path)
        return Loss(file.source, file.path, why, log, size, lower, modified // 1000 + 1)

    def _has_settled(self, f: Sighting, now: float) -> bool:
        """Whether a file that is new here is complete, as far as it has to be."""
        seen, since = self._strangers.get(f.key, (f, now))
        self._strangers[f.key] = f, since if seen == f else now
        return self._settled(*self._strangers[f.key], now)

    def _copied(self, f: Sighting) -> FilePosition | None:
        """The position of a file that is a copy of one that is there: it is read only once."""
        heads = {(p.head_end, p.head_crc) for p in self._positions.values() if p.head_end}
        sizes = {end for end, _ in heads}
        mine = {head(f.path, size) for size in sizes} & heads
        for other in self._positions.values() if mine else ():
            if other.original or other.key == f.key or (other.head_end, other.head_crc) not in mine:
                continue
            if not self._may_copy(f, other):
                continue
            if is_one_log(f.path, other.path) and is_copy(f.path, Path(other.path)):
                if not self._follow:
                    self._notes.append(f"{f.path} is a copy of {other.path}, and is read once")
                start = _start(f)
                with f.open() as file:
                    crc = checksum(file, f.size)
                return replace(
                    start,
                    source=other.source,
                    print_end=f.size,
                    print_crc=crc,
                    original=other.inode,
                )
        return None

    def _may_copy(self, f: Sighting, other: FilePosition) -> bool:
        """Whether two files may be of one source: by its name, or else by their folder."""
        named = any("{source}" in text for text in self._stream.patterns)
        return f.source == other.source or (
            not named and f.path.parent == Path(other.path).parent
        )

    def _still_copied(self, f: Sighting) -> None:
        """Takes that a copy has changed: it has more of its original, or goes its own way."""
        known = self._positions[f.key]
        original = self._positions.get((known.device, known.original))
        if original is not None and is_copy(f.path, Path(original.path)):
            with f.open() as file:
                crc = checksum(file, f.size)
            self._positions[f.key] = replace(known, print_end=f.size, print_crc=crc)
        elif (known.device, known.original) not in self._orphans:
            with f.open() as file:
                end = f.size if is_gzip(f.path) else last_line_end(file, 0, known.print_end)
            self._positions[f.key] = replace(known, source=f.source, position=end, original=0)

    def _place_orphans(self, sightings: dict[Key, Sighting], now: float) -> None:
        """Looks for the bytes of files that are gone beside them; what nobody has is lost."""
        near, strangers = Surroundings(), self._strangers.values()
        unsettled = [f for f, since in strangers if not self._settled(f, since, now)]
        for f in self._orphans.found_near(self._positions.keys() | self._sightings.keys(), near):
            with self._telling(f):
                if not self._settled(f, now, now):
                    unsettled.append(f)
                elif (position := self._orphans.adopted(f)) is not None:
                    self._positions[f.key] = position
                    self._sightings[f.key] = sightings[f.key] = f
                    self._keys[str(f.path)] = f.key
        for orphan in self._orphans:
            if not any(is_one_log(f.path, orphan.file.path) for f in unsettled):
                self._orphans.give_up(orphan, now)
                self._tell_lost(orphan, sightings, now)
        self._begin(sightings.values(), now)

    def _begin(self, found: Iterable[Sighting], now: float) -> None:
        """Begins files that nobody knows, unless the place of what they had before is not known."""
        new = (f for f in found if f.matched and f.key not in self._positions)
        for f in sorted(new, key=_originals_first):
            with self._telling(f):
                if f.key not in self._orphans and self._has_settled(f, now):
                    self._positions[f.key] = self._copied(f) or _start(f)

    def _is_known(self, f: Sighting) -> bool:
        known = self._positions.get(f.key)
        if known is None or (f.matched and not known.print_end):
            return False
        look = self._looks.get(f.key)
        if look is not None and look.still(f):
            return True
        with f.open() as file:
            same = holds(file, known.fingerprint)
            if same and known.original:
                self._still_copied(f)
            elif same and self._grows(f):
                end = last_line_end(file, known.position, f.size)
                self._ends[f.key] = f, end, checksum(file, end)
        return same

    def _grows(self, f: Sighting) -> bool:
        """Whether a file is read line by line while somebody writes it."""
        return self._follow and not self._parquet and not is_gzip(f.path)

    def _look_into(self, f: Sighting, now: float) -> Look:
        last = self._looks.get(f.key)
        if last is not None and last.settled and last.still(f):
            return last
        _, since = self._strangers.pop(f.key, (f, now))
        since = last.since if last is not None and last.sighting == f else since
        position = self._positions[f.key].position
        if not self._settled(f, since, now):
            return Look(f, since, now, False, position)
        end, unit_bytes, crc = self._end(f, position)
        return Look(f, since, now, True, end, unit_bytes, crc)

    def _settled(self, f: Sighting, since: float, now: float) -> bool:
        """Files that are read as a whole have to be complete first."""
        if not self._follow or not (self._parquet or is_gzip(f.path)):
            return True
        return now - min(since, f.modified / 1e9) >= _SETTLED_SECONDS

    def _end(self, f: Sighting, position: int) -> tuple[int, int, int | None]:
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
    def _telling(self, f: Sighting, end: int | None = None) -> Iterator[None]:
        """A file that cannot be read is told of once, or refused where the stream says FAIL."""
        try:
            yield
        except (FileNotFoundError, InputError) as error:
            # A file may be rotated away while it is looked at. The next look finds it, if any.
            if not self._follow:
                gone = InputError(f"{f.path} is gone")
                self._tell(str(f.path), error if isinstance(error, InputError) else gone)
                self._lost.append(self._not_read(f, str(error).removeprefix(f"{f.path} ")))
                self._positions.pop(f.key, None)
        except (OSError, pa.ArrowException) as error:
            reason = getattr(error, "strerror", None) or error
            self._tell(str(f.path), InputError(f"{f.path} cannot be read: {reason}"))
            self._unreadable[f.key] = self._not_read(f, f"cannot be read: {reason}")

    def _not_read(self, f: Sighting, why: str) -> Loss:
        """What is not read of a file if it cannot be read."""
        file = self._positions.get(f.key)
        left, lower = f.size, None if file is not None else NEVER
        if file is not None:
            left = f.size - file.position
            lower = file.since if file.position or file.skip else NEVER
        size = None if self._parquet else left
        source = f.source if file is None else file.source
        log = log_of(f.path)
        return Loss(source, str(f.path), why, log, size, lower, f.modified // 1000 + 1)

    def _tell(self, path: str, error: InputError) -> None:
        if self._stream.on_bad_row == "fail":
            raise error
        if self._told.get(path) != str(error):
            self._told[path] = str(error)
            self._notes.append(str(error))

    def _tell_lost(self, orphan: Orphan, sightings: Mapping[Key, Sighting], now: float) -> None:
        file = orphan.file
        log = file.source, log_of(file.path)
        goes_on = any((p.source, log_of(p.path)) == log for p in self._positions.values())
        loss = orphan.lost(now, goes_on or orphan.cut)
        self._lost += [] if loss is None else [loss]
        unread = f"{orphan.left} bytes of it were not read"
        there = sightings.get(file.key)
        if there is not None and str(there.path) == file.path:
            text = f"{file.path} was truncated or rewritten; reading it from the start"
            text += f"; {unread}" if orphan.left else ""
            self._notes += [text] if file.position else []
        elif orphan.left:
            self._notes.append(f"{file.path} is gone; {unread}")
        elif orphan.blind:
            text = f"{file.path} was not found again; what it got since it was last read is lost"
            self._notes.append(text)
        elif self._follow and file.source not in {p.source for p in self._positions.values()}:
            self._notes.append(f"{file.path} is gone; source '{file.source}' has ended")


def _originals_first(f: Sighting) -> tuple[bool, int, int, str]:
    """Copies are compressed, shorter, or have longer names."""
    return is_gzip(f.path), -f.size, len(f.path.name), str(f.path)


def _start(f: Sighting) -> FilePosition:
    """The position of a file of which nothing was read."""
    with f.open() as file:
        known = first_print(file)
    first = head(f.path)
    return FilePosition(
        f.source,
        str(f.path),
        *f.key,
        0,
        known.end,
        known.crc,
        *first,
        seen=f.size,
        modified=f.modified,
    )
