"""Results: one Delta table a job, appended once per batch, readable by anything."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa

from muntin.errors import InputError, StateError
from muntin.store import delta

_FOLDER = "results"


class Results:
    def __init__(self, state: Path) -> None:
        self._folder = state / _FOLDER

    def prepare(self, tables: Mapping[str, pa.Table]) -> None:
        """Creates the tables that are not there yet, so that readers find them empty."""
        for job, table in tables.items():
            if not delta.exists(self._folder / job):
                delta.create(self._folder / job, table.schema)

    def publish(self, batch: int, tables: Mapping[str, pa.Table]) -> None:
        """Appends rows of a batch; a batch that is there already changes nothing."""
        for job, table in tables.items():
            path = self._folder / job
            last = delta.last_batch(path)
            if last is None or last < batch:
                try:
                    delta.write(path, table, batch, merge_schema=True)
                except StateError as error:
                    raise StateError(f"results of job '{job}': {error}") from error

    def jobs(self) -> list[str]:
        if not self._folder.is_dir():
            return []
        return sorted(path.name for path in self._folder.iterdir() if delta.exists(path))

    def read(self, job: str, latest: bool = False, after_us: int | None = None) -> pa.Table:
        """Rows of a job by window, in the order they were emitted."""
        path = self._folder / job
        if not delta.exists(path):
            known = ", ".join(self.jobs()) or "none yet"
            raise InputError(
                f"no results of job '{job}' in {self._folder.parent}; there are: {known}"
            )
        where = "TRUE"
        if latest:
            where = "window_end = (SELECT max(window_end) FROM stored)"
        elif after_us is not None:
            where = f"epoch_us(window_end) > {after_us}"
        # Rows of a window lie in one file, already ordered; DuckDB keeps their order.
        return delta.read(path, f"SELECT * FROM stored WHERE {where} ORDER BY window_end")
