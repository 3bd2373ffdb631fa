"""Shared partials or separate state: which is cheaper for the windows of one shape.

Shared: every record is grouped once, into its pane, and windows are merged from panes. Separate:
every record is grouped once for each window that holds it, and a window is done when it ends.
Sharing wins by far when windows overlap and keys repeat. It loses when there are nearly as many
keys as records, so that panes are no smaller than what went into them.

The model counts seconds a record, from what grouping a record and merging a row were measured to
take. How many rows a window would have follows Heaps' law: if `records` of a pane have `rows`
keys, n times the records have n**b times the keys, where records**b = rows. Small batches say
nothing of that: what they take is mostly the start of statements.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import log
from typing import Literal

from muntin.windows.spec import WindowSpec

Sharing = Literal["auto", "shared", "separate"]

_WORTH_CHANGING = 0.8  # what the other choice may cost, of the present one's, to be taken at first
_ENOUGH = 1000  # records or rows of a batch: with fewer, the time is not theirs
_MEMORY = 0.7  # of what is known, after each new measurement


@dataclass(frozen=True)
class Measured:
    """What was seen while running; zero where nothing was yet."""

    records_a_pane: float = 0.0
    rows_a_pane: float = 0.0
    grouping_s: float = 0.0  # a record into one group
    merging_s: float = 0.0  # a row into one window

    def computed(
        self, panes: int, records: int, rows: int, groupings: int, seconds: float
    ) -> Measured:
        """With one more batch, computed as panes: `rows` is zero if it was not."""
        if records < _ENOUGH or not panes:
            return self
        known = replace(self, grouping_s=_mix(self.grouping_s, seconds / records / groupings))
        if not rows:
            return known
        return replace(
            known,
            records_a_pane=_mix(self.records_a_pane, records / panes),
            rows_a_pane=_mix(self.rows_a_pane, rows / panes),
        )

    def merged(self, rows: int, seconds: float) -> Measured:
        if rows < _ENOUGH:
            return self
        return replace(self, merging_s=_mix(self.merging_s, seconds / rows))


def _mix(known: float, new: float) -> float:
    return new if not known else _MEMORY * known + (1 - _MEMORY) * new


@dataclass(frozen=True)
class Choice:
    separate: bool = False
    reason: str = "nothing is measured yet"
    changes: int = 0  # until now; each makes the next one harder, so that they come to an end


def choose(windows: Sequence[WindowSpec], seen: Measured, now: Choice, wish: Sharing) -> Choice:
    """The cheaper choice from here on; the present one unless the other is clearly cheaper."""
    if wish != "auto":
        return Choice(wish == "separate", "as the setting says")
    if not (seen.grouping_s and seen.merging_s and seen.records_a_pane):
        return now
    shared, separate = shared_s(windows, seen), separate_s(windows, seen)
    mine, other = (separate, shared) if now.separate else (shared, separate)
    changed = other < mine * _WORTH_CHANGING ** (1 + now.changes)
    reason = (
        f"shared {shared * 1e6:,.2f} µs a record, separate {separate * 1e6:,.2f} µs, with "
        f"{seen.rows_a_pane:,.0f} keys in {seen.records_a_pane:,.0f} records of a pane"
    )
    return Choice(now.separate != changed, reason, now.changes + changed)


def shared_s(windows: Sequence[WindowSpec], seen: Measured) -> float:
    """Seconds a record: one grouping, and its share of the merges of panes into windows."""
    rows = seen.rows_a_pane / seen.records_a_pane
    return seen.grouping_s + rows * seen.merging_s * sum(_touches(w) for w in windows)


def separate_s(windows: Sequence[WindowSpec], seen: Measured) -> float:
    """Seconds a record: a grouping for every window it is in, and its share of their rows."""
    return sum(
        w.overlap * (seen.grouping_s + _rows_a_record(w, seen) * seen.merging_s) for w in windows
    )


def _touches(window: WindowSpec) -> int:
    """How often a row of a pane is merged: into each window, or in and out once each."""
    return min(window.overlap, 2) if window.length > 1 else 1


def _rows_a_record(window: WindowSpec, seen: Measured) -> float:
    records, rows = seen.records_a_pane, seen.rows_a_pane
    growth = log(rows) / log(records) if records > 1 and rows > 1 else 0.0
    in_window: float = rows * window.length**growth
    return in_window / (records * window.length)
