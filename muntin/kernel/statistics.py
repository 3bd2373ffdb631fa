"""Statistics of one value and of two: spread, shape, correlation, regression; products and bits.

Their cells are the states that DuckDB itself keeps, with counts, means and sums of squared
distances from the mean. States merge without loss, where differences of large sums of squares lose
all that matters: of times in milliseconds the variance would come out as zero. `EXPORT_STATE` gives
a state as a struct, `to_aggregate_state` takes it back, and what it is named in is part of the type
of the cell, so that states of another layout would be refused and not misread.
"""

from __future__ import annotations

from collections.abc import Callable

from muntin.kernel.expander import Call, Expander, both, filtered
from muntin.kernel.types import stored
from muntin.model.shapes import Merge

Expansion = Callable[[Expander, Call], str]

_ONE = "STRUCT(count UBIGINT, mean DOUBLE, dsquared DOUBLE)"
_TWO = "STRUCT(count UBIGINT, meanx DOUBLE, meany DOUBLE, co_moment DOUBLE)"
_BOTH = f"STRUCT(cov_pop {_TWO}, dev_pop_x {_ONE}, dev_pop_y {_ONE})"
_SKEW = "STRUCT(n UBIGINT, mean DOUBLE, m2 DOUBLE, m3 DOUBLE)"
_TAILS = "STRUCT(n UBIGINT, mean DOUBLE, m2 DOUBLE, m3 DOUBLE, m4 DOUBLE)"


def _taken(state: str, name: str, count: int) -> str:
    """A struct as the state of an aggregate of so many numbers."""
    kinds = ", ".join(["'DOUBLE'"] * count)
    return f"to_aggregate_state({state}, '{name}', [{kinds}])"


def _kept(to: Expander, call: Call, name: str, kind: str) -> str:
    """The cell with the state of an aggregate of numbers."""
    numbers = ", ".join(f"CAST({arg} AS DOUBLE)" for arg in call.args)
    sql = f"{filtered(f'{name}({numbers})', call.where)} EXPORT_STATE"
    return to.folded(sql, kind, f"combine_aggr({_taken('{c}', name, len(call.args))}){{over}}")


def of_one(name: str) -> Expansion:
    """Variance and what follows from it."""

    def expand(to: Expander, call: Call) -> str:
        state = _kept(to, call, "var_pop", _ONE)
        return to.finish(f"finalize({_taken(state, name, 1)})")

    return expand


def of_shape(name: str, kind: str) -> Expansion:
    """Skewness and kurtosis."""

    def expand(to: Expander, call: Call) -> str:
        state = _kept(to, call, "skewness" if kind == _SKEW else "kurtosis", kind)
        return to.finish(f"finalize({_taken(state, name, 1)})")

    return expand


def of_two(sql: str) -> Expansion:
    """What follows from the squares and products of two values; `{s}` stands for their state.

    Records without one of the two do not count.
    """

    def expand(to: Expander, call: Call) -> str:
        return to.finish(sql.format(s=_kept(to, call, "corr", _BOTH)))

    return expand


_SXX, _SYY, _SXY = "{s}.dev_pop_x.dsquared", "{s}.dev_pop_y.dsquared", "{s}.cov_pop.co_moment"
_COUNT = "{s}.cov_pop.count"
_SLOPE = f"{_SXY} / {_SXX}"


def _known(value: str, least: int = 1) -> str:
    return f"CASE WHEN {_COUNT} >= {least} THEN {value} END"


TWO = {
    "corr": f"finalize({_taken('{s}', 'corr', 2)})",
    "covar_pop": _known(f"{_SXY} / {_COUNT}"),
    "covar_samp": _known(f"{_SXY} / ({_COUNT} - 1)", least=2),
    "regr_count": f"CAST(coalesce({_COUNT}, 0) AS BIGINT)",
    "regr_avgx": _known("{s}.cov_pop.meanx"),
    "regr_avgy": _known("{s}.cov_pop.meany"),
    "regr_sxx": _known(_SXX),
    "regr_syy": _known(_SYY),
    "regr_sxy": _known(_SXY),
    "regr_slope": _known(_SLOPE),
    "regr_intercept": f"CASE WHEN {_SXX} > 0 THEN {{s}}.cov_pop.meany - {_SLOPE} * "
    "{s}.cov_pop.meanx END",
    "regr_r2": f"CASE WHEN {_SXX} > 0 THEN CASE WHEN {_SYY} = 0 THEN 1.0 "
    f"ELSE {_SXY} * {_SXY} / ({_SXX} * {_SYY}) END END",
}


def _product(to: Expander, call: Call) -> str:
    sql = filtered(f"product({call.args[0]})", call.where)
    return to.finish(to.folded(sql, "DOUBLE", "product({c}){over}"))


def _precise_sum(to: Expander, call: Call) -> str:
    sql = filtered(f"fsum({call.args[0]})", call.where)
    return to.folded(sql, "DOUBLE", "fsum({c}){over}")


def _fsum(to: Expander, call: Call) -> str:
    return to.finish(_precise_sum(to, call))


def _favg(to: Expander, call: Call) -> str:
    count = to.cell(filtered(f"count({call.args[0]})", call.where), Merge.SUM)
    return to.finish(f"{_precise_sum(to, call)} / {count}")


def _bits(name: str) -> Expansion:
    def expand(to: Expander, call: Call) -> str:
        (x,) = call.args
        kind = to.type_of(f"{name}({x})", True)
        fold = f"{name}(CAST({{c}} AS {kind})){{over}}"
        cell = to.folded(filtered(f"{name}({x})", call.where), stored(kind), fold)
        return to.finish(cell if stored(kind) == kind else f"CAST({cell} AS {kind})")

    return expand


def _geomean(to: Expander, call: Call) -> str:
    logarithm = f"ln(CAST({call.args[0]} AS DOUBLE))"
    total = to.cell(filtered(f"sum({logarithm})", call.where), Merge.SUM)
    count = to.cell(filtered(f"count({logarithm})", call.where), Merge.SUM)
    return to.finish(f"exp({total} / {count})")


def _weighted_avg(to: Expander, call: Call) -> str:
    x, weight = (f"CAST({arg} AS DOUBLE)" for arg in call.args)
    there = both(f"{x} IS NOT NULL", f"{weight} IS NOT NULL", call.where)
    total = to.cell(filtered(f"sum({x} * {weight})", there), Merge.SUM)
    weights = to.cell(filtered(f"sum({weight})", there), Merge.SUM)
    return to.finish(f"{total} / {weights}")


STATISTICS: dict[str, Expansion] = {
    "stddev": of_one("stddev_samp"),
    "stddev_pop": of_one("stddev_pop"),
    "variance": of_one("var_samp"),
    "var_pop": of_one("var_pop"),
    "sem": of_one("sem"),
    "skewness": of_shape("skewness", _SKEW),
    "kurtosis": of_shape("kurtosis", _TAILS),
    "kurtosis_pop": of_shape("kurtosis_pop", _TAILS),
    **{name: of_two(sql) for name, sql in TWO.items()},
    "product": _product,
    "fsum": _fsum,
    "favg": _favg,
    "bit_and": _bits("bit_and"),
    "bit_or": _bits("bit_or"),
    "bit_xor": _bits("bit_xor"),
    "geomean": _geomean,
    "wavg": _weighted_avg,
}
OF_TWO = frozenset({*TWO, "wavg"})
