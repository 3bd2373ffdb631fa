"""The SQL of shapes and jobs, made by pure functions: compute, merge, finish, order.

Inside blocks columns have fixed names: `pane`, `spec`, `not_before`, `part`, keys `k0`…, sub-keys
`s1`… (one for each part but the first) and cells `c0`…. A row belongs to a pane (`spec` is 0)
and through it to every window that holds it, or to one window alone: then `spec` names the
kind of window and `pane` is its end. A record that is on time for every window has no
`not_before`; otherwise windows that end at or before it leave it out.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from muntin.kernel.engine import literal, quote
from muntin.kernel.sketches import stable_hash_sql
from muntin.model.jobs import Finish, Job
from muntin.model.records import COPY, MARK, MEMBER, ORIGIN, SET, SHAPE, SHARE, TIME, UNTIL
from muntin.model.shapes import Cell, Key, Merge, Part, Shape
from muntin.model.tables import Join, Lookup, Unnest
from muntin.units import FIRST_US, LAST_US, describe_window
from muntin.windows.spec import WindowSpec

KEY_GROUPS = 256
WINDOW = "__window"  # which of the job's windows, beside the user's columns
WINDOW_END = "__end"  # the pane it ends before; of a session, the position where it ends
SESSION_START = "__started"
SESSION_RECORDS = "__records"
SESSION_LATE = "__late"
FAULT = "__fault"  # what failed in a job's Python, in a row that holds nothing else
Windows = tuple[WindowSpec, ...]


def floor_div_sql(position: str, size: int) -> str:
    """floor(position / size) on integers of either sign; `floor_div` is the engine's macro."""
    return position if size == 1 else f"floor_div({position}, {size})"


def spec_id(spec: WindowSpec) -> int:
    """Names a kind of window in blocks; never 0, which stands for panes."""
    return zlib.crc32(spec.key.encode()) >> 1 or 1


def records_sql(shape: Shape) -> str:
    """The records, each with what is joined beside it, and as often as it counts."""
    records = "records"
    beside: list[Join | Unnest | Lookup] = [*shape.joins, *shape.lists, *shape.lookups]
    for join in sorted(beside, key=lambda each: each.number):
        if isinstance(join, Lookup):
            records = f"(SELECT *, ({join.sql}) AS {join.column} FROM {records})"
            continue
        if isinstance(join, Unnest):
            records += f" CROSS JOIN unnest({join.sql}) AS __list{join.number}({join.column})"
            continue
        columns = (f"{quote(c.name)} AS {quote(join.column(c.name))}" for c in join.table.columns)
        table = f"(SELECT {', '.join(columns)} FROM {join.relation})"
        records += f" {'LEFT JOIN' if join.left else 'JOIN'} {table} ON {join.on}"
    if shape.copies > 1:
        return f"(SELECT *, unnest({_copies_sql(shape)}) AS {COPY} FROM {records})"
    return f"(SELECT * FROM {records})" if beside else records


def _copies_sql(shape: Shape) -> str:
    """The copies that a record counts for: all, or those of the stream it is of."""
    if not shape.members:
        return f"range({shape.copies})"
    copies: dict[str, list[int]] = {}
    for copy, member in enumerate(shape.members):
        copies.setdefault(member, []).append(copy)
    cases = (f"WHEN {literal(member)} THEN {numbers}" for member, numbers in copies.items())
    return f"CASE {MEMBER} {' '.join(cases)} END"


@cache
def compute_sql(shape: Shape, windows: Windows, marked: bool, separate: bool = False) -> str:
    """Records to one block of panes or, where that is cheaper, of separate windows.

    `marked` says whether records carry a mark that may make them late.
    """
    if not separate:
        pane = floor_div_sql(quote(shape.axis.column), shape.pane)
        records = records_sql(shape)
        if shape.spans is not None:
            pane, records = "__pane", _spans_sql(shape)
        return _by_sets(shape, _compute_sql(shape, pane, windows, marked, "0", records, False))
    return _by_sets(
        shape,
        "\nUNION ALL\n".join(
            _compute_sql(
                shape, "__w", (spec,), marked, str(spec_id(spec)), _spread_sql(shape, spec), True
            )
            for spec in windows
        ),
    )


def _by_sets(shape: Shape, sql: str) -> str:
    """The rows of a block by each set of keys: those of the finest keys are merged to fewer."""
    if not shape.sets:
        return sql
    by_copy: dict[int, list[int]] = {}
    for number, each in enumerate(shape.sets):
        by_copy.setdefault(each.copy, []).append(number)
    cases = " ".join(f"WHEN {copy} THEN {numbers}" for copy, numbers in by_copy.items())
    copy = "0" if shape.copies == 1 else "k0"
    spread = f"SELECT *, unnest(CASE {copy} {cases} END) AS {SET} FROM (\n{sql}\n)"
    columns = ["pane", "spec", "not_before", "part"]
    for number, key in enumerate(shape.keys):
        without = [str(n) for n, s in enumerate(shape.sets) if number not in s.keys]
        name = f"k{number}"
        if key.sql == SET:
            name = SET
        elif without and key.sql not in (COPY, ORIGIN):
            name = f"CASE WHEN {SET} NOT IN ({', '.join(without)}) THEN {name} END"
        columns.append(f"CAST({name} AS {key.type}) AS k{number}")
    columns += [name for name in row_names(shape) if name.startswith("s")]
    columns += [f"{_gathered_sql(cell)} AS {cell.name}" for cell in cells_of(shape)]
    return f"SELECT {', '.join(columns)}\nFROM ({spread})\nGROUP BY ALL"


def _gathered_sql(cell: Cell) -> str:
    """Of a cell that Python makes, there is only the list it will be made of."""
    if cell.merge is Merge.STATE:
        return f"flatten(list({cell.name}) FILTER (WHERE {cell.name} IS NOT NULL))"
    return _merged_sql(cell)


def _compute_sql(
    shape: Shape, pane: str, windows: Windows, marked: bool, spec: str, records: str, direct: bool
) -> str:
    selects = []
    for index, part in enumerate(shape.parts):
        not_before = _not_before_sql(shape, pane) if marked and not direct else "NULL"
        columns = [
            f"{pane} AS pane",
            f"CAST({spec} AS INTEGER) AS spec",
            f"CAST({not_before} AS BIGINT) AS not_before",
            f"CAST({index} AS TINYINT) AS part",
            *(f"CAST({_key_sql(key)} AS {key.type}) AS k{i}" for i, key in enumerate(shape.keys)),
            *sub_key_columns(shape, index),
            *cell_columns(shape, index),
        ]
        late = None
        if marked:
            late = _after_mark_sql(shape, pane) if direct else _wanted_sql(shape, pane, windows)
        inside = part.where
        if inside and shape.where:  # of records that the filter leaves out, nothing is evaluated
            inside = f"CASE WHEN {shape.where} THEN {inside} END"
        wanted = [c for c in (shape.where, inside, *bounds_sql(shape), late) if c]
        where = f"\nWHERE {' AND '.join(f'({c})' for c in wanted)}" if wanted else ""
        selects.append(f"SELECT {', '.join(columns)}\nFROM {records}{where}\nGROUP BY ALL")
    return "\nUNION ALL\n".join(selects)


def _key_sql(key: Key) -> str:
    """Sets of keys are told apart when rows are there."""
    return "0" if key.sql == SET else key.sql


def _spans_sql(shape: Shape) -> str:
    """Each record once for every pane it touches, with the share of its span that lies there."""
    start, until = quote(shape.axis.column), quote(UNTIL)
    low = start if shape.begin is None else f"greatest({start}, {shape.begin})"
    high = until if shape.until is None else f"least({until}, {shape.until})"
    first = floor_div_sql(low, shape.pane)
    last = floor_div_sql(f"greatest({low}, {high} - 1)", shape.pane)
    panes = f"SELECT *, unnest(range({first}, {last} + 1)) AS __pane FROM {records_sql(shape)}"
    inside = f"least({high}, (__pane + 1) * {shape.pane}) - greatest({low}, __pane * {shape.pane})"
    share = f"CASE WHEN {until} > {start} THEN ({inside}) / ({until} - {start}) ELSE 1.0 END"
    return f"(SELECT *, {share} AS {SHARE} FROM ({panes}))"


@cache
def selected_sql(shape: Shape, windows: Windows, marked: bool) -> str:
    """The records that a job in Python looks at, in log order, each with its pane."""
    position = quote(shape.axis.column)
    pane = floor_div_sql(position, shape.pane)
    not_before = _not_before_sql(shape, pane) if marked else "NULL"
    where = shape.code.where if shape.code else None
    late = _wanted_sql(shape, pane, windows) if marked else None
    wanted = [c for c in (where, f"{position} IS NOT NULL", *bounds_sql(shape), late) if c]
    columns = [f"{pane} AS __pane", f"CAST({not_before} AS BIGINT) AS __not_before"]
    columns += [quote(axis.column) for axis in dict.fromkeys((TIME, *shape.axes))]
    columns += [quote(name) for name in (shape.code.takes if shape.code else ())]
    conditions = " AND ".join(f"({condition})" for condition in wanted)
    return f"SELECT {', '.join(columns)}\nFROM records\nWHERE {conditions}"


def _spread_sql(shape: Shape, spec: WindowSpec) -> str:
    """Each record once for every window that holds it."""
    pane = floor_div_sql(quote(shape.axis.column), shape.pane)
    return f"(SELECT *, {ends_sql(spec, pane)} AS __w FROM {records_sql(shape)})"


def ends_sql(spec: WindowSpec, pane: str) -> str:
    """One row for the end of every window, of a regular kind, that holds the pane."""
    first = floor_div_sql(f"({pane}) - {spec.length + spec.shift}", spec.stride)
    last = floor_div_sql(f"({pane}) - {spec.shift}", spec.stride)
    return f"unnest(range({first} + 1, {last} + 1)) * {spec.stride} + {spec.length + spec.shift}"


def bounds_sql(shape: Shape) -> Iterator[str]:
    if shape.axis.kind == "sequence":  # there is none where the sequence goes backwards
        yield f"{quote(shape.axis.column)} IS NOT NULL"
    if shape.begin is not None:
        start = f"{quote(shape.axis.column)} >= {shape.begin}"
        # Of a span it is enough to reach into the bounds.
        yield start if shape.spans is None else f"{start} OR {quote(UNTIL)} > {shape.begin}"
    if shape.until is not None:
        yield f"{quote(shape.axis.column)} < {shape.until}"


def sub_key_columns(shape: Shape, index: int) -> Iterator[str]:
    for i, part in enumerate(shape.parts):
        if part.sub_key is not None:
            sql = part.sub_key if i == index else "NULL"
            yield f"CAST({sql} AS {part.sub_type}) AS s{i}"


def cell_columns(shape: Shape, index: int) -> Iterator[str]:
    for i, part in enumerate(shape.parts):
        for cell in part.cells:
            kind = cell.given or cell.type
            yield f"CAST({cell.sql if i == index else 'NULL'} AS {kind}) AS {cell.name}"


def on_time_sql(shape: Shape, windows: Windows, marked: bool) -> Iterator[str]:
    """The condition under which some window takes a record that may be late."""
    if marked and shape.spans is None:
        yield _wanted_sql(shape, floor_div_sql(quote(shape.axis.column), shape.pane), windows)


def _not_before_sql(shape: Shape, pane: str) -> str:
    mark = floor_div_sql(MARK, shape.pane)
    return f"CASE WHEN {mark} > {pane} THEN {mark} END"


def _after_mark_sql(shape: Shape, end: str) -> str:
    return f"{MARK} IS NULL OR {end} > {floor_div_sql(MARK, shape.pane)}"


def _wanted_sql(shape: Shape, pane: str, windows: Windows) -> str:
    """Whether any window that holds the pane still ends after the mark.

    Of windows that are not regular, one may end as late as the longest would; rows too many are
    left out when windows are made, and dropped with their pane.
    """
    mark = floor_div_sql(MARK, shape.pane)
    ends = [
        f"{floor_div_sql(f'({pane}) - {w.shift}', w.stride)} * {w.stride} + {w.length + w.shift}"
        if w.regular
        else f"({pane}) + {w.length}"
        for w in windows
    ]
    return f"{MARK} IS NULL OR greatest({', '.join(ends)}) > {mark}"


@cache
def merge_sql(shape: Shape) -> str:
    """Blocks to one block: the same for every shape with as many keys and cells."""
    names = ["pane", "spec", "not_before", *row_names(shape)]
    keys = ", ".join(names)
    return f"SELECT {keys}, {merged_cells(shape)}\nFROM blocks\nGROUP BY {keys}"


@dataclass(frozen=True)
class Bounds:
    """How positions of a window follow from the columns of its rows, and what it is called."""

    start: str
    end: str
    name: str

    def columns(self, job: Job) -> Iterator[str]:
        """What is known of the window, if some expression of the job asks for it."""
        asked = (job.having, *(o.sql for o in job.outputs), *(o.sql for o in job.order))
        if any("p0.window_" in sql for sql in asked if sql):
            yield f"{_position_sql(job.shape, self.start)} AS window_start"
            yield f"{_position_sql(job.shape, self.end)} AS window_end"
            yield f"{literal(self.name)} AS window_name"


def bounds_of(shape: Shape, spec: WindowSpec) -> Bounds:
    """The bounds of windows of one kind, of which rows tell the end."""
    start, end = f"(w - {spec.length}) * {shape.pane}", f"w * {shape.pane}"
    if not spec.regular:  # the table of due windows tells
        start = f"(SELECT min(start) FROM due WHERE due.w = consolidated.w) * {shape.pane}"
    return Bounds(start, end, describe_window(shape.axis, spec))


def _position_sql(shape: Shape, position: str) -> str:
    """A position on the axis, as people read it."""
    if not shape.axis.is_time:
        return position
    shown = f"least(greatest({position}, {FIRST_US}), {LAST_US})"
    return f"CAST(make_timestamp({shown}) AS TIMESTAMP WITH TIME ZONE)"


def finish_sql(job: Job, consolidated: str, bounds: Bounds, carried: Sequence[str] = ()) -> str:
    """Windows to rows: cells become columns, then HAVING; ordering stays as o0…, k0….

    What is `carried` along of part 0 tells more of a window than its end.
    """
    shape = job.shape
    tables = [f"consolidated AS (\n{consolidated}\n)"]
    more = [*carried, *bounds.columns(job)]
    tables += [f"p{i} AS ({_finish_part_sql(job, i, more)})" for i in range(len(shape.parts))]
    outputs = [f"CAST({o.sql} AS {o.type}) AS x{i}" for i, o in enumerate(job.outputs)]
    order = [f"{o.sql} AS o{i}" for i, o in enumerate(job.order)]
    ties = [f"p0.k{i} AS k{i}" for i in range(len(shape.keys))]
    along = [f"p0.{name} AS {name}" for name in carried]
    along += [f"p{f.part}.{whole_name(f)} AS {whole_name(f)}" for f in limited(job)]
    joins = "".join(_join_sql(shape, i) for i in range(1, len(shape.parts)))
    having = f"\nWHERE {job.having}" if job.having else ""
    inner = (
        f"WITH {', '.join(tables)}\n"
        f"SELECT {', '.join(['p0.w AS w', *along, *outputs, *order, *ties])}\n"
        f"FROM p0{joins}{having}"
    )
    if job.limit is None:
        return inner
    return _first_sql(job, inner)


def _first_sql(job: Job, rows: str) -> str:
    """The first rows of every window, as many as the job's limit.

    Sorting whole windows by all keys takes most of the time, so where it can be, rows behind the
    last possible value of the first key are dropped before.
    """
    window = "w"
    if job.shape.keys and job.shape.keys[-1].sql == SHAPE:  # each shape has its own windows
        window = f"w, k{len(job.shape.keys) - 1}"
    ranked = f"QUALIFY {_rank_sql(job, window)} <= {job.limit}"
    best = _BEST.get(job.order[0].direction) if job.order else None
    if best is None or not job.limit or job.limit > _MOST_KEPT:
        return f"SELECT * FROM (\n{rows}\n)\n{ranked}"
    first, beyond = best
    last = f"{first}(o0, {job.limit})[{job.limit}] AS last FROM finished GROUP BY {window}"
    return (
        f"WITH finished AS MATERIALIZED (\n{rows}\n)\n"
        f"SELECT finished.*\nFROM finished JOIN (SELECT {window}, {last}) USING ({window})\n"
        f"WHERE last IS NULL OR o0 {beyond} last\n{ranked}"
    )


_MOST_KEPT = 10_000  # values of a window; DuckDB keeps less than a million
_BEST = {"DESC NULLS LAST": ("max", ">="), "ASC NULLS LAST": ("min", "<=")}


@cache
def order_sql(job: Job, carried: tuple[tuple[str, str], ...] = ()) -> str:
    """Rows of all key groups to the rows of the results, window by window.

    Only here do the columns get the names that the user gave them. What is `carried` along, as
    pairs of names before and after, tells more of a window; the first orders windows too.
    """
    named = (f"x{i} AS {quote(o.name)}" for i, o in enumerate(job.outputs))
    along = (f"{before} AS {after}" for before, after in carried)
    names = ", ".join([f"win AS {WINDOW}, w AS {WINDOW_END}", *along, *named])
    # A user's column may be called w, or k0: what is qualified is never that.
    limit = (
        ""
        if job.limit is None
        else f"\nQUALIFY {_rank_sql(job, 'r.w, r.win', 'r.')} <= {job.limit}"
    )
    by = ["r.w, r.win", *(f"r.{before}" for before, _ in carried[:1]), *_ordering(job, "r.")]
    return f"SELECT {names}\nFROM rows AS r{limit}\nORDER BY {', '.join(by)}"


@cache
def key_group_sql(shape: Shape, groups: int) -> str:
    """The key group of a row: a hash of its keys alone, the same everywhere."""
    if not shape.keys:
        return "0"
    texts = [f"coalesce(CAST({name} AS VARCHAR), chr(1))" for name in key_names(shape)]
    text = " || chr(0) || ".join(texts)
    return f"CAST({stable_hash_sql(text)} % {KEY_GROUPS} * {groups} // {KEY_GROUPS} AS INTEGER)"


def limited(job: Job) -> list[Finish]:
    """The lists of a job that may have been cut."""
    return [finish for finish in job.finishes if finish.whole]


def whole_name(finish: Finish) -> str:
    """The column of rows that says how long a list would be."""
    return f"{finish.name}_whole"


def _finish_part_sql(job: Job, index: int, carried: Sequence[str]) -> str:
    part = job.shape.parts[index]
    keys = ["w", *key_names(job.shape)]
    mine = [f for f in job.finishes if f.part == index]
    finishes = [f"{f.sql} AS {f.name}" for f in mine]
    finishes += [f"{f.whole} AS {whole_name(f)}" for f in mine if f.whole]
    columns = ", ".join([*keys, *finishes])
    if part.sub_key is None:
        columns = ", ".join([*keys, *carried, *finishes])
        return f"SELECT {columns} FROM consolidated WHERE part = {index}"
    rows = f"SELECT *, s{index} AS sub{_ranks_sql(job.shape, index)} FROM consolidated"
    return f"SELECT {columns} FROM ({rows} WHERE part = {index}) GROUP BY {', '.join(keys)}"


def _ranks_sql(shape: Shape, index: int) -> str:
    part = shape.parts[index]
    if not part.ranked:
        return ""
    by = ", ".join(["w", *key_names(shape)])
    count = count_cell(part).name
    running = f"sum({count}) OVER (PARTITION BY {by} ORDER BY s{index})"
    return f", {running} AS upto, sum({count}) OVER (PARTITION BY {by}) AS total"


def count_cell(part: Part) -> Cell:
    return next(cell for cell in part.cells if cell.sql == "count(*)")


def _join_sql(shape: Shape, index: int) -> str:
    same = [f"p0.w = p{index}.w"]
    same += [f"p0.{k} IS NOT DISTINCT FROM p{index}.{k}" for k in key_names(shape)]
    return f"\nLEFT JOIN p{index} ON {' AND '.join(same)}"


def _rank_sql(job: Job, window: str, of: str = "") -> str:
    by = ", ".join(_ordering(job, of)) or "1"
    return f"row_number() OVER (PARTITION BY {window} ORDER BY {by})"


def _ordering(job: Job, of: str = "") -> list[str]:
    """The user's order, then the keys, so that equal input gives equal rows."""
    return [f"{of}{name} {direction}".rstrip() for name, direction in _ordered_by(job)]


def _ordered_by(job: Job) -> Iterator[tuple[str, str]]:
    yield from ((f"o{i}", order.direction) for i, order in enumerate(job.order))
    yield from ((name, "") for name in key_names(job.shape))


def ordering(job: Job, carried: str | None = None) -> tuple[tuple[str, str], ...] | None:
    """The columns by which `order_sql` sorts, unless it also leaves out rows behind a limit.

    What is `carried` along may order windows too.
    """
    if job.limit is not None:
        return None
    more = [] if carried is None else [(carried, "")]
    return (("w", ""), ("win", ""), *more, *_ordered_by(job))


def key_names(shape: Shape) -> list[str]:
    return [f"k{i}" for i in range(len(shape.keys))]


def row_names(shape: Shape) -> list[str]:
    """What tells the rows of one pane or window apart: part, keys and sub-keys."""
    subs = [f"s{i}" for i, part in enumerate(shape.parts) if part.sub_key is not None]
    return ["part", *key_names(shape), *subs]


def cells_of(shape: Shape) -> Sequence[Cell]:
    return [cell for part in shape.parts for cell in part.cells]


def merged_cells(shape: Shape) -> str:
    return ", ".join(f"{_merged_sql(cell)} AS {cell.name}" for cell in cells_of(shape))


def _merged_sql(cell: Cell) -> str:
    """States come out as a list, for Python to merge."""
    if cell.merge is Merge.STATE:
        return f"list({cell.name}) FILTER (WHERE {cell.name} IS NOT NULL)"
    return f"CAST({folded_sql(cell)} AS {cell.type})"


def folded_sql(cell: Cell, over: str = "") -> str:
    """One value of the cells of a group, or of those `over` some rows."""
    if cell.merge is Merge.FOLD:
        return cell.fold.format(c=cell.name, over=over)
    return f"{cell.merge}({cell.name}){over}"
