"""A program's plan in words and SQL: what `muntin explain` prints."""

from __future__ import annotations

from collections.abc import Iterator

from muntin.kernel.statements import compute_sql, consolidate_sql, finish_sql, merge_sql, order_sql
from muntin.language.durations import describe
from muntin.model import Job, Program, Stream


def explain(program: Program) -> str:
    """Each stream, and each job with its pane, cells and statements."""
    parts = [
        *map(explain_stream, program.streams.values()),
        *map(explain_job, program.jobs.values()),
    ]
    return "\n".join(parts)


def explain_stream(stream: Stream) -> str:
    slack = "none: nothing is late on finite input, and live logs allow no disorder"
    lines = [
        f"STREAM {stream.name}",
        f"  files      {', '.join(stream.patterns)}",
        f"  format     {stream.format.kind}",
        f"  timestamp  {stream.timestamp}",
        f"  slack      {describe(stream.slack_us) if stream.slack_us is not None else slack}",
        f"  bad rows   {stream.on_bad_row}",
        "  columns    " + ", ".join(f"{c.name} {c.type}" for c in stream.visible_columns()),
    ]
    return "\n".join([*lines, ""])


def explain_job(job: Job) -> str:
    window = job.window
    lines = [
        f"JOB {job.name} on {job.stream}",
        f"  window   {describe(window.range_us)} every {describe(window.slide_us)}",
        f"  pane     {describe(window.pane_us)}: {window.length} to a window, "
        f"{window.step} from one window to the next",
        *_cells(job),
    ]
    consolidated = consolidate_sql(job)
    for title, sql in (
        ("compute: records to blocks, in every task", compute_sql(job, marked=False)),
        ("merge: blocks to blocks, anywhere", merge_sql(job)),
        (
            "finish: blocks to rows of due windows, in every key group",
            finish_sql(job, consolidated),
        ),
        ("order: rows of all key groups to results", order_sql(job)),
    ):
        lines += ["", f"  {title}", *("    " + line for line in sql.splitlines())]
    return "\n".join([*lines, ""])


def _cells(job: Job) -> Iterator[str]:
    for index, key in enumerate(job.keys):
        yield f"  key      k{index} {key.type} = {key.sql}"
    for index, part in enumerate(job.parts):
        if part.sub_key is not None:
            yield f"  sub-key  s{index} {part.sub_type} = {part.sub_key}"
        for cell in part.cells:
            yield f"  cell     {cell.name} {cell.type} = {cell.sql}, merged by {cell.merge.upper()}"
