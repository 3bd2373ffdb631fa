"""Both ways of sliding give what merging each window from scratch gives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from muntin.windows.sliding import Entry, by_merging, by_removing


def part(first: int, length: int, letters: str) -> Entry[Counter[str]]:
    return Entry(first, first + length, Counter(letters))


letters = st.text("abc", min_size=1, max_size=4)
parts = st.lists(st.builds(part, st.integers(-20, 40), st.integers(0, 15), letters), max_size=20)
ends = st.sets(st.integers(-25, 60), min_size=1).map(sorted)


def merge(values: list[Counter[str]]) -> Counter[str]:
    return sum(values, Counter())


def remove(whole: Counter[str], part: Counter[str]) -> Counter[str]:
    assert whole & part == part, "only what was added is ever removed"
    return whole - part


def from_scratch(
    found: list[Entry[Counter[str]]], due: list[int]
) -> list[tuple[int, Counter[str]]]:
    windows = [(e, [p.value for p in found if p.first <= e <= p.last]) for e in due]
    return [(end, merge(values)) for end, values in windows if values]


@given(parts, ends)
def test_windows_are_the_merge_of_their_parts(
    found: list[Entry[Counter[str]]], due: list[int]
) -> None:
    expected = from_scratch(found, due)
    assert list(by_merging(found, due, lambda values: merge(list(values)))) == expected
    removing = by_removing(found, due, lambda values: merge(list(values)), remove)
    assert list(removing) == expected


def test_a_part_is_added_and_removed_once() -> None:
    merged: list[int] = []
    removed: list[int] = []

    def add(values: Sequence[int]) -> int:
        merged.append(len(values))
        return sum(values)

    def take_out(whole: int, part: int) -> int:
        removed.append(part)
        return whole - part

    found = [Entry(pane + 1, pane + 10, pane) for pane in range(100)]
    windows = by_removing(found, list(range(10, 100)), add, take_out)
    assert list(windows) == [(end, sum(range(end - 10, end))) for end in range(10, 100)]
    assert sum(merged) <= 10 + 2 * 89
    assert removed == list(range(89))
