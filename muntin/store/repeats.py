"""Windows that are computed again, and that their table has already.

A state may be older than the results: its folder was lost, or an old copy was put back. What
follows from it then leaves once more. Of such windows, those that come out the same are not stored
again, and others are stored as the next revision, so that readers find every window once.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from muntin.kernel.engine import literal, quote
from muntin.store.delta import Snapshot

Ends = dict[str, int]  # where the last window of each name ends
_WINDOW = ("window_name", "window_start", "window_end")
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
    ends = pc.cast(rows["window_end"], pa.int64())
    limits = pa.array([known.get(name) for name in rows["window_name"].to_pylist()], pa.int64())
    within = pc.fill_null(pc.less_equal(ends, limits), False)
    if not pc.any(within).as_py():
        return rows
    window = ", ".join(_WINDOW)
    newest = f"FROM stored SEMI JOIN fresh USING ({window}) QUALIFY revision = "
    newest += f"max(revision) OVER (PARTITION BY {window})"
    row = _row_sql(rows.schema)
    found = table.query(
        table.files,
        f"""
        SELECT {window}, revision, fresh_rows = stored_rows AS same
        FROM (SELECT {window}, list_sort(list({row})) AS fresh_rows FROM fresh GROUP BY ALL)
        JOIN (SELECT {window}, max(revision) AS revision, list_sort(list({row})) AS stored_rows
              FROM ({newest}) GROUP BY {window}) USING ({window})
        """,
        {"fresh": rows},
    )
    if not found.num_rows:
        return rows
    same = dict(zip(_windows(found), found["same"].to_pylist(), strict=True))
    revisions = dict(zip(_windows(found), found["revision"].to_pylist(), strict=True))
    windows = _windows(rows)
    next_revision = pa.array(
        [
            revisions[each] + 1 if each in revisions else given
            for each, given in zip(windows, rows["revision"].to_pylist(), strict=True)
        ],
        rows.schema.field("revision").type,
    )
    place = rows.schema.get_field_index("revision")
    rows = rows.set_column(place, rows.schema.field("revision"), next_revision)
    return rows.filter(pa.array([not same.get(each, False) for each in windows]))


def _windows(rows: pa.Table) -> list[tuple[object, ...]]:
    """The window of each row; times as numbers, because years may be beyond Python's calendar."""
    name, start, end = (rows[column] for column in _WINDOW)
    numbers = (pc.cast(each, pa.int64()).to_pylist() for each in (start, end))
    return list(zip(name.to_pylist(), *numbers, strict=True))


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
