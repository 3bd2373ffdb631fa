"""Coordinates as one key: bits of both in turn, so that what is near has keys that are near."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from muntin.errors import InputError

_BITS = 31  # of each coordinate: a key is a whole number of 64 bits, with a sign


@dataclass(frozen=True)
class ZOrder:
    """Parts of a rectangle, numbered in Z-order; `bits` of each coordinate are kept.

    Coordinates outside of the rectangle count as the nearest inside.
    """

    left: float
    bottom: float
    right: float
    top: float
    bits: int = 16

    def __post_init__(self) -> None:
        if not (self.left < self.right and self.bottom < self.top and 1 <= self.bits <= _BITS):
            raise InputError(
                "a Z-order is over a rectangle (left < right, bottom < top) with 1 to "
                f"{_BITS} bits a coordinate, not {self}"
            )

    def key(self, x: float, y: float) -> int:
        """The key of a place."""
        return int(self.keys(np.array([x]), np.array([y]))[0])

    def keys(self, xs: Any, ys: Any) -> np.ndarray[Any, np.dtype[np.int64]]:
        """The keys of places, given as two columns of coordinates."""
        x = self._cells(xs, self.left, self.right)
        y = self._cells(ys, self.bottom, self.top)
        return _spread(x) | (_spread(y) << 1)

    def cover(
        self, left: float, bottom: float, right: float, top: float, most: int = 8
    ) -> list[tuple[int, int]]:
        """Ranges `[lower, upper)` of keys, at most so many, that hold all places of a rectangle.

        Its border belongs to it. The fewer ranges, the more other places are in them, too.
        """
        if not (left <= right and bottom <= top):
            raise InputError(f"({left}, {bottom}) to ({right}, {top}) is no rectangle")
        x = self._cells([left, right], self.left, self.right)
        y = self._cells([bottom, top], self.bottom, self.top)
        box = (int(x[0]), int(y[0]), int(x[1]), int(y[1]))
        return list(_few(self._squares(box), most))

    def _cells(
        self, values: Any, lower: float, upper: float
    ) -> np.ndarray[Any, np.dtype[np.int64]]:
        cells = 1 << self.bits
        share = (np.asarray(values, float) - lower) / (upper - lower)
        if np.isnan(share).any():
            raise InputError("a coordinate is missing (NaN): there is no key for it")
        return np.clip(np.floor(share * cells), 0, cells - 1).astype(np.int64)

    def _squares(self, box: tuple[int, int, int, int]) -> Iterator[tuple[int, int]]:
        """Keys of the largest squares that are inside of the box, in order."""
        left, bottom, right, top = box

        def visit(x: int, y: int, level: int, first: int) -> Iterator[tuple[int, int]]:
            side = 1 << level
            if x > right or y > top or x + side <= left or y + side <= bottom:
                return
            inside = left <= x and bottom <= y and x + side - 1 <= right and y + side - 1 <= top
            if inside or level <= max(0, self.bits - _DEEP):
                yield first, first + side * side
                return
            half = side // 2
            for dy in (0, half):
                for dx in (0, half):
                    yield from visit(x + dx, y + dy, level - 1, first)
                    first += half * half

        yield from visit(0, 0, self.bits, 0)


_DEEP = 8  # how often a rectangle is quartered for a cover


def _few(ranges: Iterator[tuple[int, int]], most: int) -> Iterator[tuple[int, int]]:
    """At most so many ranges that hold all of these, given in order: small gaps close first."""
    joined: list[tuple[int, int]] = []
    for lower, upper in ranges:
        if joined and joined[-1][1] == lower:
            joined[-1] = (joined[-1][0], upper)
        else:
            joined.append((lower, upper))
    gaps = ((joined[n + 1][0] - joined[n][1], n) for n in range(len(joined) - 1))
    open_ = {n for _, n in heapq.nlargest(max(1, most) - 1, gaps)}
    start = joined[0][0]
    for n, (_, upper) in enumerate(joined):
        if n in open_ or n == len(joined) - 1:
            yield start, upper
            start = joined[n + 1][0] if n + 1 < len(joined) else 0


def _spread(cells: np.ndarray[Any, np.dtype[np.int64]]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Each bit at twice its place."""
    spread = cells.astype(np.int64)
    for shift, mask in (
        (16, 0x0000FFFF0000FFFF),
        (8, 0x00FF00FF00FF00FF),
        (4, 0x0F0F0F0F0F0F0F0F),
        (2, 0x3333333333333333),
        (1, 0x5555555555555555),
    ):
        spread = (spread | (spread << shift)) & np.int64(mask)
    return spread
