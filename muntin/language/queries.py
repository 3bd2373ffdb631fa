"""One SELECT taken apart: columns resolved, aggregates expanded, the rest rewritten.

After this no name of the user's is left in anything that runs on blocks: keys are `k0`…,
finished aggregates `p0.a0`…, and outputs are expressions over those.
"""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
from sqlglot import exp

from muntin.errors import LanguageError
from muntin.kernel.aggregates import EXPANSIONS, Call, Expander, arity, instead_of, stored
from muntin.kernel.engine import aggregate_names, describe
from muntin.kernel.statements import finished_column_sql
from muntin.language.messages import first_line, located, nearest
from muntin.model import POSITION, Job, Key, Order, Output, Stream
from muntin.windows.spec import WindowSpec

_NAMES: dict[type[exp.Expr], str] = {
    exp.Count: "count",
    exp.CountIf: "count_if",
    exp.Sum: "sum",
    exp.Avg: "avg",
    exp.Min: "min",
    exp.Max: "max",
    exp.AnyValue: "any_value",
    exp.LogicalAnd: "bool_and",
    exp.LogicalOr: "bool_or",
    exp.Stddev: "stddev",
    exp.StddevSamp: "stddev",
    exp.StddevPop: "stddev_pop",
    exp.Variance: "variance",
    exp.VariancePop: "var_pop",
    exp.First: "first",
    exp.Last: "last",
    exp.ArgMin: "arg_min",
    exp.ArgMax: "arg_max",
    exp.Median: "median",
    exp.Quantile: "quantile",
    exp.PercentileDisc: "quantile",
    exp.PercentileCont: "quantile_cont",
    exp.Mode: "mode",
    exp.ApproxDistinct: "approx_count_distinct",
    exp.ApproxQuantile: "approx_quantile",
}


class QueryChecker:
    """Checks expressions over one stream, which queries may call by `alias`."""

    def __init__(self, text: str, stream: Stream, alias: str) -> None:
        self.text = text
        self.stream = stream
        self.alias = alias
        self.columns = {c.name: c.type for c in stream.visible_columns()}
        self._lower = {name.lower(): name for name in self.columns}
        self._expander = Expander(self._type_of)
        self._place: exp.Expr | None = None

    def job(self, name: str, query: exp.Expr, window: WindowSpec) -> Job:
        where = query.args.get("where")
        if where is not None:
            self._refuse_aggregates(where)
        condition = self._bound(where.this) if where is not None else None
        items = [self._select_item(item) for item in query.expressions]
        keys = self._keys(query, items)
        outputs = self._outputs(items, keys)
        having = query.args.get("having")
        order = [self._order(o, items, keys) for o in self._orderings(query)]
        job = Job(
            name=name,
            stream=self.stream.name,
            window=window,
            keys=tuple(Key(_sql(k), stored(self._type_of(_sql(k), False))) for k in keys),
            parts=(),
            finishes=(),
            outputs=(),
            uses=self._uses(query),
            where=_sql(condition) if condition is not None else None,
            having=_sql(self._over_keys(self._aliased(having.this, items), keys))
            if having is not None
            else None,
            order=tuple(order),
            limit=self._limit(query),
        )
        return self._typed(job, outputs, query)

    def resolved(self, node: exp.Expr) -> exp.Expr:
        """A copy whose columns are the stream's, by their exact names."""
        return node.copy().transform(self._resolve_column)

    def _typed(
        self, job: Job, outputs: list[tuple[str, exp.Expr, exp.Expr]], query: exp.Expr
    ) -> Job:
        """The job with its parts, and outputs whose types DuckDB has told."""
        from dataclasses import replace

        job = replace(job, parts=self._expander.parts(), finishes=self._expander.finishes())
        relation = self._finished_types(job)
        typed = []
        for name, sql, item in outputs:
            try:
                ((_, kind),) = describe(
                    f"SELECT {_flat(_sql(sql))} AS x FROM done", relation, "done"
                )
            except duckdb.Error as error:
                raise located(first_line(error), self.text, item, query) from error
            typed.append(Output(name, _sql(sql), result_type(kind)))
        return replace(job, outputs=tuple(typed))

    def _finished_types(self, job: Job) -> dict[str, str]:
        types = {f"p0_k{i}": key.type for i, key in enumerate(job.keys)}
        cells = {c.name: c.type for part in job.parts for c in part.cells}
        ranks = {"upto": "HUGEINT", "total": "HUGEINT"}
        for finish in job.finishes:
            part = job.parts[finish.part]
            inputs = cells | ({"sub": part.sub_type or "BIGINT"} | ranks if finish.part else {})
            sql = f"SELECT {finish.sql} AS x FROM cells"
            ((_, types[f"p{finish.part}_{finish.name}"]),) = describe(sql, inputs, "cells")
        return types

    def _select_item(self, item: exp.Expr) -> exp.Expr:
        if isinstance(item, exp.Star) or item.find(exp.Star) and not item.find(exp.Count):
            raise located(
                "SELECT * has no aggregate; name the keys and aggregates", self.text, item
            )
        for refused, words in ((exp.Window, "OVER"), (exp.Query, "a subquery")):
            found = item.find(refused)
            if found is not None:
                raise located(f"{words} cannot be used in a job", self.text, found, item)
        return item

    def _keys(self, query: exp.Expr, items: list[exp.Expr]) -> list[exp.Expr]:
        group = query.args.get("group")
        if group is None:
            keys: list[exp.Expr] = []
        elif group.args.get("all"):
            keys = [item.unalias() for item in items if not self._aggregates(item)]
        else:
            for kind in ("cube", "rollup", "grouping_sets"):
                if group.args.get(kind):
                    raise located(
                        f"{kind.upper()} cannot be used in a job", self.text, group, query
                    )
            keys = [self._key(k, items) for k in group.expressions]
        for key in keys:
            self._refuse_aggregates(key)
        if not keys and not any(self._aggregates(item) for item in items):
            message = "a job answers with aggregates; expected one, or GROUP BY"
            raise located(message, self.text, items[0], query)
        return [self._bound(key) for key in keys]

    def _key(self, node: exp.Expr, items: list[exp.Expr]) -> exp.Expr:
        if isinstance(node, exp.Literal) and not node.is_string:
            return self._nth(node, items).unalias()
        if isinstance(node, exp.Column) and node.name.lower() not in self._lower:
            return self._aliased(node, items)
        return node

    def _nth(self, node: exp.Expr, items: list[exp.Expr]) -> exp.Expr:
        index = int(node.name) if node.name.isdigit() else 0
        if not 1 <= index <= len(items):
            message = f"there is no column {node.name}; SELECT has {len(items)}"
            raise located(message, self.text, node, items[0])
        return items[index - 1]

    def _aliased(self, node: exp.Expr, items: list[exp.Expr]) -> exp.Expr:
        """The expression with names given in SELECT replaced by what they stand for."""
        named = {i.alias.lower(): i.unalias() for i in items if isinstance(i, exp.Alias)}

        def swap(n: exp.Expr) -> exp.Expr:
            known = isinstance(n, exp.Column) and not n.table and n.name.lower() in named
            return exp.paren(named[n.name.lower()].copy(), copy=False) if known else n

        swapped = node.copy().transform(swap)
        return swapped.unnest() if isinstance(node, exp.Column) else swapped

    def _outputs(
        self, items: list[exp.Expr], keys: list[exp.Expr]
    ) -> list[tuple[str, exp.Expr, exp.Expr]]:
        found: dict[str, tuple[str, exp.Expr, exp.Expr]] = {}
        for item in items:
            name = item.alias or (item.name if isinstance(item, exp.Column) else _sql(item).lower())
            if name.lower() in found or name.lower() in _RESERVED:
                taken = "is taken" if name.lower() in _RESERVED else "is there twice"
                raise located(f"the column name '{name}' {taken}; use AS", self.text, item)
            found[name.lower()] = (name, self._over_keys(item.unalias(), keys), item)
        return list(found.values())

    def _order(self, node: exp.Expr, items: list[exp.Expr], keys: list[exp.Expr]) -> Order:
        what = node.this
        if isinstance(what, exp.Literal) and not what.is_string:
            what = self._nth(what, items).unalias()
        what = self._over_keys(self._aliased(what, items), keys)
        down = "DESC" if node.args.get("desc") else "ASC"
        nulls = "FIRST" if node.args.get("nulls_first") else "LAST"
        return Order(_sql(what), f"{down} NULLS {nulls}")

    def _orderings(self, query: exp.Expr) -> list[exp.Expr]:
        order = query.args.get("order")
        return list(order.expressions) if order is not None else []

    def _limit(self, query: exp.Expr) -> int | None:
        limit = query.args.get("limit")
        if limit is None:
            return None
        count = limit.expression
        if not isinstance(count, exp.Literal) or not count.name.isdigit():
            raise located("LIMIT must be a whole number", self.text, count, query)
        return int(count.name)

    def _over_keys(self, node: exp.Expr, keys: list[exp.Expr]) -> exp.Expr:
        """An expression over records as one over keys and finished aggregates."""
        wanted = {_sql(key): i for i, key in enumerate(keys)}
        return self._rewrite(self.resolved(node), wanted, node)

    def _rewrite(self, node: exp.Expr, keys: dict[str, int], place: exp.Expr) -> exp.Expr:
        if _sql(node) in keys:
            return exp.column(f"k{keys[_sql(node)]}", table="p0")
        if self._is_aggregate(node):
            return self._finished(node, place)
        if isinstance(node, exp.Column):
            message = f"'{node.name}' must be in GROUP BY or inside an aggregate"
            raise located(message, self.text, node, place)
        for child in list(node.iter_expressions()):
            child.replace(self._rewrite(child, keys, place))
        return node

    def _finished(self, node: exp.Expr, place: exp.Expr) -> exp.Expr:
        call = self._call(node, place)
        self._place = node
        try:
            name = self._expander.expand(call)
        except duckdb.Error as error:
            raise located(first_line(error), self.text, node, place) from error
        finish = next(f for f in self._expander.finishes() if f.name == name)
        return exp.maybe_parse(finished_column_sql(name, finish.part, finish.sql), dialect="duckdb")

    def _call(self, node: exp.Expr, place: exp.Expr) -> Call:
        """The aggregate call a node is, unwrapped of FILTER, DISTINCT and the parser's casts."""
        where = None
        if isinstance(node, exp.Filter):
            where, node = _sql(node.expression.this), node.this
        if isinstance(node, exp.IgnoreNulls):
            node = node.this
        name = _NAMES.get(type(node)) or node.name.lower() or node.key
        if name not in EXPANSIONS:
            message = f"{name} cannot be merged from parts; instead use {instead_of(name)}"
            raise located(message, self.text, node, place)
        args, distinct = _arguments(node)
        if any(isinstance(arg, exp.Order) for arg in args):
            message = "ORDER BY inside an aggregate cannot be merged; use arg_min or arg_max"
            raise located(message, self.text, node, place)
        if any(self._aggregates(arg) for arg in args):
            raise located("an aggregate inside an aggregate", self.text, node, place)
        call = Call(
            name, tuple(_sql(a) for a in args if not isinstance(a, exp.Star)), distinct, where
        )
        self._check_arguments(call, args, node, place)
        return call

    def _check_arguments(
        self, call: Call, args: list[exp.Expr], node: exp.Expr, place: exp.Expr
    ) -> None:
        expected = arity(call.name)
        if expected is not None and len(call.args) != expected:
            message = f"{call.name} takes {expected} argument{'s' if expected > 1 else ''}"
            raise located(f"{message}, not {len(call.args)}", self.text, node, place)
        if "quantile" in call.name:
            share = args[1]
            if not isinstance(share, exp.Literal) or not 0 <= float(share.name) <= 1:
                message = "the second argument of a quantile is a number between 0 and 1"
                raise located(message, self.text, share, node, place)
        if call.distinct and call.name not in ("count", "sum", "avg", "min", "max"):
            message = f"DISTINCT cannot be used with {call.name}"
            raise located(message, self.text, node, place)

    def _bound(self, node: exp.Expr) -> exp.Expr:
        """The resolved expression, if DuckDB can evaluate it on a record."""
        resolved = self.resolved(node)
        try:
            self._type_of(_sql(resolved), False)
        except duckdb.Error as error:
            raise located(first_line(error), self.text, node) from error
        return resolved

    def _type_of(self, sql: str, aggregates: bool) -> str:
        columns = self.columns | {POSITION: "BIGINT"}
        ((_, kind),) = describe(f"SELECT {sql} AS x FROM records", columns, "records")
        return kind

    def _resolve_column(self, node: exp.Expr) -> exp.Expr:
        if not isinstance(node, exp.Column) or _bound_by_lambda(node):
            return node
        parts = list(node.parts)
        if len(parts) > 1 and parts[0].name.lower() in (
            self.alias.lower(),
            self.stream.name.lower(),
        ):
            parts = parts[1:]
        name = self._lower.get(parts[0].name.lower())
        if name is None:
            known = nearest(parts[0].name, self.columns, "it has no columns")
            message = f"stream '{self.stream.name}' has no column '{parts[0].name}'; {known}"
            raise located(message, self.text, parts[0], node)
        column = exp.Column(this=exp.to_identifier(name, quoted=True))
        column.meta.update(parts[0].meta)
        fields = [exp.to_identifier(p.name, quoted=True) for p in parts[1:]]
        return exp.Dot.build([column, *fields]) if fields else column

    def _uses(self, query: exp.Expr) -> tuple[str, ...]:
        """The columns a query reads, so that no other is parsed."""
        found = {
            self._lower[part.name.lower()]
            for column in query.find_all(exp.Column)
            for part in column.parts
            if part.name.lower() in self._lower
        }
        return tuple(sorted(found))

    def _refuse_aggregates(self, node: exp.Expr) -> None:
        found = next(self._aggregates_in(node), None)
        if found is not None:
            message = "an aggregate cannot stand in WHERE or GROUP BY; use HAVING"
            raise located(message, self.text, found, node)

    def _aggregates(self, node: exp.Expr) -> bool:
        return next(self._aggregates_in(node), None) is not None

    def _aggregates_in(self, node: exp.Expr) -> Iterator[exp.Expr]:
        return (n for n in node.walk() if self._is_aggregate(n))

    def _is_aggregate(self, node: exp.Expr) -> bool:
        if isinstance(node, exp.Filter | exp.IgnoreNulls):
            return self._is_aggregate(node.this)
        if isinstance(node, exp.Anonymous):
            return node.name.lower() in aggregate_names()
        return isinstance(node, exp.AggFunc)


_RESERVED = ("window_start", "window_end", "job", "records_read", "records_bad", "records_late")


def result_type(kind: str) -> str:
    """The type a column has in results: one that Delta and other readers have too."""
    widened = {
        "HUGEINT": "BIGINT",
        "UHUGEINT": "DECIMAL(38,0)",
        "UBIGINT": "DECIMAL(20,0)",
        "UINTEGER": "BIGINT",
        "USMALLINT": "INTEGER",
        "UTINYINT": "SMALLINT",
    }
    if kind in widened:
        return widened[kind]
    if kind.startswith("TIMESTAMP"):
        return "TIMESTAMP WITH TIME ZONE"
    return stored(kind).replace("UBIGINT", "BIGINT").replace("HUGEINT", "BIGINT")


def _arguments(node: exp.Expr) -> tuple[list[exp.Expr], bool]:
    this = node.args.get("this")
    if isinstance(node, exp.Anonymous):
        args = list(node.expressions)
    else:
        extra = [node.args.get(k) for k in ("expression", "quantile", "parameter")]
        args = [a for a in (this, *extra, *node.expressions) if isinstance(a, exp.Expr)]
    if isinstance(node, exp.LogicalAnd | exp.LogicalOr) and isinstance(args[0], exp.Cast):
        args[0] = args[0].this
    if isinstance(this, exp.Distinct):
        return [*this.expressions, *args[1:]], True
    return args, False


def _bound_by_lambda(node: exp.Column) -> bool:
    parent = node.find_ancestor(exp.Lambda)
    while parent is not None:
        if any(p.name == node.parts[0].name for p in parent.expressions):
            return True
        parent = parent.find_ancestor(exp.Lambda)
    return False


def _sql(node: exp.Expr) -> str:
    return node.sql("duckdb")


def _flat(sql: str) -> str:
    """Columns of finished parts as plain names, for binding against one relation."""
    import re

    return re.sub(r"\bp(\d+)\.(a\d+|k\d+)\b", r"p\1_\2", sql)
