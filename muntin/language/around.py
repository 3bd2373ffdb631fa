"""A query split in two: cores that can be merged, and the rest as one statement over their rows.

What runs over the rows is the user's own text. In each core keys and aggregates are exchanged for
columns of its rows, WHERE and GROUP BY are gone, and HAVING is a WHERE over these rows. Cores with
another filter or other keys count each record once more, in keys of their own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import duckdb
from sqlglot import exp

from muntin.kernel.aggregates import expand
from muntin.kernel.around import BOUNDS, PREVIOUS, RECORDS, ROWS
from muntin.kernel.canonical import restored_sql, without_collation
from muntin.kernel.engine import describe, quote, with_sql
from muntin.kernel.expander import Call, Expander
from muntin.kernel.types import stored
from muntin.language.calls import PYTHON, call_of, is_aggregate, is_query, is_windowed
from muntin.language.cores import Core, Found
from muntin.language.grouped import Groups, key_of
from muntin.language.latest import latest_name
from muntin.language.messages import reason
from muntin.language.over import Over
from muntin.language.queries import (
    RESERVED,
    Query,
    Sets,
    check_compute,
    check_functions,
    empty_sql,
    expander_of,
    is_all_core,
    result_type,
    shape_of,
    usual_name,
)
from muntin.language.scope import WINDOW_COLUMNS
from muntin.language.script import Script
from muntin.language.settling import UNKNOWN, UnsettledError, settled
from muntin.model.jobs import Around, Job, Output
from muntin.model.records import COPY, MEMBER, SET
from muntin.model.shapes import Key, KeySet

_Words = Callable[[exp.Expr], str]
_SEVERAL_COLUMNS = ("columns", "unnest")  # calls that one name is not enough for


def finished_job(script: Script, found: Found, name: str, query: exp.Expr, over: Over) -> Job:
    """The job that a query defines in which SQL may stand around the core."""
    check_functions(script, query)
    first = found.cores[0]
    if first.select is query and is_all_core(query):
        return Query(script, first.view, first.select, over).job(name)
    if over.gap is not None:
        message = (
            "a session is one key's own: its job is one SELECT with WHERE, GROUP BY and HAVING"
        )
        more = "what stands around that needs windows that keys share"
        raise script.error(f"{message}; {more}{over.hint}", query)
    return _Splitter(script, found, query, over).job(name)


class _Splitter:
    def __init__(self, script: Script, found: Found, query: exp.Expr, over: Over) -> None:
        self._script = script
        self._query = query
        self._over = over
        self._found = found
        self._stream = self._found.cores[0].view.stream
        self._texts = {id(view): "SELECT 1" for view in self._found.views}
        for table in self._found.previous:
            alias = "" if table.alias else " AS previous"  # as DuckDB calls what functions make
            self._texts[id(table.this)] = PREVIOUS + alias
        for table in self._found.latest:
            alias = "" if table.alias else " AS latest"
            self._texts[id(table.this)] = quote(latest_name(table)) + alias
        self._check_names()

    def job(self, name: str) -> Job:
        queries = [
            Query(self._script, core.view, core.select, self._over) for core in self._found.cores
        ]
        copies = _Copies(queries)
        expander = expander_of(queries[0].scope, self._over)
        cores = [
            _Rows(number, core, query, copies, expander, self._words)
            for number, (core, query) in enumerate(zip(self._found.cores, queries, strict=True))
        ]
        for core in reversed(cores):  # those in subqueries of others first
            self._texts |= core.texts()
        self._check_python()
        self._check_joins()
        columns = tuple(column for core in cores for column in core.columns())
        columns += copies.columns(expander)  # which may add to the parts
        shape = shape_of(
            self._found.cores[0].view,
            self._over,
            {*(n for q in queries for n in q.scope.used), *([MEMBER] if copies.members else [])},
            keys=copies.keys,
            parts=expander.parts(),
            where=copies.where,
            scalars=copies.scalars(expander),
            copies=len(copies),
            members=copies.members,
            sets=copies.sets,
        )
        outputs, sql = self._statement(cores)
        words = tuple((name, text) for core in cores for name, text in core.words.items())
        tables = tuple(self._found.tables.values())
        reads = tuple(
            (name, query.member)
            for core, query in zip(cores, queries, strict=True)
            for name in core.words
            if query.member is not None
        )
        around = Around(sql, columns, tables, words, reads)
        finishes = expander.finishes()
        job = Job(name, shape, self._over.windows, finishes, outputs, around=around)
        check_compute(self._script, self._query, self._stream, job)
        return job

    def _check_joins(self) -> None:
        """What is beside each record is the same for all cores."""
        first, *others = self._found.cores
        for core in others:
            if core.view.joins != first.view.joins:
                message = (
                    "the SELECTs of a job that read its records join them with the same tables; "
                    "join groups instead, in a SELECT around this one, or make it a job of its own"
                )
                raise self._script.error(message, core.select.args["from_"], core.select)

    def _words(self, node: exp.Expr) -> str:
        """The text of a node, with what is exchanged in cores."""
        return self._script.words(node, self._swap)

    def _swap(self, node: exp.Expr) -> str | None:
        if id(node) in self._texts:
            return self._texts[id(node)]
        if isinstance(node, exp.Column) and node.name.lower() in WINDOW_COLUMNS:
            shown = isinstance(node.parent, exp.Select)
            return f"{bound_sql(node)} AS {node.name}" if shown else bound_sql(node)
        return None

    def _statement(self, cores: Sequence[_Rows]) -> tuple[tuple[Output, ...], str]:
        """The columns of results, and the statement that makes them."""
        relations = ", ".join(core.relation_sql() for core in cores)
        self._name_items()
        described = self._settled(relations, cores)
        self._order(len(described))
        outputs = tuple(
            Output(name, "", result_type(kind))
            for name, kind in described
            if name.lower() not in WINDOW_COLUMNS
        )
        if not outputs:
            message = "every result has these columns; expected one more, for example count(*)"
            raise self._script.error(message, self._query)
        casts = ", ".join(f"CAST({quote(o.name)} AS {o.type}) AS {quote(o.name)}" for o in outputs)
        return outputs, f"WITH {relations}\nSELECT {casts}\nFROM (\n{self._words(self._query)}\n)"

    def _settled(self, relations: str, cores: Sequence[_Rows]) -> list[tuple[str, str]]:
        """Names and types of the columns that the statement has, perhaps while reading them."""
        if not self._found.previous:
            return self._described(relations, cores)

        def described(types: Mapping[str, str]) -> list[tuple[str, str]]:
            columns = ", ".join(f"NULL::{kind} AS {quote(name)}" for name, kind in types.items())
            columns = columns.replace(f"NULL::{UNKNOWN} ", "NULL ")
            return self._described(f"{PREVIOUS} AS (SELECT {columns} LIMIT 0), {relations}", cores)

        def look(types: Mapping[str, str]) -> dict[str, str]:
            named = described(types)
            return {n: result_type(kind) for n, kind in named if n.lower() not in WINDOW_COLUMNS}

        try:
            return described(settled(self._own_names(), look))
        except UnsettledError as error:
            message = (
                f"column '{error.column}' is {error.before} where PREVIOUS has it, and {error.now} "
                f"then; say of which type it is: CAST(… AS {error.now}) AS {quote(error.column)}"
            )
            raise self._script.error(message, self._named(error.column), self._query) from error

    def _own_names(self) -> Iterator[str]:
        """What the columns of results are called, before anything is known of them."""
        first = self._query
        while isinstance(first, exp.SetOperation | exp.Subquery):
            first = first.this
        for item in first.expressions:
            shown = item.unalias()
            if isinstance(shown, exp.Star) or isinstance(shown.this, exp.Star):
                message = "PREVIOUS has the columns of this SELECT, so they need names instead of *"
                raise self._script.error(message, item, first)
            name = item.alias or usual_name(self._script, item)
            if name.lower() not in WINDOW_COLUMNS:
                yield name

    def _described(self, relations: str, cores: Sequence[_Rows]) -> list[tuple[str, str]]:
        """Names and types of the columns that the statement has."""
        kind = "TIMESTAMP WITH TIME ZONE" if self._over.axis.is_time else "BIGINT"
        bounds = f"NULL::{kind} AS window_start, NULL::{kind} AS window_end"
        window = f"{BOUNDS} AS (SELECT {bounds}, NULL::VARCHAR AS window_name)"
        columns = {o.name: o.type for core in cores for o in core.columns()}
        text = self._words(self._query)
        more = ", " if re.match(r"with\b", text, re.IGNORECASE) else " "
        sql = f"WITH {window}, {relations}{more}{re.sub('^(?i:with) ', '', text)}"
        for table in self._found.tables.values():
            sql = with_sql(f"{quote(table.name)} AS ({empty_sql(table)})", sql)
        try:
            described = describe(sql, columns | {COPY: "BIGINT"}, ROWS)
        except duckdb.Error as error:
            raise self._script.error(reason(error), *self._blamed(error), self._query) from error
        taken: set[str] = set()
        for name, _ in described:
            if name.lower() in RESERVED and name.lower() not in WINDOW_COLUMNS:
                message = f"every result has a column '{name}'; choose another name with AS"
                raise self._script.error(message, self._named(name), self._query)
            if name.lower() in taken:
                message = f"there are two columns named '{name}'; tell them apart with AS"
                raise self._script.error(message, self._query)
            taken.add(name.lower())
        return described

    def _blamed(self, error: duckdb.Error) -> Iterator[exp.Expr]:
        """The names in the query that DuckDB's message quotes."""
        said = str(error).partition("\n")[0]
        for column in self._query.find_all(exp.Column, exp.Table, exp.Anonymous):
            if column.name and f'"{column.name}"'.lower() in said.lower():
                yield column

    def _named(self, name: str) -> exp.Expr | None:
        aliases = self._query.find_all(exp.Alias, exp.Column)
        return next((node for node in aliases if node.alias_or_name.lower() == name.lower()), None)

    def _check_names(self) -> None:
        """Results have names of their own for the bounds of windows."""
        for node in self._query.find_all(exp.Alias):
            name = node.alias.lower()
            if name in WINDOW_COLUMNS and not (
                isinstance(node.this, exp.Column) and node.this.name.lower() == name
            ):
                message = f"every result has a column '{name}'; choose another name with AS"
                raise self._script.error(message, node)

    def _check_python(self) -> None:
        """Aggregates in Python are made of records, and so stand in cores only."""
        cores = {id(core.select) for core in self._found.cores}
        for call in self._query.find_all(exp.Anonymous):
            if PYTHON in call.meta and id(call.find_ancestor(exp.Select)) not in cores:
                message = f"{call.name} is made of records of the stream, but here are rows of them"
                raise self._script.error(message, call)

    def _name_items(self) -> None:
        """Columns of results are called by their words, where they have no name."""
        first = self._query
        while isinstance(first, exp.SetOperation | exp.Subquery):
            first = first.this
        if any(core.select is first for core in self._found.cores):
            return
        for item in first.expressions:
            several = isinstance(item, exp.Anonymous) and item.name.lower() in _SEVERAL_COLUMNS
            if not several and not isinstance(item, exp.Alias | exp.Column | exp.Star):
                name = quote(usual_name(self._script, item))
                self._texts[id(item)] = f"{self._words(item)} AS {name}"

    def _order(self, count: int) -> None:
        """Rows that ORDER BY leaves in any order are put in that of all columns."""
        every = ", ".join(str(number + 1) for number in range(count))
        order = self._query.args.get("order")
        cut = self._query.args.get("limit") or self._query.args.get("offset")
        if order is not None:
            whole = any(isinstance(each.this, exp.Var) for each in order.expressions)
            self._texts[id(order)] = f"{self._words(order)}{'' if whole else f', {every}'}"
        elif cut is not None:
            self._texts[id(cut)] = f"ORDER BY {every} {self._words(cut)}"
        else:
            self._texts[id(self._query)] = f"{self._words(self._query)} ORDER BY {every}"


def bound_sql(node: exp.Expr) -> str:
    """A bound of the window at hand, or its name."""
    return f"(SELECT {node.name.lower()} FROM {BOUNDS})"


class _Copies:
    """What the cores of a job group by. Those that agree in filter and keys are made of one."""

    def __init__(self, queries: Sequence[Query]) -> None:
        self._told: list[tuple[str | None, str | None, list[tuple[str, str]], Sets]] = []
        self._of: dict[int, int] = {}
        for query in queries:
            told = query.member, query.where(), *query.grouping()
            if told not in self._told:
                self._told.append(told)
            self._of[id(query)] = self._told.index(told)

    def __len__(self) -> int:
        return len(self._told)

    def of(self, query: Query) -> int:
        return self._of[id(query)]

    def keys_of(self, copy: int) -> list[tuple[str, str]]:
        return self._told[copy][2]

    def first_key(self, copy: int) -> int:
        """The number of a copy's first key; with several copies, key 0 tells which one it is."""
        before = sum(len(keys) for _, _, keys, _ in self._told[:copy])
        return before if len(self) == 1 else before + 1

    def sets_of(self, copy: int) -> Sets:
        """By which of its keys a copy is grouped, if by several sets of them."""
        return self._told[copy][3]

    @property
    def members(self) -> tuple[str, ...]:
        """Whose records each copy counts, if there are several streams."""
        return tuple(member for member, *_ in self._told if member is not None)

    @property
    def sets(self) -> tuple[KeySet, ...]:
        """All sets, if some core has several; a core without has all of its keys in one."""
        return tuple(KeySet(keys, copy) for copy, keys in self._sets())

    def first_set(self, copy: int) -> int:
        return next((n for n, (of, _) in enumerate(self._sets()) if of == copy), 0)

    def _sets(self) -> Iterator[tuple[int, tuple[int, ...]]]:
        if not any(sets for *_, sets in self._told):
            return
        for copy, (_, _, keys, sets) in enumerate(self._told):
            first = self.first_key(copy)
            for each in sets or (tuple(range(len(keys))),):
                yield copy, tuple(first + key for key in each)

    @property
    def keys(self) -> tuple[Key, ...]:
        keys = [] if len(self) == 1 else [Key(COPY, "BIGINT")]
        for copy, (_, _, of_copy, _) in enumerate(self._told):
            for key in (key_of(*each) for each in of_copy):
                mine = f"CASE WHEN {self.is_of(copy)} THEN {key.sql} END"
                keys.append(key if len(self) == 1 else replace(key, sql=mine))
        keys += [Key(SET, "BIGINT")] if self.sets else []
        return tuple(keys)

    @property
    def where(self) -> str | None:
        conditions = [where for _, where, _, _ in self._told]
        if len(self) == 1 or not any(conditions):
            return conditions[0]
        cases = (f"WHEN {copy} THEN {where or 'true'}" for copy, where in enumerate(conditions))
        return f"CASE {COPY} {' '.join(cases)} END"

    def is_of(self, copy: int) -> str:
        return f"{COPY} = {copy}"

    def scalars(self, expander: Expander) -> tuple[str, ...]:
        """All that is evaluated on every record; of several copies, that is not known of each."""
        keys = [sql for sql, _ in self._told[0][2]] if len(self) == 1 else []
        arguments = expander.arguments() if len(self) == 1 else ()
        return tuple(dict.fromkeys((*keys, *arguments)))

    def columns(self, expander: Expander) -> tuple[Output, ...]:
        """What rows have beside the columns that the query names."""
        name = expand(expander, Call("count"))
        count = next(f.column for f in expander.finishes() if f.name == name)
        copy = () if len(self) == 1 else (Output(COPY, "p0.k0", "BIGINT"),)
        return *copy, Output(RECORDS, count, "DOUBLE")


class _Rows(Groups):
    """The rows of one core, as the rest of the query names their columns."""

    def __init__(
        self,
        number: int,
        core: Core,
        query: Query,
        copies: _Copies,
        expander: Expander,
        words: _Words,
    ) -> None:
        self._number = number
        self._select = core.select
        self._copies = copies
        self._copy = copies.of(query)
        self._words_around = words
        self._keys = copies.keys_of(self._copy)
        self._named: dict[str, tuple[str, str]] = {}  # what a column is called, and its type
        self.words: dict[str, str] = {}  # what the user calls columns
        self._zeros: set[str] = set()  # columns that are zero where there are no records
        super().__init__(query.scope, self._keys, expander, copies.sets_of(self._copy))
        self._first_set = copies.first_set(self._copy)

    def columns(self) -> Iterator[Output]:
        """The columns of rows that the query uses, as they are kept."""
        for sql, (name, kind) in self._named.items():
            yield Output(name, sql, stored(kind))

    def relation_sql(self) -> str:
        """The relation that stands for the core, with columns of the types they would have."""
        columns = ", ".join(self._typed())
        where = f" WHERE {self._copies.is_of(self._copy)}" if len(self._copies) > 1 else ""
        return f"__core{self._number} AS (SELECT {columns or '1 AS __one'} FROM {ROWS}{where})"

    def _typed(self) -> Iterator[str]:
        """Without keys there is one row, also of a window that has no records for this core."""
        for name, kind in self._named.values():
            kind = without_collation(kind)
            value = f"CAST({name if self._keys else f'any_value({name})'} AS {kind})"
            yield f"{f'coalesce({value}, 0)' if name in self._zeros else value} AS {name}"

    def texts(self) -> dict[int, str]:
        """Other words for the clauses of the core's SELECT."""
        select, script = self._select, self._scope.script
        texts = {id(select.args["from_"]): f"FROM __core{self._number}"}
        gone = [
            select.args.get("where"),
            select.args.get("group"),
            *(select.args.get("joins") or ()),
        ]
        texts |= {id(clause): "" for clause in gone if clause is not None}
        having = select.args.get("having")
        if having is not None:
            texts[id(having)] = f"WHERE {self.sql(having.this)}"
        for index, item in enumerate(select.expressions):
            shown = item.unalias()
            if isinstance(shown, exp.Star) or isinstance(shown.this, exp.Star):
                message = "SELECT * is not possible over records; name keys and aggregates"
                raise script.error(message, item, select)
            text = self.sql(shown, index)
            name = "" if item.alias else f" AS {quote(usual_name(script, item))}"
            texts[id(shown)] = text + name
        qualify = select.args.get("qualify")
        if qualify is not None:
            texts[id(qualify.this)] = self.sql(qualify.this)
        distinct = select.args.get("distinct")
        if distinct and distinct.args.get("on"):
            texts[id(distinct.args["on"])] = self.sql(distinct.args["on"])
        order = select.args.get("order")
        for ordered in order.expressions if order is not None else ():
            named = self._scope.item_named(ordered.this) is not None
            if not named and not isinstance(ordered.this, exp.Literal | exp.Var):
                texts[id(ordered.this)] = self.sql(ordered.this)
        return texts

    def _group_sql(self, node: exp.Expr, before: int | None) -> str | None:
        if is_query(node):
            return self._words_around(node)
        if self._scope.is_bound(node):
            return bound_sql(node)
        if is_windowed(node):
            return None
        return super()._group_sql(node, before)

    def _key_sql(self, node: exp.Expr, before: int | None) -> str | None:
        for inner in node.walk():
            if is_query(inner) or isinstance(inner, exp.Window) or self._scope.is_bound(inner):
                return None
            if is_aggregate(inner):
                return None
        index = self._key_index(node, before)
        if index is None:
            return None
        kind = self._keys[index][1]
        column = f"p0.k{index + self._copies.first_key(self._copy)}"
        name = self._column(self._key_shown(index, column, node), kind, node)
        return restored_sql(name, kind) if kind != without_collation(kind) else name

    def _set_column(self) -> str:
        return self._column(f"p0.k{len(self._copies.keys) - 1}", "BIGINT", self._select)

    def _finished_sql(self, node: exp.Expr, before: int | None) -> str:
        call = call_of(node, self._scope, before)
        if call.code is None:
            sql = self._scope.sql(node, before)
            kind, zero = self._scope.type_of(sql), self._scope.is_zero_of_nothing(sql)
        else:
            kind, zero = call.code.returns, False
        finished = self._finish_of(self._mine(call), node)
        if self._expander.split:  # what is shared out among panes is no whole number
            ((_, kind),) = describe(f"SELECT {finished} AS x FROM groups", self._types(), "groups")
        name = self._column(finished, kind, node)
        self._zeros |= {name} if zero and not self._keys else set()
        return name

    def _mine(self, call: Call) -> Call:
        if len(self._copies) == 1:
            return call
        mine = self._copies.is_of(self._copy)
        return replace(call, where=f"{mine} AND ({call.where})" if call.where else mine)

    def _column(self, sql: str, kind: str, node: exp.Expr) -> str:
        name = f"__c{self._number}_{len(self._named)}"
        name, _ = self._named.setdefault(sql, (name, kind))
        self.words.setdefault(name, self._scope.script.words(node))
        return name
