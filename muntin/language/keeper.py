"""What streams keep of their records, for questions: RETAIN … OF STREAM."""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp

from muntin.kernel.engine import quote
from muntin.language.messages import nearest
from muntin.language.over import duration_of
from muntin.language.script import Script
from muntin.model.jobs import Job
from muntin.model.streams import Keep, Stream

Streams = Mapping[str, Stream]
Jobs = Mapping[str, Job]


def keep_of(script: Script, node: exp.Expr, stream: Stream) -> Keep | None:
    """What a stream keeps of its records: the columns that are named, or all, and their times."""
    clause = node.args.get("retain")
    if clause is None:
        return None
    length = duration_of(script, clause.this)
    if length <= 0:
        raise script.error("RETAIN must be longer than zero", clause.this)
    if stream.until is not None:
        message = (
            f"records BY {str(stream.spans).upper()} are at several times, and RETAIN keeps each "
            "at one; declare the stream's spans BY START or BY END"
        )
        raise script.error(message, clause.this)
    known = {column.name.lower(): column.name for column in stream.visible_columns()}
    named: list[str] = []
    for each in clause.args.get("columns") or ():
        name = known.get(each.name.lower())
        if name is None:
            hint = nearest(each.name, known.values(), "it has none")
            message = f"stream '{stream.name}' has no column '{each.name}' to keep; {hint}"
            raise script.error(message, each)
        if name in named:
            raise script.error(f"column '{name}' is there twice", each)
        named.append(name)
    times = [name for name in known.values() if quote(name) in stream.timestamp]
    return Keep(tuple(dict.fromkeys([*(named or known.values()), *times])), length)


def check_name(script: Script, node: exp.Expr, streams: Streams, jobs: Jobs) -> None:
    """Refuses a stream or a job that is retained under the name of another: who is asked then?"""
    title = node.name.lower()
    kept = any(s.keep is not None and s.name.lower() == title for s in streams.values())
    if kept and any(j.retain_us is not None and j.title.lower() == title for j in jobs.values()):
        message = (
            f"a stream and a job '{node.name}' are both retained, and a question could mean "
            "either; call one of them otherwise"
        )
        raise script.error(message, node.this)
