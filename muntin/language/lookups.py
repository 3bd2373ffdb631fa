"""Subqueries over tables in expressions over records: what they tell is looked up for each record.

`WHERE product IN (SELECT product FROM LATEST(hot))` needs no other records, only the rows of a
table, in the version of the record's pane. So what such an expression tells is a column beside the
record, and whatever is made of records knows it as a column alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import duckdb
from sqlglot import exp

from muntin.kernel.engine import describe, quote, with_sql
from muntin.language.latest import is_latest, latest_name
from muntin.language.messages import reason
from muntin.language.queries import empty_sql
from muntin.language.scope import Scope, Shown, View
from muntin.language.script import Script
from muntin.model.records import COPY, POSITION
from muntin.model.tables import Join, Lookup, Table

Read = Mapping[str, Table]  # the tables that a subquery reads, by what the statement calls them
_PARTS = exp.Subquery | exp.In | exp.Exists | exp.Any | exp.All


def tables_read(query: exp.Expr, tables: Mapping[str, Table]) -> Read | None:
    """What a subquery reads of these tables; None if it reads anything else."""
    own = {cte.alias.lower() for cte in query.find_all(exp.CTE)}
    read: dict[str, Table] = {}
    for node in query.find_all(exp.Table):
        name = latest_name(node) if is_latest(node) else node.name.lower()
        if not is_latest(node) and not isinstance(node.this, exp.Identifier):
            return None
        if name in tables:
            read[name if is_latest(node) else node.name] = tables[name]
        elif name not in own:
            return None
    return read


def looked_up(script: Script, view: View, query: exp.Expr, read: Read) -> View:
    """The view with what an expression around a subquery over tables tells of each record."""
    query = query.unnest()
    for table in read.values():
        if view.stream.agents and table.job is None:
            message = "agents do not have this table; compare groups, in a SELECT around this one"
            raise script.error(message, query)
    first = len(view.joins)
    asides = {name: Join.aside(table, first + n) for n, (name, table) in enumerate(read.items())}
    node = expression_of(query)
    scope = Scope(script, view.stream, view.stream.visible_columns(), view=view)
    inner = _subquery_sql(script, query, asides)
    sql = script.words(node, lambda each: inner if each is query else scope.name_sql(each))
    kind = _type(script, view, sql, node, asides)
    words = script.words(node)
    lookup = Lookup(sql, first + len(asides), kind, words)
    return replace(
        view,
        joins=(*view.joins, *asides.values(), lookup),
        columns={**view.columns, lookup.column: Shown(quote(lookup.column), kind, frozenset())},
        lookups={**view.lookups, id(node): quote(lookup.column)},
        uses=view.uses | frozenset(scope.used),
    )


def expression_of(query: exp.Expr) -> exp.Expr:
    """The smallest expression around a subquery that has a value by itself."""
    node = query
    while isinstance(node.parent, _PARTS) and (
        not isinstance(node.parent, exp.In) or node.parent.args.get("query") is node
    ):
        node = node.parent
    if isinstance(node, exp.Any | exp.All) and node.parent is not None:
        node = node.parent  # which compares something with them
    while "place" not in node.meta and node.parent is not None:  # as of IN in NOT IN
        node = node.parent
    return node


def _subquery_sql(script: Script, query: exp.Expr, asides: Mapping[str, Join]) -> str:
    """A subquery over the relations that tables have in statements; it knows nothing of records."""

    def swap(node: exp.Expr) -> str | None:
        table = node.parent
        if table is None or not is_latest(table) or node is not table.this:
            return None
        return quote(latest_name(table)) + ("" if table.alias else " AS latest")

    sql = script.words(query, swap)
    for name, join in asides.items():
        sql = with_sql(f"{quote(name)} AS (FROM {join.relation})", sql)
    try:
        describe(_over(asides, sql), {}, "__nothing")
    except duckdb.Error as error:
        message = (
            f"{reason(error)}; a subquery here knows the tables that it reads and nothing of the "
            "record: compare outside of it, as in x IN (SELECT …)"
        )
        raise script.error(message, query) from error
    return sql


def _type(script: Script, view: View, sql: str, node: exp.Expr, asides: Mapping[str, Join]) -> str:
    columns = {column.name: column.type for column in view.stream.visible_columns()}
    columns |= view.joined | {POSITION: "BIGINT", COPY: "BIGINT"}
    try:
        ((_, kind),) = describe(
            _over(asides, f"SELECT ({sql}) AS x FROM records"), columns, "records"
        )
    except duckdb.Error as error:
        raise script.error(reason(error), node) from error
    return kind


def _over(asides: Mapping[str, Join], sql: str) -> str:
    for join in asides.values():
        sql = with_sql(f"{join.relation} AS ({empty_sql(join.table)})", sql)
    return sql
