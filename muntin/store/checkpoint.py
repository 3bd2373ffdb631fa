"""The one commit that decides: positions, open panes and results of a batch, together.

A batch is over when its checkpoint is committed. The checkpoint names the files with the batch's
results, which are written by then; they become part of the results tables right after, or on
restart if the program died in between. So every batch counts exactly once, whatever was decided
by the clock.

A stream's checkpoints are files of records (`tape`): blocks, tallies of the ledger, and everything
else. A commit adds to all three, in proportion to what has changed. The last of these counts: it
says how much of the others belongs to it, and is written when they are on disk. Blocks are written
by tasks, into files of their own, where they are many; few are added to a file of the driver's. Now
and then a state begins a new file with all that it knows, and files that it does not name are
removed.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa

from muntin.errors import StateError, StorageError
from muntin.fidelity.losses import Loss, Unmade
from muntin.fidelity.score import State
from muntin.fidelity.scoreboard import Source
from muntin.fidelity.stream_time import Doubt, Span
from muntin.fidelity.timing import Timing
from muntin.kernel.block import Block
from muntin.logs.tail import FilePosition
from muntin.model.jobs import VERSIONED, Program
from muntin.model.tables import TableVersion
from muntin.run.catalog import Catalog, InForce
from muntin.run.failures import Failures
from muntin.run.kept import Remembered
from muntin.run.past import Asked, Bad, Past, Runs
from muntin.run.previous import Kept
from muntin.run.progress import Lateness, Leaving, Progress, Shown
from muntin.schedule.recovery import Recovery
from muntin.store import packs, tape
from muntin.store.blocks import BlockFiles
from muntin.store.decisions import decisions_in
from muntin.store.document import Document, apply, decode, difference, encode
from muntin.store.migrations import VERSION, migrated, too_old
from muntin.store.panes import PaneFile, PaneFiles
from muntin.store.repeats import Ends
from muntin.store.storage import ABANDONED_SECONDS, Place, Storage, storage_of
from muntin.store.tallies import Stored, TallyFiles
from muntin.windows.choice import Choice

STREAMS = "streams"
JOINED = "joined"
_MANY_FILES = 512


@dataclass
class Saved:
    """Where a stream stands after a batch."""

    batch: int
    progress: Progress
    positions: tuple[FilePosition, ...]
    in_force: InForce
    blocks: Mapping[str, Sequence[Block]] = field(default_factory=dict)  # to be written
    files: Mapping[str, int] = field(default_factory=dict)  # of blocks, which tasks have written
    results: dict[str, tuple[str, ...]] = field(default_factory=dict)  # files of jobs
    tables: dict[str, int] = field(default_factory=dict)  # versions of jobs' tables on disk
    writer: str = ""  # whose batches these are, as tables have them
    known: dict[str, Ends] = field(default_factory=dict)
    """Up to where tables have windows that an earlier state has stored, and this one may repeat."""
    declared: tuple[str, ...] = ()  # sources that the stream awaits, seen or not
    kept: Remembered = field(default_factory=Remembered)  # jobs as orders have made them
    panes: Mapping[str, PaneFile] = field(default_factory=dict)  # files that are kept for questions
    moved: Mapping[str, int] = field(default_factory=dict)  # by shape, up to where panes are there


class Checkpoint:
    """The checkpoints of one stream."""

    def __init__(self, state: Place, stream: str) -> None:
        self._state = storage_of(state)
        self._name = f"{STREAMS}/{stream}"
        self._folder = self._state.within(self._name)
        self._decisions = decisions_in(self._folder)
        self._begun = False  # whether the folder is there, and known to be
        self._forget()

    def _forget(self) -> None:
        self._known: Document = {}  # what the newest file of states says; nothing: there is none
        self._ledger = TallyFiles(self._folder)
        self._blocks: dict[str, int] = {}  # lengths of files
        self._panes: Mapping[str, PaneFile] = {}
        self._rows: set[str] = set()  # files of tables that it names
        self._tape = ""  # the one of them to which the driver adds
        self._whole = self._added = 0  # bytes of what was saved as a whole, and since

    @property
    def is_loose(self) -> bool:
        """Whether blocks that were added one by one have become as large as all were once.

        Or so many files that reading them would take long.
        """
        return self._added >= self._whole or len(self._blocks) > _MANY_FILES

    @property
    def block_bytes(self) -> tuple[int, int]:
        """Of saved blocks: as large as they were when saved as a whole, and what was added."""
        return self._whole, self._added

    def take_over(self, catalog: Catalog, others: Collection[str]) -> str | None:
        """Goes on with the state of a stream that had the same jobs, and has gone.

        `others` are the streams that are still there. Returns the name that this one had before.
        """
        with self.advised():
            if self._decisions.newest():
                return None
        for name in self._state.folders(STREAMS):
            with suppress(StateError):  # one that cannot be used is none to go on with
                found = None if name in others else Checkpoint(self._state, name).peek()
                if found is not None and any(map(found.in_force.had, catalog.jobs.values())):
                    self._decisions.move_from(self._state.within(f"{STREAMS}/{name}"))
                    return name
        return None

    def save(
        self, saved: Saved, whole: bool, anew: bool = False, before: Iterable[str] = ()
    ) -> None:
        """Commits a batch; `whole` says that the blocks stand for all earlier ones too.

        `anew` begins new files. What was written `before` is synced with the rest, and the commit
        counts only then. After an error, the next has to have all blocks.
        """
        anew |= whole or not self._known
        try:
            self._write_blocks(saved, whole)
            saved.progress.recovery.committed(sum(self._blocks.values()))
            self._ledger.write(saved.batch, saved.progress.ledger, anew)
            now = {**_document(saved), **self._files()}
            self._state.sync([*before, *self._written()])
            self._begun = True
            self._panes = saved.panes
            unneeded, self._rows = self._rows, joined_files(saved.progress.tables)
            unneeded = unneeded - self._rows
            if anew:
                self._known = {}
                self._decisions.begin(saved.batch, encode(difference(self._known, now)))
                self._tidy()
            else:
                self._decisions.add(encode(difference(self._known, now)))
        except BaseException:
            self._forget()
            raise
        if not anew:
            # No state names them again, whoever writes it, and no batch to come reads them. It is
            # committed: what cannot be removed now is when files are begun anew.
            with suppress(StateError, OSError):
                self._folder.remove(unneeded)

    def _written(self) -> Iterator[str]:
        """The files of blocks and tallies that this commit has changed, and folders of new ones."""
        known = {**self._known.get("blocks", {}), **self._known.get("ledger", {})}
        now = {**self._blocks, **self._ledger.files}
        new = (name for name, told in now.items() if known.get(name) != told)
        yield from (f"{self._name}/{name}" for name in new)
        if not self._begun:
            yield from self._state.above(self._name)
        elif not now.keys() <= known.keys():
            yield self._name

    def _write_blocks(self, saved: Saved, whole: bool) -> None:
        """Adds blocks, and the files that tasks have written, which are on disk already."""
        records = [block.encode() for blocks in saved.blocks.values() for block in blocks]
        written = sum(saved.files.values())
        data = tape.framed(records)
        is_first = whole or not self._known
        if is_first:
            self._blocks, self._whole, self._added = {}, len(data) + written, 0
        else:
            self._added += len(data) + written
        if is_first or (records and not self._folder.appends):
            self._tape = f"blocks-{saved.batch:09}-{uuid4().hex[:8]}.tape"
            self._folder.put(self._tape, data)
            self._blocks[self._tape] = len(data)
        elif records:
            self._blocks[self._tape] = self._folder.append(self._tape, data)
        self._blocks |= saved.files

    def _files(self) -> Document:
        ledger = self._ledger
        return {"blocks": self._blocks, "ledger": ledger.files, "forgotten": ledger.forgotten}

    def _tidy(self) -> None:
        """Removes the files that a new state does not name; what readers have open stays theirs."""
        unneeded = self.unneeded({*self._blocks, *self._ledger.files})
        unneeded += self.unneeded_rows(self._rows)
        # What was there before nobody else had decided is nobody else's.
        self._decisions.require_newest()
        self._folder.remove(unneeded)
        self._folder.remove(PaneFiles(self._folder, dict(self._panes)).strays())
        self._state.sweep([self._name], time.time() - ABANDONED_SECONDS)

    def unneeded(self, needed: Collection[str]) -> list[str]:
        """The files of blocks, tallies and states that are not needed."""
        files = (name for name in self._folder.names("") if name.endswith(".tape"))
        others = [name for name in files if name not in needed and not name.startswith("state-")]
        return [*others, *self._decisions.unneeded()]

    def unneeded_rows(self, needed: Collection[str]) -> list[str]:
        """The files with rows of tables that are not needed."""
        names = (f"{JOINED}/{name}" for name in self._folder.names(JOINED))
        own = (".arrow", packs.SUFFIX)
        return [name for name in names if name.endswith(own) and name not in needed]

    @property
    def folder(self) -> Storage:
        """Where files of the stream are."""
        return self._folder

    def keep_rows(self, name: str, rows: pa.Table) -> str:
        """Writes rows that a state to come will name; returns the file."""
        # A name that nobody else uses: what was read of a file is kept by its name.
        file = f"{JOINED}/{name}-{uuid4().hex[:8]}{packs.SUFFIX}"
        self._folder.put(file, packs.packed(rows))
        self._state.sync(self._state.above(f"{self._name}/{JOINED}"))
        return _kept(self._folder.where(file))

    def load(self) -> Saved | None:
        """The newest state, or None if nothing was saved yet; its blocks stay in their files.

        The next commit has to have all blocks.
        """
        if self.document() is not None or not self._folder.appends:
            self._decisions.claim()
        document = self.document()
        if document is None:
            return None
        with self.advised():
            saved = saved_of(document)
            stored = {name: Stored(*row) for name, row in document.get("ledger", {}).items()}
            self._ledger = TallyFiles(self._folder, stored, document.get("forgotten"))
            saved.progress.ledger = self._ledger.read()
            saved.progress.tables = self._joined(saved.progress.tables)
            self._blocks = dict(document["blocks"])
            return saved

    @property
    def blocks(self) -> BlockFiles:
        """All blocks of the newest state, where they are, once one was loaded or saved."""
        return BlockFiles(self._folder, dict(self._blocks))

    def _joined(
        self, tables: Mapping[str, tuple[TableVersion, ...]]
    ) -> dict[str, tuple[TableVersion, ...]]:
        """Versions of tables with the files of their rows, wherever the folder is by now.

        Files that the state does not name are removed.
        """
        strays = self.unneeded_rows(joined_files(tables))
        if strays:
            self._decisions.require_newest()
        self._folder.remove(strays)
        return {
            name: tuple(
                replace(v, path=_kept(self._folder.where(_joined_file(v)))) for v in versions
            )
            for name, versions in tables.items()
        }

    @contextmanager
    def advised(self) -> Iterator[None]:
        """Says what to do about a file that is damaged or gone."""
        try:
            yield
        except StorageError:  # which no copy mends
            raise
        except StateError as error:
            raise StateError(
                f"{error}; put back a copy of the state folder, or remove {self._folder} to read "
                "the logs again: windows that are stored are not stored twice"
            ) from error

    def peek(self) -> Saved | None:
        """The newest state without ledger and blocks, of which nothing is read.

        It may be asked while another process runs.
        """
        document = self.document()
        return None if document is None else saved_of(document)

    def document(self) -> Document | None:
        """Everything of the newest state but what is in files of blocks and tallies."""
        document: Document = {}
        with self.advised():
            for record in self._decisions.newest():
                apply(document, decode(record))
        if not document:
            if "_delta_log" in self._folder.folders(""):
                raise too_old(self._folder.where(), None)
            return None
        return migrated(document, self._folder.where())


def block_files(state: Place, stream: str) -> BlockFiles:
    """Where tasks write blocks of a stream."""
    return BlockFiles(storage_of(state).within(f"{STREAMS}/{stream}"))


def joined_files(tables: Mapping[str, tuple[TableVersion, ...]]) -> set[str]:
    """The files with rows of tables, as the folder of their stream has them."""
    return {_joined_file(version) for versions in tables.values() for version in versions}


def _joined_file(version: TableVersion) -> str:
    return f"{JOINED}/{(version.path or '').rpartition('/')[2]}"


def _kept(place: str) -> str:
    """A path that is the same from wherever it is looked at, or a URL."""
    return place if "://" in place else str(Path(place).resolve())


def choices_in(state: Place, program: Program) -> dict[str, Choice]:
    """How the last run in a state folder computed the windows of each shape."""
    choices: dict[str, Choice] = {}
    for stream in program.streams:
        saved = Checkpoint(state, stream).peek()
        choices |= saved.progress.choices if saved is not None else {}
    return choices


def saved_in(state: Place) -> dict[str, Saved]:
    """Where each stream of a state stands, without its ledger and blocks."""
    storage = storage_of(state)
    streams = {name: Checkpoint(storage, name).peek() for name in storage.folders(STREAMS)}
    return {name: saved for name, saved in streams.items() if saved is not None}


def _document(saved: Saved) -> Document:
    """Everything but ledger and blocks."""
    p = saved.progress
    return {
        "now": {
            "version": VERSION,
            "batch": saved.batch,
            "results": tuple(saved.results.items()),
            "writer": saved.writer,
            "declared": saved.declared,
            "left_at": p.left_at,
            "frame_batch": p.frame_batch,
            "released": p.released,
            "pipeline": p.pipeline,
            "catalog": saved.in_force.version,
            "totals": (p.records, p.bad, p.bytes, p.windows),
            "recovery": p.recovery.known,
        },
        "tables": saved.tables,
        "known": saved.known,
        "shapes": saved.in_force.shapes,
        "grids": saved.in_force.grids,
        "windows": saved.in_force.windows,
        "positions": {file.key: file for file in saved.positions},
        "sources": {name: _fields(source) for name, source in p.sources.items()},
        "emitted": p.emitted,
        "began": p.began,
        "left": p.left,
        "shown": p.shown,
        "previous": {kind: kept.text for kind, kept in p.previous.items()},
        "timings": {
            job: (*_measured(t), t.shed, t.seconds, t.thinned, t.computing)
            for job, t in p.timings.items()
        },
        "lags": {job: t.lags for job, t in p.timings.items()},
        "choices": p.choices,
        "late": {job: (late.records, late.slack_us) for job, late in p.late.items()},
        "failures": {job: tuple(positions) for job, positions in p.failures.positions.items()},
        "dropped": p.failures.dropped,
        "failed": p.failures.totals,
        "failing": p.failures.texts,
        "editions": saved.kept.editions,
        "values": saved.kept.values,
        "jobs": saved.kept.jobs,
        "paused": saved.kept.paused,
        "gone": saved.kept.gone,
        "begun": {"stream": saved.kept.stream},
        "past": {shape: _past(past) for shape, past in p.past.items()},
        "panes": dict(saved.panes),
        "moved": dict(saved.moved),
        "joined": {
            name: tuple((v.number, v.mark, v.since, v.path, v.result) for v in versions)
            for name, versions in p.tables.items()
        },
    }


def _past(past: Past) -> Document:
    bounds = past.pane, past.began, past.settled, past.until, past.grids, past.gaps
    more = {"jobs": dict(past.jobs), "runs": past.runs, "open": dict(past.open)}
    bad = {"length": past.bad.length, "spans": past.bad.spans, "open": past.bad.open}
    return {"bounds": bounds, **more, "bad": bad}


def _past_of(told: Document) -> Past:
    def runs(rows: Sequence[Any]) -> Runs:
        return tuple((lower, upper, state, what) for lower, upper, state, what in rows)

    pane, began, settled, until, grids, *more = told["bounds"]
    jobs = {title: _asked(*row) for title, row in told["jobs"].items()}
    sizes = tuple((size, upto) for size, upto in grids)
    known = {
        source: {number: runs(part) for number, part in parts.items()}
        for source, parts in told["runs"].items()
    }
    still_open = {source: runs(rows) for source, rows in told["open"].items()}
    gaps = tuple((lower, upper) for lower, upper in (more[0] if more else ()))
    bad = Bad(**told["bad"]) if "bad" in told else Bad()  # older states do not tell
    return Past(pane, began, settled, until, sizes, jobs, known, still_open, gaps, bad)


def _asked(
    edition: int,
    version: str,
    retain_us: int,
    text: str,
    since: Sequence[tuple[int, int]] = (),
    ended: int | None = None,
) -> Asked:
    numbers = tuple((number, at) for number, at in since)
    return Asked(edition, version, retain_us, text, numbers, ended)


def _measured(timing: Timing) -> tuple[int, float, int, int | None]:
    return timing.windows, timing.area, timing.misses, timing.within_us


def _fields(source: Source) -> tuple[object, ...]:
    return tuple(dict(v) if isinstance(v, dict) else v for v in vars(source).values())


def _source(row: Sequence[Any]) -> Source:
    source = Source(*row)
    spans, young = source.doubt
    source.doubt = Doubt(tuple(Span(*span) for span in spans), young)
    source.lost = tuple(Loss(*loss) for loss in source.lost)  # type: ignore[misc]
    source.unmade = tuple(Unmade(s, a, b, State(c), what) for s, a, b, c, what in source.unmade)
    return source


def _version(
    number: int,
    mark: Sequence[int],
    since: Sequence[tuple[str, int]],
    path: str | None,
    result: tuple[int, int] | None = None,
) -> TableVersion:
    begins = tuple((axis, at) for axis, at in since)
    told = None if result is None else (result[0], result[1])
    return TableVersion(number, tuple(mark), begins, path, told)


def saved_of(document: Document) -> Saved:
    now = document["now"]
    sections = {name: document.get(name, {}) for name in _SECTIONS}
    records, bad, size, windows = now["totals"]
    progress = Progress(
        sources={name: _source(row) for name, row in sections["sources"].items()},
        emitted=sections["emitted"],
        began=sections["began"],
        left={
            kind: {end: Leaving(*row) for end, row in left.items()}
            for kind, left in sections["left"].items()
        },
        shown={
            kind: {end: Shown(*row) for end, row in shown.items()}
            for kind, shown in sections["shown"].items()
        },
        previous={kind: Kept.read(text) for kind, text in sections["previous"].items()},
        left_at=now["left_at"],
        late={job: Lateness(*row) for job, row in sections["late"].items()},
        timings={
            job: Timing(count, area, misses, within, dict(sections["lags"].get(job, {})), *rest)
            for job, (count, area, misses, within, *rest) in sections["timings"].items()
        },
        choices={shape: Choice(*row) for shape, row in sections["choices"].items()},
        frame_batch=now["frame_batch"],
        recovery=Recovery.of(now.get("recovery", ())),
        released=now["released"],
        pipeline=now["pipeline"],
        records=records,
        bad=bad,
        bytes=size,
        windows=windows,
        failures=Failures(
            {job: list(at) for job, at in sections["failures"].items()},
            sections["dropped"],
            sections["failed"],
            {job: (version, limit) for job, (version, limit) in sections["failing"].items()},
        ),
        tables={
            name: tuple(_version(*row) for row in rows) for name, rows in sections["joined"].items()
        },
        past={shape: _past_of(told) for shape, told in sections["past"].items()},
    )
    positions = tuple(FilePosition(*row) for row in sections["positions"].values())
    grids = {id_: (axis, size) for id_, (axis, size) in sections["grids"].items()}
    kinds = {job: tuple(keys) for job, keys in sections["windows"].items()}
    in_force = InForce(sections["shapes"], grids, kinds, now["catalog"])
    return Saved(
        now["batch"],
        progress,
        positions,
        in_force,
        results={job: tuple(files) for job, files in now["results"]},
        tables=sections["tables"],
        writer=now.get("writer", ""),
        declared=tuple(now.get("declared", ())),
        known=sections["known"],
        kept=Remembered(
            {name: (number, told) for name, (number, told) in sections["editions"].items()},
            sections["values"],
            sections["jobs"],
            sections["paused"],
            {name: (number, base) for name, (number, base) in sections["gone"].items()},
            sections["begun"].get("stream", ""),
        ),
        panes={name: PaneFile(*row) for name, row in sections["panes"].items()},
        moved=sections["moved"],
    )


_SECTIONS = (
    "tables", "known", "shapes", "grids", "windows", "positions", "sources", "emitted", "left",
    "timings", "lags", "choices", "late", "failures", "dropped", "failed", "failing", "began",
    "editions", "values", "jobs", "paused", "gone", "begun",
    "previous",
    "joined",
    "shown",
    "past", "panes", "moved",
)  # fmt: skip


def differences(before: InForce, catalog: Catalog) -> Iterator[str]:
    """What became of the jobs of the last run, in words."""
    now = catalog.in_force
    for name, shape in before.shapes.items():
        if VERSIONED in name or name in {*catalog.paused, *catalog.gone}:
            continue  # of these it is told what became of them
        if name not in now.shapes:
            yield f"job '{name}' is no longer run; its results stay"
        elif (shape, set(before.windows[name])) != (now.shapes[name], set(now.windows[name])):
            yield (
                f"job '{name}' has changed: stored results are of the old definition, and the new "
                "one answers from here on; another --state reads the files again"
            )
