"""Which panes and which smaller windows make up a window with the least work.

Every complete window can be formed from panes, from smaller complete windows inside it, or
from both, as long as each pane is covered once. The cheapest cover is a shortest path over
the boundaries of panes: an edge is a pane or a complete window, and its weight is the number
of rows that merging it touches, known only while running.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from muntin.model import Job, Shape
from muntin.windows.spec import WindowSpec, on_one_grid


def share_panes(jobs: Mapping[str, Job]) -> dict[str, Job]:
    """The jobs with one size of panes wherever they differ in nothing else of their shape."""
    alike: dict[Shape, list[Job]] = {}
    for job in jobs.values():
        alike.setdefault(replace(job.shape, pane=0), []).append(job)
    shared = {}
    for family in alike.values():
        specs = on_one_grid(spec for job in family for spec in job.windows)
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

    rows: dict[Piece, int]
    _ending: dict[int, list[Piece]]

    @classmethod
    def of_panes(cls, rows: Mapping[int, int]) -> Pieces:
        pieces = cls({}, {})
        pieces.add({Piece(pane, pane + 1): count for pane, count in rows.items()})
        return pieces

    def add(self, rows: Mapping[Piece, int]) -> None:
        for piece in rows:
            self._ending.setdefault(piece.end, []).append(piece)
        self.rows.update(rows)

    def cover(self, start: int, end: int) -> list[Piece]:
        """The pieces with the fewest rows that cover every pane of [start, end) with rows."""
        best: list[tuple[int, Piece | None]] = [(0, None)]
        for at in range(start + 1, end + 1):
            # A pane without rows costs nothing to pass.
            options: list[tuple[int, Piece | None]] = []
            if Piece(at - 1, at) not in self.rows:
                options.append((best[-1][0], None))
            for piece in self._ending.get(at, ()):
                if piece.start >= start:
                    cost = best[piece.start - start][0] + self.rows[piece]
                    options.append((cost, piece))
            best.append(min(options, key=_least))
        return _walk_back(best, start, end)


def _least(option: tuple[int, Piece | None]) -> tuple[int, int]:
    """Fewest rows; among equals the longest piece, which leaves the fewest merges."""
    cost, piece = option
    return cost, -(piece.end - piece.start if piece else 0)


def _walk_back(best: Sequence[tuple[int, Piece | None]], start: int, end: int) -> list[Piece]:
    found = []
    at = end
    while at > start:
        piece = best[at - start][1]
        if piece is None:
            at -= 1
        else:
            found.append(piece)
            at = piece.start
    return found[::-1]


def covers(pieces: Pieces, spec: WindowSpec, ends: Iterable[int]) -> dict[int, list[Piece]]:
    """The cheapest pieces of every window, by its end."""
    return {end: pieces.cover(end - spec.length, end) for end in ends}
