"""One aggregate over a few records, read in some pieces."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from muntin.language.program import sql
from muntin.run.inline import ignore, windows_inline
from muntin.run.results import Result


def asked(
    folder: Path,
    call: str,
    rows: Sequence[tuple[int, float | None]],
    pieces: int,
    key: str | None = None,
    note: Callable[[str], None] = ignore,
) -> Any:
    """What a job answers that asks for `call` of the columns x and y, or what it does by key."""
    select = (
        f"{key} AS key, {call} AS found FROM s GROUP BY {key}" if key else f"{call} AS found FROM s"
    )
    results = _results(folder, select, rows, pieces, note)
    found = [row for result in results for row in result.rows.to_pylist()]
    if key is not None:
        return {row["key"]: row["found"] for row in found}
    (row,) = found
    return row["found"]


def by_window(
    folder: Path, call: str, rows: Sequence[tuple[int, float | None]], length: int, every: int
) -> dict[int, Any]:
    """By the second at which a window begins, what a job answers that asks for `call`."""
    select = f"{call} AS found FROM s WINDOW {length} SECONDS EVERY {every} SECONDS"
    results = _results(folder, select, rows, 1)
    return {r.start // 1_000_000: r.rows["found"][0].as_py() for r in results}


def _results(
    folder: Path,
    select: str,
    rows: Sequence[tuple[int, float | None]],
    pieces: int,
    note: Callable[[str], None] = ignore,
) -> list[Result]:
    lines = [json.dumps({"t": i, "x": x, "y": y}) + "\n" for i, (x, y) in enumerate(rows)]
    (folder / "a.log").write_text("".join(lines))
    window = "" if "WINDOW" in select else " WINDOW 1 DAY"
    program = sql(
        f"CREATE STREAM s (t BIGINT, x BIGINT, y DOUBLE) FROM '{folder}/a.log' FORMAT json "
        f"TIMESTAMP t; CREATE JOB j AS SELECT {select}{window}"
    )
    size = max(1, sum(map(len, lines)) // pieces)
    left = windows_inline(program, note, batch_bytes=size, piece_bytes=size)
    return [result for windows in left for result in windows.results()]
