"""One stream's data path, a batch at a time; the runners differ only in the collection.

    next batch ─► compute ─► note what was read ─► which windows are due ─► finish ─► emit

A window is due when every source that holds it back has passed its end, on time's axis by the
slack. Sources that ended, or were idle for long enough, hold nothing back. On finite input
without SLACK nothing is late, so no window of time is due before everything was read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Protocol

import pyarrow as pa

from muntin.chooser import Chooser
from muntin.emission import Emission, JobWindows, Kind, sessions
from muntin.errors import InputError
from muntin.failures import Failures
from muntin.kernel.compute import Cost, Recipe
from muntin.kernel.finish import Due
from muntin.kernel.merge import Emitted
from muntin.logs.records import Report
from muntin.logs.tail import Batch, Lane
from muntin.model import TIME, Job, Score, Shape, Stream
from muntin.windows.choice import Choice, Sharing
from muntin.windows.ledger import Ledger
from muntin.windows.spec import WindowSpec


@dataclass
class Answer:
    """Ordered rows of due windows by job, and by shape encoded blocks and what merging took."""

    rows: dict[str, pa.Table] = field(default_factory=dict)
    blocks: dict[str, list[bytes]] = field(default_factory=dict)
    costs: dict[str, Cost] = field(default_factory=dict)


class Collection(Protocol):
    """Where blocks are computed and kept until their windows are due."""

    def read(
        self, lanes: Sequence[Lane], recipes: Sequence[Recipe], slack_us: int | None
    ) -> list[Report]:
        """Computes the lanes' blocks and keeps them as one more step."""

    def answer(self, due: Due, save: Mapping[str, Emitted] | None) -> Answer:
        """The due windows and, if asked, the blocks of the newest step that have to be saved.

        Of these, what no window after the emitted ones holds is left out.
        """

    def forget(self, emitted: Mapping[str, Emitted]) -> None:
        """Drops what no window after `emitted` holds, by shape."""


@dataclass
class Source:
    """How far one source has come on each axis, and when it last had anything to say."""

    reached: dict[str, int] = field(default_factory=dict)
    heard_at: float | None = None  # None after a restart, until the clock is known


@dataclass
class Lateness:
    """Late records of one job, and the slack that would have kept them all."""

    records: int = 0
    slack_us: int = 0


@dataclass
class Progress:
    """All that has to survive a restart, besides the blocks."""

    sources: dict[str, Source] = field(default_factory=dict)
    emitted: dict[tuple[str, str], int] = field(default_factory=dict)
    """Where the last window of a job and kind ended, as a position."""
    ledger: Ledger = field(default_factory=Ledger)
    late: dict[str, Lateness] = field(default_factory=dict)
    choices: dict[str, Choice] = field(default_factory=dict)
    records: int = 0
    bad: int = 0
    bytes: int = 0
    windows: int = 0
    failures: Failures = field(default_factory=Failures)


class Pipeline:
    """The state of one stream and the decisions that follow from it."""

    def __init__(
        self,
        stream: Stream,
        jobs: Sequence[Job],
        collection: Collection,
        follow: bool,
        idle_seconds: float = 10.0,
        progress: Progress | None = None,
        sharing: Sharing = "auto",
    ) -> None:
        self.stream = stream
        self.jobs = {job.name: job for job in jobs}
        self.collection = collection
        self.progress = progress or Progress()
        self._follow = follow
        self._idle_seconds = idle_seconds
        self._shapes = {job.shape.id: job.shape for job in jobs}
        self._passed: dict[str, int] = {}
        self._chooser = Chooser(recipes_of(jobs), sharing, self.progress.choices)
        self._timeless = False

    @property
    def slack_us(self) -> int | None:
        """None means that nothing can be late."""
        if self.stream.slack_us is None and self._follow:
            return 0
        return self.stream.slack_us

    @property
    def in_order(self) -> bool:
        """Whether the records of a source have to be read one after another."""
        shapes = self._shapes.values()
        counted = any(not axis.is_time for shape in shapes for axis in shape.axes)
        return counted or self.slack_us is not None

    def recipes(self) -> list[Recipe]:
        return [
            replace(recipe, over=self.emitted(recipe.shape).sessions)
            for recipe in self._chooser.recipes()
        ]

    def read(self, batch: Batch, now: float) -> tuple[str, ...]:
        """Reads a batch into the collection; returns what the user should know."""
        if not batch.lanes:
            return batch.notes
        lanes = [self._dated(lane) for lane in batch.lanes]
        reports = self.collection.read(lanes, self.recipes(), self.slack_us)
        self.progress.bytes += batch.bytes
        notes = [note for report in reports for note in report.notes]
        notes += self.take(reports, now)
        return (*batch.notes, *dict.fromkeys(notes), *self._choose())

    def take(self, reports: Sequence[Report], now: float) -> list[str]:
        """Notes what was read; returns what has failed."""
        for report in reports:
            source = self.progress.sources.setdefault(report.source, Source())
            source.heard_at = now
            for axis, position in report.reached.items():
                source.reached[axis] = max(source.reached.get(axis, position), position)
            self.progress.records += report.records
            self.progress.bad += report.bad
            self._timeless |= report.timeless
            self._count_late(report)
            self.progress.ledger.add(report.tallies)
            self._chooser.computed(report)
        faults = [fault for report in reports for fault in report.faults]
        failures = self.progress.failures
        return [note for f in faults for note in failures.add(self.jobs[f.job], [f])]

    def emit(
        self, now: float, final: bool, save: bool = False, behind: frozenset[str] = frozenset()
    ) -> Emission:
        """The windows that are due after a batch; `final` when nothing more will come.

        Sources that are `behind` have more to be read at once, and so hold windows back.
        """
        if final and self._timeless and not self.progress.records:
            raise InputError(
                f"stream '{self.stream.name}': TIMESTAMP {self.stream.timestamp} gave no time for "
                f"any row"
            )
        for source in self.progress.sources.values():
            source.heard_at = now if source.heard_at is None else source.heard_at
        axes = {shape.axis.column for shape in self._shapes.values()}
        horizons = {axis: self._horizon(axis, behind, now, final) for axis in axes}
        due = self.due(horizons, more=not final)
        emission = self._answer(due, save) if due or save else Emission()
        self._forget_unbounded(horizons)
        return emission

    def _answer(self, due: Due, save: bool) -> Emission:
        self._note_emitted(due)
        emitted = {shape.id: self.emitted(shape) for shape in self._shapes.values()}
        answer = self.collection.answer(self._leaving(due), emitted if save else None)
        emission = Emission(blocks=answer.blocks)
        for name, rows in answer.rows.items():
            left, notes = self.progress.failures.sift(self.jobs[name], rows)
            emission.notes.extend(notes)
            leaving = self._leaving(due)
            if name in leaving.ends or name in leaving.sessions:
                emission.windows.append(self._windows_of(name, leaving, left))
        self.progress.windows += sum(len(windows.counts) for windows in emission.windows)
        self._chooser.merged(answer.costs)
        self._forget(emitted)
        return emission

    def _choose(self) -> Iterator[str]:
        """Decides anew how windows are computed; tells of changes."""
        for shape, choice in self._chooser.choose():
            names = ", ".join(job.name for job in self.jobs.values() if job.shape == shape)
            way = "separate state for each window" if choice.separate else "shared partials"
            yield f"job {names} goes on with {way}: {choice.reason}"

    def _leaving(self, due: Due) -> Due:
        """The due windows of jobs that have not failed before them."""
        leaves = self.progress.failures.leaves
        ends = {
            name: [
                [end for end in kind if leaves(self.jobs[name], which, end)]
                for which, kind in enumerate(kinds)
            ]
            for name, kinds in due.ends.items()
        }
        return replace(due, ends={name: kinds for name, kinds in ends.items() if any(kinds)})

    def _windows_of(self, name: str, due: Due, rows: pa.Table) -> JobWindows:
        job = self.jobs[name]
        if job.shape.gap is not None:
            return sessions(job, rows, Score(1, 1))
        axis = job.shape.axis.column
        kinds: list[Kind] = [
            (which, end) for which, ends in enumerate(due.ends.get(name, ())) for end in ends
        ]
        ledger = self.progress.ledger
        counts = {(i, end): ledger.counts(axis, job.windows[i], end) for i, end in kinds}
        scores = {(i, end): self._score(axis, end * job.windows[i].pane) for i, end in kinds}
        return JobWindows(job, rows, counts, scores)

    def _score(self, axis: str, end: int) -> Score:
        """How many of the known sources have passed a position."""
        reached = [source.reached.get(axis) for source in self.progress.sources.values()]
        passed = sum(1 for r in reached if not self._follow or (r is not None and r >= end))
        return Score(passed, len(reached))

    def due(self, horizons: Mapping[str, int | None], more: bool = True) -> Due:
        """Windows not yet emitted that end at or before the horizon and hold records."""
        ends: dict[str, list[list[int]]] = {}
        over: dict[str, tuple[int, int]] = {}
        for name, job in self.jobs.items():
            horizon = horizons[job.shape.axis.column]
            if horizon is None:
                continue
            if job.shape.gap is not None:
                after = self.progress.emitted.get((name, SESSION), _NEVER)
                upto = self._last_session_end(job) if horizon == _EVER else horizon
                if upto > after:
                    over[name] = after, upto
                continue
            panes = self.progress.ledger.panes((job.shape.axis.column, job.shape.pane))
            found = [self._ends(job, spec, panes, horizon) for spec in job.windows]
            if any(found):
                ends[name] = found
        return Due(ends, over, more)

    def _last_session_end(self, job: Job) -> int:
        """Where the last session can end when nothing more comes."""
        axis, gap = job.shape.axis.column, job.shape.gap or 0
        reached = [source.reached.get(axis, _NEVER) for source in self.progress.sources.values()]
        return max(reached, default=_NEVER) + gap

    def _ends(self, job: Job, spec: WindowSpec, panes: list[int], horizon: int) -> list[int]:
        ends = spec.ends(panes, self._emitted(job, spec), horizon // spec.pane)
        begin, until = job.shape.begin, job.shape.until
        if begin is not None:
            ends = [end for end in ends if end * spec.pane > begin]
        if until is not None:
            ends = [end for end in ends if (end - spec.length) * spec.pane < until]
        return ends

    def waiting(self, name: str) -> tuple[int, int]:
        """Records of a job that no window has answered yet, and the windows they wait for."""
        job = self.jobs[name]
        grid, found = (job.shape.axis.column, job.shape.pane), [(0, 0)]
        for spec in job.windows:
            windows = len(self._ends(job, spec, self.progress.ledger.panes(grid), _EVER))
            if windows:
                after = self._emitted(job, spec)
                found.append((self.progress.ledger.read_since(grid, after), windows))
        return max(found)

    def _note_emitted(self, due: Due) -> None:
        for name, kinds in due.ends.items():
            for spec, ends in zip(self.jobs[name].windows, kinds, strict=True):
                if ends:
                    self.progress.emitted[name, spec.key] = ends[-1] * spec.pane
        for name, (_, upto) in due.sessions.items():
            self.progress.emitted[name, SESSION] = upto

    def _forget(self, emitted: Mapping[str, Emitted]) -> None:
        """Drops what nobody needs any more."""
        self.collection.forget(emitted)
        grids: dict[tuple[str, int], list[int]] = {}
        for shape in self._shapes.values():
            if shape.pane:
                oldest = self._oldest_pane(shape, emitted[shape.id])
                grids.setdefault((shape.axis.column, shape.pane), []).append(oldest)
        for grid, needed in grids.items():
            self.progress.ledger.forget(grid, min(needed))

    def _forget_unbounded(self, horizons: Mapping[str, int | None]) -> None:
        """Drops tallies outside of the bounds of jobs, for which no window will ever leave."""
        bounded = [s for s in self._shapes.values() if s.begin is not None and s.pane]
        if bounded and any(horizons.values()):
            self._passed = {axis: at for axis, at in horizons.items() if at is not None}
            self._forget({shape.id: self.emitted(shape) for shape in self._shapes.values()})

    def _oldest_pane(self, shape: Shape, emitted: Emitted) -> int:
        """The first pane that some window still to come holds, within the shape's bounds."""
        oldest = emitted.oldest_pane
        if shape.begin is None:
            return oldest
        longest = max(spec.length for spec in emitted.windows)
        oldest = max(oldest, shape.begin // shape.pane - longest)
        over = shape.until is not None and self._passed.get(shape.axis.column, _NEVER) >= (
            shape.until + longest * shape.pane
        )
        return _EVER if over else oldest

    def emitted(self, shape: Shape) -> Emitted:
        """Up to which pane the windows of each kind have left, for all jobs of a shape."""
        left: dict[WindowSpec, int | None] = {}
        over: list[int | None] = []
        for job in self.jobs.values():
            if job.shape == shape:
                over.append(self.progress.emitted.get((job.name, SESSION)))
                for spec in job.windows:
                    mine = self._emitted(job, spec)
                    left[spec] = _earlier(mine, left.get(spec, mine))
        return Emitted(left, reduce(_earlier, over))

    def _emitted(self, job: Job, spec: WindowSpec) -> int | None:
        """The pane number up to which a job's windows of one kind have left."""
        end = self.progress.emitted.get((job.name, spec.key))
        return None if end is None else end // spec.pane

    def _dated(self, lane: Lane) -> Lane:
        known = self.progress.sources.get(lane[0].source)
        return (replace(lane[0], since=dict(known.reached) if known else {}), *lane[1:])

    def _horizon(self, axis: str, behind: frozenset[str], now: float, final: bool) -> int | None:
        """The position before which no record is awaited, or None while that is unknown."""
        if final:
            return _EVER
        slack = self.slack_us if axis == TIME.column else 0
        if slack is None:
            return None
        sources = self.progress.sources
        if any(name not in sources or axis not in sources[name].reached for name in behind):
            return None  # its first records are still to be read
        known = {n: s.reached[axis] for n, s in sources.items() if axis in s.reached}
        holding = [at for n, at in known.items() if self._holds(n, behind, now)]
        if holding:
            return min(holding) - slack
        if not self._follow or not known:
            return None
        furthest = max(known.values()) - slack
        # All are silent. A clock that runs ahead must not close windows of the future.
        return min(furthest, int(now * 1_000_000)) if axis == TIME.column else furthest

    def _holds(self, name: str, behind: frozenset[str], now: float) -> bool:
        heard_at = self.progress.sources[name].heard_at
        recent = heard_at is None or now - heard_at <= self._idle_seconds
        return name in behind or (self._follow and recent)

    def _count_late(self, report: Report) -> None:
        """A record is late for a job if at least one window it belongs to leaves it out."""
        for job in self.jobs.values():
            records, behind = report.late.get(job.shape.id, (0, 0))
            if records:
                late = self.progress.late.setdefault(job.name, Lateness())
                late.records += records
                late.slack_us = max(late.slack_us, behind)
            grid = job.shape.axis.column, job.shape.pane
            for tally in report.tallies:
                if (tally.axis, tally.size) == grid and tally.records:
                    missed = list(self._missed(job, tally.pane, tally.not_before))
                    if missed:
                        late = self.progress.late.setdefault(job.name, Lateness())
                        late.records += tally.records
                        if job.shape.axis.is_time:
                            needed = tally.reached - min(missed) * job.shape.pane + 1
                            late.slack_us = max(late.slack_us, needed)

    def _missed(self, job: Job, pane: int, not_before: int | None) -> Iterator[int]:
        for spec in job.windows:
            first = spec.first_end(pane)
            marks = [m for m in (not_before, self._emitted(job, spec)) if m is not None]
            if marks and first <= max(marks):
                yield first


def _earlier(a: int | None, b: int | None) -> int | None:
    """The earlier of two ends, where None is before all."""
    return None if a is None or b is None else min(a, b)


def recipes_of(jobs: Iterable[Job]) -> list[Recipe]:
    """One for each shape, with all kinds of windows that are made of its blocks."""
    windows: dict[Shape, set[WindowSpec]] = {}
    for job in jobs:
        windows.setdefault(job.shape, set()).update(job.windows)
    return [Recipe(shape, tuple(sorted(specs))) for shape, specs in windows.items()]


SESSION = "session"
_EVER = (1 << 62) - 1
_NEVER = -_EVER
