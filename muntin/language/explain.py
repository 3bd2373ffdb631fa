"""A program's plan in words and SQL: what `muntin explain` prints."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from muntin.kernel.kinds import kind_of
from muntin.kernel.plan import Plan, hasty, plan_of, skipping
from muntin.kernel.python.code import methods_of
from muntin.language.layout import laid_out
from muntin.model import Format, Job, Part, Program, Shape, Stream, Table
from muntin.units import describe, describe_extent, describe_time, describe_window
from muntin.windows.choice import Choice
from muntin.windows.spec import WindowSpec

_Row = tuple[str, ...]


def explain(program: Program, choices: Mapping[str, Choice] | None = None) -> str:
    """Each stream, and each job with its windows, cells and statements."""
    windows: dict[tuple[str, str], set[WindowSpec]] = {}
    for job in program.jobs.values():
        windows.setdefault((job.stream, job.shape.id), set()).update(job.windows)
    texts = [*map(explain_stream, program.streams.values())]
    for job in program.jobs.values():
        shared = tuple(sorted(windows[job.stream, job.shape.id], key=lambda spec: spec.key))
        texts.append(explain_plan(plan_of(job, shared, (choices or {}).get(job.shape.id))))
        notes = hasty(job, program.streams[job.stream].slack_us), skipping(job)
        texts += [f"note: {note}\n" for note in notes if note is not None]
    return "\n".join(texts)


def explain_stream(stream: Stream) -> str:
    slack = "none: nothing is late on finite input, and live logs allow no disorder"
    lines = [
        f"STREAM {stream.name}",
        f"  {_places(stream)}",
        f"  format     {_format(stream.format)}",
        f"  timestamp  {stream.timestamp}{_spans(stream)}",
        f"  slack      {describe(stream.slack_us) if stream.slack_us is not None else slack}",
        f"  bad rows   {stream.on_bad_row}",
        "  columns",
        *_table((c.name, c.type) for c in stream.visible_columns()),
    ]
    return "\n".join([*lines, ""])


def explain_plan(plan: Plan) -> str:
    """A plan in words, with the statement of every operator that has one."""
    job, shape = plan.job, plan.shape
    lines = [
        f"JOB {job.name} on {job.stream}",
        *_code(shape),
        *_windows(plan),
        *_bounds(shape),
        *_leaves(job),
        f"  errors   {_errors(job.max_errors)}",
        *_sharing(plan),
        *(f"  join     {_table_of(j.table)}, on {j.on}" for j in shape.joins),
        *(f"  unnest   {u.column} {u.type} of {u.sql}" for u in shape.lists),
        *([f"  filter   {shape.where}"] if shape.where else []),
        *_partials(shape),
        *_around(job),
        "  columns",
        *_table((o.name, o.type, f"= {o.sql}" if o.sql else "") for o in job.outputs),
    ]
    for operator in plan.operators:
        sql = [] if operator.sql is None else laid_out(operator.sql, indent=4)
        lines += ["", f"  {operator}", *sql]
    return "\n".join([*lines, ""])


def _around(job: Job) -> Iterator[str]:
    """The columns that the finish has of the core, in the user's words, and its tables."""
    if job.around is not None:
        yield "  core, for the finish"
        yield from _table(job.around.words)
        yield from (f"  table    {_table_of(table)}" for table in job.around.tables)


def _table_of(table: Table) -> str:
    return f"{table.name} ({table.kind} {table.path})"


def _code(shape: Shape) -> Iterator[str]:
    code = shape.code
    if code is not None:
        sent = "imported by name" if code.payload is None else "sent to workers by value"
        yield f"  python   {code.reference}, {sent}"
        yield f"  methods  {', '.join(methods_of(code))}"
        yield f"  given    {code.takes[0] if code.lines else ', '.join(code.takes)}"
        if code.where:
            yield f"  filter   {code.where}"


def _partials(shape: Shape) -> Iterator[str]:
    if kind_of(shape).has_cells:
        yield from _keys(shape)
        for index, part in enumerate(shape.parts):
            yield from _cells(index, part)


def _windows(plan: Plan) -> Iterator[str]:
    job, axis = plan.job, plan.shape.axis
    headline = kind_of(plan.shape).headline()
    if headline is not None:
        yield f"  {headline}"
        return
    yield f"  pane     {describe_extent(axis, job.shape.pane)}"
    yield "  windows"
    rows = []
    for spec in job.windows:
        panes = f"{spec.length} pane{'' if spec.length == 1 else 's'}"
        stride = f"the next {spec.stride} pane{'' if spec.stride == 1 else 's'} later"
        extent = f"{panes}, {stride}" if spec.regular else f"at most {panes}"
        rows.append((describe_window(axis, spec), extent, plan.algorithm(spec)))
    yield from _table(rows)


def _bounds(shape: Shape) -> Iterator[str]:
    if shape.begin is not None:
        until = f", before {_position(shape, shape.until)}" if shape.until is not None else ""
        yield f"  bounds   from {_position(shape, shape.begin)} on{until}"


def _leaves(job: Job) -> Iterator[str]:
    """When windows may leave before they are complete."""
    bounds = job.bounds
    if bounds.within_us is not None:
        share = "" if bounds.at == 1 else f", for {bounds.at:.4g} of the results"
        yield f"  within   {describe(bounds.within_us)} after a window's end{share}"
    if bounds.fidelity is not None:
        yield f"  fidelity {100 * bounds.fidelity:.4g} % {_FORMS[bounds.form]}"
    if bounds.leap:
        yield "  leap     over sources that are two panes behind the middle one"
    if bounds.revise_us is not None:
        yield f"  revise   for {describe(bounds.revise_us)}, when late records come"


def _errors(limit: int) -> str:
    """How much a job puts up with."""
    if limit == 0:
        return "none is allowed: the first stops the job"
    return f"{limit:,} {'is' if limit == 1 else 'are'} allowed; one more stops the job"


_FORMS = {
    "area": "of the panes of all sources, whichever come first",
    "sampled": "of each source's panes, chosen by a hash of the job, the source and the pane",
    "space": "of the panes, each from all sources",
    "time": "of the sources, with all their panes",
}


def _position(shape: Shape, at: int) -> str:
    """A point on the axis as it is written behind BEGIN."""
    return describe_time(at) if shape.axis.is_time else str(at)


def _spans(stream: Stream) -> str:
    return f" to {stream.until}, by {stream.spans}" if stream.spans else ""


def _sharing(plan: Plan) -> Iterator[str]:
    kind = kind_of(plan.shape)
    if kind.has_panes and kind.has_cells:
        yield f"  sharing  {plan.sharing}: {plan.reason}"


def _places(stream: Stream) -> str:
    if stream.agents:
        return f"agents     {', '.join(stream.agents)}"
    return f"files      {', '.join(stream.patterns)}"


def _format(format_: Format) -> str:
    if format_.kind == "csv":
        header = "with" if format_.header else "without"
        return f"csv {header} header, delimiter {format_.delimiter!r}"
    return f"regex {format_.pattern}" if format_.kind == "regex" else format_.kind


def _keys(shape: Shape) -> Iterator[str]:
    if shape.keys:
        yield "  keys"
        yield from _table((f"k{i}", key.type, f"= {key.sql}") for i, key in enumerate(shape.keys))


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
        yield f"    {''.join(padded)}{last}".rstrip()
