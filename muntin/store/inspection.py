"""What a state holds, and whether all of it can be read: every file, and what files say of others.

Nothing is changed, and nobody has to stop for it. What is found is told in words: what it is, what
follows from it, and what to do.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa

from muntin.errors import InputError, MuntinError, StateError
from muntin.kernel.block import Block
from muntin.store import delta, log, notes, packs, tape
from muntin.store.checkpoint import STREAMS, Checkpoint, Saved, joined_files, saved_of
from muntin.store.document import Document
from muntin.store.findings import Finding, Weight
from muntin.store.hold import require_free
from muntin.store.panes import FOLDER as PANES
from muntin.store.panes import DamagedError, PaneFiles
from muntin.store.results import FOLDER
from muntin.store.soundness import check_table
from muntin.store.storage import LocalFolder, Place, Storage, storage_of
from muntin.store.tallies import Stored, TallyFiles
from muntin.windows.ledger import Ledger

_OWN = {"lock", "lease", "control.json", "spark-error.txt"}
_FOLDERS = {STREAMS, FOLDER, notes.FOLDER}
_BATCH = re.compile(r"(?:blocks|ledger)-(\d{9})[-.]")  # files that tell of which batch they are
_LOOKS = 5  # at a state that goes on


@dataclass(frozen=True)
class StreamShown:
    """What a state has of one stream."""

    name: str
    batch: int
    version: int
    jobs: tuple[str, ...]
    sources: int
    records: int
    panes: int
    files: int
    bytes: int


@dataclass(frozen=True)
class TableShown:
    """The results of one job."""

    job: str
    rows: int
    files: int
    bytes: int


@dataclass
class Shown:
    """A state as it is listed."""

    place: str
    bytes: int = 0
    streams: list[StreamShown] = field(default_factory=list)
    tables: list[TableShown] = field(default_factory=list)


def show(state: Place) -> Shown:
    """Streams, jobs, batches, sizes and open panes of a state."""
    storage = there(state)
    shown = Shown(storage.where(), sum(storage.sizes("").values()))
    for name in storage.folders(STREAMS):
        document = Checkpoint(storage, name).document()
        if document is None:
            continue
        saved, folder = saved_of(document), storage.within(f"{STREAMS}/{name}")
        ledger, sizes = _ledger(folder, document), folder.sizes("")
        panes = {(tally.axis, tally.size, tally.pane) for tally in ledger}
        shown.streams.append(
            StreamShown(
                name, saved.batch, document["now"]["version"], tuple(saved.in_force.jobs),
                len(saved.progress.sources), saved.progress.records, len(panes), len(sizes),
                sum(sizes.values()),
            )
        )  # fmt: skip
    for job in storage.folders(FOLDER):
        place = storage.within(f"{FOLDER}/{job}")
        if delta.exists(place):
            table = delta.snapshot(place)
            rows = sum(file.rows for file in table.files)
            sizes = place.sizes("")
            shown.tables.append(TableShown(job, rows, len(table.files), sum(sizes.values())))
    return shown


def check(state: Place) -> Iterator[Finding]:
    """What is wrong with a state, and what is not as it might be."""
    storage, in_use = there(state), False
    try:
        require_free(storage)
    except StateError as error:
        in_use = True
        text = f"{error}; files may change while they are looked at, so look again at what is found"
        yield Finding(Weight.NOTE, storage.where(), text)
    for name in storage.names(""):
        if name not in _OWN:
            yield Finding(Weight.NOTE, storage.where(name), "is none of a state's files")
    for name in storage.folders(""):
        if name not in _FOLDERS:
            yield Finding(Weight.NOTE, storage.where(name), "is none of a state's folders")
    states: dict[str, Saved] = {}
    empty: list[_Stream] = []
    for name in storage.folders(STREAMS):
        found = _Stream(storage, name)
        yield from found.check()
        if found.saved is not None:
            states[name] = found.saved
        empty += [found] if found.is_empty else []
    for name in storage.names(STREAMS):
        yield Finding(Weight.NOTE, storage.where(f"{STREAMS}/{name}"), "is no folder of a stream")
    for name in sorted({*storage.folders(notes.FOLDER), *states}):
        yield from _check_notes(storage, name, states.get(name))
    tables = storage.folders(FOLDER)
    owned = {job for saved in states.values() for job in (*saved.results, *saved.tables)}
    strange = [job for job in tables if job not in owned]
    is_first = in_use or not any(map(partial(_has_rows, storage), strange))
    yield from (found.of_nothing(is_first) for found in empty)
    for job in tables:
        yield from check_table(storage.within(f"{FOLDER}/{job}"))
    yield from _compare(storage, states, tables)


def _has_rows(storage: Storage, job: str) -> bool:
    return any(name.endswith(".parquet") for name in storage.names(f"{FOLDER}/{job}"))


def there(state: Place) -> Storage:
    """Where a state is; an InputError if there is none."""
    storage = storage_of(state)
    if not storage.folders(STREAMS) and not storage.folders(FOLDER):
        raise InputError(
            f"there is no state in {storage}: no program has committed one there so far; it is "
            "where `muntin run --state` writes to"
        )
    return storage


def _ledger(folder: Storage, document: Document) -> Ledger:
    stored = {name: Stored(*row) for name, row in document.get("ledger", {}).items()}
    return TallyFiles(folder, stored, document.get("forgotten")).read()


class _Stream:
    """The checkpoints of one stream."""

    def __init__(self, storage: Storage, name: str) -> None:
        self._checkpoint = Checkpoint(storage, name)
        self._folder = storage.within(f"{STREAMS}/{name}")
        self.saved: Saved | None = None
        self.is_empty = False  # no commit is there

    def check(self) -> Iterator[Finding]:
        """What there is to say of the newest state, which a program may replace meanwhile."""
        found: list[Finding] = []
        for _ in range(_LOOKS):
            found = list(self._look())
            is_damaged = any(each.weight is Weight.DAMAGE for each in found)
            if not (is_damaged and self._has_gone_on()):
                break
        yield from found

    def _has_gone_on(self) -> bool:
        """Whether there is a newer state than the one that was looked at."""
        try:
            newest = self._checkpoint.peek()
        except Exception:  # which was told of the other one
            return False
        seen = self.saved
        return newest is not None and seen is not None and newest.batch > seen.batch

    def _look(self) -> Iterator[Finding]:
        folder = self._folder
        self.saved, self.is_empty = None, False
        try:
            document = self._checkpoint.document()
        except StateError as error:
            yield Finding(Weight.DAMAGE, folder.where(), str(error))
            return
        except Exception as error:  # whatever a document that is no document leads to
            text = f"its newest state cannot be understood ({type(error).__name__}: {error})"
            yield Finding(Weight.DAMAGE, folder.where(), f"{text}; {_advice(folder)}")
            return
        if document is None:
            self.is_empty = True
            return
        yield from self._check_end()
        try:
            self.saved = saved_of(document)
        except Exception as error:
            text = f"its newest state lacks something ({type(error).__name__}: {error})"
            yield Finding(Weight.DAMAGE, folder.where(), f"{text}; {_advice(folder)}")
            return
        blocks: Mapping[str, int] = document["blocks"]
        for name, length in blocks.items():
            yield from self._check_file(name, partial(self._blocks, name, length))
        ledger = {name: Stored(*row) for name, row in document.get("ledger", {}).items()}
        for name, stored in ledger.items():
            yield from self._check_file(name, TallyFiles(folder, {name: stored}).read)
        joined = joined_files(self.saved.progress.tables)
        for name in sorted(joined):
            yield from self._check_file(name, partial(packs.read_file, folder.where(name)))
        panes = PaneFiles(folder, dict(self.saved.panes))
        for name in panes.files:
            yield from self._check_file(f"{PANES}/{name}", partial(panes.verify, name))
        yield from self._strays({*blocks, *ledger}, joined, panes)

    def _check_end(self) -> Iterator[Finding]:
        """Whether the last commit is damaged; a run takes it for one that was cut off."""
        names = [name for name in self._folder.names("") if name.startswith("state-")]
        for name in names[-1:] if self._folder.appends else ():
            with suppress(StateError):  # a newer one has just taken its place
                if tape.is_damaged_at_end(self._folder.read(name)):
                    text = "its last record is damaged, and a run goes on from the commit before it"
                    text = f"{text}; {_advice(self._folder)}"
                    yield Finding(Weight.DAMAGE, self._folder.where(name), text)

    def of_nothing(self, is_first: bool) -> Finding:
        """What it means that no commit is there; perhaps a program `is_first` making one.

        Files of its batch are there before that.
        """
        found = map(_BATCH.match, self._folder.names(""))
        batches = [int(name[1]) for name in found if name is not None]
        batches += [0 for _ in self._folder.names(PANES)]
        if max(batches, default=-1) < (1 if is_first else 0):
            text = "has no state: nothing was committed yet, or its files were taken away"
            return Finding(Weight.NOTE, self._folder.where(), text)
        text = (
            f"its commits (state-…) are gone, and files of batch {max(batches):,} are there: a run "
            "begins anew and reads the logs again; windows that are stored are not stored twice, "
            "but what RETAIN has kept and records of logs that are gone are lost; put back a copy "
            "of the state"
        )
        return Finding(Weight.DAMAGE, self._folder.where(), text)

    def _check_file(self, name: str, read: Callable[[], object]) -> Iterator[Finding]:
        """Reads all of a file; a finding if that cannot be done."""
        try:
            read()
        except (MuntinError, OSError, ValueError, pa.ArrowException) as error:
            text = str(error)
            if isinstance(error, StateError):
                text = text.removeprefix(f"{self._folder.where(name)} ")
            if not isinstance(error, DamagedError):  # which says itself what to do
                text = f"{text}; {_advice(self._folder)}"
            yield Finding(Weight.DAMAGE, self._folder.where(name), text)

    def _blocks(self, name: str, length: int) -> None:
        data = self._folder.read(name)
        if len(data) < length:
            raise StateError(f"has {len(data):,} bytes of {length:,}: its end was cut off")
        for record in tape.records_in(data, self._folder.where(name), length):
            Block.decode(record, "a saved block in it")

    def _strays(self, needed: set[str], joined: set[str], panes: PaneFiles) -> Iterator[Finding]:
        unneeded = self._checkpoint.unneeded(needed)
        names = [
            *unneeded,
            *self._checkpoint.unneeded_rows(joined),
            *panes.strays(),
        ]
        for name in names:
            text = "belongs to no state that counts, and is removed by the next run"
            yield Finding(Weight.LEFTOVER, self._folder.where(name), text)


def _advice(folder: Storage) -> str:
    return (
        f"put back a copy of the state, or remove {folder} to read the logs again: windows that "
        "are stored are not stored twice"
    )


def _check_notes(storage: Storage, stream: str, saved: Saved | None) -> Iterator[Finding]:
    """Whether Spark can read what it has noted of an attached frame, and that goes with the state.

    A stream that is no frame has no notes, and its state none of Spark's batches.
    """
    place = storage.within(f"{notes.FOLDER}/{stream}")
    for name, why in notes.unreadable(place):
        text = f"Spark cannot read this note ({why}); {notes.advice(storage, stream)}"
        yield Finding(Weight.DAMAGE, place.where(name), text)
    read = -1 if saved is None else saved.progress.frame_batch
    if (refusal := notes.behind(place, storage, stream, read)) is not None:
        yield Finding(Weight.DAMAGE, place.where(), refusal)
    if (missing := notes.ahead(place, storage, stream, read)) is not None:
        yield Finding(Weight.NOTE, place.where(), missing)


def _compare(storage: Storage, states: Mapping[str, Saved], tables: list[str]) -> Iterator[Finding]:
    """Whether tables have what checkpoints say."""
    for stream, saved in states.items():
        place = storage.where(f"{STREAMS}/{stream}")
        for job in {*saved.results, *saved.tables}:
            table = storage.within(f"{FOLDER}/{job}")
            if job not in tables or not delta.exists(table):
                text = (
                    f"the table of job '{job}' was taken away, with all results; a run begins a new"
                )
                yield Finding(Weight.NOTE, table.where(), f"{text} one")
                continue
            synced = saved.tables.get(job, -1)
            if isinstance(table, LocalFolder) and log.version(table.path()) < synced:
                text = f"its log ends with entry {log.version(table.path()):,}, and was known to "
                text += f"have entry {synced:,}: results are lost; put back a copy of the table"
                yield Finding(Weight.DAMAGE, table.where(), text)
            with suppress(StateError):  # of which it was told already
                last = delta.last_batch(table, saved.writer or stream)
                if last > saved.batch and _batch_now(storage, stream) >= last:
                    continue  # a program has gone on since its checkpoint was looked at
                yield from _compare_table(table, job, saved, last, place)


def _batch_now(storage: Storage, stream: str) -> int:
    newest = Checkpoint(storage, stream).peek()
    return -1 if newest is None else newest.batch


def _compare_table(
    table: Storage, job: str, saved: Saved, last: int, place: str
) -> Iterator[Finding]:
    if last > saved.batch:
        text = (
            f"is of batch {saved.batch:,}, and the results of job '{job}' are of batch {last:,}: "
        )
        text += "an old copy was put back, or newer files were lost; a run goes on from here, "
        text += "and windows that come out the same are not stored again"
        yield Finding(Weight.NOTE, place, text)
    for name in saved.results.get(job, ()) if last < saved.batch else ():
        if any(name == file.name for file in delta.snapshot(table).files):
            text = (
                f"the table of job '{job}' has the results of batch {saved.batch:,}, and its log "
            )
            text += f"says that batch {last:,} was the last; put back a copy of the table"
            yield Finding(Weight.DAMAGE, table.where(), text)
        elif table.size(name) is None:
            text = f"the last results of job '{job}' are in no table, and their file is gone"
            yield Finding(Weight.DAMAGE, table.where(name), f"{text}: put back a copy of it")
        else:
            text = (
                f"the last results of job '{job}' are not in its table yet; a run puts them there"
            )
            yield Finding(Weight.NOTE, table.where(name), text)
