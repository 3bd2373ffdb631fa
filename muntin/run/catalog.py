"""The jobs in force on one stream, as one value that is exchanged between two batches.

Everything that depends on which jobs there are asks the catalog it is given, and keeps no set of
jobs of its own. What follows from the jobs alone, such as who shares a shape, is made once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, count

from muntin.kernel.compute import Recipe
from muntin.kernel.keeper import keeper_of
from muntin.model.jobs import KEEPER, VERSIONED, Bounds, Edition, Job, Term
from muntin.model.shapes import Shape
from muntin.model.streams import Stream
from muntin.windows.ledger import Grid, grids_of
from muntin.windows.sharing import share_panes
from muntin.windows.spec import WindowSpec


@dataclass(frozen=True)
class InForce:
    """What is remembered of a catalog: the shape and windows of jobs, and the grids of shapes."""

    shapes: Mapping[str, str] = field(default_factory=dict)
    grids: Mapping[str, Grid] = field(default_factory=dict)
    windows: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    version: int = 0

    @property
    def jobs(self) -> list[str]:
        """The names of the user's jobs."""
        return [name for name in self.shapes if not name.startswith(KEEPER)]

    def had(self, job: Job) -> bool:
        """Whether blocks of a job were computed, perhaps on other panes or for other windows."""
        return self.shapes.get(job.name) == job.shape.id

    def changed(self, jobs: Iterable[Job]) -> list[str]:
        """The names of jobs that were there, and mean something else now."""
        return [job.name for job in jobs if job.name in self.shapes and not self.had(job)]

    def without(self, names: Collection[str]) -> InForce:
        """The same, as if there had not been these jobs."""
        shapes = {name: shape for name, shape in self.shapes.items() if name not in names}
        return replace(self, shapes=shapes)

    def renamed(self, name: str, now: str) -> InForce:
        """The same, with a job called otherwise."""
        return replace(
            self,
            shapes={now if known == name else known: id_ for known, id_ in self.shapes.items()},
            windows={now if known == name else known: w for known, w in self.windows.items()},
        )

    def new_windows(self, job: Job) -> tuple[WindowSpec, ...]:
        """The windows of a job that it did not have."""
        known = self.windows.get(job.name, ()) if self.had(job) else ()
        return tuple(spec for spec in job.windows if spec.key not in known)


@dataclass(frozen=True)
class Catalog:
    """Jobs by name, on shared panes where they can share; `version` counts the changes.

    Of jobs that are paused, or were dropped while running, it is kept what they were.
    """

    stream: Stream
    jobs: Mapping[str, Job]
    version: int = 0
    paused: Mapping[str, Job] = field(default_factory=dict)
    gone: Mapping[str, Edition] = field(default_factory=dict)
    begun: bool = False  # whether the stream is one that no file has

    @classmethod
    def of(cls, stream: Stream, jobs: Iterable[Job]) -> Catalog:
        return cls(stream, share_panes({job.name: job for job in jobs}))

    @cached_property
    def keeper(self) -> Job | None:
        """The job that keeps the records of the stream, if somebody may ask about them.

        It is none of the user's, and answers nothing. Where all others have bounds, what these do
        without is not read for it alone.
        """
        keeper = keeper_of(self.stream)
        within = [job.bounds.within_us for job in self.jobs.values()]
        bounds = [each for each in within if each is not None]
        if keeper is None or not bounds or len(bounds) < len(within):
            return keeper
        return replace(keeper, bounds=Bounds(within_us=max(bounds)))

    @cached_property
    def every(self) -> dict[str, Job]:
        """All jobs that have blocks, by name: also the one that keeps records."""
        keeper = self.keeper
        return {**self.jobs} if keeper is None else {**self.jobs, keeper.name: keeper}

    def with_jobs(self, *jobs: Job) -> Catalog:
        """The next catalog: with these jobs, in the place of those that have their names."""
        every = {**self.jobs, **{job.name: job for job in jobs}}
        return replace(self, jobs=share_panes(every), version=self.version + 1)

    def without(self, *names: str) -> Catalog:
        """The next catalog: without these jobs."""
        left = {name: job for name, job in self.jobs.items() if name not in names}
        return replace(self, jobs=share_panes(left), version=self.version + 1)

    def retiring(self, name: str, term: Term) -> tuple[Catalog, str]:
        """The next catalog: in the place of a job, one that only brings windows to their end.

        Also returns what that one is called.
        """
        job = self.jobs[name]
        called = f"{name}{VERSIONED}{job.edition.number}"
        more = (f"{called}.{number}" for number in count(1))  # its parameters may have been set
        called = next(each for each in chain([called], more) if each not in self.jobs)
        old = replace(job, name=called, term=term)
        every = {old.name if each is job else key: old if each is job else each
                 for key, each in self.jobs.items()}  # fmt: skip
        return replace(self, jobs=share_panes(every), version=self.version + 1), called

    @cached_property
    def titles(self) -> frozenset[str]:
        """What users call the jobs: the names of their tables."""
        return frozenset(job.title for job in self.jobs.values())

    @cached_property
    def looked_at(self) -> frozenset[str]:
        """The jobs whose newest results others use, by their titles."""
        return frozenset(name for job in self.jobs.values() for name in job.latest)

    @cached_property
    def by_shape(self) -> dict[str, tuple[Job, ...]]:
        """The jobs of each shape, by its id."""
        families: dict[str, list[Job]] = {}
        for job in self.every.values():
            families.setdefault(job.shape.id, []).append(job)
        return {shape: tuple(jobs) for shape, jobs in families.items()}

    @cached_property
    def shapes(self) -> dict[str, Shape]:
        return {id_: jobs[0].shape for id_, jobs in self.by_shape.items()}

    @cached_property
    def drawn(self) -> frozenset[str]:
        """The shapes whose blocks count as those of others, too."""
        draws = (shape.draws for shape in self.shapes.values())
        return frozenset(each.shape for each in draws if each is not None)

    @cached_property
    def retained(self) -> dict[str, tuple[Job, ...]]:
        """By shape, the jobs whose panes are kept for questions."""
        found = {
            shape: tuple(job for job in jobs if job.retain_us is not None)
            for shape, jobs in self.by_shape.items()
        }
        return {shape: jobs for shape, jobs in found.items() if jobs}

    @cached_property
    def windows(self) -> dict[str, tuple[WindowSpec, ...]]:
        """All kinds of windows that are made of the blocks of each shape."""
        return {recipe.shape.id: recipe.windows for recipe in self.recipes}

    @cached_property
    def recipes(self) -> tuple[Recipe, ...]:
        """What to compute of records, one for each shape."""
        return recipes_of(self.every.values())

    @cached_property
    def axes(self) -> frozenset[str]:
        """What windows are measured on, by the columns of positions."""
        return frozenset(shape.axis.column for shape in self.shapes.values())

    @cached_property
    def grids(self) -> dict[str, Grid]:
        """The axis and the size of panes of each shape that has panes."""
        return grids_of(self.shapes)

    @cached_property
    def counts(self) -> bool:
        """Whether records are numbered or measured, which needs them in the order of their log."""
        return any(not axis.is_time for shape in self.shapes.values() for axis in shape.axes)

    @property
    def in_force(self) -> InForce:
        return InForce(
            {name: job.shape.id for name, job in self.every.items()},
            self.grids,
            {name: tuple(spec.key for spec in job.windows) for name, job in self.every.items()},
            self.version,
        )

    def after(self, before: InForce) -> Catalog:
        """This catalog with the number it has behind the one of before: another, if it differs."""
        same = self.in_force == replace(before, version=self.version)
        return replace(self, version=before.version + (not same and bool(before.shapes)))

    def in_order(self, follow: bool) -> bool:
        """Whether the records of a source have to be read one after another."""
        return self.counts or follow or self.stream.slack_us is not None


def recipes_of(jobs: Iterable[Job]) -> tuple[Recipe, ...]:
    """One for each shape, with all kinds of windows that are made of its blocks."""
    families: dict[Shape, list[Job]] = {}
    for job in jobs:
        families.setdefault(job.shape, []).append(job)
    return tuple(
        Recipe(
            shape,
            tuple(sorted({s for job in family for s in job.windows}, key=lambda s: s.key)),
            jobs=tuple(job.name for job in family),
            errors=max(job.max_errors for job in family),
        )
        for shape, family in families.items()
    )
