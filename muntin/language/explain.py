"""A program's plan in words and SQL: what `muntin explain` prints."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from muntin.kernel.around import looks_back
from muntin.kernel.forms import finished_as, merged_as
from muntin.kernel.kinds import kind_of
from muntin.kernel.plan import Plan, brief, hasty, plan_of, skipping
from muntin.kernel.python.code import methods_of
from muntin.kernel.together import WORTH_SHARING, is_shared, passes
from muntin.language.cycles import cycles
from muntin.language.layout import laid_out
from muntin.model.jobs import Job, Program
from muntin.model.shapes import Part, Shape
from muntin.model.streams import Format, Stream
from muntin.model.tables import OF_JOB, Table
from muntin.units import describe, describe_extent, describe_time, describe_window
from muntin.windows.choice import Choice
from muntin.windows.spec import WindowSpec

_Row = tuple[str, ...]
_NAMED = 5  # jobs that share something


def explain(program: Program, choices: Mapping[str, Choice] | None = None) -> str:
    """Each stream, and each job with its windows, cells and statements."""
    windows: dict[tuple[str, str], set[WindowSpec]] = {}
    for job in program.jobs.values():
        windows.setdefault((job.stream, job.shape.id), set()).update(job.windows)
    texts = [*map(explain_stream, program.streams.values())]
    company = {stream: _Groups.made(program.jobs_of(stream)) for stream in program.streams}
    circles = cycles(program)
    for job in program.jobs.values():
        shared = tuple(sorted(windows[job.stream, job.shape.id], key=lambda spec: spec.key))
        plan = plan_of(job, shared, (choices or {}).get(job.shape.id))
        ways = [way for way in circles if job.title in way]
        texts.append(explain_plan(plan, company[job.stream].of(job), ways))
        notes = hasty(job, program.streams[job.stream].slack_us), skipping(job), brief(job)
        texts += [f"note: {note}\n" for note in notes if note is not None]
    return "\n".join(texts)


@dataclass(frozen=True)
class Company:
    """The jobs with which one shares blocks, the pass over records, merging, and finishing.

    `apart` says why it has a statement of its own over records, where others read them too.
    """

    blocks: Sequence[str] = ()
    passing: Sequence[str] = ()
    merging: Sequence[str] = ()
    finishing: Sequence[str] = ()
    apart: str | None = None


ALONE = Company()


@dataclass(frozen=True)
class _Groups:
    """The jobs of a stream by what they share."""

    jobs: Mapping[str, Job]
    together: frozenset[str]  # shapes

    @classmethod
    def made(cls, jobs: Sequence[Job]) -> _Groups:
        return cls({job.name: job for job in jobs}, passes(job.shape for job in jobs))

    def of(self, job: Job) -> Company:
        """The others of a job's groups; whoever has the same blocks shares all that becomes of
        them, and is told of once.
        """
        own, form, windows = job.shape.id, merged_as(job), finished_as(job)
        others = [each for each in self.jobs.values() if each.shape.id != own]
        passing = [each for each in others if {own, each.shape.id} <= self.together]
        merging = [each for each in others if form is not None and merged_as(each) == form]
        finishing = [
            each
            for each in self.jobs.values()
            if each is not job and windows is not None and finished_as(each) == windows
        ]
        blocks = [each for each in self.jobs.values() if each.shape.id == own and each is not job]
        return Company(
            _names(blocks), _names(passing), _names(merging), _names(finishing),
            self._apart(job) if others and not passing else None,
        )  # fmt: skip

    def _apart(self, job: Job) -> str:
        if not is_shared(job.shape):
            return "its keys and cells are none that arrays hold"
        alike = len({each.shape.id for each in self.jobs.values() if is_shared(each.shape)})
        return (
            f"of queries that could share one there are {alike}, and {WORTH_SHARING} are worth it"
        )


def _names(jobs: Iterable[Job]) -> list[str]:
    return [job.name for job in jobs]


def explain_stream(stream: Stream) -> str:
    columns = ["  columns", *_table((c.name, c.type) for c in stream.visible_columns()), ""]
    if stream.members:
        members = f"  members    {', '.join(member.name for member in stream.members)}"
        return "\n".join([f"STREAM {stream.name}", members, *columns])
    if stream.job is not None:
        told = f"results of job {stream.job}; a row counts at the end of its window"
        return "\n".join([f"STREAM {stream.name}", f"  {told}", *columns])
    slack = "none: nothing is late on finite input, and live logs allow no disorder"
    lines = [
        f"STREAM {stream.name}",
        f"  {_places(stream)}",
        f"  format     {_format(stream.format)}",
        f"  timestamp  {stream.timestamp}{_spans(stream)}",
        f"  slack      {describe(stream.slack_us) if stream.slack_us is not None else slack}",
        f"  bad rows   {stream.on_bad_row}",
        *_kept(stream),
    ]
    return "\n".join([*lines, *columns])


def _kept(stream: Stream) -> Iterator[str]:
    """What is kept of the records, for questions."""
    if stream.keep is not None:
        told = f"{', '.join(stream.keep.columns)} of every record for {describe(stream.keep.us)}"
        yield f"  retain     {told}: `muntin ask` answers from them"


def explain_plan(plan: Plan, company: Company = ALONE, ways: Iterable[Sequence[str]] = ()) -> str:
    """A plan in words, with the statement of every operator that has one.

    It shares work with the jobs of its `company`. By some `ways` it uses its own results.
    """
    job, shape = plan.job, plan.shape
    lines = [
        f"JOB {job.name} on {job.stream}",
        *_code(shape),
        *_windows(plan),
        *_bounds(shape),
        *_leaves(job),
        f"  errors   {_errors(job.max_errors)}",
        *_sharing(plan),
        *_company(company),
        *_cycles(job.title, ways),
        *(f"  join     {_table_of(j.table)}, on {j.on}" for j in shape.joins if not j.is_aside),
        *(f"  look-up  {lookup.column}: {lookup.words}" for lookup in shape.lookups),
        *(f"           in {_table_of(j.table)}" for j in shape.joins if j.is_aside),
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
        streams = dict(job.around.reads)
        yield from _table(
            (name, streams[name], words) if streams else (name, words)
            for name, words in job.around.words
        )
        yield from (f"  table    {_table_of(table)}" for table in job.around.tables)
    if looks_back(job):
        yield "  previous the rows of the result one step earlier, none if there was none"


def _table_of(table: Table) -> str:
    if table.kind == OF_JOB:
        return f"the newest result of job {table.path}"
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
    if job.retain_us is not None:
        yield f"  retain   panes for {describe(job.retain_us)}: `muntin ask` answers from them"
    if bounds.changes:
        yield "  emit     changes: with every batch, windows that are open and have changed"


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


def _company(company: Company) -> Iterator[str]:
    """Who shares what; what statements say of the pass is done in arrays."""
    if company.blocks:
        yield f"  blocks   computed and kept once, with {_named(company.blocks)}: the filter, keys"
        yield "           and cells are the same"
    if company.apart is not None:
        yield "  pass     a statement of its own over records that are parsed once for all jobs:"
        yield f"           {company.apart}"
    if company.passing:
        yield f"  pass     one over the records, with {_named(company.passing)}; equal conditions,"
        yield "           keys and arguments are evaluated once, and cells are added up in arrays"
    if company.merging:
        yield f"  merging  blocks of one form, by one statement: with {_named(company.merging)}"
    if company.finishing:
        yield f"  finish   the same windows of one form, too: with {_named(company.finishing)}"


def _named(names: Sequence[str]) -> str:
    more = len(names) - _NAMED
    return f"{', '.join(names[:_NAMED])}{f' and {more:,} others' if more > 0 else ''}"


def _cycles(title: str, ways: Iterable[Sequence[str]]) -> Iterator[str]:
    """The ways on which a job uses its own results, from one job to whose results it uses."""
    for way in ways:
        at = list(way).index(title)
        told = " → ".join([*way[at:], *way[:at], title])
        yield f"  cycle    {told}: each uses the newest finished result of the next"


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
