"""SQL laid out for reading."""

from __future__ import annotations

import pytest

from muntin.language.layout import laid_out


def lines(text: str) -> list[str]:
    return text.strip("\n").split("\n")


def test_what_fits_stays_on_one_line() -> None:
    assert laid_out("SELECT a,\n  b\nFROM t", indent=2) == ["  SELECT a, b FROM t"]


def test_clauses_start_lines_and_lists_fill_them() -> None:
    sql = "SELECT first, second, third, CAST(fourth AS BIGINT) AS c FROM t WHERE a GROUP BY ALL"
    assert laid_out(sql, indent=2, width=34) == lines(
        """
  SELECT first, second, third,
    CAST(fourth AS BIGINT) AS c
  FROM t
  WHERE a
  GROUP BY ALL
"""
    )


def test_subqueries_stand_deeper() -> None:
    sql = (
        "WITH x AS (SELECT a FROM t), y AS (SELECT a, b, c, d, e FROM (SELECT * FROM t)) "
        "SELECT * FROM x LEFT JOIN y ON x.a IS NOT DISTINCT FROM y.a UNION ALL SELECT 1"
    )
    assert laid_out(sql, width=36) == lines(
        """
WITH x AS (SELECT a FROM t),
y AS (
  SELECT a, b, c, d, e
  FROM (SELECT * FROM t)
)
SELECT *
FROM x
LEFT JOIN y ON x.a IS NOT DISTINCT FROM y.a
UNION ALL
SELECT 1
"""
    )


@pytest.mark.parametrize("width", [1, 20, 60, 100])
def test_only_white_space_changes(width: int) -> None:
    sql = (
        "SELECT left(a, 2), 'FROM  x', (SELECT max(w) FROM due) AS m FROM "
        "(SELECT * FROM (SELECT a, extract(year FROM b) FROM t)) "
        "WHERE a IN ('(', ',') QUALIFY row_number() OVER (ORDER BY a) <= 3"
    )
    laid = " ".join(laid_out(sql, width=width))
    assert laid.replace(" ", "") == sql.replace(" ", "")
    assert "'FROM  x'" in laid
