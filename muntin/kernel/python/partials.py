"""Blocks of pickled values: `k0` is a key's bytes and `c0` the values it has in a pane.

A key whose values take more than its job allows keeps their size instead of them, and so fails
when its window is finished, however its values were spread over blocks.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from muntin.kernel.python.code import job_of
from muntin.kernel.python.keys import decode_key
from muntin.kernel.python.steps import FailedCallError, Step, shown, steps_of
from muntin.model import Code, Shape

SCHEMA = pa.schema(
    [
        ("pane", pa.int64()),
        ("spec", pa.int32()),
        ("not_before", pa.int64()),
        ("part", pa.int8()),
        ("k0", pa.binary()),
        ("c0", pa.binary()),
    ]
)
STATE_SPEC = -1  # rows that hold a state, of which the newest counts
_TOO_LARGE = b"!"

Row = tuple[int, int, int | None, bytes, bytes]  # pane, spec, not_before, key, partial


def block_of(rows: Sequence[Row]) -> pa.Table:
    if not rows:
        return SCHEMA.empty_table()
    panes, specs, marks, keys, partials = (list(column) for column in zip(*rows, strict=True))
    return pa.table([panes, specs, marks, [0] * len(rows), keys, partials], schema=SCHEMA)


def rows_of(block: pa.Table) -> Iterable[Row]:
    columns = (block.column(n).to_pylist() for n in ("pane", "spec", "not_before", "k0", "c0"))
    return zip(*columns, strict=True)


def packed(code: Code, values: list[Any]) -> bytes:
    data = pickle.dumps(values, 5)
    return data if len(data) <= code.max_state else _too_large(len(data))


def check_size(code: Code, key: Any, partials: Sequence[bytes]) -> None:
    """Refuses partials that are too large, or too large together."""
    size = sum(map(_size, partials))
    if size > code.max_state or any(data.startswith(_TOO_LARGE) for data in partials):
        reason = f"its values take {size:,} bytes, but max_state is {code.max_state:,}"
        hint = "a combiner makes them fewer, shorter windows or a larger max_state may do too"
        raise FailedCallError("state", f"key {shown(key)}", f"{reason}; {hint}")


def unpacked(partials: Sequence[bytes]) -> list[Any]:
    """The values of partials, new ones every time: user code may change what it is given."""
    return [value for data in partials for value in pickle.loads(data)]


def merge_blocks(shape: Shape, blocks: Sequence[pa.Table]) -> pa.Table:
    """One row for every key and pane."""
    assert shape.code is not None
    found: dict[tuple[int, int, int | None, bytes], list[bytes]] = {}
    states: dict[bytes, Row] = {}
    for row in rows_of(pa.concat_tables(blocks)):
        pane, spec, mark, key, partial = row
        if spec == STATE_SPEC:
            states[key] = max(row, states.get(key, row), key=lambda r: r[0])
        else:
            found.setdefault((pane, spec, mark, key), []).append(partial)
    step = step_of(shape.code)
    rows = [(*place, merge_partials(shape.code, step, place[3], partials))
            for place, partials in found.items()]  # fmt: skip
    return block_of([*rows, *states.values()])


def merge_partials(code: Code, step: Step, key_bytes: bytes, partials: Sequence[bytes]) -> bytes:
    if len(partials) == 1:
        return partials[0]
    if step.combiner is None and sum(map(_size, partials)) > code.max_state:
        return _too_large(sum(map(_size, partials)))
    if any(data.startswith(_TOO_LARGE) for data in partials):
        return _too_large(sum(map(_size, partials)))
    return packed(code, combined(step, decode_key(key_bytes), unpacked(partials)))


def combined(step: Step, key: Any, values: list[Any]) -> list[Any]:
    """A combiner that fails leaves values as they are: it fails again with the whole window."""
    try:
        return step.combine(key, values)
    except FailedCallError:
        return values


def step_of(code: Code) -> Step:
    """The round of a job that is computed on blocks: its first."""
    return Step() if code.style in ("updates", "states") else steps_of(job_of(code))[0]


def _size(data: bytes) -> int:
    return int(data[1:]) if data.startswith(_TOO_LARGE) else len(data)


def _too_large(size: int) -> bytes:
    return _TOO_LARGE + str(size).encode()
