"""A tail, and what is read through it."""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from zlib import crc32

from muntin.fidelity.losses import Loss
from muntin.logs.chunks import LINE, read_chunks
from muntin.logs.events import Events
from muntin.logs.tail import Batch, FilePosition, Lane, Tail
from muntin.model.records import Column
from muntin.model.streams import Format, Stream

NOW = 2_000_000_000.0  # long after any file of a test was written


def stream(
    *patterns: Path | str,
    kind: Literal["text", "parquet"] = "text",
    on_bad_row: Literal["skip", "fail"] = "skip",
) -> Stream:
    columns = (Column(LINE, "VARCHAR"),)
    return Stream("logs", tuple(map(str, patterns)), Format(kind), columns, "x", None, on_bad_row)


def lines_of(lanes: Iterable[Lane]) -> list[str]:
    return [
        line
        for lane in lanes
        for order in lane
        for chunk in read_chunks(order, Format("text"), [])
        for line in chunk.fields[LINE].to_pylist()
    ]


class Snapshots:
    """Events as a perfect file system would tell of them: at once, and of nothing else."""

    def __init__(self) -> None:
        self._known: dict[str, dict[str, tuple[int, ...]]] = {}

    def watch(self, folders: Collection[str]) -> str | None:
        self._known = {folder: self._known.get(folder, _entries(folder)) for folder in folders}
        return None

    def changed(self) -> set[str]:
        changed = set()
        for folder, known in self._known.items():
            self._known[folder] = now = _entries(folder)
            changed |= {path for path, _ in known.items() ^ now.items()}
        return changed

    def close(self) -> None:
        self._known = {}


def _entries(folder: str) -> dict[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = {}
    with suppress(OSError):
        for path in Path(folder).iterdir():
            with suppress(OSError):
                inside = crc32(path.read_bytes()) if path.is_file() else 0
                found[str(path)] = path.lstat().st_ino, inside
    return found


@dataclass
class Looks:
    """How tails of tests find out what has changed."""

    events: Callable[[], Events | None] = lambda: None


LOOKS = Looks()


class Reader:
    """A tail, and what was read from it so far."""

    def __init__(self, logs: Stream, follow: bool = True, batch_bytes: int = 1 << 20) -> None:
        self.logs, self.follow, self.batch_bytes = logs, follow, batch_bytes
        self.positions: tuple[FilePosition, ...] = ()
        self.notes: list[str] = []
        self.lost: list[Loss] = []
        self.found: list[str] = []
        self.restart()

    def restart(self) -> None:
        self.tail = Tail(
            self.logs, self.follow, self.positions, self.batch_bytes, events=LOOKS.events()
        )

    def batch(self) -> Batch:
        batch = self.tail.next_batch(NOW, in_order=True)
        self.positions = batch.positions
        self.notes += batch.notes
        self.lost += batch.lost
        return batch

    def read(self) -> list[str]:
        lines = lines_of(self.batch().lanes)
        self.found += lines
        return lines

    def read_all(self) -> list[str]:
        found = []
        while True:
            batch = self.batch()
            found += lines_of(batch.lanes)
            if not batch.remaining:
                return found


def append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def squeeze(path: Path, to: Path | None = None) -> Path:
    """Compresses a file as gzip does: the copy has its time, and the file is removed."""
    packed = to or path.with_name(f"{path.name}.gz")
    packed.write_bytes(gzip.compress(path.read_bytes()))
    os.utime(packed, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns))
    path.unlink()
    return packed
