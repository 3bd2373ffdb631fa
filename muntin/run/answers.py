"""What due windows come to: rows of jobs with their counts and scores, less what has failed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from muntin.fidelity.score import C2, FIELDS, NEVER, Mask, Reason
from muntin.fidelity.timing import Timing
from muntin.kernel.due import Due
from muntin.kernel.reading import Cost
from muntin.model.counts import Counts
from muntin.model.jobs import Job
from muntin.model.shapes import Sample
from muntin.run.catalog import Catalog
from muntin.run.contracts import Answer
from muntin.run.departures import Scores
from muntin.run.digests import digests_of
from muntin.run.due import Agenda
from muntin.run.failures import Failures, Met
from muntin.run.many import Waiting, WaitingWindows
from muntin.run.progress import SESSION, Progress
from muntin.run.results import (
    Departing,
    Emission,
    JobWindows,
    Kind,
    no_windows,
)
from muntin.run.sessions import StoredSessions, Verdict, WaitingSessions
from muntin.windows.spec import WindowSpec

Ends = list[list[int]]  # of due windows of one job, one list a kind
_Windows = JobWindows | WaitingWindows


@dataclass
class _Known:
    """What jobs with the same windows share."""

    scores: dict[tuple[int, int, int, Sample | None], C2] = field(default_factory=dict)
    """With records, by a score that is kept meanwhile."""
    counts: dict[tuple[str, WindowSpec, int], Counts] = field(default_factory=dict)


def still_leaving(jobs: Mapping[str, Job], failures: Failures, due: Due) -> Due:
    """The due windows of jobs that have not failed before them."""
    ends = {name: _leaving(jobs[name], failures, due) for name in due.ends}
    return replace(due, ends={name: kinds for name, kinds in ends.items() if any(kinds)})


def _leaving(job: Job, failures: Failures, due: Due) -> Ends:
    return [
        [end for end in ends if failures.leaves(job, which, end)]
        for which, ends in enumerate(due.ends.get(job.name, ()))
    ]


def emission_of(
    agenda: Agenda, answer: Answer, due: Due, scores: Scores, shed: Scores | None = None
) -> Emission:
    """What leaves of an answer: a job that has failed just now keeps its last windows.

    Windows that are `shed` leave with nothing but their scores.
    """
    left: list[Departing] = []
    notes: list[str] = []
    failures = agenda.progress.failures
    known = _Known()
    for name, rows in answer.rows.items():
        job = agenda.catalog.jobs[name]
        shown = {(which, end) for of, which, end in due.open if of == name}
        if isinstance(rows, pa.Table):
            rows, met = failures.sift(job, rows, shown)
        else:
            met = failures.meet(job, rows.faults, shown)
        notes += met.notes
        kinds = _leaving(job, failures, due)
        if name in due.sessions:
            assert isinstance(rows, pa.Table), name
            windows = _verdict(agenda, job).sessions(job, rows)
            if windows.counts:  # there may be none that end here
                left.append(windows)
        elif any(kinds):
            leaving = _windows(agenda, job, kinds, rows, met, scores, known)
            if shown:
                made = digests_of(rows) if isinstance(rows, pa.Table) else rows.digests
                leaving = _changed(agenda, leaving, shown, made)
            if leaving.counts:
                left.append(leaving)
            elif not isinstance(rows, pa.Table):
                rows.let_go()
        elif not isinstance(rows, pa.Table):
            rows.let_go()
    for name, waiting in answer.sessions.items():
        job = agenda.catalog.jobs[name]
        notes += failures.meet(job, waiting.faults).notes
        left.append(WaitingSessions(job, waiting, _verdict(agenda, job)))
    return Emission(tuple(_with_shed(agenda, left, shed or {})), answer.to_save, tuple(notes))


def _changed(
    agenda: Agenda, windows: _Windows, shown: set[Kind], made: Mapping[Kind, str]
) -> _Windows:
    """The windows without those that are only shown, and are as they were shown last.

    By digests of the rows that were `made`.
    """
    same = [
        kind
        for kind in shown & windows.counts.keys()
        if not agenda.departures.show(windows.job, *kind, made.get(kind, ""))
    ]
    return windows.without(same)


def _with_shed(agenda: Agenda, left: Sequence[Departing], shed: Scores) -> list[Departing]:
    by_job: dict[str, dict[Kind, C2]] = {}
    for (name, which, end), c2 in shed.items():
        by_job.setdefault(name, {})[which, end] = c2
    known = {windows.job.name: windows for windows in left}
    for name, scores in by_job.items():
        windows = known.get(name) or no_windows(agenda.catalog.jobs[name])
        known[name] = windows.with_scores({**scores, **windows.scores})
    return list(known.values())


def _verdict(agenda: Agenda, job: Job) -> Verdict:
    times = agenda.times
    return Verdict(
        agenda.board(job.shape.axis.column, 1, shape=job.shape.id),
        agenda.progress.began.get((job.name, SESSION), NEVER),
        job.term.before,
        agenda.progress.failures.stopped_at(job.name),
        times.started_us - (job.bounds.within_us or 0) if times.follow else None,
    )


def _windows(
    agenda: Agenda,
    job: Job,
    ends: Ends,
    rows: pa.Table | Waiting,
    met: Met,
    scores: Scores,
    known: _Known,
) -> _Windows:
    mine: dict[Kind, C2] = {}
    counts: dict[Kind, Counts] = {}
    revisions: dict[Kind, int] = {}
    failures, name, sample = agenda.progress.failures, job.name, job.shape.sample
    has_failed = name in failures.dropped or bool(met.failed)
    for which, (spec, kind) in enumerate(zip(job.windows, ends, strict=False)):
        revision = agenda.departures.revisions(job, spec)
        for end in kind:
            c2 = scores[name, which, end]
            read = _counts(agenda.progress, job, spec, end, c2, known)
            if has_failed:
                failed = failures.records(job, which, end, c2) + met.failed.get((which, end), 0)
                # Of a key that failed its values count, of which a record may have given several.
                read = replace(read, failed=min(failed, read.read))
            counts[which, end] = read
            revisions[which, end] = revision(end)
            if agenda.catalog.stream.job is None:  # rows of results are of all sources together
                # Jobs that share a score share what is told with it.
                asked = id(c2), spec.start(end), end, sample
                told = known.scores.get(asked)
                if told is None:
                    told = known.scores[asked] = _counted(agenda.progress, job, spec, end, c2)
                c2 = told
            mine[which, end] = c2
    if isinstance(rows, pa.Table):
        return JobWindows(job, rows, counts, mine, revisions)
    return WaitingWindows(job, rows, counts, mine, revisions)


def _counts(
    progress: Progress, job: Job, spec: WindowSpec, end: int, c2: C2, known: _Known
) -> Counts:
    """Records read, bad and late of what a window is made of."""
    ledger, axis = progress.ledger, job.shape.axis.column
    if _is_part(job, c2):
        counts = ledger.counts_of(axis, spec, end, c2.names, _inside(job, c2))
    elif (found := known.counts.get((axis, spec, end))) is not None:
        counts = found
    else:
        counts = known.counts[axis, spec, end] = ledger.counts(axis, spec, end)
    return counts if job.shape.revise_us is None else replace(counts, late=0)


def _counted(progress: Progress, job: Job, spec: WindowSpec, end: int, c2: C2) -> C2:
    """The score with the records of each of its fields, if these are not too many to be told."""
    if len(c2.names) * (end - spec.start(end)) > FIELDS:
        return c2
    records = progress.ledger.records_of(job.shape.axis.column, spec, end, c2.names)
    if _is_part(job, c2):
        records = (np.array(records) * _inside(job, c2)).tolist()
    return replace(c2, records=records)


def _is_part(job: Job, c2: C2) -> bool:
    """Whether a window is made of a part of what was read of it."""
    since = job.shape.since
    emptied = since is not None and c2.start * job.shape.pane < since
    return c2.only is not None or job.shape.sample is not None or emptied


def _inside(job: Job, c2: C2) -> Mask:
    """Which sources and panes a window is made of."""
    since = job.shape.since
    if since is None:
        return c2.inside
    inside: Mask = c2.inside & (np.arange(c2.start, c2.end) >= since // job.shape.pane)
    return inside


def note_seconds(progress: Progress, jobs: Mapping[str, Job], seconds: Mapping[str, float]) -> None:
    """Takes how long answers of jobs took."""
    for name, took in seconds.items():
        progress.timings.setdefault(jobs[name].unversioned, Timing()).seconds += took


def computing(catalog: Catalog, costs: Mapping[str, Cost]) -> dict[str, float]:
    """By job, how long it took to compute what was read; jobs of one shape share that."""
    shared = {shape: catalog.by_shape.get(shape, ()) for shape in costs}
    return {job.name: costs[s].seconds / len(jobs) for s, jobs in shared.items() for job in jobs}


def note_timing(
    progress: Progress, emission: Emission, now: float, agenda: Agenda, computed: Counter[str]
) -> None:
    """Takes what leaves into the measures of how late and how complete results are.

    What jobs have `computed` since the last of their windows is taken out of there.
    """
    times = agenda.times
    for windows in emission.windows:
        name = windows.job.unversioned
        timing = progress.timings.setdefault(name, Timing())
        timing.computing += computed.pop(windows.job.name, 0.0)
        job, within = windows.job, windows.job.bounds.within_us
        if isinstance(windows, StoredSessions):
            progress.timings[name] = timing.plus(windows.totals.timing)
            continue
        for kind, c2 in windows.scores.items():
            if c2.reason is Reason.OPEN or (
                windows.revisions.get(kind) and agenda.departures.is_again(job, *kind)
            ):
                continue
            lag = None
            if times.follow and job.shape.axis.is_time:
                end = windows.bounds(kind)[1]
                lag = int(now * 1e6) - end if end + (within or 0) > times.started_us else None
            timing.leave(c2, lag, within)
