"""Results: one Delta table a job, appended once per batch, readable by anything."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

import pyarrow as pa

from muntin.errors import InputError, StateError
from muntin.fidelity.score import EVER, Reason
from muntin.run.many import Part, Stored, WaitingWindows
from muntin.run.sessions import StoredSessions, WaitingSessions
from muntin.store import delta, log
from muntin.store.hold import require_usable
from muntin.store.parts import NUMBER, FileParts, Numbered, PartWriter, in_order
from muntin.store.repeats import Ends, Sifting, ends_of, without_repeats
from muntin.store.settling import Tasks
from muntin.store.storage import ABANDONED_SECONDS, LocalFolder, Place, Storage, storage_of
from muntin.store.untaken import UntakenRows, untaken_of

_FIRST_FILES = 2  # that are looked at for the newest windows
FOLDER = "results"
_MOST_ENTRIES = 128  # of a table, if there is never time to sum them up
_MANY = 8  # jobs, from which on threads are worth their start
_SIDE_BY_SIDE = 4
_NAMES = "muntin.windows"  # the setting of a table that lists the windows it may have
_VERSION = "job_version"
# A revision that takes back has left, and has no score.
_HAS_LEFT = f"coalesce(c2.reason <> '{Reason.OPEN}', true)"

T = TypeVar("T")


@dataclass(frozen=True)
class _Newest:
    """The newest entry of a table's log, and whose batch that was; of a new table nobody's."""

    version: int
    writer: str | None = None
    batch: int = -1

    def before(self, writer: str, batch: int) -> int | None:
        """The version, if the table cannot have this batch yet."""
        return self.version if self.writer in (None, writer) and batch > self.batch else None


class Results:
    def __init__(self, state: Place) -> None:
        require_usable(state)
        self._state = storage_of(state)
        self._folder = self._state.within(FOLDER)
        self._schemas: dict[str, pa.Schema] = {}
        self._names: dict[str, set[str]] = {}  # of windows that a job's table has
        self._versions: dict[str, int] = {}  # of tables, up to which they are on disk
        self._newest: dict[str, _Newest] = {}  # of tables that this program has written last
        self._unsynced: dict[str, list[str]] = {}  # files of rows of tables that have changed
        self._entries: dict[str, int] = {}  # of tables' logs, since they were summed up

    def prepare(
        self,
        schemas: Mapping[str, pa.Schema],
        synced: Mapping[str, int] | None = None,
        names: Mapping[str, Collection[str]] = MappingProxyType({}),
    ) -> None:
        """Creates the tables that are not there yet, so that readers find them empty.

        `synced` says up to which version tables are known to be on disk; without, those that have
        rows are trusted. `names` are those of the windows that new tables will have.
        """

        def prepare(job: str) -> None:
            place, schema = self._folder.within(job), schemas[job].append(NUMBER)
            if job not in self._schemas and isinstance(place, LocalFolder):
                self._mend(job, place.path(), (synced or {}).get(job))
            self._schemas[job], self._names[job] = schema, set()
            if not delta.exists(place):
                self._names[job] = set(names.get(job, ()))
                delta.create(place, schema, {_NAMES: json.dumps(sorted(self._names[job]))})
                self._newest[job] = _Newest(0)
            else:
                known = delta.snapshot(place)
                _require_same_types(job, place, known.schema, schema)
                new = [field for field in schema if field.name not in known.schema.names]
                if new:
                    delta.widen(place, new)
                self._schemas[job] = pa.schema([*known.schema, *new])
                self._names[job] = set(_names(known) or _read_names(known))
                if known.files and _names(known) is None:
                    delta.settle(place, {_NAMES: json.dumps(sorted(self._names[job]))})
            self._unsynced.setdefault(job, []).extend(self._state.above(f"{FOLDER}/{job}"))

        _each(prepare, schemas)

    def require(self, schemas: Mapping[str, pa.Schema]) -> None:
        """Raises a StateError if rows with these columns cannot be stored with those of a job.

        It is asked while a program runs, which would end if a table were moved away.
        """
        for job, columns in schemas.items():
            place = self._folder.within(job)
            if delta.exists(place):
                known = delta.snapshot(place).schema
                stop = "stop the program and "
                _require_same_types(job, place, known, columns.append(NUMBER), stop)

    def _mend(self, job: str, path: Path, synced: int | None) -> None:
        """Takes away what a power cut has left of a table's newest entries."""
        if not log.folder_of(path).is_dir():
            return
        if synced is None:
            synced = log.version(path) if log.has_rows(path) else -1
        log.mend(path, synced)
        self._versions[job] = synced

    def unsynced(self) -> tuple[list[str], dict[str, int]]:
        """What to sync so that tables are on disk as they are now, and their versions then."""
        names: list[str] = []
        for job, more in self._unsynced.items():
            table, name = self._folder.within(job), f"{FOLDER}/{job}"
            if isinstance(table, LocalFolder):
                entries = log.files_since(table.path(), self._versions.get(job, -1))
                names += [*more, name, *(f"{name}/{log.FOLDER}/{path.name}" for path in entries)]
                names.append(f"{name}/{log.FOLDER}")
                self._versions[job] = log.version(table.path())
        self._unsynced = {}
        return names, dict(self._versions)

    def has(self, job: str) -> bool:
        """Whether a job has a table."""
        return delta.exists(self._folder.within(job))

    def ends(self, job: str) -> Ends:
        """How far the windows of a job's table go, by their names."""
        if self._newest.get(job) == _Newest(0):  # it was made just now
            return {}
        return delta.read(self._folder.within(job), ends_of)

    def last_batch(self, jobs: Iterable[str], writer: str) -> int:
        """The last batch of a writer that any of the tables of jobs has, or -1."""
        places = (self._folder.within(job) for job in jobs)
        return max((delta.last_batch(place, writer) for place in places if delta.exists(place)),
                   default=-1)  # fmt: skip

    def have_written(
        self, batch: int, windows: WaitingWindows | WaitingSessions, first: int
    ) -> list[Stored]:
        """Has tasks store the rows that they have, numbered from the `first` on.

        No reader finds the files until they are published. Windows that are only shown are apart
        from those that have left.
        """
        job = windows.job.title
        writer = PartWriter(self._folder.within(job), self._schemas[job], batch)
        stored: list[Stored] = []
        with _explained(job):
            if isinstance(windows, WaitingSessions):
                files, totals = windows.waiting.write(windows, writer, first)
                stored.append(StoredSessions.of(windows, _parts(writer, files), files, totals))
            else:
                for some in windows.apart():
                    files = some.waiting.write(some, writer, first)
                    first += sum(file.rows for file in files)
                    taken_back = some.takes_back(some.withdrawn(some.rows_of))
                    last = writer.write(in_order(taken_back, first))
                    files += [last] if last is not None else []
                    first += last.rows if last is not None else 0
                    stored.append(some.stored(_parts(writer, files), files))
        windows.waiting.let_go()
        return stored

    def write(
        self,
        batch: int,
        rows: Mapping[str, Iterable[pa.Table]],
        known: Mapping[str, Ends] | None = None,
        parts: Mapping[str, Sequence[Part]] | None = None,
    ) -> dict[str, tuple[str, ...]]:
        """Stores rows of jobs, where no reader finds them until the files are published.

        Their tables were prepared. Up to where windows are `known`, a table may have them already.
        Returns the files of each job, `parts` that tasks have written among them.
        """
        written = parts or {}

        def write(job: str) -> tuple[str, ...]:
            place, tables = self._folder.within(job), rows.get(job, ())
            mine = written.get(job, ())
            if known and known.get(job):
                tables = self._without_repeats(job, tables, known[job])
            numbered = Numbered(in_order(tables, sum(part.rows for part in mine)))
            with _explained(job):
                file = delta.write_file(place, self._schemas[job], batch, numbered)
                names = numbered.names.union(*(part.windows for part in mine))
                if not names <= self._names[job]:
                    self._names[job] |= names
                    delta.settle(place, {_NAMES: json.dumps(sorted(self._names[job]))})
            files = (*(part.name for part in mine), *([] if file is None else [file]))
            if files:
                self._unsynced.setdefault(job, []).extend(f"{FOLDER}/{job}/{n}" for n in files)
            return files

        jobs = dict.fromkeys((*rows, *written))
        return {job: files for job, files in _each(write, jobs).items() if files}

    def _without_repeats(self, job: str, tables: Iterable[pa.Table], known: Ends) -> list[pa.Table]:
        """The rows without windows that the table has as they are."""
        schema = self._schemas[job].remove(self._schemas[job].get_field_index(NUMBER.name))
        fitted = (delta.fitted(table, schema) for table in tables)
        whole = pa.concat_tables([schema.empty_table(), *fitted])
        return [
            delta.read(self._folder.within(job), lambda table: without_repeats(table, whole, known))
        ]

    def without_repeats(self, batch: int, stored: Stored, known: Ends, tasks: Tasks) -> list[Part]:
        """Files of windows without those that their table has as they are.

        Up to where windows are `known` it may have them; `tasks` compare and write.
        """
        job = stored.job.title
        writer = PartWriter(self._folder.within(job), self._schemas[job], batch)
        size, every = stored.nbytes, tuple(part.name for part in stored.files)
        alone = isinstance(stored, StoredSessions)  # all rows of a session are in one file
        items = [(part, (part.name,) if alone else every) for part in stored.files]

        def sifted(table: delta.Snapshot) -> list[Part | None]:
            return tasks(Sifting(table, known, writer), items, size)

        with _explained(job):
            return [part for part in delta.read(writer.place, sifted) if part is not None]

    def publish(self, writer: str, batch: int, files: Mapping[str, Sequence[str]]) -> list[str]:
        """Shows the files of a writer's batch; one that is shown already changes nothing.

        Returns the jobs whose file, or table, somebody has taken away.
        """

        def publish(job: str) -> bool:
            with _explained(job):
                newest = self._newest.pop(job, None)
                version = None if newest is None else newest.before(writer, batch)
                place = self._folder.within(job)
                added = delta.add_files(place, files[job], writer, batch, version)
            if added is not None:
                self._newest[job] = _Newest(added, writer, batch)
                self._unsynced.setdefault(job, [])
                if isinstance(place, LocalFolder):  # elsewhere it is done with the entry
                    self._entries[job] = self._entries.get(job, 0) + 1
                if self._entries.get(job, 0) >= _MOST_ENTRIES:
                    self.sum_up(job)
            return added is not None

        return [job for job, added in _each(publish, files).items() if not added]

    @property
    def many_entries(self) -> list[str]:
        """The jobs whose tables had better be summed up before they are opened."""
        return [job for job, count in self._entries.items() if count >= delta.ENTRIES_PER_SUMMARY]

    def sum_up(self, job: str) -> None:
        """Has a table opened as fast as one with few entries, which takes longer than an entry.

        Where that fails nothing is lost, and it is tried again after some more entries.
        """
        self._entries[job] = 0
        place = self._folder.within(job)
        with suppress(StateError):
            if delta.exists(place):
                delta.sum_up(place)
                self._unsynced.setdefault(job, [])

    def compact(self, jobs: Collection[str]) -> Iterator[str]:
        """Keeps tables of jobs quick to read and to add to, however many batches they have.

        Where that fails, perhaps because somebody else does the same, it is told: nothing is lost.
        """
        for job in jobs:
            place = self._folder.within(job)
            self._newest.pop(job, None)
            self._entries[job] = 0  # what is merged is summed up, too
            try:
                if delta.exists(place):
                    delta.compact(place)
                    self._unsynced.setdefault(job, [])
                    # What tasks that were killed have left, which no table knows of.
                    self._state.sweep([f"{FOLDER}/{job}"], time.time() - ABANDONED_SECONDS)
            except StateError as error:
                yield f"results of job '{job}': {error}; this is tried again later"

    def jobs(self) -> list[str]:
        return [job for job in self._folder.folders("") if self.has(job)]

    def windows(self, job: str) -> list[str]:
        """The names of a job's windows, of which there may be results."""
        return delta.read(
            self._folder.within(job), lambda table: _names(table) or _read_names(table)
        )

    def latest_rows(self, job: str) -> int:
        """How many rows the newest windows of a job have, revisions among them."""
        return delta.read(self._folder.within(job), _counted)

    def untaken(self, job: str, after_us: int, tasks: Tasks) -> UntakenRows | None:
        """Rows of a job's windows that left after a time; `tasks` look at them."""

        def rows(table: delta.Snapshot) -> UntakenRows | None:
            _require_numbers(job, table)
            return untaken_of(table, after_us, tasks)

        return delta.read(self._folder.within(job), rows)

    def read(
        self,
        job: str,
        latest: bool = False,
        after: datetime | None = None,
        revisions: bool = False,
        final: bool = False,
    ) -> pa.Table:
        """Rows of a job by window; of one that was revised its newest rows, or all of them.

        `after` a time: rows of windows that left later. `final`: without windows that were open
        when they were shown.
        """
        place = self._folder.within(job)
        if not delta.exists(place):
            known = ", ".join(self.jobs()) or "none yet"
            raise InputError(f"no results of job '{job}' in {self._state}; there are: {known}")
        window = "window_name, window_start, window_end"
        where = [f"emitted_at > TIMESTAMPTZ '{after.isoformat()}'"] if after else []
        where += [_HAS_LEFT] if final else []
        wanted = [] if revisions else [f"revision = max(revision) OVER (PARTITION BY {window})"]
        if latest:
            wanted.append("window_end = max(window_end) OVER (PARTITION BY window_name)")
        newest = f" QUALIFY {' AND '.join(wanted)}" if wanted else ""
        order = f" ORDER BY window_end, revision, {NUMBER.name}"

        def rows(table: delta.Snapshot) -> pa.Table:
            _require_numbers(job, table)
            last = _HAS_LEFT if final else "true"
            files, only = _latest(table, last) if latest and after is None else (table.files, [])
            table.require_whole(files)
            some = f" WHERE {' AND '.join([*where, *only])}" if where or only else ""
            rows = f"SELECT * FROM stored{some}{newest}"
            # A revision without rows is stored as one that has no score.
            told = f"* EXCLUDE ({NUMBER.name})"
            if (
                _VERSION in table.schema.names
            ):  # rows from before jobs had versions are of the first
                told += f" REPLACE (coalesce({_VERSION}, 1) AS {_VERSION})"
            shown = f"SELECT {told} FROM ({rows}) WHERE c2 IS NOT NULL{order}"
            return table.query(files, shown)

        return delta.read(place, rows)


def _parts(writer: PartWriter, files: Sequence[Part]) -> FileParts:
    return FileParts(writer.place, tuple(file.name for file in files))


def _counted(table: delta.Snapshot) -> int:
    files, only = _latest(table)
    some = f" WHERE {' AND '.join(only)}" if only else ""
    sql = f"SELECT count(window_end) AS n FROM stored{some}"
    return int(table.query(files, sql)["n"][0].as_py()) if files else 0


def _each(do: Callable[[str], T], jobs: Collection[str]) -> dict[str, T]:
    """What comes of each job's table; those of many jobs are written side by side."""
    if len(jobs) < _MANY:
        return {job: do(job) for job in jobs}
    with ThreadPoolExecutor(_SIDE_BY_SIDE, thread_name_prefix="muntin-tables") as threads:
        return dict(zip(jobs, threads.map(do, jobs), strict=True))


def _latest(table: delta.Snapshot, where: str = "true") -> tuple[Sequence[delta.File], list[str]]:
    """The files that have the newest windows of each name, and the condition that picks them.

    `where` says which of all rows count.
    Files are read from the newest on, until none that is left can have a newer window.
    """
    names = _names(table)
    if names is None:
        return table.files, []
    is_time = pa.types.is_timestamp(table.schema.field("window_end").type)
    position = "epoch_us(window_end)" if is_time else "window_end"
    ends: dict[str, int] = {}
    left = sorted(table.files, key=lambda f: EVER if f.ends is None else f.ends[1], reverse=True)
    most = _FIRST_FILES
    while left:
        some, left = left[:most], left[most:]
        last = f"SELECT window_name, max({position}) AS last FROM stored"
        sql = f"{last} WHERE {where} GROUP BY window_name"
        for name, end in zip(*table.query(some, sql).to_pydict().values(), strict=True):
            ends[name] = max(end, ends.get(name, end))
        left = [f for f in left if any(_may_be_newer(f, name, ends.get(name)) for name in names)]
        most *= 4
    files = [
        file
        for file in table.files
        if any(file.may_have(name) and file.may_end_at(end) for name, end in ends.items())
    ]
    told = [f"make_timestamptz({end})" if is_time else str(end) for end in ends.values()]
    return files, [f"window_end IN ({', '.join(told)})"] if told else []


def _may_be_newer(file: delta.File, name: str, end: int | None) -> bool:
    return file.may_have(name) and (end is None or file.may_end_after(end))


def _names(table: delta.Snapshot) -> list[str] | None:
    """The windows that a table may have; None if nobody has noted it."""
    told = table.settings.get(_NAMES)
    return None if told is None else json.loads(told)


def _read_names(table: delta.Snapshot) -> list[str]:
    sql = "SELECT DISTINCT window_name FROM stored"
    names: list[str] = table.query(table.files, sql)["window_name"].to_pylist()
    return names


@contextmanager
def _explained(job: str) -> Iterator[None]:
    try:
        yield
    except StateError as error:
        raise StateError(f"results of job '{job}': {error}") from error


def _require_numbers(job: str, table: delta.Snapshot) -> None:
    """Rows were not always numbered."""
    if NUMBER.name not in table.schema.names:
        message = f"the results of job '{job}' in {table.place} are of an earlier version"
        raise StateError(
            f"{message} of Muntin; read them with another tool, or use another --state"
        )


def _require_same_types(
    job: str, place: Storage, known: pa.Schema, wanted: pa.Schema, first: str = ""
) -> None:
    """Columns may be added; one whose type has changed would be rounded or refused."""
    for field in wanted:
        if field.name in known.names and known.field(field.name).type != field.type:
            raise StateError(
                f"column '{field.name}' of job '{job}' is now {field.type}, but its results in "
                f"{place} have {known.field(field.name).type}; give the column or the job another "
                f"name, or {first}move the old table away"
            )
