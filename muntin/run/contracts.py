"""What the loop and its parts agree on: where blocks come from, where they stay, what is final.

An intake hands out work, batch by batch. Work is done in tasks, in this process or on Spark, which
deliver blocks and what was read. A collection keeps the blocks until windows are made of them. A
journal makes a batch final.

Every delivery has a source and a number in the order of that source's deliveries. One that arrives
twice, because a task ran again or somebody sent it again, changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import pyarrow as pa

from muntin.fidelity.losses import Loss
from muntin.fidelity.scoreboard import Source
from muntin.kernel.compute import Recipe
from muntin.kernel.due import Due, Emitted
from muntin.kernel.kinds.kind import Missed
from muntin.kernel.reading import Cost, Reading
from muntin.logs.files import FilePosition
from muntin.model.jobs import Job
from muntin.run.catalog import Catalog, InForce
from muntin.run.many import Waiting
from muntin.run.needs import Needs
from muntin.run.progress import Progress
from muntin.run.results import Emission, ToSave
from muntin.run.sessions import WaitingRows


@dataclass(frozen=True)
class Delivery:
    """Blocks by shape, and of each source that they are made of what was read.

    It comes as a whole: if one of its readings was delivered before, all of them were.
    """

    blocks: Mapping[str, pa.Table]
    readings: tuple[Reading, ...]

    @property
    def sequence(self) -> int | None:
        """Its number among those of its source; None if it has none, or several sources."""
        return (self.readings[0].sequence or None) if len(self.readings) == 1 else None


class Taken:
    """What was delivered so far: by source, the number of the last delivery that is final."""

    def __init__(self, final: Mapping[str, int]) -> None:
        self._final = final
        self._new: set[tuple[str, int]] = set()

    def take(self, delivery: Delivery) -> bool:
        """Whether a delivery is new; deliveries without a number always are."""
        numbered = [(r.source, r.sequence) for r in delivery.readings if r.sequence]
        if any(n <= self._final.get(source, 0) for source, n in numbered):
            return False
        if not self._new.isdisjoint(numbered):
            return False
        self._new.update(numbered)
        return True


class Task(Protocol):
    """Work of a batch that one process does at once; it can be sent to any process."""

    def deliver(self, recipes: Sequence[Recipe]) -> Iterator[Delivery]:
        """Reads what it is for, and computes the blocks of every recipe.

        What cannot be read raises a MuntinError.
        """


class Work(Protocol):
    """What a batch is made of: tasks, or what only some collections can have done."""


@runtime_checkable
class TaskWork(Work, Protocol):
    """Work that any collection can have done."""

    def tasks(self, most: int) -> Sequence[Task]:
        """The work in at most so many tasks of about the same size."""


AHEAD_US = 86_400_000_000  # of the clock: what is from further ahead, no clock can have meant


@dataclass(frozen=True)
class Request:
    """What the loop says when it asks for the next batch.

    About `most` bytes are wanted where a batch has to be short. Records after the `latest` time
    are bad. `slack_us` is None where nothing can be late. Deliveries of sources that are not known
    are numbered from after `released` on. A `thorough` look does not rely on what others tell of
    changes: a source is about to be taken for dead. `recipes` are what is computed of the batch,
    for intakes that have it computed elsewhere.
    """

    now: float
    in_order: bool
    most: int | None
    sources: Mapping[str, Source]
    slack_us: int | None
    latest: int | None
    released: int = 0
    thorough: bool = False
    recipes: Sequence[Recipe] = ()
    needs: Needs | None = None  # of finite input; None: everything
    wanted: Mapping[str, int] = field(default_factory=dict)
    """By axis, positions before which windows have to set off soon, whatever is there of them."""
    room: float | None = None  # seconds until windows have to set off; None: there is no hurry


@dataclass(frozen=True)
class Batch:
    """What an intake has now, and what it wants remembered once that is committed."""

    work: Work | None = None
    bytes: int = 0
    remaining: int = 0  # bytes that are there but did not fit
    number: int | None = None  # of the batch, where the intake counts them
    positions: tuple[FilePosition, ...] | None = None  # None where nothing has moved
    notes: tuple[str, ...] = ()
    touched: Mapping[str, float] | None = None
    """When each source was last seen to be there; None where nobody looked."""
    lost: tuple[Loss, ...] = ()  # what was found to be lost by now
    unreadable: Mapping[str, Sequence[Loss]] | None = None
    """By source, what is there and cannot be read now."""
    answered: frozenset[str] = frozenset()  # sources whose agents were there


class Intake(Protocol):
    """Where the blocks of a stream come from. It knows how the clocks of its sources advance."""

    def next(self, request: Request) -> Batch:
        """What to read now. What was handed out once is not handed out again."""

    def behind(self, sources: Mapping[str, Source]) -> frozenset[str]:
        """Sources that have more to be read at once, and so hold windows back."""

    def names(self, now: float) -> frozenset[str]:
        """The sources of finite input, before anything is read; none where that is not known."""


@runtime_checkable
class Skips(Protocol):
    """An intake that can leave out what is of no use any more."""

    def skip(self, before: int, slack_us: int, sources: Mapping[str, Source]) -> None:
        """Does not read what is from before a time, as far as some lines tell."""


@dataclass(frozen=True)
class Answer:
    """Rows of due windows by job, what is to be saved, and by shape what merging took.

    Rows are ordered; where they are too many to be at hand, tasks have them.
    """

    rows: Mapping[str, pa.Table | Waiting] = field(default_factory=dict)
    to_save: ToSave = field(default_factory=ToSave)
    costs: Mapping[str, Cost] = field(default_factory=dict)
    ends: Mapping[str, int] = field(default_factory=dict)
    """Of jobs with sessions: no open one ends before this."""
    missed: Mapping[str, Missed] = field(default_factory=dict)
    """Of jobs with sessions: late records, of which that is known only now."""
    seconds: Mapping[str, float] = field(default_factory=dict)
    """By job, how long its windows took from blocks to rows, where they took longest."""
    sessions: Mapping[str, WaitingRows] = field(default_factory=dict)
    """Of jobs with sessions: rows that tasks have, and that are not among the others."""


class Collection(Protocol):
    """Where blocks are kept until their windows are due."""

    def add(self, work: Work, recipes: Sequence[Recipe], final: Mapping[str, int]) -> list[Reading]:
        """Has the work done and keeps its blocks as one more step; raises what a task raised.

        Blocks of deliveries that are not after the last `final` one of their source, or that come
        twice, are not kept.
        """

    def answer(
        self, catalog: Catalog, due: Due, save: Mapping[str, Emitted] | None = None
    ) -> Answer:
        """The due windows and, if asked, the blocks of the newest step that have to be saved.

        Of these, what no window after the emitted ones holds is left out.
        """

    def forget(self, catalog: Catalog, emitted: Mapping[str, Emitted]) -> None:
        """Drops what no window after `emitted` holds, by shape, and all of other shapes."""

    def inherit(self, catalog: Catalog, shape: str, heir: str) -> None:
        """Takes the blocks of a shape for those of another, too, which has none."""


class Journal(Protocol):
    """What was made final before, and what becomes final now."""

    progress: Progress
    before: InForce
    notes: list[str]

    def store(self, catalog: Catalog, emission: Emission) -> Emission:
        """Has rows that tasks have written where no reader finds them before they are committed.

        Returns the windows with rows where they can be read, less sessions of which none leaves.
        """

    def commit(
        self,
        catalog: Catalog,
        emission: Emission,
        positions: tuple[FilePosition, ...] | None = None,
        whole: bool = False,
    ) -> Emission:
        """Makes a batch final, and returns it with rows where they can be read.

        Without new positions of files, those of before stay. `whole` says that blocks have changed
        that were final.
        """

    def require(self, job: Job) -> None:
        """Raises a StateError if results of a job cannot be stored with those that there are."""

    def keep_rows(self, name: str, rows: pa.Table) -> str | None:
        """Keeps the rows of a table that is joined; the file they are in, or None: no file."""

    def tidy(self, room: float | None = None) -> list[str]:
        """Does what can wait until there is nothing to read; returns what there is to say.

        With `room` seconds for it, it does as much as fits.
        """
