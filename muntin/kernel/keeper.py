"""The job that keeps the records of a stream, for questions.

A keeper is a job of which nobody has heard. The columns that are kept are its keys, and so is the
time of the record; it counts how many records are alike. So blocks, checkpoints, agents and panes
of the past hold records as they hold anything else, and none of them knows. Its windows leave
without an answer: all they say is when a pane has settled.

Keys have one form for all values that are equal, and records are to come back as they were parsed.
So minus zero, which SQL takes for zero, is told by a mark, and what Arrow or a comparison would
change is kept as its text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from muntin.kernel.canonical import canonical_sql
from muntin.kernel.engine import quote
from muntin.kernel.types import stored
from muntin.model.jobs import KEEPER, Job, Output
from muntin.model.records import POSITION, TIME, Column
from muntin.model.shapes import Cell, Key, Merge, Part, Shape
from muntin.model.streams import Stream, records_of
from muntin.windows.spec import WindowSpec

PANE_US = 60_000_000
"""How exactly scores know the time, and how much later than SLACK allows a record may come."""
_PLAIN = re.compile(
    r"BOOLEAN|U?(TINYINT|SMALLINT|INTEGER|BIGINT)|DECIMAL\(.*\)|VARCHAR|BLOB|DATE"
    r"|TIMESTAMP(_S|_MS|_NS| WITH TIME ZONE)?"
)
_FLOATS = ("DOUBLE", "FLOAT")
_SIGNS = 60  # that one key tells
_WIDE = {"HUGEINT": "VARCHAR", "UHUGEINT": "VARCHAR"}  # decimals hold most of them, and not all


def keeper_of(stream: Stream) -> Job | None:
    """The job that keeps the records of a stream, if they are to be kept."""
    if stream.keep is None:
        return None
    columns = {column.name: column for column in stream.visible_columns()}
    kept = [columns[name] for name in stream.keep.columns]
    floats = [column for column in kept if column.type in _FLOATS]
    keys = [*(_key(column) for column in kept), Key(quote(POSITION), "BIGINT")]
    keys += [
        Key(_signs_sql(floats[at : at + _SIGNS]), "BIGINT") for at in range(0, len(floats), _SIGNS)
    ]
    uses = tuple(sorted(stream.keep.columns))
    shape = Shape(
        stream=stream.name,
        records=records_of(stream, uses),
        keys=tuple(keys),
        parts=(Part((Cell("c0", "count(*)", Merge.SUM, "BIGINT"),)),),
        uses=uses,
        axis=TIME,
        pane=PANE_US,
    )
    windows = (WindowSpec(2 * PANE_US, PANE_US, 0, PANE_US),)
    return Job(
        f"{KEEPER}{stream.name}",
        shape,
        windows,
        (),
        tuple(_outputs(kept, floats)),
        retain_us=stream.keep.us,
        part_of=stream.name,
    )


def _key(column: Column) -> Key:
    name, kind = quote(column.name), column.type
    if _PLAIN.fullmatch(kind) or kind in _FLOATS:
        return Key(canonical_sql(name, kind), kind, column.name)
    return Key(f"CAST(CAST({name} AS {stored(kind, _WIDE)}) AS VARCHAR)", "VARCHAR", column.name)


def _signs_sql(floats: Sequence[Column]) -> str:
    """A number with a bit for each column that is minus zero."""
    bits = (
        f"CASE WHEN {name} = 0 AND signbit({name}) THEN {1 << number} ELSE 0 END"
        for number, name in enumerate(quote(column.name) for column in floats)
    )
    return f"CAST({' + '.join(bits)} AS BIGINT)"


def _outputs(kept: Sequence[Column], floats: Sequence[Column]) -> Iterator[Output]:
    """The columns as they were parsed, made of keys."""
    for number, column in enumerate(kept):
        sql, kind = f"p0.k{number}", column.type
        if kind in _FLOATS:
            key, bit = divmod(floats.index(column), _SIGNS)
            minus = f"{sql} = 0 AND p0.k{len(kept) + 1 + key} & {1 << bit} <> 0"
            sql = f"CASE WHEN {minus} THEN -{sql} ELSE {sql} END"
        elif not _PLAIN.fullmatch(kind):
            sql = f"CAST(CAST({sql} AS {stored(kind, _WIDE)}) AS {kind})"
        yield Output(column.name, sql, kind)
