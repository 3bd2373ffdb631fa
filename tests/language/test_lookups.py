"""Subqueries over tables in expressions over records: which are looked up, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from muntin.errors import LanguageError
from muntin.language.explain import explain
from muntin.language.program import sql

JOBS = (
    "CREATE STREAM s (t BIGINT, k VARCHAR, n BIGINT) FROM 'x/{source}.jsonl' FORMAT json "
    "TIMESTAMP t; CREATE JOB hot AS SELECT k, count(*) AS c FROM s GROUP BY k WINDOW 10 SECONDS;"
)
JOB = "CREATE JOB j AS SELECT {} GROUP BY k WINDOW 10 SECONDS;"
LATEST = "SELECT k FROM LATEST(hot)"
COUNTED = "k, count(*) AS c FROM s "
POSSIBLE = [
    f"{COUNTED} WHERE k IN ({LATEST})",
    f"{COUNTED} WHERE n > 0 AND (lower(k) NOT IN ({LATEST} h WHERE h.c > 1) OR n = 1)",
    f"{COUNTED} WHERE n > (SELECT avg(c) FROM LATEST(hot))",
    f"{COUNTED} WHERE (k, n) IN (SELECT k, c FROM LATEST(hot))",
    f"{COUNTED} WHERE EXISTS (FROM LATEST(hot) WHERE c > 9)",
    f"{COUNTED} WHERE n > ALL (SELECT c FROM LATEST(hot))",
    f"{COUNTED} WHERE n + (SELECT min(c) FROM LATEST(hot)) IN (SELECT c FROM LATEST(hot))",
    f"{COUNTED} WHERE k IN ({LATEST} UNION ALL {LATEST} WHERE c > 1)",
    f"{COUNTED} WHERE k IN (WITH h AS ({LATEST}) FROM h)",
    f"k, count(*) FILTER (WHERE k IN ({LATEST})) AS c FROM s",
    "k, sum(n * (SELECT max(c) FROM LATEST(hot))) AS c FROM s",
    f"k, hot, count(*) AS c FROM (SELECT *, k IN ({LATEST}) AS hot FROM s) GROUP BY hot,",
    f"{COUNTED} WHERE k IN (SELECT k FROM LATEST(j))",
]


@pytest.mark.parametrize("query", POSSIBLE)
def test_what_tables_tell_of_a_record_is_a_column(query: str) -> None:
    text = JOB.format(query).replace(", GROUP BY k", ", k")
    job = sql(JOBS + text).jobs["j"]
    (*_, lookup) = job.shape.lookups
    used = str((job.shape.where, job.shape.parts, job.shape.keys))
    assert lookup.column in used
    assert job.latest


WRONG = {
    "k, count(*) AS c FROM s WHERE k IN (SELECT k FROM s)": "a subquery over records cannot stand",
    "k, count(*) AS c FROM s WHERE k IN (SELECT x FROM LATEST(hot))": "there is no column 'x'",
    "k, count(*) AS c FROM s WHERE EXISTS (SELECT 1 FROM LATEST(hot) h WHERE h.k = s.k)":
    "knows the tables that it reads and nothing of the record",
    "k, count(*) AS c FROM s WHERE n IN (SELECT result_end FROM LATEST(hot))": "annot compare",
    "k, count(*) AS c FROM s WHERE k IN (SELECT k FROM LATEST(nobody))": "unknown job 'nobody'",
    f"k IN ({LATEST}) AS p, count(*) AS c FROM s GROUP BY p,": "named first: FROM",
    f"count(*) AS c FROM s GROUP BY k IN ({LATEST}),": "named first: FROM",
}  # fmt: skip


@pytest.mark.parametrize("query", WRONG)
def test_what_cannot_be_looked_up_is_refused(query: str) -> None:
    text = JOB.format(query).replace(", GROUP BY k", ", k")
    with pytest.raises(LanguageError, match=WRONG[query]):
        sql(JOBS + text)


def test_files_are_looked_into_too_but_not_by_agents(tmp_path: Path) -> None:
    (tmp_path / "known.csv").write_text("k\na\n")
    table = f"CREATE TABLE known FROM '{tmp_path}/known.csv';"
    query = "CREATE JOB j AS SELECT count(*) AS c FROM s WHERE k IN (SELECT known.k FROM known)"
    text = f"{JOBS}{table}{query} WINDOW 10 SECONDS;"
    (looked,) = sql(text).jobs["j"].tables
    assert looked.name == "known"
    with pytest.raises(LanguageError, match="agents do not have this table"):
        sql(text.replace("'x/{source}.jsonl'", "AGENTS 'host:1'"))


def test_explain_shows_what_is_looked_up_and_where() -> None:
    told = explain(sql(JOBS + JOB.format(POSSIBLE[0])))
    assert "  look-up  __l1: k IN (SELECT k FROM LATEST(hot))\n" in told
    assert "           in the newest result of job hot: 10 seconds\n" in told
    assert "on false" not in told.partition("compute:")[0]
