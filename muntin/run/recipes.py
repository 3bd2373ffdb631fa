"""What to compute of the next records, shape by shape, and for whom.

A recipe says from where on somebody needs its panes, up to where, of which sources, and until when
they are of use.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from muntin.fidelity.sampling import picked, sufficient
from muntin.fidelity.score import EVER
from muntin.fidelity.shedding import Use
from muntin.kernel.compute import Recipe
from muntin.model.jobs import Job
from muntin.run.catalog import Catalog
from muntin.run.chooser import Chooser
from muntin.run.departures import Departures
from muntin.run.progress import Progress
from muntin.run.succession import Succession

Names = frozenset[str]  # of all sources of finite input; none where there may be more


class Recipes:
    """Those of one stream. All that lives on is in what it is given."""

    def __init__(
        self,
        progress: Progress,
        departures: Departures,
        chooser: Chooser,
        succession: Succession,
    ) -> None:
        self._progress = progress
        self._departures = departures
        self._chooser = chooser
        self._succession = succession

    def next(self, catalog: Catalog, names: Names) -> list[Recipe]:
        """What to compute of the next records, and from where on somebody needs it."""
        recipes = []
        for recipe in self._chooser.recipes(catalog):
            jobs = catalog.by_shape[recipe.shape.id]
            emitted, until = self._departures.emitted(jobs), self._until(jobs)
            recipes.append(
                replace(
                    recipe,
                    over=emitted.sessions,
                    needs=emitted.needed_from,
                    until=until,
                    sources=self._sources_of(catalog, jobs, names),
                    useful=_useful(jobs),
                )
            )
        return recipes

    def ends(self, catalog: Catalog) -> dict[str, int]:
        """Behind which positions nothing is computed, of shapes whose jobs stop there."""
        untils = {id_: self._until(jobs) for id_, jobs in catalog.by_shape.items()}
        return {id_: until for id_, until in untils.items() if until is not None}

    def _until(self, jobs: Sequence[Job]) -> int | None:
        """The position behind which none of some jobs needs a record; None: there is none."""
        stopped = [self._progress.failures.stopped_at(job.name) for job in jobs]
        last = [self._succession.last(job) for job in jobs]
        return max(map(_sooner, stopped, last), key=lambda at: EVER if at is None else at)

    def left_out(self, catalog: Catalog, job: Job, names: Names) -> frozenset[str]:
        """The sources of finite input that a job does without, as FIDELITY OF TIME has others."""
        share = job.bounds.fidelity
        if share is None or job.bounds.form != "time" or not names:
            return frozenset()
        every = names.union(catalog.stream.sources, self._progress.sources)
        return names - picked(names, sufficient(share, len(every)))

    def _sources_of(
        self, catalog: Catalog, jobs: Sequence[Job], names: Names
    ) -> frozenset[str] | None:
        """The sources that some of these jobs take; None: all."""
        left_out = [self.left_out(catalog, job, names) for job in jobs]
        return names - frozenset.intersection(*left_out) if all(left_out) else None


def _sooner(one: int | None, other: int | None) -> int | None:
    return min((at for at in (one, other) if at is not None), default=None)


def _useful(jobs: Sequence[Job]) -> tuple[Use, ...] | None:
    """What panes of these jobs, which are of one shape, are of use for; None: for ever."""
    shape = jobs[0].shape
    if shape.revise_us is not None or not shape.axis.is_time or not shape.pane:
        return None
    uses = [(job.bounds.within_us, spec) for job in jobs for spec in job.windows]
    if any(within is None for within, _ in uses):
        return None
    return tuple(Use(spec, within or 0) for within, spec in uses)
