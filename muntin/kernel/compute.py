"""Records to blocks: the same function in an agent, in a Spark task and inline.

Lateness is exact. A source's stream time is the largest position read so far in log order; a
record's mark is that less the slack; windows that end at or before the mark leave the record
out. `since` carries the stream time into a piece of log, so pieces of any size agree.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from muntin.kernel.engine import run
from muntin.kernel.statements import compute_sql
from muntin.model import MARK, POSITION, Job, Tally

Positions = NDArray[np.int64]
_NONE = np.iinfo(np.int64).min


@dataclass(frozen=True)
class Computed:
    """The blocks of one piece of log, by job, and what was counted on the way."""

    blocks: dict[str, pa.Table]
    tallies: tuple[Tally, ...]
    records: int
    bad: int
    first_us: int | None
    last_us: int | None


@dataclass
class Clock:
    """A source's stream time while its log is read.

    Bad rows count where the stream stood when they were met. Those before the first record
    with a time are `waiting` for it.
    """

    stream_time: int | None = None
    slack_us: int | None = None
    waiting: int = 0

    def advance(self, positions: Positions) -> Positions:
        """The stream time at each record, ending with the last one's."""
        start = _NONE if self.stream_time is None else self.stream_time
        times = np.maximum.accumulate(np.maximum(positions, start))
        if len(times) and times[-1] != _NONE:
            self.stream_time = int(times[-1])
        return times

    def place(self, met: Positions, times: Positions) -> Positions:
        """The stream times at which bad rows count, given those at which they were met."""
        self.waiting += int((met == _NONE).sum())
        known = times[times != _NONE]
        placed: Positions = met[met != _NONE]
        if self.waiting and len(known):
            placed = np.concatenate([np.full(self.waiting, known[0]), placed])
            self.waiting = 0
        return placed


def compute(
    records: pa.Table,
    source: str,
    jobs: Sequence[Job],
    clock: Clock,
    broken: Iterable[int] = (),
) -> Computed:
    """The blocks of one piece of log. Rows with a null position are bad, as are `broken` ones."""
    column = records.column(POSITION).combine_chunks()
    valid = np.asarray(column.is_valid())
    positions: Positions = np.asarray(column.fill_null(_NONE))
    before = _NONE if clock.stream_time is None else clock.stream_time
    times = clock.advance(positions)
    met = _met(before, times, np.flatnonzero(~valid), list(broken))
    bad_times = clock.place(met, times)
    good = records if valid.all() else records.filter(pa.array(valid))
    positions, times = positions[valid], times[valid]
    late = clock.slack_us is not None and bool((times - clock.slack_us > positions).any())
    marks = times - clock.slack_us if late and clock.slack_us is not None else None
    if marks is not None:
        good = good.append_column(MARK, pa.array(marks))
    blocks = {
        job.name: run(compute_sql(job, late), {"records": good}, f"computing job {job.name}")
        for job in jobs
    }
    sizes = {job.window.pane_us for job in jobs}
    return Computed(
        blocks={name: block for name, block in blocks.items() if block.num_rows},
        tallies=tuple(
            tally
            for size in sizes
            for tally in _tallies(source, size, positions, marks, times, bad_times)
        ),
        records=len(positions),
        bad=len(met),
        first_us=int(positions.min()) if len(positions) else None,
        last_us=int(positions.max()) if len(positions) else None,
    )


def _met(before: int, times: Positions, rows: Positions, broken: list[int]) -> Positions:
    """The stream time when each bad row was met: that of the last row before it."""
    rows_before = [row - i for i, row in enumerate(sorted(broken))]
    at = np.concatenate([rows, np.array(rows_before, np.int64)])
    met: Positions = np.concatenate([np.array([before]), times])[at]
    return met


def _tallies(
    source: str,
    size: int,
    positions: Positions,
    marks: Positions | None,
    times: Positions,
    bad_times: Positions,
) -> Iterable[Tally]:
    counted = _count(positions // size, _not_before(positions // size, marks, size), times)
    for (pane, not_before), (records, stream_time) in counted.items():
        yield Tally(source, size, pane, not_before, records, 0, stream_time)
    panes, bad = np.unique(bad_times // size, return_counts=True)
    for pane, count in zip(panes.tolist(), bad.tolist(), strict=True):
        yield Tally(source, size, pane, None, 0, count, pane * size)


def _not_before(panes: Positions, marks: Positions | None, size: int) -> Positions:
    if marks is None:
        return np.full(len(panes), _NONE)
    ends = marks // size
    return np.where(ends > panes, ends, _NONE)


def _count(
    panes: Positions, not_before: Positions, times: Positions
) -> dict[tuple[int, int | None], tuple[int, int]]:
    """Records and largest stream time of each (pane, not_before)."""
    pairs = np.stack([panes, not_before], axis=1)
    # Logs are nearly in order, so runs of equal pairs are long and few.
    starts = np.flatnonzero(np.r_[True, (pairs[1:] != pairs[:-1]).any(axis=1)])
    if not len(pairs):
        return {}
    sizes = np.diff(np.r_[starts, len(pairs)])
    tops = np.maximum.reduceat(times, starts)
    counted: dict[tuple[int, int | None], tuple[int, int]] = {}
    for (pane, mark), size, top in zip(
        pairs[starts].tolist(), sizes.tolist(), tops.tolist(), strict=True
    ):
        key = (pane, None if mark == _NONE else mark)
        records, time = counted.get(key, (0, top))
        counted[key] = (records + size, max(time, top))
    return counted


@dataclass
class Totals:
    """What several pieces of one order came to."""

    blocks: dict[str, list[pa.Table]] = field(default_factory=dict)
    tallies: list[Tally] = field(default_factory=list)
    records: int = 0
    bad: int = 0
    first_us: int | None = None
    last_us: int | None = None

    def add(self, piece: Computed) -> None:
        for name, block in piece.blocks.items():
            self.blocks.setdefault(name, []).append(block)
        self.tallies.extend(piece.tallies)
        self.records += piece.records
        self.bad += piece.bad
        self.first_us = _least(self.first_us, piece.first_us)
        self.last_us = _most(self.last_us, piece.last_us)


def _least(a: int | None, b: int | None) -> int | None:
    return b if a is None else a if b is None else min(a, b)


def _most(a: int | None, b: int | None) -> int | None:
    return b if a is None else a if b is None else max(a, b)
