"""Buffers of rows within a limit of memory: as tables, compressed, or in files.

Where they take more than the limit, the largest shrink first: a table is compressed, and what is
compressed goes to disk. Whoever has put a buffer here gets the same rows back, wherever they are.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from muntin.errors import StateError

_ENOUGH = 7 / 8  # of the limit: shrinking goes on to there, so that it is not done all the time
_WRITE = pa.ipc.IpcWriteOptions(compression="zstd", use_threads=False)
_READ = pa.ipc.IpcReadOptions(use_threads=False)


@dataclass(eq=False)
class Buffer:
    """Some rows, as a table, compressed, or in a file. `size` is what they take as a table."""

    content: pa.Table | bytes | Path = field(repr=False)
    rows: int
    size: int

    @property
    def held(self) -> int:
        """Bytes of memory."""
        if isinstance(self.content, Path):
            return 0
        return self.size if isinstance(self.content, pa.Table) else len(self.content)


class Buffers:
    """All buffers of a process. Files are in a folder of their own, and go with their buffers."""

    def __init__(self, limit: int, folder: Path) -> None:
        """What is left in the folder is of a process that was killed."""
        shutil.rmtree(folder, ignore_errors=True)
        self._limit = limit
        self._folder = folder
        self._buffers: set[Buffer] = set()  # those in memory
        self._files = 0
        self.held = 0  # bytes of memory

    def put(self, table: pa.Table, packed: bool = False) -> Buffer:
        """Keeps a table, compressed if so asked."""
        buffer = Buffer(_packed(table) if packed else table, table.num_rows, table.nbytes)
        self._buffers.add(buffer)
        self.held += buffer.held
        if self.held > self._limit:
            self._shrink()
        return buffer

    def read(self, buffer: Buffer) -> pa.Table:
        content = buffer.content
        if isinstance(content, pa.Table):
            return content
        if isinstance(content, bytes):
            return pa.ipc.open_stream(content, options=_READ).read_all()
        try:
            return pa.ipc.open_stream(content.read_bytes(), options=_READ).read_all()
        except (OSError, pa.ArrowException) as error:
            reason = error.strerror if isinstance(error, OSError) else None
            raise StateError(f"{content} cannot be read again: {reason or error}") from error

    def drop(self, buffers: Iterable[Buffer]) -> None:
        """Lets go of buffers, and of their files."""
        for buffer in buffers:
            self._buffers.discard(buffer)
            self.held -= buffer.held
            if isinstance(buffer.content, Path):
                buffer.content.unlink(missing_ok=True)

    def _shrink(self) -> None:
        """Makes the largest smaller until there is room; each by one step before any by two."""
        enough = self._limit * _ENOUGH
        while self._buffers and self.held > enough:
            for buffer in sorted(self._buffers, key=lambda each: each.held, reverse=True):
                self.held -= buffer.held
                if isinstance(buffer.content, pa.Table):
                    buffer.content = _packed(buffer.content)
                elif isinstance(buffer.content, bytes):
                    buffer.content = self._written(buffer.content)
                    self._buffers.discard(buffer)
                self.held += buffer.held
                if self.held <= enough:
                    return

    def _written(self, data: bytes) -> Path:
        self._files += 1
        path = self._folder / str(self._files)
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        except OSError as error:
            raise StateError(
                f"open panes take more memory than they may, and cannot be written to {path}: "
                f"{error.strerror}"
            ) from error
        return path


def _packed(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=_WRITE) as writer:
        writer.write_table(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data
