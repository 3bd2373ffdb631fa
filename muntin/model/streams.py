"""Where records come from, and how they are read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from muntin.model.records import SOURCE_COLUMN, Column, Spans


@dataclass(frozen=True)
class Format:
    """How bytes become fields. `pattern` is for regular expressions, the next two for CSV.

    Lines that are blank are records where `blanks` says so.
    """

    kind: Literal["json", "csv", "parquet", "combined", "common", "regex", "text"]
    pattern: str | None = None
    header: bool = True
    delimiter: str = ","
    blanks: bool = False


@dataclass(frozen=True)
class Keep:
    """What of a stream's records is kept for questions: some of its columns, and for how long."""

    columns: tuple[str, ...]
    us: int


_FAR_US = 10_000_000


@dataclass(frozen=True)
class Stream:
    """Named, timestamped records from the files that match the patterns, or from agents.

    `agents` are addresses, or names of files that list them; patterns are those of their servers.
    Records may also be rows of the results of a `job`.

    A stream of `members` is what a job reads that joins several: the records of all of them, each
    with the columns of all, of which it has those of its own. What sources and columns are called
    begins with the name of their member. How records are read is said by the members.
    """

    name: str
    patterns: tuple[str, ...]
    format: Format
    columns: tuple[Column, ...]
    timestamp: str
    slack_us: int | None = None
    on_bad_row: Literal["skip", "fail"] = "skip"
    until: str | None = None  # where a record's span ends; None if it stands for a moment
    spans: Spans | None = None
    sources: tuple[str, ...] = ()  # that are awaited whether or not they have been seen
    inferred: bool = False  # whether the types of columns come from a sample of texts
    source: str | None = None  # of all its files, where their patterns name none
    agents: tuple[str, ...] = ()
    job: str | None = None
    keep: Keep | None = None
    members: tuple[Stream, ...] = ()
    beside: tuple[Column, ...] = ()
    """Of a member: the columns that records have of the other members, which are unknown."""

    @property
    def far_us(self) -> int:
        """How long before where its source stands a file may begin that goes on with its log."""
        return max(self.slack_us or 0, _FAR_US)

    @property
    def is_member(self) -> bool:
        return bool(self.beside)

    @property
    def before(self) -> str:
        """What the names of its sources begin with."""
        return f"{self.name}/" if self.is_member else ""

    def column(self, name: str) -> str:
        """What a column is called in records that jobs see."""
        return f"{self.name}.{name}" if self.is_member else name

    def slack(self, follow: bool) -> int | None:
        """How late records may be; None means that nothing is late."""
        return 0 if follow and self.slack_us is None else self.slack_us

    def of_source(self, source: str) -> Stream:
        """The member that a source is of; if there are none, the stream itself."""
        return next((m for m in self.members if source.startswith(m.before)), self)

    def visible_columns(self) -> tuple[Column, ...]:
        """The record's own columns and, unless one has its name, the source.

        Rows of results are of all sources together.
        """
        told = self.members or self.job is not None
        if told or any(c.name.lower() == SOURCE_COLUMN for c in self.columns):
            return self.columns
        return (*self.columns, Column(SOURCE_COLUMN, "VARCHAR"))


def records_of(stream: Stream, uses: Sequence[str]) -> str:
    """What has to stay the same for a job to go on with the blocks it left."""
    if stream.members:
        own = {m: [c.name for c in m.columns if m.column(c.name) in uses] for m in stream.members}
        return "; ".join(f"{m.name} {records_of(m, names)}" for m, names in own.items())
    types = ", ".join(f"{c.name} {c.type}" for c in stream.columns if c.name in uses)
    return f"{stream.timestamp} to {stream.until}: {types}"
