"""Windows of one key over anything that merges, by merging alone or by adding and removing.

An entry is in every window whose end lies in `[first, last]`. Entries of a pane, entries that are
late for some windows and entries of one window alone are all of this form.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")
Merged = TypeVar("Merged")


@dataclass(frozen=True)
class Entry(Generic[T]):
    first: int
    last: int
    value: T


def by_merging(
    entries: Sequence[Entry[T]], ends: Sequence[int], merge: Callable[[Sequence[T]], Merged]
) -> Iterator[tuple[int, Merged]]:
    """Every window is merged from all of its entries; windows without any are left out."""
    for end, _, _, inside in _moves(entries, ends):
        if inside:
            yield end, merge([entry.value for entry in inside])


def by_removing(
    entries: Sequence[Entry[T]],
    ends: Sequence[int],
    merge: Callable[[Sequence[T]], T],
    remove: Callable[[T, T], T],
) -> Iterator[tuple[int, T]]:
    """From window to window, what enters is added and what has left is removed."""
    whole: list[T] = []
    for end, new, gone, inside in _moves(entries, ends):
        if len(new) == len(inside):  # nothing stays, so nothing has to be removed
            whole, gone = [], []
        if new:
            whole = [merge([*whole, *(entry.value for entry in new)])]
        for entry in gone:
            whole = [remove(whole[0], entry.value)]
        if inside:
            yield end, whole[0]


_Entries = list[Entry[T]]


def _moves(
    entries: Sequence[Entry[T]], ends: Sequence[int]
) -> Iterator[tuple[int, _Entries[T], _Entries[T], _Entries[T]]]:
    """For each window: the entries that are new in it, that have left, and that are inside."""
    coming = sorted(entries, key=lambda entry: entry.first)
    inside: list[Entry[T]] = []
    at = 0
    for end in ends:
        start = at
        while at < len(coming) and coming[at].first <= end:
            at += 1
        new = [entry for entry in coming[start:at] if entry.last >= end]
        gone = [entry for entry in inside if entry.last < end]
        inside = [entry for entry in inside if entry.last >= end] + new
        yield end, new, gone, inside
