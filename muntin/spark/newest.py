"""The newest results that are stored, for jobs that look at them from the start of a run on."""

from __future__ import annotations

from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from muntin.fidelity.score import Reason
from muntin.run.loop import Loop
from muntin.store.results import Results


def catch_up(loop: Loop, results: Results) -> None:
    """Has jobs know the newest results of others, as far as they are stored."""
    jobs = loop.catalog.jobs.values()
    for title in dict.fromkeys(name for job in jobs for name in job.latest):
        if results.has(title):
            loop.hear(title, partial(_finished, results, title))


def left(rows: pa.Table) -> pa.Table:
    """Stored rows without those of windows that were open when they were shown."""
    return rows.filter(pc.not_equal(pc.struct_field(rows["c2"], "reason"), Reason.OPEN))


def _finished(results: Results, job: str) -> list[pa.Table]:
    """The newest results of each of a job's windows; those that are open do not count."""
    newest = results.read(job, latest=True)
    finished = left(newest)
    return [finished if finished.num_rows == newest.num_rows else left(results.read(job))]
