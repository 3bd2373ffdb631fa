"""DuckDB as Muntin uses it: tables as relations, statements planned once, errors with a name."""

from __future__ import annotations

import threading
from datetime import UTC, datetime

import duckdb
import pyarrow as pa
import pytest

from muntin.errors import EngineError
from muntin.kernel import engine
from muntin.kernel.engine import describe, is_function, literal, quote, rehearse, run


def numbers(*values: int) -> pa.Table:
    return pa.table({"n": pa.array(values, pa.int64())})


def test_a_statement_sees_the_tables_of_its_own_run() -> None:
    sql = "SELECT sum(n)::BIGINT AS s FROM rows"
    for values in ([1, 2], [], [5]):
        (found,) = run(sql, {"rows": numbers(*values)}, "adding")["s"].to_pylist()
        assert found == (sum(values) if values else None)


def test_a_statement_is_planned_again_for_other_types() -> None:
    sql = "SELECT max(n) AS m FROM rows"
    assert run(sql, {"rows": numbers(1, 2)}, "looking")["m"].to_pylist() == [2]
    texts = pa.table({"n": ["a", "b"]})
    assert run(sql, {"rows": texts}, "looking")["m"].to_pylist() == ["b"]


def test_plans_are_let_go_when_there_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "_PLANS_AT_MOST", 2)
    for turn in range(3):
        for i in range(5):
            sql = f"SELECT n + {i} AS n FROM rows"
            assert run(sql, {"rows": numbers(turn)}, "adding")["n"].to_pylist() == [turn + i]


def test_relations_of_the_statement_itself_come_after_the_tables() -> None:
    sql = "WITH twice AS (SELECT 2 * n AS n FROM rows) SELECT n FROM twice"
    assert run(sql, {"rows": numbers(4)}, "doubling")["n"].to_pylist() == [8]


def test_each_thread_has_a_connection_of_its_own() -> None:
    mine, theirs = engine.connection(), []
    thread = threading.Thread(target=lambda: theirs.append(engine.connection()))
    thread.start()
    thread.join()
    assert theirs != [mine]
    assert engine.connection() is mine


def test_times_are_utc_and_variables_of_python_are_no_tables() -> None:
    noon = datetime(2026, 7, 1, 12, tzinfo=UTC)
    (found,) = run("SELECT '2026-07-01 12:00'::TIMESTAMPTZ AS t", {}, "asking")["t"].to_pylist()
    assert found == noon
    secret = numbers(1)
    with pytest.raises(EngineError, match="secret"):
        run("SELECT * FROM secret", {}, "looking")
    assert secret.num_rows == 1


def test_an_error_says_what_was_done_and_shows_the_statement_or_blames_the_value() -> None:
    with pytest.raises(EngineError, match=r"^adding: (?s:.*)The statement was:\nSELECT nope"):
        run("SELECT nope FROM rows", {"rows": numbers(1)}, "adding")
    texts = {"rows": pa.table({"s": ["12", "1\x1b2"]})}
    with pytest.raises(EngineError) as raised:
        run("SELECT s::BIGINT FROM rows", texts, "casting")
    assert raised.value.sql == ""
    assert str(raised.value).startswith("casting: ")
    assert r"1\x1b2" in str(raised.value)
    assert str(raised.value).endswith("TRY_CAST gives NULL for such a value")


def test_what_a_statement_gives_is_told_without_rows() -> None:
    told = describe('SELECT "a b" + 1 AS x, s FROM r', {"a b": "INTEGER", "s": "VARCHAR"}, "r")
    assert told == [("x", "INTEGER"), ("s", "VARCHAR")]
    with pytest.raises(duckdb.BinderException):
        describe("SELECT nope FROM r", {"n": "BIGINT"}, "r")


def test_a_text_that_is_no_number_is_met_before_records_are() -> None:
    with pytest.raises(duckdb.ConversionException):
        rehearse("SELECT n > 'many' FROM r", {"n": "BIGINT"}, "r")
    rehearse("SELECT error('no') FROM r", {"n": "BIGINT"}, "r")  # records need not meet it


def test_functions_are_known_also_where_they_are_grammar() -> None:
    assert [is_function(n) for n in ("lower", "coalesce", "lenght")] == [True, True, False]


@pytest.mark.parametrize("name", ["a", 'a"b', "a b", "ü"])
def test_names_and_texts_are_quoted(name: str) -> None:
    (row,) = run(f"SELECT {literal(name)} AS {quote(name)}", {}, "asking").to_pylist()
    assert row == {name: name}
    assert run(f"SELECT {literal(chr(39))} AS x", {}, "asking")["x"].to_pylist() == ["'"]


def test_division_goes_down_on_either_side_of_zero() -> None:
    sql = "SELECT list(floor_div(x, 7) ORDER BY x) AS q FROM range(-20, 20) t(x)"
    assert run(sql, {}, "dividing")["q"].to_pylist() == [[x // 7 for x in range(-20, 20)]]
