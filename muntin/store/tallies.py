"""The ledger of a stream in files, which are written in proportion to what changes.

Each file has the tallies that some batches have added, one record a batch. Panes are forgotten in
order, so a file goes when all of its panes have been; what is held is never written again for it.
Only where files come to have many tallies that add up to few are they merged.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from muntin.model import Tally
from muntin.store import tape
from muntin.windows.ledger import Grid, Ledger

Last = tuple[str, int, int]  # an axis, a size and the last pane that a file has of it
_WORTH_MERGING = 10_000  # tallies beyond twice what is held
_MOST = 100_000  # tallies in a file that is still added to
_SCHEMA = pa.schema(
    [
        ("source", pa.string()),
        ("axis", pa.string()),
        ("size", pa.int64()),
        ("pane", pa.int64()),
        ("not_before", pa.int64()),
        ("records", pa.int64()),
        ("bad", pa.int64()),
        ("reached", pa.int64()),
    ]
)


@dataclass(frozen=True)
class Stored:
    """One file: how long it is, how many tallies it has, and up to which panes."""

    length: int
    tallies: int
    last: tuple[Last, ...]

    def is_needed(self, forgotten: Mapping[Grid, int]) -> bool:
        return any(
            (axis, size) not in forgotten or pane >= forgotten[axis, size]
            for axis, size, pane in self.last
        )


class TallyFiles:
    """The files that make up a ledger, by name, and before which panes it has forgotten all.

    Without files to begin with, the first ones have all that the ledger holds.
    """

    def __init__(
        self,
        folder: Path,
        files: Mapping[str, Stored] | None = None,
        forgotten: Mapping[Grid, int] | None = None,
    ) -> None:
        self._folder = folder
        self._is_new = files is None
        self.files = dict(files or {})
        self.forgotten = dict(forgotten or {})
        self._name: str | None = None  # of the file that is being added to
        self._current = Ledger()  # what is in it

    def write(self, batch: int, ledger: Ledger, anew: bool) -> None:
        """Adds what has changed in the ledger; `anew`, to a new file.

        Files that are no longer in `files` may go once what is there has been committed.
        """
        many = sum(stored.tallies for stored in self.files.values())
        merges = anew and many > 2 * len(ledger) + _WORTH_MERGING
        changes, self._is_new = ledger.changes(merges or self._is_new), False
        if anew:
            self._close(batch)
        if changes.whole:
            self.files, self.forgotten, self._name = {}, {}, None
        for grid, before in changes.forgotten.items():
            self.forgotten[grid] = max(before, self.forgotten.get(grid, before))
        if changes.tallies:
            self._add(batch, changes.tallies)
        if len(self._current) > _MOST:
            self._name, self._current = None, Ledger()

    def read(self) -> Ledger:
        """The ledger that was written, which remembers its changes from here on."""
        ledger = Ledger()
        for name, stored in self.files.items():
            for record in tape.read(self._folder / name, stored.length):
                ledger.add(_decode(record))
        for grid, before in self.forgotten.items():
            ledger.forget(grid, before)
        ledger.watch()
        return ledger

    def _add(self, batch: int, tallies: Sequence[Tally]) -> None:
        write = tape.add
        if self._name is None:  # what a batch that failed may have left there is written over
            self._name, self._current = f"ledger-{batch:09}.tape", Ledger()
            write = tape.create
        self._current.add(tallies)
        known = self.files.get(self._name, Stored(0, 0, ()))
        length = write(self._folder / self._name, [_encode(tallies)])
        count = known.tallies + len(tallies)
        self.files[self._name] = Stored(length, count, _last(known.last, tallies))

    def _close(self, batch: int) -> None:
        """Drops files that nobody needs, and merges the one that was added to if that helps."""
        forgotten = self.forgotten
        self.files = {n: stored for n, stored in self.files.items() if stored.is_needed(forgotten)}
        known = self.files.get(self._name or "")
        if known is not None and self._name is not None and 2 * len(self._current) < known.tallies:
            del self.files[self._name]
            merged = f"ledger-{batch:09}-merged.tape"
            length = tape.create(self._folder / merged, [_encode(list(self._current))])
            self.files[merged] = Stored(length, len(self._current), known.last)
        self._name = None


def _last(known: Sequence[Last], tallies: Sequence[Tally]) -> tuple[Last, ...]:
    last = {(axis, size): pane for axis, size, pane in known}
    for tally in tallies:
        grid = tally.axis, tally.size
        if tally.pane > last.get(grid, tally.pane - 1):
            last[grid] = tally.pane
    return tuple((*grid, pane) for grid, pane in last.items())


def _encode(tallies: Sequence[Tally]) -> bytes:
    sink = pa.BufferOutputStream()
    columns = [
        pa.array(c, f.type) for c, f in zip(zip(*tallies, strict=True), _SCHEMA, strict=True)
    ]
    with pa.ipc.new_stream(sink, _SCHEMA) as stream:
        stream.write_batch(pa.record_batch(columns, _SCHEMA))
    return zlib.compress(sink.getvalue(), 1)


def _decode(data: bytes) -> Iterator[Tally]:
    table = pa.ipc.open_stream(zlib.decompress(data)).read_all()
    return map(Tally, *(column.to_pylist() for column in table.columns))
