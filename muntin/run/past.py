"""What is known of panes that are kept for questions: of which sources they are whole, and why not.

A pane is settled when no window to come holds it: nothing is added to it any more, and what its
score would be does not change. Until then, what is known of it is what was known last. Neighbours
that are alike are one run, so that a source which was always there is one run, however long.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import lcm

from muntin.fidelity.score import EVER, NEVER, Board, Gap, State, Track
from muntin.windows.spec import WindowSpec

Run = tuple[int, int, int, str]
"""Positions `[lower, upper)` in which a source is in one state, with what there is to say."""
Runs = tuple[Run, ...]
_RUNS = 64  # in a part that a commit writes
_SPANS = 1024  # of which numbers of bad records are kept


@dataclass(frozen=True)
class Asked:
    """A job that may be asked about: its version, how long its panes are kept, and itself.

    Versions whose panes mean the same share them: `since` says from which position on each did,
    and `ended` where the last of them was dropped or replaced, if it was.
    """

    edition: int
    version: str
    retain_us: int
    text: str = field(repr=False)  # the job, as JSON
    since: tuple[tuple[int, int], ...] = ()  # numbers and positions
    ended: int | None = None


@dataclass
class Bad:
    """How many bad records were read: in spans of one length, by their start, and in open panes.

    A span is as long as a pane, or several where there are very many of them.
    """

    length: int = 0
    spans: dict[int, int] = field(default_factory=dict)
    open: dict[int, int] = field(default_factory=dict)

    def note(self, pane: int, oldest: int, found: Mapping[int, int]) -> None:
        """Takes what open panes have, of which those before `oldest` settle."""
        self.open = {at: bad for at, bad in found.items() if at >= oldest}
        self.add(pane, {at: bad for at, bad in found.items() if at < oldest})

    def settle(self, pane: int) -> None:
        """Takes what open panes have as final."""
        self.add(pane, self.open)
        self.open = {}

    def add(self, pane: int, found: Mapping[int, int]) -> None:
        """Takes that panes which have settled have so many more."""
        if not found:
            return
        length = lcm(self.length or pane, pane)
        spans = _in_spans(length, [*self.spans.items(), *found.items()])
        while len(spans) > _SPANS:
            length *= 2
            spans = _in_spans(length, spans.items())
        self.length, self.spans = length, spans

    def forget(self, before: int) -> None:
        if any(at + self.length <= before for at in self.spans):
            self.spans = {at: n for at, n in self.spans.items() if at + self.length > before}

    def between(self, lower: int, upper: int) -> tuple[int, bool]:
        """How many there are between two positions at most, and whether it is just so many."""
        touched = {a: n for a, n in self.spans.items() if a < upper and a + self.length > lower}
        inside = all(lower <= at and at + self.length <= upper for at in touched)
        still = sum(bad for at, bad in self.open.items() if lower <= at < upper)
        return sum(touched.values()) + still, inside


def _in_spans(length: int, found: Iterable[tuple[int, int]]) -> dict[int, int]:
    spans: dict[int, int] = {}
    for at, bad in found:
        start = at // length * length
        spans[start] = spans.get(start, 0) + bad
    return spans


@dataclass
class Past:
    """The panes of one shape, from `began` on; none is known at or behind `until`."""

    pane: int  # their size today
    began: int
    settled: int  # the position before which panes do not change any more
    until: int
    grids: tuple[tuple[int, int], ...] = ()
    """Sizes of panes that are not those of today, each up to a position."""
    jobs: dict[str, Asked] = field(default_factory=dict)  # by title
    runs: dict[str, dict[int, Runs]] = field(default_factory=dict)
    """By source, of panes that are settled: in numbered parts, of which only the last one grows, so
    that a commit does not have to write them all."""
    open: dict[str, Runs] = field(default_factory=dict)  # by source, of the others
    gaps: tuple[tuple[int, int], ...] = ()
    """Between which positions nothing was kept, as nobody had asked for it."""
    bad: Bad = field(default_factory=Bad)

    @property
    def retain_us(self) -> int:
        """For how long panes are kept: as long as some job asks for."""
        return max((job.retain_us for job in self.jobs.values()), default=0)

    def settle(self) -> None:
        """Takes all that is known as final: nothing will be added."""
        self.end(self.jobs, self.until)
        self._add(self.open)
        self.bad.settle(self.pane)
        self.open, self.settled = {}, self.until

    def end(self, titles: Iterable[str], at: int) -> None:
        """Takes that jobs have no panes from a position on, unless they had ended before."""
        for title in list(titles):
            if self.jobs[title].ended is None:
                self.jobs[title] = replace(self.jobs[title], ended=at)

    def note(
        self, oldest: int, until: int, found: Mapping[str, Runs], bad: Mapping[int, int]
    ) -> None:
        """Takes what is known of panes from `settled` on; those before `oldest` settle.

        So many records of panes at some positions were `bad`.
        """
        oldest = min(max(oldest, self.settled), max(until, self.settled))
        self._add({source: within(runs, NEVER, oldest) for source, runs in found.items()})
        self.open = {source: within(runs, oldest, EVER) for source, runs in found.items()}
        self.bad.note(self.pane, oldest, bad)
        self.settled, self.until = oldest, max(self.until, until)

    def regrid(self, pane: int) -> None:
        """Takes that panes have another size from now on."""
        if self.pane != pane:
            self.grids = (*self.grids, (max(self.pane, pane), self.until))
            self.pane = pane

    def grid(self, position: int) -> int:
        """The size of panes at a position."""
        return next((size for size, upto in self.grids if position < upto), self.pane)

    def skip(self, upto: int) -> None:
        """Takes that nothing was kept up to a position: nobody had asked for it."""
        if upto > self.until:
            self.settle()
            gap = (self.settled, upto, int(State.CANCELLED), "its panes were not kept then")
            self._add(dict.fromkeys(self.runs, (gap,)))
            self.gaps = (*self.gaps, (self.settled, upto))
            self.settled = self.until = upto

    def miss(self, source: str, position: int) -> None:
        """Takes that a record of a source was read, and is not in its pane, which had settled."""
        size = self.grid(position)
        pane = position // size * size, (position // size + 1) * size
        parts = self.runs.setdefault(source, {0: ()})
        number = next((n for n in sorted(parts) if parts[n] and parts[n][-1][1] > pane[0]), None)
        number = max(parts) if number is None else number
        known = within(parts[number], *pane)
        if all(state == State.MERGED for _, _, state, _ in known):
            before = within(parts[number], NEVER, pane[0])
            after = within(parts[number], pane[1], EVER)
            parts[number] = joined([before, ((*pane, int(State.LATE), ""),), after])

    def forget(self, before: int) -> None:
        """Drops what is known of panes before a position."""
        self.began = max(self.began, min(before, self.until))
        self.grids = tuple((size, upto) for size, upto in self.grids if upto > before)
        self.gaps = tuple((lower, upper) for lower, upper in self.gaps if upper > before)
        self.bad.forget(before)
        for source, parts in list(self.runs.items()):
            for number in [n for n, runs in parts.items() if runs[-1][1] <= before]:
                del parts[number]
            if not parts:
                del self.runs[source]

    def _add(self, more: Mapping[str, Runs]) -> None:
        """Adds runs behind those of panes that are settled."""
        for source, runs in more.items():
            if not runs:
                continue
            parts = self.runs.setdefault(source, {})
            last = max(parts, default=0)
            whole = joined([parts.get(last, ()), runs])
            parts[last] = whole[:_RUNS]
            for number, at in enumerate(range(_RUNS, len(whole), _RUNS), last + 1):
                parts[number] = whole[at : at + _RUNS]

    def runs_in(self, lower: int, upper: int) -> dict[str, Runs]:
        """By source, what is known between two positions."""
        found = {}
        for source in {**self.runs, **self.open}:
            parts = self.runs.get(source, {})
            several = [within(parts[number], lower, upper) for number in sorted(parts)]
            found[source] = joined([*several, within(self.open.get(source, ()), lower, upper)])
        return {source: runs for source, runs in found.items() if runs}

    def board(self, pane: int, lower: int, upper: int) -> Board:
        """What is known between two positions, as a board of panes of this size."""
        tracks = {}
        for source, runs in self.runs_in(lower, upper).items():
            gaps = [
                Gap(lower // pane, -(-upper // pane), State(state), what)
                for lower, upper, state, what in runs
                if state != State.MERGED
            ]
            for before, after in pairwise(runs):  # where it had gone, and came back
                if before[1] < after[0]:
                    gaps.append(Gap(before[1] // pane, after[0] // pane, State.REMOVED))
            first, until = runs[0][0] // pane, -(-runs[-1][1] // pane)
            tracks[source] = Track(first, until, EVER, never=tuple(sorted(gaps)))
        return Board(tracks)


def runs_of(
    board: Board, windows: Sequence[WindowSpec], pane: int, start: int, end: int
) -> dict[str, Runs]:
    """The states of every source in panes `[start, end)`, as positions.

    A pane has lost records that came too late if the last window that holds it was over by then.
    """
    found = {}
    for source, track in board.tracks.items():
        late = [
            (p, p + 1, State.LATE, "")
            for p, mark in sorted(board.late.get(source, {}).items())
            if start <= p < end and mark >= _last_end(windows, p)
        ]
        runs = _merged_late(_states(track, start, end), late)
        found[source] = tuple(
            (lower * pane, upper * pane, int(state), what) for lower, upper, state, what in runs
        )
    return found


def _states(track: Track, start: int, end: int) -> list[tuple[int, int, State, str]]:
    limits = {start, end, track.first, track.until, track.whole}
    limits |= {at for gap in track.never for at in (gap.lower, gap.upper)}
    inside = sorted(at for at in limits if start <= at <= end)
    runs = []
    for lower, upper in pairwise(inside):
        state, what = (State.MERGED if lower < track.whole else track.rest), ""
        for gap in track.never:
            if gap.lower <= lower < gap.upper:
                state, what = gap.state, gap.what
        if lower < track.first or lower >= track.until:
            continue  # it does not count there
        runs.append((lower, upper, state, what))
    return runs


def _merged_late(
    runs: Sequence[tuple[int, int, State, str]], late: Sequence[tuple[int, int, State, str]]
) -> Iterator[tuple[int, int, State, str]]:
    """The runs, with some of the panes that were merged late."""
    for lower, upper, state, what in runs:
        if state is State.MERGED:
            for at, behind, is_late, _ in late:
                if lower <= at < upper:
                    if lower < at:
                        yield lower, at, state, what
                    yield at, behind, is_late, ""
                    lower = behind
        if lower < upper:
            yield lower, upper, state, what


def _last_end(windows: Sequence[WindowSpec], pane: int) -> int:
    """Where the last window ends that holds a pane, at the latest."""
    return max(
        (pane - w.shift) // w.stride * w.stride + w.length + w.shift
        if w.regular
        else pane + w.length
        for w in windows
    )


def joined(several: Sequence[Runs]) -> Runs:
    """Runs of a source one behind the other; neighbours that are alike become one."""
    whole: list[Run] = []
    for runs in several:
        for run in runs:
            if whole and whole[-1][1] == run[0] and whole[-1][2:] == run[2:]:
                whole[-1] = (whole[-1][0], *run[1:])
            else:
                whole.append(run)
    return tuple(whole)


def within(runs: Runs, lower: int, upper: int) -> Runs:
    """The parts of runs that lie between two positions."""
    return tuple(
        (max(a, lower), min(b, upper), state, what)
        for a, b, state, what in runs
        if a < upper and b > lower
    )
