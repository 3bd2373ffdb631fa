"""What most values of a field are, against counting line by line."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muntin.kernel.engine import connection
from muntin.logs.structures import is_most, odd_fields, without

VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.just(1.5) | st.sampled_from(["x", "1"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("ab"), inner),
    max_leaves=4,
)
LINES = st.lists(st.dictionaries(st.sampled_from("ab"), VALUES), min_size=1, max_size=30)


def structure(line: str) -> str:
    return str(connection().execute("SELECT json_structure(?)", [line]).fetchall()[0][0])


def kind(value: Any) -> str:
    return "number" if type(value) in (int, float) else type(value).__name__


@given(LINES)
def test_odd_fields_are_those_of_another_kind_than_most(lines: list[dict[str, Any]]) -> None:
    texts = [json.dumps(line) for line in lines]
    odd = odd_fields(Counter(map(structure, texts)))
    for line, text in zip(lines, texts, strict=True):
        told = {path for path in odd.get(structure(text), []) if len(path) == 1}
        expected = set()
        for name, value in line.items():
            kinds = [kind(other[name]) for other in lines if other.get(name) is not None]
            mine = kinds.count(kind(value))
            most = max(map(kinds.count, kinds), default=0)
            if value is not None and mine < most and is_most(most, len(kinds)):
                expected.add((name,))
        assert told == expected


def test_nested_fields_are_looked_at_too() -> None:
    lines = ['{"a": {"b": 1}}'] * 9 + ['{"a": {"b": "x", "c": 2}}', '{"a": null}']
    odd = odd_fields(Counter(map(structure, lines)))
    assert odd == {structure(lines[9]): [("a", "b")]}
    assert without(lines[9], [("a", "b")]) == '{"a": {"b": null, "c": 2}}'


@pytest.mark.parametrize(
    ("some", "total", "most"),
    [(0, 0, False), (1, 1, True), (1, 2, False), (2, 3, False), (3, 4, True), (18, 20, True),
     (17, 20, False), (9, 11, False), (10, 11, True), (900, 1000, True), (899, 1000, False)],
)  # fmt: skip
def test_most(some: int, total: int, most: bool) -> None:
    assert is_most(some, total) == most
