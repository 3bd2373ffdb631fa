"""What a partition of a step holds: an Arrow table, as bytes that say whose they are.

A step of pairs is a table too, with the key and the pickled value of each pair.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from muntin.collections.keys import Partitioner, Selection, as_keys

KEY, VALUE = "key", "value"  # columns of pairs
_HEADER = struct.Struct("<qII")  # the start of the step, the partition, and how many rows


class Part(NamedTuple):
    """The rows of one partition of one step."""

    step: int
    partition: int
    rows: pa.Table


class Size(NamedTuple):
    """What a partition takes."""

    rows: int
    bytes: int


def packed(part: Part) -> bytes:
    sink = pa.BufferOutputStream()
    sink.write(_HEADER.pack(part.step, part.partition, part.rows.num_rows))
    sink.write(to_ipc(part.rows))
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def unpacked(data: bytes) -> Part:
    """Its columns lie in `data`, which is not copied."""
    step, partition, _ = _HEADER.unpack_from(data)
    return Part(step, partition, from_ipc(pa.py_buffer(data).slice(_HEADER.size)))


def to_ipc(table: pa.Table) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def from_ipc(data: Any) -> pa.Table:
    with pa.ipc.open_stream(data) as reader:
        return reader.read_all()


def of_pairs(pairs: Iterable[tuple[Any, Any]], type_: pa.DataType | None, whose: str) -> pa.Table:
    """Keys with pickled values; InputError where keys do not fit."""
    listed = list(pairs)
    keys = as_keys((key for key, _ in listed), type_, whose)
    values = pa.array([pickle.dumps(value, -1) for _, value in listed], pa.binary())
    return pa.table({KEY: keys, VALUE: values})


def cut(table: pa.Table, keys: Any, partitioner: Partitioner) -> Iterator[tuple[int, pa.Table]]:
    """The rows of each partition in which there are some, in their order, by a column of keys."""
    if not table.num_rows:
        return
    partitions = partitioner.of(keys)
    order = np.argsort(partitions, kind="stable")
    found, starts = np.unique(partitions[order], return_index=True)
    moved = table.take(pa.array(order))
    for partition, lower, upper in zip(
        found.tolist(), starts.tolist(), [*starts.tolist()[1:], len(order)], strict=True
    ):
        yield partition, moved.slice(lower, upper - lower)


def joined(tables: Sequence[pa.Table]) -> pa.Table:
    """All rows, in one piece a column."""
    return pa.concat_tables(tables).combine_chunks()


def size_of(pack: bytes) -> tuple[int, Size]:
    """The partition of a pack, and what it takes."""
    _, partition, rows = _HEADER.unpack_from(pack)
    return partition, Size(rows, len(pack))


def chosen(pack: bytes, key: str, selection: Selection) -> Part:
    """The rows of a pack that are asked for."""
    part = unpacked(pack)
    mask = selection.mask(part.rows.column(key))
    return part if mask is None else part._replace(rows=part.rows.filter(mask))


def by_step(packs: Iterable[bytes], key: str, selection: Selection) -> dict[int, pa.Table]:
    """The rows that are asked for, by step, of steps that have a pack here."""
    found: dict[int, list[pa.Table]] = {}
    for pack in packs:
        part = chosen(pack, key, selection)
        found.setdefault(part.step, []).append(part.rows)
    return {step: pa.concat_tables(tables) for step, tables in sorted(found.items())}


def cogrouped(
    tables: Mapping[int, pa.Table], steps: Sequence[int], key: str, is_pairs: bool
) -> Iterator[tuple[Any, tuple[list[Any], ...]]]:
    """Each key with the rows of each step, as dictionaries; or its values, of pairs."""
    found: dict[Any, tuple[list[Any], ...]] = {}
    for at, step in enumerate(steps):
        if step not in tables:
            continue
        table = tables[step]
        if is_pairs:
            rows = [pickle.loads(value) for value in table.column(VALUE).to_pylist()]
        else:
            rows = table.to_pylist()
        for name, row in zip(table.column(key).to_pylist(), rows, strict=True):
            if name not in found:
                found[name] = tuple([] for _ in steps)
            found[name][at].append(row)
    yield from found.items()
