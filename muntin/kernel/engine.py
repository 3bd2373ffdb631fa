"""DuckDB, one connection a thread, as everything in Muntin uses it.

One thread and UTC always: tasks are the unit of parallelism, and row order is log order.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from functools import cache

import duckdb
import pyarrow as pa

from muntin.errors import EngineError
from muntin.kernel.sketches import MACROS

_local = threading.local()
_FLOOR_DIV = "floor_div(a, b) AS (a - ((a % b) + b) % b) // b"


def connection() -> duckdb.DuckDBPyConnection:
    """This thread's connection; made on first use, so that it never crosses a fork."""
    found: duckdb.DuckDBPyConnection | None = getattr(_local, "connection", None)
    if found is None:
        found = duckdb.connect(":memory:", config={"threads": 1})
        found.execute("SET TimeZone = 'UTC'")
        found.execute("SET enable_progress_bar = false")
        found.execute("SET python_enable_replacements = false")
        for macro in (_FLOOR_DIV, *MACROS):
            found.execute(f"CREATE TEMP MACRO {macro}")
        _local.connection = found
    return found


def run(sql: str, tables: Mapping[str, pa.Table], doing: str) -> pa.Table:
    """The statement's rows, with the given Arrow tables as its relations."""
    con = connection()
    try:
        for name, table in tables.items():
            con.register(name, table)
        return con.sql(sql).to_arrow_table()
    except duckdb.Error as error:
        raise EngineError(doing, str(error).strip(), sql) from error
    finally:
        for name in tables:
            con.unregister(name)


def describe(sql: str, columns: Mapping[str, str], relation: str) -> list[tuple[str, str]]:
    """Names and types of a statement over an empty relation; raises duckdb.Error as it is."""
    con = connection()
    fields = ", ".join(f"NULL::{kind} AS {quote(name)}" for name, kind in columns.items())
    empty = f"(SELECT {fields or 'NULL AS nothing'} LIMIT 0)"
    rows = con.execute(f"DESCRIBE WITH {relation} AS {empty} {sql}").fetchall()
    return [(str(name), str(kind)) for name, kind, *_ in rows]


def column_types(table: pa.Table) -> dict[str, str]:
    """The types DuckDB gives an Arrow table's columns."""
    described = run("DESCRIBE fields", {"fields": table}, "describing a table").to_pylist()
    return {row["column_name"]: row["column_type"] for row in described}


@cache
def aggregate_names() -> frozenset[str]:
    """Every function that DuckDB itself treats as an aggregate."""
    sql = "SELECT DISTINCT function_name FROM duckdb_functions() WHERE function_type='aggregate'"
    return frozenset(str(name) for (name,) in connection().execute(sql).fetchall())


def quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
