"""Windows of one key over anything that merges, by merging alone or by adding and removing.

A part is in every window whose end lies in `[first, last]`. Parts of a pane, parts that are
late for some windows and parts of one window alone are all of this form.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")
Merged = TypeVar("Merged")


@dataclass(frozen=True)
class Part(Generic[T]):
    first: int
    last: int
    value: T


def by_merging(
    parts: Sequence[Part[T]], ends: Sequence[int], merge: Callable[[Sequence[T]], Merged]
) -> Iterator[tuple[int, Merged]]:
    """Every window is merged from all of its parts; windows without any are left out."""
    for end, _, _, inside in _moves(parts, ends):
        if inside:
            yield end, merge([part.value for part in inside])


def by_removing(
    parts: Sequence[Part[T]],
    ends: Sequence[int],
    merge: Callable[[Sequence[T]], T],
    remove: Callable[[T, T], T],
) -> Iterator[tuple[int, T]]:
    """From window to window, what enters is added and what has left is removed."""
    whole: list[T] = []
    for end, new, gone, inside in _moves(parts, ends):
        if len(new) == len(inside):  # nothing stays, so nothing has to be removed
            whole, gone = [], []
        if new:
            whole = [merge([*whole, *(part.value for part in new)])]
        for part in gone:
            whole = [remove(whole[0], part.value)]
        if inside:
            yield end, whole[0]


_Parts = list[Part[T]]


def _moves(
    parts: Sequence[Part[T]], ends: Sequence[int]
) -> Iterator[tuple[int, _Parts[T], _Parts[T], _Parts[T]]]:
    """For each window: the parts that are new in it, that have left, and that are inside."""
    coming = sorted(parts, key=lambda part: part.first)
    inside: list[Part[T]] = []
    at = 0
    for end in ends:
        start = at
        while at < len(coming) and coming[at].first <= end:
            at += 1
        new = [part for part in coming[start:at] if part.last >= end]
        gone = [part for part in inside if part.last < end]
        inside = [part for part in inside if part.last >= end] + new
        yield end, new, gone, inside
