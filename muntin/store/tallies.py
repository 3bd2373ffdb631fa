"""The ledger of a stream in files, which are written in proportion to what changes.

Each file has the tallies that some batches have added, one record a batch. Panes are forgotten in
order, so a file goes when all of its panes have been; what is held is never written again for it.
Only where files come to have many tallies that add up to few are they merged.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from uuid import uuid4

import pyarrow as pa

from muntin.model.counts import Tally
from muntin.store import tape
from muntin.store.storage import Place, storage_of
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
        folder: Place,
        files: Mapping[str, Stored] | None = None,
        forgotten: Mapping[Grid, int] | None = None,
    ) -> None:
        self._folder = storage_of(folder)
        self._is_new = files is None
        self.files = dict(files or {})
        self.forgotten = dict(forgotten or {})
        self._adding: list[str] = []  # the files that have what was added since one was begun
        self._current = Ledger()  # what is in them

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
            self.files, self.forgotten, self._adding = {}, {}, []
        for grid, before in changes.forgotten.items():
            self.forgotten[grid] = max(before, self.forgotten.get(grid, before))
        if changes.tallies:
            self._add(batch, changes.tallies)
        if len(self._current) > _MOST:
            self._adding, self._current = [], Ledger()

    def read(self) -> Ledger:
        """The ledger that was written, which remembers its changes from here on."""
        ledger = Ledger()
        folder = self._folder
        found = zip(self.files.items(), folder.read_all(list(self.files)), strict=True)
        for (name, stored), data in found:
            for record in tape.records_in(data, folder.where(name), stored.length):
                ledger.add(_decode(record))
        for grid, before in self.forgotten.items():
            ledger.forget(grid, before)
        ledger.watch()
        return ledger

    def _add(self, batch: int, tallies: Sequence[Tally]) -> None:
        data = tape.framed([_encode(tallies)])
        if not self._adding:
            self._current = Ledger()
        if not self._adding or not self._folder.appends:
            name, known = _name(batch), Stored(0, 0, ())
            self._folder.put(name, data)
            self._adding.append(name)
            length = len(data)
        else:
            name = self._adding[-1]
            known, length = self.files[name], self._folder.append(name, data)
        self._current.add(tallies)
        count = known.tallies + len(tallies)
        self.files[name] = Stored(length, count, _last(known.last, tallies))

    def _close(self, batch: int) -> None:
        """Drops files that nobody needs, and merges what was added if that helps."""
        forgotten = self.forgotten
        self.files = {n: stored for n, stored in self.files.items() if stored.is_needed(forgotten)}
        known = {n: self.files[n] for n in self._adding if n in self.files}
        tallies = sum(stored.tallies for stored in known.values())
        if known and (len(known) > 1 or 2 * len(self._current) < tallies):
            self.files = {n: stored for n, stored in self.files.items() if n not in known}
            merged, held = _name(batch), list(self._current)
            data = tape.framed([_encode(held)])
            self._folder.put(merged, data)
            self.files[merged] = Stored(len(data), len(held), _last((), held))
        self._adding = []


def _name(batch: int) -> str:
    """One that no other file has, not even what an earlier attempt has left."""
    return f"ledger-{batch:09}-{uuid4().hex[:8]}.tape"


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
