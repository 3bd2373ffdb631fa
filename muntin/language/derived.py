"""`FROM JOB x`: the rows of another job's results as a stream of records.

A row counts at the end of its window, in the last microsecond that the window holds: so an hour
of results is made of the windows that end in it.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from muntin.kernel.engine import quote
from muntin.kernel.kinds import kind_of
from muntin.language.script import Script
from muntin.language.sources import OF_JOB
from muntin.model.jobs import Job
from muntin.model.records import Column
from muntin.model.streams import Format, Stream

START, END, WINDOW, AREA = "result_start", "result_end", "result_window", "result_area"
_TIME = "TIMESTAMP WITH TIME ZONE"
_OF_RESULTS = (Column(START, _TIME), Column(END, _TIME), Column(WINDOW, "VARCHAR"),
               Column(AREA, "DOUBLE"))  # fmt: skip


def stream_name(table: exp.Table) -> str:
    """The name of the stream that a table of FROM stands for."""
    return results_of(table.name) if table.meta.get(OF_JOB) else str(table.name)


def results_of(job: str) -> str:
    """What the stream of a job's results is called; no declared stream can have that name."""
    return f"JOB {job}"


def result_columns(job: Job) -> tuple[Column, ...]:
    """The columns of a job's rows, and those that tell the result they are of."""
    return with_results([Column(output.name, output.type) for output in job.outputs])


def with_results(columns: Sequence[Column]) -> tuple[Column, ...]:
    """Columns of rows, and those that tell the result they are of."""
    taken = {column.name.lower() for column in columns}
    return (*columns, *(column for column in _OF_RESULTS if column.name not in taken))


def stream_of(script: Script, job: Job, place: exp.Expr) -> Stream:
    """The results of a job as a stream."""
    if not job.shape.axis.is_time:
        message = f"windows of job '{job.name}' are no spans of time, so its results have none"
        raise script.error(message, place)
    if job.bounds.revise_us is not None:
        message = f"results of job '{job.name}' may be revised, and what was counted of them not"
        raise script.error(f"{message}; leave out REVISE there", place)
    if not kind_of(job.shape).has_windows:
        message = f"job '{job.name}' has no windows, so nobody knows when its results are complete"
        raise script.error(message, place)
    return Stream(
        name=results_of(job.name),
        patterns=(),
        format=Format("parquet"),
        columns=result_columns(job),
        timestamp=f"{quote(END)} - INTERVAL 1 MICROSECOND",
        job=job.name,
    )
