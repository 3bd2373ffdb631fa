"""Lists of values, and the first few: cells are lists in order, which merge by order.

A list is kept in the order that the call asks for, then by the time of records and by value, so
that it is the same however records are read. It has a limit, and ends there: with a note, unless
it was asked for no more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from muntin.kernel.canonical import canonical_type, is_respelled
from muntin.kernel.expander import Call, Expander, PartOf, both, compared, filtered, values
from muntin.kernel.types import stored
from muntin.model.records import POSITION
from muntin.model.shapes import Merge

MOST_LISTED = 10_000  # values of one key, unless more are asked for
MOST_ASKED = 100_000
MOST_FIRST = 1_000  # that max(x, n) and the like may be asked for


def _fold(ordered: str, count: int) -> str:
    return f"{ordered}(flatten(list({{c}}) FILTER (WHERE {{c}} IS NOT NULL){{over}}))[:{count}]"


def first_few(merge: Merge) -> Callable[[Expander, Call], str]:
    """`max(x, n)`: the n largest values, or smallest, in order."""

    def expand(to: Expander, call: Call) -> str:
        x, count = call.args
        if is_respelled(to.type_of(x)):
            by_itself = Call(call.name, (x, x, count), where=call.where)
            return few_at_extremes(merge)(to, by_itself)
        cell = _few(to, merge, x, count, stored(to.type_of(x)), call.where)
        return to.finish(cell)

    return expand


def few_at_extremes(merge: Merge) -> Callable[[Expander, Call], str]:
    """`arg_max(x, y, n)`: the values where another is largest; ties go by the value itself."""

    def expand(to: Expander, call: Call) -> str:
        x, y, count = call.args
        known = both(f"{y} IS NOT NULL", f"{x} IS NOT NULL", call.where)
        order, by = to.type_of(y), compared(to, y)
        by_type = canonical_type(order) if is_respelled(order) else stored(order)
        kind = f"STRUCT(t {by_type}, v {stored(to.type_of(x))})"
        value = f"{{'t': {by}, 'v': CAST({x} AS {stored(to.type_of(x))})}}"
        cell = _few(to, merge, value, count, kind, known)
        return to.finish(f"list_transform({cell}, lambda p: p.v)")

    return expand


def _few(to: Expander, merge: Merge, value: str, count: str, kind: str, where: str | None) -> str:
    ordered = "list_reverse_sort" if merge is Merge.MAX else "list_sort"
    sql = filtered(f"{merge}({value}, {count})", where)
    return to.folded(sql, f"{kind}[]", _fold(ordered, int(count)))


def _most(call: Call) -> int:
    return MOST_LISTED if call.limit is None else call.limit


def _listed(to: Expander, call: Call, where: str | None) -> str:
    """The first values of a key, in order."""
    x = call.args[0]
    order = [*call.order, (POSITION, "ASC NULLS LAST")]
    key = ", ".join(f"{compared(to, sql)}, '{direction}'" for sql, direction in order)
    sql = filtered(f"list({{'s': create_sort_key({key}), 'v': {x}}})", where)
    kind = f"STRUCT(s BLOB, v {stored(to.type_of(x))})[]"
    most = _most(call)
    cell = to.folded(f"list_sort({sql})[:{most}]", kind, _fold("list_sort", most))
    return f"list_transform({cell}, lambda p: p.v)"


def _limited(to: Expander, call: Call, sql: str, whole: str, part: PartOf | None) -> str:
    """A list; one that was cut without being asked to is told of."""
    if call.limit is not None:
        return to.finish(sql, part)
    return to.limited(sql, whole, MOST_LISTED, call.words or call.name, part)


def _count(to: Expander, where: str | None) -> str:
    return to.cell(filtered("count(*)", where), Merge.SUM)


def array_agg(to: Expander, call: Call) -> str:
    if call.distinct:
        part = values(to, call)
        return _limited(to, call, _distinct(call, part), "count(*)", part)
    return _limited(to, call, _listed(to, call, call.where), _count(to, call.where), None)


def string_agg(to: Expander, call: Call) -> str:
    x, separator = (*call.args, "','")[:2]
    of_values = replace(call, args=(x,))
    if call.distinct:
        part = values(to, of_values)
        joined = f"array_to_string({_distinct(call, part)}, {separator})"
        return _limited(to, call, joined, "count(*)", part)
    known = both(f"{x} IS NOT NULL", call.where)
    joined = f"array_to_string({_listed(to, of_values, known)}, {separator})"
    return _limited(to, call, joined, _count(to, known), None)


def _distinct(call: Call, part: PartOf) -> str:
    """The distinct values in order, of rows that hold one each."""
    down = any(direction.startswith("DESC") for _, direction in call.order)
    return f"list({part.shown} ORDER BY sub{' DESC' if down else ''})[:{_most(call)}]"


def approx_top_k(to: Expander, call: Call) -> str:
    """The values that come most often. They are counted, so that nothing is approximate."""
    x, count = call.args
    part = values(to, Call(call.name, (x,), where=call.where))
    often = to.cell("count(*)", Merge.SUM, part)
    return to.finish(f"list({part.shown} ORDER BY {often} DESC, sub)[:{count}]", part)
