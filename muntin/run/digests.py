"""What tells the rows of a window from others, whoever has them, and in however many pieces.

Each row is hashed with its place in the window, and hashes are added up: so the digest of a window
is that of its rows in their order, and pieces of it may be looked at apart from each other. Hashes
are the same everywhere, as digests are part of the state.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from muntin.kernel.engine import quote, run
from muntin.kernel.sketches import stable_hash_sql
from muntin.kernel.statements import WINDOW, WINDOW_END
from muntin.run.results import Kind, runs_of

_PLACE = "__place"


def digests_of(rows: pa.Table) -> dict[Kind, str]:
    """What tells the rows of each window that has any from others; they are in order."""
    return {kind: digest(sum_) for kind, sum_ in sums_of(rows).items()}


def digest(sum_: int) -> str:
    """What is kept of the rows of a window whose hashes come to this sum."""
    return f"{sum_ % (1 << 64):016x}"


def sums_of(rows: pa.Table, before: Mapping[Kind, int] | None = None) -> dict[Kind, int]:
    """By window, the sum of the hashes of ordered rows; `before` them are so many of a window.

    Sums of pieces add up to the sum of the whole, modulo 2^64.
    """
    which, ends = rows[WINDOW].to_numpy(), rows[WINDOW_END].to_numpy()
    places, known = np.arange(rows.num_rows), before or {}
    runs: dict[Kind, slice] = {}
    for start, stop in runs_of(which, ends):
        kind = int(which[start]), int(ends[start])
        runs[kind] = slice(start, stop)
        places[start:stop] += known.get(kind, 0) - start
    hashes = _hashes(rows.append_column(_PLACE, pa.array(places)))
    return {kind: int(hashes[run].sum(dtype=np.uint64)) for kind, run in runs.items()}


def _hashes(rows: pa.Table) -> NDArray[np.uint64]:
    columns = [name for name in rows.column_names if name not in (WINDOW, WINDOW_END, _PLACE)]
    row = ", ".join(f"x{number}: {quote(name)}" for number, name in enumerate(columns))
    sql = f"SELECT {stable_hash_sql(f'{{{row}}}::VARCHAR || {_PLACE}')} AS hash FROM rows"
    hashes: NDArray[np.uint64] = run(sql, {"rows": rows}, "comparing rows")["hash"].to_numpy()
    return hashes
