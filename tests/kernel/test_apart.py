"""As many rows at once as a statement takes, and the rows that it never does."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from muntin.errors import BadValueError
from muntin.kernel.apart import Groups, apart, merged_apart, values_text

BAD = BadValueError("trying", "no", "")


@given(
    bad=st.sets(st.integers(0, 30)),
    count=st.integers(0, 30),
    together=st.integers(1, 30),
    most=st.integers(0, 30),
)
def test_all_that_is_good_is_made_once_and_in_order(
    bad: set[int], count: int, together: int, most: int
) -> None:
    def attempt(part: range) -> list[int]:
        if bad & set(part) or len(part) > together:  # what no one is to blame for alone
            raise BAD
        return list(part)

    made, refused = apart(count, attempt, lambda refused, _: refused >= most)
    wanted = sorted(bad & set(range(count)))
    assert [number for number, _ in refused] == wanted[:most]
    good = [number for several in made for number in several]
    upto = count if len(refused) < most else ([*wanted[:most], 0][most - 1] if most else 0)
    assert good[: len([n for n in good if n < upto])] == [n for n in range(upto) if n not in bad]


def test_what_stops_early_is_behind_what_counts() -> None:
    starts: list[int] = []

    def enough(refused: int, start: int) -> bool:
        starts.append(start)
        return start >= 2

    def attempt(part: range) -> int:
        if len(part) > 1:
            raise BAD
        return part.start

    assert apart(4, attempt, enough) == ([0, 1], [])
    assert max(starts) >= 2


def test_groups_are_told_apart_by_values_of_any_type() -> None:
    rows = pa.table(
        {
            "k": [{"a": 1}, None, {"a": 1}, {"a": None}],
            "x": [0.0, float("nan"), -0.0, 1.0],
            "n": [1, 2, 3, 4],
        }
    )
    groups = Groups.of(rows, ["k", "x"])
    assert sorted(groups.rows(range(i, i + 1))["n"].to_pylist() for i in range(len(groups))) == [
        [1, 3],
        [2],
        [4],
    ]
    assert len(Groups.of(rows, [])) == 1
    assert len(Groups.of(rows.slice(0, 0), [])) == len(Groups.of(rows.slice(0, 0), ["k"])) == 0


@pytest.mark.parametrize("bad", [[], ["b"], ["a", "b", "c"]])
def test_rows_that_cannot_be_merged_stay_as_they_are(bad: list[str]) -> None:
    rows = pa.table({"k": ["a", "b", "a", "c", "b"], "n": [1, 2, 3, 4, 5]})

    def merge(rows: pa.Table) -> pa.Table:
        if set(bad) & set(rows["k"].to_pylist()):
            raise BAD
        merged = rows.group_by("k", use_threads=False).aggregate([("n", "sum")])
        return merged.rename_columns(["k", "n"])

    found = sorted(
        map(tuple, (row.values() for row in merged_apart(rows, ["k"], merge).to_pylist()))
    )
    known = {"a": [1, 3], "b": [2, 5], "c": [4]}
    wanted = [(k, n) for k, ns in known.items() for n in (ns if k in bad else [sum(ns)])]
    assert found == sorted(wanted)


def test_values_are_shown_in_few_words() -> None:
    row = pa.table({"s": ["x" * 500], "n": [None], "e": ["\x1b[0m"]}).cast(
        pa.schema([("s", pa.string()), ("n", pa.int64()), ("e", pa.string())])
    )
    shown = values_text(row, {"s": "path", "n": "n", "e": "e"})
    assert shown == f"path = '{'x' * 200}…', n = NULL, e = '\\x1b[0m'"
    assert values_text(row, {}) == ""
