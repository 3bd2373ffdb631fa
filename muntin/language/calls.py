"""Aggregates as users write them: recognised, and turned into the calls the kernel expands."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal

from sqlglot import exp

from muntin.kernel.aggregates import EXPANSIONS, FEW, arity, instead_of
from muntin.kernel.engine import aggregate_names
from muntin.kernel.expander import Call
from muntin.kernel.lists import MOST_ASKED, MOST_FIRST, MOST_LISTED
from muntin.language.scope import Scope, is_number, is_time

_SYNONYMS = {
    "arbitrary": "first",
    "argmax": "arg_max",
    "argmin": "arg_min",
    "count_star": "count",
    "countif": "count_if",
    "geometric_mean": "geomean",
    "group_concat": "string_agg",
    "kahan_sum": "fsum",
    "list": "array_agg",
    "listagg": "string_agg",
    "max_by": "arg_max",
    "mean": "avg",
    "min_by": "arg_min",
    "percentile_cont": "quantile_cont",
    "percentile_disc": "quantile",
    "quantile_disc": "quantile",
    "stddev_samp": "stddev",
    "sumkahan": "fsum",
    "var_samp": "variance",
    "weighted_avg": "wavg",
}
# Macros of DuckDB over aggregates, which it does not list as aggregates: answered or not.
_MACROS = ("geomean", "geometric_mean", "wavg", "weighted_avg")
_REFUSED = {
    "json_group_array": "to_json(list(x))",
    "json_group_object": "histogram(x) keeps every value with its count",
    "json_group_structure": "histogram(json_structure(x))",
}
PYTHON = "python"  # where a call's node keeps the code of an aggregate in Python
_DISTINCT = ("count", "sum", "avg", "min", "max", "array_agg", "string_agg")
_ORDERED = ("array_agg", "string_agg")
_OF_NUMBERS = ("avg", "approx_quantile", "mad")
_OF_NUMBERS_AND_TIMES = ("median", "quantile_cont")


def is_aggregate(node: exp.Expr) -> bool:
    """Whether the node is a call of an aggregate, with its FILTER where it has one."""
    if isinstance(node, exp.Filter | exp.WithinGroup) or PYTHON in node.meta:
        return True
    name = node.name.lower() if isinstance(node, exp.Anonymous) else ""
    return name in aggregate_names() or name in _MACROS or name in _REFUSED


def is_query(node: exp.Expr) -> bool:
    """Whether it is a subquery."""
    return isinstance(node, exp.Query) and not isinstance(node, exp.Table)


def is_unnest(node: exp.Expr) -> bool:
    """Whether it makes several rows of one."""
    return isinstance(node, exp.Anonymous) and node.name.lower() == "unnest"


def is_windowed(node: exp.Expr) -> bool:
    """Whether it is what OVER follows, and so counts rows of a window of SQL."""
    around = node.parent
    if around is None or around.this is not node:
        return False
    if isinstance(around, exp.Filter | exp.IgnoreNulls | exp.RespectNulls):
        return is_windowed(around)
    return isinstance(around, exp.Window)


def aggregates_in(node: exp.Expr, scope: Scope, before: int | None = None) -> Iterator[exp.Expr]:
    """The aggregates of an expression, and the names in it that stand for some."""
    for inner in node.walk(prune=is_query):
        index = None if scope.column_sql(inner) else scope.item_named(inner, before)
        named = aggregates_in(scope.items[index], scope, index) if index is not None else iter(())
        if (is_aggregate(inner) and not is_windowed(inner)) or next(named, None) is not None:
            yield inner


def check_one_record(node: exp.Expr, scope: Scope, what: str) -> None:
    """Refuses what one record alone cannot tell."""
    for inner in node.walk():
        if is_aggregate(inner) or isinstance(inner, exp.Query | exp.Window | exp.Star):
            raise scope.script.error(f"{what} is told by one record alone", inner, node)


@dataclass(frozen=True)
class _Form:
    """A call taken apart: what it is called here, what it is given, and in which order."""

    name: str
    written: str
    args: Sequence[exp.Expr]
    distinct: bool = False
    order: Sequence[exp.Ordered] = ()
    limit: exp.Expr | None = None

    @property
    def few(self) -> bool:
        """Whether it asks for the first few."""
        return self.name in FEW and len(self.args) > arity(self.name)[0]


def call_of(node: exp.Expr, scope: Scope, before: int | None = None) -> Call:
    """The call that an aggregate is, with arguments that DuckDB can evaluate on a record."""
    function = node.this if isinstance(node, exp.Filter) else node
    if PYTHON in function.meta:
        return _python_call(node, function, scope, before)
    form = _form_of(function, scope)
    _check_form(form, function, scope)
    condition = node.expression.this if isinstance(node, exp.Filter) else None
    order = [ordered.this for ordered in form.order]
    for argument in [*form.args, *order, *([] if condition is None else [condition])]:
        _check_argument(argument, scope, before)
    quantile = "quantile" in form.name
    bound = [scope.bound(arg, before) for arg in (form.args[:1] if quantile else form.args)]
    shares, many = _shares(form, scope) if quantile else ([], False)
    where = scope.condition(condition, "FILTER") if condition is not None else None
    if form.written not in _MACROS:  # of which DuckDB has no FILTER
        scope.bound(node, before)
    if bound:
        _check_type(form.name, bound[0][1], form.args[0], scope)
    given = [*(sql for sql, _ in bound), *shares]
    directions = [(scope.bound(o.this, before)[0], _direction(o)) for o in form.order]
    if form.distinct and form.order and (directions[0][0] != given[0] or len(directions) > 1):
        message = f"{form.written} of DISTINCT values can only be in their own order"
        raise scope.script.error(message, form.order[0], function)
    limit = int(form.limit.name) if form.limit is not None else None
    order_by, words = tuple(directions), form.written
    return Call(form.name, tuple(given), form.distinct, where, None, order_by, many, limit, words)


def _direction(ordered: exp.Ordered) -> str:
    down = "DESC" if ordered.args.get("desc") else "ASC"
    return f"{down} NULLS {'FIRST' if ordered.args.get('nulls_first') else 'LAST'}"


def _form_of(function: exp.Expr, scope: Scope) -> _Form:
    """The parts of a call, whichever way they are written."""
    within: Sequence[exp.Ordered] = ()
    if isinstance(function, exp.WithinGroup):
        function, within = function.this, function.expression.expressions
    name = _mergeable_name(function, bool(within), scope)
    args, distinct, order = list(function.expressions), False, list(within)
    limit = args[-1].expression if args and isinstance(args[-1], exp.Limit) else None
    if limit is not None:
        args[-1] = args[-1].this
    if args and isinstance(args[-1], exp.Order):
        order += args[-1].expressions
        args[-1] = args[-1].this
    if args and isinstance(args[0], exp.Distinct):
        distinct, args = True, [*args[0].expressions, *args[1:]]
    if name == "count" and not distinct and [type(arg) for arg in args] == [exp.Star]:
        args = []
    if within and name not in _ORDERED:  # the value is what is ordered
        args, order = [within[0].this, *args], []
        if within[0].args.get("desc") and name != "quantile_cont":
            written = function.name.lower()
            message = f"{written} WITHIN GROUP has values in ascending order; leave out DESC"
            raise scope.script.error(message, within[0], function)
        if within[0].args.get("desc"):
            args = [args[0], *(_from_the_end(arg) for arg in args[1:])]
    return _Form(name, function.name.lower(), args, distinct, order, limit)


def _from_the_end(shares: exp.Expr) -> exp.Expr:
    """The share of values up to the same place, or shares, if they are in descending order."""

    def turned(node: exp.Expr) -> exp.Expr:
        is_number = isinstance(node, exp.Literal) and not node.is_string
        return exp.Literal.number(str(1 - Decimal(node.name))) if is_number else node

    return shares.copy().transform(turned)


def _shares(form: _Form, scope: Scope) -> tuple[list[str], bool]:
    """The quantiles that are asked for, and whether it is a list of them."""
    asked = form.args[1]
    many = isinstance(asked, exp.Array)
    shares = asked.expressions if many else [asked]
    if not shares or not all(map(_is_share, shares)):
        message = "the second argument of a quantile is a number between 0 and 1, or a list of such"
        raise scope.script.error(message, asked)
    return [share.name for share in shares], many


def _python_call(node: exp.Expr, function: exp.Expr, scope: Scope, before: int | None) -> Call:
    name, args = function.name.lower(), list(_arguments(function))
    if any(isinstance(arg, exp.Distinct) for arg in function.expressions):
        raise scope.script.error(f"{name} takes values, without DISTINCT", function)
    if not args:
        raise scope.script.error(f"{name} takes values; expected one or more", function)
    condition = node.expression.this if isinstance(node, exp.Filter) else None
    for argument in [*args, condition] if condition is not None else args:
        _check_argument(argument, scope, before)
    bound = [scope.bound(arg, before)[0] for arg in args]
    where = scope.condition(condition, "FILTER") if condition is not None else None
    return Call(name, tuple(bound), where=where, code=function.meta[PYTHON])


def _mergeable_name(function: exp.Expr, within: bool, scope: Scope) -> str:
    written = function.name.lower()
    name = _SYNONYMS.get(written, written)
    if not is_aggregate(function) and not within:
        raise scope.script.error("FILTER can only follow an aggregate", function)
    if name not in EXPANSIONS:
        instead = _REFUSED.get(name) or instead_of(name)
        message = f"{written} cannot be merged from parts; instead: {instead}"
        raise scope.script.error(message, function)
    return name


def _arguments(function: exp.Expr) -> Iterator[exp.Expr]:
    for arg in function.expressions:
        yield from arg.expressions if isinstance(arg, exp.Distinct) else [arg]


def _check_form(form: _Form, function: exp.Expr, scope: Scope) -> None:
    name, args = form.name, form.args
    least, most = arity(name)
    if not least <= len(args) <= most:
        count = str(most) if least == most or not least else f"{least} or {most}"
        message = f"{form.written} takes {count} argument{'s' if most > 1 else ''}, not {len(args)}"
        raise scope.script.error(message, function)
    if form.order and name not in _ORDERED:
        message = "ORDER BY in an aggregate cannot be merged; use arg_min or arg_max"
        raise scope.script.error(message, form.order[0], function)
    if form.limit is not None and (name not in _ORDERED or not _is_count(form.limit, MOST_ASKED)):
        message = (
            f"LIMIT in an aggregate is a whole number between 1 and {MOST_ASKED:,}, behind the "
            "values of a list, as in list(x ORDER BY y LIMIT 100)"
        )
        raise scope.script.error(message, form.limit, function)
    if form.distinct and (name not in _DISTINCT or form.few):
        raise scope.script.error(f"DISTINCT is not possible with {form.written}", function)
    limit = MOST_LISTED if name == "approx_top_k" else MOST_FIRST if form.few else None
    if limit is not None and not _is_count(args[-1], limit):
        message = f"the last argument of {form.written} is a whole number between 1 and {limit:,}"
        raise scope.script.error(message, args[-1], function)
    if name == "string_agg" and len(args) > 1 and not isinstance(args[1], exp.Literal):
        raise scope.script.error(f"the separator of {form.written} is a text", args[1], function)


def _check_argument(arg: exp.Expr, scope: Scope, before: int | None) -> None:
    if isinstance(arg, exp.IgnoreNulls | exp.RespectNulls | exp.Limit | exp.HavingMax | exp.Alias):
        raise scope.script.error("expected an expression and ')'", arg)
    if isinstance(arg, exp.Star):
        raise scope.script.error("'*' can only stand in count(*)", arg)
    inner = next(aggregates_in(arg, scope, before), None)
    if inner is not None:
        raise scope.script.error("an aggregate cannot stand inside another", inner)


def _check_type(name: str, kind: str, arg: exp.Expr, scope: Scope) -> None:
    """Refuses what DuckDB has an answer for, but not one that cells could give."""
    times = name in _OF_NUMBERS_AND_TIMES
    fits = is_number(kind) or (times and is_time(kind))
    if not fits and (times or name in _OF_NUMBERS):
        expected = "numbers or times" if times else "numbers"
        raise scope.script.error(f"{name} expects {expected}; this is of type {kind}", arg)


def _is_count(node: exp.Expr, most: int) -> bool:
    whole = isinstance(node, exp.Literal) and not node.is_string and node.name.isdigit()
    return whole and 1 <= int(node.name) <= most


def _is_share(node: exp.Expr) -> bool:
    return isinstance(node, exp.Literal) and not node.is_string and 0 <= float(node.name) <= 1
