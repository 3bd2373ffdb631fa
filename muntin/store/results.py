"""Results: one Delta table a job, appended once per batch, readable by anything."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import numpy as np
import pyarrow as pa

from muntin.errors import InputError, StateError
from muntin.store import delta

DEFAULT_STATE = Path(".muntin")
_FOLDER = "results"
_NUMBER = pa.field("row_number", pa.int64())  # a table has no order of its own


class Results:
    def __init__(self, state: Path) -> None:
        self._folder = state / _FOLDER
        self._schemas: dict[str, pa.Schema] = {}

    def prepare(self, schemas: Mapping[str, pa.Schema]) -> None:
        """Creates the tables that are not there yet, so that readers find them empty."""
        for job, columns in schemas.items():
            path, schema = self._folder / job, columns.append(_NUMBER)
            if not delta.exists(path):
                delta.create(path, schema)
            else:
                known = delta.schema(path)
                _require_same_types(job, path, known, schema)
                new = [field for field in schema if field.name not in known.names]
                if new:
                    delta.widen(path, new)
            self._schemas[job] = delta.schema(path)

    def write(self, batch: int, rows: Mapping[str, Iterable[pa.Table]]) -> dict[str, str]:
        """Stores rows of jobs, where no reader finds them until the files are published.

        Their tables were prepared.
        """
        files = {}
        for job, tables in rows.items():
            with _explained(job):
                file = delta.write_file(
                    self._folder / job, self._schemas[job], batch, _numbered(tables)
                )
            if file is not None:
                files[job] = file
        return files

    def publish(self, stream: str, batch: int, files: Mapping[str, str]) -> list[str]:
        """Shows the files of a stream's batch; one that is shown already changes nothing.

        Returns the jobs whose file, or table, somebody has taken away.
        """
        gone = []
        for job, file in files.items():
            with _explained(job):
                if not delta.add_file(self._folder / job, file, stream, batch):
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
        if _NUMBER.name not in delta.schema(path).names:
            message = f"the results of job '{job}' in {path} are of an earlier version of Muntin"
            raise StateError(f"{message}; read them with another tool, or use another --state")
        window = "window_name, window_start, window_end"
        where = f" WHERE emitted_at > TIMESTAMPTZ '{after.isoformat()}'" if after else ""
        wanted = [] if revisions else [f"revision = max(revision) OVER (PARTITION BY {window})"]
        if latest:
            wanted.append("window_end = max(window_end) OVER (PARTITION BY window_name)")
        newest = f" QUALIFY {' AND '.join(wanted)}" if wanted else ""
        order = f" ORDER BY window_end, revision, {_NUMBER.name}"
        rows = f"SELECT * FROM stored{where}{newest}"
        # A revision without rows is stored as one that has no score.
        shown = f"SELECT * EXCLUDE ({_NUMBER.name}) FROM ({rows}) WHERE c2 IS NOT NULL{order}"
        return delta.read(path, shown)


def _numbered(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    rows = 0
    for table in tables:
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
