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
from muntin.model import Job, Stream
from muntin.run.pipeline import Collection
from muntin.run.progress import Progress
from muntin.run.results import Emission, no_windows
from muntin.store.checkpoint import Checkpoint, Saved, differences
from muntin.store.results import Results

SAVES_PER_REWRITE = 64


class Resident(Collection, Protocol):
    """A collection whose blocks can be rewritten as few, and come back after a restart."""

    def compact(self, jobs: Mapping[str, Job]) -> None: ...

    def restore(self, jobs: Mapping[str, Job], blocks: Mapping[str, Sequence[Block]]) -> None: ...


class Journal:
    """Takes up where the last run stopped; `batch` is the last one committed, or -1."""

    def __init__(
        self, state: Path, stream: Stream, jobs: Sequence[Job], collection: Resident
    ) -> None:
        self._stream = stream.name
        self._checkpoint = Checkpoint(state, stream.name)
        self._results = Results(state)
        self._collection = collection
        self._jobs = {job.name: job for job in jobs}
        self._shapes = {job.name: job.shape.id for job in jobs}
        self._appended = 0
        self._untidy = False
        self.notes: list[str] = []
        self.batch = -1
        self.progress = Progress()
        self.positions: tuple[FilePosition, ...] = ()
        saved = self._checkpoint.load(set(self._shapes.values()))
        self._results.prepare({job.name: no_windows(job).table().schema for job in jobs})
        if saved is not None:
            self._resume(saved, jobs)

    def _resume(self, saved: Saved, jobs: Sequence[Job]) -> None:
        for job in self._results.publish(self._stream, saved.batch, saved.results):
            message = "its table was taken away, with all results so far; a new one begins"
            self.notes.append(f"job '{job}': {message}")
        self.notes += differences(saved.shapes, self._shapes)
        changed = [name for name, shape in saved.shapes.items() if self._shapes.get(name) != shape]
        self.notes += saved.progress.failures.resume(jobs, changed)
        # The first commit rewrites what earlier runs have left, however short they were.
        self._appended = SAVES_PER_REWRITE - 1
        self._collection.restore(self._jobs, saved.blocks)
        self.batch = saved.batch
        self.progress = saved.progress
        for source in self.progress.sources.values():
            source.heard_at = None  # silence is counted anew
        self.positions = saved.positions

    def commit(self, emission: Emission, positions: tuple[FilePosition, ...] | None = None) -> None:
        """Makes a batch final. Everything before this line of the run can be repeated.

        Without new `positions` of files, those of before are kept.
        """
        batch = self.batch + 1
        self.positions = self.positions if positions is None else positions
        rows = {windows.job.name: windows.tables() for windows in emission.windows}
        files = self._results.write(batch, rows)
        self._appended += 1
        whole = self._appended >= SAVES_PER_REWRITE
        blocks = self._all_blocks() if whole else emission.blocks
        saved = Saved(batch, self.progress, self.positions, self._shapes, blocks, files)
        self._checkpoint.save(saved, whole)
        if whole:
            self._appended = 0
        gone = self._results.publish(self._stream, batch, files)
        if gone:
            raise StateError(f"results of job '{gone[0]}': their table was taken away while it ran")
        self.batch = batch
        self._untidy |= whole

    def tidy(self) -> list[str]:
        """Merges small files of results where there may be many; returns what there is to say."""
        untidy, self._untidy = self._untidy, False
        return list(self._results.compact(self._shapes)) if untidy else []

    def _all_blocks(self) -> dict[str, list[Block]]:
        self._collection.compact(self._jobs)
        return self._collection.answer(self._jobs, Due(), save={}).blocks


def rehearse() -> None:
    """Commits a row somewhere else, which loads all that the first real commit needs."""
    rows = pa.table({"window_start": [0], "window_end": [1]})
    # If it fails, there is nothing to tell: the real one will, of the folder that matters.
    with suppress(MuntinError, OSError), tempfile.TemporaryDirectory(prefix="muntin-") as folder:
        results = Results(Path(folder))
        results.prepare({"rehearsal": rows.schema})
        files = results.write(0, {"rehearsal": [rows]})
        saved = Saved(0, Progress(), (), {}, {}, files)
        Checkpoint(Path(folder), "rehearsal").save(saved, whole=False)
        results.publish("rehearsal", 0, files)
