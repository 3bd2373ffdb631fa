"""Blocks of pickled values: `k0` is a key's bytes and `c0` the values it has in a pane.

A key whose values take more than its job allows keeps their size instead of them, and so fails
when its window is finished, however its values were spread over blocks.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from muntin.kernel.python.code import loaded
from muntin.kernel.python.faults import attempted, failure, failure_in, is_failure, or_failure
from muntin.kernel.python.keys import decode_key
from muntin.kernel.python.rounds import FailedCallError, Round, rounds_of, shown
from muntin.model.shapes import Code, Shape, Style

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
FORGOTTEN = pickle.dumps(None, 5)  # the state of a key that has none any more

_HINTS: dict[Style, str] = {
    "pairs": "a combiner makes them fewer, shorter windows or a larger max_state may do too",
    "updates": "shorter windows or a larger max_state may do",
    "states": "a shorter `every` or a larger max_state may do",
}

Row = tuple[int, int, int | None, bytes, bytes]  # pane, spec, not_before, key, partial


def block_of(rows: Sequence[Row]) -> pa.Table:
    if not rows:
        return SCHEMA.empty_table()
    panes, specs, marks, keys, partials = (list(column) for column in zip(*rows, strict=True))
    return pa.table([panes, specs, marks, [0] * len(rows), keys, partials], schema=SCHEMA)


def rows_of(block: pa.Table) -> Iterable[Row]:
    columns = (block.column(n).to_pylist() for n in ("pane", "spec", "not_before", "k0", "c0"))
    return zip(*columns, strict=True)


def packed(code: Code, key: Any, values: list[Any]) -> bytes:
    data = pickle.dumps(values, 5)
    if len(data) <= code.max_state:
        return data
    return failure(too_large(code, key, len(data)).costing(len(values)))


def too_large(code: Code, key: Any, size: int) -> FailedCallError:
    reason = f"its values take {size:,} bytes, but max_state is {code.max_state:,}"
    return FailedCallError("state", f"key {shown(key)}", f"{reason}; {_HINTS[code.style]}")


def whole_of(code: Code, round_: Round, key: Any, partials: Sequence[bytes]) -> list[Any]:
    """The values of one window or pane, combined, unless some failed or they are too large."""
    for data in partials:
        if is_failure(data):
            raise failure_in(data)
    size = sum(map(len, partials))
    if size > code.max_state and round_.combiner is None:
        raise too_large(code, key, size)
    values = round_.combine(key, unpacked(partials))
    if size > code.max_state and len(pickle.dumps(values, 5)) > code.max_state:
        raise too_large(code, key, size)
    return values


def unpacked(partials: Sequence[bytes]) -> list[Any]:
    """The values of partials, new ones every time: user code may change what it is given."""
    return [value for data in partials for value in pickle.loads(data)]


def merge_blocks(shape: Shape, blocks: Sequence[pa.Table]) -> pa.Table:
    """One row for every key and pane."""
    assert shape.code is not None
    by_place: dict[tuple[int, int, int | None, bytes], list[bytes]] = {}
    states: dict[bytes, Row] = {}
    for row in rows_of(pa.concat_tables(blocks)):
        pane, spec, mark, key, partial = row
        if spec == STATE_SPEC:
            states[key] = max(row, states.get(key, row), key=lambda r: r[0])
        else:
            by_place.setdefault((pane, spec, mark, key), []).append(partial)
    merges = any(len(partials) > 1 for partials in by_place.values())
    round_ = _known_round(shape.code) if merges else Round()
    rows = [(*place, merge_partials(shape.code, round_, place[3], partials))
            for place, partials in by_place.items()]  # fmt: skip
    return block_of([*rows, *states.values()])


def _known_round(code: Code) -> Round:
    """What cannot be loaded leaves values as they are: it fails again with the whole window."""
    round_ = attempted("combiner", lambda: "blocks", lambda: first_round(code))
    return Round() if isinstance(round_, FailedCallError) else round_


def merge_partials(code: Code, round_: Round, key_bytes: bytes, partials: Sequence[bytes]) -> bytes:
    if len(partials) == 1:
        return partials[0]
    broken = next(filter(is_failure, partials), None)
    if broken is not None:
        return broken

    def merge() -> bytes:
        key, size = decode_key(key_bytes), sum(map(len, partials))
        if round_.combiner is None and size > code.max_state:
            raise too_large(code, key, size)
        return packed(code, key, combined(round_, key, unpacked(partials)))

    return or_failure(attempted("merging values", lambda: _told(key_bytes), merge))


def combined(round_: Round, key: Any, values: list[Any]) -> list[Any]:
    """A combiner that fails leaves values as they are: it fails again with the whole window."""
    try:
        return round_.combine(key, values)
    except FailedCallError:
        return values


def first_round(code: Code) -> Round:
    """The round of a job that is computed on blocks: its first."""
    return Round() if code.style in ("updates", "states") else rounds_of(loaded(code))[0]


def _told(key_bytes: bytes) -> str:
    key = attempted("key", lambda: "its bytes", lambda: decode_key(key_bytes))
    return "a key" if isinstance(key, FailedCallError) else f"key {shown(key)}"
