"""When a window leaves: complete, in time, good enough, or because waiting is of no use."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from muntin.fidelity.score import C2, Board, Cells, Only, Reason, State, is_counted
from muntin.fidelity.scoreboard import Moment
from muntin.model.jobs import Bounds, Form


@dataclass(frozen=True)
class Policy:
    """A job's bounds, applied to one window after another at one moment.

    `lead_us` is how long before a deadline a window has to set off to be there in time, and
    deadlines before `started_us` do not count. Of finite input all that is awaited will come, so
    that it is known at once which panes are enough: the earliest.
    """

    bounds: Bounds
    board: Board
    at: Moment
    is_time: bool
    started_us: int
    lead_us: int = 0
    finite: bool = False

    def decide(self, start: int, end: int, end_position: int) -> C2 | None:
        """Whether the window of panes `[start, end)` leaves now."""
        cells = self.board.cells(start, end)
        reason = self._reason(cells, end, end_position)
        return None if reason is None else self._scored(cells, start, reason)

    def scored(self, start: int, end: int, reason: Reason) -> C2:
        """The score of a window that leaves for a reason that is known already."""
        return self._scored(self.board.cells(start, end), start, reason)

    def _scored(self, cells: Cells, start: int, reason: Reason) -> C2:
        only = None
        if reason is Reason.FIDELITY:
            enough = self._enough(cells)
            if enough is not None:
                only = Only(panes=tuple((start + np.flatnonzero(enough)).tolist()), settled=True)
            else:
                only = _only(self.bounds.form, cells, start, self.board.sources)
        return self.board.scored(cells, start, reason, only)

    def _reason(self, cells: Cells, end: int, end_position: int) -> Reason | None:
        counted = is_counted(cells)
        merged, awaited = cells == State.MERGED, cells == State.AWAITED
        enough = self._enough(cells)
        if enough is not None:
            return None if awaited[:, enough].any() else Reason.FIDELITY
        if bool((merged == counted).all()) and self._is_over(end, end_position):
            return Reason.COMPLETE
        if self._is_good_enough(cells) and not (self.finite and awaited.any()):
            return Reason.FIDELITY
        if self.is_due(end_position):
            return Reason.DEADLINE
        hopeless = not self.finite and self._is_hopeless(cells) and not self._is_unread(end)
        over = self._is_over(end, end_position)
        return Reason.EXHAUSTED if over and (hopeless or not awaited.any()) else None

    def _enough(self, cells: Cells) -> NDArray[np.bool_] | None:
        """The earliest panes of a window of finite input that are enough.

        None where all are needed, or all are not enough.
        """
        target, form = self.bounds.fidelity, self.bounds.form
        if not self.finite or target is None or form not in ("area", "space") or not cells.size:
            return None
        counted = is_counted(cells)
        possible = (cells == State.MERGED) | (cells == State.AWAITED)
        if form == "space":
            full = counted.any(axis=0) & (possible | ~counted).all(axis=0)
            parts, total = full.astype(np.int64), int(counted.any(axis=0).sum())
        else:
            parts, total = (possible & counted).sum(axis=0), int(counted.sum())
        reached = np.cumsum(parts) / max(1, total) >= target
        first = int(np.argmax(reached))
        if not reached[first]:
            return None
        enough: NDArray[np.bool_] = (np.arange(cells.shape[1]) <= first) & (parts > 0)
        return None if (enough | ~counted.any(axis=0)).all() else enough

    def is_due(self, end_position: int) -> bool:
        """Whether a window that ends there has to set off now."""
        if self.bounds.within_us is None:
            return False
        deadline, now_us = end_position + self.bounds.within_us, self.at.now_us
        near = deadline <= now_us + self.lead_us and end_position <= now_us
        return near and deadline > self.started_us

    def _is_over(self, end: int, end_position: int) -> bool:
        """Whether somebody, or the clock, has come to the end of the window."""
        if self.at.final or any(track.whole >= end for track in self.board.tracks.values()):
            return True
        return self.is_time and int(self.at.seen * 1e6) >= end_position

    def _is_good_enough(self, cells: Cells) -> bool:
        target = self.bounds.fidelity
        if target is None or not cells.size:
            return False
        if self.bounds.form == "sampled":  # all of the sample is what was asked for
            asked = is_counted(cells) & (cells != State.SKIPPED)
            return bool(asked.any() and (cells[asked] == State.MERGED).all())
        return _share(self.bounds.form, cells, cells == State.MERGED) >= target

    def _is_unread(self, end: int) -> bool:
        """Whether something of the window may lie there to be read, which is not waiting."""
        known = self.board.tracks
        return any(known[name].whole < end for name in self.at.behind if name in known)

    def _is_hopeless(self, cells: Cells) -> bool:
        """Whether the target is out of reach, whatever may still come."""
        target = self.bounds.fidelity
        if target is None or self.bounds.form == "sampled":
            return False
        possible = (cells == State.MERGED) | (cells == State.AWAITED)
        return _share(self.bounds.form, cells, possible) < target


def _share(form: Form, cells: Cells, there: NDArray[np.bool_]) -> float:
    """How much of a window is there, measured as the form of fidelity says."""
    counted = is_counted(cells)
    if form == "space":
        expected = counted.any(axis=0)
        full = expected & (there | ~counted).all(axis=0)
    elif form == "time":
        expected = counted.any(axis=1)
        full = expected & (there | ~counted).all(axis=1)
    else:
        expected, full = counted, there & counted
    return float(full.sum() / expected.sum()) if expected.any() else 0.0


def _only(form: Form, cells: Cells, start: int, sources: tuple[str, ...]) -> Only | None:
    """The panes, or sources, that are full, where the form of fidelity asks for such."""
    full = (cells == State.MERGED) | ~is_counted(cells)
    if form == "space":
        return Only(panes=tuple((start + np.flatnonzero(full.all(axis=0))).tolist()))
    if form == "time":
        return Only(sources=tuple(sources[i] for i in np.flatnonzero(full.all(axis=1))))
    return None
