"""Blocks to windows, each by the cheapest of the algorithms that give the same rows.

panes    a window is one pane
share    each window is merged from the panes and smaller windows that touch the fewest rows
remove   from window to window, what enters is added and what leaves is removed; the work is
         two rows a partial, however much windows overlap. Exact sums only: a sum of
         floating-point numbers would keep the rounding errors of what has left
stacks   panes are cut into stretches as long as a window, so that each window is the end of
         one stretch and the beginning of the next: two running merges a partial and one a
         result, for cells that cannot be removed (MIN, MAX, floating-point sums)
grow     windows that cumulate: one running merge a partial and one row a result

What overlaps a lot and is due one by one, as when logs are followed, leaves something behind for
the next window, for `share` to find: where windows cumulate, the window itself; where cells can be
removed, the window less the panes that leave; else blocks of panes, so that the next one is merged
from few tiles.

All algorithms leave out rows that are late for some windows and rows that belong to one window
alone; those are few or merged already, and join their windows at the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from math import isqrt

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from muntin.kernel.block import rows_where
from muntin.kernel.dense import NotDenseError, Top, dense_windows, only_first
from muntin.kernel.engine import run
from muntin.kernel.python.states import is_removable, merged, slide
from muntin.kernel.statements import (
    cells_of,
    count_cell,
    ends_sql,
    floor_div_sql,
    folded_sql,
    merged_cells,
    row_names,
    spec_id,
)
from muntin.model.shapes import Merge, Shape
from muntin.windows.sharing import Cover, Numbers, Tile, Tiles
from muntin.windows.spec import WindowSpec

Tables = Mapping[str, pa.Table]
WORTH_LOOKING_AHEAD = 100_000  # rows of panes; below, merging them all is as fast
_PANES = -1  # in place of the number of a kind of windows
_PARTS = pa.schema([("kind", pa.int32()), ("upto", pa.int64()), ("w", pa.int64())])


class Algorithm(StrEnum):
    """How windows are made of panes."""

    PANES = "panes"
    SHARE = "share"
    REMOVE = "remove"
    STACKS = "stacks"
    GROW = "grow"

    @property
    def meaning(self) -> str:
        return _MEANINGS[self]


_MEANINGS = {
    Algorithm.PANES: "a window is one pane",
    Algorithm.SHARE: "the panes and smaller windows with the fewest rows",
    Algorithm.REMOVE: "what enters is added, what leaves removed",
    Algorithm.STACKS: "two running merges, as cells cannot be removed",
    Algorithm.GROW: "one running merge, as windows only grow",
}


@dataclass(frozen=True)
class Relation:
    """A statement and the tables it reads, not run yet."""

    shape: Shape
    sql: str
    tables: Tables
    doing: str

    def table(self) -> pa.Table:
        return merged(self.shape, run(self.sql, self.tables, self.doing))


@dataclass
class Merges:
    """How many tiles went into how many windows."""

    windows: int = 0
    tiles: int = 0


def removable(shape: Shape) -> bool:
    """Whether partials can be taken out of a window again without a trace."""
    return all(
        is_removable(c)
        if c.merge is Merge.STATE
        else c.merge is Merge.SUM and c.type.startswith(("BIGINT", "DECIMAL"))
        for c in cells_of(shape)
    )


def overlaps(spec: WindowSpec) -> bool:
    """Whether all windows share more than half of their panes with the next one."""
    return spec.regular and spec.slide * 2 < spec.range


def algorithm_of(shape: Shape, spec: WindowSpec, due: int) -> Algorithm:
    """How windows of one kind are made when so many of them are due at once."""
    if spec.length == 1:
        return Algorithm.PANES
    if due > 2 and spec.cumulates and not shape.states:
        return Algorithm.GROW
    if due > 2 and overlaps(spec):
        if removable(shape):
            return Algorithm.REMOVE
        return Algorithm.SHARE if shape.states else Algorithm.STACKS
    return Algorithm.SHARE


@dataclass
class Consolidation:
    """The due windows of one shape in one key group, kind by kind, smaller ones first."""

    shape: Shape
    blocks: pa.Table
    merges: Merges = field(default_factory=Merges)
    dense: bool = True  # whether matrices may be used where they fit
    known: Sequence[tuple[WindowSpec, pa.Table]] = ()
    """Complete windows that larger ones may be made of."""

    def __post_init__(self) -> None:
        self._made = list(self.known)  # those, and more as windows are made
        in_panes = pc.equal(self.blocks.column("spec"), 0)
        on_time = pc.and_(in_panes, pc.is_null(self.blocks.column("not_before")))
        alone = pc.invert(on_time)
        self._others = self.blocks.filter(alone)
        self._panes = self.blocks.filter(on_time) if self._others.num_rows else self.blocks
        self._tiles: Tiles | None = None

    @property
    def fresh(self) -> list[tuple[WindowSpec, pa.Table]]:
        """Complete windows that were made here."""
        return self._made[len(self.known) :]

    def windows(
        self,
        spec: WindowSpec,
        ends: Sequence[int],
        again: bool,
        algorithm: Algorithm | None = None,
        ahead: bool = False,
        top: Top | None = None,
    ) -> Relation:
        """The due windows of one kind; `again` says that larger windows may be made of them.

        `ahead` says that others of the same kind will be due before long. Of rows that are not
        among the `top` ones some may be left out.
        """
        algorithm = algorithm or algorithm_of(self.shape, spec, len(ends))
        again &= algorithm is not Algorithm.PANES
        ahead &= self._panes.num_rows >= WORTH_LOOKING_AHEAD
        whole = again or ahead or self._others.num_rows
        base = self._base(spec, ends, algorithm, None if whole else top)
        if again or ahead:
            table = self._cast(base.table())
            if again:
                self._remember(spec, table)
            else:
                self._look_ahead(spec, ends[-1], table.filter(pc.equal(table["w"], ends[-1])))
            base = self._read(table, base.doing)
        return self._with_others(spec, ends, base)

    def _look_ahead(self, spec: WindowSpec, end: int, window: pa.Table) -> None:
        """Remembers what the next window of a kind, after the one that ends here, is made of."""
        if spec.cumulates:
            self._remember(spec, window)
            return
        if removable(self.shape) and not self._has_nulls():
            start = end - spec.length
            tables = {"made": window, "leaving": _inside(self._panes, start, start + spec.stride)}
            rest = WindowSpec(spec.range - spec.slide, spec.slide, spec.offset, spec.pane)
            doing = f"what stays of the window up to pane {end}"
            self._remember(rest, self._cast(run(rest_sql(self.shape, end), tables, doing)))
            return
        size = isqrt(spec.length // spec.stride) * spec.stride
        block = WindowSpec(size * spec.pane, size * spec.pane, 0, spec.pane)
        known = {
            e
            for made, table in self._made
            if made == block
            for e in _counts(table["w"])[0].tolist()
        }
        inside = range(-(-(end - spec.length) // size) * size + size, end + 1, size)
        missing = [e for e in inside if e not in known]
        if size > 1 and missing:
            self._remember(block, self._cast(self._shared(block, missing, "blocks").table()))

    def _has_nulls(self) -> bool:
        """Whether a sum may become NULL when something is removed: it would be 0."""
        for number, part in enumerate(self.shape.parts):
            rows = self._panes
            if len(self.shape.parts) > 1:  # cells of other parts are always NULL
                rows = rows.filter(pc.equal(rows.column("part"), number))
            if any(rows.column(cell.name).null_count for cell in part.cells):
                return True
        return False

    def _cast(self, table: pa.Table) -> pa.Table:
        """Windows with the types that blocks have."""
        names = table.column_names[1:]
        kinds = [("w", pa.int64()), *(self.blocks.schema.field(name) for name in names)]
        return table.cast(pa.schema(kinds))

    def _base(
        self, spec: WindowSpec, ends: Sequence[int], algorithm: Algorithm, top: Top | None
    ) -> Relation:
        doing = f"windows up to pane {ends[-1]}"
        if algorithm is Algorithm.SHARE:
            return self._shared(spec, ends, doing)
        blocks = _inside(self._panes, spec.start(ends[0]), ends[-1])
        if algorithm is Algorithm.REMOVE and self.shape.states:
            return self._read(slide(self.shape, blocks, spec, ends), doing)
        if self.dense and algorithm in (Algorithm.REMOVE, Algorithm.STACKS):
            try:
                exact = algorithm is Algorithm.REMOVE
                windows = dense_windows(self.shape, blocks, spec, ends, exact, top)
            except NotDenseError:
                pass  # the statement does it
            else:
                return self._read(windows, doing)
        if algorithm is Algorithm.PANES and self.dense and top is not None:
            blocks = only_first(self.shape, blocks, top)
        tables = {"blocks": blocks, "due": due_table(spec, ends)}
        return Relation(self.shape, consolidate_sql(self.shape, spec, algorithm), tables, doing)

    def _read(self, table: pa.Table, doing: str) -> Relation:
        """Windows that are made already. A state among them is a list of one."""
        names = [cell.name for cell in self.shape.states]
        cells = [f"CASE WHEN {n} IS NOT NULL THEN [{n}] END AS {n}" for n in names]
        columns = f"* REPLACE ({', '.join(cells)})" if cells else "*"
        return Relation(self.shape, f"SELECT {columns} FROM made", {"made": table}, doing)

    def _shared(self, spec: WindowSpec, ends: Sequence[int], doing: str) -> Relation:
        if self._tiles is None:
            self._tiles = Tiles(*_counts(self._panes.column("pane")))
            for number, (made, table) in enumerate(self._made):
                self._tiles.add(_tiles_of(number, made, table))
        chosen = {end: self._tiles.cover(spec.start(end), end) for end in ends}
        self.merges.windows += len(chosen)
        self.merges.tiles += sum(map(len, chosen.values()))
        used = sorted({tile.number for cover in chosen.values() for tile in cover.windows})
        sources = [_as_tiles(_PANES, self._used(chosen), "pane", 1)]
        sources += [_as_tiles(number, self._made[number][1], "w", 0) for number in used]
        tables = {"pieces": pa.concat_tables(sources), "parts": _mapping(chosen)}
        return Relation(self.shape, share_sql(self.shape, spec), tables, doing)

    def _used(self, chosen: Mapping[int, Cover]) -> pa.Table:
        """The rows of the panes that were chosen."""
        panes = _joined(cover.panes for cover in chosen.values())
        used = np.isin(self._panes.column("pane").to_numpy(), panes)
        return self._panes if used.all() else self._panes.filter(pa.array(used))

    def _remember(self, spec: WindowSpec, table: pa.Table) -> None:
        if self._tiles is not None:
            self._tiles.add(_tiles_of(len(self._made), spec, table))
        self._made.append((spec, table))

    def _with_others(self, spec: WindowSpec, ends: Sequence[int], base: Relation) -> Relation:
        others = self._others
        if others.num_rows:
            kind = others.column("spec")
            mine = pc.or_(pc.equal(kind, 0), pc.equal(kind, spec_id(spec)))
            others = others.filter(mine)
        if not others.num_rows:
            return base
        tables = {"base": base.table(), "others": others, "due": due_table(spec, ends)}
        return Relation(self.shape, with_others_sql(self.shape, spec), tables, base.doing)


def _inside(blocks: pa.Table, first: int, upto: int) -> pa.Table:
    """The rows of the panes `[first, upto)`."""
    pane = blocks.column("pane")
    inside = pc.and_(pc.greater_equal(pane, first), pc.less(pane, upto))
    return rows_where(blocks, inside)


def due_table(spec: WindowSpec, ends: Sequence[int]) -> pa.Table:
    numbers = np.asarray(ends, np.int64)
    return pa.table({"w": numbers, "start": spec.starts(numbers)})


def _counts(numbers: pa.ChunkedArray) -> tuple[Numbers, Numbers]:
    """The numbers that there are, in order, and how often each is there."""
    values = numbers.to_numpy()
    if not len(values):
        return values, values
    low = int(values.min())
    if int(values.max()) - low > 4 * len(values):
        return np.unique(values, return_counts=True)
    every = np.bincount(values - low)  # faster where numbers are close to each other
    (at,) = np.nonzero(every)
    return at + low, every[at]


def _tiles_of(number: int, spec: WindowSpec, table: pa.Table) -> dict[Tile, int]:
    ends, rows = (array.tolist() for array in _counts(table.column("w")))
    return {Tile(spec.start(e), e, number): n for e, n in zip(ends, rows, strict=True)}


def _as_tiles(number: int, table: pa.Table, at: str, to_end: int) -> pa.Table:
    """Rows of panes or windows, told apart by number and end."""
    ends = table.column(at)
    ends = pc.add(ends, to_end) if to_end else ends
    dropped = [name for name in ("pane", "w", "spec", "not_before") if name in table.column_names]
    plain = table.drop_columns(dropped)
    kind = pa.array(np.full(table.num_rows, number, np.int32))
    return plain.add_column(0, "upto", ends).add_column(0, "kind", kind)


def _mapping(chosen: Mapping[int, Cover]) -> pa.Table:
    """Which tile belongs to which window."""
    upto = _joined(cover.panes for cover in chosen.values()) + 1
    ends = np.repeat(np.array(list(chosen)), [len(cover.panes) for cover in chosen.values()])
    of_panes = np.stack([np.full(len(upto), _PANES), upto, ends])
    windows = [(p.number, p.end, end) for end, cover in chosen.items() for p in cover.windows]
    of_windows = np.array(windows, np.int64).reshape(-1, 3).T
    parts = np.concatenate([of_panes, of_windows], axis=1)
    return pa.table(list(parts), _PARTS)


def _joined(arrays: Iterable[Numbers]) -> Numbers:
    return np.concatenate([np.zeros(0, np.int64), *arrays])


def consolidate_sql(shape: Shape, spec: WindowSpec, algorithm: Algorithm) -> str:
    """Panes, or tiles, to windows."""
    return {
        Algorithm.PANES: single_sql,
        Algorithm.SHARE: share_sql,
        Algorithm.REMOVE: add_and_remove_sql,
        Algorithm.STACKS: two_stacks_sql,
        Algorithm.GROW: grow_sql,
    }[algorithm](shape, spec)


def _merged_sql(shape: Shape, rows: str) -> str:
    keys = ", ".join(["w", *row_names(shape)])
    return f"SELECT {keys}, {merged_cells(shape)}\nFROM {rows}\nGROUP BY {keys}"


def single_sql(shape: Shape, spec: WindowSpec) -> str:
    """Windows that are one pane each."""
    return _merged_sql(shape, "(SELECT pane + 1 AS w, * FROM blocks) JOIN due USING (w)")


def share_sql(shape: Shape, spec: WindowSpec) -> str:
    """Every tile joins the windows that were planned to be made of it."""
    return _merged_sql(shape, "pieces JOIN parts USING (kind, upto)")


def with_others_sql(shape: Shape, spec: WindowSpec) -> str:
    """Windows and the rows that are late for some of them, or belong to one alone."""
    cells = ", ".join(["w", *row_names(shape), *(c.name for c in cells_of(shape))])
    marked = "others JOIN due ON pane >= start AND pane < w"
    if spec.regular:
        windows = f"SELECT {ends_sql(spec, 'pane')} AS w, * FROM others WHERE spec = 0"
        marked = f"({windows}) JOIN due USING (w)"
    return _merged_sql(
        shape,
        f"(SELECT {cells} FROM base\n"
        f"UNION ALL\n"
        f"SELECT {cells} FROM {marked} WHERE spec = 0 AND not_before < w\n"
        f"UNION ALL\n"
        f"SELECT {cells} FROM (SELECT pane AS w, * FROM others WHERE spec = {spec_id(spec)}) "
        f"JOIN due USING (w))",
    )


def rest_sql(shape: Shape, end: int) -> str:
    """The window `made` less the panes that are `leaving`, of exact sums that are never NULL."""
    keys = ", ".join(row_names(shape))
    names = ", ".join([keys, *(cell.name for cell in cells_of(shape))])
    cells = ", ".join(
        f"CAST(sum(sign * {c.name}) AS {c.type}) AS {c.name}" for c in cells_of(shape)
    )
    return (
        f"SELECT CAST({end} AS BIGINT) AS w, {keys}, {cells}\n"
        f"FROM (SELECT 1 AS sign, {names} FROM made\n"
        f"UNION ALL SELECT -1, {names} FROM leaving)\n"
        f"GROUP BY {keys} HAVING sum(sign * {_records_sql(shape)}) > 0"
    )


def _records_sql(shape: Shape) -> str:
    """The count cell of whichever part a row is of: zero when nothing is left of the row."""
    return f"coalesce({', '.join(count_cell(part).name for part in shape.parts)})"


def add_and_remove_sql(shape: Shape, spec: WindowSpec) -> str:
    """Every partial is added at its first window and removed after its last.

    Between two such events nothing changes for a key, so the work is two rows a partial and one
    a result, however much windows overlap. A sum of which no partial is left is NULL again.
    """
    names = row_names(shape)
    cells = [cell.name for cell in cells_of(shape)]
    keys, by = ", ".join(names), f"(PARTITION BY {', '.join(names)} ORDER BY w)"
    changes = ", ".join(
        f"sum(sign * {c}) AS {c}, count({c}) FILTER (WHERE sign > 0) - "
        f"count({c}) FILTER (WHERE sign < 0) AS n_{c}"
        for c in cells
    )
    running = ", ".join(f"sum({c}) OVER {by} AS {c}, sum(n_{c}) OVER {by} AS n_{c}" for c in cells)
    present = ", ".join(
        f"CAST(CASE WHEN n_{cell.name} > 0 THEN {cell.name} END AS {cell.type}) AS {cell.name}"
        for cell in cells_of(shape)
    )
    return (
        f"SELECT unnest(range(w, until, {spec.stride})) AS w, {keys}, {present}\n"
        f"FROM (SELECT w, {keys}, {running},\n"
        f"  lead(w, 1, (SELECT max(w) FROM due) + {spec.stride}) OVER {by} AS until\n"
        f"  FROM (SELECT w, {keys}, {changes} FROM ({_events_sql(spec)}) GROUP BY w, {keys}))\n"
        f"WHERE {_records_sql(shape)} > 0"
    )


def _events_sql(spec: WindowSpec) -> str:
    """When each partial enters and when it leaves, within the due windows."""
    first = f"{floor_div_sql(f'pane - {spec.length + spec.shift}', spec.stride)} + 1"
    last = floor_div_sql(f"pane - {spec.shift}", spec.stride)
    ends = f"* {spec.stride} + {spec.length + spec.shift}"
    spans = (
        f"SELECT *, greatest(({first}) {ends}, (SELECT min(w) FROM due)) AS enter, "
        f"({last} + 1) {ends} AS leave FROM blocks"
    )
    due = "enter <= (SELECT max(w) FROM due) AND enter < leave"
    return (
        f"SELECT enter AS w, 1 AS sign, * FROM ({spans}) WHERE {due}\n"
        f"UNION ALL\n"
        f"SELECT leave AS w, -1 AS sign, * FROM ({spans})\n"
        f"WHERE {due} AND leave <= (SELECT max(w) FROM due)"
    )


def two_stacks_sql(shape: Shape, spec: WindowSpec) -> str:
    """The end of one stretch of panes merged with the beginning of the next.

    A running merge of a key changes only at panes where the key has rows. So the row at a pane
    stands for all windows that start after the key's previous pane (towards the stretch's end),
    or that end before its next one (from the stretch's beginning).
    """
    names = row_names(shape)
    keys = ", ".join(names)
    panes = (
        f"SELECT pane, {keys}, {merged_cells(shape)}, "
        f"{floor_div_sql('pane', spec.length)} * {spec.length} AS stretch\n"
        f"FROM blocks GROUP BY pane, {keys}"
    )
    by = f"PARTITION BY {', '.join(['stretch', *names])}"
    backward = (
        f"SELECT {keys}, {_running_cells(shape, f'({by} ORDER BY pane DESC)')},\n"
        f"  lag(pane, 1, stretch - 1) OVER ({by} ORDER BY pane) + 1 AS low, pane AS high\n"
        f"  FROM panes"
    )
    forward = (
        f"SELECT {keys}, {_running_cells(shape, f'({by} ORDER BY pane)')},\n"
        f"  pane + 1 AS low, lead(pane, 1, stretch + {spec.length} - 1) OVER ({by} ORDER BY pane) "
        f"AS high\n  FROM panes"
    )
    starts = _expanded_sql(spec, backward, spec.length)
    ends = _expanded_sql(spec, forward, 0)
    merged = _merged_sql(shape, f"(({starts}) UNION ALL ({ends})) JOIN due USING (w)")
    return f"WITH panes AS MATERIALIZED ({panes})\n{merged}"


def grow_sql(shape: Shape, spec: WindowSpec) -> str:
    """A running merge from the start that windows have in common.

    The row at a pane stands for all windows that end after it and not after the key's next one.
    """
    names = row_names(shape)
    keys, by = ", ".join(names), f"(PARTITION BY {', '.join(['start', *names])} ORDER BY pane)"
    cells = ", ".join(cell.name for cell in cells_of(shape))
    panes = (
        f"SELECT start, pane, {keys}, {merged_cells(shape)}\n"
        f"FROM blocks JOIN (SELECT start, max(w) AS until FROM due GROUP BY start)\n"
        f"ON pane >= start AND pane < until\nGROUP BY start, pane, {keys}"
    )
    running = (
        f"SELECT start, pane, lead(pane) OVER {by} AS next, {keys}, "
        f"{_running_cells(shape, by)}\nFROM ({panes})"
    )
    return (
        f"SELECT w, {keys}, {cells}\nFROM ({running}) JOIN due USING (start)\n"
        f"WHERE w > pane AND (next IS NULL OR w <= next)"
    )


def _running_cells(shape: Shape, over: str) -> str:
    cells = ((c, folded_sql(c, f" OVER {over}")) for c in cells_of(shape))
    return ", ".join(f"CAST({sql} AS {c.type}) AS {c.name}" for c, sql in cells)


def _expanded_sql(spec: WindowSpec, rows: str, to_end: int) -> str:
    """Rows for the windows whose bound, start or end, lies in [low, high]."""
    phase = spec.shift + spec.length - to_end
    first = f"greatest(low, (SELECT min(w) FROM due) - {to_end})"
    last = f"least(high, (SELECT max(w) FROM due) - {to_end})"
    before = floor_div_sql(f"{first} - {phase} + {spec.stride - 1}", spec.stride)
    at = f"{before} * {spec.stride} + {phase}"
    return (
        f"SELECT * EXCLUDE (low, high), "
        f"unnest(range({at}, {last} + 1, {spec.stride})) + {to_end} AS w\nFROM ({rows})"
    )
