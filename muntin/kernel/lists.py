"""Lists of values, and the first few: cells are lists in order, which merge by order.

A list is kept in the order that the call asks for, then by the time of records and by value, so
that it is the same however records are read. It has a limit: one that becomes longer is refused.
"""

from __future__ import annotations

from collections.abc import Callable

from muntin.kernel.expander import Call, Expander, both, filtered, stored, values
from muntin.model import POSITION, Merge

MOST_LISTED = 10_000  # values of one key
MOST_FIRST = 1_000  # that max(x, n) and the like may be asked for


def _fold(ordered: str, count: int) -> str:
    return f"{ordered}(flatten(list({{c}}) FILTER (WHERE {{c}} IS NOT NULL){{over}}))[:{count}]"


def first_few(merge: Merge) -> Callable[[Expander, Call], str]:
    """`max(x, n)`: the n largest values, or smallest, in order."""

    def expand(to: Expander, call: Call) -> str:
        x, count = call.args
        cell = _few(to, merge, x, count, stored(to.type_of(x)), call.where)
        return to.finish(cell)

    return expand


def few_at_extremes(merge: Merge) -> Callable[[Expander, Call], str]:
    """`arg_max(x, y, n)`: the values where another is largest; ties go by the value itself."""

    def expand(to: Expander, call: Call) -> str:
        x, y, count = call.args
        known = both(f"{y} IS NOT NULL", f"{x} IS NOT NULL", call.where)
        kind = f"STRUCT(t {stored(to.type_of(y))}, v {stored(to.type_of(x))})"
        cell = _few(to, merge, f"{{'t': {y}, 'v': {x}}}", count, kind, known)
        return to.finish(f"list_transform({cell}, lambda p: p.v)")

    return expand


def _few(to: Expander, merge: Merge, value: str, count: str, kind: str, where: str | None) -> str:
    ordered = "list_reverse_sort" if merge is Merge.MAX else "list_sort"
    sql = filtered(f"{merge}({value}, {count})", where)
    return to.folded(sql, f"{kind}[]", _fold(ordered, int(count)))


def _listed(to: Expander, call: Call, where: str | None) -> str:
    """A list of the values of a key, if it is not too long."""
    x = call.args[0]
    order = [*call.order, (POSITION, "ASC NULLS LAST")]
    key = ", ".join(f"{sql}, '{direction}'" for sql, direction in order)
    sql = filtered(f"list({{'s': create_sort_key({key}), 'v': {x}}})", where)
    kind = f"STRUCT(s BLOB, v {stored(to.type_of(x))})[]"
    most = MOST_LISTED + 1
    cell = to.folded(f"list_sort({sql})[:{most}]", kind, _fold("list_sort", most))
    return _within(call, f"len({cell})", f"list_transform({cell}, lambda p: p.v)")


def _within(call: Call, count: str, value: str) -> str:
    told = (
        f"{call.name} keeps at most {MOST_LISTED:,} values of a key; "
        "max(x, n), approx_top_k(x, n) or histogram(x) take less"
    )
    return f"CASE WHEN {count} > {MOST_LISTED} THEN error('{told}') ELSE {value} END"


def array_agg(to: Expander, call: Call) -> str:
    if call.distinct:
        return to.finish(_within(call, "count(*)", _distinct(call)), values(to, call))
    return to.finish(_listed(to, call, call.where))


def string_agg(to: Expander, call: Call) -> str:
    x, separator = (*call.args, "','")[:2]
    of_values = Call(call.name, (x,), call.distinct, call.where, order=call.order)
    if call.distinct:
        joined = f"array_to_string({_distinct(call)}, {separator})"
        return to.finish(_within(call, "count(*)", joined), values(to, of_values))
    listed = _listed(to, of_values, both(f"{x} IS NOT NULL", call.where))
    return to.finish(f"array_to_string({listed}, {separator})")


def _distinct(call: Call) -> str:
    """The distinct values in order, of rows that hold one each."""
    down = any(direction.startswith("DESC") for _, direction in call.order)
    return f"list(sub ORDER BY sub{' DESC' if down else ''})"


def approx_top_k(to: Expander, call: Call) -> str:
    """The values that come most often. They are counted, so that nothing is approximate."""
    x, count = call.args
    part = values(to, Call(call.name, (x,), where=call.where))
    often = to.cell("count(*)", Merge.SUM, part)
    return to.finish(f"list(sub ORDER BY {often} DESC, sub)[:{count}]", part)
