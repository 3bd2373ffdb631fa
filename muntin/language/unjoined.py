"""What to write in the place of a join of records: the same query, each side grouped first.

This is asked only where a query has been refused, to show another one that is not. It counts each
record once, and not once for every record of the other side, which is seldom what is meant.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from sqlglot import exp

from muntin.kernel.engine import quote
from muntin.language.calls import is_aggregate, is_query, is_windowed
from muntin.language.scope import View
from muntin.language.script import Script


@dataclass
class Side:
    """What is joined: records of a stream or, without a view, rows as they are."""

    node: exp.Expr
    view: View | None
    join: exp.Expr | None = None  # with the sides before it
    keys: dict[str, None] = field(default_factory=dict)
    made: dict[str, str] = field(default_factory=dict)  # what aggregates are called
    where: list[str] = field(default_factory=list)

    @property
    def called(self) -> str:
        return str(self.node.alias_or_name)

    def has(self, column: exp.Column) -> bool:
        if column.table:
            return column.table.lower() == self.called.lower()
        known = self.view.columns if self.view is not None else {}
        return column.name.lower() in {name.lower() for name in known}


def grouped_first(script: Script, select: exp.Select, sides: Sequence[Side]) -> str | None:
    """The query with each stream grouped by what it is joined by; None if that is not known."""
    plain = [side for side in sides if side.view is not None and isinstance(side.node, exp.Table)]
    if not plain or any(side.view is not None and side not in plain for side in sides):
        return None
    return _Rewriting(script, select, sides).text()


class _Rewriting:
    def __init__(self, script: Script, select: exp.Select, sides: Sequence[Side]) -> None:
        self._script = script
        self._select = select
        self._sides = sides
        self._names: dict[int, str] = {}  # of aggregates, by identity

    def text(self) -> str | None:
        conditions = list(self._conditions())
        equal = [c for c in conditions if self._is_equality(c)]
        for condition in conditions:
            of = self._sides_of(condition)
            if condition in equal:
                for column in condition.find_all(exp.Column):
                    self._key(column)
            elif len(of) == 1 and of[0].view is not None:
                of[0].where.append(self._bare(condition))
            else:
                return None
        used = [name for side in self._sides if side.join is not None
                for name in side.join.args.get("using") or ()]  # fmt: skip
        for side in self._sides:
            side.keys |= {name.name: None for name in used}
        if not equal and not used:
            return None
        group = self._select.args.get("group")
        for place in [*self._select.expressions, *(group.expressions if group else ())]:
            self._take(place)
        items = [shown for item in self._select.expressions for shown in self._items(item)]
        return f"SELECT {', '.join(items)} FROM {' '.join(self._read(equal))}"

    def _conditions(self) -> Iterator[exp.Expr]:
        """What has to hold, one by one."""
        where = self._select.args.get("where")
        ons = [side.join.args.get("on") for side in self._sides if side.join is not None]
        for condition in [where.this if where is not None else None, *ons]:
            if condition is not None:
                both = isinstance(condition, exp.And)
                yield from condition.flatten() if both else [condition]

    def _is_equality(self, condition: exp.Expr) -> bool:
        columns = isinstance(condition, exp.EQ) and all(
            isinstance(side, exp.Column) for side in (condition.left, condition.right)
        )
        return columns and len(self._sides_of(condition)) == 2

    def _sides_of(self, node: exp.Expr) -> list[Side]:
        columns = list(node.find_all(exp.Column))
        return [side for side in self._sides if any(map(side.has, columns))]

    def _key(self, column: exp.Column) -> None:
        for side in filter(lambda side: side.has(column), self._sides):
            side.keys.setdefault(column.name)

    def _take(self, place: exp.Expr) -> None:
        """Gives aggregates and other columns to the side that they are of."""
        for node in place.walk(prune=lambda inner: is_query(inner) or _is_plain(inner)):
            if _is_plain(node):
                of = self._sides_of(node) or [self._sides[0]]
                name = place.alias if place.unalias() is node and place.alias else self._new(node)
                of[0].made.setdefault(self._bare(node), name)
                self._names[id(node)] = of[0].made[self._bare(node)]
            elif isinstance(node, exp.Column):
                self._key(node)

    def _new(self, node: exp.Expr) -> str:
        column = node.find(exp.Column)
        called = node.name if isinstance(node, exp.Anonymous) else node.key
        name = "n" if column is None else f"{called}_{column.name}"
        taken = [known for side in self._sides for known in side.made.values()]
        return name.lower() if name.lower() not in taken else f"{name.lower()}{len(taken) + 1}"

    def _items(self, item: exp.Expr) -> Iterator[str]:
        if isinstance(item, exp.Star):  # of which there are no more than groups
            first = self._sides[0]
            yield from (f"{first.called}.{key}" for key in first.keys)
            for side in (side for side in self._sides if side.view is not None):
                yield side.made.setdefault("count(*)", f"n_{side.called}")
        elif item.unalias() is not item and self._names.get(id(item.unalias())) == item.alias:
            yield item.alias
        else:
            yield self._script.words(item, lambda node: self._names.get(id(node)))

    def _bare(self, node: exp.Expr) -> str:
        """The text without what says which side its columns are of."""

        def swap(inner: exp.Expr) -> str | None:
            if not isinstance(inner, exp.Column) or not inner.table:
                return None
            return inner.name if inner.name.isidentifier() else quote(inner.name)

        return self._script.words(node, swap)

    def _read(self, equal: Sequence[exp.Expr]) -> Iterator[str]:
        for side in self._sides:
            if side.join is not None:
                kind = str(side.join.args.get("side") or "")
                yield f"{kind} JOIN".strip()
            yield self._grouped(side)
            if side.join is not None:
                using = side.join.args.get("using")
                on = " AND ".join(self._script.words(condition) for condition in equal)
                names = ", ".join(name.name for name in using or ())
                yield f"USING ({names})" if using else f"ON {on}"

    def _grouped(self, side: Side) -> str:
        if side.view is None:
            return self._script.words(side.node)
        made = [f"{text} AS {name}" for text, name in side.made.items()]
        where = f" WHERE {' AND '.join(side.where)}" if side.where else ""
        items = ", ".join([*side.keys, *made])
        name = side.view.reads.name
        return f"(SELECT {items} FROM {name}{where} GROUP BY ALL) {side.called}"


def _is_plain(node: exp.Expr) -> bool:
    """Whether a node is an aggregate of records."""
    return is_aggregate(node) and not is_windowed(node)
