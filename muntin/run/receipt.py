"""What sources have delivered is noted: how far each has come, its records, losses and faults.

What is delivered twice counts once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace

from muntin.fidelity.losses import Loss
from muntin.fidelity.scoreboard import Scoreboard, Source
from muntin.kernel.reading import Reading, leap_of
from muntin.model.counts import Fault
from muntin.run.catalog import Catalog
from muntin.run.departures import Departures
from muntin.run.leaps import leaps
from muntin.run.progress import Progress


class Receipt:
    """Takes the readings of one stream. All that lives on is in what it is given."""

    def __init__(
        self, progress: Progress, departures: Departures, scoreboard: Scoreboard, follow: bool
    ) -> None:
        self._progress = progress
        self._departures = departures
        self._scoreboard = scoreboard
        self._follow = follow

    def fresh(self, readings: Sequence[Reading]) -> Iterator[Reading]:
        """The readings that were not delivered before."""
        seen: set[tuple[str, int]] = set()
        for reading in readings:
            source = self._progress.sources.get(reading.source, Source())
            delivery = reading.source, reading.sequence
            if not reading.sequence or (
                reading.sequence > source.sequence and delivery not in seen
            ):
                seen.add(delivery)
                yield reading

    def take(
        self, catalog: Catalog, readings: Sequence[Reading], behind: Collection[str], now: float
    ) -> list[str]:
        """Notes what was read; returns what has failed, and which sources leap ahead.

        Those that are `behind` have more that was written before, in which there may be gaps.
        """
        progress = self._progress
        faults: list[Fault] = []
        known = {r.source for r in readings} & progress.sources.keys()
        before = {name: replace(progress.sources[name]) for name in known}
        for reading in readings:
            source = progress.sources.setdefault(reading.source, Source())
            source.heard_at = now
            source.ended = False
            source.sequence = max(source.sequence, reading.sequence)
            source.advance(reading.first, reading.reached, reading.doubt, reading.loose, now)
            source.unmade += reading.unmade
            progress.records += reading.records
            progress.bad += reading.bad
            faults += reading.faults
        self.lose([loss for reading in readings for loss in reading.lost])
        damaged = {loss.file for reading in readings for loss in reading.lost}
        for reading in readings:
            stood = before[reading.source].time if reading.source in before else None
            for log, file, at in reading.begun:
                again = stood is not None and at < stood - catalog.stream.far_us
                if file not in damaged and not again:
                    self._scoreboard.resume(reading.source, log, at)
        self._departures.take(catalog, readings)
        progress.ledger.add(tally for reading in readings for tally in reading.tallies)
        # Agents may have met one for a job that is gone.
        met = (fault for fault in faults if fault.job in catalog.jobs)
        notes = [note for f in met for note in progress.failures.read(catalog.jobs[f.job], f)]
        if not self._follow:
            return notes
        some: dict[str, list[Reading]] = {r.source: [] for r in readings if r.leap is not None}
        for reading in readings:
            if reading.source in some:
                some[reading.source].append(reading)
        found = {name: leap_of(some[name]) for name in some.keys() & known}
        return [*leaps(catalog.stream.name, before, found, behind, now), *notes]

    def lose(self, losses: Iterable[Loss]) -> None:
        """Notes what no source will give any more."""
        for loss in losses:
            new = Source(sequence=self._progress.released)
            self._progress.sources.setdefault(loss.source, new)
            self._scoreboard.lose(loss)
