"""Which panes and which smaller windows make up a window with the least work.

Every complete window can be formed from panes, from smaller complete windows inside it, or
from both, as long as each pane is covered once. The cheapest cover is a shortest path over
the boundaries of complete windows: an edge is such a window, or all panes up to the next
boundary, and its weight is the number of rows that merging it touches, known only while running.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from muntin.model.jobs import Job
from muntin.windows.spec import MOST_PANES, on_one_grid

Numbers = NDArray[np.int64]


def share_panes(jobs: Mapping[str, Job]) -> dict[str, Job]:
    """The jobs with one size of panes wherever they differ in nothing else of their shape.

    Jobs whose windows fit the grid of those before them only with far too many panes get their
    own, and so does every job whose panes are part of its meaning: a job that is added at the end
    changes the identity of no other.
    """
    families: dict[tuple[str, str], list[Job]] = {}  # by stream and shape
    for job in jobs.values():
        family = families.setdefault((job.stream, replace(job.shape, alone=False).id), [])
        specs = on_one_grid(spec for each in (*family, job) for spec in each.windows)
        if family and any(spec.length > MOST_PANES for spec in specs):
            apart = replace(job, shape=replace(job.shape, alone=True))
            families.setdefault((job.stream, apart.shape.id), []).append(apart)
        else:
            family.append(job)
    shared: dict[str, Job] = {}
    for family in families.values():
        specs = on_one_grid(spec for job in family for spec in job.windows)
        for job in family:
            mine, specs = specs[: len(job.windows)], specs[len(job.windows) :]
            pane = mine[0].pane if mine else 0
            shared[job.name] = replace(job, shape=replace(job.shape, pane=pane), windows=mine)
    return {name: shared[name] for name in jobs}


class Tile(NamedTuple):
    """A complete window over the panes [start, end), of the `number`-th kind that was made."""

    start: int
    end: int
    number: int


@dataclass(frozen=True, eq=False)
class Cover:
    """What a window is made of: panes, by their numbers, and complete windows."""

    panes: Numbers
    windows: list[Tile]

    def __len__(self) -> int:
        return len(self.panes) + len(self.windows)


class Tiles:
    """What windows can be made of, with the rows of each; grows as windows are computed."""

    def __init__(self, panes: Numbers, rows: Numbers) -> None:
        """Takes the panes that have rows, in order, and how many rows each has."""
        self._panes = panes
        self._before = np.concatenate([[0], np.cumsum(rows)])  # rows of all panes before each
        self._rows: dict[Tile, int] = {}
        self._ending: dict[int, list[Tile]] = {}
        self._ends: list[int] = []

    def add(self, rows: Mapping[Tile, int]) -> None:
        for tile in rows:
            self._ending.setdefault(tile.end, []).append(tile)
        self._rows.update(rows)
        self._ends = sorted(self._ending)

    def cover(self, start: int, end: int) -> Cover:
        """Panes and windows with the fewest rows that have every pane of [start, end) once.

        The path stops where windows start and end. From one stop to the next there are only
        panes, which are taken together, however many they are.
        """
        ends = self._ends[bisect_right(self._ends, start) : bisect_right(self._ends, end)]
        ending = {at: [p for p in self._ending[at] if p.start >= start] for at in ends}
        starts = (tile.start for tiles in ending.values() for tile in tiles)
        stops = sorted({start, end, *ends, *starts})
        places = dict(zip(stops, self._panes.searchsorted(stops).tolist(), strict=True))
        least, last = {start: 0}, dict[int, Tile]()
        for before, at in pairwise(stops):
            rows = self._before[places[at]] - self._before[places[before]]
            least[at] = least[before] + int(rows)
            # Among equals the longest wins, which leaves fewer merges.
            for tile in sorted(ending.get(at, ()), reverse=True):
                cost = least[tile.start] + self._rows[tile]
                if cost <= least[at]:
                    least[at], last[at] = cost, tile
        return self._walk_back(stops, places, last)

    def _walk_back(
        self, stops: Sequence[int], places: Mapping[int, int], last: Mapping[int, Tile]
    ) -> Cover:
        """The path to the last stop: through a window that ends there, or the panes before it."""
        panes: list[Numbers] = [self._panes[:0]]
        windows = []
        before = dict(zip(stops[1:], stops, strict=False))
        at = stops[-1]
        while at != stops[0]:
            if at in last:
                windows.append(last[at])
                at = last[at].start
            else:
                panes.append(self._panes[places[before[at]] : places[at]])
                at = before[at]
        return Cover(np.concatenate(panes[::-1]), windows[::-1])
