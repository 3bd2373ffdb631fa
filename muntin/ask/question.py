"""A question as it is written, and what it needs: rows of which jobs, merged in which way.

A SELECT over one job that groups or aggregates is answered from cells: its filter and its groups
are over the job's keys, its aggregates are those of the job, and they are merged for exactly these
groups. So every group is one row when the user's own text runs over it, with its filter done and
its aggregates in the place of calls. All else of SQL is DuckDB's: HAVING, ORDER BY, OVER, CTEs,
subqueries. A SELECT that does not aggregate, or that joins, sees the rows of the job as a window
over the range would have them.

Of a stream whose records are kept, every SELECT sees the records, and all of SQL is DuckDB's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches

from sqlglot import exp

from muntin.ask.columns import Column, Columns, refuse_groups, refuse_previous
from muntin.ask.ranges import Asked, Ranges, taken_apart
from muntin.errors import LanguageError
from muntin.kernel.engine import quote
from muntin.language.calls import is_aggregate, is_query, is_windowed
from muntin.language.dialect import Muntin
from muntin.language.script import Script, span, tokens
from muntin.model.jobs import Job, Output

_TABLE_FUNCTIONS = ("unnest", "range", "generate_series")
_OF_NOBODY = (
    "this is the range of no job or stream: it stands behind the name of one in FROM, or behind "
    "the clauses of that SELECT, and there is one for each"
)
_COMPARED = (exp.EQ, exp.In)
_CONSTANT = (
    exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.In, exp.Between, exp.Is, exp.Like,
    exp.And, exp.Or, exp.Not, exp.Paren, exp.Neg, exp.Column, exp.Identifier, exp.Literal,
    exp.Boolean, exp.Null,
)  # fmt: skip


@dataclass(frozen=True)
class Wanted:
    """Rows of one job that a question needs, and the relation of its text that they are."""

    relation: str
    title: str
    called: str  # what the question calls them
    asked: Asked | None
    where: tuple[str, ...] = ()  # conditions over keys, as `p0.k0`
    groups: tuple[str, ...] | None = None  # over keys; None: every row of the job
    columns: tuple[Output, ...] = ()  # of groups: the aggregates that are asked for
    keys: frozenset[str | int] | None = None  # values of the first key, where no others count
    places: tuple[tuple[str, tuple[int, int]], ...] = ()  # where conditions and groups are written
    records: frozenset[str] | None = None  # of a stream: the columns that the question may name


@dataclass(frozen=True)
class Question:
    """The statement to run, and the rows that it runs over."""

    text: str
    sql: str
    wanted: tuple[Wanted, ...]
    edits: tuple[tuple[tuple[int, int], str], ...] = ()  # what the statement has for words of it

    def place(self, start: int, end: int) -> tuple[int, int]:
        """Where in the text that is which the statement has between two places."""
        return self._written(start, 0), max(self._written(end, 1), self._written(start, 0) + 1)

    def _written(self, at: int, side: int) -> int:
        """A place of the statement in the text; within an edit, the start or the end of it."""
        moved = 0  # by how much the statement is ahead
        for place, other in self.edits:
            first, last = place[0] + moved, place[0] + moved + len(other)
            if at < first + side:
                break
            if at < last + side:
                return place[side]
            moved = last - place[1]
        return min(max(0, at - moved), len(self.text))


Known = Callable[[str, Asked | None], Job]
"""A job by its title, as it was in a range; raises an InputError if nothing is there of it."""


def question_of(text: str, known: Known, titles: Sequence[str]) -> Question:
    """What a text asks for; a LanguageError where it cannot be answered."""
    whole = text.strip().rstrip(";").rstrip()
    ranges = taken_apart(whole)
    script = Script(ranges.text, query=True)
    queries = [s for s in script.statements if is_query(s)]
    if len(script.statements) != 1 or len(queries) != 1:
        raise LanguageError("expected one SELECT", whole, 0)
    return _Reader(whole, script, ranges, known, titles, queries[0]).read()


@dataclass
class _Table:
    node: exp.Table
    called: str
    title: str
    columns: Columns
    asked: Asked | None


@dataclass
class _Reader:
    text: str
    script: Script
    ranges: Ranges
    known: Known
    titles: Sequence[str]
    query: exp.Expr
    edits: dict[tuple[int, int], str] = field(default_factory=dict)
    wanted: list[Wanted] = field(default_factory=list)
    taken: set[tuple[int, int]] = field(default_factory=set)  # the places of ranges

    def read(self) -> Question:
        query = self.query
        own = {cte.alias.lower() for cte in query.find_all(exp.CTE)}
        for node in query.find_all(exp.Table):
            self._check_table(node, own)
        for select in query.find_all(exp.Select):
            self._select(select, own)
        if not self.wanted:
            jobs = ", ".join(self.titles) or "none yet"
            message = f"expected FROM and a job or a stream that is retained: {jobs}"
            raise self._error(message, query)
        for asked in self.ranges.every:
            if asked.place not in self.taken:
                raise LanguageError(_OF_NOBODY, self.text, *asked.place)
        text, edits, at = list[str](), list[tuple[tuple[int, int], str]](), 0
        for (start, end), other in sorted(self.edits.items()):
            if start >= at:  # what is inside of another was exchanged with it
                text += [self.ranges.text[at:start], other]
                edits.append(((start, end), other))
                at = end
        sql = "".join([*text, self.ranges.text[at:]])
        return Question(self.text, sql, tuple(self.wanted), tuple(edits))

    def _check_table(self, node: exp.Table, own: set[str]) -> None:
        if isinstance(node.this, exp.Anonymous):
            if node.this.name.lower() not in _TABLE_FUNCTIONS:
                raise self._error(
                    f"{node.this.name} cannot be asked; only jobs and streams can", node.this
                )
        elif not node.args.get("db") and node.name.lower() in own:
            return
        elif node.args.get("db"):
            raise self._error("expected the name of a job, without a schema", node)

    def _select(self, select: exp.Select, own: set[str]) -> None:
        tables = [t for node in _tables_of(select) if (t := self._table(node, own)) is not None]
        if not tables:
            return
        alone = len(tables) == 1 and not select.args.get("joins")
        streams = [table for table in tables if table.columns.job.is_keeper]
        for table in streams:
            self._records(table, select if alone else None)
        for item in select.expressions if streams else ():
            if _called(item) == "count" and self.script.words(item).endswith("(*)"):
                self._rename(item)
        tables = [table for table in tables if not table.columns.job.is_keeper]
        parts = [*select.expressions, *_clauses(select)]
        found = [node for part in parts for node in _aggregates(part)]
        grouped = select.args.get("group") is not None or bool(found)
        if grouped and alone and tables:
            why = refuse_groups(tables[0].columns.job)
            if why is not None:
                raise self._error(f"job '{tables[0].title}': {why}", found[0] if found else select)
            _Grouped(self, select, tables[0]).read()
            return
        if grouped:
            self._check_joined(found, tables)
        for table in tables:
            self._whole(table, select if alone else None)

    def _rename(self, item: exp.Expr) -> None:
        """Has an item be called as it is written."""
        place, words = span(item), self.script.words(item)
        if place is not None:
            self.edits[place] = f"{words} AS {quote(words)}"

    def _table(self, node: exp.Expr, own: set[str]) -> _Table | None:
        if not isinstance(node, exp.Table) or not isinstance(node.this, exp.Identifier):
            return None
        if node.name.lower() in own:
            return None
        title = next((t for t in self.titles if t.lower() == node.name.lower()), None)
        if title is None:
            close = get_close_matches(node.name, self.titles, n=1)
            hint = f"did you mean {close[0]}?" if close else (
                f"these can be asked: {', '.join(self.titles) or 'none'}; RETAIN behind the WINDOW "
                "of a job has its panes kept, and RETAIN … OF STREAM the records of a stream"
            )  # fmt: skip
            message = f"there is no job or stream '{node.name}' that is retained; {hint}"
            raise self._error(message, node)
        start, end = self._name(node)
        alias = node.args.get("alias")
        ends = [end] if alias is None or alias.this is None else [end, _end(alias.this)]
        asked = self.ranges.of(start, *ends)
        self.taken |= {each.place for each in self.ranges.behind(start, *ends)}
        columns = Columns(self.known(title, asked))
        return _Table(node, node.alias or node.name, title, columns, asked)

    def _name(self, node: exp.Table) -> tuple[int, int]:
        return int(node.this.meta["start"]), int(node.this.meta["end"]) + 1

    def relation(self, table: _Table) -> str:
        """The name of the rows of a job in the statement, in the place of the job's."""
        name = f"__past{len(self.wanted)}"
        alias = "" if table.node.alias else f" AS {quote(table.node.name)}"
        self.edits[self._name(table.node)] = f"{name}{alias}"
        return name

    def _whole(self, table: _Table, select: exp.Select | None) -> None:
        """All rows of a job; conditions on its keys are looked at before they are merged."""
        why = refuse_previous(table.columns.job)
        if why is not None:
            raise self._error(f"job '{table.title}': {why}", table.node)
        where: tuple[str, ...] = ()
        keys, places = None, tuple[tuple[str, tuple[int, int]], ...]()
        condition = select.args.get("where") if select is not None else None
        if condition is not None and table.columns.job.around is None:
            early = [c for c in _conditions(condition.this) if self.of_keys(c, table)]
            where = tuple(self.over_keys(each, table) for each in early)
            places = tuple(zip(where, map(self.place, early), strict=True))
            keys = self.first_keys(early, table)
        self.wanted.append(
            Wanted(
                self.relation(table),
                table.title,
                table.called,
                table.asked,
                where,
                keys=keys,
                places=places,
            )
        )

    def _records(self, table: _Table, select: exp.Select | None) -> None:
        """The records of a stream; those that plain conditions leave out are not looked at."""
        condition = select.args.get("where") if select is not None else None
        plain = [] if condition is None else [
            each for each in _conditions(condition.this)
            if _is_plain(each) and self.of_keys(each, table)
        ]  # fmt: skip
        where = tuple(self.over_keys(each, table) for each in plain)
        named = frozenset(column.name for column in table.columns.every)
        if not _takes_all(self.query, {table.called.lower(), table.title.lower()}):
            words = {token.text.lower() for token in Muntin().tokenize(self.ranges.text)}
            named = frozenset(name for name in named if name.lower() in words)
        keys = self.first_keys(plain, table)
        self.wanted.append(
            Wanted(self.relation(table), table.title, table.called, table.asked, where, keys=keys,
                   records=named)
        )  # fmt: skip

    def _check_joined(self, found: Sequence[exp.Expr], tables: Sequence[_Table]) -> None:
        """Aggregates over several jobs are over rows: these have to be aggregates that may be."""
        for node in found:
            for column in node.find_all(exp.Column):
                for table in tables:
                    mine = table.columns.named(column.name)
                    if mine is None or mine.is_key or column.table not in ("", table.called):
                        continue
                    if mine.again != _called(node):
                        raise self._error(
                            f"{column.name} of job '{table.title}' is merged from panes, and not "
                            "from rows that are joined; aggregate it in a subquery: JOIN (SELECT "
                            f"… FROM {table.title} GROUP BY …)",
                            node,
                        )

    def column(self, node: exp.Expr, table: _Table) -> Column | None:
        """The column of a job that a node names."""
        if not isinstance(node, exp.Column) or node.table.lower() not in ("", table.called.lower()):
            return None
        return table.columns.named(node.name)

    def of_keys(self, node: exp.Expr, table: _Table) -> bool:
        """Whether an expression is made of the job's keys alone."""
        if any(is_query(inner) for inner in node.walk()):
            return False
        columns = [self.column(each, table) for each in node.find_all(exp.Column)]
        calls = any(is_aggregate(inner) for inner in node.walk())
        return not calls and all(column is not None and column.is_key for column in columns)

    def over_keys(self, node: exp.Expr, table: _Table) -> str:
        """An expression of keys in SQL over panes."""

        def key(inner: exp.Expr) -> str | None:
            column = self.column(inner, table)
            return None if column is None else f"({column.output.sql})"

        return self.script.words(node, key)

    def first_keys(
        self, conditions: Sequence[exp.Expr], table: _Table
    ) -> frozenset[str | int] | None:
        """The values that the first key may have, if conditions name them one by one."""
        for each in conditions:
            column = self.column(each.this, table) if isinstance(each, _COMPARED) else None
            if column is None or column.output.sql != "p0.k0":
                continue
            values = [each.expression] if isinstance(each, exp.EQ) else each.expressions
            if values and all(isinstance(v, exp.Literal) for v in values):
                plain = [v.name if v.is_string else int(v.name) for v in values
                         if v.is_string or v.name.isdigit()]  # fmt: skip
                if len(plain) == len(values):
                    return frozenset(plain)
        return None

    def refuse(self, node: exp.Expr, table: _Table, what: str) -> LanguageError:
        return self._error(
            f"{what}; the panes of job '{table.title}' hold {table.columns.told}", node
        )

    def _error(self, message: str, node: exp.Expr) -> LanguageError:
        return LanguageError(message, self.text, *self.place(node))

    def place(self, node: exp.Expr) -> tuple[int, int]:
        return span(node) or (0, len(self.text))


class _Grouped:
    """A SELECT that aggregates the panes of one job."""

    def __init__(self, reader: _Reader, select: exp.Select, table: _Table) -> None:
        self._reader = reader
        self._select = select
        self._table = table
        self._groups: dict[tuple[str, ...], str] = {}  # SQL over keys, by what tells it apart
        self._outputs: dict[str, Output] = {}
        self._places: list[tuple[str, tuple[int, int]]] = []
        self._aliases = {
            item.alias.lower(): item.this
            for item in select.expressions
            if isinstance(item, exp.Alias)
        }

    def read(self) -> None:
        reader, table, select = self._reader, self._table, self._select
        where, conditions = select.args.get("where"), list[exp.Expr]()
        if where is not None:
            conditions = list(_conditions(where.this))
            for each in conditions:
                self._check_condition(each)
            place = span(where.this)
            if place is not None:
                reader.edits[place] = "true"
        sql = tuple(reader.over_keys(each, table) for each in conditions)
        self._places += zip(sql, map(reader.place, conditions), strict=True)
        keys = reader.first_keys(conditions, table)
        for node in self._group_nodes():
            self._group(node)
        relation = reader.relation(table)
        for item in select.expressions:
            self._item(item)
        for clause in _clauses(select):
            self._swap(clause)
        group = select.args.get("group")
        for node in group.expressions if group is not None else ():
            self._swap(node)
        outputs = tuple(self._outputs.values())
        groups = tuple(self._groups.values())
        reader.wanted.append(
            Wanted(
                relation,
                table.title,
                table.called,
                table.asked,
                sql,
                groups,
                outputs,
                keys,
                tuple(self._places),
            )
        )

    def _check_condition(self, node: exp.Expr) -> None:
        if self._reader.of_keys(node, self._table):
            return
        for column in node.find_all(exp.Column):
            mine = self._reader.column(column, self._table)
            if mine is None or not mine.is_key:
                what = f"WHERE can ask for keys only, and '{column.name}' is none"
                hint = "; HAVING asks for aggregates" if mine is not None else ""
                raise self._reader.refuse(column, self._table, what + hint)
        raise self._reader.refuse(node, self._table, "WHERE can ask for keys only")

    def _group_nodes(self) -> Iterator[exp.Expr]:
        """What is grouped by, in the user's words: numbers and names stand for items."""
        group, items = self._select.args.get("group"), self._select.expressions
        if group is None:
            return
        if group.args.get("all") or any(n.name.upper() == "ALL" for n in group.expressions):
            yield from (_bare(i) for i in items if not self._aggregates(_bare(i)))
            return
        others = [key for key in ("grouping_sets", "cube", "rollup") if group.args.get(key)]
        if others:
            raise self._reader.refuse(group, self._table, "groups in several ways are not asked")
        for node in group.expressions:
            if isinstance(node, exp.Literal) and node.name.isdigit():
                number = int(node.name)
                if not 1 <= number <= len(items):
                    message = f"there is no item {number} to group by"
                    raise self._reader.refuse(node, self._table, message)
                yield _bare(items[number - 1])
            elif (
                isinstance(node, exp.Column)
                and self._reader.column(node, self._table) is None
                and node.name.lower() in self._aliases
            ):
                yield self._aliases[node.name.lower()]
            else:
                yield node

    def _aggregates(self, node: exp.Expr) -> bool:
        """Whether a node is an aggregate, or names one."""
        if next(_aggregates(node), None) is not None:
            return True
        columns = (self._reader.column(each, self._table) for each in node.find_all(exp.Column))
        return any(column is not None and not column.is_key for column in columns)

    def _group(self, node: exp.Expr) -> None:
        if not self._reader.of_keys(node, self._table):
            words = self._reader.script.words(node)
            what = f"GROUP BY can have keys only, and {words} is not made of them"
            raise self._reader.refuse(node, self._table, what)
        sql = self._reader.over_keys(node, self._table)
        self._groups.setdefault(tokens(sql), sql)
        self._places.append((sql, self._reader.place(node)))

    def _item(self, item: exp.Expr) -> None:
        """An item of the list; one without a name keeps that which it would have."""
        node = _bare(item)
        if isinstance(node, exp.Star) or (isinstance(node, exp.Column) and node.name == "*"):
            raise self._reader.refuse(node, self._table, "* cannot be grouped")
        self._swap(node)
        place = span(node)
        if node is item and place is not None:
            start, end = place
            name = node.name if isinstance(node, exp.Column) else self._reader.script.words(node)
            edits = self._reader.edits
            inside = {p: t for p, t in edits.items() if start <= p[0] and p[1] <= end}
            text, at = "", start
            for (a, b), other in sorted(inside.items()):
                if a >= at:
                    text += self._reader.ranges.text[at:a] + other
                    at = b
            text += self._reader.ranges.text[at:end]
            for each in inside:
                del edits[each]
            edits[place] = f"{text} AS {quote(name)}"

    def _swap(self, node: exp.Expr) -> None:
        """Exchanges groups and aggregates in a part of the SELECT."""
        place = span(node)
        if is_query(node):
            return
        if place is not None and self._reader.of_keys(node, self._table):
            sql = tokens(self._reader.over_keys(node, self._table))
            if sql in self._groups:
                self._reader.edits[place] = f"__g{list(self._groups).index(sql)}"
                return
        if is_aggregate(node) and not is_windowed(node) and place is not None:
            self._reader.edits[place] = self._aggregate(node)
            return
        if isinstance(node, exp.Column):
            self._column(node)
            return
        for child in node.iter_expressions():
            self._swap(child)

    def _column(self, node: exp.Column) -> None:
        column, place = self._reader.column(node, self._table), span(node)
        if column is None:
            if node.name.lower() in self._aliases:
                return
            raise self._reader.refuse(node, self._table, f"there is no '{node.name}'")
        if column.is_key:
            what = f"{node.name} is neither grouped by nor aggregated"
            raise self._reader.refuse(node, self._table, what)
        if place is not None:
            self._reader.edits[place] = self._merged(column, node)

    def _aggregate(self, node: exp.Expr) -> str:
        """What stands in the place of an aggregate: that of the job which is the same."""
        columns, words = self._table.columns, self._reader.script.words(node)
        own = columns.made_as(words)
        if own is not None:
            return self._merged(own, node)
        if tokens(words) in (tokens("count(*)"), tokens("count()")):
            _, records = columns.records
            return self._merged(records, node)
        inside = list(node.find_all(exp.Column))
        named = self._reader.column(inside[0], self._table) if len(inside) == 1 else None
        plain = isinstance(node, exp.Anonymous) and node.expressions == inside
        if named is not None and plain and named.again == _called(node):
            return self._merged(named, node)
        if named is not None and plain and not named.is_key:
            hint = f"its panes merge to {named.name}, as it is, without {_called(node)}"
            what = f"{words} is not what panes can tell: {hint}"
            raise self._reader.refuse(node, self._table, what)
        if inside and all((c := self._reader.column(i, self._table)) and c.is_key for i in inside):
            what = f"{words} is over keys: group by them in a subquery, and aggregate around it"
            raise self._reader.refuse(node, self._table, what)
        raise self._reader.refuse(node, self._table, f"panes do not hold {words}")

    def _merged(self, column: Column, node: exp.Expr) -> str:
        if column.has_keys:
            what = f"{column.name} is made with keys, and so it is of its own groups only"
            raise self._reader.refuse(node, self._table, what)
        name = f"__a{len(self._outputs)}"
        for known, output in self._outputs.items():
            if output.sql == column.output.sql:
                name = known
        self._outputs[name] = Output(name, column.output.sql, column.output.type)
        value = f"any_value({name})"
        counts = self._select.args.get("group") is None and column.words.lower().startswith("count")
        return f"coalesce({value}, 0)" if counts else value


def _bare(item: exp.Expr) -> exp.Expr:
    return item.this if isinstance(item, exp.Alias) else item


def _called(node: exp.Expr) -> str:
    return node.name.lower() if isinstance(node, exp.Anonymous) else ""


def _clauses(select: exp.Select) -> Iterator[exp.Expr]:
    """What follows groups, and may name aggregates."""
    for key in ("having", "qualify", "order"):
        if select.args.get(key) is not None:
            yield select.args[key]


def _aggregates(node: exp.Expr) -> Iterator[exp.Expr]:
    """The calls of aggregates that are this SELECT's own."""
    if is_query(node):
        return
    if is_aggregate(node) and not is_windowed(node):
        yield node
        return
    for child in node.iter_expressions():
        yield from _aggregates(child)


def _conditions(node: exp.Expr) -> Iterator[exp.Expr]:
    """What has to hold of a condition, one by one."""
    if isinstance(node, exp.And):
        yield from _conditions(node.left)
        yield from _conditions(node.right)
    elif isinstance(node, exp.Paren) and isinstance(node.this, exp.And):
        yield from _conditions(node.this)
    else:
        yield node


def _is_plain(condition: exp.Expr) -> bool:
    """Whether a condition is of columns and constants alone: the same, whenever it is asked."""
    return all(isinstance(node, _CONSTANT) for node in condition.walk())


def _takes_all(query: exp.Expr, called: set[str]) -> bool:
    """Whether a question may be about columns that it does not name."""
    if query.find(exp.Pivot, exp.PositionalColumn) is not None:
        return True
    if any(not isinstance(star.parent, exp.Anonymous) or star.parent.name.lower() == "columns"
           for star in query.find_all(exp.Star)):  # fmt: skip
        return True
    if any(call.name.lower() == "columns" for call in query.find_all(exp.Anonymous)):
        return True
    if any(join.args.get("method") == "NATURAL" for join in query.find_all(exp.Join)):
        return True
    if any(each.columns and isinstance(each.parent, exp.Table)
           for each in query.find_all(exp.TableAlias)):  # fmt: skip
        return True
    return any(column.name.lower() in called for column in query.find_all(exp.Column))


def _end(name: exp.Expr) -> int:
    """Where a name ends, if it is one of the text."""
    return int(name.meta.get("end", -2)) + 1


def _tables_of(select: exp.Select) -> Iterator[exp.Expr]:
    """The tables right in FROM and JOIN."""
    from_ = select.args.get("from_")
    sources = [] if from_ is None else [from_.this]
    sources += [join.this for join in select.args.get("joins") or ()]
    yield from sources
