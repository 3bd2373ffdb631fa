"""What a kind of job is: how its records become blocks, and its blocks results.

Everything that differs between kinds is asked here. A kind is a small value that holds a shape;
`kind_of` in this folder's `__init__` says which one a shape is of. What it is given and gives:

    records ─compute─► block ─merge─► block ─finish─► rows of due windows ─order─► results
                                       │ without                 │ later_rounds (some jobs)
                                       ▼                         ▼
                               what is needed on          rows of whole windows

Blocks merge in any order and number, with one result. Rows of `finish` are of one key group;
only `order`, and `later_rounds` where a job has them, are given those of all.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from muntin.kernel.due import NOTHING_BEFORE, Due, Emitted, Previous
from muntin.kernel.reading import File
from muntin.kernel.statements import Windows
from muntin.model.counts import Fault
from muntin.model.jobs import Job
from muntin.model.shapes import Shape
from muntin.windows.spec import WindowSpec

Numbers = NDArray[np.int64]
Made = Sequence[tuple[WindowSpec, pa.Table]]  # complete windows, of which larger ones may be made
Ordering = tuple[tuple[str, str], ...]  # columns, each with its direction
Told = tuple[int, int]  # a window of a job: which of its kinds and the end; or start and end


@dataclass(frozen=True)
class Given:
    """Records that some window still to come may hold, of one source or of several.

    `marked` says whether some may be late. `separate` asks for windows in the place of panes.
    `source` is whose they are, or the first of several, and `file` is theirs, if they have one.
    """

    records: pa.Table
    source: str
    windows: Windows
    marked: bool
    separate: bool = False
    file: File | None = None


@dataclass(frozen=True)
class Outcome:
    """A block, and what went wrong on the way to it."""

    block: pa.Table
    faults: Sequence[Fault] = ()


class Missed(NamedTuple):
    """Late records, and how much more slack would have kept them all."""

    records: int = 0
    slack_us: int = 0

    def plus(self, other: Missed) -> Missed:
        return Missed(self.records + other.records, max(self.slack_us, other.slack_us))


@dataclass(frozen=True)
class Finished:
    """Rows of due windows by job, and what is of use after them."""

    rows: dict[str, pa.Table] = field(default_factory=dict)
    made: Made = ()  # windows that are complete now, and of which larger ones may be made
    stays: tuple[pa.Table, ...] = ()  # blocks that go on from here, beside those given
    ends: dict[str, int] = field(default_factory=dict)  # of jobs: no open session ends before
    missed: dict[str, Missed] = field(default_factory=dict)
    """By job, records that no session has, of which that is known only now."""


class Place(StrEnum):
    """Where an operator runs."""

    SOURCE = "where records are read"
    ANYWHERE = "anywhere"
    GROUP = "in every key group"
    WINDOW = "in one task a window"
    DRIVER = "where results are committed"


@dataclass(frozen=True)
class Operator:
    """One operation between records and results: a statement, or what Python does in its place."""

    name: str
    does: str
    place: Place
    sql: str | None = None

    def __str__(self) -> str:
        return f"{self.name}: {self.does}, {self.place}"


class Kind(Protocol):
    """One kind of job. Tables are blocks of its shape unless said otherwise."""

    @property
    def shape(self) -> Shape: ...

    @property
    def has_panes(self) -> bool:
        """Whether windows end where panes do, whatever records come; sessions do not."""

    @property
    def tells_sources(self) -> bool:
        """Whether `compute` has to be given the records of each source by themselves."""

    @property
    def has_windows(self) -> bool:
        """Whether results are of windows of the user's, rather than of one pane after another."""

    @property
    def in_slices(self) -> bool:
        """Whether `merge` and `finish` may be given some panes at a time, with all their rows."""

    @property
    def has_cells(self) -> bool:
        """Whether blocks hold cells that SQL merges, rather than Python's objects."""

    @property
    def form(self) -> Hashable | None:
        """What shapes have in common whose blocks one statement merges; None: not any."""

    @property
    def alike(self) -> tuple[str, ...]:
        """Columns in which rows are equal that `merge` makes one, or looks at together."""

    def always_shared(self, windows: Windows) -> str | None:
        """Why these windows cannot have a state of their own instead of panes; None if they can."""

    def compute_sql(self, windows: Windows, marked: bool, separate: bool = False) -> str:
        """The statement over records: it makes a block, or what Python makes it of."""

    def on_time_sql(self, windows: Windows, marked: bool) -> Iterator[str]:
        """Conditions under which some window takes a record that may be late."""

    def compute(self, given: Given) -> Outcome:
        """Records to a block."""

    def merge(self, blocks: Sequence[pa.Table]) -> pa.Table:
        """One block with every key and pane of the given ones once. At least one is given."""

    def finish(self, jobs: Mapping[str, Job], block: pa.Table, due: Due, made: Made) -> Finished:
        """Rows of the due windows of jobs of this shape, from the block of one key group.

        `made` are complete windows from before.
        """

    def more_rounds(self, job: Job) -> bool:
        """Whether rows of `finish` have to meet, window by window, for rounds that follow."""

    def later_rounds(self, job: Job, rows: Sequence[pa.Table]) -> pa.Table:
        """Rows of whole windows, from those that all key groups have of them."""

    def ordering(self, job: Job) -> Ordering | None:
        """By which columns of rows of `finish` `order` sorts them, if it does nothing else.

        None: it has to be given whole windows.
        """

    def by_window(self, job: Job) -> bool:
        """Whether `order` may be given windows one by one, rather than all that are due."""

    def order(
        self, job: Job, rows: Sequence[pa.Table], previous: Previous = NOTHING_BEFORE
    ) -> pa.Table:
        """Rows of all key groups as the result's rows, window by window.

        A job that looks back is told of the results that were `previous` to these.
        """

    def without(self, block: pa.Table, emitted: Emitted) -> pa.Table:
        """The block less the rows that no window still to come holds.

        Of a kind without panes this is right for the block of all that there is only.
        """

    def delivered(self, block: pa.Table, emitted: int | None) -> pa.Table:
        """The block as it counts if it comes when sessions up to a position have left."""

    def interval(self, block: pa.Table) -> tuple[int, int]:
        """Where the block's rows lie, `[lower, upper)` in its panes, or positions without panes."""

    def is_over(self, upper: int, emitted: Emitted) -> bool:
        """Whether `without` leaves nothing of any block that ends before `upper`."""

    def without_forgotten(self, block: pa.Table) -> pa.Table:
        """The block less what only hides older rows, if it is the block of all that there is."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Those of ordered rows beside the user's; the first and third, or second, tell windows."""

    def told(self, rows: pa.Table) -> tuple[Numbers, Numbers]:
        """What tells the window of each ordered row."""

    def names(self, job: Job) -> list[str]:
        """Of the job's kinds of windows, for example `1 hour every 5 minutes`."""

    def name(self, job: Job, window: Told) -> str:
        """The name of one window's kind."""

    def bounds(self, job: Job, window: Told) -> tuple[int, int]:
        """Positions `[start, end)` of one window."""

    def all_bounds(self, job: Job, told: tuple[Numbers, Numbers]) -> tuple[Numbers, Numbers]:
        """The same of many, as arrays."""

    def headline(self) -> str | None:
        """What `explain` says in place of a list of windows, if there is none."""

    def algorithm(self, spec: WindowSpec) -> str:
        """How windows are made of panes, as `explain` says it."""

    def operators(self, job: Job, windows: Windows, separate: bool) -> Iterator[Operator]:
        """What runs for a job, and where, of a shape that serves these windows."""
