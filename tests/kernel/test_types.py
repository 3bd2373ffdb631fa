"""Types within types are found, whatever fields are called."""

from __future__ import annotations

import duckdb
import pytest

from muntin.kernel.types import mapped, stored
from muntin.language.queries import result_type


def marked(kind: str) -> str:
    return f"<{kind}>"


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        ("1", "<INTEGER>"),
        ("1.5::DECIMAL(10,2)", "<DECIMAL(10,2)>"),
        ("[1]", "<INTEGER>[]"),
        ("[[1]]::INTEGER[2][]", "<INTEGER>[][]"),
        ("{'a': 1, 'b c': [now()]}", 'STRUCT(a <INTEGER>, "b c" <TIMESTAMP WITH TIME ZONE>[])'),
        ("""{'a"b, (c': 1, 'd': 2}""", 'STRUCT("a""b, (c" <INTEGER>, d <INTEGER>)'),
        ("MAP {'a': {'x': 1.0::DECIMAL(4,1)}}", "MAP(<VARCHAR>, STRUCT(x <DECIMAL(4,1)>))"),
    ],
)
def test_leaves_are_exchanged(value: str, wanted: str) -> None:
    row = duckdb.execute(f"SELECT typeof({value})").fetchone()
    assert row is not None
    assert mapped(row[0], marked) == wanted


def test_what_blocks_and_tables_have_instead() -> None:
    kind = "STRUCT(at TIMESTAMP, n HUGEINT, u UUID, many MAP(UBIGINT, TIMESTAMP_NS[]))"
    inside = "STRUCT(at TIMESTAMP, n DECIMAL(38,0), u VARCHAR, many MAP(UBIGINT, TIMESTAMP_NS[]))"
    assert stored(kind) == inside
    assert result_type(kind) == (
        "STRUCT(at TIMESTAMP WITH TIME ZONE, n DECIMAL(38,0), u VARCHAR, "
        "many MAP(DECIMAL(20,0), TIMESTAMP WITH TIME ZONE[]))"
    )
