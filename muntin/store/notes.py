"""Spark's notes on an attached frame, as files of a state: whether they can be read, and fit.

spark/STREAM/metadata     which query it is
spark/STREAM/offsets/N    what is in batch N, before it is handed over
spark/STREAM/commits/N    that batch N was handed over
spark/STREAM/sources/…    what sources of the frame keep for themselves
"""

from __future__ import annotations

import json
import re
import struct
import zlib
from collections.abc import Iterator

from muntin.store.storage import Storage

FOLDER = "spark"
_SUMS = b"crc\x00"  # with which a file of check sums begins


def unreadable(notes: Storage) -> Iterator[tuple[str, str]]:
    """The notes that Spark would refuse, each with the reason."""
    there = notes.sizes("")
    for name in there:
        folder, _, file = name.rpartition("/")
        if file.startswith("."):
            continue
        sums = f"{folder}/.{file}.crc".lstrip("/")
        data = notes.read(name)
        if sums in there and not _fits(data, notes.read(sums)):
            yield name, "it is not what it was when it was written"
        elif (reason := _unreadable(name, data)) is not None:
            yield name, reason


def _unreadable(name: str, data: bytes) -> str | None:
    try:
        lines = data.decode().splitlines()
        if name != "metadata" and not re.fullmatch(r"v\d+", lines[0] if lines else ""):
            return "it does not begin with a version" if lines else "it is empty"
        for line in lines if name == "metadata" else lines[1:]:
            if line and line != "-":  # which stands for a source without a position
                json.loads(line)
    except ValueError as error:
        return str(error)
    return None if lines else "it is empty"


def _fits(data: bytes, sums: bytes) -> bool:
    """Whether these are the check sums of the data, as Hadoop writes them."""
    if sums[:4] != _SUMS or len(sums) < 8:
        return True  # another kind, of which nothing is known
    (size,) = struct.unpack(">i", sums[4:8])
    pieces = (data[at : at + size] for at in range(0, len(data), size))
    return sums[8:] == b"".join(struct.pack(">I", zlib.crc32(piece)) for piece in pieces)


def last(notes: Storage, folder: str) -> int:
    """The largest number that a file has for a name, or -1."""
    return max((int(name) for name in notes.names(folder) if name.isdigit()), default=-1)


def behind(notes: Storage, state: Storage, stream: str, read: int) -> str | None:
    """Why notes cannot go on with a state that has read up to a batch, if that is so."""
    if (noted := last(notes, "offsets")) >= read:
        return None
    there = f"go up to batch {noted:,}" if noted >= 0 else "are gone"
    return (
        f"stream '{stream}': Spark's notes in {_place(state, stream)} {there}, but the state "
        f"has read batch {read:,}, so new records would be taken for old ones; "
        f"{advice(state, stream)}"
    )


def ahead(notes: Storage, state: Storage, stream: str, read: int) -> str | None:
    """What is missing where Spark has handed over more than a state has read, if that is so."""
    if (done := last(notes, "commits")) <= read:
        return None
    since = f"batch {read:,}" if read >= 0 else "none"
    return (
        f"stream '{stream}': Spark has handed over batches up to {done:,}, and the "
        f"state has read {since}; it was lost or is older, and the records between are "
        f"missing; remove {_place(state, stream)} too to read the frame from its start"
    )


def advice(state: Storage, stream: str) -> str:
    return (
        f"put back notes and state of the same time, or remove both {_place(state, stream)} and "
        f"{state.where(f'streams/{stream}')} to read the frame from its start"
    )


def _place(state: Storage, stream: str) -> str:
    return state.where(f"{FOLDER}/{stream}")
