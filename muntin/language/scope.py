"""Expressions over the records of one stream: names looked up, types told by DuckDB.

A name is a column of the stream, else one given with AS in an earlier item of SELECT, as in
DuckDB. Columns come out quoted and in their exact spelling.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import duckdb
from sqlglot import exp

from muntin.errors import LanguageError
from muntin.kernel.canonical import collated
from muntin.kernel.engine import collation, describe, quote, rehearse, value
from muntin.language.messages import nearest, reason
from muntin.language.script import Script
from muntin.model.records import COPY, POSITION, Column
from muntin.model.streams import Stream
from muntin.model.tables import Join, Lookup, Unnest

# What a text may have been meant to be, with how a value is called.
# What a type that was taken from a sample may have been meant to be, and why it was not taken.
_GUESSES = {
    "VARCHAR": {
        "BIGINT": "where not every value is a number",
        "TIMESTAMP": "where not every value is a time that is understood",
        "BOOLEAN": "where not every value is a boolean",
    },
    "TIMESTAMP": {"VARCHAR": "and can be used as a time without being parsed; if it is to be text"},
}
WINDOW_COLUMNS = ("window_start", "window_end", "window_name")  # that every window has


@dataclass(frozen=True)
class Shown:
    """A column that a subquery shows of each record: what it is, and of which columns."""

    sql: str
    type: str
    uses: frozenset[str]


@dataclass(frozen=True)
class View:
    """A stream's records as a SELECT sees them: all, or what a subquery shows of some."""

    stream: Stream
    called: tuple[str, ...]
    columns: Mapping[str, Shown]
    where: tuple[Shown, ...] = ()
    joins: tuple[Join | Unnest | Lookup, ...] = ()
    beside: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Of tables that are joined, by what they are called: columns, and their names beside records.

    Those names are among `columns` too.
    """
    uses: frozenset[str] = frozenset()  # of the conditions of joins, and of lookups
    lookups: Mapping[int, str] = field(default_factory=dict)
    """By the identity of expressions that tables have to tell, the columns that they are."""
    member: Stream | None = None  # whose records these are, if the stream has several

    @property
    def reads(self) -> Stream:
        """The stream that the user has named."""
        return self.member or self.stream

    @property
    def joined(self) -> dict[str, str]:
        """The columns that records have beside their own, with their types."""
        return {name: kind for join in self.joins for name, kind in join.columns.items()}

    @classmethod
    def of(cls, stream: Stream, *called: str) -> View:
        """All of a stream."""
        columns = stream.visible_columns()
        shown = {c.name: Shown(quote(c.name), c.type, frozenset({c.name})) for c in columns}
        return cls(stream, (stream.name, *called), shown)


class Scope:
    """The names that `columns` of a stream and the `items` of a SELECT give to expressions.

    With a `view` they are those of a subquery over the stream.
    """

    def __init__(
        self,
        script: Script,
        stream: Stream,
        columns: Iterable[Column],
        alias: str = "",
        items: Sequence[exp.Expr] = (),
        view: View | None = None,
        position: str = "TIMESTAMP WITH TIME ZONE",
    ) -> None:
        self.script = script
        # What is known of the window of a group; `position` is the type of its bounds.
        self.bounds = dict(zip(WINDOW_COLUMNS, (position, position, "VARCHAR"), strict=True))
        self.stream = stream
        self._reads = stream if view is None else view.reads
        self.items = items
        self.used: set[str] = set()
        self._types: dict[str, str] = {}
        self._called = {stream.name.lower(), alias.lower()}
        self._own = {c.name: c.type for c in columns}
        self._columns = self._own
        self._shown = view.columns if view is not None else {}
        self._lookups = view.lookups if view is not None else {}
        self._beside: Mapping[str, Mapping[str, str]] = {}
        if view is not None:
            self._beside = {name.lower(): columns for name, columns in view.beside.items()}
            self._own = self._own | view.joined
            self._called = {name.lower() for name in view.called}
            self._columns = {name: shown.type for name, shown in view.columns.items()}
        self._exact = {name.lower(): name for name in self._columns}
        self._given = {item.alias.lower(): i for i, item in enumerate(items) if item.alias}

    def sql(self, node: exp.Expr, before: int | None = None) -> str:
        """The expression with columns by their exact names. `before` ends the items it sees."""
        return self.script.words(node, lambda inner: self.name_sql(inner, before))

    def bound(self, node: exp.Expr, before: int | None = None) -> tuple[str, str]:
        """The expression's SQL and type, if DuckDB can evaluate it on a record."""
        sql = self.sql(node, before)
        try:
            return sql, self.type_of(sql)
        except duckdb.Error as error:
            place = self._narrowest(node, before, error)
            raise self.script.error(self._why(error, place), place) from error

    def condition(self, node: exp.Expr, clause: str) -> str:
        sql, kind = self.bound(node)
        if not is_condition(kind):
            raise self.script.error(f"{clause} is of type {kind}; expected a condition", node)
        return sql

    def type_of(self, sql: str) -> str:
        """The type of an expression over a record, or of an aggregate over many."""
        if sql not in self._types:
            columns = self._own | {POSITION: "BIGINT", COPY: "BIGINT"}
            select = f"SELECT ({sql}) AS x FROM records"
            described = describe(select, columns, "records")
            if len(described) != 1:
                raise duckdb.BinderException("'*' can only stand in count(*)")
            if "'" in sql:
                rehearse(select, columns, "records")
            self._types[sql] = described[0][1]
        return self._types[sql]

    def exact_type(self, sql: str) -> str:
        """The type of an expression, with the collation that a text may have."""
        kind = self.type_of(sql)
        if kind != "VARCHAR" or "collate" not in sql.lower():
            return kind
        columns = self._own | {POSITION: "BIGINT", COPY: "BIGINT"}
        return collated(kind, collation(f"SELECT ({sql}) AS x FROM records", columns, "records"))

    def is_zero_of_nothing(self, sql: str) -> bool:
        """Whether an aggregate of no records is zero, as a count is, and not unknown."""
        columns = self._own | {POSITION: "BIGINT", COPY: "BIGINT"}
        return value(f"SELECT ({sql}) FROM records", columns, "records") == 0

    def column_sql(self, node: exp.Expr) -> str | None:
        """The column of the stream, or the field of one, that a name stands for."""
        path = self._path(node)
        if not path:
            return None
        shown = self._shown.get(path[0])
        first = quote(path[0]) if shown is None else shown.sql
        first = first if re.fullmatch(r'"([^"]|"")*"', first) else f"({first})"
        return ".".join([first, *map(quote, path[1:])])

    def item_named(self, node: exp.Expr, before: int | None = None) -> int | None:
        """The item of SELECT that a plain name stands for, if it does."""
        plain = isinstance(node, exp.Column) and len(node.parts) == 1
        index = self._given.get(node.name.lower()) if plain else None
        return index if index is not None and (before is None or index < before) else None

    def is_bound(self, node: exp.Expr) -> bool:
        """Whether a name stands for a bound of the window, or its name."""
        if not isinstance(node, exp.Column) or node.name.lower() not in WINDOW_COLUMNS:
            return False
        return not self._path(node) and self.item_named(node) is None

    def is_told_by_window(self, node: exp.Expr) -> bool:
        """Whether an expression is made of the window's bounds and name alone."""
        columns = list(node.find_all(exp.Column))
        return bool(columns) and all(map(self.is_bound, columns))

    def unknown(self, node: exp.Expr) -> LanguageError:
        identifiers = node.parts if isinstance(node, exp.Column) else [node]
        qualified = len(identifiers) > 1 and identifiers[0].name.lower() in self._called
        identifier = identifiers[1] if qualified else identifiers[0]
        dotted = ".".join(each.name for each in identifiers)
        meant = dotted if dotted.lower() in self._exact else identifier.name
        named = [name for name in (*self._columns, *self._given) if not name.startswith("__")]
        known = nearest(meant, named, "it has no columns")
        message = f"stream '{self._reads.name}' has no column '{identifier.name}'; {known}"
        if len(identifiers) > 1 and identifiers[0].name.lower() in self._beside:
            known = nearest(identifiers[1].name, self._beside[identifiers[0].name.lower()], "")
            identifier = identifiers[1]
            message = f"'{identifiers[0].name}' has no column '{identifier.name}'; {known}"
        if self.item_named(node) is not None:
            message = f"'{identifier.name}' is used before SELECT names it"
        elif self.is_bound(node):
            message = (
                f"a record is in several windows, so '{identifier.name}' is known of groups only: "
                "in SELECT, HAVING and ORDER BY, outside of aggregates"
            )
        if isinstance(node.parent, exp.JSONExtract):
            message += " (a lambda is written lambda x: …)"
        elif identifier.args.get("quoted") or identifier.name.startswith(("‘", "’", "“", "”")):
            message += " (text stands in single quotes, as in 'text')"
        return self.script.error(message, identifier, node)

    def _path(self, node: exp.Expr) -> list[str]:
        """The exact name of a column and those of fields in it; nothing if it is no column."""
        names = (
            [identifier.name for identifier in node.parts] if isinstance(node, exp.Column) else []
        )
        if len(names) > 1 and names[0].lower() in self._called and names[1].lower() in self._exact:
            names = names[1:]
        elif len(names) > 1 and names[0].lower() in self._beside:
            columns = self._beside[names[0].lower()]
            return [columns[names[1].lower()], *names[2:]] if names[1].lower() in columns else []
        exact = self._exact.get(names[0].lower()) if names else None
        return [exact, *names[1:]] if exact is not None else []

    def name_sql(self, node: exp.Expr, before: int | None = None) -> str | None:
        """What takes the place of a name, or of what is looked up; None of anything else."""
        if id(node) in self._lookups:
            return self._lookups[id(node)]
        if isinstance(node, exp.Limit) and isinstance(node.this, exp.Expr):
            return self.sql(node.this, before)  # of a list in an aggregate: DuckDB has none
        if not isinstance(node, exp.Column) or is_parameter(node):
            return None
        if path := self._path(node):
            shown = self._shown.get(path[0])
            self.used |= {path[0]} if shown is None else shown.uses
            return self.column_sql(node)
        index = self.item_named(node, before)
        if index is None:
            raise self.unknown(node)
        return f"({self.sql(self.items[index].unalias(), index)})"

    def _why(self, error: Exception, place: exp.Expr) -> str:
        """The reason and, where a type was only guessed, how to say it."""
        message = reason(error)
        if not self._reads.inferred or not isinstance(error, duckdb.BinderException):
            return message
        paths = [path for column in place.find_all(exp.Column) if (path := self._path(column))]
        for name, taken in ((path[0], self._columns[path[0]]) for path in paths):
            for kind, why in _GUESSES.get(taken, {}).items():
                if self._would_fit(place, name, kind):
                    return (
                        f"{message.partition('; ')[0]}; column {quote(name)} was taken for {taken} "
                        f"from a sample of the files, {why}: declare the columns, as in "
                        f"CREATE STREAM {self._reads.name} ({name} {kind}, …)"
                    )
        return message

    def _would_fit(self, place: exp.Expr, column: str, kind: str) -> bool:
        """Whether an expression would have a meaning if a column were of another type."""
        try:
            select = f"SELECT ({self.sql(place)}) AS x FROM records"
            describe(select, self._own | {column: kind}, "records")
        except (duckdb.Error, LanguageError):
            return False
        return True

    def _narrowest(self, node: exp.Expr, before: int | None, error: Exception) -> exp.Expr:
        """The smallest expression in this one that fails in the same way."""
        for child in node.iter_expressions():
            try:
                self.type_of(self.sql(child, before))
            except duckdb.Error as inner:
                if reason(inner) == reason(error):
                    return self._narrowest(child, before, error)
            except LanguageError:
                continue
        return node


def is_number(kind: str) -> bool:
    return re.fullmatch(r"FLOAT|DOUBLE|DECIMAL\(\d+,\d+\)", kind) is not None or is_whole(kind)


def is_whole(kind: str) -> bool:
    return re.fullmatch(r"U?(TINY|SMALL|BIG|HUGE)INT|U?INTEGER", kind) is not None


def is_time(kind: str) -> bool:
    return kind == "DATE" or (kind.startswith("TIMESTAMP") and not kind.endswith("]"))


def is_condition(kind: str) -> bool:
    return kind == "BOOLEAN" or is_number(kind)


def is_parameter(node: exp.Expr) -> bool:
    """Whether a name is bound by a lambda or a list comprehension around it, or no column's."""
    if isinstance(node.parent, exp.Collate) and node.parent.expression is node:
        return True
    name = node.parts[0].name.lower() if isinstance(node, exp.Column) else None
    around = node.find_ancestor(exp.Lambda, exp.Comprehension)
    while name is not None and around is not None:
        bound = [*around.expressions, around.args.get("expression"), around.args.get("position")]
        if any(each is not None and each.name.lower() == name for each in bound):
            return True
        around = around.find_ancestor(exp.Lambda, exp.Comprehension)
    return False
