"""What the aggregates of one job are made of: parts, cells, and finish expressions over them.

Finish expressions of part 0 see one row per key; those of other parts aggregate over the rows of a
key, where `sub` is the sub-key and, in ranked parts, `upto` is the running count and `total` the
count of all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from muntin.kernel.canonical import canonical_sql, is_respelled, restored_sql, spelling_sql
from muntin.kernel.types import stored
from muntin.model.jobs import Finish
from muntin.model.shapes import Cell, Code, Merge, Part

TypeOf = Callable[[str, bool], str]  # (sql, whether it aggregates) -> DuckDB type


@dataclass(frozen=True)
class Call:
    """One aggregate as written: its name, arguments, DISTINCT, ORDER BY and FILTER."""

    name: str
    args: tuple[str, ...] = ()
    distinct: bool = False
    where: str | None = None
    code: Code | None = None  # of an aggregate in Python
    order: tuple[tuple[str, str], ...] = ()  # expressions, and for example "DESC NULLS LAST"
    many: bool = False  # whether it asks for several quantiles: all arguments but the first
    limit: int | None = None  # of a list: how many values of a key it asks for
    words: str = ""  # as the user calls it


@dataclass
class PartOf:
    """A part as it grows: its cells by their SQL."""

    sub_key: str | None = None
    where: str | None = None
    cells: dict[str, Cell] = field(default_factory=dict)
    ranked: bool = False
    shown: str = "sub"  # what people see of the sub-key

    @property
    def least(self) -> str:
        """The smallest of the values, as people see it."""
        return "min(sub)" if self.shown == "sub" else f"arg_min({self.shown}, sub)"


class Expander:
    """Collects the parts, cells and finishes of one job; equal ones are shared."""

    def __init__(self, type_of: TypeOf, split: bool = False) -> None:
        """`split`: records are shared out among panes by the time they stand for."""
        self.split = split
        self._type_of = type_of
        self._parts: dict[tuple[str | None, str | None], PartOf] = {(None, None): PartOf()}
        self._finishes: dict[tuple[int, str], Finish] = {}
        self._cells = 0
        self._arguments: dict[str, None] = {}
        self.cell("count(*)", Merge.SUM)

    def take(self, call: Call) -> None:
        """Notes what a call evaluates on every record."""
        order = (sql for sql, _ in call.order)
        self._arguments |= dict.fromkeys((*call.args, *order, *filter(None, [call.where])))

    def cell(
        self, sql: str, merge: Merge, part: PartOf | None = None, kind: str | None = None
    ) -> str:
        return self._cell(part, sql, merge, kind or stored(self.type_of(sql, True)))

    def folded(self, sql: str, kind: str, fold: str) -> str:
        """A cell that an expression merges, in which `{c}` stands for the cells of some rows."""
        return self._cell(None, sql, Merge.FOLD, kind, fold=fold)

    def state(self, sql: str, code: Code) -> str:
        """A cell that Python makes of the list that the SQL gives."""
        given, name = self.type_of(sql, True), f"{code.reference}: {sql}"
        return self._cell(None, sql, Merge.STATE, "BLOB", name, code=code, given=given)

    def _cell(
        self,
        part: PartOf | None,
        sql: str,
        merge: Merge,
        kind: str,
        name: str | None = None,
        code: Code | None = None,
        given: str = "",
        fold: str = "",
    ) -> str:
        cells, name = (part or self._parts[None, None]).cells, name or sql
        if name not in cells:
            cells[name] = Cell(f"c{self._cells}", sql, merge, kind, code, given, fold)
            self._cells += 1
        return cells[name].name

    def part(self, sub_key: str, where: str | None, ranked: bool = False) -> PartOf:
        part = self._parts.setdefault((sub_key, where), PartOf(sub_key, where))
        part.ranked = part.ranked or ranked
        return part

    def finish(self, sql: str, part: PartOf | None = None, zero: bool = False) -> str:
        """`zero` says that the value is zero, not unknown, where no record reached the part."""
        return self._finish(sql, part, zero)

    def limited(self, sql: str, whole: str, most: int, words: str, part: PartOf | None) -> str:
        """A list of at most so many values, of which there are as many as `whole` says."""
        return self._finish(sql, part, whole=whole, most=most, words=words)

    def _finish(
        self,
        sql: str,
        part: PartOf | None,
        zero: bool = False,
        whole: str = "",
        most: int = 0,
        words: str = "",
    ) -> str:
        index = list(self._parts.values()).index(part) if part else 0
        default = Finish(f"a{len(self._finishes)}", index, sql, zero, whole, most, words)
        return self._finishes.setdefault((index, sql), default).name

    def type_of(self, sql: str, aggregates: bool = False) -> str:
        return self._type_of(sql, aggregates)

    def parts(self) -> tuple[Part, ...]:
        return tuple(
            Part(
                cells=tuple(part.cells.values()),
                sub_key=part.sub_key,
                sub_type=stored(self.type_of(part.sub_key)) if part.sub_key else None,
                where=part.where,
                ranked=part.ranked,
            )
            for part in self._parts.values()
        )

    def finishes(self) -> tuple[Finish, ...]:
        return tuple(self._finishes.values())

    def arguments(self) -> tuple[str, ...]:
        """Of all calls, each once: what cells evaluate on every record."""
        return tuple(self._arguments)


def filtered(sql: str, where: str | None) -> str:
    return f"{sql} FILTER (WHERE {where})" if where else sql


def both(*conditions: str | None) -> str:
    return " AND ".join(f"({c})" for c in conditions if c)


def values(to: Expander, call: Call, ranked: bool = False) -> PartOf:
    """The part with one row per distinct value and how often it came."""
    x = call.args[0] if len(call.args) == 1 or not call.distinct else f"({', '.join(call.args)})"
    kind = to.type_of(x)
    several = is_respelled(kind)
    part = to.part(
        canonical_sql(x, kind) if several else x, both(f"{x} IS NOT NULL", call.where), ranked
    )
    to.cell("count(*)", Merge.SUM, part)
    if several:
        spelling = to.cell(f"min({spelling_sql(x, kind)})", Merge.MIN, part)
        part.shown = restored_sql(spelling, kind)
    return part


def compared(to: Expander, x: str) -> str:
    """An expression in the place of another where blocks compare its values."""
    kind = to.type_of(x)
    return canonical_sql(x, kind) if is_respelled(kind) else x
