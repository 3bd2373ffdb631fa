"""Results of so many rows that they are not sent to the driver: tasks order and write them.

    answer ─► Waiting: rows in tasks ─► commit: tasks write files ─► Stored: rows in files

The driver knows how many rows each window has, counts and scores. Whoever wants rows reads them
from the files, some at a time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import pyarrow as pa

from muntin.fidelity.score import C2, Reason
from muntin.model.counts import Counts, Fault
from muntin.model.jobs import Job
from muntin.run.results import Departing, Kind, Result, Used, no_windows


@dataclass(frozen=True)
class Part:
    """A file of stored rows that a task has written; the `first` is the lowest of their numbers."""

    name: str
    rows: int
    nbytes: int
    first: int
    windows: tuple[str, ...]  # names of those it has rows of


class Writer(Protocol):
    """Writes files of a table, from whatever process."""

    def write(self, numbered: Iterable[tuple[int, pa.Table]]) -> Part | None:
        """Stores rows, each table with the number of its first, in a file that is on disk then.

        Without rows there is none.
        """


class Waiting(Protocol):
    """Rows of a job's due windows that tasks have."""

    @property
    def counts(self) -> Mapping[Kind, int]:
        """How many rows each window has."""

    @property
    def faults(self) -> Sequence[tuple[Kind, Fault]]:
        """What has failed on the way to them, and in which window."""

    @property
    def digests(self) -> Mapping[Kind, str]:
        """What tells the rows of each window from others, of a job that shows open ones."""

    def write(self, windows: WaitingWindows, writer: Writer, first: int) -> list[Part]:
        """Has tasks order and store the rows of these windows, numbered from the `first` on."""

    def let_go(self) -> None:
        """Says that the rows are not needed any more."""


class Parts(Protocol):
    """Files of stored rows, wherever they are read."""

    def tables(self, window: tuple[str, int, int] | None = None) -> Iterator[pa.Table]:
        """The rows as they are stored, some at a time; of one window if its name, start and end are
        given.
        """


@dataclass(frozen=True)
class WaitingWindows(Departing):
    """Windows whose rows tasks have, until they are stored."""

    job: Job
    waiting: Waiting
    counts: Mapping[Kind, Counts]
    scores: Mapping[Kind, C2]
    revisions: Mapping[Kind, int] = field(default_factory=dict)
    at: float = 0.0

    @property
    def rows_of(self) -> dict[Kind, int]:
        """How many rows the windows have that leave."""
        return {kind: n for kind, n in self.waiting.counts.items() if n and kind in self.counts}

    @property
    def num_rows(self) -> int:
        return sum(self.rows_of.values())

    def without(self, kinds: Collection[Kind]) -> WaitingWindows:
        """The others alone."""
        return replace(
            self,
            counts={kind: each for kind, each in self.counts.items() if kind not in kinds},
            scores={kind: each for kind, each in self.scores.items() if kind not in kinds},
            revisions={kind: each for kind, each in self.revisions.items() if kind not in kinds},
        )

    def apart(self) -> list[WaitingWindows]:
        """Those that have left, and those that are only shown, as far as there are any.

        They are stored in files of their own: whoever takes what has left need not look for it.
        """
        shown = {kind for kind, c2 in self.scores.items() if c2.reason is Reason.OPEN}
        if not shown:
            return [self]
        both = self.without(shown), self.without(self.scores.keys() - shown)
        return [windows for windows in both if windows.scores]

    def stored(self, parts: Parts, files: Sequence[Part]) -> StoredWindows:
        """The same windows once their rows are in files."""
        told = self.counts, self.scores, self.revisions, self.at
        return StoredWindows(self.job, parts, tuple(files), self.rows_of, *told)


class Stored(Departing):
    """Windows whose rows are in files: they are read when somebody asks for them."""

    parts: Parts
    files: tuple[Part, ...]

    @property
    def nbytes(self) -> int:
        return sum(file.nbytes for file in self.files)


@dataclass(frozen=True)
class StoredWindows(Stored):
    """Windows of which each is told by itself; all of them have left, or all are only shown."""

    job: Job
    parts: Parts
    files: tuple[Part, ...]
    rows_of: Mapping[Kind, int]
    counts: Mapping[Kind, Counts]
    scores: Mapping[Kind, C2]
    revisions: Mapping[Kind, int] = field(default_factory=dict)
    at: float = 0.0

    @property
    def num_rows(self) -> int:
        return sum(self.rows_of.values())

    def newest(self) -> StoredWindows:
        last = self.last
        return replace(
            self,
            rows_of={last: self.rows_of.get(last, 0)},
            counts={last: self.counts[last]},
            scores={last: self.scores[last]},
            revisions={last: self.revisions.get(last, 0)},
        )

    @property
    def final(self) -> Departing:
        shown = any(c2.reason is Reason.OPEN for c2 in self.scores.values())
        return no_windows(self.job) if shown else self

    def results(self) -> Iterator[StoredResult]:
        for kind in sorted(self.rows_of, key=lambda kind: (self.bounds(kind)[1], kind[0])):
            yield self._result(kind)
        for kind in self.withdrawn(self.rows_of):
            yield self._result(kind)

    def _result(self, kind: Kind) -> StoredResult:
        return StoredResult(
            self.job.title,
            self.name(kind),
            *self.bounds(kind),
            tuple(output.name for output in self.job.outputs),
            self.rows_of.get(kind, 0),
            self.parts,
            self.counts[kind],
            self.scores[kind],
            self.revisions.get(kind, 0),
            self.job.edition.number,
            self.used(kind),
        )

    def tables(self) -> Iterator[pa.Table]:
        alone = len(self.rows_of) == 1 and not self.withdrawn(self.rows_of)
        only = next(iter(self.rows_of)) if alone else None
        yield from self.parts.tables(only and (self.name(only), *self.bounds(only)))


@dataclass(frozen=True)
class StoredResult(Result):
    """A result whose rows are in files."""

    job: str
    window: str
    start: int
    end: int
    columns: tuple[str, ...]
    num_rows: int
    parts: Parts
    counts: Counts
    c2: C2
    revision: int = 0
    version: int = 1
    used: tuple[Used, ...] = ()

    def batches(self) -> Iterator[pa.Table]:
        if self.num_rows:
            for table in self.parts.tables((self.window, self.start, self.end)):
                yield table.select(list(self.columns))

    @property
    def rows(self) -> pa.Table:
        """All rows at once: they have to fit into memory."""
        return pa.concat_tables(list(self.batches()) or [pa.table({})])
