"""Which panes and which smaller windows make up a window with the least work.

Every complete window can be formed from panes, from smaller complete windows inside it, or
from both, as long as each pane is covered once. The cheapest cover is a shortest path over
the boundaries of panes: an edge is a pane or a complete window, and its weight is the number
of rows that merging it touches, known only while running.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from muntin.model import Job, Shape
from muntin.windows.spec import MOST_PANES, WindowSpec, on_one_grid


def share_panes(jobs: Mapping[str, Job]) -> dict[str, Job]:
    """The jobs with one size of panes wherever they differ in nothing else of their shape.

    Jobs whose windows fit one grid only with far too many panes keep their own.
    """
    alike: dict[Shape, list[Job]] = {}
    for job in jobs.values():
        alike.setdefault(replace(job.shape, pane=0), []).append(job)
    shared: dict[str, Job] = {}
    for family in alike.values():
        specs = on_one_grid(spec for job in family for spec in job.windows)
        # A span counts once in every pane that it touches, so its panes are part of the answer.
        touched = family[0].shape.spans == "touch"
        if touched or any(spec.length > MOST_PANES for spec in specs):
            shared |= {job.name: job for job in family}
            continue
        for job in family:
            mine, specs = specs[: len(job.windows)], specs[len(job.windows) :]
            pane = mine[0].pane if mine else 0
            shared[job.name] = replace(job, shape=replace(job.shape, pane=pane), windows=mine)
    return {name: shared[name] for name in jobs}


class Piece(NamedTuple):
    """The panes [start, end): one pane, or a complete window of the given number."""

    start: int
    end: int
    window: int = -1  # which of the windows computed before; -1 is a pane


@dataclass
class Pieces:
    """What windows can be made of, with the rows of each; grows as windows are computed."""

    rows: dict[Piece, int] = field(default_factory=dict)
    _ending: dict[int, list[Piece]] = field(default_factory=dict)
    _ends: list[int] = field(default_factory=list)

    @classmethod
    def of_panes(cls, rows: Mapping[int, int]) -> Pieces:
        pieces = cls()
        pieces.add({Piece(pane, pane + 1): count for pane, count in rows.items()})
        return pieces

    def add(self, rows: Mapping[Piece, int]) -> None:
        for piece in rows:
            self._ending.setdefault(piece.end, []).append(piece)
        self.rows.update(rows)
        self._ends = sorted(self._ending)

    def cover(self, start: int, end: int) -> list[Piece]:
        """The pieces with the fewest rows that cover every pane of [start, end) with rows.

        Only ends of pieces are looked at: panes without rows cost nothing to pass.
        """
        stops = [
            start,
            *self._ends[bisect_right(self._ends, start) : bisect_right(self._ends, end)],
        ]
        best: list[tuple[int, Piece | None]] = [(0, None)]
        for at in stops[1:]:
            options: list[tuple[int, Piece | None]] = []
            if Piece(at - 1, at) not in self.rows:
                options.append((best[-1][0], None))
            for piece in self._ending[at]:
                if piece.start >= start:
                    cost = best[_stop(stops, piece.start)][0] + self.rows[piece]
                    options.append((cost, piece))
            best.append(min(options, key=_least))
        return _walk_back(best, stops)


def _stop(stops: Sequence[int], at: int) -> int:
    """The last stop at or before a boundary; between the two there are no rows."""
    return bisect_right(stops, at) - 1


def _least(option: tuple[int, Piece | None]) -> tuple[int, int]:
    """Fewest rows; among equals the longest piece, which leaves the fewest merges."""
    cost, piece = option
    return cost, -(piece.end - piece.start if piece else 0)


def _walk_back(best: Sequence[tuple[int, Piece | None]], stops: Sequence[int]) -> list[Piece]:
    found = []
    at = len(stops) - 1
    while at > 0:
        piece = best[at][1]
        if piece is not None:
            found.append(piece)
        at = at - 1 if piece is None else _stop(stops, piece.start)
    return found[::-1]


def covers(pieces: Pieces, spec: WindowSpec, ends: Iterable[int]) -> dict[int, list[Piece]]:
    """The cheapest pieces of every window, by its end."""
    return {end: pieces.cover(end - spec.length, end) for end in ends}
