"""What is left of a statement when SQL refuses a value: all the rest, and where that value was.

A statement fails as a whole. So it is run again on fewer and fewer of its rows, until it is known
which of them it does not take.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from muntin.errors import BadValueError, harmless
from muntin.kernel.engine import quote, run

Numbers = NDArray[np.int64]
T = TypeVar("T")
ROW = "__row"
_SHOWN = 200  # characters of a value


def apart(
    count: int,
    attempt: Callable[[range], T],
    enough: Callable[[int, int], bool] = lambda refused, start: False,
) -> tuple[list[T], list[tuple[int, BadValueError]]]:
    """What an attempt makes of so many things, as many at once as it takes, in their order.

    And the things that it refuses even one by one, until it is `enough`: so many were refused
    before the thing where the next attempt would start.
    """
    made: list[T] = []
    refused: list[tuple[int, BadValueError]] = []

    def descend(part: range) -> None:
        if not part or enough(len(refused), part.start):
            return
        try:
            made.append(attempt(part))
        except BadValueError as error:
            if len(part) == 1:
                refused.append((part.start, error))
                return
            middle = len(part) // 2
            descend(part[:middle])
            descend(part[middle:])

    descend(range(count))
    return made, refused


def merged_apart(
    rows: pa.Table, by: Sequence[str], merge: Callable[[pa.Table], pa.Table]
) -> pa.Table:
    """Rows merged where they can be. Those that differ in `by` have nothing to do with each other.

    Rows that cannot be merged stay as they are.
    """
    groups = Groups.of(rows, by)
    made, refused = apart(len(groups), lambda part: merge(groups.rows(part)))
    unmerged = [groups.rows(range(number, number + 1)) for number, _ in refused]
    return pa.concat_tables([*made, *unmerged]) if made or unmerged else merge(rows)


@dataclass(frozen=True)
class Groups:
    """Rows of a table in groups, one after another."""

    table: pa.Table
    bounds: Numbers

    @classmethod
    def of(cls, rows: pa.Table, by: Sequence[str]) -> Groups:
        """Those that have the same values, in the order of these."""
        if not by:
            return cls(rows, np.unique([0, rows.num_rows]))
        numbered = rows.select(list(by)).append_column(ROW, pa.array(np.arange(rows.num_rows)))
        names = ", ".join(by)
        sql = f"SELECT {ROW}, dense_rank() OVER (ORDER BY {names}) AS g FROM rows ORDER BY 2, 1"
        ranked = run(sql, {"rows": numbered}, "telling groups apart")
        numbers = ranked["g"].to_numpy()
        begins = np.flatnonzero(np.diff(numbers, prepend=0))  # ranks begin with 1
        return cls(rows.take(ranked[ROW]), np.append(begins, len(numbers)))

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def rows(self, part: range) -> pa.Table:
        start, stop = int(self.bounds[part.start]), int(self.bounds[part.stop])
        return self.table.slice(start, stop - start)


def unquoted(sql: str) -> str:
    """An expression as people write it: plain names need no quotes."""
    return re.sub(r'"(?:__j\d+_)?([A-Za-z_]\w*)"', r"\1", sql)


def values_text(row: pa.Table, labels: Mapping[str, str]) -> str:
    """Some columns of a row, by what they are called there, and their values, for people."""
    if not labels:
        return ""
    columns = ", ".join(f"CAST({quote(name)} AS VARCHAR) AS {quote(name)}" for name in labels)
    texts = run(f"SELECT {columns} FROM records", {"records": row}, "showing a record")
    return ", ".join(
        f"{label} = {_value_text(texts[name][0].as_py(), row.schema.field(name).type)}"
        for name, label in labels.items()
    )


def _value_text(text: str | None, kind: pa.DataType) -> str:
    if text is None:
        return "NULL"
    short = harmless(text if len(text) <= _SHOWN else text[:_SHOWN] + "…")
    return f"'{short}'" if pa.types.is_string(kind) or pa.types.is_large_string(kind) else short
