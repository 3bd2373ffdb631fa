"""Results: one Delta table a job, appended once per batch, readable by anything."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import numpy as np
import pyarrow as pa

from muntin.errors import InputError, StateError
from muntin.fidelity.score import EVER
from muntin.store import delta, disk, log
from muntin.store.hold import require_usable
from muntin.store.repeats import Ends, ends_of, without_repeats

_FIRST_FILES = 2  # that are looked at for the newest windows
_FOLDER = "results"
_NAMES = "muntin.windows"  # the setting of a table that lists the windows of which it has any
_NUMBER = pa.field("row_number", pa.int64())  # a table has no order of its own


class Results:
    def __init__(self, state: Path) -> None:
        require_usable(state)
        self._folder = state / _FOLDER
        self._schemas: dict[str, pa.Schema] = {}
        self._names: dict[str, set[str]] = {}  # of windows that a job's table has
        self._versions: dict[str, int] = {}  # of tables, up to which they are on disk
        self._unsynced: dict[str, list[Path]] = {}  # files of rows of tables that have changed

    def prepare(
        self, schemas: Mapping[str, pa.Schema], synced: Mapping[str, int] | None = None
    ) -> None:
        """Creates the tables that are not there yet, so that readers find them empty.

        `synced` says up to which version tables are known to be on disk; without, those that have
        rows are trusted.
        """
        for job, columns in schemas.items():
            path, schema = self._folder / job, columns.append(_NUMBER)
            self._mend(job, path, (synced or {}).get(job))
            if not delta.exists(path):
                delta.create(path, schema)
            known = delta.snapshot(path)
            _require_same_types(job, path, known.schema, schema)
            new = [field for field in schema if field.name not in known.schema.names]
            if new:
                delta.widen(path, new)
            self._schemas[job] = pa.schema([*known.schema, *new])
            self._names[job] = set(_names(known) or _read_names(known))
            if known.files and _names(known) is None:
                delta.settle(path, {_NAMES: json.dumps(sorted(self._names[job]))})
            self._unsynced[job] = disk.folders(path, self._folder.parent)

    def _mend(self, job: str, path: Path, synced: int | None) -> None:
        """Takes away what a power cut has left of a table's newest entries."""
        if not log.folder_of(path).is_dir():
            return
        if synced is None:
            synced = log.version(path) if log.has_rows(path) else -1
        log.mend(path, synced)
        self._versions[job] = synced

    def unsynced(self) -> tuple[list[Path], dict[str, int]]:
        """What to sync so that tables are on disk as they are now, and their versions then."""
        paths: list[Path] = []
        for job, more in self._unsynced.items():
            path = self._folder / job
            paths += [*more, path, *log.files_since(path, self._versions.get(job, -1))]
            paths.append(log.folder_of(path))
            self._versions[job] = log.version(path)
        self._unsynced = {}
        return paths, dict(self._versions)

    def has(self, job: str) -> bool:
        """Whether a job has a table."""
        return delta.exists(self._folder / job)

    def ends(self, job: str) -> Ends:
        """How far the windows of a job's table go, by their names."""
        return delta.read(self._folder / job, ends_of)

    def last_batch(self, jobs: Iterable[str], writer: str) -> int:
        """The last batch of a writer that any of the tables of jobs has, or -1."""
        paths = (self._folder / job for job in jobs)
        return max((delta.last_batch(path, writer) for path in paths if delta.exists(path)),
                   default=-1)  # fmt: skip

    def write(
        self,
        batch: int,
        rows: Mapping[str, Iterable[pa.Table]],
        known: Mapping[str, Ends] | None = None,
    ) -> dict[str, str]:
        """Stores rows of jobs, where no reader finds them until the files are published.

        Their tables were prepared. Up to where windows are `known`, a table may have them already.
        """
        files = {}
        for job, tables in rows.items():
            path = self._folder / job
            if known and known.get(job):
                tables = self._without_repeats(job, tables, known[job])
            numbered = _Numbered(tables)
            with _explained(job):
                file = delta.write_file(path, self._schemas[job], batch, numbered)
                if not numbered.names <= self._names[job]:
                    self._names[job] |= numbered.names
                    delta.settle(path, {_NAMES: json.dumps(sorted(self._names[job]))})
            if file is not None:
                files[job] = file
                self._unsynced.setdefault(job, []).append(path / file)
        return files

    def _without_repeats(self, job: str, tables: Iterable[pa.Table], known: Ends) -> list[pa.Table]:
        """The rows without windows that the table has as they are."""
        schema = self._schemas[job].remove(self._schemas[job].get_field_index(_NUMBER.name))
        whole = pa.concat_tables([delta.fitted(table, schema) for table in tables])
        return [delta.read(self._folder / job, lambda table: without_repeats(table, whole, known))]

    def publish(self, writer: str, batch: int, files: Mapping[str, str]) -> list[str]:
        """Shows the files of a writer's batch; one that is shown already changes nothing.

        Returns the jobs whose file, or table, somebody has taken away.
        """
        gone = []
        for job, file in files.items():
            with _explained(job):
                if delta.add_file(self._folder / job, file, writer, batch):
                    self._unsynced.setdefault(job, [])
                else:
                    gone.append(job)
        return gone

    def compact(self, jobs: Collection[str]) -> Iterator[str]:
        """Keeps tables of jobs quick to read and to add to, however many batches they have.

        Where that fails, perhaps because somebody else does the same, it is told: nothing is lost.
        """
        for job in jobs:
            path = self._folder / job
            try:
                if delta.exists(path):
                    delta.compact(path)
                    self._unsynced.setdefault(job, [])
            except StateError as error:
                yield f"results of job '{job}': {error}; this is tried again later"

    def jobs(self) -> list[str]:
        if not self._folder.is_dir():
            return []
        return sorted(path.name for path in self._folder.iterdir() if delta.exists(path))

    def read(
        self,
        job: str,
        latest: bool = False,
        after: datetime | None = None,
        revisions: bool = False,
    ) -> pa.Table:
        """Rows of a job by window; of one that was revised its newest rows, or all of them.

        `after` a time: rows of windows that left later.
        """
        path = self._folder / job
        if not delta.exists(path):
            known = ", ".join(self.jobs()) or "none yet"
            raise InputError(
                f"no results of job '{job}' in {self._folder.parent}; there are: {known}"
            )
        window = "window_name, window_start, window_end"
        where = [f"emitted_at > TIMESTAMPTZ '{after.isoformat()}'"] if after else []
        wanted = [] if revisions else [f"revision = max(revision) OVER (PARTITION BY {window})"]
        if latest:
            wanted.append("window_end = max(window_end) OVER (PARTITION BY window_name)")
        newest = f" QUALIFY {' AND '.join(wanted)}" if wanted else ""
        order = f" ORDER BY window_end, revision, {_NUMBER.name}"

        def rows(table: delta.Snapshot) -> pa.Table:
            if _NUMBER.name not in table.schema.names:
                message = f"the results of job '{job}' in {path} are of an earlier version"
                raise StateError(
                    f"{message} of Muntin; read them with another tool, or use another --state"
                )
            files, only = _latest(table) if latest and after is None else (table.files, [])
            some = f" WHERE {' AND '.join([*where, *only])}" if where or only else ""
            rows = f"SELECT * FROM stored{some}{newest}"
            # A revision without rows is stored as one that has no score.
            shown = f"SELECT * EXCLUDE ({_NUMBER.name}) FROM ({rows}) WHERE c2 IS NOT NULL{order}"
            return table.query(files, shown)

        return delta.read(path, rows)


def _latest(table: delta.Snapshot) -> tuple[Sequence[delta.File], list[str]]:
    """The files that have the newest windows of each name, and the condition that picks them.

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
        sql = f"SELECT window_name, max({position}) AS last FROM stored GROUP BY window_name"
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
    """The windows of which a table has any; None if nobody has noted it."""
    told = table.settings.get(_NAMES)
    return None if told is None else json.loads(told)


def _read_names(table: delta.Snapshot) -> list[str]:
    sql = "SELECT DISTINCT window_name FROM stored"
    names: list[str] = table.query(table.files, sql)["window_name"].to_pylist()
    return names


class _Numbered:
    """Tables with the number of each row, and the names of windows that they have had so far."""

    def __init__(self, tables: Iterable[pa.Table]) -> None:
        self._tables = tables
        self.names: set[str] = set()

    def __iter__(self) -> Iterator[pa.Table]:
        rows = 0
        for table in self._tables:
            self.names.update(table["window_name"].unique().to_pylist())
            numbers = np.arange(rows, rows + table.num_rows)
            yield table.append_column(_NUMBER, pa.array(numbers))
            rows += table.num_rows


@contextmanager
def _explained(job: str) -> Iterator[None]:
    try:
        yield
    except StateError as error:
        raise StateError(f"results of job '{job}': {error}") from error


def _require_same_types(job: str, path: Path, known: pa.Schema, wanted: pa.Schema) -> None:
    """Columns may be added; one whose type has changed would be rounded or refused."""
    for field in wanted:
        if field.name in known.names and known.field(field.name).type != field.type:
            raise StateError(
                f"column '{field.name}' of job '{job}' is now {field.type}, but its results in "
                f"{path} have {known.field(field.name).type}; give the column or the job another "
                f"name, or move the old table away"
            )
