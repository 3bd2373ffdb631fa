"""Each aggregate as cells and, where needed, a sub-key: the whole list is `EXPANSIONS`.

An expansion turns one call into cells of a part and a finish expression over them. Because
cells merge by SUM, MIN or MAX alone, every aggregate here can be computed in pieces, in any
order, anywhere. Finish expressions of part 0 see one row per key; those of other parts
aggregate over the rows of a key, where `sub` is the sub-key and, in ranked parts, `upto` is
the running count and `total` the count of all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from muntin.kernel import sketches
from muntin.model import SHARE, Cell, Code, Finish, Merge, Part

TypeOf = Callable[[str, bool], str]  # (sql, whether it aggregates) -> DuckDB type


@dataclass(frozen=True)
class Call:
    """One aggregate as written: its name, arguments, DISTINCT and FILTER."""

    name: str
    args: tuple[str, ...] = ()
    distinct: bool = False
    where: str | None = None
    code: Code | None = None  # of an aggregate in Python


@dataclass
class _Part:
    sub_key: str | None = None
    where: str | None = None
    cells: dict[str, Cell] = field(default_factory=dict)
    ranked: bool = False


class Expander:
    """Collects the parts, cells and finishes of one job; equal ones are shared."""

    def __init__(self, type_of: TypeOf, split: bool = False) -> None:
        self._type_of = type_of
        self._split = split
        self._parts: dict[tuple[str | None, str | None], _Part] = {(None, None): _Part()}
        self._finishes: dict[tuple[int, str], Finish] = {}
        self._cells = 0
        self._arguments: dict[str, None] = {}
        self.cell("count(*)", Merge.SUM)

    def expand(self, call: Call) -> str:
        """The name of the finished column that stands for the call.

        Raises ValueError for one that cannot be made of shares of records.
        """
        self._arguments |= dict.fromkeys((*call.args, *filter(None, [call.where])))
        if not self._split:
            return _state(self, call) if call.code else EXPANSIONS[call.name](self, call)
        if call.name not in (*_BY_SHARE, *_WHATEVER_THE_SHARE) or call.distinct:
            known = ", ".join(sorted((*_BY_SHARE, *_WHATEVER_THE_SHARE)))
            raise ValueError(
                f"{call.name} cannot be split among panes; spans BY SPLIT have {known}"
            )
        return _BY_SHARE.get(call.name, EXPANSIONS[call.name])(self, call)

    def cell(
        self, sql: str, merge: Merge, part: _Part | None = None, kind: str | None = None
    ) -> str:
        part = part or self._parts[None, None]
        if sql not in part.cells:
            stored_as = kind or stored(self.type_of(sql, True))
            part.cells[sql] = Cell(f"c{self._cells}", sql, merge, stored_as)
            self._cells += 1
        return part.cells[sql].name

    def state(self, sql: str, code: Code) -> str:
        """A cell that Python makes of the list that the SQL gives."""
        cells = self._parts[None, None].cells
        name = f"{code.reference}: {sql}"
        if name not in cells:
            given = self.type_of(sql, True)
            cell = Cell(f"c{self._cells}", sql, Merge.STATE, "BLOB", code, given)
            cells[name] = cell
            self._cells += 1
        return cells[name].name

    def part(self, sub_key: str, where: str | None, ranked: bool = False) -> _Part:
        part = self._parts.setdefault((sub_key, where), _Part(sub_key, where))
        part.ranked = part.ranked or ranked
        return part

    def finish(self, sql: str, part: _Part | None = None, zero: bool = False) -> str:
        """`zero` says that the value is zero, not unknown, where no record reached the part."""
        index = list(self._parts.values()).index(part) if part else 0
        default = Finish(f"a{len(self._finishes)}", index, sql, zero)
        return self._finishes.setdefault((index, sql), default).name

    def type_of(self, sql: str, aggregates: bool = False) -> str:
        return self._type_of(sql, aggregates)

    def parts(self) -> tuple[Part, ...]:
        return tuple(
            Part(
                cells=tuple(part.cells.values()),
                sub_key=part.sub_key,
                sub_type=stored(self.type_of(part.sub_key)) if part.sub_key else None,
                where=part.where,
                ranked=part.ranked,
            )
            for part in self._parts.values()
        )

    def finishes(self) -> tuple[Finish, ...]:
        return tuple(self._finishes.values())

    def arguments(self) -> tuple[str, ...]:
        """Of all calls, each once: what cells evaluate on every record."""
        return tuple(self._arguments)


_AS_TEXT = ("UUID", "JSON", "BIT", "TIME", "TIME_NS", "INTERVAL", '"NULL"')


def stored(kind: str) -> str:
    """The type a value has inside a block: one that Arrow carries without loss."""
    if kind in ("HUGEINT", "UHUGEINT"):
        return "DECIMAL(38,0)"
    exotic = kind in _AS_TEXT or kind.startswith(("ENUM", "TIME WITH"))
    return "VARCHAR" if exotic else kind


def _state(to: Expander, call: Call) -> str:
    """An aggregate in Python; records without a value do not reach it, as with others."""
    assert call.code is not None
    fields = ", ".join(f"'a{i}': {arg}" for i, arg in enumerate(call.args))
    known = _both(*(f"{arg} IS NOT NULL" for arg in call.args), call.where)
    cell = to.state(_filtered(f"list({{{fields}}})", known), call.code)
    return to.finish(f"CAST({cell} AS {call.code.returns})")


def _filtered(sql: str, where: str | None) -> str:
    return f"{sql} FILTER (WHERE {where})" if where else sql


def _both(*conditions: str | None) -> str:
    return " AND ".join(f"({c})" for c in conditions if c)


def _count(to: Expander, call: Call) -> str:
    if call.distinct:
        part = _values(to, call)
        return to.finish("count(*)", part, zero=True)
    name = to.cell(_filtered(f"count({', '.join(call.args) or '*'})", call.where), Merge.SUM)
    return to.finish(name)


def _count_if(to: Expander, call: Call) -> str:
    condition = _both(call.args[0], call.where)
    return to.finish(to.cell(f"count(*) FILTER (WHERE {condition})", Merge.SUM))


def _sum(to: Expander, call: Call) -> str:
    (x,) = call.args
    if call.distinct:
        return to.finish("sum(sub)", _values(to, call))
    name = to.cell(_filtered(f"sum({x})", call.where), Merge.SUM)
    # DuckDB sums integers as HUGEINT. Outputs narrow that to BIGINT, which the sum of wider
    # integers is likely not to fit: those stay DECIMAL(38,0), as in the block.
    kind = to.type_of(f"sum({x})", True)
    narrow = kind == "HUGEINT" and to.type_of(x) not in ("HUGEINT", "UBIGINT")
    return to.finish(f"CAST({name} AS HUGEINT)" if narrow else name)


def _avg(to: Expander, call: Call) -> str:
    (x,) = call.args
    if call.distinct:
        return to.finish("avg(sub)", _values(to, call))
    total = to.cell(_filtered(f"sum({x})", call.where), Merge.SUM)
    count = to.cell(_filtered(f"count({x})", call.where), Merge.SUM)
    return to.finish(f"CAST({total} AS DOUBLE) / {count}")


def _extreme(merge: Merge) -> Callable[[Expander, Call], str]:
    def expand(to: Expander, call: Call) -> str:
        return to.finish(to.cell(_filtered(f"{merge}({call.args[0]})", call.where), merge))

    return expand


def _spread(root: bool, population: bool) -> Callable[[Expander, Call], str]:
    """Variance from the count, the sum and the sum of squares, all kept in double."""

    def expand(to: Expander, call: Call) -> str:
        x = f"CAST({call.args[0]} AS DOUBLE)"
        n = to.cell(_filtered(f"count({x})", call.where), Merge.SUM)
        total = to.cell(_filtered(f"fsum({x})", call.where), Merge.SUM)
        squares = to.cell(_filtered(f"fsum({x} * {x})", call.where), Merge.SUM)
        degrees = n if population else f"({n} - 1)"
        value = f"greatest(0.0, ({squares} - {total} * {total} / {n}) / nullif({degrees}, 0))"
        # greatest() ignores NULL, so an undefined variance has to be said.
        guarded = f"CASE WHEN {degrees} > 0 THEN {value} END"
        return to.finish(f"sqrt({guarded})" if root else guarded)

    return expand


def _at_extreme(merge: Merge, by: int | None) -> Callable[[Expander, Call], str]:
    """The value where another is smallest or largest; ties go by the value itself.

    `by` is the argument compared, or None for the record's own time.
    """

    def expand(to: Expander, call: Call) -> str:
        value = call.args[0]
        if by is None:
            pair, known = f"{{'t': __position, 'v': {value}}}", call.where
        else:
            known = _both(f"{call.args[by]} IS NOT NULL", f"{value} IS NOT NULL", call.where)
            pair = f"{{'t': {call.args[by]}, 'v': {value}}}"
        name = to.cell(_filtered(f"{merge}({pair})", known), merge)
        return to.finish(f"{name}.v")

    return expand


def _values(to: Expander, call: Call, ranked: bool = False) -> _Part:
    """The part with one row per distinct value and how often it came."""
    x = call.args[0] if len(call.args) == 1 or not call.distinct else f"({', '.join(call.args)})"
    part = to.part(x, _both(f"{x} IS NOT NULL", call.where), ranked)
    to.cell("count(*)", Merge.SUM, part)
    return part


def _median(to: Expander, call: Call) -> str:
    return _quantile_cont(to, Call("quantile_cont", (*call.args, "0.5"), where=call.where))


def _quantile_cont(to: Expander, call: Call) -> str:
    x, q = call.args
    part = _values(to, Call(call.name, (x,), where=call.where), ranked=True)
    rank = f"((any_value(total) - 1) * {q})"
    low, high = (f"min(sub) FILTER (WHERE upto > floor((total - 1) * {q}))",
                 f"min(sub) FILTER (WHERE upto > ceil((total - 1) * {q}))")  # fmt: skip
    share = f"({rank} - floor({rank}))"
    if to.type_of(x).startswith(("TIMESTAMP", "DATE")):
        low, high = f"epoch_us({low})", f"epoch_us({high})"
        return to.finish(
            f"make_timestamp(CAST({low} + ({high} - {low}) * {share} AS BIGINT))", part
        )
    low, high = f"CAST({low} AS DOUBLE)", f"CAST({high} AS DOUBLE)"
    return to.finish(f"{low} + ({high} - {low}) * {share}", part)


def _quantile_disc(to: Expander, call: Call) -> str:
    x, q = call.args
    part = _values(to, Call(call.name, (x,), where=call.where), ranked=True)
    return to.finish(_at_rank_sql(q), part)


def _at_rank_sql(q: str) -> str:
    """The smallest value that at least the share `q` of all values does not exceed."""
    return f"min(sub) FILTER (WHERE upto >= greatest(1, total - floor(total - total * {q})))"


def _mode(to: Expander, call: Call) -> str:
    part = _values(to, call)
    count = to.cell("count(*)", Merge.SUM, part)
    return to.finish(f"first(sub ORDER BY {count} DESC, sub)", part)


def _histogram(to: Expander, call: Call) -> str:
    part = _values(to, call)
    count = to.cell("count(*)", Merge.SUM, part)
    return to.finish(f"map(list(sub ORDER BY sub), list({count} ORDER BY sub))", part)


def _approx_count_distinct(to: Expander, call: Call) -> str:
    (x,) = call.args
    part = to.part(sketches.register_sql(x), _both(f"{x} IS NOT NULL", call.where))
    rank = to.cell(f"max({sketches.rank_sql(x)})", Merge.MAX, part)
    return to.finish(sketches.distinct_estimate_sql(rank), part, zero=True)


def _approx_quantile(to: Expander, call: Call) -> str:
    x, q = call.args
    known = _both(f"{x} IS NOT NULL", f"NOT isnan(CAST({x} AS DOUBLE))", call.where)
    part = to.part(sketches.bucket_sql(x), known, ranked=True)
    to.cell("count(*)", Merge.SUM, part)
    bucket = _at_rank_sql(q)
    return to.finish(sketches.bucket_value_sql(f"({bucket})"), part)


def _shares(to: Expander, call: Call, amount: str | None, *conditions: str | None) -> str:
    """A cell with the amounts of records, or their number, each by its share."""
    sql = f"sum({SHARE})" if amount is None else f"sum(CAST({amount} AS DOUBLE) * {SHARE})"
    return to.cell(_filtered(sql, _both(*conditions, call.where) or None), Merge.SUM, kind="DOUBLE")


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
    "stddev": _spread(root=True, population=False),
    "stddev_pop": _spread(root=True, population=True),
    "variance": _spread(root=False, population=False),
    "var_pop": _spread(root=False, population=True),
    "first": _at_extreme(Merge.MIN, by=None),
    "last": _at_extreme(Merge.MAX, by=None),
    "arg_min": _at_extreme(Merge.MIN, by=1),
    "arg_max": _at_extreme(Merge.MAX, by=1),
    "median": _median,
    "quantile": _quantile_disc,
    "quantile_cont": _quantile_cont,
    "mode": _mode,
    "histogram": _histogram,
    "approx_count_distinct": _approx_count_distinct,
    "approx_quantile": _approx_quantile,
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

_ARITY = {"arg_min": 2, "arg_max": 2, "quantile": 2, "quantile_cont": 2, "approx_quantile": 2}


def arity(name: str) -> int | None:
    """How many arguments the aggregate takes, or None when count decides."""
    return None if name == "count" else _ARITY.get(name, 1)


_POWERS = "sums of powers: sum(x), sum(x * x), sum(x * x * x), count(x)"
_INSTEAD = {
    "string_agg": "histogram(x) keeps every value with its count",
    "array_agg": "histogram(x) keeps every value with its count",
    "product": "exp(sum(ln(x)))",
    "mad": "median(x) and quantile(x, q) describe the spread",
    "reservoir_quantile": "approx_quantile(x, q)",
    "approx_top_k": "GROUP BY x ORDER BY count(*) DESC LIMIT k",
    "entropy": "histogram(x)",
    "fsum": "sum(x)",
    "kahan_sum": "sum(x)",
    "sumkahan": "sum(x)",
    "favg": "avg(x)",
    "sem": "stddev(x) / sqrt(count(x))",
    "skewness": _POWERS,
    "kurtosis": _POWERS,
    "kurtosis_pop": _POWERS,
    "bitstring_agg": "histogram(x)",
    "corr": "sums: sum(x * y), sum(x), sum(y), count(*)",
    "covar_pop": "(sum(x * y) - sum(x) * sum(y) / count(*)) / count(*)",
    "covar_samp": "(sum(x * y) - sum(x) * sum(y) / count(*)) / (count(*) - 1)",
}


def instead_of(name: str) -> str:
    """What to use in place of an aggregate that cannot be merged."""
    known: Sequence[str] = sorted(EXPANSIONS)
    if name.startswith("regr_"):
        return "sums: sum(x * y), sum(x * x), sum(x), sum(y), count(*)"
    if name.startswith("bit_"):
        return "of each bit, for example the lowest, bool_or(x & 1 = 1)"
    return _INSTEAD.get(name, "one of " + ", ".join(known))
