"""Rows as records of a tape: Arrow's bytes, of which nothing is decoded before their checksum fits.

Arrow itself keeps no checksums. A bit that has changed would be another number, or have it read
beyond its memory.
"""

from __future__ import annotations

import pyarrow as pa

from muntin.errors import StateError
from muntin.store import tape
from muntin.store.storage import storage_of

SUFFIX = ".tape"  # of files that have checksums; others are Arrow's own, as earlier versions wrote
_OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)


def packed(rows: pa.Table) -> bytes:
    """The record with some rows, as a file has it."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=_OPTIONS) as writer:
        writer.write_table(rows)
    return tape.framed([sink.getvalue().to_pybytes()])


def unpacked(data: bytes) -> pa.Table:
    """The rows of such a record; a ValueError if it is not whole."""
    rows: pa.Table = pa.ipc.open_stream(tape.whole(data)).read_all()
    return rows


def read_file(place: str) -> pa.Table:
    """The rows of a file that has nothing else, at a path or URL; a StateError if it is damaged."""
    folder, _, name = place.rpartition("/")
    storage = storage_of(folder)
    try:
        if name.endswith(SUFFIX):
            return unpacked(storage.read(name))
        with storage.open(name) as file:
            rows = pa.ipc.open_file(file).read_all()
            rows.validate(full=True)
            return rows
    except (pa.ArrowException, OSError, ValueError) as error:
        raise StateError(f"{storage.where(name)} is damaged: {error}") from error
