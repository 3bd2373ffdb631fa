"""What due windows come to: rows of jobs with their counts and scores, less what has failed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pyarrow.compute as pc

from muntin.fidelity.score import C2, FIELDS, NEVER
from muntin.fidelity.timing import Timing
from muntin.kernel.due import Due
from muntin.kernel.kinds import kind_of
from muntin.kernel.statements import SESSION_START
from muntin.model import Counts, Job
from muntin.run.contracts import Answer
from muntin.run.departures import Scores
from muntin.run.due import Agenda
from muntin.run.failures import Failures, Sifted
from muntin.run.progress import SESSION, Progress
from muntin.run.results import Emission, JobWindows, Kind, sessions
from muntin.windows.spec import WindowSpec

Ends = list[list[int]]  # of due windows of one job, one list a kind


def still_leaving(jobs: Mapping[str, Job], failures: Failures, due: Due) -> Due:
    """The due windows of jobs that have not failed before them."""
    ends = {name: _leaving(jobs[name], failures, due) for name in due.ends}
    return replace(due, ends={name: kinds for name, kinds in ends.items() if any(kinds)})


def _leaving(job: Job, failures: Failures, due: Due) -> Ends:
    return [
        [end for end in ends if failures.leaves(job, which, end)]
        for which, ends in enumerate(due.ends.get(job.name, ()))
    ]


def emission_of(agenda: Agenda, answer: Answer, due: Due, scores: Scores) -> Emission:
    """What leaves of an answer: a job that has failed just now keeps its last windows."""
    left: list[JobWindows] = []
    notes: list[str] = []
    failures = agenda.progress.failures
    for name, rows in answer.rows.items():
        job = agenda.catalog.jobs[name]
        sifted = failures.sift(job, rows)
        notes += sifted.notes
        kinds = _leaving(job, failures, due)
        if any(kinds) or name in due.sessions:
            windows = _windows(agenda, job, kinds, sifted, scores)
            if windows.counts:  # of sessions, there may be none that end here
                left.append(windows)
    return Emission(tuple(left), answer.blocks, tuple(notes))


def _windows(agenda: Agenda, job: Job, ends: Ends, sifted: Sifted, scores: Scores) -> JobWindows:
    if not kind_of(job.shape).has_panes:
        began = agenda.progress.began.get((job.name, SESSION), NEVER)
        whole = sifted.rows.filter(pc.greater_equal(sifted.rows[SESSION_START], began))
        board = agenda.board(job.shape.axis.column, 1, shape=job.shape.id)
        return sessions(job, whole, board)
    kinds: list[Kind] = [(which, end) for which, kind in enumerate(ends) for end in kind]
    mine = {(which, end): scores[job.name, which, end] for which, end in kinds}
    counts, revisions = {}, {}
    for (which, end), c2 in list(mine.items()):
        spec = job.windows[which]
        read = _counts(agenda.progress, job, spec, end, c2)
        failed = agenda.progress.failures.records(job, which, end, c2)
        failed += sifted.failed.get((which, end), 0)
        # Of a key that failed its values count, of which a record may have given several.
        counts[which, end] = replace(read, failed=min(failed, read.read))
        revisions[which, end] = agenda.departures.revision(job, spec, end)
        mine[which, end] = _counted(agenda.progress, job, spec, end, c2)
    return JobWindows(job, sifted.rows, counts, mine, revisions)


def _counts(progress: Progress, job: Job, spec: WindowSpec, end: int, c2: C2) -> Counts:
    """Records read, bad and late of what a window is made of."""
    ledger, axis = progress.ledger, job.shape.axis.column
    if c2.only is not None or job.shape.sample is not None:
        counts = ledger.counts_of(axis, spec, end, c2.names, c2.inside)
    else:
        counts = ledger.counts(axis, spec, end)
    return counts if job.shape.revise_us is None else replace(counts, late=0)


def _counted(progress: Progress, job: Job, spec: WindowSpec, end: int, c2: C2) -> C2:
    """The score with the records of each of its fields, if these are not too many to be told."""
    if len(c2.names) * (end - spec.start(end)) > FIELDS:
        return c2
    records = progress.ledger.records_of(job.shape.axis.column, spec, end, c2.names)
    if c2.only is not None or job.shape.sample is not None:
        records = (np.array(records) * c2.inside).tolist()
    return replace(c2, records=records)


def note_timing(progress: Progress, emission: Emission, now: float, agenda: Agenda) -> None:
    """Takes what leaves into the measures of how late and how complete results are."""
    times = agenda.times
    for windows in emission.windows:
        timing = progress.timings.setdefault(windows.job.name, Timing())
        within = windows.job.bounds.within_us
        for kind, c2 in windows.scores.items():
            if windows.revisions.get(kind):
                continue
            end = windows.bounds(kind)[1]
            lived = windows.job.shape.axis.is_time and end + (within or 0) > times.started_us
            lag = int(now * 1e6) - end if lived and times.follow else None
            timing.add(c2.area, lag, within)
