"""The values everything else speaks in. No behaviour beyond what their fields imply.

SQL inside these values is DuckDB's, already checked against the stream's columns, so that a
value can be sent to any process and mean the same there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from hashlib import sha256
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from muntin.windows.spec import WindowSpec

SOURCE_COLUMN = "source"  # every stream has it unless its records bring their own
POSITION = "__position"  # microseconds since the epoch, UTC; null in a bad row
UNTIL = "__until"  # where the span of a record ends, if it stands for one
SHARE = "__share"  # how much of the span lies in a pane
COPY = "__copy"  # which of a job's cores a record is counted for, where there are several
SET = "__set"  # which of a job's sets of keys a row is grouped by, where there are several
ORIGIN = "__origin"  # the source of a record, where a job tells sources apart
SIZE = "__size"  # a record's bytes, where a job counts them
MARK = "__mark"  # stream time less slack when the record was read
MAX_ERRORS = 100  # of a job in SQL, unless it says otherwise
NOWHERE = -(1 << 63)  # in arrays of positions and marks, which have no nulls


class Merge(StrEnum):
    """How two values of one cell become one."""

    SUM = "sum"
    MIN = "min"
    MAX = "max"
    FOLD = "fold"  # by an expression of its own
    STATE = "state"  # by the user's Python


Spans = Literal["touch", "split"]  # what panes get of a record that stands for a span of time


@dataclass(frozen=True)
class Column:
    name: str
    type: str


@dataclass(frozen=True)
class Format:
    """How bytes become fields. `pattern` is for regular expressions, the rest for CSV."""

    kind: Literal["json", "csv", "parquet", "combined", "common", "regex", "text"]
    pattern: str | None = None
    header: bool = True
    delimiter: str = ","


@dataclass(frozen=True)
class Stream:
    """Named, timestamped records from the files that match the patterns, or from agents.

    `agents` are addresses, or names of files that list them; patterns are those of their servers.
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

    def visible_columns(self) -> tuple[Column, ...]:
        """The record's own columns and, unless one has its name, the source."""
        if any(c.name.lower() == SOURCE_COLUMN for c in self.columns):
            return self.columns
        return (*self.columns, Column(SOURCE_COLUMN, "VARCHAR"))


@dataclass(frozen=True)
class Table:
    """Named rows of a file that records, or rows of windows, are joined with."""

    name: str
    path: str
    kind: str  # csv, parquet, json or delta
    columns: tuple[Column, ...] = ()


@dataclass(frozen=True)
class Join:
    """A table that records are joined with; its columns are `__j` and its number, and their name.

    `left` says whether records without a row of it count too.
    """

    table: Table
    number: int
    on: str
    left: bool = False

    @property
    def relation(self) -> str:
        return f"__table{self.number}"

    def column(self, name: str) -> str:
        """What a column of the table is called beside those of records."""
        return f"__j{self.number}_{name}"

    @property
    def columns(self) -> dict[str, str]:
        """What records have of it, with types."""
        return {self.column(column.name): column.type for column in self.table.columns}


@dataclass(frozen=True)
class Unnest:
    """A list of each record, whose elements the record is beside, each by itself."""

    sql: str
    number: int
    type: str

    @property
    def column(self) -> str:
        return f"__u{self.number}"

    @property
    def columns(self) -> dict[str, str]:
        return {self.column: self.type}


@dataclass(frozen=True)
class Cell:
    """One column of a partial: how it is computed, and how two of it merge."""

    name: str
    sql: str
    merge: Merge
    type: str
    code: Code | None = None
    given: str = ""  # of a state: the type of what is added to it
    fold: str = field(default="", compare=False, repr=False)
    """The expression that merges it, if that is not its rule: `{c}` stands for the cell, and
    `{over}` follows the aggregate in it."""


@dataclass(frozen=True)
class Part:
    """The rows of a block that share a sub-key. Part 0 has none: one row per key.

    `ranked` parts are finished with each row's running count, for quantiles.
    """

    cells: tuple[Cell, ...]
    sub_key: str | None = None
    sub_type: str | None = None
    where: str | None = None
    ranked: bool = False


@dataclass(frozen=True)
class Key:
    sql: str
    type: str


@dataclass(frozen=True)
class Finish:
    """An aggregate's final value from the cells of one part."""

    name: str
    part: int
    sql: str
    zero: bool = False  # where no record reached the part, rather than unknown

    @property
    def column(self) -> str:
        """How outputs refer to it."""
        column = f"p{self.part}.{self.name}"
        return f"coalesce({column}, 0)" if self.part and self.zero else column


@dataclass(frozen=True)
class Output:
    name: str
    sql: str
    type: str


@dataclass(frozen=True)
class Order:
    sql: str
    direction: str  # for example "DESC NULLS LAST"


@dataclass(frozen=True)
class Axis:
    """What windows are measured on: time, or a count that every source keeps for itself."""

    kind: Literal["time", "records", "bytes", "sequence"] = "time"
    sql: str | None = None  # of a sequence: the user's expression

    @property
    def column(self) -> str:
        """The column of records that holds their positions."""
        if self.kind == "time":
            return POSITION
        told = sha256((self.sql or "").encode()).hexdigest()[:8] if self.sql else ""
        return f"__{self.kind}{told}"

    @property
    def is_time(self) -> bool:
        return self.kind == "time"


TIME = Axis()
RECORDS = Axis("records")


Style = Literal["pairs", "cells", "updates", "states"]


@dataclass(frozen=True)
class Code:
    """The Python a job is written in: where it is found, and what to send where it is not.

    pairs    mapper, combiner, reducer: blocks hold the values of each key
    cells    map_batches with `combine`: blocks hold a cell of each key, as those of SQL do
    updates  map, init, update, finalize over a window's values in time order
    states   the same without windows: blocks hold the values of each key, then its state

    Two are the same if they are called the same and have the same text.
    """

    job: str
    reference: str  # module:name
    style: Style
    version: str  # tells texts apart
    takes: tuple[str, ...] = ()  # the columns it is given
    lines: bool = False  # whether it is given the line alone
    where: str | None = None
    max_errors: int = field(default=0, compare=False, repr=False)
    max_state: int = field(default=1 << 24, compare=False, repr=False)  # bytes of a key
    max_keys: int = field(default=1_000_000, compare=False, repr=False)  # that live on
    named: bool = field(default=False, compare=False, repr=False)  # it names its columns
    finalizes: bool = field(default=False, compare=False, repr=False)  # at the end
    chained: bool = field(default=False, compare=False, repr=False)  # it has more than one round
    removable: bool = field(default=False, compare=False, repr=False)  # panes can be taken out
    returns: str = field(default="", compare=False, repr=False)  # of an aggregate: its type
    folder: str | None = field(default=None, compare=False, repr=False)
    payload: bytes | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class Fault:
    """An error of a job: the method or expression, what it was given, and what it said.

    It counts for every window that ends after its position. One that `stops` the job does so
    however many are allowed. So many `records` of a source were left out because of it; windows
    that end at or before the position `not_before` would have left them out anyway, as late.
    """

    job: str
    method: str
    given: str
    reason: str
    position: int = 0
    stops: bool = False
    records: int = 1
    source: str = ""
    not_before: int | None = None
    errors: int = 1  # that it stands for
    row: int | None = None  # in the piece of log it was met in, until that has a place

    def __str__(self) -> str:
        return f"job '{self.job}': {self.method} failed on {self.given}: {self.reason}"


Form = Literal["area", "sampled", "space", "time"]


@dataclass(frozen=True)
class Bounds:
    """When a window may leave before it is complete, and what becomes of late data.

    Of the forms of fidelity, `area` counts any panes of any sources, `sampled` has each source
    leave out panes by chance, `space` counts panes that all sources have filled, and `time`
    sources that have filled all panes.
    """

    within_us: int | None = None
    at: float = 1.0  # the share of results that have to keep `within_us`
    fidelity: float | None = None
    form: Form = "area"
    leap: bool = False  # over sources that are two panes behind the others
    revise_us: int | None = None  # how long after its end a window is corrected


@dataclass(frozen=True)
class Sample:
    """Which panes of which sources a job looks at: each with the same chance, told by a hash."""

    job: str
    share: float


@dataclass(frozen=True)
class KeySet:
    """The numbers of keys that rows are grouped by; others are unknown in them.

    It takes the rows of one copy.
    """

    keys: tuple[int, ...]
    copy: int = 0


@dataclass(frozen=True)
class Shape:
    """What blocks are made of. Jobs of one shape share blocks, whatever they make of them.

    Positions lie in `[begin, until)`. A shape with a `gap` has sessions instead of panes.
    """

    stream: str
    records: str  # how the stream's records are read: their time, and the columns in use
    keys: tuple[Key, ...]
    parts: tuple[Part, ...]
    uses: tuple[str, ...]
    where: str | None = None
    axis: Axis = TIME
    pane: int = 0
    begin: int | None = None
    until: int | None = None
    gap: int | None = None
    spans: Spans | None = None
    code: Code | None = None
    sample: Sample | None = None
    apart: Literal["panes", "sources"] | None = None
    """What of a window may have to be left out: then sources are the last key of blocks."""
    revise_us: int | None = None
    """How long late records count in windows that have left; other blocks are kept for it."""
    copies: int = 1
    """How many times each record counts, in groups of its own: `__copy` in keys says which."""
    joins: tuple[Join, ...] = ()
    """Tables whose rows are beside each record."""
    lists: tuple[Unnest, ...] = ()
    """Lists whose elements are beside each record; with joins, they are numbered as they follow."""
    sets: tuple[KeySet, ...] = ()
    """Where rows are grouped by several sets of keys: `__set` is a key that says by which."""
    alone: bool = False
    """Whether its panes are not those of other jobs that differ in nothing else."""
    scalars: tuple[str, ...] = field(default=(), compare=False, repr=False)
    """What is evaluated on every record that passes the filter, to tell what failed on one."""

    @property
    def keeps_panes(self) -> bool:
        """Whether the size of its panes is part of what its blocks mean.

        Elsewhere panes are only a grid to add up on, which may become finer or coarser.
        """
        chosen = self.sample is not None or self.apart is not None or self.spans == "touch"
        lives_on = self.code is not None and self.code.style == "states"
        return self.alone or chosen or lives_on

    @property
    def meaning(self) -> tuple[object, ...]:
        """All that tells its blocks from those of other shapes, in this run and the next.

        What their stream is called does not matter: its state has no blocks of others.
        """
        return (
            self.records, self.uses, self.where, self.keys, self.parts, self.code,
            self.axis, self.begin, self.until, self.gap, self.spans, self.sample, self.apart,
            self.revise_us, self.pane if self.keeps_panes else None,
            *((self.copies, self.sets) if self.copies > 1 or self.sets else ()),
            *self.joins, *self.lists,
        )  # fmt: skip

    @property
    def by_source(self) -> bool:
        """Whether the last key is the source, which is no part of the answer."""
        return self.apart == "sources"

    @cached_property
    def answered(self) -> Shape:
        """The shape without the source among its keys."""
        return replace(self, keys=self.keys[:-1], apart=None) if self.by_source else self

    @cached_property
    def states(self) -> tuple[Cell, ...]:
        """The cells that the user's Python merges."""
        return tuple(c for part in self.parts for c in part.cells if c.merge is Merge.STATE)

    @property
    def axes(self) -> tuple[Axis, ...]:
        """What records are counted on. Updates come in log order, so those are numbered."""
        numbered = self.code is not None and self.code.style in ("updates", "states")
        return (self.axis, RECORDS) if numbered else (self.axis,)

    @cached_property
    def id(self) -> str:
        """A short name of its meaning, the same in every process and in the next run."""
        return sha256(repr(self.meaning).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Around:
    """What stands around a job's core: a statement over the rows that the core has in a window.

    The core is all that can be merged: filter, keys and aggregates. Its rows are the relation
    `__rows` of the statement, with these columns, and the bounds of the window are `__bounds`.
    """

    sql: str
    columns: tuple[Output, ...]
    tables: tuple[Table, ...] = ()
    words: tuple[tuple[str, str], ...] = field(default=(), compare=False, repr=False)
    """What the user calls the columns, for messages."""


@dataclass(frozen=True)
class Job:
    """A standing query: the shape of its blocks, its windows, and how these become rows."""

    name: str
    shape: Shape
    windows: tuple[WindowSpec, ...]
    finishes: tuple[Finish, ...]
    outputs: tuple[Output, ...]
    having: str | None = None
    order: tuple[Order, ...] = ()
    limit: int | None = None
    bounds: Bounds = Bounds()
    allowed: int | None = None
    """How many errors the job survives, where its text says so."""
    around: Around | None = None
    """The finish, if there is more to a window than the rows of its core."""

    @cached_property
    def core(self) -> Job:
        """The job whose rows the finish is made of; without one, the job itself."""
        if self.around is None:
            return self
        return replace(self, outputs=self.around.columns, around=None)

    @property
    def stream(self) -> str:
        return self.shape.stream

    @cached_property
    def version(self) -> str:
        """A short name of its definition, whatever panes it shares."""
        windows = tuple(spec.key for spec in self.windows)
        told = (self.shape.id, windows, self.finishes, self.outputs, self.having, self.order)
        more = () if self.around is None else (self.around,)
        return sha256(repr((*told, self.limit, self.bounds, *more)).encode()).hexdigest()[:16]

    @property
    def max_errors(self) -> int:
        """How many errors of its expressions, or exceptions in its Python, the job survives.

        Code that raises is a mistake; a value that SQL refuses is one of many in the data.
        """
        if self.allowed is not None:
            return self.allowed
        limits = [cell.code.max_errors for cell in self.shape.states if cell.code]
        if self.shape.code is not None:
            return self.shape.code.max_errors
        return min(limits, default=MAX_ERRORS)


@dataclass(frozen=True)
class Program:
    """What a file of SQL defines: streams, the jobs over them, and tables that these join."""

    streams: Mapping[str, Stream]
    jobs: Mapping[str, Job]
    tables: Mapping[str, Table] = field(default_factory=dict)

    def jobs_of(self, stream: str) -> tuple[Job, ...]:
        return tuple(job for job in self.jobs.values() if job.stream == stream)

    def only(self, job: str) -> Program:
        """As much of the program as one job needs."""
        chosen = self.jobs[job]
        return Program({chosen.stream: self.streams[chosen.stream]}, {job: chosen})


class Tally(NamedTuple):  # there are very many of them
    """How many records of one source fell into one pane, and with which mark."""

    source: str
    axis: str  # the column of positions
    size: int  # of a pane
    pane: int
    not_before: int | None
    records: int
    bad: int
    reached: int  # how far the source had come

    def plus(self, other: Tally) -> Tally:
        """Both together, of the same source, pane and mark."""
        return self._replace(
            records=self.records + other.records,
            bad=self.bad + other.bad,
            reached=max(self.reached, other.reached),
        )


@dataclass(frozen=True)
class Counts:
    """Records read, bad, late, and dropped because the job failed on them, in a window."""

    read: int = 0
    bad: int = 0
    late: int = 0
    failed: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            self.read + other.read,
            self.bad + other.bad,
            self.late + other.late,
            self.failed + other.failed,
        )
