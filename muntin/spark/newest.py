"""The newest results that are stored, for jobs that look at them from the start of a run on."""

from __future__ import annotations

from functools import partial

import pyarrow as pa

from muntin.run.loop import Loop
from muntin.store.results import Results


def catch_up(loop: Loop, results: Results) -> None:
    """Has jobs know the newest results of others, as far as they are stored."""
    jobs = loop.catalog.jobs.values()
    for title in dict.fromkeys(name for job in jobs for name in job.latest):
        if results.has(title):
            loop.hear(title, partial(_finished, results, title))


def _finished(results: Results, job: str) -> list[pa.Table]:
    """The newest results of each of a job's windows; those that are open do not count."""
    return [results.read(job, latest=True, final=True)]
