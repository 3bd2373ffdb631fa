"""Windows that are computed again, and that their table has already.

A state may be older than the results: its folder was lost, or an old copy was put back. What
follows from it then leaves once more. Of such windows, those that come out the same are not stored
again, and others are stored as the next revision, so that readers find every window once.

Rows are not compared one by one. Those of a window are hashed and the hashes added up, wherever
they are, so that memory is that of windows and not of rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from muntin.kernel.engine import literal, quote, run
from muntin.kernel.sketches import stable_hash_sql
from muntin.run.many import Part
from muntin.store.delta import Snapshot
from muntin.store.parts import FileParts, PartWriter, in_order, rows_of

Ends = dict[str, int]  # where the last window of each name ends
_WINDOW = "window_name, window_start, window_end"
_DOING = "comparing results"
# These may differ in any case.
_OF_STORING = (
    "revision", "emitted_at", "row_number", "c2_records", "job_version", "results_used"
)  # fmt: skip


def ends_of(table: Snapshot) -> Ends:
    """How far the windows of a table go."""
    sql = f"SELECT window_name, max({_position(table.schema)}) FROM stored GROUP BY window_name"
    return dict(zip(*table.query(table.files, sql).to_pydict().values(), strict=True))


def without_repeats(table: Snapshot, rows: pa.Table, known: Mapping[str, int]) -> pa.Table:
    """The rows without windows that the table has as they are, and of the others their revision.

    `known` says up to where the table may have any. The rows have the columns of the table.
    """
    mine = _windows(rows, known)
    decided = _decided(table, mine, [rows]) if mine.num_rows else mine
    return _sifted(rows, decided) if decided.num_rows else rows


@dataclass(frozen=True)
class Sifting:
    """Makes files of rows without windows that a table has already, in whatever process."""

    table: Snapshot
    known: Mapping[str, int]
    writer: PartWriter

    def __call__(self, given: tuple[Part, tuple[str, ...]]) -> Part | None:
        """A file in the place of one that tasks have written, or that one if all of it is new.

        With it come the names of all files in which windows of it may go on. None: it has no rows.
        """
        part, together = given
        mine = self._windows(part.name)
        if not mine.num_rows:
            return part
        place, schema = self.writer.place, self.table.schema
        fresh = (rows for name in together for rows in rows_of(place, schema, name))
        decided = _decided(self.table, mine, fresh)
        if not decided.num_rows:
            return part
        stored = FileParts(place, (part.name,)).tables()
        return self.writer.write(in_order((_sifted(rows, decided) for rows in stored), part.first))

    def _windows(self, name: str) -> pa.Table:
        """The windows of a file that the table may have."""
        place, schema = self.writer.place, self.table.schema
        some = pa.schema([schema.field(each) for each in _WINDOW.split(", ")])
        found = some.empty_table()
        for rows in rows_of(place, some, name):
            found = _windows(pa.concat_tables([found, rows]), self.known)
        return found


def _windows(rows: pa.Table, known: Mapping[str, int]) -> pa.Table:
    """The windows of rows that a table may have, each once."""
    upto = pa.table({"window_name": list(known), "upto": pa.array(known.values(), pa.int64())})
    within = f"{_position(rows.schema)} <= upto"
    sql = f"SELECT DISTINCT {_WINDOW} FROM keys JOIN known USING (window_name) WHERE {within}"
    # Without the columns of the result, of which one may be called `upto`, too.
    return run(sql, {"keys": rows.select(_WINDOW.split(", ")), "known": upto}, _DOING)


def _decided(table: Snapshot, mine: pa.Table, fresh: Iterable[pa.Table]) -> pa.Table:
    """Of windows that the table has, the next revision, and whether `fresh` rows are the same."""
    ends = pc.cast(mine["window_end"], pa.int64())
    first, last = pc.min(ends).as_py(), pc.max(ends).as_py()
    files = (f for f in table.files if f.ends is None or (f.ends[1] >= first and f.ends[0] <= last))
    kept = (rows for f in files for rows in rows_of(table.place, table.schema, f.name))
    sql = f"""
        SELECT {_WINDOW}, stored.revision + 1 AS revision,
            fresh.rows = stored.rows AND fresh.hash = stored.hash AS same
        FROM (SELECT {_WINDOW}, sum(rows) AS rows, sum(hash) AS hash FROM fresh GROUP BY ALL) fresh
        JOIN (FROM stored QUALIFY revision = max(revision) OVER (PARTITION BY {_WINDOW})) stored
        USING ({_WINDOW})
    """
    sums = {"fresh": _sums(table, mine, fresh), "stored": _sums(table, mine, kept)}
    return run(sql, sums, _DOING)


def _sums(table: Snapshot, mine: pa.Table, several: Iterable[pa.Table]) -> pa.Table:
    """Of some windows and each of their revisions, how many rows there are, and their hashes."""
    by = f"{_WINDOW}, revision"
    hashed = (
        f"SELECT {by}, count(*) AS rows, sum({stable_hash_sql(_row_sql(table.schema))}) AS hash "
        f"FROM rows SEMI JOIN mine USING ({_WINDOW}) GROUP BY ALL"
    )
    added = f"SELECT {by}, sum(rows) AS rows, sum(hash) AS hash FROM rows GROUP BY ALL"
    total = _typed(hashed, {"rows": table.schema.empty_table(), "mine": mine})
    for rows in several:
        more = _typed(hashed, {"rows": rows, "mine": mine})
        if more.num_rows:
            total = _typed(added, {"rows": pa.concat_tables([total, more])})
    return total


def _typed(sql: str, tables: Mapping[str, pa.Table]) -> pa.Table:
    """Sums in types that they have however often they are added up."""
    sums = "rows::BIGINT AS rows, hash::DECIMAL(38, 0) AS hash"
    return run(f"SELECT * REPLACE ({sums}) FROM ({sql})", tables, _DOING)


def _sifted(rows: pa.Table, decided: pa.Table) -> pa.Table:
    """The rows without windows that are the same, and with the revision of those that are not."""
    # Without the columns of the result, which may be called as anything here is.
    keys = rows.select([*_WINDOW.split(", "), "revision"])
    keys = keys.append_column("place", pa.array(range(rows.num_rows), pa.int64()))
    sql = (
        "SELECT NOT coalesce(same, false) AS stays, "
        "coalesce(decided.revision, keys.revision) AS revision "
        f"FROM keys LEFT JOIN decided USING ({_WINDOW}) ORDER BY place"
    )
    found = run(sql, {"keys": keys, "decided": decided}, _DOING)
    at = rows.schema.get_field_index("revision")
    field = rows.schema.field(at)
    return rows.set_column(at, field, found["revision"].cast(field.type)).filter(found["stays"])


def _row_sql(schema: pa.Schema) -> str:
    """A row as text. Sums that were added up in another order may differ in their last digits."""
    parts = []
    for field in schema:
        if field.name not in _OF_STORING:
            value = quote(field.name)
            if pa.types.is_floating(field.type):
                value = f"printf('%.9g', {value}::DOUBLE)"
            parts.append(f"{literal(field.name)}: {value}")
    return f"{{{', '.join(parts)}}}::VARCHAR"


def _position(schema: pa.Schema) -> str:
    is_time = pa.types.is_timestamp(schema.field("window_end").type)
    return "epoch_us(window_end)" if is_time else "window_end"
