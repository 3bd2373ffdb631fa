"""The SQL of a job, made by pure functions: compute, merge, consolidate, finish, rank.

Inside blocks a job's columns have fixed names: `pane`, `not_before`, `part`, keys `k0`…,
sub-keys `s1`… (one for each part but the first) and cells `c0`…. A record that is on time for
every window has no `not_before`; otherwise windows that end at or before it leave it out.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from muntin.kernel.aggregates import ZERO_WHEN_MISSING
from muntin.kernel.engine import quote
from muntin.kernel.sketches import stable_hash_sql
from muntin.model import MARK, POSITION, Cell, Job, Key, Merge, Part

KEY_GROUPS = 256
WINDOW_END = "__end"  # the pane a window ends before, beside the user's columns


def floor_div_sql(position: str, size: int) -> str:
    """floor(position / size) on integers of either sign; `floor_div` is the engine's macro."""
    return position if size == 1 else f"floor_div({position}, {size})"


@cache
def compute_sql(job: Job, marked: bool) -> str:
    """Records to one block. `marked` says whether records carry a mark that may make them late."""
    selects = [_part_sql(job, index, marked) for index in range(len(job.parts))]
    return "\nUNION ALL\n".join(selects)


def _part_sql(job: Job, index: int, marked: bool) -> str:
    part = job.parts[index]
    pane = floor_div_sql(POSITION, job.window.pane_us)
    not_before = _not_before_sql(job, pane) if marked else "NULL"
    columns = [
        f"{pane} AS pane",
        f"CAST({not_before} AS BIGINT) AS not_before",
        f"CAST({index} AS TINYINT) AS part",
        *(f"CAST({key.sql} AS {key.type}) AS k{i}" for i, key in enumerate(job.keys)),
        *_sub_keys(job, index),
        *_cells(job, index),
    ]
    wanted = [c for c in (job.where, part.where, _wanted_sql(job, pane) if marked else None) if c]
    where = f"\nWHERE {' AND '.join(f'({c})' for c in wanted)}" if wanted else ""
    return f"SELECT {', '.join(columns)}\nFROM records{where}\nGROUP BY ALL"


def _sub_keys(job: Job, index: int) -> Iterator[str]:
    for i, part in enumerate(job.parts):
        if part.sub_key is not None:
            sql = part.sub_key if i == index else "NULL"
            yield f"CAST({sql} AS {part.sub_type}) AS s{i}"


def _cells(job: Job, index: int) -> Iterator[str]:
    for i, part in enumerate(job.parts):
        for cell in part.cells:
            yield f"CAST({cell.sql if i == index else 'NULL'} AS {cell.type}) AS {cell.name}"


def _not_before_sql(job: Job, pane: str) -> str:
    mark = floor_div_sql(MARK, job.window.pane_us)
    return f"CASE WHEN {mark} > {pane} THEN {mark} END"


def _wanted_sql(job: Job, pane: str) -> str:
    """Whether any window that holds the pane still ends after the mark."""
    mark = floor_div_sql(MARK, job.window.pane_us)
    window = job.window
    last_end = f"{floor_div_sql(pane, window.step)} * {window.step} + {window.length}"
    return f"{MARK} IS NULL OR {last_end} > {mark}"


@cache
def merge_sql(job: Job) -> str:
    """Blocks to one block: the same for every job of the same shape."""
    keys = ", ".join(["pane", "not_before", "part", *_key_names(job), *_sub_names(job)])
    return f"SELECT {keys}, {_merged_cells(job)}\nFROM blocks\nGROUP BY {keys}"


def removable(job: Job) -> bool:
    """Whether partials can be taken out of a window again without a trace.

    They can if every cell is a SUM of exact numbers. A sum of floating-point numbers would
    keep the rounding errors of what has left.
    """
    cells = [cell for part in job.parts for cell in part.cells]
    return all(c.merge is Merge.SUM and c.type.startswith(("BIGINT", "DECIMAL")) for c in cells)


def consolidate_sql(job: Job) -> str:
    """Blocks to windows, by the cheapest of three ways that give the same rows."""
    if job.window.length == 1:
        return _merge_all_sql(job, "pane + 1")
    return _add_and_remove_sql(job) if removable(job) else _merge_all_sql(job, _ends_sql(job))


def _merge_all_sql(job: Job, ends: str) -> str:
    """Every partial joins each due window that holds its pane."""
    keys = ", ".join(["part", *_key_names(job), *_sub_names(job)])
    return (
        f"SELECT w, {keys}, {_merged_cells(job)}\n"
        f"FROM (SELECT {ends} AS w, * FROM blocks) JOIN due USING (w)\n"
        f"WHERE not_before IS NULL OR not_before < w\n"
        f"GROUP BY w, {keys}"
    )


def _ends_sql(job: Job) -> str:
    window = job.window
    first = floor_div_sql(f"pane - {window.length}", window.step)
    last = floor_div_sql("pane", window.step)
    return f"unnest(range({first} + 1, {last} + 1)) * {window.step} + {window.length}"


def _add_and_remove_sql(job: Job) -> str:
    """Every partial is added at its first window and removed after its last.

    Between two such events nothing changes for a key, so the work is two rows a partial and one
    a result, however much windows overlap. A sum of which no partial is left is NULL again.
    """
    names = ["part", *_key_names(job), *_sub_names(job)]
    cells = [cell.name for part in job.parts for cell in part.cells]
    keys, by = ", ".join(names), f"(PARTITION BY {', '.join(names)} ORDER BY w)"
    changes = ", ".join(
        f"sum(sign * {c}) AS {c}, count({c}) FILTER (WHERE sign > 0) - "
        f"count({c}) FILTER (WHERE sign < 0) AS n_{c}"
        for c in cells
    )
    running = ", ".join(f"sum({c}) OVER {by} AS {c}, sum(n_{c}) OVER {by} AS n_{c}" for c in cells)
    present = ", ".join(
        f"CAST(CASE WHEN n_{cell.name} > 0 THEN {cell.name} END AS {cell.type}) AS {cell.name}"
        for part in job.parts
        for cell in part.cells
    )
    counts = ", ".join(_count_cell(part).name for part in job.parts)
    step = job.window.step
    return (
        f"SELECT unnest(range(w, until, {step})) AS w, {keys}, {present}\n"
        f"FROM (SELECT w, {keys}, {running},\n"
        f"  lead(w, 1, (SELECT max(w) FROM due) + {step}) OVER {by} AS until\n"
        f"  FROM (SELECT w, {keys}, {changes} FROM ({_events_sql(job)}) GROUP BY w, {keys}))\n"
        f"WHERE coalesce({counts}) > 0"
    )


def _events_sql(job: Job) -> str:
    """When each partial enters and when it leaves, within the due windows."""
    window = job.window
    first = f"{floor_div_sql(f'pane - {window.length}', window.step)} + 1"
    after_mark = f"{floor_div_sql(f'not_before - {window.length}', window.step)} + 1"
    last = floor_div_sql("pane", window.step)
    ends = f"* {window.step} + {window.length}"
    spans = (
        f"SELECT *, greatest((greatest({first}, coalesce({after_mark}, {first}))) {ends}, "
        f"(SELECT min(w) FROM due)) AS enter, ({last} + 1) {ends} AS leave FROM blocks"
    )
    due = "enter <= (SELECT max(w) FROM due) AND enter < leave"
    return (
        f"SELECT enter AS w, 1 AS sign, * FROM ({spans}) WHERE {due}\n"
        f"UNION ALL\n"
        f"SELECT leave AS w, -1 AS sign, * FROM ({spans})\n"
        f"WHERE {due} AND leave <= (SELECT max(w) FROM due)"
    )


def finish_sql(job: Job, consolidated: str) -> str:
    """Windows to rows: cells become columns, then HAVING; ordering stays as o0…, k0…."""
    tables = [f"consolidated AS (\n{consolidated}\n)"]
    tables += [f"p{i} AS ({_finish_part_sql(job, i)})" for i in range(len(job.parts))]
    outputs = [f"CAST({o.sql} AS {o.type}) AS x{i}" for i, o in enumerate(job.outputs)]
    order = [f"{o.sql} AS o{i}" for i, o in enumerate(job.order)]
    ties = [f"p0.k{i} AS k{i}" for i in range(len(job.keys))]
    joins = "".join(_join_sql(job, i) for i in range(1, len(job.parts)))
    having = f"\nWHERE {job.having}" if job.having else ""
    inner = (
        f"WITH {', '.join(tables)}\n"
        f"SELECT p0.w AS w, {', '.join([*outputs, *order, *ties])}\nFROM p0{joins}{having}"
    )
    if job.limit is None:
        return inner
    return f"SELECT * FROM (\n{inner}\n)\nQUALIFY {_rank_sql(job)} <= {job.limit}"


@cache
def order_sql(job: Job) -> str:
    """Rows of all key groups to the rows of the results, window by window.

    Only here do the columns get the names that the user gave them.
    """
    named = (f"x{i} AS {quote(o.name)}" for i, o in enumerate(job.outputs))
    names = ", ".join([f"w AS {WINDOW_END}", *named])
    limit = "" if job.limit is None else f"\nQUALIFY {_rank_sql(job)} <= {job.limit}"
    return f"SELECT {names}\nFROM rows{limit}\nORDER BY {', '.join(['w', *_ordering(job)])}"


@cache
def key_group_sql(job: Job, groups: int) -> str:
    """The key group of a row: a hash of its keys alone, the same everywhere."""
    if not job.keys:
        return "0"
    texts = [
        f"coalesce(CAST({_one_zero_sql(i, key)} AS VARCHAR), chr(1))"
        for i, key in enumerate(job.keys)
    ]
    text = " || chr(0) || ".join(texts)
    return f"CAST({stable_hash_sql(text)} % {KEY_GROUPS} * {groups} // {KEY_GROUPS} AS INTEGER)"


def _one_zero_sql(index: int, key: Key) -> str:
    """Zero and minus zero are one key, so they must have one text."""
    return f"k{index} + 0.0" if key.type in ("DOUBLE", "FLOAT") else f"k{index}"


def _finish_part_sql(job: Job, index: int) -> str:
    part = job.parts[index]
    keys = ["w", *_key_names(job)]
    finishes = [f"{f.sql} AS {f.name}" for f in job.finishes if f.part == index]
    columns = ", ".join([*keys, *finishes])
    if part.sub_key is None:
        return f"SELECT {columns} FROM consolidated WHERE part = {index}"
    rows = f"SELECT *, s{index} AS sub{_ranks_sql(job, index)} FROM consolidated"
    return f"SELECT {columns} FROM ({rows} WHERE part = {index}) GROUP BY {', '.join(keys)}"


def _ranks_sql(job: Job, index: int) -> str:
    part = job.parts[index]
    if not part.ranked:
        return ""
    by = ", ".join(["w", *_key_names(job)])
    count = _count_cell(part).name
    running = f"sum({count}) OVER (PARTITION BY {by} ORDER BY s{index})"
    return f", {running} AS upto, sum({count}) OVER (PARTITION BY {by}) AS total"


def _count_cell(part: Part) -> Cell:
    return next(cell for cell in part.cells if cell.sql == "count(*)")


def _join_sql(job: Job, index: int) -> str:
    same = [f"p0.w = p{index}.w"]
    same += [f"p0.{k} IS NOT DISTINCT FROM p{index}.{k}" for k in _key_names(job)]
    return f"\nLEFT JOIN p{index} ON {' AND '.join(same)}"


def finished_column_sql(name: str, part: int, sql: str) -> str:
    """How outputs refer to a finish: counts of what never came are zero."""
    column = f"p{part}.{name}"
    return f"coalesce({column}, 0)" if part and sql.startswith(ZERO_WHEN_MISSING) else column


def _rank_sql(job: Job) -> str:
    by = ", ".join(_ordering(job)) or "1"
    return f"row_number() OVER (PARTITION BY w ORDER BY {by})"


def _ordering(job: Job) -> list[str]:
    """The user's order, then the keys, so that equal input gives equal rows."""
    return [
        *(f"o{i} {order.direction}" for i, order in enumerate(job.order)),
        *_key_names(job),
    ]


def _key_names(job: Job) -> list[str]:
    return [f"k{i}" for i in range(len(job.keys))]


def _sub_names(job: Job) -> list[str]:
    return [f"s{i}" for i, part in enumerate(job.parts) if part.sub_key is not None]


def _merged_cells(job: Job) -> str:
    cells = [cell for part in job.parts for cell in part.cells]
    return ", ".join(f"CAST({c.merge}({c.name}) AS {c.type}) AS {c.name}" for c in cells)
