"""Sessions: windows that follow each key's own activity, from its first record to its last.

A session goes on while the key's records follow each other in less than the gap, and ends the
gap after its last one. Its partials are rows like those of panes, but `pane` and `last_at` are the
positions of the first and last record they stand for; partials of one key less than the gap
apart belong to one session, whatever pieces of log, batches or sources they are from.

A record is late for sessions if it is behind its source's mark: then no session that has left
could have had more.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import pyarrow as pa
import pyarrow.compute as pc

from muntin.kernel.engine import quote, run
from muntin.kernel.statements import (
    bounds_sql,
    cell_columns,
    count_cell,
    finish_sql,
    key_names,
    merged_cells,
    row_names,
    sub_key_columns,
)
from muntin.model import MARK, Job, Shape


@cache
def compute_sessions_sql(shape: Shape, marked: bool) -> str:
    """Records to partial sessions."""
    at = quote(shape.axis.column)
    keys = [f"CAST({key.sql} AS {key.type}) AS k{i}" for i, key in enumerate(shape.keys)]
    late = f"{MARK} IS NULL OR {at} >= {MARK}" if marked else None
    wanted = [c for c in (shape.where, *bounds_sql(shape), late) if c]
    where = f" WHERE {' AND '.join(f'({c})' for c in wanted)}" if wanted else ""
    records = f"SELECT {', '.join(['*', *keys])} FROM records{where}"
    numbered = _numbered_sql(shape, f"({records})", at, at)
    selects = [_part_sql(shape, index, at) for index in range(len(shape.parts))]
    return f"WITH sessions AS MATERIALIZED ({numbered})\n" + "\nUNION ALL\n".join(selects)


def _part_sql(shape: Shape, index: int, at: str) -> str:
    part = shape.parts[index]
    columns = [
        f"min({at}) AS pane",
        f"max({at}) AS last_at",
        f"CAST({index} AS TINYINT) AS part",
        *key_names(shape),
        *sub_key_columns(shape, index),
        *cell_columns(shape, index),
    ]
    where = f" WHERE {part.where}" if part.where else ""
    subs = [] if part.sub_key is None else [f"s{index}"]
    by = ", ".join(["__session", *key_names(shape), *subs])
    return f"SELECT {', '.join(columns)}\nFROM sessions{where}\nGROUP BY {by}"


def _numbered_sql(shape: Shape, rows: str, first: str, last: str) -> str:
    """The rows with the number of their session among those of their key."""
    by = ", ".join(key_names(shape))
    partition = f"PARTITION BY {by} " if by else ""
    over = f"({partition}ORDER BY {first}, {last} ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)"
    fresh = f"CASE WHEN {first} - max({last}) OVER {over} < {shape.gap} THEN 0 ELSE 1 END"
    # Rows that tie get one number: nothing says in which order they come here.
    numbers = f"({partition}ORDER BY {first}, {last} RANGE UNBOUNDED PRECEDING)"
    return (
        f"SELECT *, sum(__fresh) OVER {numbers} AS __session\n"
        f"FROM (SELECT *, {fresh} AS __fresh FROM {rows})"
    )


@cache
def merge_sessions_sql(shape: Shape) -> str:
    """Partial sessions to fewer, longer ones."""
    partition = ", ".join(["__session", *key_names(shape)])
    numbered = _numbered_sql(shape, "blocks", "pane", "last_at")
    bounded = (
        f"SELECT * REPLACE (min(pane) OVER (PARTITION BY {partition}) AS pane, "
        f"max(last_at) OVER (PARTITION BY {partition}) AS last_at) FROM ({numbered})"
    )
    names = ", ".join(["pane", "last_at", *row_names(shape)])
    return f"SELECT {names}, {merged_cells(shape)}\nFROM ({bounded})\nGROUP BY {names}"


def finish_sessions(
    shape: Shape, jobs: Mapping[str, Job], blocks: pa.Table, over: Mapping[str, tuple[int, int]]
) -> dict[str, pa.Table]:
    """Rows of the sessions of one key group that end in `(after, upto]`, by job."""
    merged = run(merge_sessions_sql(shape), {"blocks": blocks}, f"sessions of {shape.stream}")
    found = {}
    gap = shape.gap or 0
    for name, (after, upto) in over.items():
        job = jobs[name]
        if job.shape == shape:
            last = merged["last_at"]
            ended = merged.filter(
                pc.and_(pc.greater(last, after - gap), pc.less_equal(last, upto - gap))
            )
            found[name] = run(
                finish_sessions_sql(job), {"blocks": ended}, f"finishing sessions of job {name}"
            )
    return found


def finish_sessions_sql(job: Job) -> str:
    """Ended sessions to rows: `w` is where they end, beside their start and records."""
    shape = job.shape
    records = count_cell(shape.parts[0]).name
    rows = (
        f"SELECT *, last_at + {shape.gap} AS w, pane AS started, {records} AS records FROM blocks"
    )
    sql = finish_sql(job, rows, carried=("started", "records"))
    return f"SELECT *, CAST(0 AS INTEGER) AS win FROM ({sql})"


def next_ends(
    shape: Shape, jobs: Mapping[str, Job], block: pa.Table, over: Mapping[str, tuple[int, int]]
) -> dict[str, int]:
    """No session of a job that is still open ends before this; jobs without any are left out."""
    gap, found = shape.gap or 0, {}
    for name, (_, upto) in over.items():
        if jobs[name].shape == shape:
            last = block["last_at"].filter(pc.greater(block["last_at"], upto - gap))
            if len(last):
                found[name] = pc.min(last).as_py() + gap
    return found


def open_sessions(shape: Shape, block: pa.Table, over: int | None) -> pa.Table:
    """The block less the sessions that were over before a position."""
    if over is None:
        return block
    return block.filter(pc.greater(block["last_at"], over - (shape.gap or 0)))
