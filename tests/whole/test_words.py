"""Wrong queries of all sorts are told of in the user's words, when written and when they run."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from muntin.errors import LanguageError
from muntin.language.program import sql
from muntin.run.inline import windows_inline

OURS = re.compile(
    r"__\w+|\bp\d\.\w+|\b[akcs]\d+\b|floor_div|one_number|INT\d+\b|LITERAL|FROM clause|values list"
)
WRONG = """
SELECT k, count(*) // k FROM s GROUP BY k
SELECT k, sum(n) BETWEEN k AND 3 FROM s GROUP BY k
SELECT count(*) FROM s WHERE n BETWEEN k AND r
SELECT k FROM s GROUP BY k HAVING sum(n) LIKE 3
SELECT k, sum(k) FROM s GROUP BY k
SELECT r.b, count(*) FROM s GROUP BY 1
SELECT foo(k), count(*) FROM s GROUP BY 1
SELECT k, foo(count(*)) FROM s GROUP BY 1
SELECT k, lower(count(*), 3) FROM s GROUP BY 1
SELECT k, min(k) - max(k) FROM s GROUP BY 1
SELECT k, count(*) AS c FROM s GROUP BY k ORDER BY d
SELECT k, count(*) AS c FROM s GROUP BY k ORDER BY c + 'x'
SELECT k, count(*) AS c FROM s GROUP BY k HAVING c > DATE 'x'
SELECT q.k, count(*) FROM s GROUP BY q.k
WITH r AS (SELECT k, count(*) AS c FROM s GROUP BY k) SELECT z FROM r
WITH r AS (SELECT k, count(*) AS c FROM s GROUP BY k) SELECT r.z FROM r
WITH r AS (SELECT k, count(*) AS c FROM s GROUP BY k) SELECT c + k FROM r
SELECT sum(c) OVER (ORDER BY zz) FROM (SELECT k, count(*) AS c FROM s GROUP BY k)
SELECT k, sum(count(*)) OVER (ORDER BY n) FROM s GROUP BY k
SELECT k, count(*) - lag(k) OVER (ORDER BY k) FROM s GROUP BY k
SELECT k, count(*) FROM s GROUP BY k QUALIFY row_number() OVER () + k
SELECT max(c) - min(kk) FROM (SELECT k AS kk, count(*) AS c FROM s GROUP BY k)
SELECT lower(u), count(*) FROM s, unnest(n) AS q(u) GROUP BY 1
SELECT u + k, count(*) FROM s, unnest(l) AS q(u) GROUP BY 1
SELECT k, count(*) FROM s GROUP BY k UNION ALL SELECT n, count(*), 1 FROM s GROUP BY n
SELECT k[1:'a'], count(*) FROM s GROUP BY 1
SELECT CASE WHEN k THEN 1 ELSE 'a' END, count(*) FROM s GROUP BY 1
SELECT k::FOO, count(*) FROM s GROUP BY 1
SELECT extract(foo FROM ts), count(*) FROM s GROUP BY 1
SELECT date_trunc('hour', k), count(*) FROM s GROUP BY 1
SELECT quantile(k, 0.5) + 1 FROM s
SELECT list_transform(list(n), lambda e: e + k) FROM s GROUP BY k
SELECT stddev(k) FROM s
SELECT list(n LIMIT 0) FROM s
SELECT sum(n LIMIT 3) FROM s
SELECT k COLLATE foo, count(*) FROM s GROUP BY 1
SELECT n COLLATE nocase, count(*) FROM s GROUP BY 1
SELECT count(*) + window_start FROM s
SELECT k ~ n, count(*) FROM s GROUP BY 1
SELECT (k, n) + 1, count(*) FROM s GROUP BY 1
SELECT greatest(sum(n), k) FROM s GROUP BY k
SELECT substr(k, sum(n), k) FROM s GROUP BY k
SELECT sum(n)[1] FROM s
""".strip().splitlines()
FAILING = """
SELECT k, sum(n) // (count(*) - 4) AS q FROM s GROUP BY k
SELECT k, sum(n) // (count(DISTINCT k) - 1) AS q FROM s GROUP BY k
SELECT k, CAST(min(z) AS INT) AS q FROM s GROUP BY k
SELECT k, count(*) AS c FROM s GROUP BY k HAVING CAST(max(z) AS INT) > 1
SELECT k, max(n)::TINYINT * 100::TINYINT AS q FROM s GROUP BY k
SELECT k, sum(n * 4611686018427387904) AS q FROM s GROUP BY k
SELECT k, count(*) AS c, sum(CAST(min(z) AS INT)) OVER () AS d FROM s GROUP BY k
WITH r AS (SELECT k, min(z) AS zz FROM s GROUP BY k) SELECT (SELECT k FROM r)
SELECT u // (u - 1), count(*) FROM s, unnest(l) AS q(u) GROUP BY 1
SELECT k, count(*) FROM s GROUP BY k UNION ALL SELECT CAST(z AS INT)::VARCHAR, 1 FROM s GROUP BY 1
SELECT k COLLATE NOCASE AS k, CAST(min(z) AS INT) AS i FROM s GROUP BY 1
SELECT k, list(z)[1]::INT AS i FROM s GROUP BY k
""".strip().splitlines()


def stream(folder: Path) -> str:
    rows = (
        {"t": i, "k": "ab"[i % 2], "n": i, "l": [1, i], "r": {"a": i}, "z": "no", "ts": "soon"}
        for i in range(8)
    )
    (folder / "web.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return f"CREATE STREAM s FROM '{folder}/web.jsonl' FORMAT json TIMESTAMP t IN SECONDS;"


@pytest.mark.parametrize("query", WRONG)
def test_a_wrong_query_is_refused_in_the_users_words(tmp_path: Path, query: str) -> None:
    with pytest.raises(LanguageError) as found:
        sql(f"{stream(tmp_path)} CREATE JOB j AS {query} WINDOW 1 HOUR")
    assert not OURS.search(found.value.message), found.value.message


@pytest.mark.parametrize("query", FAILING)
def test_what_fails_when_it_runs_is_told_in_the_users_words(tmp_path: Path, query: str) -> None:
    notes: list[str] = []
    program = sql(f"{stream(tmp_path)} CREATE JOB j AS {query} WINDOW 1 HOUR")
    list(windows_inline(program, notes.append))
    assert notes
    for note in notes:
        assert not OURS.search(note), note
        assert not note.endswith(": "), note
