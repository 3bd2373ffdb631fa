"""How large a state becomes, and how long a restart takes, as batches go by.

    python -m benchmarks.soak [--batches 10000] [--panes 60,600,3600] [--state PLACE]

Commits batches with the real journal, one a second of the logs, as fast as it can: each has a pane
with blocks of a hundred keys and tallies of ten sources, and a window that leaves, whose result
another job looks at with LATEST. What no window needs any more is forgotten. A fixed set of jobs
has to need a fixed place, beside what it has answered; and a restart has to take as long as there
are panes in open windows, however old the state is. Tables forget what was replaced after a second
instead of ten minutes, as the clock is fast here. Times are CPU times of this process, and the
median of three restarts.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
from rich.console import Console
from rich.table import Table

import muntin as mt
from benchmarks.driver import Nothing
from muntin.fidelity.score import C2, Reason
from muntin.kernel.block import Block, encode
from muntin.kernel.due import Due, Emitted
from muntin.kernel.statements import WINDOW, WINDOW_END
from muntin.model.counts import Counts, Tally
from muntin.model.records import POSITION
from muntin.run.catalog import Catalog
from muntin.run.contracts import Answer
from muntin.run.results import Emission, JobWindows, ToSave, no_windows
from muntin.run.tables import Tables
from muntin.store import delta
from muntin.store.blocks import BlockFiles
from muntin.store.journal import Journal
from muntin.store.storage import Place, storage_of

PROGRAM = mt.sql(
    "CREATE STREAM s (t BIGINT) FROM 'none/{source}' FORMAT json TIMESTAMP t;"
    "CREATE JOB j AS SELECT count(*) AS c FROM s WINDOW 1 SECOND;"
    "CREATE JOB looks AS SELECT l.c, count(*) AS n FROM s JOIN LATEST(j) l ON l.c > 0 GROUP BY l.c "
    "WINDOW 1 SECOND;"
)
CATALOG = Catalog.of(PROGRAM.streams["s"], PROGRAM.jobs_of("s"))
JOB = CATALOG.jobs["j"]
SHAPE = JOB.shape.id
KEYS, SOURCES = 100, 10
FAST = {  # not by the clock, or what is left depends on the speed of the machine
    "delta.deletedFileRetentionDuration": "interval 0 seconds",
    "delta.logRetentionDuration": "interval 0 seconds",
}


class OpenPanes(Nothing):
    """A collection of the newest panes, a block each."""

    def __init__(self, panes: int) -> None:
        super().__init__((), rows=False)
        self._panes = panes
        self.held: dict[int, Block] = {}

    def take(self, number: int) -> Block:
        rows = pa.table({"k": [f"key-{k:04}" for k in range(KEYS)], "n": [number] * KEYS})
        self.held[number] = Block(SHAPE, encode(rows), KEYS)
        self.held.pop(number - self._panes, None)
        return self.held[number]

    def answer(
        self, catalog: Catalog, due: Due, save: Mapping[str, Emitted] | None = None
    ) -> Answer:
        return Answer(to_save=ToSave({SHAPE: list(self.held.values())}))

    def restore(self, catalog: Catalog, blocks: BlockFiles) -> None:
        found = (block for block in blocks.every(catalog.shapes))
        numbers = ((block.table()["n"][0].as_py(), block) for block in found)
        self.held = dict(sorted(numbers, key=lambda each: each[0])[-self._panes :])


@dataclass(frozen=True)
class Seen:
    """A state after so many batches: bytes and files of checkpoints and tables, and a restart."""

    batches: int
    checkpoints: int
    checkpoint_files: int
    joined_files: int  # beside these, of results that LATEST looks at
    tables: int
    table_files: int
    restart_ms: float
    commit_ms: float


def soak(state: Place, batches: int, panes: int, looks: set[int]) -> Iterator[Seen]:
    """Commits batches, and tells what is there after some of them."""
    collection = OpenPanes(panes)
    journal = Journal(state, CATALOG, collection)
    tables = Tables(journal.progress, journal.keep_rows)
    before = time.process_time()
    for number in range(batches):
        _commit(journal, collection, tables, number, panes)
        if number % 64 == 63:
            journal.tidy()
        if number + 1 in looks:
            spent = time.process_time() - before
            yield _seen(state, number + 1, panes, 1e3 * spent / (number + 1))
            before = time.process_time() - spent


def _commit(
    journal: Journal, collection: OpenPanes, tables: Tables, number: int, panes: int
) -> None:
    now, open_ = number * JOB.shape.pane, panes * JOB.shape.pane
    catalog, _ = tables.look(CATALOG, lambda axis: now, lambda shape: now - open_)
    new = collection.take(number)
    ledger, end = journal.progress.ledger, number + 1
    ledger.add(
        Tally(f"web-{s}", POSITION, 1, number, None, KEYS // SOURCES, 0, end)
        for s in range(SOURCES)
    )
    ledger.forget((POSITION, 1), number - panes)
    journal.progress.records += KEYS
    schema = no_windows(JOB).rows.schema
    made = {WINDOW: [0], WINDOW_END: [end], "c": [KEYS]}
    rows = pa.table({f.name: pa.array(made[f.name]).cast(f.type) for f in schema}, schema)
    c2 = C2(Reason.COMPLETE, 1.0, 1.0, 1.0, 1, ((1, 1),))
    left = JobWindows(JOB, rows, {(0, end): Counts(1)}, {(0, end): c2}, at=float(end))
    journal.commit(catalog, Emission((left,), ToSave({SHAPE: [new]})))
    list(tables.hear(catalog, JOB.title, left.tables()))


def _seen(state: Place, batches: int, panes: int, commit_ms: float) -> Seen:
    storage = storage_of(state)
    streams, tables = storage.sizes("streams"), storage.sizes("results")
    joined = sum("/joined/" in name for name in streams)
    times = []
    for _ in range(3 if storage.appends else 1):
        begun = time.process_time()
        found = Journal(state, CATALOG, OpenPanes(panes))
        times.append(1e3 * (time.process_time() - begun))
        assert found.batch == batches - 1
    return Seen(
        batches, sum(streams.values()), len(streams) - joined, joined, sum(tables.values()),
        len(tables), statistics.median(times), commit_ms,
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batches", type=int, default=10_000)
    parser.add_argument("--panes", default="60,600,3600")
    parser.add_argument("--state")
    args = parser.parse_args()
    delta._SETTINGS |= FAST
    table = Table("panes", "batches", "checkpoints kB", "files", "joined", "tables kB", "files",
                  "commit ms", "restart ms")  # fmt: skip
    for panes in map(int, args.panes.split(",")):
        looks = {n for n in (100, 300, 1000, 3000, 10_000, 30_000) if n <= args.batches}
        with tempfile.TemporaryDirectory(prefix="muntin-soak-") as folder:
            place = folder if args.state is None else f"{args.state}/panes-{panes}"
            for seen in soak(place, args.batches, panes, {*looks, args.batches}):
                numbers = (seen.checkpoints / 1e3, seen.checkpoint_files, seen.joined_files)
                more = (seen.tables / 1e3, seen.table_files, seen.commit_ms, seen.restart_ms)
                told = (f"{number:,.1f}" for number in (*numbers, *more))
                table.add_row(f"{panes:,}", f"{seen.batches:,}", *told)
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
