"""A stream's batches as they are committed: the checkpoint decides, then results are shown."""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Protocol
from uuid import uuid4

import pyarrow as pa

from muntin.errors import MuntinError, StateError
from muntin.kernel.due import Due
from muntin.kernel.kinds import kind_of
from muntin.logs.tail import FilePosition
from muntin.model.jobs import VERSIONED, Job
from muntin.model.shapes import Shape
from muntin.run.catalog import Catalog, InForce
from muntin.run.contracts import Collection
from muntin.run.kept import Remembered, decoded, kept
from muntin.run.many import Part, Stored, WaitingWindows
from muntin.run.past import Past
from muntin.run.progress import Progress
from muntin.run.results import Departing, Emission, ToSave, stored_schema
from muntin.run.sessions import StoredSessions, WaitingSessions
from muntin.schedule.pace import Measure
from muntin.store.blocks import BlockFiles
from muntin.store.checkpoint import STREAMS, Checkpoint, Saved, differences
from muntin.store.panes import FOLDER as PANES
from muntin.store.panes import PaneFiles
from muntin.store.repeats import Ends
from muntin.store.results import Results
from muntin.store.settling import Settling, Tasks, here
from muntin.store.storage import Place, storage_of

SAVES_PER_REWRITE = 64
_WORTH_MOVING = 8 << 20  # bytes of blocks, whose panes are looked for those that have settled
_WORTH_A_REST = 4 << 20  # the same where nothing waits for it
_PATIENCE = 50  # times that a table finds no room to be tidied
_WAITING = WaitingWindows, WaitingSessions


class Resident(Collection, Protocol):
    """A collection whose blocks can be rewritten as few, and come back after a restart."""

    def compact(self, catalog: Catalog) -> None:
        """Merges all steps into one."""

    def restore(self, catalog: Catalog, blocks: BlockFiles) -> None:
        """Starts from blocks that were saved."""


class Journal:
    """Takes up where the last run stopped; `batch` is the last one committed, or -1."""

    def __init__(
        self,
        state: Place,
        catalog: Catalog,
        collection: Resident,
        others: Iterable[str] = (),
        tasks: Tasks = here,
    ) -> None:
        """`others` are the streams that are there too, so that this one was not called so.

        Panes that are kept for questions are moved by `tasks`, which also compare windows with what
        tables have, where their rows are many.
        """
        self._stream = catalog.stream.name
        self._state = storage_of(state)
        self._checkpoint = Checkpoint(state, self._stream)
        self._results = Results(state)
        self._collection = collection
        self._saves = 0  # since files were begun anew
        self._unmoved = 0  # bytes of blocks that were saved since panes were last kept
        self._untidy: dict[str, None] = {}  # jobs whose tables may have many small files
        self._tidying = Measure(0.1)  # seconds that a table takes
        self._put_off = 0  # times that there was no room for it
        self._panes = PaneFiles(self._checkpoint.folder)
        self._settling = Settling(self._panes, tasks)
        self._tasks = tasks
        self._moving = Measure(0.5)  # seconds that moving panes takes
        self._past: dict[str, Past] = {}  # of the last commit
        self._blocks = BlockFiles(self._checkpoint.folder)  # of the last commit
        self._kept: tuple[Catalog, Remembered] | None = None
        self.notes: list[str] = []
        self.batch = -1
        self.progress = Progress()
        self.before = InForce()
        self.positions: tuple[FilePosition, ...] = ()
        self.called = self._checkpoint.take_over(catalog, {self._stream, *others})
        saved = self._checkpoint.load()
        self._writer = uuid4().hex if saved is None else saved.writer or self._stream
        self._known: dict[str, Ends] = {}  # windows that an earlier state has stored
        self._prepared: dict[str, set[str]] = {}  # by job, the versions for which it has a table
        tables = saved.tables if saved is not None else {}
        gone = [job for job in tables if job in catalog.titles and not self._results.has(job)]
        self._prepare(catalog, None if saved is None else tables)
        if self.called is not None:
            message = f"stream '{self._stream}' goes on where stream '{self.called}' stood"
            self.notes.append(f"{message}, which had the same jobs")
        if saved is not None:
            self._resume(saved, catalog, gone)
        else:
            self._look_back(catalog.jobs.values(), f"stream '{self._stream}' has no state")

    def keep_rows(self, name: str, rows: pa.Table) -> str:
        return self._checkpoint.keep_rows(name, rows)

    def _prepare(self, catalog: Catalog, synced: Mapping[str, int] | None = None) -> list[Job]:
        """Has a table for every job; returns the jobs that are new."""
        new: dict[str, Job] = {}
        more: list[Job] = []  # versions of jobs that have a table
        for job in catalog.jobs.values():
            versions = self._prepared.setdefault(job.title, set())
            if job.version not in versions:
                if versions:
                    more.append(job)
                else:
                    new[job.title] = job
                versions.add(job.version)
        first = {title: stored_schema(job) for title, job in new.items()}
        names = {title: kind_of(job.shape).names(job) for title, job in new.items()}
        self._results.prepare(first, synced, names)
        for job in more:
            self._results.prepare({job.title: stored_schema(job)}, synced)
        return list(new.values())

    def require(self, job: Job) -> None:
        """Raises a StateError if results of a job cannot be stored with those that there are."""
        self._results.require({job.title: stored_schema(job)})

    def _look_back(self, jobs: Iterable[Job], why: str | None = None) -> None:
        """Learns which windows of jobs were stored that are none of this state, and says so."""
        told = []
        for job in jobs:
            kind, ends = kind_of(job.shape), self._results.ends(job.title)
            mine = {name: ends[name] for name in kind.names(job) if name in ends}
            if mine and kind.has_windows:
                self._known[job.title] = self._known.get(job.title, {}) | mine
                told.append(f"job '{job.title}' has windows{_upto(job, mine)}")
            elif (
                ends and not kind.has_windows
            ):  # results without windows of their own cannot be told apart
                told.append(f"job '{job.title}' stores again what it has")
        if told and why is not None:
            self.notes.append(
                f"{why}, but results: {', '.join(told)}; windows that come out the same are not "
                "stored again, and others are stored as revisions"
            )

    def _resume(self, saved: Saved, catalog: Catalog, gone: Sequence[str]) -> None:
        """Goes on from a state; `gone` are jobs whose tables are not there any more."""
        for job in gone:
            message = "its table was taken away, with all results so far; a new one begins"
            self.notes.append(f"job '{job}': {message}")
        for job in self._results.publish(self._writer, saved.batch, saved.results):
            if job not in gone:
                message = (
                    f"the file of its last results was taken away: {', '.join(saved.results[job])}"
                )
                self.notes.append(f"job '{job}': {message}")
        known = saved.in_force
        names = {name.partition(VERSIONED)[0] for name in known.jobs}
        last = self._results.last_batch({*catalog.titles, *names}, self._writer)
        if last > saved.batch:
            self._writer = uuid4().hex  # whose numbers nobody has used
            why = f"the state of stream '{self._stream}' is of batch {saved.batch:,}, older than"
            self._look_back(catalog.jobs.values(), f"{why} batch {last:,} of its results")
        else:
            self._known = dict(saved.known)
            self._look_back(job for job in catalog.jobs.values() if not known.had(job))
        self.before = saved.in_force
        self.notes += differences(self.before, catalog)
        # The first commit rewrites what earlier runs have left, however short they were.
        self._saves = 2 * SAVES_PER_REWRITE
        self.progress = saved.progress
        began, self._blocks = time.perf_counter(), self._checkpoint.blocks
        with self._checkpoint.advised():
            self._collection.restore(catalog, self._blocks)
        size = sum(self._blocks.lengths.values())
        self.progress.recovery.read_back(size, time.perf_counter() - began)
        self._panes.files, self._panes.moved = dict(saved.panes), dict(saved.moved)
        self.batch = saved.batch
        for source in self.progress.sources.values():
            source.heard_at = source.moved_at = None  # silence is counted anew
        self.positions = saved.positions

    def store(self, catalog: Catalog, emission: Emission) -> Emission:
        """Has tasks write the rows that they have, into files that the next commit names.

        Sessions of which none leaves are left out.
        """
        if not any(isinstance(each, _WAITING) for each in emission.windows):
            return emission
        self._look_back(self._prepare(catalog))
        left: list[Departing] = []
        rows: Counter[str] = Counter()
        for windows in emission.windows:
            if not isinstance(windows, _WAITING):
                left.append(windows)
                continue
            title = windows.job.title
            for stored in self._results.have_written(self.batch + 1, windows, rows[title]):
                rows[title] += sum(file.rows for file in stored.files)
                if stored.num_windows or not isinstance(stored, StoredSessions):
                    left.append(stored)
        return replace(emission, windows=tuple(left))

    def commit(
        self,
        catalog: Catalog,
        emission: Emission,
        positions: tuple[FilePosition, ...] | None = None,
        whole: bool = False,
    ) -> Emission:
        """Makes a batch final. Everything before this line of the run can be repeated.

        Without new `positions` of files, those of before are kept. `whole` saves all blocks anew.
        """
        batch = self.batch + 1
        self._look_back(self._prepare(catalog))
        emission = self.store(catalog, emission)
        self.positions = self.positions if positions is None else positions
        files = self._written(batch, emission)
        whole |= self.progress.recovery.is_loose(*self._checkpoint.block_bytes)
        # It takes longer, which windows need not wait for where batches come between them.
        most = SAVES_PER_REWRITE * (2 if emission.windows else 1)
        anew = whole or self._saves >= most
        whole = whole or (anew and self._checkpoint.is_loose)
        new = self._all_blocks(catalog) if whole else emission.to_save
        if anew:  # for runs that end before anybody tidies
            emission = emission.with_notes(self._panes.merge())
        unsynced, tables = self._results.unsynced()
        self._unmoved += emission.to_save.size
        if whole or self._unmoved >= _WORTH_MOVING:
            self._keep_panes(catalog, self.progress.past, emission.to_save)
        unsynced = [*unsynced, *self._unsynced_panes()]
        now = catalog.in_force
        saved = Saved(
            batch, self.progress, self.positions, now, new.blocks, new.files, files, tables,
            self._writer, self._known, catalog.stream.sources, self._kept_of(catalog),
            dict(self._panes.files), dict(self._panes.moved),
        )  # fmt: skip
        # Until it is known that this is saved, the next would have to save everything.
        saves, self._saves = 0 if anew else self._saves + 1, 2 * SAVES_PER_REWRITE
        self._checkpoint.save(saved, whole, anew, unsynced)
        self._saves = saves
        self._blocks = self._checkpoint.blocks
        self._panes.new.clear()
        self._past = {id_: replace(known) for id_, known in self.progress.past.items()}
        gone = self._results.publish(self._writer, batch, files)
        if gone:
            raise StateError(f"results of job '{gone[0]}': their table was taken away while it ran")
        self.batch = batch
        self._untidy |= {job: None for job in self._prepared if anew}
        return emission

    def _keep_panes(self, catalog: Catalog, past: Mapping[str, Past], new: ToSave) -> None:
        """Moves panes that have settled out of the blocks, and out of new ones."""
        started, lengths = time.monotonic(), {**self._blocks.lengths, **new.files}
        due, few = self._settling.due(past), ""
        shapes = {id_: catalog.shapes.get(id_) or _shape_of(past[id_]) for id_ in due}
        at_hand = [block for id_ in due for block in new.blocks.get(id_, ())]
        if at_hand:  # which are in no file yet, and whoever moves panes reads files
            few, length = self._blocks.write(at_hand)
            lengths[few] = length
        self._settling.keep(past, shapes, replace(self._blocks, lengths=lengths))
        self._unmoved = 0
        if few:
            self._blocks.folder.remove([few])
        if due:
            self._moving.take(time.monotonic() - started)

    def _unsynced_panes(self) -> list[str]:
        """Files of panes that this commit is the first to name, and their folders."""
        folder = f"{STREAMS}/{self._stream}/{PANES}"
        names = [f"{folder}/{name}" for name in self._panes.new if name in self._panes.files]
        return [*names, *self._state.above(folder)] if names else []

    def _written(self, batch: int, emission: Emission) -> dict[str, tuple[str, ...]]:
        """The files of this batch, by job, with all rows that leave."""
        rows: dict[str, Iterable[pa.Table]] = {}
        parts: dict[str, list[Part]] = {}
        for windows in emission.windows:
            title = windows.job.title
            if isinstance(windows, Stored):
                mine, known = parts.setdefault(title, []), self._known.get(title)
                if known:
                    mine += self._results.without_repeats(batch, windows, known, self._tasks)
                else:
                    mine += windows.files
            else:
                rows[title] = chain(rows.get(title, ()), windows.tables())
        return self._results.write(batch, rows, self._known, parts)

    def _kept_of(self, catalog: Catalog) -> Remembered:
        """What to remember of a catalog, which is the same for many batches."""
        if self._kept is None or self._kept[0] is not catalog:
            self._kept = catalog, kept(catalog)
        return self._kept[1]

    def tidy(self, room: float | None = None) -> list[str]:
        """Moves panes that have settled, and merges small files and entries where many are.

        It does as much as there is room for, in seconds; a table that finds none for long is done
        all the same. Returns what there is to say.
        """
        notes: list[str] = []
        until = None if room is None else time.monotonic() + room
        # At the end of a run, no commit follows that would name another file of panes.
        goes_on = room is not None
        if self._past and self._unmoved >= _WORTH_A_REST and (room or 0.0) >= self._moving.high:
            assert self._kept is not None  # as there was a commit
            self._keep_panes(self._kept[0], self._past, ToSave())
        while (jobs := [*self._untidy, *self._results.many_entries]) or (
            goes_on and self._panes.many
        ):
            started = time.monotonic()
            if until is not None and until - started < self._tidying.high:
                self._put_off += 1
                if self._put_off < _PATIENCE:
                    break
                until = started  # for one of them
            self._put_off = 0
            if not jobs:
                notes += self._panes.merge()
            elif jobs[0] in self._untidy:
                del self._untidy[jobs[0]]
                notes += self._results.compact(jobs[:1])
            else:
                self._results.sum_up(jobs[0])
            self._tidying.take(time.monotonic() - started)
        return notes

    def _all_blocks(self, catalog: Catalog) -> ToSave:
        self._collection.compact(catalog)
        return self._collection.answer(catalog, Due(), save={}).to_save


def _shape_of(past: Past) -> Shape:
    """The shape of the panes, of a job that may be gone."""
    return decoded(next(iter(past.jobs.values())).text, Job).shape


def _upto(job: Job, ends: Ends) -> str:
    """Where the last window ends, if that is a time within the calendar."""
    if not job.shape.axis.is_time:
        return ""
    with suppress(ValueError, OverflowError, OSError):
        last = datetime.fromtimestamp(max(ends.values()) / 1e6, UTC)
        return f" up to {last:%Y-%m-%d %H:%M:%S} UTC"
    return ""


def rehearse() -> None:
    """Commits a row somewhere else, which loads all that the first real commit needs."""
    rows = pa.table({"window_name": ["rehearsal"], "window_start": [0], "window_end": [1]})
    # If it fails, there is nothing to tell: the real one will, of the folder that matters.
    with suppress(MuntinError, OSError), tempfile.TemporaryDirectory(prefix="muntin-") as folder:
        results = Results(Path(folder))
        results.prepare({"rehearsal": rows.schema})
        files = results.write(0, {"rehearsal": [rows]})
        saved = Saved(0, Progress(), (), InForce(), results=files)
        Checkpoint(Path(folder), "rehearsal").save(saved, whole=False)
        results.publish("rehearsal", 0, files)
