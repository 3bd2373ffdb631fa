"""Blocks as bytes: Arrow IPC, compressed, behind a header that is checked before use.

The header is a magic word, the format's version, and the length and CRC-32 of the payload, so
that a damaged or foreign block is refused by name and never read as numbers. A block holds
the partials of one job for one key group; its panes are a column, not separate blocks, so
that one statement merges them all.
"""

from __future__ import annotations

import struct
import zlib

import pyarrow as pa
import pyarrow.compute as pc

from muntin.errors import BlockError

VERSION = 1
_MAGIC = b"MNTN"
_HEADER = struct.Struct("<4sHQI")
# One thread, as everywhere: tasks are the unit of parallelism, and there is one a core.
_WRITE = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
_READ = pa.ipc.IpcReadOptions(use_threads=False)


def encode(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=_WRITE) as writer:
        writer.write_table(table)
    payload: bytes = sink.getvalue().to_pybytes()
    return _HEADER.pack(_MAGIC, VERSION, len(payload), zlib.crc32(payload)) + payload


def decode(data: bytes, name: str) -> pa.Table:
    """The table of a block; `name` says which one it is if it cannot be read."""
    if len(data) < _HEADER.size:
        raise BlockError(f"{name}: {len(data)} bytes are too few for a block")
    magic, version, length, checksum = _HEADER.unpack_from(data)
    if magic != _MAGIC:
        raise BlockError(f"{name}: these bytes are not a block")
    if version != VERSION:
        raise BlockError(f"{name}: block version {version}, but this Muntin reads {VERSION}")
    payload = memoryview(data)[_HEADER.size :]
    if len(payload) != length or zlib.crc32(payload) != checksum:
        raise BlockError(f"{name}: the block is damaged ({len(payload)} of {length} bytes)")
    try:
        return pa.ipc.open_stream(payload, options=_READ).read_all()
    except (pa.ArrowException, OSError) as error:  # Arrow has no class of its own for I/O
        raise BlockError(f"{name}: {error}") from error


def rows_where(table: pa.Table, mask: pa.ChunkedArray) -> pa.Table:
    """The rows for which the mask is true; no copy is made where that is all of them."""
    return table if pc.all(mask, skip_nulls=False).as_py() else table.filter(mask)
