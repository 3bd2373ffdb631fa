"""Expressions over the groups of a query: its keys and its aggregates, finished.

Keys come out as `p0.k0`…, aggregates as `p0.a0`… of the part that finishes them. The aggregates
met on the way are expanded into cells.
"""

from __future__ import annotations

from collections.abc import Sequence

import duckdb
from sqlglot import exp

from muntin.kernel.aggregates import expand
from muntin.kernel.canonical import (
    canonical_sql,
    canonical_type,
    collated,
    is_respelled,
    restored_sql,
    spelling_sql,
)
from muntin.kernel.engine import collation, describe, rehearse
from muntin.kernel.expander import Call, Expander
from muntin.language.calls import call_of, is_aggregate
from muntin.language.messages import reason
from muntin.language.scope import Scope, is_condition, is_parameter
from muntin.language.script import tokens
from muntin.model.jobs import Finish
from muntin.model.records import SET
from muntin.model.shapes import Key, Part

_GROUPINGS = ("grouping", "grouping_id")


class Groups:
    def __init__(
        self,
        scope: Scope,
        keys: list[tuple[str, str]],
        expander: Expander,
        sets: Sequence[tuple[int, ...]] = (),
    ) -> None:
        """Keys are given by their SQL over a record and its type, sets by the numbers of keys."""
        self._scope = scope
        self._sets = sets
        self._expander = expander
        self._given = keys
        self._words = [tokens(sql) for sql, _ in keys]
        self._finished: dict[str, str] = {}
        self.keys = tuple(key_of(sql, kind) for sql, kind in keys)
        if sets:
            self.keys += (Key(SET, "BIGINT"),)

    def sql(self, node: exp.Expr, before: int | None = None) -> str:
        """The expression over keys and finished aggregates."""
        return self._scope.script.words(node, lambda inner: self._group_sql(inner, before))

    def parts(self) -> tuple[Part, ...]:
        return self._expander.parts()

    def finishes(self) -> tuple[Finish, ...]:
        return self._expander.finishes()

    def scalars(self) -> tuple[str, ...]:
        """All that is evaluated on every record: keys and arguments."""
        keys = (sql for sql, _ in self._given)
        return tuple(dict.fromkeys((*keys, *self._expander.arguments())))

    def bound(self, node: exp.Expr, before: int | None = None) -> tuple[str, str]:
        """The expression's SQL and type, if DuckDB can evaluate it on a group."""
        sql = self.sql(node, before)
        try:
            select = f"SELECT ({sql}) AS x FROM groups"
            ((_, kind),) = describe(select, self._types(), "groups")
            if "'" in sql:
                rehearse(select, self._types(), "groups")
        except duckdb.Error as error:
            raise self._scope.script.error(reason(error), node) from error
        return sql, kind

    def ordering(self, node: exp.Expr, before: int | None = None) -> str:
        """What rows are ordered by in place of an expression: blocks have no collations."""
        sql, kind = self.bound(node, before)
        if kind == "VARCHAR" and "collate" in sql.lower():
            select = f"SELECT ({sql}) AS x FROM groups"
            kind = collated(kind, collation(select, self._types(), "groups"))
        return canonical_sql(sql, kind) if is_respelled(kind) else sql

    def condition(self, node: exp.Expr, clause: str) -> str:
        sql, kind = self.bound(node)
        if not is_condition(kind):
            message = f"{clause} is of type {kind}; expected a condition"
            raise self._scope.script.error(message, node)
        return sql

    def _group_sql(self, node: exp.Expr, before: int | None) -> str | None:
        if is_parameter(node):
            return None
        if self._scope.is_bound(node):
            return f"p0.{node.name.lower()}"
        if is_aggregate(node):
            return self._finished_sql(node, before)
        if isinstance(node, exp.Anonymous) and node.name.lower() in _GROUPINGS:
            return self._grouping_sql(node, before)
        key = self._key_sql(node, before)
        if key is None and isinstance(node, exp.Column):
            return self._named_sql(node, before)
        return key

    def _grouping_sql(self, node: exp.Expr, before: int | None) -> str:
        """A bit for each of the keys that are named: whether rows are not grouped by it."""
        keys = [self._key_number(arg, before) for arg in node.expressions]
        if not self._sets or not keys:
            message = "GROUPING tells by which keys of ROLLUP, CUBE or GROUPING SETS a row is made"
            raise self._scope.script.error(message, node)
        bits = [_bits([key not in each for key in keys]) for each in self._sets]
        cases = " ".join(f"WHEN {self._first_set + n} THEN {bit}" for n, bit in enumerate(bits))
        return f"CASE {self._set_column()} {cases} END"

    def _key_number(self, node: exp.Expr, before: int | None) -> int:
        index = None if self._scope.column_sql(node) else self._scope.item_named(node, before)
        if index is not None:
            return self._key_number(self._scope.items[index].unalias(), index)
        words = tokens(self._scope.sql(node, before))
        if words not in self._words:
            raise self._scope.script.error("GROUPING takes keys of GROUP BY", node)
        return self._words.index(words)

    _first_set = 0  # the number of the first of its sets

    def _set_column(self) -> str:
        return f"p0.k{len(self.keys) - 1}"

    def _key_sql(self, node: exp.Expr, before: int | None) -> str | None:
        index = self._key_index(node, before)
        return None if index is None else self._key_shown(index, f"p0.k{index}", node)

    def _key_index(self, node: exp.Expr, before: int | None) -> int | None:
        """The number of the key that an expression is."""
        if isinstance(node, exp.Literal) or not self.keys:
            return None
        if any(self._scope.is_bound(inner) for inner in node.walk()):
            return None
        words = tokens(self._scope.sql(node, before))
        return self._words.index(words) if words in self._words else None

    def _key_shown(self, index: int, column: str, node: exp.Expr) -> str:
        """A key as people see it: of several spellings the smallest."""
        sql, kind = self._given[index]
        if not is_respelled(kind):
            return column
        spelling = self._finish_of(self._mine(Call("any_value", (spelling_sql(sql, kind),))), node)
        # By some sets of keys, rows are not grouped by this one.
        shown = f"CASE WHEN {column} IS NOT NULL THEN {spelling} END" if self._sets else spelling
        return restored_sql(shown, kind)

    def _mine(self, call: Call) -> Call:
        """A call over the records of these groups."""
        return call

    def _named_sql(self, node: exp.Expr, before: int | None) -> str:
        index = self._scope.item_named(node, before)
        if index is not None:
            return f"({self.sql(self._scope.items[index].unalias(), index)})"
        if self._scope.column_sql(node) is None:
            raise self._scope.unknown(node)
        message = f"'{node.name}' must be in GROUP BY or inside an aggregate"
        raise self._scope.script.error(message, node)

    def _finished_sql(self, node: exp.Expr, before: int | None) -> str:
        return self._finish_of(call_of(node, self._scope, before), node)

    def _finish_of(self, call: Call, node: exp.Expr) -> str:
        try:
            name = expand(self._expander, call)
        except duckdb.Error as error:
            raise self._scope.script.error(reason(error), node) from error
        except ValueError as error:
            raise self._scope.script.error(str(error), node) from error
        return next(f for f in self.finishes() if f.name == name).column

    def _types(self) -> dict[str, str]:
        """A struct for each part, whose fields are its keys and finished aggregates."""
        parts = self.parts()
        fields: list[list[str]] = [[] for _ in parts]
        fields[0] = [f"k{i} {key.type}" for i, key in enumerate(self.keys)]
        fields[0] += [f"{name} {kind}" for name, kind in self._scope.bounds.items()]
        for finish in self.finishes():
            if finish.name not in self._finished:
                self._finished[finish.name] = _finish_type(finish, parts)
            fields[finish.part].append(f"{finish.name} {self._finished[finish.name]}")
        return {f"p{i}": f"STRUCT({', '.join(each)})" for i, each in enumerate(fields) if each}


def key_of(sql: str, kind: str) -> Key:
    """The key of blocks that an expression over records becomes."""
    return Key(canonical_sql(sql, kind), canonical_type(kind), sql)


def _bits(values: Sequence[bool]) -> int:
    return sum(value << place for place, value in enumerate(reversed(values)))


def _finish_type(finish: Finish, parts: tuple[Part, ...]) -> str:
    columns = {cell.name: cell.type for part in parts for cell in part.cells}
    sub_type = parts[finish.part].sub_type
    if sub_type is not None:
        columns |= {"sub": sub_type, "upto": "HUGEINT", "total": "HUGEINT"}
    ((_, kind),) = describe(f"SELECT {finish.sql} AS x FROM cells", columns, "cells")
    return kind
