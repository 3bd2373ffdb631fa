"""Rows that could not be read: which of them are told of, and when nothing at all could be read.

A bad row of each source is told of with every batch. Where all rows of a source are bad, that is
told instead, at some numbers of rows, until there is a good one. Finite input of which no row is
good is an error. A column that is declared, and that no record has, is told of once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set

from muntin.errors import InputError
from muntin.kernel.reading import Reading
from muntin.language.messages import nearest
from muntin.logs.infer import names_in_files
from muntin.model.streams import Stream
from muntin.run.progress import Progress

_MANY = 10  # rows, and a hundred times as many, and so on
_ENOUGH = 10_000  # records, of which none has a column


class Unread:
    """The bad rows of one stream in this run, and the columns that no record has."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._bad: dict[str, int] = {}  # by source, those since its last good row
        self._good: set[str] = set()  # sources
        self._first = ""  # what was told of the first bad row
        self._records = 0
        self._columns: set[str] = set()  # of which there was a value
        self._looked = False

    def told(self, readings: Sequence[Reading], follow: bool) -> Iterator[str]:
        """What there is to say of rows that were read."""
        for reading in readings:
            before = self._bad.get(reading.source, 0)
            self._bad[reading.source] = now = 0 if reading.records else before + reading.bad
            self._records += reading.records
            self._columns |= reading.columns
            if reading.records:
                self._good.add(reading.source)
            self._first = self._first or next(iter(reading.notes), "")
            if not follow or now < _MANY:
                yield from reading.notes
            elif _level(now) > _level(before):
                rows = f"the last {now:,} rows of source '{reading.source}' were all bad"
                stream = self._stream.of_source(reading.source)
                yield f"stream '{stream.name}': {rows}; {_what_to_do(stream)}"
                yield from reading.notes[:1]

    def refusal(self, progress: Progress) -> InputError | None:
        """The error of finite input that has no good row."""
        if progress.records or not progress.bad:
            return None
        rows = "the only row is" if progress.bad == 1 else f"all {progress.bad:,} rows are"
        stream = self._stream.of_source(next(iter(self._bad), ""))
        message = f"stream '{stream.name}': {rows} bad; {_what_to_do(stream)}"
        return InputError(f"{message}; the first: {self._first}" if self._first else message)

    def at_end(self) -> Iterator[str]:
        """What there is to say of finite input: sources without a good row."""
        for source in sorted(self._bad.keys() - self._good):
            if rows := self._bad[source]:
                bad = "the only row" if rows == 1 else f"all {rows:,} rows"
                stream = self._stream.of_source(source)
                yield f"stream '{stream.name}': {bad} of source '{source}' were bad"

    def columns(self, used: Set[str], final: bool) -> Iterator[str]:
        """Tells once of columns that are declared and used, and that no record has."""
        if self._looked or not (final or self._records >= _ENOUGH):
            return
        self._looked = True
        for stream in self._stream.members or (self._stream,):
            unseen = used - self._columns
            missing = [c.name for c in stream.columns if stream.column(c.name) in unseen]
            if not missing or not self._has_records(stream) or stream.inferred:
                continue
            known = names_in_files(stream)
            for name in missing:
                if name not in known:
                    hint = nearest(name, known, "look at its name")
                    yield f"stream '{stream.name}': no record has column '{name}'; {hint}"

    def _has_records(self, stream: Stream) -> bool:
        return any(self._stream.of_source(name).name == stream.name for name in self._good)


def _what_to_do(stream: Stream) -> str:
    return (
        f"FORMAT {stream.format.kind}, the types of columns and TIMESTAMP in "
        f"CREATE STREAM {stream.name} have to fit them"
    )


def _level(rows: int) -> int:
    """How often a number of rows is worth a word."""
    level = 0
    while rows >= _MANY:
        rows, level = rows // 100, level + 1
    return level
