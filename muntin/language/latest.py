"""`LATEST(x)`: the newest result of a job as a table, for the queries of other jobs.

It is a table with versions like that of a file: a run makes one of each result that has left, and
says from which pane on it is joined.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sqlglot import exp

from muntin.language.cycles import Ahead, Expected
from muntin.language.messages import nearest
from muntin.language.script import Script
from muntin.model.jobs import Job
from muntin.model.streams import Stream
from muntin.model.tables import OF_JOB, Table
from muntin.units import window_meant


def is_latest(node: exp.Expr) -> bool:
    """Whether FROM reads LATEST(job)."""
    if not isinstance(node, exp.Table) or not isinstance(node.this, exp.Anonymous):
        return False
    return str(node.this.name).lower() == "latest"


def latest_name(node: exp.Expr) -> str:
    """What the table of a call is called; calls that say the same mean the same."""
    said = "_".join(str(each.name).lower() for each in node.this.expressions)
    return f"__latest_{said}"


def latest_tables(
    script: Script,
    query: exp.Expr,
    jobs: Mapping[str, Job],
    ahead: Ahead,
    streams: Mapping[str, Stream],
) -> dict[str, Table]:
    """The tables that a query calls for, by name.

    Jobs over these streams that are not defined yet are named `ahead`.
    """
    return dict(_tables(script, query, jobs, ahead, streams))


def _asked(node: exp.Expr) -> str:
    given = node.this.expressions
    return str(given[0].name).lower() if given else ""


def _tables(
    script: Script,
    query: exp.Expr,
    jobs: Mapping[str, Job],
    ahead: Ahead,
    streams: Mapping[str, Stream],
) -> Iterator[tuple[str, Table]]:
    known = {name.lower(): job for name, job in jobs.items()}
    for node in query.find_all(exp.Table):
        if not is_latest(node):
            continue
        given = node.this.expressions
        if not 1 <= len(given) <= 2:
            message = "expected the name of a job, and which of its windows: LATEST(x, '1 hour')"
            raise script.error(message, node.this, node)
        job, name = known.get(_asked(node)), str(given[0].name)
        expected = ahead.find(script, name, node.this, streams) if job is None else Expected.of(job)
        if expected is None:
            hint = nearest(name, jobs, "no job is defined here")
            raise script.error(f"unknown job '{name}'; {hint}", given[0], node.this)
        if not expected.of_time:
            message = f"windows of job '{name}' are no spans of time, so no result is the newest"
            raise script.error(message, given[0], node.this)
        name, windows = name if job is None else job.title, expected.windows
        wanted = given[1].name if len(given) == 2 else ""
        if wanted and windows:
            meant = window_meant(wanted, windows)
            if meant is None:
                hint = nearest(wanted, windows, "it has none")
                raise script.error(f"job '{name}' has no window '{wanted}'; {hint}", given[1])
            wanted = meant
        if not wanted and len(windows) > 1:
            said = f"LATEST({name}, '{windows[0]}')"
            message = f"job '{name}' has several windows; say of which, as in {said}"
            raise script.error(message, node.this, node)
        path = f"{name}: {wanted or windows[0]}" if windows else name
        yield latest_name(node), Table(latest_name(node), path, OF_JOB, expected.columns)
