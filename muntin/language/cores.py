"""Which SELECTs of a query are cores: those that make aggregates of a stream's records.

A SELECT over the stream that only filters and projects is a view of its records, for the SELECTs
around it. Whatever reads no records, reads rows of cores, and belongs to the finish.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from sqlglot import exp

from muntin.errors import LanguageError
from muntin.language.calls import is_aggregate, is_query, is_unnest, is_windowed
from muntin.language.composites import composed, view_of
from muntin.language.derived import stream_name
from muntin.language.joins import joined, unnested
from muntin.language.latest import is_latest, latest_name
from muntin.language.lookups import expression_of, looked_up, tables_read
from muntin.language.messages import nearest
from muntin.language.queries import usual_name
from muntin.language.scope import Scope, Shown, View
from muntin.language.script import Script, span
from muntin.language.sources import OF_JOB
from muntin.language.unjoined import Side, grouped_first
from muntin.model.streams import Stream
from muntin.model.tables import Table

_ROWS = None  # what is shown by a source that has no records of the stream
_Names = Mapping[str, View | None]  # what WITH has named so far
_MADE_IN_FROM = ("generate_series", "range", "unnest")
_OF_RECORDS = ("expressions", "from_", "where", "with_", "joins")
_EVERY_RECORD = "a job keeps no records"
_CLAUSES = {*_OF_RECORDS, "group", "having", "qualify", "order", "limit", "offset", "distinct",
            "laterals"}  # fmt: skip
_OF_THE_CATALOG = (exp.Describe, exp.Summarize, exp.Show, exp.Command)
_WHAT_TO_WRITE = "group them, as in SELECT key, count(*) … GROUP BY key"


def needs_finish(query: exp.Expr) -> bool:
    """Whether there is more to a query than one SELECT over a stream."""
    if not isinstance(query, exp.Select):
        return isinstance(query, exp.SetOperation | exp.Subquery)
    clauses = ("with_", "distinct", "qualify", "offset", "joins", "laterals")
    if any(query.args.get(clause) for clause in clauses) or joins_of(query):
        return True
    inner = (node for node in query.walk() if node is not query)
    return any(isinstance(n, exp.Window) or is_query(n) or is_unnest(n) for n in inner)


@dataclass(frozen=True)
class Core:
    """A SELECT that aggregates, and the records that it sees."""

    select: exp.Select
    view: View


@dataclass
class Found:
    """The cores of a query in the order of its text, and what WITH only names for them."""

    cores: list[Core] = field(default_factory=list)
    views: list[exp.Expr] = field(default_factory=list)
    tables: dict[str, Table] = field(default_factory=dict)  # that are joined with rows of cores
    previous: list[exp.Table] = field(default_factory=list)  # where the job looks back at itself
    latest: list[exp.Table] = field(default_factory=list)  # where it looks at results of others


def find_cores(
    script: Script,
    query: exp.Expr,
    job: str,
    streams: Mapping[str, Stream],
    tables: Mapping[str, Table] = MappingProxyType({}),
) -> Found:
    """The cores of a job's query; refuses one that needs every record of a window."""
    finder = _Finder(script, job, streams, tables)
    view = finder.query(query, {})
    finder.check_all_seen(query)
    if view is not None:
        message = f"{_EVERY_RECORD}, and answers with aggregates: {_WHAT_TO_WRITE}"
        raise script.error(message, query)
    if not finder.found.cores:
        raise script.error("expected FROM and the name of a stream", query)
    read = {core.view.stream.name: core for core in finder.found.cores}
    if len(read) == 1:
        return finder.found
    _check_together(script, list(read.values()))
    whole = composed([core.view.stream for core in read.values()])
    together = _Finder(script, job, streams, tables, whole)
    together.query(query, {})
    return together.found


def _check_together(script: Script, cores: Sequence[Core]) -> None:
    """Refuses streams that one job cannot read."""
    first = cores[0].view.stream
    for core in cores:
        stream, place = core.view.stream, core.select.args["from_"]
        if stream.agents:
            message = (
                f"stream '{stream.name}' comes from agents, which count each stream by itself; a "
                "job that joins streams reads their files: name these after FROM"
            )
            raise script.error(message, place, core.select)
        if stream.spans != first.spans:
            spans = (
                f"'{s.name}' counts records by {s.spans or 'moments'}" for s in (first, stream)
            )
            message = "streams that are joined agree in what spans of records mean"
            raise script.error(f"{message}; {', '.join(spans)}", place, core.select)


class _Finder:
    def __init__(
        self,
        script: Script,
        job: str,
        streams: Mapping[str, Stream],
        tables: Mapping[str, Table],
        whole: Stream | None = None,
    ) -> None:
        """Streams are read as members of the `whole`, if there is one."""
        self._script = script
        self._job = job
        self._whole = whole
        self._streams = {name.lower(): stream for name, stream in streams.items()}
        self._tables = {name.lower(): table for name, table in tables.items()}
        self._seen: set[int] = set()
        self._looked: set[int] = set()  # subqueries that are looked up for each record
        self.found = Found()

    def check_all_seen(self, query: exp.Expr) -> None:
        """Nothing is read that was not looked at, wherever it stands."""
        for node in query.walk():
            unseen = isinstance(node, exp.Table) and id(node) not in self._seen
            if unseen or isinstance(node, _OF_THE_CATALOG):
                message = "this cannot be read here; a job reads its stream and declared tables"
                raise self._script.error(message, node, node.parent, query)
            if isinstance(node, exp.TableSample):
                message = (
                    "a sample is another one each time; WHERE hash(x) % 100 < 10 keeps a tenth"
                )
                raise self._script.error(message, node, query)
            other = node.args.keys() - _CLAUSES if isinstance(node, exp.Select) else ()
            clause = next((each for each in sorted(other) if node.args.get(each)), None)
            if clause is not None:
                words = clause.strip("_").upper()
                raise self._script.error(f"{words} is not possible in a job", node, query)

    def query(self, node: exp.Expr, names: _Names) -> View | None:
        """What a query shows of each record, or nothing if its rows are made of many."""
        names = self._with(node, names)
        if isinstance(node, exp.Subquery):
            view = self.query(node.this, names)
            more = node.args.keys() - {"this", "alias", "with_"}
            clause = next((each for each in sorted(more) if node.args.get(each)), None)
            if view is not None and clause is not None:
                raise self._needs_all(node, clause)
            return view
        if isinstance(node, exp.Select):
            return self._select(node, names)
        if isinstance(node, exp.SetOperation):
            for side in (node.this, node.expression):
                if self.query(side, names) is not None:
                    message = f"{_EVERY_RECORD}, so what is united must be aggregated"
                    raise self._script.error(f"{message}: {_WHAT_TO_WRITE}", side, node)
        return _ROWS

    def _with(self, node: exp.Expr, names: _Names) -> _Names:
        with_ = node.args.get("with_")
        if with_ is None:
            return names
        if with_.args.get("recursive"):
            message = "WITH RECURSIVE is not possible in a job: it may never end"
            raise self._script.error(message, with_)
        for cte in with_.expressions:
            view = self.query(cte.this, names)
            if view is not None:
                self.found.views.append(cte.this)
            names = {**names, cte.alias.lower(): self._renamed(view, cte)}
        return names

    def _select(self, select: exp.Select, names: _Names) -> View | None:
        first = select.args["from_"].this if select.args.get("from_") else None
        joins = joins_of(select)
        laterals = select.args.get("laterals") or ()
        sources = [*([first] if first is not None else []), *(j.this for j in joins), *laterals]
        views = [(source, self._source(source, names)) for source in sources]
        tables = {id(s): t for s in sources if (t := self._table(s, names)) is not None}
        of_records = next(((s, v) for s, v in views if v is not None), None)
        if of_records is None:
            self.found.tables |= {table.name: table for table in tables.values()}
            self._inside(select, names, "expressions", "where", "group", "having", "qualify",
                         "order", "joins")  # fmt: skip
            return _ROWS
        source, view = of_records
        if len(sources) > 1:
            if id(first) in tables and source is not first:
                message = (
                    f"records come first: FROM {view.reads.name} JOIN {tables[id(first)].name}"
                )
                raise self._script.error(message, first)
            sides = [Side(source, view) for source, view in views]
            for side, join in zip(sides[1:], joins, strict=False):
                side.join = join
            if source is not first or laterals:
                raise self._unjoined(source, view, select, sides)
            for join in joins:
                view = self._joined(view, join, names, select, sides)
        self._refuse_looked_up_keys(select, view)
        aggregates = _aggregates(select, self._scope(select, view))
        view = self._looked_up(select, view, aggregates, names)
        if not aggregates:
            return self._view(select, view)
        self.found.cores.append(Core(select, view))
        self._inside(select, names, "expressions", "having", "qualify", "order")
        return _ROWS

    def _table(self, node: exp.Expr, names: _Names) -> Table | None:
        """The table of a file that a source stands for, if it does."""
        if is_latest(node):
            return self._tables[latest_name(node)]
        plain = isinstance(node, exp.Table) and isinstance(node.this, exp.Identifier)
        if not plain or node.name.lower() in names or node.meta.get(OF_JOB):
            return None
        return self._tables.get(node.name.lower())

    def _joined(
        self,
        view: View,
        join: exp.Expr,
        names: _Names,
        select: exp.Select,
        sides: Sequence[Side],
    ) -> View:
        """The records, each beside the rows of a table that fit it, or elements of a list."""
        if isinstance(join.this, exp.Unnest):
            return unnested(self._script, view, join)
        table = self._table(join.this, names)
        if is_previous(join.this):
            message = (
                "what was before is joined with groups, not with records: FROM (SELECT key, … "
                f"FROM {view.reads.name} GROUP BY key) JOIN PREVIOUS({self._job}) USING (key)"
            )
            raise self._script.error(message, join.this)
        if table is None:
            raise self._unjoined(join.this, view, select, sides)
        self._refuse_subqueries(join.args.get("on"))
        return joined(self._script, view, join, table)

    def _unjoined(
        self, source: exp.Expr, view: View, select: exp.Select, sides: Sequence[Side]
    ) -> LanguageError:
        message = f"a join would need every record of stream '{view.reads.name}', and"
        shown = grouped_first(self._script, select, sides)
        if shown is None:
            hint = "aggregate it by the key first, as in JOIN (SELECT key, count(*) … GROUP BY key)"
        else:
            hint = f"aggregate by the key first: {shown}"
        return self._script.error(f"{message} {_EVERY_RECORD}; {hint}", source)

    def _source(self, node: exp.Expr, names: _Names) -> View | None:
        if isinstance(node, exp.Subquery):
            view = self._renamed(self.query(node, names), node)
            return view and replace(view, called=(node.alias,))
        if isinstance(node, exp.Lateral):
            return self._source(node.this, names)
        if not isinstance(node, exp.Table):
            return self._made(node)
        self._seen.add(id(node))
        if is_previous(node):
            return self._previous(node)
        if is_latest(node):
            self.found.latest.append(node)
            return _ROWS
        if not isinstance(node.this, exp.Identifier):
            return self._made(node.this)
        plain = node.args.keys() - {"this", "alias", "joins", "laterals"}
        if any(node.args.get(clause) for clause in plain):
            raise self._script.error("expected the name of a stream alone", node)
        name = stream_name(node).lower()
        if name in names:
            view = self._renamed(names[name], node)
            return view and replace(view, called=(node.alias_or_name,))
        if name in self._tables:
            return _ROWS
        if name not in self._streams:
            every = [s.name for s in self._streams.values() if s.job is None]
            every += [t.name for t in self._tables.values()]
            what = "stream or table" if self._tables else "stream"
            known = nearest(node.name, every, "there is none")
            if "." in node.name:
                known = f"files are declared: CREATE TABLE name FROM '{node.name}'"
            raise self._script.error(f"unknown {what} '{node.name}'; {known}", node)
        return self._stream(node, self._streams[name])

    def _renamed(self, view: View | None, node: exp.Expr) -> View | None:
        """What is shown, by the names that a list behind an alias gives it."""
        alias = node.args.get("alias")
        given = [column.name for column in alias.columns] if alias is not None else []
        if view is None or not given:
            return view
        shown = [each for each in view.columns.items() if each[0] not in view.joined]
        if len(given) > len(shown):
            message = f"there are {len(given)} names for {len(shown)} columns"
            raise self._script.error(message, alias, node)
        named = zip(given + [name for name, _ in shown[len(given) :]], shown, strict=True)
        return replace(view, columns={name: each for name, (_, each) in named}, beside={})

    def _stream(self, node: exp.Table, stream: Stream) -> View:
        if node.args.get("alias") and node.args["alias"].columns:
            raise self._script.error("expected the name of a stream alone", node)
        called = node.alias or node.name
        whole = self._whole
        if whole is not None and stream.name in [member.name for member in whole.members]:
            return view_of(whole, stream.name, called)
        return View.of(stream, called)

    def _previous(self, node: exp.Table) -> View | None:
        """The rows of the job's own result one step earlier."""
        asked = node.this.expressions
        if len(asked) != 1 or asked[0].name.lower() != self._job.lower():
            message = f"a job looks back at its own results: PREVIOUS({self._job})"
            raise self._script.error(message, node.this, node)
        self.found.previous.append(node)
        return _ROWS

    def _made(self, node: exp.Expr) -> View | None:
        """What FROM may call: it must depend on nothing but the job's rows."""
        if isinstance(node, exp.Values | exp.Unnest):
            return _ROWS
        name = node.name.lower() if isinstance(node, exp.Anonymous) else ""
        if name not in _MADE_IN_FROM:
            what = f"{name}()" if name else "this"
            message = f"{what} is not possible in FROM; a job reads its stream and declared tables"
            if name.startswith("read_") or name.endswith("_scan"):
                message += ": CREATE TABLE name FROM 'file'"
            raise self._script.error(message, node)
        return _ROWS

    def _inside(self, select: exp.Select, names: _Names, *clauses: str) -> None:
        """Looks at the subqueries in the expressions of a SELECT."""
        for clause in clauses:
            value = joins_of(select) if clause == "joins" else select.args.get(clause) or []
            for node in value if isinstance(value, list) else [value]:
                for query in _queries(node, skip_source=clause == "joins"):
                    if id(query) not in self._looked and self.query(query, names) is not None:
                        message = f"{_EVERY_RECORD}, so a subquery aggregates: SELECT max(x) FROM …"
                        raise self._script.error(message, query)

    def _looked_up(self, select: exp.Select, view: View, groups: bool, names: _Names) -> View:
        """The view with what subqueries over tables tell of records: in WHERE, and in SELECT.

        Of a SELECT of `groups`, in the arguments and filters of its aggregates.
        """
        places = [select.args["where"]] if select.args.get("where") else []
        others = [*select.expressions]
        if groups:
            others += [select.args[c] for c in ("having", "qualify", "order") if select.args.get(c)]
            walks = (node for other in others for node in other.walk(prune=is_query))
            others = [node for node in walks if is_aggregate(node) and not is_windowed(node)]
        found = {id(query): query for place in (*places, *others) for query in _queries(place)}
        tables = {name: table for name, table in self._tables.items() if name not in names}
        for query in sorted(found.values(), key=_length):  # first those that are inside of others
            read = tables_read(query, tables)
            if read is None:
                self._refuse_subqueries(query)
            self._seen |= {id(node) for node in query.find_all(exp.Table)}
            self._looked.add(id(query))
            view = looked_up(self._script, view, query, read or {})
        return view

    def _refuse_looked_up_keys(self, select: exp.Select, view: View) -> None:
        """Keys are told by one record, so what a table tells of it has a name before."""
        group = select.args.get("group")
        named = {item.alias.lower(): item for item in select.expressions if item.alias}
        for key in group.expressions if group is not None else ():
            plain = isinstance(key, exp.Column) and len(key.parts) == 1
            meant = named.get(key.name.lower(), key) if plain else key
            query = next(_queries(meant), None)
            if query is not None:
                message = (
                    "a key of GROUP BY is told by one record alone; what a subquery over tables "
                    f"tells of it is named first: FROM (SELECT *, x IN (SELECT …) AS y FROM "
                    f"{view.reads.name}) GROUP BY y"
                )
                raise self._script.error(message, query)

    def _refuse_subqueries(self, clause: exp.Expr | None) -> None:
        query = next(_queries(clause), None) if clause is not None else None
        if query is not None:
            message = (
                "each record is looked at by itself, before others have come, so a subquery over "
                "records cannot stand here; WHERE may look into LATEST(job) and tables. Compare "
                "groups with HAVING, or in a SELECT around this one"
            )
            raise self._script.error(message, query)

    def _scope(self, select: exp.Select, view: View) -> Scope:
        stream = view.stream
        return Scope(self._script, stream, stream.visible_columns(), "", select.expressions, view)

    def _view(self, select: exp.Select, view: View) -> View:
        """What a SELECT without aggregates shows of each record."""
        for clause, value in select.args.items():
            if value and clause not in _OF_RECORDS:
                raise self._needs_all(select, clause)
        window = next(filter(None, (item.find(exp.Window) for item in select.expressions)), None)
        if window is not None:
            raise self._needs_all(select, "over", window)
        condition = select.args.get("where")
        conditions = list(view.where)
        if condition is not None:
            scope = self._scope(select, view)
            sql = scope.condition(condition.this, "WHERE")
            conditions.append(Shown(sql, "BOOLEAN", frozenset(scope.used)))
        columns = dict(self._shown(select, view))
        where = tuple(conditions)
        return replace(view, called=(), columns=columns, where=where, beside={})

    def _shown(self, select: exp.Select, view: View) -> Iterator[tuple[str, Shown]]:
        for index, item in enumerate(select.expressions):
            if isinstance(item, exp.Star) and not any(item.args.values()):
                own = view.joined
                yield from ((name, each) for name, each in view.columns.items() if name not in own)
                continue
            scope = self._scope(select, view)
            sql, kind = scope.bound(item.unalias(), index)
            name = item.alias or usual_name(self._script, item)
            yield name, Shown(sql, kind, frozenset(scope.used))

    def _needs_all(
        self, select: exp.Expr, clause: str, place: exp.Expr | None = None
    ) -> LanguageError:
        words = {"order": "ORDER BY"}.get(clause, clause.strip("_").upper())
        value = place or select.args.get(clause)
        message = (
            f"{words} here would need every record of the window, and {_EVERY_RECORD}; "
            f"{_WHAT_TO_WRITE}, where last(x) is the newest value, and say {words} over the groups"
        )
        return self._script.error(message, value if isinstance(value, exp.Expr) else None, select)


def _length(query: exp.Expr) -> int:
    start, end = span(expression_of(query.unnest())) or (0, 0)
    return end - start


def joins_of(select: exp.Select) -> list[exp.Expr]:
    """The joins of a SELECT; where FROM comes first, they are with what it reads."""
    read = select.args.get("from_")
    before = read.this.args.get("joins") if read is not None else None
    return [*(before or ()), *(select.args.get("joins") or ())]


def is_previous(node: exp.Expr) -> bool:
    """Whether FROM reads PREVIOUS(job)."""
    if not isinstance(node, exp.Table) or not isinstance(node.this, exp.Anonymous):
        return False
    return str(node.this.name).lower() == "previous"


def _aggregates(select: exp.Select, scope: Scope) -> bool:
    """Whether a SELECT makes groups of what it reads."""
    distinct = select.args.get("distinct")
    if select.args.get("group") or (distinct and not distinct.args.get("on")):
        return True
    places = [*select.expressions]
    places += [select.args[c] for c in ("having", "qualify", "order") if select.args.get(c)]
    return any(
        is_aggregate(node) and not is_windowed(node)
        for place in places
        for node in place.walk(prune=is_query)
    )


def _queries(node: exp.Expr, skip_source: bool = False) -> Iterator[exp.Expr]:
    """The outermost subqueries of an expression; of a join, those of its condition."""
    children = [node]
    if skip_source:
        children = [child for child in node.iter_expressions() if child is not node.this]
    for child in children:
        for inner in child.walk(prune=is_query):
            if is_query(inner):
                yield inner
