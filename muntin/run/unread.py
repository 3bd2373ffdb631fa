"""Rows that could not be read: which of them are told of, and when nothing at all could be read.

A bad row of each source is told of with every batch. Where all rows of a source are bad, that is
told instead, at some numbers of rows, until there is a good one. Finite input of which no row is
good is an error.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from muntin.errors import InputError
from muntin.kernel.reading import Reading
from muntin.model import Stream
from muntin.run.progress import Progress

_MANY = 10  # rows, and a hundred times as many, and so on


class Unread:
    """The bad rows of one stream, in this run."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._bad: dict[str, int] = {}  # by source, those since its last good row
        self._first = ""  # what was told of the first bad row

    def told(self, readings: Sequence[Reading], follow: bool) -> Iterator[str]:
        """What there is to say of rows that were read."""
        for reading in readings:
            before = self._bad.get(reading.source, 0)
            self._bad[reading.source] = now = 0 if reading.records else before + reading.bad
            self._first = self._first or next(iter(reading.notes), "")
            if not follow or now < _MANY:
                yield from reading.notes
            elif _level(now) > _level(before):
                rows = f"the last {now:,} rows of source '{reading.source}' were all bad"
                yield f"stream '{self._stream.name}': {rows}; {_what_to_do(self._stream)}"
                yield from reading.notes[:1]

    def refusal(self, progress: Progress) -> InputError | None:
        """The error of finite input that has no good row."""
        if progress.records or not progress.bad:
            return None
        rows = "the only row is" if progress.bad == 1 else f"all {progress.bad:,} rows are"
        message = f"stream '{self._stream.name}': {rows} bad; {_what_to_do(self._stream)}"
        return InputError(f"{message}; the first: {self._first}" if self._first else message)

    def is_told(self, note: str) -> bool:
        """Whether the refusal says what a note does."""
        return note == self._first

    def sources(self) -> Iterator[str]:
        """Tells at the end of finite input of sources of which no row was good."""
        ...


def _level(rows: int) -> int:
    """How often a number of rows is worth a word."""
    level = 0
    while rows >= _MANY:
        rows, level = rows // 100, level + 1
    return level


def _what_to_do(stream: Stream) -> str:
    kind = stream.format.kind
    return (
        f"FORMAT {kind}, the types of columns and TIMESTAMP in CREATE STREAM {stream.name} have "
        f"to fit them"
    )
