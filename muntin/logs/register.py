"""Which file is which, how far each has been read, and what is lost.

A file has a position of its own, one that it inherits from another whose bytes it has, or the
start. A copy of a file that is still there is not read: the same bytes are the same records. What
was written and will not be read is told, whether it is gone or cannot be read.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa

from muntin.errors import InputError
from muntin.fidelity.losses import Loss
from muntin.fidelity.score import NEVER
from muntin.logs.copies import (
    first_bytes,
    is_copy,
    is_one_log,
    is_rotated,
    log_of,
    text_length,
)
from muntin.logs.files import (
    PRINT_BYTES,
    FilePosition,
    Key,
    Prints,
    Surroundings,
    first_print,
    holds,
    is_overwritten,
    keeps,
    last_line_end,
    place_of_last,
    prints,
    written_until,
)
from muntin.logs.gunzip import is_gzip
from muntin.logs.held import Held
from muntin.logs.orphans import Orphan, Orphans, found_near, has_bytes_of, inherited
from muntin.logs.patterns import Denied, Walk
from muntin.logs.sightings import Look, Sighting, refusal, sight
from muntin.model.streams import Stream
from muntin.units import describe_time

_SETTLED_SECONDS = 2.0
_COMPRESSING_SECONDS = 300.0  # for which a file is waited for that is not complete
_LIVE_SECONDS = 60.0  # in which a file was written that may have been written again


class Register:
    """The files of one stream that were seen so far. `looks` are what was seen in each."""

    def __init__(
        self,
        stream: Stream,
        follow: bool,
        positions: Iterable[FilePosition],
        looks: Mapping[Key, Look],
    ) -> None:
        self.positions = {p.key: p for p in positions}
        self.ends: dict[Key, tuple[Sighting, int, Prints]] = {}  # seen when a file was identified
        self.held = Held()
        self._stream = stream
        self._follow = follow
        self._looks = looks
        self._strangers: dict[Key, tuple[Sighting, float]] = {}  # without position, and since when
        self._met: dict[Key, float] = {}  # when each of these was met
        self._awaited: list[tuple[str, str]] = []  # sources and files that others wait for
        self._named = any("{source}" in text for text in stream.patterns)
        self._orphans = Orphans()
        # Renamed since the last look, by the name that they had, and since when that is known.
        self._displaced: dict[str, tuple[FilePosition, float]] = {}
        self._unreadable: dict[Key, Loss] = {}  # files that are there
        self._denied: dict[str, Loss] = {}  # what cannot even be looked at, by path
        self._told: dict[str, str] = {}
        self._notes: list[str] = []
        self._lost: list[Loss] = []

    @property
    def has_orphans(self) -> bool:
        """Whether it is still to be found out where some bytes are now."""
        return len(self._orphans) > 0 or bool(self._displaced)

    @property
    def known(self) -> set[Key]:
        """The files that have a position, or would if they could be read."""
        return self.positions.keys() | self._unreadable.keys()

    @property
    def saved(self) -> tuple[FilePosition, ...]:
        """All positions, also those whose files are looked for."""
        return (*(orphan.file for orphan in self._orphans), *self.positions.values())

    @property
    def behind(self) -> frozenset[str]:
        """Sources of which something was not read whose place is not known yet."""
        lost = {orphan.file.source for orphan in self._orphans if orphan.may_lose}
        return frozenset(lost | {s for s, _ in self._awaited} if self._named else lost)

    def waits(self, file: FilePosition) -> bool:
        """Whether another part of the same log has to be read before a file.

        It is being compressed, or it is not known yet who has its bytes.
        """
        return any(self._is_part(file, path, source) for source, path in self._awaited)

    def _is_part(self, file: FilePosition, path: str, source: str) -> bool:
        same = source == file.source or (
            not self._named and Path(path).parent == Path(file.path).parent
        )
        return same and is_one_log(path, file.path)

    def look_around(self, now: float) -> None:
        """Takes what is awaited at this time.

        What is compressed for minutes is not: somebody may write it all the time.
        """
        self._awaited = [(orphan.file.source, orphan.file.path) for orphan in self._orphans]
        for f, since in self._strangers.values():
            begun = self._met.setdefault(f.key, now)
            if not self.settled(f, since, now) and now - begun < _COMPRESSING_SECONDS:
                self._awaited.append((f.source, str(f.path)))
        self._met = {key: at for key, at in self._met.items() if key in self._strangers}

    @property
    def unreadable(self) -> dict[str, list[Loss]]:
        """By source, what is there and cannot be read now."""
        found: dict[str, list[Loss]] = {}
        for loss in (*self._unreadable.values(), *self._denied.values()):
            found.setdefault(loss.source, []).append(loss)
        return found

    def notes(self) -> tuple[str, ...]:
        """What happened to files since this was last asked."""
        notes, self._notes = self._notes, []
        return tuple(notes)

    def lost(self) -> tuple[Loss, ...]:
        """What was found to be lost since this was last asked."""
        lost, self._lost = self._lost, []
        return tuple(lost)

    def note(self, text: str) -> None:
        self._notes.append(text)

    def identify(
        self,
        found: Mapping[Key, Sighting],
        keys: Collection[Key],
        now: float,
        blind: bool,
    ) -> dict[Key, Sighting]:
        """Gives every file that was found its position, if it can be told already.

        Of the files with these keys, those that were not found are gone; where the last look was
        long ago, `blind`, more may have been written to them. Returns the copies that go on for
        one that is gone.
        """
        self.ends.clear()
        for key in self._unreadable.keys() & {*keys, *found}:
            refused = self._unreadable.pop(key)
            if key not in found and key not in self.positions:
                self.note(f"{refused.file} is gone; nothing of it was read")
                self._lost.append(replace(refused, why="is gone"))
        strange = {}
        for key, f in found.items():
            with self.telling(f):
                if not self._is_known(f, now):
                    strange[key] = f
                elif self.positions[key].path != str(f.path):
                    self._displaced[self.positions[key].path] = self.positions[key], now
                    self.positions[key] = replace(self.positions[key], path=str(f.path))
        known = (self.positions[key] for key in keys if key in self.positions)
        gone = [file for file in known if file.key not in found or file.key in strange]
        newest = self._newest() if gone else {}
        for file in gone:
            # One that was cut was written until then, however short ago that was.
            cut = file.key in strange and str(strange[file.key].path) == file.path
            last = file.modified >= newest[file.source, log_of(file.path)]
            live = now - file.modified / 1e9 < _LIVE_SECONDS
            self._orphan(file, last and (blind or cut or live), file.key in strange, now)
        new = list(strange.values())
        handed_on = self._adopt(new, now)
        self._begin(new, now)
        for f in found.values():
            if f.key in self.positions and self.positions[f.key].original:
                with self.telling(f):
                    self._still_copied(f)
        return handed_on

    def _adopt(self, new: Iterable[Sighting], now: float) -> dict[Key, Sighting]:
        """Has files go on for those that are gone: new ones, and known copies, which it returns."""
        ready = []
        for f in new:
            with self.telling(f):
                if f.matched and self._has_settled(f, now):
                    ready.append(f)
        handed_on: dict[Key, Sighting] = {}
        for orphan in self._orphans:
            copies = [p for p in self.positions.values() if p.original == orphan.file.inode]
            sighted = (sight(copy.path, copy.source, True) for copy in copies)
            there = [f for f in sighted if f is not None]
            new_ones = [f for f in ready if f.key not in self.positions]
            best = self._take_over(orphan, [*new_ones, *there])
            handed_on |= {} if best is None or best in new_ones else {best.key: best}
        for f in ready:
            with self.telling(f):
                known = f.key in self.positions
                late = None if known else self._orphans.adopt_late(f, now)
                self.positions |= {} if late is None else {f.key: late}
        return handed_on

    def _take_over(self, orphan: Orphan, found: Sequence[Sighting]) -> Sighting | None:
        """Has the one of some files go on for one that is gone which has most of its text.

        A log that was replaced as a whole goes on under its name, also if there is a copy.
        """
        holders = []
        for f in found:
            with self.telling(f):
                if has_bytes_of(f, orphan.file):
                    holders.append(f)
        if not holders:
            return self._go_on_in(orphan, found)
        best = holders[0]
        if len(holders) > 1:
            name = orphan.file.path
            best = max(holders, key=lambda f: (text_length(f.path), str(f.path) == name))
        self.positions[best.key] = self._orphans.adopt(orphan, best)
        for copy in [p for p in self.positions.values() if p.original == orphan.file.inode]:
            self.positions[copy.key] = replace(copy, original=best.key[1])
        return best

    def _go_on_in(self, orphan: Orphan, found: Sequence[Sighting]) -> Sighting | None:
        """Has a log that somebody has edited go on behind the last line that was read of it."""
        for f in found if self.grows(orphan.file.path) else ():
            with self.telling(f):
                here = self._orphans.adopt_edited(orphan, f)
                if here is not None:
                    self.positions[f.key] = here
                    self.note(
                        f"{f.path} was edited or replaced; reading goes on behind its last line"
                    )
                    return f
        return None

    def place_orphans(self, sightings: Mapping[Key, Sighting], now: float) -> dict[Key, Sighting]:
        """Looks for the bytes of files that are gone, after a look at all that there are.

        Returns files beside them that no pattern matches and that go on for them. What nobody has
        is lost.
        """
        self._strangers = {k: v for k, v in self._strangers.items() if k in sightings}
        strangers = self._strangers.values()
        unsettled = [f for f, since in strangers if not self.settled(f, since, now)]
        found: dict[Key, Sighting] = {}
        near = Surroundings()
        for orphan in self._orphans:
            known = self.positions.keys() | sightings.keys()
            beside = list(found_near(orphan.file, known, near))
            unsettled += [f for f in beside if not self.settled(f, now, now)]
            best = self._take_over(orphan, [f for f in beside if self.settled(f, now, now)])
            if best is not None:
                found[best.key] = best
        found |= self._rotated_meanwhile(sightings, near, now)
        for orphan in self._orphans:
            if not any(self._is_part(orphan.file, str(f.path), f.source) for f in unsettled):
                self._orphans.give_up(orphan, now)
                self._tell_lost(orphan, sightings, now)
        # A file that was cut has waited until it was known where its bytes are.
        self._begin([f for f in sightings.values() if f.key not in self.positions], now)
        return found

    def _rotated_meanwhile(
        self, sightings: Mapping[Key, Sighting], near: Surroundings, now: float
    ) -> dict[Key, Sighting]:
        """Begins files that were written and renamed since the last look: no pattern matches them.

        They lie beside one that was renamed before them, and were written later than what was read
        of that.
        """
        found: dict[Key, Sighting] = {}
        for name, (file, since) in list(self._displaced.items()):
            beside = found_near(file, self.positions.keys() | sightings.keys(), near)
            written = (f for f in beside if f.modified > file.modified)
            later = [f for f in written if self._follow and is_rotated(f.path, name)]
            waiting = not all(self.settled(f, now, now) for f in later)
            if waiting and now - since < _COMPRESSING_SECONDS:
                continue
            del self._displaced[name]
            known = _Originals(self.positions.values() if later else ())
            for f in later:
                with self.telling(f):
                    start = _start(f)
                    if self._copied(f, start, known) is None:
                        # An archive that was written anew begins before what was read.
                        self.positions[f.key], found[f.key] = replace(start, again=True), f
        return found

    def refuse(self, walks: Sequence[Walk], known: Collection[str]) -> None:
        """Takes what walks could not look at: folders of which nothing is known, and files."""
        self._denied = {}
        folders = [denied for walk in walks for denied in walk.denied]
        for denied in folders:
            inside = f"{denied.path.rstrip('/')}/"
            if not any(file.path.startswith(inside) for file in self.positions.values()):
                self._deny(denied)
        for path, source in (file for walk in walks for file in walk.files):
            reason = refusal(path) if path not in known else None
            if reason is not None:
                self._deny(Denied(path, source, reason))

    def _deny(self, denied: Denied) -> None:
        why, log = f"cannot be read: {denied.reason}", log_of(denied.path)
        self._tell(denied.path, InputError(f"{denied.path} {why}"))
        self._denied[denied.path] = Loss(denied.source, denied.path, why, log)

    def settled(self, f: Sighting, since: float, now: float) -> bool:
        """Files that are read as a whole have to be complete first."""
        if not self._follow or self.grows(f.path):
            return True
        return now - min(since, f.modified / 1e9) >= _SETTLED_SECONDS

    def grows(self, path: Path | str) -> bool:
        """Whether lines may be added to a file."""
        return not self._parquet and not is_gzip(path)

    def seen_since(self, f: Sighting, now: float) -> float:
        """When a file that has just got its position was first seen as it is."""
        return self._strangers.pop(f.key, (f, now))[1]

    def read_well(self, f: Sighting) -> None:
        """Takes that a file can be read, of which it may have been told that it cannot."""
        self._told.pop(str(f.path), None)

    @property
    def _parquet(self) -> bool:
        return self._stream.format.kind == "parquet"

    def _is_known(self, f: Sighting, now: float) -> bool:
        known = self.positions.get(f.key)
        if known is None or (f.matched and not known.print_end):
            return False
        look = self._looks.get(f.key)
        if look is not None and look.still(f):
            return True
        with f.open() as file:
            same = holds(file, known.fingerprint)
            if not same and self._is_overwritten(f, file):
                kept = keeps(file, known) and place_of_last(file, known) is None
                same = look is not None or kept
                if same:
                    known = self._go_on_over(f, file, now)
            if same and self._follow and self.grows(f.path):
                end = last_line_end(file, known.position, f.size)
                self.ends[f.key] = f, end, prints(file, end)
        return same

    def _go_on_over(self, f: Sighting, file: BinaryIO, now: float) -> FilePosition:
        """The position of a log that was overwritten, which is known by other bytes from now on."""
        known = self.positions[f.key]
        known = replace(known, **prints(file, known.print_end)._asdict())
        self.positions[f.key] = known
        self.note(f"{f.path} was overwritten where it was read last; reading goes on there")
        # More of it may have been written anew, which nobody can tell from that.
        lost = Loss(f.source, str(f.path), "was overwritten", log_of(f.path), None)
        self._lost.append(replace(lost, lower=known.since, upper=int(now * 1e6) + 1))
        return known

    def _is_overwritten(self, f: Sighting, file: BinaryIO) -> bool:
        known = self.positions[f.key]
        in_place = str(f.path) == known.path and not known.original
        return in_place and self.grows(f.path) and is_overwritten(file, known)

    def _newest(self) -> dict[tuple[str, str], int]:
        """By source and log, when the file was written that was written last."""
        newest: dict[tuple[str, str], int] = {}
        for file in self.positions.values():
            log = file.source, log_of(file.path)
            newest[log] = max(file.modified, newest.get(log, 0))
        return newest

    def _orphan(self, file: FilePosition, live: bool, cut: bool, now: float) -> None:
        """Takes that a file is gone, or has other bytes: unless it just cannot be looked at."""
        reason = None if cut else refusal(file.path)
        look = self._looks.get(file.key)
        if reason is not None:
            why = f"cannot be read: {reason}"
            self._tell(file.path, InputError(f"{file.path} {why}"))
            modified = file.modified if look is None else look.sighting.modified
            self._unreadable[file.key] = _unread(file, why, None, modified)
            return
        del self.positions[file.key]
        size = self.held.last_size(file.key)
        blind = live and size is None and self.grows(file.path)
        seen = file.seen if look is None else look.sighting.size
        left = max(0, max(seen, size or 0) - file.position)
        if self._parquet:
            left = 0 if look is None else (look.end - file.position) * look.unit_bytes
        orphan = Orphan(file, left, blind, cut)
        if file.print_end and not file.original:
            self._orphans.add(orphan)
        elif left and not file.original:  # it was empty, so nobody can be known to have its bytes
            self._tell_lost(orphan, {}, now)

    def _has_settled(self, f: Sighting, now: float) -> bool:
        """Whether a file that is new here is complete, as far as it has to be."""
        seen, since = self._strangers.get(f.key, (f, now))
        self._strangers[f.key] = f, since if seen == f else now
        return self.settled(*self._strangers[f.key], now)

    def _begin(self, found: Iterable[Sighting], now: float) -> None:
        """Begins files that nobody knows, unless the place of what they had before is not known."""
        new = [f for f in found if f.matched and f.key not in self.positions]
        known = _Originals(self.positions.values() if new else ())
        for f in sorted(new, key=_originals_first):
            with self.telling(f):
                if f.key not in self._orphans and self._has_settled(f, now):
                    start = _start(f)
                    position = self._copied(f, start, known) or self._longer(f, known)
                    position = position or self._in_place(start, f, now)
                    self.positions[f.key] = position
                    known.add(position)

    def _copied(self, f: Sighting, start: FilePosition, known: _Originals) -> FilePosition | None:
        """The position of a file that is a copy of one that is there: it is read only once."""
        for key in known.alike(f) if start.head_end else ():
            other = self.positions[key]
            if not other.original and self._may_copy(f, other) and is_copy(f.path, other.path):
                if not self._follow:
                    self.note(f"{f.path} is a copy of {other.path}, and is read once")
                return replace(_printed(start, f), source=other.source, original=other.inode)
        return None

    def _in_place(self, start: FilePosition, f: Sighting, now: float) -> FilePosition:
        """The position of a new file, which may have the name of a log that was read."""
        before = self._orphans.had_name_of(f, now) or self._displaced.get(str(f.path), (None,))[0]
        named = before is not None and before.position > 0 and before.source == f.source
        return replace(start, again=named)

    def doubt(self, file: FilePosition, lower: int | None, upper: int) -> None:
        """Tells that a file may have what was read before from one that had its name."""
        self.note(
            f"{file.path} begins before what was read under this name, up to "
            f"{describe_time(upper)}; it is read from its start, and records may count twice"
        )
        lost = Loss(file.source, file.path, "begins again", log_of(file.path), None)
        self._lost.append(replace(lost, lower=lower, upper=upper + 1))

    def _longer(self, f: Sighting, known: _Originals) -> FilePosition | None:
        """The position of a file that has all of another one, which is a copy of it from now on."""
        for key in known.alike(f):
            other = self.positions[key]
            there = sight(other.path, other.source, True)
            if there is None or there.key != key or other.original or not other.print_end:
                continue
            if self._may_copy(f, other) and is_copy(there.path, f.path):
                self.positions[key] = replace(_printed(other, there), original=f.key[1])
                return inherited(f, other)
        return None

    def _may_copy(self, f: Sighting, other: FilePosition) -> bool:
        """Whether two files may be of one log: by the name of their source, or by their folder."""
        same = f.path.parent == Path(other.path).parent and not self._named
        return (f.source == other.source or same) and is_one_log(f.path, other.path)

    def _still_copied(self, f: Sighting) -> None:
        """Takes that a copy has changed: it has more of its original, or goes its own way."""
        known = self.positions[f.key]
        original = self.positions.get((known.device, known.original))
        if known.print_end == f.size:
            return  # and it has the same bytes, or it would not be known
        if original is not None and is_copy(f.path, original.path):
            self.positions[f.key] = _printed(known, f)
        elif (known.device, known.original) not in self._orphans:
            with f.open() as file:
                end = f.size if is_gzip(f.path) else last_line_end(file, 0, known.print_end)
            self.positions[f.key] = replace(known, source=f.source, position=end, original=0)

    @contextmanager
    def telling(self, f: Sighting) -> Iterator[None]:
        """A file that cannot be read is told of once, or refused where the stream says FAIL."""
        try:
            yield
        except (FileNotFoundError, InputError) as error:
            # A file may be rotated away while it is looked at. The next look finds it, if any.
            if not self._follow:
                told = error if isinstance(error, InputError) else InputError(f"{f.path} is gone")
                self._tell(str(f.path), told)
                self._lost.append(self._not_read(f, str(told).removeprefix(f"{f.path} ")))
                self.positions.pop(f.key, None)
        except (OSError, pa.ArrowException) as error:
            why = f"cannot be read: {getattr(error, 'strerror', None) or error}"
            self._tell(str(f.path), InputError(f"{f.path} {why}"))
            self._unreadable[f.key] = self._not_read(f, why)

    def _not_read(self, f: Sighting, why: str) -> Loss:
        """What is not read of a file if it cannot be read."""
        file = self.positions.get(f.key, FilePosition(f.source, str(f.path), *f.key))
        return _unread(file, why, None if self._parquet else f.size - file.position, f.modified)

    def _tell(self, path: str, error: InputError) -> None:
        if self._stream.on_bad_row == "fail":
            raise error
        if self._told.get(path) != str(error):
            self._told[path] = str(error)
            self.note(str(error))

    def _tell_lost(self, orphan: Orphan, sightings: Mapping[Key, Sighting], now: float) -> None:
        file = orphan.file
        log = file.source, log_of(file.path)
        goes_on = any((p.source, log_of(p.path)) == log for p in self.positions.values())
        loss = orphan.lost(now, goes_on or orphan.cut)
        self._lost += [] if loss is None else [loss]
        unread = f"; {orphan.left:,} bytes of it were not read" if orphan.left else ""
        unread = unread or ("; what it got since it was read is lost" if orphan.blind else "")
        there = sightings.get(file.key)
        if there is not None and str(there.path) == file.path:
            text = f"{file.path} was truncated or rewritten; reading it from the start{unread}"
            self._notes += [text] if file.position else []
        elif unread:
            self.note(f"{file.path} {'is gone' if orphan.left else 'was not found again'}{unread}")
        elif self._follow and file.source not in {p.source for p in self.positions.values()}:
            self.note(f"{file.path} is gone; source '{file.source}' has ended")


class _Originals:
    """Files that others may be copies of, by first bytes, or by their log if these are few."""

    def __init__(self, files: Iterable[FilePosition]) -> None:
        self._heads: dict[tuple[int, int], list[Key]] = {}
        self._logs: dict[str, list[Key]] = {}
        for file in files:
            self.add(file)

    def add(self, file: FilePosition) -> None:
        if not file.original and file.head_end:
            self._heads.setdefault((file.head_end, file.head_crc), []).append(file.key)
            self._logs.setdefault(log_of(file.path), []).append(file.key)

    def alike(self, f: Sighting) -> list[Key]:
        """Files that begin like another one, as far as can be told without looking into them."""
        first = first_bytes(f.path)
        sizes = {end for end, _ in self._heads if end <= len(first)}
        mine = {(end, zlib.crc32(first[:end])) for end in sizes}
        found = [key for head in mine & self._heads.keys() for key in self._heads[head]]
        few = len(first) < PRINT_BYTES
        return [*found, *(self._logs.get(log_of(f.path), ()) if few else ())]


def _unread(file: FilePosition, why: str, size: int | None, modified: int) -> Loss:
    """What is not read of a file that is there."""
    lower = file.since if file.position or file.skip else NEVER
    log = log_of(file.path)
    return Loss(file.source, file.path, why, log, size, lower, written_until(modified // 1000))


def _originals_first(f: Sighting) -> tuple[bool, int, int, str]:
    """Copies are compressed, shorter, or have longer names."""
    return is_gzip(f.path), -f.size, len(f.path.name), str(f.path)


def _start(f: Sighting) -> FilePosition:
    """The position of a file of which nothing was read."""
    with f.open() as file:
        known = first_print(file)
    first = first_bytes(f.path)
    return FilePosition(
        f.source,
        str(f.path),
        *f.key,
        print_end=known.end,
        print_crc=known.crc,
        head_end=len(first),
        head_crc=zlib.crc32(first),
        seen=f.size,
        modified=f.modified,
    )


def _printed(position: FilePosition, f: Sighting) -> FilePosition:
    """The position of a file that is known by its last bytes."""
    with f.open() as file:
        return replace(position, print_end=f.size, **prints(file, f.size)._asdict())
