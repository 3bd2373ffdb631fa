"""Results of a job in the order in which they left, as its table has them."""

from __future__ import annotations

import pyarrow as pa

from muntin.store import delta
from muntin.store.storage import Place, Storage, storage_of

IN_ALL = "rows_in_all"


def has_results(state: Place, job: str) -> bool:
    """Whether a job has a table, with rows or without."""
    return delta.exists(_path(state, job))


def left_since(state: Place, job: str, at_us: int, most: int, each: int) -> pa.Table:
    """Rows of results that left at a time or later, first things first, revisions among them.

    About as many rows as `most`: all results that left together are there or none, and there are
    some if the table has any. Of a result there are the first rows, `each` of them at most, and
    `rows_in_all` says how many it has. A revision without rows is one row that has no score.
    """
    since = f"emitted_at >= make_timestamptz({max(at_us, 0)})"
    counted = f"SELECT emitted_at, count(*) AS n FROM stored WHERE {since} GROUP BY emitted_at"
    before = "coalesce(sum(n) OVER (ORDER BY emitted_at ROWS UNBOUNDED PRECEDING) - n, 0)"
    first = f"SELECT emitted_at FROM ({counted}) QUALIFY {before} < {most}"
    order = "emitted_at, window_end, revision, row_number"

    def rows(table: delta.Snapshot) -> pa.Table:
        window = "emitted_at, window_name, window_start, window_end, revision"
        sizes = (
            f"SELECT {window}, min(row_number) AS __first, count(*) AS {IN_ALL} FROM stored "
            f"WHERE emitted_at IN ({first}) GROUP BY {window}"
        )
        sql = (  # in two steps, as very many rows should not be at hand before they are left out
            f"SELECT stored.*, {IN_ALL} FROM stored JOIN ({sizes}) USING ({window}) "
            f"WHERE row_number < __first + {each} ORDER BY {order}"
        )
        return table.query(table.files, sql).drop_columns(["row_number"])

    return delta.read(_path(state, job), rows)


def last_left(state: Place, job: str, before_us: int | None = None) -> int | None:
    """When the last results left that a table has, if any; of those from before a time."""
    earlier = "" if before_us is None else f" WHERE emitted_at < make_timestamptz({before_us})"

    def last(table: delta.Snapshot) -> int | None:
        if not table.files:
            return None
        sql = f"SELECT epoch_us(max(emitted_at)) AS at FROM stored{earlier}"
        found: int | None = table.query(table.files, sql)["at"][0].as_py()
        return found

    return delta.read(_path(state, job), last)


def rows(state: Place, job: str) -> int:
    """How many rows a table has."""

    def count(table: delta.Snapshot) -> int:
        if not table.files:
            return 0
        sql = "SELECT count(*) AS n FROM stored"
        return int(table.query(table.files, sql)["n"][0].as_py())

    return delta.read(_path(state, job), count)


def _path(state: Place, job: str) -> Storage:
    return storage_of(state).within(f"results/{job}")
