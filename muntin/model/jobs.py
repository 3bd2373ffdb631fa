"""What is made of blocks, when it leaves, and what a program is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import sha256
from typing import Literal

from muntin.model.shapes import Code, Shape
from muntin.model.streams import Stream
from muntin.model.tables import Table
from muntin.windows.spec import WindowSpec

MAX_ERRORS = 100  # of a job in SQL, unless it says otherwise
KEEPER = "@"  # before the name of a stream: the job that keeps its records, which no text has
VERSIONED = "@"  # between the name of a job and the version that brings old windows to an end


@dataclass(frozen=True)
class Finish:
    """An aggregate's final value from the cells of one part."""

    name: str
    part: int
    sql: str
    zero: bool = False  # where no record reached the part, rather than unknown
    whole: str = field(default="", compare=False, repr=False)
    """Of a list that has a limit: how many values there are."""
    most: int = 0  # values of such a list that are kept, where users did not ask for so many
    words: str = field(default="", compare=False, repr=False)

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
    changes: bool = field(default=False, repr=False)
    """Whether windows that are open are shown with every batch that has changed them."""


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
    reads: tuple[tuple[str, str], ...] = field(default=(), compare=False, repr=False)
    """Which of several streams the columns are made of."""


@dataclass(frozen=True)
class Term:
    """Which windows a version of a job answers for: all, or those that it has to bring to an end.

    These start before the position `before`, and end at `upto` or before it.
    """

    before: int | None = None
    upto: int | None = None

    @property
    def is_open(self) -> bool:
        """Whether windows come that have not begun."""
        return self.before is None and self.upto is None

    def has(self, start: int, end: int) -> bool:
        """Whether a window between these positions is one of them."""
        return (self.before is None or start < self.before) and (
            self.upto is None or end <= self.upto
        )


@dataclass(frozen=True)
class Edition:
    """What a version of a job is: its number, its text, and the values of its parameters.

    `base` is the digest of what the program's file said of the job when it was changed while
    running; nothing, where it is as in the file.
    """

    number: int = 1
    text: str = ""
    values: tuple[tuple[str, str], ...] = ()
    base: str | None = None


@dataclass(frozen=True)
class Job:
    """A standing query: the shape of its blocks, its windows, and how these become rows.

    Names are letters, digits, `_` and `-`. A version that was replaced and has windows to bring to
    an end is a job beside the new one, called `name@version`.
    """

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
    retain_us: int | None = None
    """How long its panes are kept for questions, counted from the newest."""
    edition: Edition = field(default=Edition(), compare=False)
    term: Term = Term()
    part_of: str | None = None
    """What the user calls it, where that has windows of several shapes, each a job here."""

    @property
    def title(self) -> str:
        """The user's name for it, under which its results are, whatever the version."""
        return self.part_of or self.unversioned

    @property
    def is_keeper(self) -> bool:
        """Whether it is none of the user's, and keeps the records of a stream for questions."""
        return self.name.startswith(KEEPER)

    @property
    def unversioned(self) -> str:
        """Its name whatever the version, under which it is counted what its records came to."""
        return self.name.partition(VERSIONED)[0]

    @cached_property
    def core(self) -> Job:
        """The job whose rows the finish is made of; without one, the job itself."""
        if self.around is None:
            return self
        return replace(self, outputs=self.around.columns, around=None)

    @property
    def stream(self) -> str:
        return self.shape.stream

    @property
    def tables(self) -> tuple[Table, ...]:
        """Those that records or groups are joined with."""
        around = () if self.around is None else self.around.tables
        return (*(join.table for join in self.shape.joins), *around)

    @property
    def latest(self) -> tuple[str, ...]:
        """The jobs whose newest results it uses."""
        return tuple(dict.fromkeys(t.job for t in self.tables if t.job is not None))

    @cached_property
    def version(self) -> str:
        """A short name of its definition, whatever panes it shares."""
        windows = tuple(spec.key for spec in self.windows)
        told = (self.shape.id, windows, self.finishes, self.outputs, self.having, self.order)
        more: tuple[object, ...] = () if self.around is None else (self.around,)
        more += ("changes",) if self.bounds.changes else ()
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
    aggregates: Mapping[str, Code] = field(default_factory=dict)

    def jobs_of(self, stream: str) -> tuple[Job, ...]:
        return tuple(job for job in self.jobs.values() if job.stream == stream)

    def runs(self, stream: str) -> bool:
        """Whether a stream is read: by jobs, or to keep its records."""
        kept = stream in self.streams and self.streams[stream].keep is not None
        return kept or any(job.stream == stream for job in self.jobs.values())

    def only(self, job: str) -> Program:
        """As much of the program as one job needs, with the jobs whose results it reads."""
        wanted, titles = [job], dict[str, None]()
        while wanted:
            title = wanted.pop()
            titles[title] = None
            for each in (each for each in self.jobs.values() if each.title == title):
                stream = self.streams[each.stream]
                read = [m.job for m in (stream, *stream.members) if m.job is not None]
                wanted += [name for name in (*read, *each.latest) if name not in titles]
        jobs = {name: each for name, each in self.jobs.items() if each.title in titles}
        read_by = {each.stream for each in jobs.values()}
        return Program({n: s for n, s in self.streams.items() if n in read_by}, jobs)

    @property
    def titles(self) -> tuple[str, ...]:
        """What the user calls the jobs."""
        return tuple(dict.fromkeys(job.title for job in self.jobs.values()))
