"""DuckDB gives an expression the same value inside a job as it does by itself."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pytest

from muntin.kernel.engine import connection
from muntin.language.script import Script
from tests.language.cases import lines, program

EXPRESSIONS = lines("expressions.sql")
RECORDS = """
CREATE OR REPLACE TEMP TABLE records AS
SELECT * FROM (VALUES
  (TIMESTAMP '2024-03-05 13:47:11.25', 'apple', 'shop 1', 3, 1.25, 1.5, true, DATE '2024-03-31', 1,
   ['new', 'apple'], {'city': 'Kyōto', 'lat': 35.0},
   '{"kind": "k", "user": {"name": "ann"}, "tags": [1, 2]}'::JSON, 404),
  (TIMESTAMP '1969-12-31 23:59:59', 'a%b', '', 0, -2.5, -1.5, false, DATE '2023-02-28', 2,
   [], {'city': NULL, 'lat': NULL}, '{}'::JSON, 200),
  (NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)
) AS t(ts, product, store, clicks, price, ms, ok, day, id, tags, geo, extra, "http.status")
"""


@pytest.fixture(scope="module")
def records() -> Iterator[duckdb.DuckDBPyConnection]:
    con = connection()
    con.execute(RECORDS)
    yield con
    con.execute("DROP TABLE records")


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_value_is_duckdbs(expression: str, records: duckdb.DuckDBPyConnection) -> None:
    text = f"CREATE JOB j AS SELECT {expression} AS v, count(*) FROM shop GROUP BY v WINDOW 1 DAY"
    (key,) = program(text).jobs["j"].shape.keys
    ours, theirs = (
        records.execute(f"SELECT typeof({sql}), ({sql})::VARCHAR FROM records").fetchall()
        for sql in (key.words, expression)
    )
    assert ours == theirs


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_words_are_the_users(expression: str) -> None:
    script = Script(f"CREATE JOB j AS SELECT\n {expression}\n/* … */ FROM shop WINDOW 1 DAY")
    (item,) = script.statements[0].args["query"].expressions
    assert script.words(item) == expression


def test_every_example_of_duckdb_is_understood() -> None:
    con = connection()
    sql = "SELECT DISTINCT unnest(examples) FROM duckdb_functions() WHERE function_type = 'scalar'"
    examples = [example for (example,) in con.execute(sql).fetchall() if _is_expression(example)]
    lost = [example for example in examples if not _kept(example)]
    # A postfix operator that sqlglot does not know: users can write factorial(4).
    assert len(examples) > 300
    assert lost == ["4!"]


def _is_expression(example: str) -> bool:
    try:
        connection().execute(f"DESCRIBE SELECT ({example}) AS x")
    except duckdb.Error:
        return False
    return True


def _kept(example: str) -> bool:
    try:
        script = Script(f"CREATE JOB j AS SELECT {example} FROM shop WINDOW 1 DAY")
    except Exception:
        return False
    return script.words(script.statements[0].args["query"].expressions[0]) == example
