"""A program's plan in words and SQL: what `muntin explain` prints."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from muntin.kernel.statements import compute_sql, consolidate_sql, finish_sql, merge_sql, order_sql
from muntin.language.durations import describe
from muntin.language.layout import laid_out
from muntin.model import Format, Job, Part, Program, Stream

_Row = tuple[str, ...]


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
        f"  format     {_format(stream.format)}",
        f"  timestamp  {stream.timestamp}",
        f"  slack      {describe(stream.slack_us) if stream.slack_us is not None else slack}",
        f"  bad rows   {stream.on_bad_row}",
        "  columns",
        *_table((c.name, c.type) for c in stream.visible_columns()),
    ]
    return "\n".join([*lines, ""])


def explain_job(job: Job) -> str:
    lines = [
        f"JOB {job.name} on {job.stream}",
        f"  window   {describe(job.window.range_us)} every {describe(job.window.slide_us)}",
        f"  pane     {_pane(job)}",
        *([f"  filter   {job.where}"] if job.where else []),
        *_keys(job),
        *(line for index, part in enumerate(job.parts) for line in _cells(index, part)),
        "  columns",
        *_table((o.name, o.type, f"= {o.sql}") for o in job.outputs),
    ]
    for title, sql in (
        ("compute: records to blocks, where records are read", compute_sql(job, marked=False)),
        ("merge: blocks to blocks, anywhere", merge_sql(job)),
        ("finish: blocks to rows, in every key group", finish_sql(job, consolidate_sql(job))),
        ("order: rows of all key groups to results", order_sql(job)),
    ):
        lines += ["", f"  {title}", *laid_out(sql, indent=4)]
    return "\n".join([*lines, ""])


def _format(format_: Format) -> str:
    if format_.kind == "csv":
        header = "with" if format_.header else "without"
        return f"csv {header} header, delimiter {format_.delimiter!r}"
    return f"regex {format_.pattern}" if format_.kind == "regex" else format_.kind


def _pane(job: Job) -> str:
    window = job.window
    panes = f"{window.length} pane{'' if window.length == 1 else 's'}"
    step = f"{window.step} pane{'' if window.step == 1 else 's'}"
    return f"{describe(window.pane_us)}; a window is {panes}, the next starts {step} later"


def _keys(job: Job) -> Iterator[str]:
    if job.keys:
        yield "  keys"
        yield from _table((f"k{i}", key.type, f"= {key.sql}") for i, key in enumerate(job.keys))


def _cells(index: int, part: Part) -> Iterator[str]:
    yield "  cells of a key" if part.sub_key is None else f"  cells of a key and s{index}"
    if part.sub_key is not None:
        yield from laid_out(f"s{index} {part.sub_type} = {part.sub_key}", indent=4)
    if part.where is not None:
        yield from laid_out(f"where {part.where}", indent=4)
    yield from _table((c.name, c.type, c.merge.upper(), f"of {c.sql}") for c in part.cells)


def _table(rows: Iterable[_Row]) -> Iterator[str]:
    """Rows with their columns under each other; the last takes the room it needs."""
    rows = list(rows)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)][:-1]
    for *cells, last in rows:
        padded = [f"{cell:{width}}  " for cell, width in zip(cells, widths, strict=True)]
        yield f"    {''.join(padded)}{last}"
