"""A tail, and what is read through it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from muntin.logs.chunks import LINE, read_chunks
from muntin.logs.tail import Batch, FilePosition, Lane, Tail
from muntin.model import Column, Format, Stream

NOW = 2_000_000_000.0  # long after any file of a test was written


def stream(
    *patterns: Path | str,
    kind: Literal["text", "parquet"] = "text",
    on_bad_row: Literal["skip", "fail"] = "skip",
) -> Stream:
    columns = (Column(LINE, "VARCHAR"),)
    return Stream("logs", tuple(map(str, patterns)), Format(kind), columns, "x", None, on_bad_row)


def lines_of(lanes: Iterable[Lane]) -> list[str]:
    return [
        line
        for lane in lanes
        for order in lane
        for chunk in read_chunks(order, Format("text"), [])
        for line in chunk.fields[LINE].to_pylist()
    ]


class Reader:
    """A tail, and what was read from it so far."""

    def __init__(self, logs: Stream, follow: bool = True, batch_bytes: int = 1 << 20) -> None:
        self.logs, self.follow, self.batch_bytes = logs, follow, batch_bytes
        self.positions: tuple[FilePosition, ...] = ()
        self.notes: list[str] = []
        self.restart()

    def restart(self) -> None:
        self.tail = Tail(self.logs, self.follow, self.positions, self.batch_bytes)

    def batch(self) -> Batch:
        batch = self.tail.next_batch(NOW, in_order=True)
        self.positions = batch.positions
        self.notes += batch.notes
        return batch

    def read(self) -> list[str]:
        return lines_of(self.batch().lanes)

    def read_all(self) -> list[str]:
        found = []
        while True:
            batch = self.batch()
            found += lines_of(batch.lanes)
            if not batch.remaining:
                return found


def append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)
