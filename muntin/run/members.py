"""Several streams as one intake, for jobs that join them: each is read by an intake of its own.

Sources are named apart by the stream they are of, so that every position and loss belongs to one
of them, and blocks of all meet as those of the sources of one stream do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from muntin.fidelity.losses import Loss
from muntin.fidelity.scoreboard import Source
from muntin.kernel.compute import Recipe
from muntin.logs.chunks import PIECE_BYTES
from muntin.logs.events import Events
from muntin.logs.files import FilePosition
from muntin.logs.tail import BATCH_BYTES
from muntin.model.streams import Stream
from muntin.run.contracts import Batch, Delivery, Intake, Request, Task, TaskWork
from muntin.run.derived import JobResults
from muntin.run.files import LogFiles


class Readable(Intake, Protocol):
    """An intake that a run of finite input may ask whether there is anything, and that ends."""

    def require(self) -> None:
        """Refuses to read where there is nothing."""

    def close(self) -> None:
        """Lets go of what it holds."""


def files_of(
    stream: Stream,
    follow: bool,
    positions: Iterable[FilePosition] = (),
    batch_bytes: int = BATCH_BYTES,
    piece_bytes: int = PIECE_BYTES,
    lanes: int | None = None,
    events: Callable[[], Events] | None = None,
    results: Callable[[Stream], JobResults] | None = None,
) -> Readable:
    """The log files of a stream or of its members, as `LogFiles` takes the rest.

    Those of `results` of jobs are told by themselves.
    """

    def files(of: Stream, share: int) -> Readable:
        if of.job is not None:
            return JobResults(of, follow) if results is None else results(of)
        mine = (file for file in positions if stream.of_source(file.source).name == of.name)
        told = None if events is None else events()
        return LogFiles(of, follow, mine, max(1, batch_bytes // share), piece_bytes, lanes, told)

    positions = tuple(positions)
    if not stream.members:
        return files(stream, 1)
    return Members(stream, [files(each, len(stream.members)) for each in stream.members], follow)


def results_in(intake: Intake) -> list[JobResults]:
    """The results of jobs that an intake reads."""
    every = intake.intakes if isinstance(intake, Members) else (intake,)
    return [each for each in every if isinstance(each, JobResults)]


@dataclass(frozen=True)
class Tasks:
    """What one process does of several streams, one after another."""

    tasks: tuple[Task, ...]

    def deliver(self, recipes: Sequence[Recipe]) -> Iterator[Delivery]:
        for task in self.tasks:
            yield from task.deliver(recipes)


@dataclass(frozen=True)
class Works:
    """The work of a batch, of several streams."""

    works: tuple[TaskWork, ...]

    def tasks(self, most: int) -> list[Tasks]:
        every = [task for work in self.works for task in work.tasks(most)]
        return [Tasks(tuple(every[first::most])) for first in range(min(most, len(every)))]


class Members:
    """The intakes of a stream's members, in their order."""

    def __init__(self, stream: Stream, intakes: Sequence[Readable], follow: bool) -> None:
        self._members = tuple(zip(stream.members, intakes, strict=True))
        self._follow = follow
        self._last: dict[str, Batch] = {}  # by member: what holds until it tells something else

    @property
    def intakes(self) -> tuple[Readable, ...]:
        return tuple(intake for _, intake in self._members)

    def require(self) -> None:
        for intake in self.intakes:
            intake.require()

    def close(self) -> None:
        for intake in self.intakes:
            intake.close()

    def next(self, request: Request) -> Batch:
        most = None if request.most is None else max(1, request.most // len(self._members))
        batches = []
        for member, intake in self._members:
            # Which windows need only some panes is known of all sources together.
            slack = member.slack(self._follow)
            batch = intake.next(replace(request, most=most, slack_us=slack, needs=None))
            self._last[member.name] = _with_last(batch, self._last.get(member.name, Batch()))
            batches.append(batch)
        works = [batch.work for batch in batches if batch.work is not None]
        last = self._last.values()
        return Batch(
            Works(tuple(work for work in works if isinstance(work, TaskWork))) if works else None,
            sum(batch.bytes for batch in batches),
            sum(batch.remaining for batch in batches),
            positions=tuple(file for each in last for file in each.positions or ()),
            notes=tuple(note for batch in batches for note in batch.notes),
            touched=_touched(last) if any(b.touched is not None for b in batches) else None,
            lost=tuple(loss for batch in batches for loss in batch.lost),
            unreadable=_unreadable(last),
        )

    def behind(self, sources: Mapping[str, Source]) -> frozenset[str]:
        return frozenset().union(*(each.behind(sources) for each in self.intakes))

    def names(self, now: float) -> frozenset[str]:
        return frozenset().union(*(each.names(now) for each in self.intakes))


def _with_last(batch: Batch, before: Batch) -> Batch:
    """A batch with what it does not tell, as it was told before."""
    return replace(
        batch,
        work=None,
        positions=before.positions if batch.positions is None else batch.positions,
        touched=before.touched if batch.touched is None else batch.touched,
        unreadable=before.unreadable if batch.unreadable is None else batch.unreadable,
    )


def _touched(batches: Iterable[Batch]) -> dict[str, float]:
    return {name: at for batch in batches for name, at in (batch.touched or {}).items()}


def _unreadable(batches: Iterable[Batch]) -> dict[str, Sequence[Loss]]:
    return {name: losses for b in batches for name, losses in (b.unreadable or {}).items()}
