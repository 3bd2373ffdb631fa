"""A stream's batches as they are committed: the checkpoint decides, then results are shown."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from muntin.errors import MuntinError, StateError
from muntin.kernel.block import Block
from muntin.kernel.due import Due
from muntin.logs.tail import FilePosition
from muntin.run.catalog import Catalog, InForce
from muntin.run.contracts import Collection
from muntin.run.progress import Progress
from muntin.run.results import Emission, no_windows
from muntin.store.checkpoint import Checkpoint, Saved, differences
from muntin.store.results import Results

SAVES_PER_REWRITE = 64


class Resident(Collection, Protocol):
    """A collection whose blocks can be rewritten as few, and come back after a restart."""

    def compact(self, catalog: Catalog) -> None:
        """Merges all steps into one."""

    def restore(self, catalog: Catalog, blocks: Mapping[str, Sequence[Block]]) -> None:
        """Starts from blocks that were saved."""


class Journal:
    """Takes up where the last run stopped; `batch` is the last one committed, or -1."""

    def __init__(self, state: Path, catalog: Catalog, collection: Resident) -> None:
        self._stream = catalog.stream.name
        self._checkpoint = Checkpoint(state, self._stream)
        self._results = Results(state)
        self._collection = collection
        self._saves = 0  # since files were begun anew
        self._untidy = False
        self.notes: list[str] = []
        self.batch = -1
        self.progress = Progress()
        self.before = InForce()
        self.positions: tuple[FilePosition, ...] = ()
        saved = self._checkpoint.load(catalog.shapes)
        self._prepared: set[str] = set()
        self._prepare(catalog, saved.tables if saved is not None else None)
        if saved is not None:
            self._resume(saved, catalog)

    def _prepare(self, catalog: Catalog, synced: Mapping[str, int] | None = None) -> None:
        """Has a table for every job."""
        new = [job for name, job in catalog.jobs.items() if name not in self._prepared]
        self._results.prepare({job.name: no_windows(job).table().schema for job in new}, synced)
        self._prepared |= {job.name for job in new}

    def _resume(self, saved: Saved, catalog: Catalog) -> None:
        for job in self._results.publish(self._stream, saved.batch, saved.results):
            message = "its table was taken away, with all results so far; a new one begins"
            self.notes.append(f"job '{job}': {message}")
        self.before = saved.in_force
        now = catalog.in_force
        self.notes += differences(self.before, now)
        # The first commit rewrites what earlier runs have left, however short they were.
        self._saves = SAVES_PER_REWRITE
        self._collection.restore(catalog, saved.blocks)
        self.batch = saved.batch
        self.progress = saved.progress
        for source in self.progress.sources.values():
            source.heard_at = source.moved_at = None  # silence is counted anew
        self.positions = saved.positions

    def commit(
        self,
        catalog: Catalog,
        emission: Emission,
        positions: tuple[FilePosition, ...] | None = None,
    ) -> None:
        """Makes a batch final. Everything before this line of the run can be repeated.

        Without new `positions` of files, those of before are kept.
        """
        batch = self.batch + 1
        self._prepare(catalog)
        self.positions = self.positions if positions is None else positions
        rows = {windows.job.name: windows.tables() for windows in emission.windows}
        files = self._results.write(batch, rows)
        anew = self._saves >= SAVES_PER_REWRITE
        whole = anew and self._checkpoint.is_loose
        blocks = self._all_blocks(catalog) if whole else emission.blocks
        unsynced, tables = self._results.unsynced()
        now = catalog.in_force
        saved = Saved(batch, self.progress, self.positions, now, blocks, files, tables)
        # Until it is known that this is saved, the next would have to save everything.
        saves, self._saves = 0 if anew else self._saves + 1, SAVES_PER_REWRITE
        self._checkpoint.save(saved, whole, anew, unsynced)
        self._saves = saves
        gone = self._results.publish(self._stream, batch, files)
        if gone:
            raise StateError(f"results of job '{gone[0]}': their table was taken away while it ran")
        self.batch = batch
        self._untidy |= anew

    def tidy(self) -> list[str]:
        """Merges small files of results where there may be many; returns what there is to say."""
        untidy, self._untidy = self._untidy, False
        return list(self._results.compact(self._prepared)) if untidy else []

    def _all_blocks(self, catalog: Catalog) -> Mapping[str, Sequence[Block]]:
        self._collection.compact(catalog)
        return self._collection.answer(catalog, Due(), save={}).blocks


def rehearse() -> None:
    """Commits a row somewhere else, which loads all that the first real commit needs."""
    rows = pa.table({"window_name": ["rehearsal"], "window_start": [0], "window_end": [1]})
    # If it fails, there is nothing to tell: the real one will, of the folder that matters.
    with suppress(MuntinError, OSError), tempfile.TemporaryDirectory(prefix="muntin-") as folder:
        results = Results(Path(folder))
        results.prepare({"rehearsal": rows.schema})
        files = results.write(0, {"rehearsal": [rows]})
        saved = Saved(0, Progress(), (), InForce(), {}, files)
        Checkpoint(Path(folder), "rehearsal").save(saved, whole=False)
        results.publish("rehearsal", 0, files)
