"""DuckDB, one connection a thread, as everything in Muntin uses it.

One thread and UTC always: tasks are the unit of parallelism, and row order is log order.
"""

from __future__ import annotations

import re
import threading
import warnings
from collections import OrderedDict
from collections.abc import Mapping
from functools import cache

import duckdb
import pyarrow as pa

from muntin.errors import BadValueError, EngineError, harmless
from muntin.kernel.sketches import MACROS

_local = threading.local()
_PLANS_AT_MOST = 200
# What DuckDB advises instead copies the rows of a prepared statement as well, and plans once more.
warnings.filterwarnings("ignore", "Arrow output on a DB-API result", UserWarning)
_FLOOR_DIV = "floor_div(a, b) AS (a - ((a % b) + b) % b) // b"
# Minus zero is zero, and whatever is no number is the same.
_ONE_NUMBER = "one_number(x) AS CASE WHEN isnan(x) THEN 'nan' ELSE x + 0.0 END"
NO_USER = "user(no_column) AS no_column"
"""A macro that has DuckDB refuse `user` where there is no such column: it would be its own user."""

_memory: int | None = None  # that a statement has, in a process that is confined


def confine(memory: int) -> None:
    """From here on, SQL in this process sees the tables it is given, and no file or network.

    Agents run jobs that come over a network. A statement has so many bytes of memory. Connections
    that were made before are not confined.
    """
    global _memory
    _memory = memory


def is_confined() -> bool:
    """Whether this process may see no files but those of its own."""
    return _memory is not None


def connection() -> duckdb.DuckDBPyConnection:
    """This thread's connection; made on first use, so that it never crosses a fork."""
    opened: duckdb.DuckDBPyConnection | None = getattr(_local, "connection", None)
    if opened is None:
        opened = duckdb.connect(":memory:", config={"threads": 1})
        opened.execute("SET TimeZone = 'UTC'")
        opened.execute("SET enable_progress_bar = false")
        opened.execute("SET python_enable_replacements = false")
        for macro in (_FLOOR_DIV, _ONE_NUMBER, NO_USER, *MACROS):
            opened.execute(f"CREATE TEMP MACRO {macro}")
        if _memory is not None:
            opened.execute(f"SET memory_limit = '{_memory // 1024}KiB'")
            opened.execute("SET enable_external_access = false")
            opened.execute("SET lock_configuration = true")
        _local.connection, _local.plans = opened, _Plans(opened)
    return opened


class _Slot:
    """A relation whose rows change from run to run while statements over it stay planned."""

    def __init__(self, table: pa.Table) -> None:
        self._empty = table.schema.empty_table()
        self.table = table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.table.__arrow_c_stream__(requested_schema)

    def clear(self) -> None:
        self.table = self._empty


class _Plans:
    """Statements that one connection has planned, each with the slots it reads.

    Planning takes most of the time of a small batch, and the statements of a job are few and
    always the same.
    """

    def __init__(self, con: duckdb.DuckDBPyConnection) -> None:
        self._con = con
        self._plans: OrderedDict[object, tuple[str, dict[str, _Slot]]] = OrderedDict()
        self._made = 0

    def run(self, sql: str, tables: Mapping[str, pa.Table]) -> pa.Table:
        key = sql, *((name, table.schema) for name, table in tables.items())
        plan = self._plans.get(key) or self._plan(key, sql, tables)
        self._plans.move_to_end(key)
        name, slots = plan
        try:
            for relation, table in tables.items():
                slots[relation].table = table
            return self._con.execute(f"EXECUTE {name}").to_arrow_table()
        finally:
            for slot in slots.values():
                slot.clear()

    def _plan(
        self, key: object, sql: str, tables: Mapping[str, pa.Table]
    ) -> tuple[str, dict[str, _Slot]]:
        self._made += 1
        name = f"plan{self._made}"
        slots = {relation: _Slot(table) for relation, table in tables.items()}
        for relation, slot in slots.items():
            self._con.register(f"{name}_{relation}", slot)
        reads = ", ".join(
            f"{quote(r)} AS NOT MATERIALIZED (FROM {quote(f'{name}_{r}')})" for r in slots
        )
        try:
            self._con.execute(f"PREPARE {name} AS {with_sql(reads, sql)}")
        except duckdb.Error:
            self._drop(name, slots)
            raise
        self._plans[key] = name, slots
        if len(self._plans) > _PLANS_AT_MOST:
            _, (old, unused) = self._plans.popitem(last=False)
            self._con.execute(f"DEALLOCATE {old}")
            self._drop(old, unused)
        return name, slots

    def _drop(self, name: str, slots: Mapping[str, _Slot]) -> None:
        for relation in slots:
            self._con.unregister(f"{name}_{relation}")


def run(sql: str, tables: Mapping[str, pa.Table], doing: str) -> pa.Table:
    """The statement's rows, with the given Arrow tables as its relations."""
    con = connection()
    try:
        return _local.plans.run(sql, tables) if tables else con.sql(sql).to_arrow_table()
    except duckdb.InterruptException:
        raise KeyboardInterrupt from None
    except _OF_VALUES as error:
        raise BadValueError(doing, _blamed(str(error)), "") from error
    # DuckDB cuts the text that it quotes in a message, perhaps in the middle of a letter.
    except UnicodeDecodeError as error:
        text = error.object.decode(errors="replace")
        raise BadValueError(doing, _blamed(text), "") from error
    except duckdb.Error as error:
        raise EngineError(doing, str(error).strip(), sql) from error


_OF_VALUES = (duckdb.DataError, duckdb.InvalidInputException, duckdb.NotSupportedError)
_SHOWN = 300  # characters of what DuckDB says
# What kind of error it is, and what it says of statements that the user has not written.
_ABOUT_SQL = re.compile(
    r"^[\w ]+ Error: |\n\nLINE \d(?s:.*)| when casting from source column .*|\. Use TRY\((?s:.*)"
    r"|(?<=Division by zero) in expression (?=.*(\b[acks]\d+\b|__[uj]\d))(?s:.*)"
    r"| - scalar subqueries can only (?s:.*)"
)
_TYPES = {
    "INT8": "TINYINT",
    "INT16": "SMALLINT",
    "INT32": "INTEGER",
    "INT64": "BIGINT",
    "INT128": "HUGEINT",
    "INTEGER_LITERAL": "INTEGER",
    "STRING_LITERAL": "VARCHAR",
}
_INTERNAL_TYPE = re.compile(rf"\bU?({'|'.join(_TYPES)})\b")


def as_sql_says(text: str) -> str:
    """DuckDB's words with types as SQL calls them."""

    def called(found: re.Match[str]) -> str:
        return found[0].replace(found[1], _TYPES[found[1]])

    return _INTERNAL_TYPE.sub(called, text)


def _blamed(error: str) -> str:
    """What DuckDB says of a value, and what to do where it is of another type than was thought."""
    said = as_sql_says(_ABOUT_SQL.sub("", error.strip()))
    reason = harmless(said if len(said) <= _SHOWN else said[:_SHOWN] + "…")
    if "Could not convert string" in reason:
        return f"{reason}; TRY_CAST gives NULL for such a value"
    return f"{reason}; nullif(x, 0) is NULL for zero" if "ivision by zero" in reason else reason


def describe(sql: str, columns: Mapping[str, str], relation: str) -> list[tuple[str, str]]:
    """Names and types of a statement over an empty relation; raises duckdb.Error as it is."""
    rows = connection().execute(f"DESCRIBE {_over_nothing(sql, columns, relation)}").fetchall()
    return [(str(name), str(kind)) for name, kind, *_ in rows]


def collation(sql: str, columns: Mapping[str, str], relation: str) -> str | None:
    """The collation that a text has, which is no part of the type that DESCRIBE tells."""
    con = connection()
    con.execute(
        f"CREATE OR REPLACE TEMP TABLE __collated AS {_over_nothing(sql, columns, relation)}"
    )
    told = "SELECT sql FROM duckdb_tables() WHERE table_name = '__collated'"
    found = re.search(r" COLLATE ([\w.]+)\);$", str(con.execute(told).fetchall()[0][0]))
    con.execute("DROP TABLE __collated")
    return found[1] if found is not None else None


def value(sql: str, columns: Mapping[str, str], relation: str) -> object:
    """The value that a statement has over an empty relation."""
    rows = connection().execute(_over_nothing(sql, columns, relation)).fetchall()
    return rows[0][0] if rows else None


def _over_nothing(sql: str, columns: Mapping[str, str], relation: str) -> str:
    fields = ", ".join(f"NULL::{kind} AS {quote(name)}" for name, kind in columns.items())
    return with_sql(f"{relation} AS (SELECT {fields or 'NULL AS nothing'} LIMIT 0)", sql)


def rehearse(sql: str, columns: Mapping[str, str], relation: str) -> None:
    """Runs a statement over one row of NULLs: a text that is no number is met now, not later.

    Raises duckdb.ConversionException; whatever else NULLs may do, records need not.
    """
    fields = ", ".join(f"NULL::{kind} AS {quote(name)}" for name, kind in columns.items())
    # MATERIALIZED keeps DuckDB from seeing that all is NULL, and then looking no further.
    row = f"{relation} AS MATERIALIZED (SELECT {fields or 'NULL AS nothing'})"
    try:
        connection().execute(with_sql(row, sql)).fetchall()
    except duckdb.ConversionException:
        raise
    except duckdb.Error:
        return


def column_types(table: pa.Table) -> dict[str, str]:
    """The types DuckDB gives an Arrow table's columns."""
    described = run("FROM (DESCRIBE fields)", {"fields": table}, "describing a table").to_pylist()
    return {row["column_name"]: row["column_type"] for row in described}


@cache
def aggregate_names() -> frozenset[str]:
    """Every function that DuckDB itself treats as an aggregate."""
    sql = "SELECT DISTINCT function_name FROM duckdb_functions() WHERE function_type='aggregate'"
    return frozenset(str(name) for (name,) in connection().execute(sql).fetchall())


@cache
def function_names() -> frozenset[str]:
    """Every function that is called by a name, macros included."""
    sql = "SELECT DISTINCT function_name FROM duckdb_functions()"
    names = (str(name) for (name,) in connection().execute(sql).fetchall())
    return frozenset(name for name in names if name.isidentifier())


@cache
def volatile_names() -> frozenset[str]:
    """Every function that is another value each time, but error, which has none."""
    sql = "SELECT DISTINCT function_name FROM duckdb_functions() WHERE stability = 'VOLATILE'"
    return frozenset(str(name) for (name,) in connection().execute(sql).fetchall()) - {"error"}


@cache
def type_names() -> frozenset[str]:
    """Every type that is called by a plain name."""
    rows = connection().execute("SELECT DISTINCT type_name FROM duckdb_types()").fetchall()
    return frozenset(str(name).upper() for (name,) in rows if str(name).isidentifier())


@cache
def is_function(name: str) -> bool:
    """Whether there is such a function, also one that is part of the grammar, as coalesce is."""
    if name in function_names() or not name.isidentifier():
        return True
    try:
        describe(f"SELECT {name}() FROM records", {}, "records")
    except duckdb.CatalogException:
        return False
    except duckdb.Error:
        return True
    return True


def with_sql(relations: str, sql: str) -> str:
    """The statement with more relations before those it defines itself."""
    rest = f", {sql.removeprefix('WITH ')}" if sql.startswith("WITH ") else f" {sql}"
    return f"WITH {relations}{rest}"


def quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
