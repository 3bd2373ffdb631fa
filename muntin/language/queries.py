"""One SELECT taken apart: keys, aggregates expanded into cells, the rest as outputs over them.

After this no name of the user's is left in anything that runs on blocks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import duckdb
from sqlglot import exp

from muntin.kernel.engine import (
    describe,
    function_names,
    is_function,
    quote,
    volatile_names,
    with_sql,
)
from muntin.kernel.expander import Expander
from muntin.kernel.kinds import kind_of
from muntin.kernel.types import mapped, stored
from muntin.language.calls import PYTHON, aggregates_in, is_aggregate, is_unnest
from muntin.language.grouped import Groups
from muntin.language.messages import nearest, reason
from muntin.language.over import Over
from muntin.language.scope import Scope, View
from muntin.language.script import Script, whole
from muntin.language.sets import MOST_SETS, count_sets, key_sets
from muntin.model.jobs import Job, Order, Output
from muntin.model.records import POSITION, UNTIL
from muntin.model.shapes import KeySet, Shape
from muntin.model.streams import Stream, records_of
from muntin.model.tables import Join, Lookup, Table, Unnest

RESERVED = ("job", "window_name", "window_start", "window_end", "records_read", "records_bad",
            "records_late", "records_failed", "c2", "c2_records", "revision", "emitted_at",
            "job_version", "results_used", "row_number")  # fmt: skip
_ANSWERED = ("expressions", "from_", "where", "group", "having", "order", "limit")
_REFUSED = {
    "distinct": "SELECT DISTINCT is not possible in a job; use GROUP BY",
    "joins": "JOIN is not possible in a job, which reads one stream",
    "locks": "FOR UPDATE is not possible in a job",
}
_OF_SETS = (exp.Cube, exp.Rollup, exp.GroupingSets)
_Key = tuple[str, str]  # SQL over a record, and its type
Sets = tuple[tuple[int, ...], ...]  # of keys, by their numbers
_Column = tuple[exp.Expr, int | None]  # an expression, and the items of SELECT it may name


def table_of(script: Script, query: exp.Expr) -> exp.Table:
    """The table a query reads, if it has no clause that a job cannot answer."""
    if not isinstance(query, exp.Select):
        raise script.error("expected one SELECT; UNION and the like are not possible", query)
    for clause, value in query.args.items():
        if value and clause not in _ANSWERED:
            place = value[0] if isinstance(value, list) else value
            otherwise = f"{clause.strip('_').upper()} is not possible in a job"
            place = place if isinstance(place, exp.Expr) else None
            raise script.error(_REFUSED.get(clause, otherwise), place, query)
    for node in query.walk():
        if (words := _impossible(node)) and node is not query:
            raise script.error(f"{words} is not possible in a job", node, query)
        if (message := _meaningless(node)) is not None:
            raise script.error(message, node, query)
    table = query.args["from_"].this if query.args.get("from_") else None
    if not isinstance(table, exp.Table) or not isinstance(table.this, exp.Identifier):
        raise script.error("expected FROM and the name of a stream", table, query)
    renamed = table.args["alias"].columns if table.args.get("alias") else None
    if renamed or any(table.args.get(clause) for clause in table.args.keys() - {"this", "alias"}):
        raise script.error("expected the name of a stream alone", table)
    return table


def is_all_core(query: exp.Select) -> bool:
    """Whether a SELECT that aggregates records has nothing around that, but where they are from."""
    clauses = {clause: value for clause, value in query.args.items() if value}
    if clauses.keys() - {*_ANSWERED, "with_", "joins"}:
        return False
    own = [clauses[c] for c in ("having", "order") if c in clauses] + query.expressions
    return not any(_impossible(node) for place in own for node in place.walk())


def _meaningless(node: exp.Expr) -> str | None:
    none = isinstance(node, exp.Tuple) and not node.expressions
    if none and not isinstance(node.parent, exp.GroupingSets):
        return "expected an expression between '(' and ')'"
    # What FROM may call is known by now.
    called = isinstance(node, exp.Anonymous) and not isinstance(
        node.parent, exp.WithinGroup | exp.Table
    )
    if called and PYTHON not in node.meta and not is_function(node.name.lower()):
        return f"unknown function '{node.name}'; {nearest(node.name, function_names(), '')}"
    if called and node.name.lower() in volatile_names():
        return (
            f"{node.name.lower()}() is another value each time, so that the same records would not "
            "give the same rows; a hash does: hash(x) % 100 < 10 keeps a tenth"
        )
    return None


def _impossible(node: exp.Expr) -> str | None:
    if isinstance(node, exp.Window):
        return "OVER"
    if isinstance(node, exp.Query) and not isinstance(node, exp.Table):
        return "a subquery"
    if isinstance(node, exp.PositionalColumn):
        return "a column by its number"
    if isinstance(node, exp.Star) and isinstance(node.parent, exp.Anonymous):
        return None if is_aggregate(node.parent) else "'*' as an argument"
    if isinstance(node, exp.Anonymous) and node.name.lower() in ("columns", "unnest"):
        return f"{node.name.lower()}()"
    return None


def sql_job(script: Script, stream: Stream, name: str, query: exp.Select, over: Over) -> Job:
    """The job that a SELECT over the stream defines."""
    alias = query.args["from_"].this.alias_or_name
    return Query(script, View.of(stream, alias), query, over).job(name)


def expander_of(scope: Scope, over: Over) -> Expander:
    """What turns aggregates over a stream's records into cells."""
    split = scope.stream.spans == "split" and over.axis.is_time
    return Expander(lambda sql, _: scope.exact_type(sql), split)


def shape_of(view: View, over: Over, uses: Iterable[str], **parts: Any) -> Shape:
    """The shape of a job over these windows, whose keys, cells and filter are given.

    Of the view, it has what is joined with records.
    """
    uses, stream = tuple(sorted(uses)), view.stream
    return Shape(
        joins=tuple(each for each in view.joins if isinstance(each, Join)),
        lists=tuple(each for each in view.joins if isinstance(each, Unnest)),
        lookups=tuple(each for each in view.joins if isinstance(each, Lookup)),
        stream=stream.name,
        records=records_of(stream, uses),
        uses=uses,
        axis=over.axis,
        pane=over.windows[0].pane if over.windows else 0,
        begin=over.begin,
        until=over.until,
        gap=over.gap,
        spans=stream.spans if over.axis.is_time else None,
        **parts,
    )


class Query:
    """One SELECT over the records of a stream, or over what a subquery shows of them."""

    def __init__(self, script: Script, view: View, query: exp.Select, over: Over) -> None:
        self._script = script
        self._over = over
        self._query = query
        self._view = view
        self._stream = stream = view.stream
        self._items: list[exp.Expr] = query.expressions
        position = "TIMESTAMP WITH TIME ZONE" if over.axis.is_time else "BIGINT"
        columns = stream.visible_columns()
        self.scope = Scope(script, stream, columns, "", self._items, view, position)
        self._scope = self.scope

    @property
    def member(self) -> str | None:
        """Whose records it looks at, if the stream has members."""
        return None if self._view.member is None else self._view.member.name

    def job(self, name: str) -> Job:
        over = self._over
        self._check_items()
        where = self.where()
        keys, sets = self.grouping()
        groups = Groups(self._scope, keys, expander_of(self._scope, over), sets)
        outputs = tuple(self._outputs(groups))
        having = self._clause("having")
        having_sql = groups.condition(having, "HAVING") if having is not None else None
        order = tuple(self._orders(groups))
        shape = shape_of(
            self._view,
            over,
            self._scope.used,
            keys=groups.keys,
            parts=groups.parts(),
            where=where,
            scalars=groups.scalars(),
            conditions=self.conditions(),
            sets=tuple(map(KeySet, sets)),
        )
        if over.gap is not None:
            self._check_session()
        job = Job(
            name, shape, over.windows, groups.finishes(), outputs, having_sql, order, self._limit()
        )
        check_compute(self._script, self._query, self._stream, job)
        return job

    def _check_session(self) -> None:
        if self._stream.spans is not None:
            message = "sessions are made of moments; declare the stream's spans BY START or BY END"
            raise self._script.error(message, self._query)
        for clause in ("order", "limit"):
            node = self._query.args.get(clause)
            if node is not None:
                words = "ORDER BY" if clause == "order" else "LIMIT"
                message = f"{words} needs windows that keys share; each session is one key's own"
                raise self._script.error(f"{message}{self._over.hint}", node, self._query)

    def _clause(self, name: str) -> exp.Expr | None:
        clause = self._query.args.get(name)
        inner: exp.Expr | None = clause.this if clause is not None else None
        return inner

    def _check_items(self) -> None:
        if not self._items:
            raise self._script.error("expected keys and aggregates after SELECT", self._query)
        for item in self._items:
            shown = item.unalias()
            if isinstance(shown, exp.Star) or isinstance(shown.this, exp.Star):
                message = "SELECT * is not possible in a job; name its keys and aggregates"
                raise self._script.error(message, item, self._query)

    def where(self) -> str | None:
        """Which records it looks at, those that its subqueries leave out aside."""
        conditions = [shown.sql for shown in self._view.where]
        self._scope.used |= {name for shown in self._view.where for name in shown.uses}
        self._scope.used |= self._view.uses
        where = self._clause("where")
        if where is not None:
            self._refuse_aggregates(where, None, "WHERE; use HAVING or FILTER (WHERE …)")
            conditions.append(self._scope.condition(where, "WHERE"))
        if len(conditions) < 2:
            return conditions[0] if conditions else None
        return " AND ".join(f"({condition})" for condition in conditions)

    def conditions(self) -> tuple[str, ...]:
        """The same, each of the conditions that AND puts together by itself."""
        where = self._clause("where")
        nodes = [] if where is None else [where]
        if where is not None and isinstance(where.unnest(), exp.And):
            each = list(where.unnest().flatten())
            nodes = each if all(map(whole, each)) else nodes
        return (*(shown.sql for shown in self._view.where), *map(self._scope.sql, nodes))

    def grouping(self) -> tuple[list[_Key], Sets]:
        """What records are grouped by, as SQL and type; and if by several sets of it, by which."""
        group = self._query.args.get("group")
        for words in ("rollup", "cube", "grouping_sets", "totals"):
            if group is not None and group.args.get(words):
                message = "keys stand in parentheses behind ROLLUP, CUBE or GROUPING SETS"
                raise self._script.error(f"{message}: GROUP BY ROLLUP (a, b)", group)
        if group is not None and any(isinstance(n, _OF_SETS) for n in group.expressions):
            return self._key_sets(group)
        nodes = list(self._key_nodes())
        if not nodes and not self._has_aggregates():
            message = "a job answers with aggregates; expected one, or GROUP BY"
            raise self._script.error(message, self._items[0])
        return list(self._bound_keys(nodes)), ()

    def _key_sets(self, group: exp.Expr) -> tuple[list[_Key], Sets]:
        if self._over.gap is not None:
            message = "each session is of one set of keys; several sets need windows they share"
            raise self._script.error(f"{message}{self._over.hint}", group)
        if (count := count_sets(group)) > MOST_SETS:
            message = f"these are {count:,} sets of keys; at most {MOST_SETS} are possible"
            raise self._script.error(message, group)
        keys: list[_Key] = []
        sets = []
        for nodes in key_sets(group):
            mine = list(self._bound_keys(map(self._key_node, nodes)))
            keys += [key for key in dict.fromkeys(mine) if key not in keys]
            sets.append(tuple(sorted({keys.index(key) for key in mine})))
        return keys, tuple(sets)

    def _bound_keys(self, nodes: Iterable[_Column]) -> Iterator[_Key]:
        for node, before in nodes:
            if not self._scope.is_told_by_window(node):
                self._refuse_aggregates(node, before, "GROUP BY")
                unnested = next(filter(is_unnest, node.walk()), None)
                if unnested is not None:
                    read = f"FROM {self._view.reads.name}, {self._script.words(unnested)} AS t(x)"
                    message = f"elements of records' lists stand in FROM: {read} … GROUP BY x"
                    raise self._script.error(message, unnested)
                sql, _ = self._scope.bound(node, before)
                yield sql, self._scope.exact_type(sql)

    def _key_nodes(self) -> Iterator[_Column]:
        group = self._query.args.get("group")
        if group is None:
            if self._query.args.get("distinct") and not self._has_aggregates():
                yield from ((item.unalias(), index) for index, item in enumerate(self._items))
            return
        if not group.expressions and not group.args.get("all"):
            raise self._script.error("expected keys after GROUP BY", group, self._query)
        if group.args.get("all"):
            for index, item in enumerate(self._items):
                counted = next(aggregates_in(item, self._scope, index), None) is not None
                if not counted and item.find(exp.Window) is None:
                    yield item.unalias(), index
        for node in group.expressions:
            for each in node.expressions if isinstance(node, exp.Tuple) else [node]:
                yield self._key_node(each)

    def _has_aggregates(self) -> bool:
        items = enumerate(self._items)
        return any(next(aggregates_in(item, self._scope, i), None) for i, item in items)

    def _key_node(self, node: exp.Expr) -> _Column:
        index = self._nth(node)
        if index is None and self._scope.column_sql(node) is None:
            index = self._scope.item_named(node)
        return (node, None) if index is None else (self._items[index].unalias(), index)

    def _nth(self, node: exp.Expr) -> int | None:
        """The item that a number in GROUP BY or ORDER BY stands for."""
        if not isinstance(node, exp.Literal) or node.is_string:
            return None
        index = int(node.name) if node.name.isdigit() else 0
        if not 1 <= index <= len(self._items):
            message = f"there is no column {node.name}; SELECT has {len(self._items)}"
            raise self._script.error(message, node)
        return index - 1

    def _outputs(self, groups: Groups) -> Iterator[Output]:
        taken: set[str] = set()
        for index, item in enumerate(self._items):
            if isinstance(item, exp.Column) and self._scope.is_bound(item):
                continue  # every result has it
            name = item.alias or usual_name(self._script, item)
            if name.lower() in RESERVED:
                message = f"every result has a column '{name}'; choose another name with AS"
                raise self._script.error(message, item)
            if name.lower() in taken:
                message = f"there are two columns named '{name}'; tell them apart with AS"
                raise self._script.error(message, item)
            taken.add(name.lower())
            sql, kind = groups.bound(item.unalias(), index)
            yield Output(name, sql, result_type(kind))
        if not taken:
            message = "every result has these columns; expected one more, for example count(*)"
            raise self._script.error(message, *self._items)

    def _orders(self, groups: Groups) -> Iterator[Order]:
        order = self._query.args.get("order")
        for ordered in order.expressions if order is not None else ():
            down = "DESC" if ordered.args.get("desc") else "ASC"
            nulls = "FIRST" if ordered.args.get("nulls_first") else "LAST"
            for node, before in self._order_nodes(ordered.this):
                yield Order(groups.ordering(node, before), f"{down} NULLS {nulls}")

    def _order_nodes(self, node: exp.Expr) -> list[_Column]:
        if isinstance(node, exp.Var) and node.name.upper() == "ALL":
            return [(item.unalias(), index) for index, item in enumerate(self._items)]
        index = self._nth(node)
        index = self._scope.item_named(node) if index is None else index
        return [(node, None) if index is None else (self._items[index].unalias(), index)]

    def _limit(self) -> int | None:
        limit = self._query.args.get("limit")
        if limit is None:
            return None
        count = limit.args.get("expression") or limit.args.get("count")
        options = limit.args.get("limit_options")
        share = options and (options.args.get("percent") or options.args.get("with_ties"))
        if share or not isinstance(count, exp.Literal) or not count.name.isdigit():
            raise self._script.error("LIMIT must be a whole number", count, self._query)
        return int(count.name)

    def _refuse_aggregates(self, node: exp.Expr, before: int | None, clause: str) -> None:
        aggregate = next(aggregates_in(node, self._scope, before), None)
        if aggregate is not None:
            raise self._script.error(f"an aggregate cannot stand in {clause}", aggregate, node)


def usual_name(script: Script, item: exp.Expr) -> str:
    """A column is called as it is, or as the last of its fields; the rest by its words."""
    last = item.expression if isinstance(item, exp.Dot) else item
    plain = isinstance(last, exp.Column | exp.Identifier)
    return last.name if plain else script.words(item)


def check_functions(script: Script, query: exp.Expr) -> None:
    """Refuses functions that there are not, and those that are another value each time."""
    for node in query.walk():
        if (message := _meaningless(node)) is not None:
            raise script.error(message, node, query)


def check_compute(script: Script, query: exp.Expr, stream: Stream, job: Job) -> None:
    """Each expression is known to DuckDB by now; their statement must be too."""
    columns = {c.name: c.type for c in stream.visible_columns()}
    try:
        sql = kind_of(job.shape).compute_sql(job.windows, marked=False)
        for join in job.shape.joins:
            sql = with_sql(f"{join.relation} AS ({empty_sql(join.table)})", sql)
        ours = dict.fromkeys((POSITION, job.shape.axis.column, UNTIL), "BIGINT")
        describe(sql, columns | ours, "records")
    except duckdb.Error as error:
        raise script.error(reason(error), query) from error


def empty_sql(table: Table) -> str:
    """No rows, with the columns of a table."""
    columns = (f"NULL::{column.type} AS {quote(column.name)}" for column in table.columns)
    return f"SELECT {', '.join(columns)} LIMIT 0"


def result_type(kind: str) -> str:
    """The type a column has in results: one that Delta and other readers have too."""
    # A sum of integers is as wide as most are; within other types there is no sum.
    return "BIGINT" if kind == "HUGEINT" else mapped(kind, _result_type)


def _result_type(kind: str) -> str:
    widened = {
        "UBIGINT": "DECIMAL(20,0)",
        "UINTEGER": "BIGINT",
        "USMALLINT": "INTEGER",
        "UTINYINT": "SMALLINT",
    }
    if kind.startswith("TIMESTAMP"):
        return "TIMESTAMP WITH TIME ZONE"
    return widened.get(kind) or stored(kind)
