"""Sets of keys: what DuckDB makes of ROLLUP, CUBE and GROUPING SETS."""

from __future__ import annotations

import pytest

from muntin.language.script import Script
from muntin.language.sets import count_sets, key_sets


@pytest.mark.parametrize(
    ("keys", "sets"),
    [
        ("a, b", ["ab"]),
        ("ROLLUP (a, b)", ["ab", "a", ""]),
        ("CUBE (a, b)", ["ab", "a", "b", ""]),
        ("GROUPING SETS ((a, b), c, ())", ["ab", "c", ""]),
        ("a, ROLLUP (b, (c, d))", ["abcd", "ab", "a"]),
        ("GROUPING SETS (ROLLUP (a, b), (c))", ["ab", "a", "", "c"]),
        ("ROLLUP (a), CUBE (b)", ["ab", "a", "b", ""]),
        ("(a, b), GROUPING SETS ((c), ())", ["abc", "ab"]),
    ],
)
def test_sets_of_a_group_by(keys: str, sets: list[str]) -> None:
    script = Script(f"CREATE JOB j AS SELECT 1 FROM t GROUP BY {keys} WINDOW 1 DAY")
    group = script.statements[0].args["query"].args["group"]
    assert ["".join(key.name for key in each) for each in key_sets(group)] == sets
    assert count_sets(group) == len(sets)
