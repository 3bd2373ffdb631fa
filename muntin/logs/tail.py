"""Which bytes of which files come next.

A file is known by its device, inode and first bytes, so that it stays itself when renamed and
is new when its inode is used again. Positions only ever describe bytes that were handed out
in an earlier batch; saving them with the results of that batch makes restarts exact.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet

from muntin.errors import InputError
from muntin.logs.chunks import PIECE_BYTES, WorkOrder, is_gzip
from muntin.logs.patterns import PathPattern
from muntin.model import Stream

BATCH_BYTES = 512 << 20
_HEAD_BYTES = 256
_SETTLED_SECONDS = 2.0
_GZIP_RATIO = 8


@dataclass(frozen=True)
class FilePosition:
    """How far one file has been read: bytes, or row groups of a Parquet file."""

    source: str
    path: str
    device: int
    inode: int
    position: int = 0
    head_size: int = 0
    head_crc: int = 0

    @property
    def key(self) -> tuple[int, int]:
        return self.device, self.inode


Lane = tuple[WorkOrder, ...]  # orders of one source, to be read one after another


@dataclass(frozen=True)
class Batch:
    """Work to do now, and the positions to remember once it is done."""

    lanes: tuple[Lane, ...]
    positions: tuple[FilePosition, ...]
    bytes: int
    remaining: int  # bytes that are there but did not fit
    behind: frozenset[str]  # sources with bytes that did not fit
    notes: tuple[str, ...] = ()


NOTHING = Batch((), (), 0, 0, frozenset())


@dataclass(frozen=True)
class _Readable:
    """A file with the end up to which it can be read now."""

    file: FilePosition
    end: int
    weight: int
    modified: float


class Tail:
    """Follows the files of one stream."""

    def __init__(
        self,
        stream: Stream,
        follow: bool,
        positions: Iterable[FilePosition] = (),
        batch_bytes: int = BATCH_BYTES,
        piece_bytes: int = PIECE_BYTES,
        tasks: int = 1,
    ) -> None:
        self._stream = stream
        self._patterns = [PathPattern(text) for text in stream.patterns]
        self._follow = follow
        self._positions = {p.key: p for p in positions}
        self._batch_bytes = batch_bytes
        self._piece_bytes = piece_bytes
        self._tasks = tasks

    def require_files(self) -> None:
        """Refuses patterns that match nothing at all."""
        if not any(True for pattern in self._patterns for _ in pattern.find()):
            wanted = " or ".join(f"'{pattern.text}'" for pattern in self._patterns)
            raise InputError(f"stream '{self._stream.name}': no file matches {wanted}")

    def next_batch(self, now: float, in_order: bool) -> Batch:
        """What to read next. `in_order` keeps each source in one lane, as lateness needs."""
        notes: list[str] = []
        readable = [r for r in self._readable(now, notes) if r.end > r.file.position]
        readable.sort(key=lambda r: (r.file.source, r.modified, r.file.path))
        total = sum(r.weight for r in readable)
        by_source: list[list[WorkOrder]] = []
        taken_bytes = 0
        behind = set()
        for source, files in _by_source(readable):
            share = self._share(sum(r.weight for r in files), total)
            orders: list[WorkOrder] = []
            for r in files:
                if share <= 0:
                    behind.add(source)
                    break
                end = self._cut(r, share)
                if end < r.end:
                    behind.add(source)
                orders.append(self._order(r.file, end))
                used = r.weight * (end - r.file.position) // (r.end - r.file.position)
                share -= used
                taken_bytes += used
                self._positions[r.file.key] = replace(r.file, position=end)
            by_source.append(orders)
        lanes = tuple(self._lanes(by_source, taken_bytes, in_order))
        positions = tuple(self._positions.values())
        left = total - taken_bytes
        return Batch(lanes, positions, taken_bytes, left, frozenset(behind), tuple(notes))

    def _lanes(self, by_source: list[list[WorkOrder]], size: int, in_order: bool) -> Iterator[Lane]:
        """One lane a source, or as many as keep every task busy where order does not matter."""
        if in_order:
            yield from (tuple(orders) for orders in by_source)
            return
        # A task costs tens of milliseconds before its first byte, so few and long ones win.
        room = max(self._piece_bytes, -(-size // self._tasks))
        for order in (order for orders in by_source for order in orders):
            step = order.end - order.start if self._whole(order.path) else room
            for start in range(order.start, order.end, step):
                yield (replace(order, start=start, end=min(order.end, start + step)),)

    def _share(self, weight: int, total: int) -> int:
        """A source's part of the batch: sources advance evenly, so that panes can close."""
        return max(self._piece_bytes, self._batch_bytes * weight // max(1, total))

    def _cut(self, r: _Readable, share: int) -> int:
        if self._whole(r.file.path):
            return r.end
        return min(r.end, r.file.position + share)

    def _whole(self, path: str) -> bool:
        return is_gzip(path) or self._stream.format.kind == "parquet"

    def _order(self, file: FilePosition, end: int) -> WorkOrder:
        return WorkOrder(self._stream.name, file.source, file.path, file.position, end)

    def _readable(self, now: float, notes: list[str]) -> Iterator[_Readable]:
        seen = set()
        for pattern in self._patterns:
            for path, source in pattern.find():
                found = self._look(path, source, now, notes)
                if found is not None and found.file.key not in seen:
                    seen.add(found.file.key)
                    yield found
        for key in [k for k in self._positions if k not in seen]:
            renamed = self._renamed(self._positions[key])
            found = self._look(renamed, "", now, notes) if renamed else None
            if found is not None:
                yield found
            elif not renamed:
                gone = self._positions.pop(key)
                if self._follow:
                    notes.append(f"{gone.path} is gone")

    def _look(self, path: Path, source: str, now: float, notes: list[str]) -> _Readable | None:
        try:
            stat = path.stat()
            file = self._identify(path, source, stat.st_dev, stat.st_ino, stat.st_size, notes)
            if self._follow and self._whole(str(path)) and now - stat.st_mtime < _SETTLED_SECONDS:
                return None
            end, weight = self._end(path, file, stat.st_size)
        except FileNotFoundError:
            return None  # rotated away between listing and looking; the next look finds it
        except (OSError, pa.ArrowException) as error:
            message = f"{path} cannot be read: {getattr(error, 'strerror', None) or error}"
            if self._stream.on_bad_row == "fail":
                raise InputError(message) from error
            notes.append(message)
            return None
        self._positions[file.key] = file
        return _Readable(file, end, weight, stat.st_mtime)

    def _identify(
        self, path: Path, source: str, device: int, inode: int, size: int, notes: list[str]
    ) -> FilePosition:
        known = self._positions.get((device, inode))
        if known is None:
            return self._new(path, source, device, inode, size)
        if not self._whole(str(path)) and size < known.position:
            notes.append(f"{path} was truncated; reading it from the start")
            return self._new(path, known.source, device, inode, size)
        if _head_crc(path, known.head_size) != known.head_crc:
            notes.append(f"{path} has new content; reading it from the start")
            return self._new(path, source or known.source, device, inode, size)
        return replace(known, path=str(path))

    def _new(self, path: Path, source: str, device: int, inode: int, size: int) -> FilePosition:
        head = min(size, _HEAD_BYTES)
        return FilePosition(source, str(path), device, inode, 0, head, _head_crc(path, head))

    def _end(self, path: Path, file: FilePosition, size: int) -> tuple[int, int]:
        """Up to where the file can be read now, and about how many bytes of text that is."""
        if self._stream.format.kind == "parquet":
            if file.position:
                return file.position, 0
            groups = pyarrow.parquet.ParquetFile(path).num_row_groups
            return groups, size
        if is_gzip(path):
            return size, 0 if file.position else size * _GZIP_RATIO
        end = _last_line_end(path, file.position, size) if self._follow else size
        return end, end - file.position

    def _renamed(self, file: FilePosition) -> Path | None:
        """Where a file that no pattern matches any more has gone within its folder."""
        folder = Path(file.path).parent
        try:
            for path in folder.iterdir():
                stat = path.stat()
                if (stat.st_dev, stat.st_ino) == file.key and path.is_file():
                    return path
        except OSError:
            return None
        return None


def _by_source(readable: list[_Readable]) -> Iterator[tuple[str, list[_Readable]]]:
    grouped: dict[str, list[_Readable]] = {}
    for r in readable:
        grouped.setdefault(r.file.source, []).append(r)
    yield from grouped.items()


def _head_crc(path: Path, size: int) -> int:
    if not size:
        return 0
    with path.open("rb") as file:
        return zlib.crc32(file.read(size))


def _last_line_end(path: Path, start: int, size: int) -> int:
    """The end of the last complete line in `[start, size)`, or `start` if there is none."""
    with path.open("rb") as file:
        end = size
        while end > start:
            begin = max(start, end - 65536)
            file.seek(begin)
            found = file.read(end - begin).rfind(b"\n")
            if found >= 0:
                return begin + found + 1
            end = begin
    return start
