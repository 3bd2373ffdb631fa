"""Each aggregate as cells and, where needed, a sub-key: the whole list is `EXPANSIONS`.

An expansion turns one call into cells of a part and a finish expression over them. Because
cells merge, every aggregate here can be computed in pieces, in any order, anywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from muntin.kernel import lists, sketches
from muntin.kernel.canonical import is_respelled, restored_sql, spelling_sql
from muntin.kernel.expander import Call, Expander, PartOf, both, compared, filtered, values
from muntin.kernel.statistics import OF_TWO, STATISTICS
from muntin.model.records import SHARE
from muntin.model.shapes import Merge


def expand(to: Expander, call: Call) -> str:
    """The name of the finished column that stands for a call.

    Raises ValueError for one that cannot be made of shares of records.
    """
    to.take(call)
    if not to.split:
        return _state(to, call) if call.code else _expansion(call)(to, call)
    few = call.name in FEW and len(call.args) > arity(call.name)[0]
    if call.name not in (*_BY_SHARE, *_WHATEVER_THE_SHARE) or call.distinct or few:
        known = ", ".join(sorted((*_BY_SHARE, *_WHATEVER_THE_SHARE)))
        raise ValueError(f"{call.name} cannot be split among panes; spans BY SPLIT have {known}")
    return _BY_SHARE.get(call.name, EXPANSIONS[call.name])(to, call)


def _expansion(call: Call) -> Callable[[Expander, Call], str]:
    """How a call is expanded: those with a number ask for the first few."""
    few = FEW.get(call.name)
    return few if few and len(call.args) > arity(call.name)[0] else EXPANSIONS[call.name]


def _state(to: Expander, call: Call) -> str:
    """An aggregate in Python; records without a value do not reach it, as with others."""
    assert call.code is not None
    fields = ", ".join(f"'a{i}': {arg}" for i, arg in enumerate(call.args))
    known = both(*(f"{arg} IS NOT NULL" for arg in call.args), call.where)
    cell = to.state(filtered(f"list({{{fields}}})", known), call.code)
    return to.finish(f"CAST({cell} AS {call.code.returns})")


def _count(to: Expander, call: Call) -> str:
    if call.distinct:
        part = values(to, call)
        return to.finish("count(*)", part, zero=True)
    name = to.cell(filtered(f"count({', '.join(call.args) or '*'})", call.where), Merge.SUM)
    return to.finish(name)


def _count_if(to: Expander, call: Call) -> str:
    condition = both(call.args[0], call.where)
    return to.finish(to.cell(f"count(*) FILTER (WHERE {condition})", Merge.SUM))


def _sum(to: Expander, call: Call) -> str:
    (x,) = call.args
    # DuckDB sums integers as HUGEINT. Outputs narrow that to BIGINT, which the sum of wider
    # integers is likely not to fit: those stay DECIMAL(38,0), as in the block.
    whole = to.type_of(f"sum({x})", True) == "HUGEINT"
    kind = "DECIMAL(38,0)" if to.type_of(x) in ("HUGEINT", "UBIGINT") else "HUGEINT"
    part = values(to, call) if call.distinct else None
    name = "sum(sub)"
    if part is None:
        name = to.cell(filtered(f"sum({x})", call.where), Merge.SUM)
    return to.finish(f"CAST({name} AS {kind})" if whole else name, part)


def _avg(to: Expander, call: Call) -> str:
    (x,) = call.args
    if call.distinct:
        return to.finish("avg(sub)", values(to, call))
    total = to.cell(filtered(f"sum({x})", call.where), Merge.SUM)
    count = to.cell(filtered(f"count({x})", call.where), Merge.SUM)
    return to.finish(f"CAST({total} AS DOUBLE) / {count}")


def _extreme(merge: Merge) -> Callable[[Expander, Call], str]:
    def expand(to: Expander, call: Call) -> str:
        (x,) = call.args
        kind = to.type_of(x)
        if is_respelled(kind):  # of those that are equal, the smallest or largest spelling
            known = both(f"{x} IS NOT NULL", call.where)
            pair = f"{{'t': {compared(to, x)}, 'v': {spelling_sql(x, kind)}}}"
            cell = to.cell(filtered(f"{merge}({pair})", known), merge)
            return to.finish(restored_sql(f"{cell}.v", kind))
        return to.finish(to.cell(filtered(f"{merge}({x})", call.where), merge))

    return expand


def _at_extreme(
    merge: Merge, by: int | None, unknown: bool = False
) -> Callable[[Expander, Call], str]:
    """The value where another is smallest or largest; ties go by the value itself.

    `by` is the argument compared, or None for the record's own time. `unknown` values count too.
    """

    def expand(to: Expander, call: Call) -> str:
        value = call.args[0]
        if by is None:
            pair, known = f"{{'t': __position, 'v': {value}}}", call.where
        else:
            there = None if unknown else f"{value} IS NOT NULL"
            known = both(f"{call.args[by]} IS NOT NULL", there, call.where)
            pair = f"{{'t': {compared(to, call.args[by])}, 'v': {value}}}"
        name = to.cell(filtered(f"{merge}({pair})", known), merge)
        return to.finish(f"{name}.v")

    return expand


def _median(to: Expander, call: Call) -> str:
    return _quantile_cont(to, Call("quantile_cont", (*call.args, "0.5"), where=call.where))


def _quantile_cont(to: Expander, call: Call) -> str:
    return _quantiles(to, call, _cont_sql)


def _cont_sql(to: Expander, x: str, q: str, _part: PartOf) -> str:
    """The value at a share of all values, between the two next to it."""
    rank = f"((any_value(total) - 1) * {q})"
    low, high = (f"min(sub) FILTER (WHERE upto > floor((total - 1) * {q}))",
                 f"min(sub) FILTER (WHERE upto > ceil((total - 1) * {q}))")  # fmt: skip
    share = f"({rank} - floor({rank}))"
    if to.type_of(x).startswith(("TIMESTAMP", "DATE")):
        low, high = f"epoch_us({low})", f"epoch_us({high})"
        return f"make_timestamp(CAST({low} + ({high} - {low}) * {share} AS BIGINT))"
    low, high = f"CAST({low} AS DOUBLE)", f"CAST({high} AS DOUBLE)"
    return f"{low} + ({high} - {low}) * {share}"


def _quantile_disc(to: Expander, call: Call) -> str:
    return _quantiles(to, call, lambda _to, _x, q, part: _at_rank_sql(q, part.least))


def _quantiles(to: Expander, call: Call, at: Callable[[Expander, str, str, PartOf], str]) -> str:
    """One quantile, or a list of them."""
    x, *shares = call.args
    part = values(to, Call(call.name, (x,), where=call.where), ranked=True)
    found = [at(to, x, q, part) for q in shares]
    return to.finish(f"[{', '.join(found)}]" if call.many else found[0], part)


def _at_rank_sql(q: str, least: str = "min(sub)") -> str:
    """The smallest value that at least the share `q` of all values does not exceed."""
    return f"{least} FILTER (WHERE upto >= greatest(1, total - floor(total - total * {q})))"


def _mode(to: Expander, call: Call) -> str:
    part = values(to, call)
    count = to.cell("count(*)", Merge.SUM, part)
    return to.finish(f"first({part.shown} ORDER BY {count} DESC, sub)", part)


def _histogram(to: Expander, call: Call) -> str:
    part = values(to, call)
    count = to.cell("count(*)", Merge.SUM, part)
    return to.finish(f"map(list({part.shown} ORDER BY sub), list({count} ORDER BY sub))", part)


def _entropy(to: Expander, call: Call) -> str:
    part = values(to, call)
    count = to.cell("count(*)", Merge.SUM, part)
    sql = f"log2(sum({count})) - sum({count} * log2({count})) / sum({count})"
    return to.finish(f"greatest(0.0, {sql})", part, zero=True)


def _mad(to: Expander, call: Call) -> str:
    """The median distance from the median, of values that are told apart."""
    (x,) = call.args
    part = values(to, Call(call.name, (x,), where=call.where))
    count = to.cell("count(*)", Merge.SUM, part)
    every = f"flatten(list(repeat([CAST(sub AS DOUBLE)], {count})))"
    return to.finish(f"list_aggregate({every}, 'mad')", part)


def _approx_count_distinct(to: Expander, call: Call) -> str:
    (x,) = call.args
    part = to.part(sketches.register_sql(x), both(f"{x} IS NOT NULL", call.where))
    rank = to.cell(f"max({sketches.rank_sql(x)})", Merge.MAX, part)
    return to.finish(sketches.distinct_estimate_sql(rank), part, zero=True)


def _approx_quantile(to: Expander, call: Call) -> str:
    x, *shares = call.args
    known = both(f"{x} IS NOT NULL", f"NOT isnan(CAST({x} AS DOUBLE))", call.where)
    part = to.part(sketches.bucket_sql(x), known, ranked=True)
    to.cell("count(*)", Merge.SUM, part)
    found = [sketches.bucket_value_sql(f"({_at_rank_sql(q)})") for q in shares]
    return to.finish(f"[{', '.join(found)}]" if call.many else found[0], part)


def _shares(to: Expander, call: Call, amount: str | None, *conditions: str | None) -> str:
    """A cell with the amounts of records, or their number, each by its share."""
    sql = f"sum({SHARE})" if amount is None else f"sum(CAST({amount} AS DOUBLE) * {SHARE})"
    return to.cell(filtered(sql, both(*conditions, call.where) or None), Merge.SUM, kind="DOUBLE")


def _count_by_share(to: Expander, call: Call) -> str:
    there = [f"{x} IS NOT NULL" for x in call.args]
    return to.finish(f"coalesce({_shares(to, call, None, *there)}, 0)")


def _count_if_by_share(to: Expander, call: Call) -> str:
    return to.finish(f"coalesce({_shares(to, call, None, call.args[0])}, 0)")


def _sum_by_share(to: Expander, call: Call) -> str:
    return to.finish(_shares(to, call, call.args[0]))


def _avg_by_share(to: Expander, call: Call) -> str:
    (x,) = call.args
    count = _shares(to, call, None, f"{x} IS NOT NULL")
    return to.finish(f"{_shares(to, call, x)} / {count}")


EXPANSIONS: dict[str, Callable[[Expander, Call], str]] = {
    "count": _count,
    "count_if": _count_if,
    "sum": _sum,
    "avg": _avg,
    "min": _extreme(Merge.MIN),
    "max": _extreme(Merge.MAX),
    "any_value": _extreme(Merge.MIN),
    "bool_and": _extreme(Merge.MIN),
    "bool_or": _extreme(Merge.MAX),
    "first": _at_extreme(Merge.MIN, by=None),
    "last": _at_extreme(Merge.MAX, by=None),
    "arg_min": _at_extreme(Merge.MIN, by=1),
    "arg_max": _at_extreme(Merge.MAX, by=1),
    "arg_min_null": _at_extreme(Merge.MIN, by=1, unknown=True),
    "arg_max_null": _at_extreme(Merge.MAX, by=1, unknown=True),
    "median": _median,
    "quantile": _quantile_disc,
    "quantile_cont": _quantile_cont,
    "mode": _mode,
    "mad": _mad,
    "entropy": _entropy,
    "histogram": _histogram,
    "approx_top_k": lists.approx_top_k,
    "array_agg": lists.array_agg,
    "string_agg": lists.string_agg,
    "approx_count_distinct": _approx_count_distinct,
    "approx_quantile": _approx_quantile,
    **STATISTICS,
}
# With a number as their last argument: the first few instead of one.
FEW: dict[str, Callable[[Expander, Call], str]] = {
    "min": lists.first_few(Merge.MIN),
    "max": lists.first_few(Merge.MAX),
    "arg_min": lists.few_at_extremes(Merge.MIN),
    "arg_max": lists.few_at_extremes(Merge.MAX),
}

# Of a record that is split among panes: what takes its share, and what does not depend on it.
_BY_SHARE: dict[str, Callable[[Expander, Call], str]] = {
    "count": _count_by_share,
    "count_if": _count_if_by_share,
    "sum": _sum_by_share,
    "avg": _avg_by_share,
}
_WHATEVER_THE_SHARE = ("min", "max", "any_value", "bool_and", "bool_or", "first", "last",
                       "arg_min", "arg_max")  # fmt: skip

_TWO = ("arg_min", "arg_max", "arg_min_null", "arg_max_null", "quantile", "quantile_cont",
        "approx_quantile", "approx_top_k", *sorted(OF_TWO))  # fmt: skip


def arity(name: str) -> tuple[int, int]:
    """How many arguments an aggregate takes, at least and at most."""
    if name == "count":
        return 0, 1
    least = 2 if name in _TWO else 1
    return least, least + (name in FEW or name == "string_agg")


_INSTEAD = {
    "reservoir_quantile": "approx_quantile(x, q)",
    "bitstring_agg": "histogram(x)",
    "histogram_exact": "histogram(x)",
    "arg_max_nulls_last": "arg_max_null(x, y)",
    "arg_min_nulls_last": "arg_min_null(x, y)",
    "lttb": "avg(y) over shorter windows",
    "combine_aggr": "the aggregate itself",
    "decimal_average": "avg(x)",
    "sum_no_overflow": "sum(x)",
    "variant_group_object": "histogram(x)",
}


def instead_of(name: str) -> str:
    """What to use in place of an aggregate that cannot be merged."""
    known: Sequence[str] = sorted(EXPANSIONS)
    return _INSTEAD.get(name, "one of " + ", ".join(known))
