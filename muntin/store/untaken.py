"""Rows of results that nobody has taken yet, as a table has them when a program starts.

Whoever starts knows the files, and what is to be known of rows without having them. Those who read
rows drop what was taken before, what was revised since, and windows that were open when they were
shown; a table may have merged all of these into one file.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from muntin.fidelity.score import Reason
from muntin.kernel.engine import quote, run
from muntin.store import delta
from muntin.store.parts import NUMBER, rows_of
from muntin.store.settling import Tasks
from muntin.store.storage import Storage
from muntin.units import moment

_WINDOW = ("window_name", "window_start", "window_end")
_REVISED = (*_WINDOW, "revision")
_DOING = "reading results"


@dataclass(frozen=True)
class UntakenRows:
    """Rows that left after a time, of each window its newest revision, wherever they are read."""

    place: Storage
    schema: pa.Schema
    files: tuple[str, ...]
    after_us: int
    at_us: int  # when the last of them left
    lacking: Mapping[str, int]
    """By source of which some lack something, where the first of their windows ends."""
    newest: pa.Table  # of windows that were revised, the newest revision

    def tables(self, window: tuple[str, int, int] | None = None) -> Iterator[pa.Table]:
        """All of them, some at a time; nobody asks for one window alone."""
        names = (quote(name) for name in self.schema.names if name != NUMBER.name)
        columns = ", ".join(f"rows.{name}" for name in names)
        for name in self.files:
            for rows in rows_of(self.place, self.schema, name, moment(self.after_us)):
                yield from self._wanted(rows, columns)

    def ends(self, among: Collection[int]) -> set[int]:
        """Which of these are ends of windows that have rows here."""
        found: set[int] = set()
        if among:
            schema = _telling(self.schema)
            for name in self.files:
                for rows in rows_of(self.place, schema, name, moment(self.after_us)):
                    for some in self._wanted(rows, "rows.window_end"):
                        ends = some["window_end"].unique().cast(pa.int64()).to_pylist()
                        found |= {*among} & {*ends}
        return found

    def _wanted(self, rows: pa.Table, columns: str) -> Iterator[pa.Table]:
        sql = (
            f"SELECT {columns} FROM rows LEFT JOIN newest USING ({', '.join(_WINDOW)}) "
            f"WHERE {_left_since(self.after_us)} "
            "AND coalesce(rows.revision = newest.revision, true) "
            f"ORDER BY window_end, {NUMBER.name}"
        )
        found = run(sql, {"rows": rows, "newest": self.newest}, _DOING)
        if found.num_rows:
            yield found


def _telling(schema: pa.Schema) -> pa.Schema:
    """The columns that say what rows are."""
    names = (*_WINDOW, "revision", "emitted_at", "c2", NUMBER.name)
    return pa.schema([schema.field(name) for name in names])


@dataclass(frozen=True)
class _Look:
    """What is to be known of the rows of one file."""

    name: str
    at_us: int | None  # None: there are none
    lacking: Mapping[str, int]
    newest: pa.Table


def untaken_of(table: delta.Snapshot, after_us: int, tasks: Tasks) -> UntakenRows | None:
    """The rows of a table that left after a time; None if there are none."""
    look = partial(_looked_at, table.place, table.schema, after_us)
    names, size = [file.name for file in table.files], sum(file.size for file in table.files)
    looks = tasks(look, names, size)
    there = [each for each in looks if each.at_us is not None]
    if not there:
        return None
    last, files = max(each.at_us or 0 for each in there), tuple(each.name for each in there)
    lacking = _first(each.lacking for each in there)
    newest = _newest([each.newest for each in looks])  # one that takes back may be in another file
    return UntakenRows(table.place, table.schema, files, after_us, last, lacking, newest)


def _looked_at(place: Storage, schema: pa.Schema, after_us: int, name: str) -> _Look:
    at_us: int | None = None
    lacking: list[dict[str, int]] = []
    newest = pa.schema([schema.field(each) for each in _REVISED]).empty_table()
    left = _left_since(after_us)
    for rows in rows_of(place, _telling(schema), name, moment(after_us)):
        last = run(f"SELECT max(emitted_at) AS at FROM rows WHERE {left}", {"rows": rows}, _DOING)
        at = last["at"].cast(pa.int64())[0].as_py()
        at_us = max((each for each in (at, at_us) if each is not None), default=None)
        # Those that take a window back among them, which have no score.
        some = f"revision > 0 AND {_since(after_us)}"
        sql = f"SELECT {', '.join(_REVISED)} FROM rows WHERE {some}"
        newest = _newest([newest, run(sql, {"rows": rows}, _DOING)])
        lacks = f"SELECT window_end, unnest(c2.missing) AS lack FROM rows WHERE {left}"
        sql = f"SELECT lack.source, min(window_end) AS first FROM ({lacks}) GROUP BY ALL"
        found = run(sql, {"rows": rows}, _DOING)
        firsts = found["first"].cast(pa.int64()).to_pylist()
        lacking.append(dict(zip(found["source"].to_pylist(), firsts, strict=True)))
    return _Look(name, at_us, _first(lacking), newest)


def _newest(several: Sequence[pa.Table]) -> pa.Table:
    """Windows with the newest of their revisions."""
    sql = f"SELECT {', '.join(_WINDOW)}, max(revision) AS revision FROM rows GROUP BY ALL"
    return run(sql, {"rows": pa.concat_tables(several)}, _DOING)


def _first(several: Iterable[Mapping[str, int]]) -> dict[str, int]:
    first: dict[str, int] = {}
    for each in several:
        for source, end in each.items():
            first[source] = min(end, first.get(source, end))
    return first


def _since(after_us: int) -> str:
    return f"emitted_at > TIMESTAMPTZ '{moment(after_us).isoformat()}'"


def _left_since(after_us: int) -> str:
    """Rows of windows that have left, and are not only shown, or taken back."""
    return f"{_since(after_us)} AND c2.reason <> '{Reason.OPEN}'"
