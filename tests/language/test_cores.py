"""Which SELECTs aggregate records, which only show them, and what would need all of them."""

from __future__ import annotations

import pytest

from muntin.errors import LanguageError
from muntin.language.check import check
from muntin.language.cores import find_cores
from muntin.language.script import Script
from tests.language.cases import SHOP, Mistake, mistakes, program


@pytest.mark.parametrize("case", mistakes("cores_errors.sql"), ids=lambda case: case.text)
def test_mistake_is_shown_at_its_place(case: Mistake) -> None:
    with pytest.raises(LanguageError) as raised:
        program(case.text)
    assert str(raised.value) == case.shown()


@pytest.mark.parametrize(
    ("query", "cores"),
    [
        ("SELECT count(*) FROM shop", 1),
        ("WITH c AS (SELECT store FROM shop) SELECT store, count(*) FROM c GROUP BY 1", 1),
        ("WITH shop AS (SELECT store FROM shop) SELECT count(*) FROM shop", 1),
        ("SELECT sum(n) FROM (SELECT store, count(*) AS n FROM shop GROUP BY 1)", 1),
        ("SELECT count(*) FROM shop UNION ALL SELECT count(*) FROM shop", 2),
        ("SELECT count(*), (SELECT max(ms) FROM shop) FROM shop", 2),
        ("WITH c AS (SELECT count(*) FROM shop) SELECT * FROM c a, c b", 1),
    ],
)
def test_cores_of_a_query(query: str, cores: int) -> None:
    streams = check(SHOP, lambda _: ()).streams
    script = Script(f"CREATE JOB j AS {query} WINDOW 1 DAY")
    found = find_cores(script, script.statements[0].args["query"], "j", streams)
    assert len(found.cores) == cores
