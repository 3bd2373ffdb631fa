"""Records and groups joined with tables: what they see, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from muntin.errors import LanguageError
from muntin.language.check import check
from muntin.model.jobs import Program
from muntin.model.records import Column
from muntin.model.streams import Stream
from muntin.model.tables import Table
from tests.language.cases import SHOP, Mistake, mistakes

STORES = Table("stores", "x", "csv", (Column("store", "VARCHAR"), Column("region", "VARCHAR")))
REMOTE = (
    "CREATE STREAM remote (ts TIMESTAMP, store VARCHAR) FROM AGENTS 'a:1' FORMAT json TIMESTAMP ts"
)


def no_columns(stream: Stream) -> tuple[Column, ...]:
    return (Column("ts", "TIMESTAMP"),)


def program(text: str) -> Program:
    """What a text defines when streams `shop` and `remote` and the table `stores` are there."""
    streams = check(f"{SHOP}; {REMOTE}", no_columns).streams
    return check(text, no_columns, streams, tables={"stores": STORES})


@pytest.mark.parametrize("case", mistakes("joins_errors.sql"), ids=lambda case: case.text)
def test_mistake_is_shown_at_its_place(case: Mistake) -> None:
    with pytest.raises(LanguageError) as raised:
        program(case.text)
    assert str(raised.value) == case.shown()


def test_a_join_alone_is_all_core() -> None:
    text = "SELECT s.region, count(*) FROM shop JOIN stores s USING (store) WHERE ok GROUP BY 1"
    (job,) = program(f"CREATE JOB j AS {text} WINDOW SESSION 1 MINUTE").jobs.values()
    assert job.around is None
    assert [key.sql for key in job.shape.keys] == ['"__j0_region"']
    assert [join.on for join in job.shape.joins] == ['"store" = "__j0_store"']
    assert job.shape.uses == ("ok", "store")


def test_a_join_of_groups_is_in_the_finish() -> None:
    groups = "SELECT store, count(*) AS n FROM shop GROUP BY 1"
    text = f"SELECT region, sum(n) FROM ({groups}) JOIN stores USING (store) GROUP BY 1"
    (job,) = program(f"CREATE JOB j AS {text} WINDOW 1 DAY").jobs.values()
    assert job.around is not None
    assert job.around.tables == (STORES,)
    assert not job.shape.joins


def test_tables_of_files_are_part_of_the_program(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("id,w\n1,2.5\n")
    (tmp_path / "y.txt").write_text("id\n007\n")
    text = f"""CREATE TABLE x FROM '{tmp_path}/x.csv';
    CREATE TABLE y (id VARCHAR) FROM '{tmp_path}/y.txt' FORMAT csv"""
    tables = check(text, no_columns).tables
    assert tables["x"].columns == (Column("id", "BIGINT"), Column("w", "DOUBLE"))
    assert tables["y"].columns == (Column("id", "VARCHAR"),)
