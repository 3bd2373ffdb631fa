"""Records joined with tables: each beside the rows of a file that fit it."""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from muntin.kernel.engine import quote
from muntin.language.messages import nearest
from muntin.language.scope import Scope, Shown, View
from muntin.language.script import Script
from muntin.model.tables import Join, Table, Unnest


def joined(script: Script, view: View, node: exp.Expr, table: Table) -> View:
    """What a SELECT sees of records that are joined with a table."""
    words = [str(node.args.get(key) or "").upper() for key in ("method", "side", "kind")]
    if words not in (["", "", ""], ["", "", "INNER"], ["", "LEFT", ""], ["", "LEFT", "OUTER"]):
        said = " ".join(filter(None, words))
        message = f"records are joined with a table by JOIN or LEFT JOIN, not by {said} JOIN"
        raise script.error(message, node)
    if view.stream.agents and table.job is None:
        message = "agents do not have this table; join it with groups, in a SELECT around this one"
        raise script.error(message, node.this)
    join = Join(table, len(view.joins), "", left="LEFT" in words)
    view = _beside(view, join, node.this.alias_or_name)
    on, using = node.args.get("on"), node.args.get("using")
    if on is not None:
        scope = Scope(script, view.stream, view.stream.visible_columns(), view=view)
        told, uses = scope.condition(on, "ON"), frozenset(scope.used)
    elif using:
        pairs = [_equal(script, view, join, name) for name in using]
        told = " AND ".join(f"{left.sql} = {right}" for left, right in pairs)
        uses = frozenset(name for left, _ in pairs for name in left.uses)
    else:
        message = f"expected ON and a condition, or USING and columns, for table '{table.name}'"
        raise script.error(message, node)
    join = replace(join, on=told)
    return replace(view, joins=(*view.joins[:-1], join), uses=view.uses | uses)


def unnested(script: Script, view: View, node: exp.Expr) -> View:
    """What a SELECT sees of records beside the elements of a list that each has."""
    call, alias = node.this, node.this.args.get("alias")
    columns = alias.columns if alias is not None else []
    if len(call.expressions) != 1 or len(columns) != 1 or node.args.get("side"):
        message = (
            "expected one list, and a name for its elements: FROM …, unnest(list) AS t(element)"
        )
        raise script.error(message, node)
    scope = Scope(script, view.stream, view.stream.visible_columns(), view=view)
    sql, kind = scope.bound(call.expressions[0])
    if not kind.endswith("]"):
        raise script.error(f"unnest takes a list; this is of type {kind}", call.expressions[0])
    name = columns[0].name
    join = Unnest(sql, len(view.joins), kind[: kind.rindex("[")], name)
    shown = Shown(quote(join.column), join.type, frozenset())
    return replace(
        view,
        columns={name: shown, **view.columns, join.column: shown},
        joins=(*view.joins, join),
        beside={**view.beside, alias.name: {name.lower(): join.column}},
        uses=view.uses | frozenset(scope.used),
    )


def _beside(view: View, join: Join, called: str) -> View:
    """The view with the columns of a table; where a record has one of the name, that is meant."""
    names = {column.name: join.column(column.name) for column in join.table.columns}
    kinds = {column.name: column.type for column in join.table.columns}
    shown = {name: Shown(quote(own), kinds[name], frozenset()) for name, own in names.items()}
    taken = {name.lower() for name in view.columns}
    more = {name: each for name, each in shown.items() if name.lower() not in taken}
    more |= {names[name]: each for name, each in shown.items()}
    beside = {**view.beside, called: {name.lower(): own for name, own in names.items()}}
    columns = {**view.columns, **more}
    return replace(view, columns=columns, joins=(*view.joins, join), beside=beside)


def _equal(script: Script, view: View, join: Join, node: exp.Expr) -> tuple[Shown, str]:
    """The two columns that USING compares."""
    theirs = {c.name.lower(): c.name for c in join.table.columns}
    ours = {name.lower(): name for name in view.columns if name.lower() not in theirs}
    ours |= {name.lower(): name for name, shown in view.columns.items() if shown.uses}
    name = node.name.lower()
    if name not in theirs or name not in ours:
        where, known = (join.table.name, theirs) if name not in theirs else ("the records", ours)
        hint = nearest(node.name, [n for n in known.values() if not n.startswith("__")], "")
        raise script.error(f"there is no column '{node.name}' in {where}; {hint}", node)
    return view.columns[ours[name]], quote(join.column(theirs[name]))
