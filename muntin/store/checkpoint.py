"""The one commit that decides: positions, open panes and results of a batch, together.

A batch is over when its checkpoint is committed. The checkpoint names the files with the batch's
results, which are written by then; they become part of the results tables right after, or on
restart if the program died in between. So every batch counts exactly once, whatever was decided
by the clock.

A stream's checkpoints are files of records (`tape`): blocks, tallies of the ledger, and everything
else. A commit adds to all three, in proportion to what has changed. The last of these counts: it
says how much of the others belongs to it, and is written when they are on disk. Now and then it
begins a new file with all that it knows, and files that it does not name are removed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from muntin.errors import StateError
from muntin.fidelity.losses import Loss, Unmade
from muntin.fidelity.score import State
from muntin.fidelity.scoreboard import Source
from muntin.fidelity.stream_time import Doubt, Span
from muntin.fidelity.timing import Timing
from muntin.kernel.block import Block
from muntin.logs.tail import FilePosition
from muntin.model import Program
from muntin.run.catalog import Catalog, InForce
from muntin.run.failures import Failures
from muntin.run.progress import Lateness, Leaving, Progress
from muntin.store import disk, tape
from muntin.store.document import Document, apply, decode, difference, encode
from muntin.store.repeats import Ends
from muntin.store.tallies import Stored, TallyFiles
from muntin.windows.choice import Choice

VERSION = 8


@dataclass
class Saved:
    """Where a stream stands after a batch."""

    batch: int
    progress: Progress
    positions: tuple[FilePosition, ...]
    in_force: InForce
    blocks: Mapping[str, Sequence[Block]] = field(default_factory=dict)
    results: dict[str, str] = field(default_factory=dict)  # files of jobs
    tables: dict[str, int] = field(default_factory=dict)  # versions of jobs' tables on disk
    writer: str = ""  # whose batches these are, as tables have them
    known: dict[str, Ends] = field(default_factory=dict)
    """Up to where tables have windows that an earlier state has stored, and this one may repeat."""
    declared: tuple[str, ...] = ()  # sources that the stream awaits, seen or not


class Checkpoint:
    """The checkpoints of one stream."""

    def __init__(self, state: Path, stream: str) -> None:
        self._state = state
        self._folder = state / "streams" / stream
        self._begun = False  # whether the folder is there, and known to be
        self._forget()

    def _forget(self) -> None:
        self._known: Document = {}  # what the newest file of states says; nothing: there is none
        self._name = ""
        self._ledger = TallyFiles(self._folder)
        self._blocks: dict[str, int] = {}  # lengths of files
        self._whole = self._added = 0  # bytes of the first of them, and of the others

    @property
    def is_loose(self) -> bool:
        """Whether blocks that were added one by one have become as large as all were once."""
        return self._added >= self._whole

    def take_over(self, catalog: Catalog, others: Collection[str]) -> str | None:
        """Goes on with the state of a stream that had the same jobs, and has gone.

        `others` are the streams that are still there. Returns the name that this one had before.
        """
        folder = self._folder.parent
        if not folder.is_dir() or any(self._folder.glob("state-*.tape")):
            return None
        for path in sorted(path for path in folder.iterdir() if path.name not in others):
            with suppress(StateError):  # one that cannot be used is none to go on with
                found = Checkpoint(self._state, path.name).peek()
                if found is not None and any(map(found.in_force.had, catalog.jobs.values())):
                    path.rename(self._folder)
                    return path.name
        return None

    def save(
        self, saved: Saved, whole: bool, anew: bool = False, before: Iterable[Path] = ()
    ) -> None:
        """Commits a batch; `whole` says that the blocks stand for all earlier ones too.

        `anew` begins new files. What was written `before` is synced with the rest, and the commit
        counts only then. After an error, the next has to have all blocks.
        """
        anew |= whole or not self._known
        if not self._begun:
            self._folder.mkdir(parents=True, exist_ok=True)
        try:
            self._write_blocks(saved, whole)
            self._ledger.write(saved.batch, saved.progress.ledger, anew)
            now = {**_document(saved), **self._files()}
            disk.sync([*before, *self._written()])
            self._begun = True
            if anew:
                self._known = {}
                self._name = f"state-{saved.batch:09}.tape"
                tape.create(self._folder / self._name, [encode(difference(self._known, now))])
                disk.sync([self._folder])
                self._tidy()
            else:
                tape.add(self._folder / self._name, [encode(difference(self._known, now))])
                disk.sync([self._folder / self._name])
        except BaseException:
            self._forget()
            raise

    def _written(self) -> Iterator[Path]:
        """The files of blocks and tallies that this commit has changed, and folders of new ones."""
        known = {**self._known.get("blocks", {}), **self._known.get("ledger", {})}
        now = {**self._blocks, **self._ledger.files}
        yield from (self._folder / name for name, told in now.items() if known.get(name) != told)
        if not self._begun:
            yield from disk.folders(self._folder, self._state)
        elif not now.keys() <= known.keys():
            yield self._folder

    def _write_blocks(self, saved: Saved, whole: bool) -> None:
        records = [block.encode() for blocks in saved.blocks.values() for block in blocks]
        if whole or not self._known:
            name = f"blocks-{saved.batch:09}.tape"
            self._whole, self._added = tape.create(self._folder / name, records), 0
            self._blocks = {name: self._whole}
        elif records:
            name = next(reversed(self._blocks))
            self._added += sum(map(len, records))
            self._blocks[name] = tape.add(self._folder / name, records)

    def _files(self) -> Document:
        ledger = self._ledger
        return {"blocks": self._blocks, "ledger": ledger.files, "forgotten": ledger.forgotten}

    def _tidy(self) -> None:
        """Removes the files that a new state does not name; what readers have open stays theirs."""
        needed = {self._name, *self._blocks, *self._ledger.files}
        for path in self._folder.iterdir():
            if path.name not in needed and path.suffix == ".tape":
                path.unlink(missing_ok=True)

    def load(self, shapes: Collection[str]) -> Saved | None:
        """The newest state with the blocks of these shapes, or None if nothing was saved yet.

        The next commit has to have all blocks.
        """
        document = self._document()
        if document is None:
            return None
        with self._advised():
            saved = _saved(document)
            stored = {name: Stored(*row) for name, row in document.get("ledger", {}).items()}
            self._ledger = TallyFiles(self._folder, stored, document.get("forgotten"))
            saved.progress.ledger = self._ledger.read()
            blocks: dict[str, list[Block]] = {}
            for name, length in document["blocks"].items():
                for record in tape.read(self._folder / name, length):
                    block = Block.decode(record, f"a saved block in {self._folder / name}")
                    if block.shape in shapes:
                        blocks.setdefault(block.shape, []).append(block)
            return replace(saved, blocks=blocks)

    @contextmanager
    def _advised(self) -> Iterator[None]:
        """Says what to do about a file that is damaged or gone."""
        try:
            yield
        except StateError as error:
            raise StateError(
                f"{error}; put back a copy of the state folder, or remove {self._folder} to read "
                "the logs again: windows that are stored are not stored twice"
            ) from error

    def peek(self) -> Saved | None:
        """The newest state without ledger and blocks, of which nothing is read.

        It may be asked while another process runs.
        """
        document = self._document()
        return None if document is None else _saved(document)

    def _document(self) -> Document | None:
        while names := sorted(path.name for path in self._folder.glob("state-*.tape")):
            document: Document = {}
            try:
                with self._advised():
                    for record in tape.read(self._folder / names[-1]):
                        apply(document, decode(record))
            except StateError:
                if (self._folder / names[-1]).exists():
                    raise
                continue  # a newer one has just taken its place
            _require_version(document.get("now", {}).get("version"))
            return document
        if (self._folder / "_delta_log").is_dir():
            _require_version("older")
        return None


def choices_in(state: Path, program: Program) -> dict[str, Choice]:
    """How the last run in a state folder computed the windows of each shape."""
    choices: dict[str, Choice] = {}
    for stream in program.streams:
        saved = Checkpoint(state, stream).peek()
        choices |= saved.progress.choices if saved is not None else {}
    return choices


def saved_in(state: Path) -> dict[str, Saved]:
    """Where each stream of a state folder stands, without its ledger and blocks."""
    folder = state / "streams"
    names = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    streams = {name: Checkpoint(state, name).peek() for name in names}
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
        "timings": {j: (t.windows, t.area, t.misses, t.within_us) for j, t in p.timings.items()},
        "lags": {job: t.lags for job, t in p.timings.items()},
        "choices": p.choices,
        "late": {job: (late.records, late.slack_us) for job, late in p.late.items()},
        "failures": {job: tuple(positions) for job, positions in p.failures.positions.items()},
        "dropped": p.failures.dropped,
        "failed": p.failures.totals,
        "failing": p.failures.texts,
    }


def _fields(source: Source) -> tuple[object, ...]:
    return tuple(dict(v) if isinstance(v, dict) else v for v in vars(source).values())


def _source(row: Sequence[Any]) -> Source:
    source = Source(*row)
    spans, young = source.doubt
    source.doubt = Doubt(tuple(Span(*span) for span in spans), young)
    source.lost = tuple(Loss(*loss) for loss in source.lost)  # type: ignore[misc]
    source.unmade = tuple(Unmade(s, a, b, State(c), what) for s, a, b, c, what in source.unmade)
    return source


def _saved(document: Document) -> Saved:
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
        left_at=now["left_at"],
        late={job: Lateness(*row) for job, row in sections["late"].items()},
        timings={
            job: Timing(count, area, misses, within, dict(sections["lags"].get(job, {})))
            for job, (count, area, misses, within) in sections["timings"].items()
        },
        choices={shape: Choice(*row) for shape, row in sections["choices"].items()},
        frame_batch=now["frame_batch"],
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
        results=dict(now["results"]),
        tables=sections["tables"],
        writer=now.get("writer", ""),
        declared=tuple(now.get("declared", ())),
        known=sections["known"],
    )


_SECTIONS = (
    "tables", "known", "shapes", "grids", "windows", "positions", "sources", "emitted", "left",
    "timings", "lags", "choices", "late", "failures", "dropped", "failed", "failing", "began",
)  # fmt: skip


def _require_version(version: object) -> None:
    if version != VERSION:
        raise StateError(
            f"the state was written by another version of Muntin (its format is {version}, "
            f"not {VERSION}); use another --state, which reads the files again"
        )


def differences(before: InForce, now: InForce) -> Iterator[str]:
    """What became of the jobs of the last run, in words."""
    for name, shape in before.shapes.items():
        if name not in now.shapes:
            yield f"job '{name}' is no longer run; its results stay"
        elif (shape, set(before.windows[name])) != (now.shapes[name], set(now.windows[name])):
            yield (
                f"job '{name}' has changed: stored results are of the old definition, and the new "
                "one answers from here on; another --state reads the files again"
            )
