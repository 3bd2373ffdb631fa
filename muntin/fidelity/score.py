"""C²: which sources are in which panes of a window, and what that comes to.

A board says for every source from which pane on it counts, up to where its panes are whole, and
what is to be expected of the others. Boards merge: what one of them knows of a source
and another knows too counts once, so it does not matter where and how often they meet.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum, StrEnum
from functools import cached_property
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from muntin.fidelity.sampling import sampled_of
from muntin.model.shapes import Sample
from muntin.units import percent

Cells = NDArray[np.uint8]  # a State for each source and pane
Mask = NDArray[np.bool_]
Numbers = NDArray[np.int64]
NEVER, EVER = -(1 << 62), 1 << 62


class State(IntEnum):
    """What a source has to do with a pane."""

    MERGED = 0
    SKIPPED = 1  # not in the sample
    SHED = 2  # dropped by its source, or by the pipeline, which had too much to do
    CANCELLED = 3  # dropped, as every window that holds it had left
    DEAD = 4  # its source gives no sign of life
    LEAPT = 5  # its source is far behind the others, which are not made to wait
    LATER = 6  # its source began after it, and is not counted
    REMOVED = 7  # its source had ended before it, and is not counted
    AWAITED = 8
    LOST = 9  # some of what its source wrote for it may not have been read, and never will be
    LATE = 10  # some of its records came too late for the window, which leaves them out


FIELDS = 1024
SIGNS = "█·sx†»  ░?<"
_WORDS = (
    "merged", "sampled out", "shed", "cancelled", "dead", "leapt", "", "", "awaited", "lost", "late"
)  # fmt: skip


def word(state: State) -> str:
    """What a state is called where something is missing."""
    return _WORDS[state]


def state_of(why: str) -> tuple[State, str]:
    """The state that the reason of something missing names, and what there is to say of it."""
    word, _, what = why.partition(": ")
    return State(_WORDS.index(word)), what


@dataclass(frozen=True)
class Only:
    """What of a window its result is made of, where that is not everything that was read."""

    panes: tuple[int, ...] | None = None
    sources: tuple[str, ...] | None = None
    settled: bool = False  # whether what is left out was settled before it was read
    state: State = State.CANCELLED  # of what is left out

    def narrowed(self, cells: Cells, start: int, names: Sequence[str]) -> Cells:
        """What was merged and is left out of the result counts as cancelled, or as it is said."""
        gone = cells == State.MERGED
        if self.settled:
            gone |= cells == State.AWAITED
        inside = self.inside(cells, start, names)
        return np.where(~inside & gone, np.uint8(self.state), cells)

    def inside(self, cells: Cells, start: int, names: Sequence[str]) -> Mask:
        inside = np.ones(cells.shape, bool)
        if self.panes is not None:
            inside &= np.isin(np.arange(start, start + cells.shape[1]), self.panes)
        if self.sources is not None:
            taken = set(self.sources)
            inside &= np.array([name in taken for name in names], bool)[:, None]
        return inside


class Reason(StrEnum):
    """Why a window has left."""

    COMPLETE = "complete"
    DEADLINE = "deadline"
    FIDELITY = "fidelity"
    EXHAUSTED = "exhausted"  # nothing more can come, or not enough
    SHED = "shed"  # its job takes too long to be answered in time: it has no rows
    OPEN = "open"  # it has not: its rows so far are shown, as they have changed


class Gap(NamedTuple):
    """Panes `[lower, upper)` that a source has not given or will not give, with what is to say."""

    lower: int
    upper: int
    state: State
    what: str = ""


class Missing(NamedTuple):
    """So many panes of a source are not in a result, for this reason.

    Where they are lost, the reason goes on with the files: `lost: 20 bytes of a.log, which …`.
    """

    source: str
    why: str
    panes: int


@dataclass(frozen=True)
class Track:
    """What is known of one source, in panes: counted in `[first, until)`, whole before `whole`."""

    first: int = EVER
    until: int = EVER
    whole: int = NEVER
    rest: State = State.AWAITED  # of panes that are not whole
    never: tuple[Gap, ...] = ()
    """Panes that the source has passed, or will pass, without giving them."""

    def merge(self, other: Track) -> Track:
        """The one whose source was read further knows best what to expect of it."""
        newer = max(self, other, key=lambda track: (track.whole, -track.until, -track.rest))
        return replace(
            newer,
            first=min(self.first, other.first),
            never=tuple(sorted({*self.never, *other.never})),
        )


@dataclass(frozen=True)
class Board:
    """What is known of all sources of a stream, for panes of one size."""

    tracks: dict[str, Track] = field(default_factory=dict)
    sample: Sample | None = None
    late: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    """By source and pane: windows that end at this pane or before leave out some records of it."""

    def merge(self, other: Board) -> Board:
        tracks = dict(self.tracks)
        for source, track in other.tracks.items():
            known = tracks.get(source)
            tracks[source] = track if known is None else known.merge(track)
        late = {source: dict(panes) for source, panes in self.late.items()}
        for source, panes in other.late.items():
            mine = late.setdefault(source, {})
            mine |= {pane: max(mark, mine.get(pane, mark)) for pane, mark in panes.items()}
        return Board(tracks, self.sample or other.sample, late)

    def emptied(self, before: int, why: str) -> Board:
        """The same, with all panes before one cancelled."""
        gap = Gap(NEVER, before, State.CANCELLED, why)
        tracks = {
            n: replace(t, never=tuple(sorted([*t.never, gap]))) for n, t in self.tracks.items()
        }
        return replace(self, tracks=tracks)

    @cached_property
    def sources(self) -> tuple[str, ...]:
        return tuple(sorted(self.tracks))

    def cells(self, start: int, end: int) -> Cells:
        """The state of every source in every pane of `[start, end)`."""
        panes = np.arange(start, end)
        cells = self._states(panes)
        if self.sample is not None:
            cells[is_counted(cells) & ~sampled_of(self.sample, self.sources, panes)] = State.SKIPPED
        rows, late = self._late_in(start, end)
        _spoil(cells, rows, late - start)
        return cells

    def _states(self, panes: Numbers) -> Cells:
        """What is known of every source in these panes, sampled or not."""
        first, until, whole, rest = self._limits
        cells: Cells = np.where(panes < whole, State.MERGED, rest).astype(np.uint8)
        for row, source in zip(cells, self.sources, strict=True):
            for lower, upper, state, _ in self.tracks[source].never:
                row[(panes >= lower) & (panes < upper)] = state
        cells[panes < first] = State.LATER
        cells[panes >= until] = State.REMOVED
        return cells

    @cached_property
    def _limits(self) -> Numbers:
        """First, until, whole and rest, each as a column with a row for every source."""
        tracks = [self.tracks[source] for source in self.sources]
        limits = [(t.first, t.until, t.whole, t.rest) for t in tracks]
        return np.array(limits, np.int64).reshape(-1, 4, 1).swapaxes(0, 1)

    @cached_property
    def _late(self) -> Numbers:
        """Rows of sources, panes and marks of panes with late records, in the order of panes."""
        rows = {source: row for row, source in enumerate(self.sources)}
        known = ((s, panes) for s, panes in self.late.items() if s in rows)
        found = [(p, rows[source], mark) for source, panes in known for p, mark in panes.items()]
        return np.array(sorted(found), np.int64).reshape(-1, 3)[:, [1, 0, 2]].T

    def _late_in(self, start: int, end: int) -> tuple[Numbers, Numbers]:
        """The rows and panes of which the window `[start, end)` leaves out late records."""
        if not self.late:
            return _NONE, _NONE
        rows, panes, marks = self._late
        inside = slice(panes.searchsorted(start), panes.searchsorted(end))
        missed = marks[inside] >= end
        return rows[inside][missed], panes[inside][missed]

    @cached_property
    def _strips(self) -> tuple[Numbers, Cells]:
        """The panes at which anything changes, and the states from each of them to the next."""
        tracks = self.tracks.values()
        changes = [at for t in tracks for at in (t.first, t.until, t.whole)]
        changes += [at for t in tracks for gap in t.never for at in (gap.lower, gap.upper)]
        panes = np.unique(np.array([NEVER, *changes], np.int64))
        return panes, self._states(panes)

    @cached_property
    def _all_whole(self) -> tuple[int, int]:
        """The panes between which every source is whole."""
        if self.sample is not None or any(track.never for track in self.tracks.values()):
            return 0, 0
        tracks = self.tracks.values()
        first = max((track.first for track in tracks), default=NEVER)
        return first, min((min(t.whole, t.until) for t in tracks), default=EVER)

    def score(self, start: int, end: int, reason: Reason) -> C2:
        first, last = self._all_whole
        rows, late = self._late_in(start, end)
        if first <= start and end <= last and self.tracks and not len(rows):
            count = len(self.tracks)
            return C2(reason, 1.0, 1.0, 1.0, count, ((count, end - start),), (), self, start, end)
        if self.sample is not None:
            return self.scored(self.cells(start, end), start, reason)
        # Thousands of panes are a few strips, and these serve all windows.
        limits, cells = self._strips
        strips = slice(limits.searchsorted(start, "right") - 1, limits.searchsorted(end))
        limits, cells = limits[strips].clip(min=start), cells[:, strips]
        if len(rows):
            limits = np.unique(np.concatenate([limits, late, late + 1]))
            limits = limits[limits < end]
            cells = self._states(limits)
            _spoil(cells, rows, limits.searchsorted(late))
        return self._counted(cells, np.diff(np.append(limits, end)), start, reason, None)

    def scored(self, cells: Cells, start: int, reason: Reason, only: Only | None = None) -> C2:
        if only is not None:
            cells = only.narrowed(cells, start, self.sources)
        return self._counted(cells, np.ones(cells.shape[1], np.int64), start, reason, only)

    def _counted(
        self, cells: Cells, sizes: Numbers, start: int, reason: Reason, only: Only | None
    ) -> C2:
        """The score of cells that stand for so many panes each."""
        counted = is_counted(cells)
        merged = cells == State.MERGED
        total, there = int((counted @ sizes).sum()), int((merged @ sizes).sum())
        expected = int(counted.any(axis=1).sum())
        panes, present = int(counted.any(axis=0) @ sizes), int(merged.any(axis=0) @ sizes)
        strips = zip(merged.sum(axis=0).tolist(), sizes.tolist(), strict=True)
        return C2(
            reason,
            there / total if total else 1.0,
            present / panes if panes else 1.0,
            float(merged.any(axis=1).sum() / expected) if expected else 1.0,
            expected,
            tuple((n, sum(size for _, size in same)) for n, same in groupby(strips, itemgetter(0))),
            () if there == total else tuple(self._missing(cells, sizes, start)),
            self,
            start,
            start + int(sizes.sum()),
            only,
        )

    def _missing(self, cells: Cells, sizes: Numbers, start: int) -> Iterator[Missing]:
        """What is missing of each source and why, but for what the sample left out."""
        end = start + int(sizes.sum())
        for state in _MISSING:
            panes = (cells == state) @ sizes
            for row in np.flatnonzero(panes):
                gaps = self.tracks[self.sources[row]].never
                inside = (g for g in gaps if g.lower < end and g.upper > start)
                what = "; ".join(dict.fromkeys(g.what for g in inside if g.state == state))
                why = f"{_WORDS[state]}: {what}" if what else _WORDS[state]
                yield Missing(self.sources[row], why, int(panes[row]))


_MISSING = (
    State.SHED, State.CANCELLED, State.DEAD, State.LEAPT, State.AWAITED, State.LOST, State.LATE
)  # fmt: skip
_NONE: Numbers = np.array([], np.int64)


def _spoil(cells: Cells, rows: Numbers, columns: Numbers) -> None:
    """Makes what was merged late."""
    merged = cells[rows, columns] == State.MERGED
    cells[rows[merged], columns[merged]] = State.LATE


def is_counted(cells: Cells) -> Mask:
    """Where a source is expected to have something: from its first pane to its last."""
    counted: Mask = (cells != State.LATER) & (cells != State.REMOVED)
    return counted


@dataclass(frozen=True)
class C2:
    """How complete a result is, between 0 and 1.

    `area` is the share of panes that were merged, counted source by source; `time` that of panes
    with at least one source, of those in which any counts; `space` that of sources with at least
    one pane. A pane whose source had not passed its end counts as missing, though what was read of
    it is in the result; so does one of which records came too late.
    """

    reason: Reason
    area: float
    time: float
    space: float
    sources: int  # that are counted in the window
    runs: tuple[tuple[int, int], ...]  # how many sources are in so many panes, one after another
    missing: tuple[Missing, ...] = ()
    board: Board = field(repr=False, compare=False, default_factory=Board)
    start: int = field(repr=False, compare=False, default=0)
    end: int = field(repr=False, compare=False, default=0)
    only: Only | None = field(repr=False, compare=False, default=None)
    records: Sequence[Sequence[int]] | None = field(repr=False, compare=False, default=None)
    """How many were read of each source, in the order of `names`, and pane.

    None of windows with more than FIELDS of these, and of sessions.
    """

    @property
    def panes(self) -> list[int]:
        """How many sources are in each pane."""
        return [count for count, times in self.runs for _ in range(times)]

    @property
    def cells(self) -> Cells:
        """A State for each source, in the order of `names`, and pane."""
        cells = self.board.cells(self.start, self.end)
        return cells if self.only is None else self.only.narrowed(cells, self.start, self.names)

    @property
    def inside(self) -> Mask:
        """Which sources and panes the result is made of, as far as they had come."""
        cells = self.board.cells(self.start, self.end)
        taken: Mask = cells != State.SKIPPED
        return taken if self.only is None else self.only.inside(cells, self.start, self.names)

    @property
    def names(self) -> Sequence[str]:
        return self.board.sources

    def shed(self) -> C2:
        """The score if the window is not answered, of which nothing is there then."""
        only = Only(panes=(), settled=True, state=State.SHED)
        cells = self.board.cells(self.start, self.end)
        return self.board.scored(cells, self.start, Reason.SHED, only)

    def __str__(self) -> str:
        return f"{percent(self.area)} {self.reason}"

    def drawing(self, width: int = 100) -> str:
        """The sources below each other, a sign for every pane; long windows are drawn thinner."""
        cells, names = self.cells, self.names
        room = max((len(name) for name in names), default=0)
        panes = -(-max(1, cells.shape[1]) // max(1, width - room - 1))
        # Of panes that share a sign, the worst is shown.
        rows = [
            "".join(SIGNS[int(row[i : i + panes].max())] for i in range(0, len(row), panes))
            for row in cells
        ]
        lines = [f"{name:>{room}} {signs}" for name, signs in zip(names, rows, strict=True)]
        seen = [State(int(state)) for state in np.unique(cells)]
        legend = ", ".join(f"{SIGNS[s]} {_WORDS[s]}" for s in seen if _WORDS[s])
        told = (
            f"{percent(self.area)} of the area, {percent(self.time)} of time, "
            f"{percent(self.space)} of {self.sources} source{'' if self.sources == 1 else 's'}: "
            f"{self.reason}"
        )
        return "\n".join([*lines, legend, told] if lines else [told])
