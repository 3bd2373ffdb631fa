"""Aggregates as users write them: recognised, and turned into the calls the kernel expands."""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from muntin.kernel.aggregates import EXPANSIONS, Call, arity, instead_of
from muntin.kernel.engine import aggregate_names
from muntin.language.scope import Scope, is_number, is_time

_SYNONYMS = {
    "arbitrary": "first",
    "argmax": "arg_max",
    "argmin": "arg_min",
    "count_star": "count",
    "countif": "count_if",
    "group_concat": "string_agg",
    "list": "array_agg",
    "listagg": "string_agg",
    "max_by": "arg_max",
    "mean": "avg",
    "min_by": "arg_min",
    "quantile_disc": "quantile",
    "stddev_samp": "stddev",
    "var_samp": "variance",
}
# Macros of DuckDB over aggregates, which it does not list as aggregates.
_MACROS = {
    "geomean": "exp(avg(ln(x)))",
    "geometric_mean": "exp(avg(ln(x)))",
    "json_group_array": "histogram(x) keeps every value with its count",
    "json_group_object": "histogram(x) keeps every value with its count",
    "json_group_structure": "histogram(json_structure(x))",
    "wavg": "sum(x * weight) / sum(weight)",
    "weighted_avg": "sum(x * weight) / sum(weight)",
}
PYTHON = "python"  # where a call's node keeps the code of an aggregate in Python
_DISTINCT = ("count", "sum", "avg", "min", "max")
_OF_NUMBERS = ("avg", "approx_quantile")
_OF_NUMBERS_AND_TIMES = ("median", "quantile_cont")


def is_aggregate(node: exp.Expr) -> bool:
    """Whether the node is a call of an aggregate, with its FILTER where it has one."""
    if isinstance(node, exp.Filter | exp.WithinGroup) or PYTHON in node.meta:
        return True
    name = node.name.lower() if isinstance(node, exp.Anonymous) else ""
    return name in aggregate_names() or name in _MACROS


def is_query(node: exp.Expr) -> bool:
    """Whether it is a subquery."""
    return isinstance(node, exp.Query) and not isinstance(node, exp.Table)


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


def call_of(node: exp.Expr, scope: Scope, before: int | None = None) -> Call:
    """The call that an aggregate is, with arguments that DuckDB can evaluate on a record."""
    function = node.this if isinstance(node, exp.Filter) else node
    if PYTHON in function.meta:
        return _python_call(node, function, scope, before)
    name = _mergeable_name(function, scope)
    distinct = any(isinstance(arg, exp.Distinct) for arg in function.expressions)
    args = list(_arguments(function))
    if name == "count" and not distinct and [type(arg) for arg in args] == [exp.Star]:
        args = []
    _check_form(name, args, distinct, function, scope)
    condition = node.expression.this if isinstance(node, exp.Filter) else None
    for argument in [*args, condition] if condition is not None else args:
        _check_argument(argument, scope, before)
    bound = [scope.bound(arg, before) for arg in args]
    where = scope.condition(condition, "FILTER") if condition is not None else None
    scope.bound(node, before)
    if bound:
        _check_type(name, bound[0][1], args[0], scope)
    return Call(name, tuple(sql for sql, _ in bound), distinct, where)


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


def _mergeable_name(function: exp.Expr, scope: Scope) -> str:
    if isinstance(function, exp.WithinGroup):
        message = "WITHIN GROUP is not possible in a job; write quantile_cont(x, 0.5)"
        raise scope.script.error(message, function)
    written = function.name.lower()
    name = _SYNONYMS.get(written, written)
    if not is_aggregate(function):
        raise scope.script.error("FILTER can only follow an aggregate", function)
    if name not in EXPANSIONS:
        instead = _MACROS.get(name) or instead_of(name)
        message = f"{written} cannot be merged from parts; instead: {instead}"
        raise scope.script.error(message, function)
    return name


def _arguments(function: exp.Expr) -> Iterator[exp.Expr]:
    for arg in function.expressions:
        yield from arg.expressions if isinstance(arg, exp.Distinct) else [arg]


def _check_form(
    name: str, args: list[exp.Expr], distinct: bool, function: exp.Expr, scope: Scope
) -> None:
    expected = arity(name)
    most = 1 if expected is None else expected
    if len(args) > most or (expected is not None and len(args) < expected):
        message = f"{name} takes {most} argument{'s' if most > 1 else ''}, not {len(args)}"
        raise scope.script.error(message, function)
    if "quantile" in name and not _is_share(args[1]):
        message = "the second argument of a quantile is a number between 0 and 1"
        raise scope.script.error(message, args[1])
    if distinct and name not in _DISTINCT:
        raise scope.script.error(f"DISTINCT is not possible with {name}", function)


def _check_argument(arg: exp.Expr, scope: Scope, before: int | None) -> None:
    if isinstance(arg, exp.Order):
        message = "ORDER BY in an aggregate cannot be merged; use arg_min or arg_max"
        raise scope.script.error(message, arg)
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


def _is_share(node: exp.Expr) -> bool:
    return isinstance(node, exp.Literal) and not node.is_string and 0 <= float(node.name) <= 1
