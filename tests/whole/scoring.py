"""A live run by hand, and the same decided cell by cell in plain Python.

The rules that `docs/completeness.md` tells are written down here a second time, with no thought
of speed: every source and pane is looked at for every window at every step.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np

import muntin as mt
from muntin.fidelity.sampling import sampled
from muntin.model.shapes import Sample
from muntin.run.inline import InlineRun
from muntin.run.loop import Rules
from tests.oracle import stream_time

IDLE = 5.0
STARTED = 1000.0
EVER = 1e9  # long after all windows
_US = 1_000_000
State = Literal["merged", "skipped", "dead", "leapt", "later", "removed", "awaited", "cancelled",
                "late", "lost"]  # fmt: skip
Action = Literal["write", "touch", "remove", "lose"]
Cells = dict[tuple[str, int], State]


@dataclass(frozen=True)
class Question:
    """A job and its bounds, in seconds."""

    length: int
    slide: int
    pane: int
    slack: int = 0
    within: float | None = None
    fidelity: int | None = None  # percent
    form: Literal["area", "sampled", "space", "time"] = "area"
    leap: bool = False
    sources: tuple[str, ...] = ()

    def program(self, folder: Path) -> mt.Program:
        forms = {"area": "", "sampled": " SAMPLED", "space": " OF SPACE", "time": " OF TIME"}
        bounds = f" WITHIN {int(self.within * 1000)} MILLISECONDS" if self.within else ""
        if self.fidelity is not None:
            bounds += f" FIDELITY {self.fidelity} PERCENT{forms[self.form]}"
        bounds += " STRAGGLERS LEAP" if self.leap else ""
        named = ", ".join(f"'{name}'" for name in self.sources)
        return mt.sql(
            f"CREATE STREAM s (t BIGINT, k VARCHAR, n BIGINT) FROM '{folder}/{{source}}.log' "
            f"FORMAT json TIMESTAMP t SLACK {self.slack} SECONDS"
            f"{f' SOURCES {named}' if named else ''};"
            f"CREATE JOB j AS SELECT k, count(*) AS c, sum(n) AS n FROM s GROUP BY k "
            f"WINDOW {self.length} SECONDS EVERY {self.slide} SECONDS "
            f"PANE {self.pane} SECONDS{bounds};"
        )

    @property
    def plain(self) -> bool:
        return self.within is None and self.fidelity is None and not self.leap


@dataclass(frozen=True)
class Record:
    t: int
    k: str
    n: int


@dataclass(frozen=True)
class Happening:
    """What one source does before the next step; what it loses it writes before it removes all."""

    source: str
    what: Action
    records: tuple[Record, ...] = ()


@dataclass(frozen=True)
class Left:
    """A window that has left, as both sides tell it."""

    start: int
    rows: tuple[tuple[str, int, int], ...]
    read: int
    late: int
    reason: str
    area: float
    time: float
    space: float
    panes: tuple[int, ...]
    cells: tuple[tuple[str, int, str], ...]
    records: tuple[tuple[str, int, int], ...]  # of cells that have any


class Live:
    """The real pipeline, stepped by hand with a clock of its own."""

    def __init__(self, folder: Path, question: Question) -> None:
        program = question.program(folder)
        (stream,), jobs = program.streams.values(), list(program.jobs.values())
        self._folder = folder
        self._question = question
        self._run = InlineRun(stream, jobs, Rules(True, IDLE))

    def step(self, now: float, happenings: Iterable[Happening]) -> list[Left]:
        for happening in happenings:
            happen(self._folder, happening, now)
        leaving = self._run.turn(now).results()
        return [left(result, self._question.pane) for result in leaving]


def happen(folder: Path, happening: Happening, now: float) -> None:
    path = folder / f"{happening.source}.log"
    if happening.what == "remove":
        path.unlink(missing_ok=True)
        return
    with path.open("a") as log:
        log.writelines(json.dumps(vars(record)) + "\n" for record in happening.records)
    os.utime(path, (now, now))
    if happening.what == "lose":
        path.unlink()


def left(result: mt.Result, pane: int) -> Left:
    c2 = result.c2
    first = result.start // _US // pane
    return Left(
        result.start // _US,
        tuple(sorted((row["k"], row["c"], row["n"]) for row in result.rows.to_pylist())),
        result.counts.read,
        result.counts.late,
        str(c2.reason),
        c2.area,
        c2.time,
        c2.space,
        tuple(c2.panes),
        tuple(
            (name, first + i, mt.State(int(state)).name.lower())
            for name, row in zip(c2.names, c2.cells, strict=True)
            for i, state in enumerate(row)
        ),
        tuple(
            (name, first + i, count)
            for name, row in zip(c2.names, c2.records or (), strict=True)
            for i, count in enumerate(row)
            if count
        ),
    )


FAR = 10  # seconds


@dataclass
class _Source:
    read: list[tuple[Record, int]] = field(default_factory=list)  # with the mark it was read at
    reached: int | None = None
    heard_at: float = 0.0
    moved_at: float = 0.0  # when it was found to have come as far as it has
    wrote_at: float = 0.0
    touched_at: float = 0.0
    ended: bool = False
    since: int | None = None  # how far it had come before it was read last
    lost: list[tuple[float, float]] = field(default_factory=list)  # from and up to when

    def times(self) -> list[int]:
        return [record.t for record, _ in self.read]


class Model:
    """Keeps the score one cell at a time."""

    def __init__(self, question: Question) -> None:
        self._q = question
        self._sources: dict[str, _Source] = {}
        self._files: dict[str, float] = {}
        self._written: set[str] = set()  # of which records were read
        self._emitted: int | None = None
        self._started = 0.0

    def step(self, now: float, happenings: Iterable[Happening]) -> list[Left]:
        self._started = self._started or now
        fresh: dict[str, list[Record]] = {}
        for happening in happenings:
            if happening.what in ("remove", "lose"):
                self._files.pop(happening.source, None)
                if happening.records:
                    self._lose(self._sources[happening.source], now)
                continue
            self._files[happening.source] = now
            fresh.setdefault(happening.source, []).extend(happening.records)
        self._written &= self._files.keys()
        for name, source in self._sources.items():
            source.ended = name not in self._files and name not in self._q.sources
            if name in self._files and not fresh.get(name) and self._files[name] > source.wrote_at:
                source.touched_at = self._files[name]
        for name, records in fresh.items():
            self._read(name, records, now)
        left = []
        ends = self._candidates()
        overdue = [end for end in ends if self._is_due(end, now)]
        for end in ends:
            found = self._decide(end, now)
            if found is None and any(end < later for later in overdue):
                cells = self._cells(end, now)
                inside = {cell for cell, state in cells.items() if state != "skipped"}
                found = self._answer(end, "deadline", cells, inside)
            if found is None:
                break
            self._emitted = end
            if found.rows:
                left.append(found)
        return left

    def _lose(self, source: _Source, now: float) -> None:
        first = min(source.times())
        low = (first if source.since is None else source.since) - self._q.slack
        source.lost.append((low, now if now >= low else EVER))

    def _read(self, name: str, records: list[Record], now: float) -> None:
        if not records:
            return
        source = self._sources.setdefault(name, _Source())
        if name not in self._written:
            self._begin(source, [record.t for record in records])
        self._written.add(name)
        source.since = source.reached
        source.heard_at = source.wrote_at = now
        source.ended = False
        before = source.reached
        for record in records:
            source.reached = stream_time([*source.times(), record.t], self._q.slack)
            source.read.append((record, source.reached - self._q.slack))
        if source.reached != before:
            source.moved_at = now

    def _begin(self, source: _Source, times: list[int]) -> None:
        """A file that has the name of one that was read, if the source is known.

        If it begins long before where its source stands, it may have what that had.
        """
        first, slack, stood = times[0], self._q.slack, source.reached
        far = EVER if stood is None else stood - max(slack, FAR)
        if stood is None or first >= far:  # what was lost is from before what follows it
            source.lost = [
                (low, min(high, first + slack) if low <= first else high)
                for low, high in source.lost
            ]
        if stood is not None and min(times) < far:
            source.lost.append((min(times) - slack, stood))

    def _candidates(self) -> list[int]:
        """Ends of windows that hold a record and have not left, in order."""
        ends = set()
        for source in self._sources.values():
            for record, _ in source.read:
                start = record.t // self._q.slide * self._q.slide
                while start + self._q.length > record.t:
                    ends.add(start + self._q.length)
                    start -= self._q.slide
        return sorted(end for end in ends if self._emitted is None or end > self._emitted)

    def _decide(self, end: int, now: float) -> Left | None:
        cells = self._cells(end, now)
        reason = self._plain_reason(cells, end, now) if self._q.plain else self._reason(
            cells, end, now
        )  # fmt: skip
        if reason is None:
            return None
        if reason == "fidelity" and self._q.form in ("space", "time"):
            axis = 1 if self._q.form == "space" else 0
            full = {cell[axis] for cell in cells} - {
                cell[axis] for cell, state in cells.items()
                if state not in ("merged", "later", "removed")
            }  # fmt: skip
            cells = {
                cell: "cancelled" if state == "merged" and cell[axis] not in full else state
                for cell, state in cells.items()
            }
            inside = {cell for cell in cells if cell[axis] in full}
        else:
            inside = {cell for cell, state in cells.items() if state != "skipped"}
        return self._answer(end, reason, cells, inside)

    def _answer(self, end: int, reason: str, cells: Cells, inside: set[tuple[str, int]]) -> Left:
        start = end - self._q.length
        counts: Counter[str] = Counter()
        sums: Counter[str] = Counter()
        records: Counter[tuple[str, int]] = Counter()
        late = 0
        for name, source in self._sources.items():
            for record, mark in source.read:
                cell = name, record.t // self._q.pane
                if not start <= record.t < end or (cell in cells and cell not in inside):
                    continue
                if cell not in cells and (self._q.fidelity and self._q.form != "area"):
                    continue
                records[cell] += 1
                if mark // self._q.pane * self._q.pane >= end:
                    late += 1
                else:
                    counts[record.k] += 1
                    sums[record.k] += record.n
        states = Counter(cells.values())
        counted = len(cells) - states["later"] - states["removed"]
        merged = {cell for cell, state in cells.items() if state == "merged"}
        panes = range(start // self._q.pane, end // self._q.pane)
        names = {n for (n, _), state in cells.items() if state not in ("later", "removed")}
        counting = {p for (_, p), state in cells.items() if state not in ("later", "removed")}
        return Left(
            start,
            tuple(sorted((k, counts[k], sums[k]) for k in counts)),
            records.total(),
            late,
            reason,
            len(merged) / counted if counted else 1.0,
            len({p for _, p in merged}) / len(counting) if counting else 1.0,
            len({n for n, _ in merged}) / len(names) if names else 1.0,
            tuple(sum((n, p) in merged for n in self._known()) for p in panes),
            tuple((n, p, cells[n, p]) for n in self._known() for p in panes),
            tuple((n, p, count) for (n, p), count in sorted(records.items())),
        )

    def _known(self) -> list[str]:
        return sorted({*self._sources, *self._q.sources})

    def _cells(self, end: int, now: float) -> Cells:
        panes = range((end - self._q.length) // self._q.pane, end // self._q.pane)
        leapt = self._leapt(now) if self._q.leap else set()
        return {
            (name, pane): self._state(name, pane, now, name in leapt, end)
            for name in self._known()
            for pane in panes
        }

    def _state(self, name: str, pane: int, now: float, leapt: bool, end: int) -> State:
        source = self._sources.get(name)
        if name not in self._q.sources and source is not None:
            if pane < self._first(source):
                return "later"
            if source.ended and pane >= self._whole(name, now):
                return "removed"
        share = (self._q.fidelity or 100) / 100
        if self._q.form == "sampled" and not sampled(Sample("j", share), name, np.array([pane]))[0]:
            return "skipped"
        if source is not None and any(
            low // self._q.pane <= pane <= high // self._q.pane for low, high in source.lost
        ):
            return "lost"
        if source is None:
            return "leapt" if leapt else "awaited" if self._is_young(now) else "dead"
        if pane < self._whole(name, now):
            return "late" if self._has_late(source, pane, end) else "merged"
        if leapt:
            return "leapt"
        return "awaited" if self._is_awaited(source, now) else "dead"

    def _has_late(self, source: _Source, pane: int, end: int) -> bool:
        """Whether a record of this pane is left out of a window that ends there."""
        size = self._q.pane
        return any(r.t // size == pane and mark // size * size >= end for r, mark in source.read)

    def _believed(self, source: _Source, now: float) -> int:
        """Its stream time, or a record ahead of it that silence explains."""
        assert source.reached is not None
        limit = now
        if self._is_awaited(source, now) and now - source.heard_at <= IDLE:
            silent = now - source.moved_at
            limit = min(now, source.reached + silent + 60)
        return max([source.reached, *(t for t in source.times() if t <= limit)])

    def _first(self, source: _Source) -> int:
        pane = self._q.pane
        lows = (int(low // pane) for low, _ in source.lost)
        return min([*(record.t // pane for record, _ in source.read), *lows])

    def _is_young(self, now: float) -> bool:
        """Whether sources that are declared may still come."""
        return now - self._started <= IDLE

    def _unheard(self, now: float) -> list[str]:
        known = self._sources
        return [n for n in self._q.sources if n not in known] if self._is_young(now) else []

    def _is_awaited(self, source: _Source, now: float) -> bool:
        return not source.ended and now - max(source.heard_at, source.touched_at) <= IDLE

    def _passed(self, source: _Source, now: float) -> float:
        passed: float = self._believed(source, now)
        if source.touched_at - source.wrote_at > IDLE:
            passed = max(passed, source.touched_at)
        return min(passed, now)

    def _whole(self, name: str, now: float) -> int:
        source = self._sources[name]
        if source.ended:
            last = max([self._believed(source, now), *(high for _, high in source.lost)])
            return int(last // self._q.pane) + 1
        return int((self._passed(source, now) - self._q.slack) // self._q.pane)

    def _leapt(self, now: float) -> set[str]:
        alive = {
            name: self._whole(name, now)
            for name, source in self._sources.items()
            if self._is_awaited(source, now)
        }
        alive |= dict.fromkeys(self._unheard(now), -(10**9))
        if not alive:
            return set()
        middle = sorted(alive.values())[len(alive) // 2]
        return {name for name, whole in alive.items() if whole <= middle - 2}

    def _plain_reason(self, cells: Cells, end: int, now: float) -> str | None:
        awaited = [s for s in self._sources.values() if self._is_awaited(s, now)]
        if self._unheard(now):
            return None
        horizon = now
        if awaited:
            horizon = min(self._passed(source, now) for source in awaited) - self._q.slack
        if end > horizon:
            return None
        whole = all(state in ("merged", "later", "removed") for state in cells.values())
        return "complete" if whole else "exhausted"

    def _reason(self, cells: Cells, end: int, now: float) -> str | None:
        pane_end = end // self._q.pane
        over = now >= end or any(self._whole(n, now) >= pane_end for n in self._sources)
        if over and set(cells.values()) <= {"merged", "later", "removed"}:
            return "complete"
        target = None if self._q.fidelity is None else self._q.fidelity / 100
        if target is not None:
            if self._q.form == "sampled":
                asked = set(cells.values()) - {"later", "removed", "skipped"}
                if asked == {"merged"}:
                    return "fidelity"
            elif self._share(cells, {"merged"}) >= target:
                return "fidelity"
        if self._is_due(end, now):
            return "deadline"
        if over and "awaited" not in cells.values():
            return "exhausted"
        if target is None or self._q.form == "sampled":
            return None
        out_of_reach = self._share(cells, {"merged", "awaited"}) < target
        return "exhausted" if over and out_of_reach else None

    def _is_due(self, end: int, now: float) -> bool:
        return self._q.within is not None and self._started < end + self._q.within <= now

    def _share(self, cells: Cells, there: set[State]) -> float:
        counted = {c: s for c, s in cells.items() if s not in ("later", "removed")}
        if self._q.form == "area":
            full = [state in there for state in counted.values()]
        else:
            axis = 1 if self._q.form == "space" else 0
            groups: dict[str | int, bool] = {}
            for cell, state in counted.items():
                groups[cell[axis]] = groups.get(cell[axis], True) and state in there
            full = list(groups.values())
        return sum(full) / len(full) if full else 0.0


def both(
    folder: Path, question: Question, steps: Iterable[tuple[float, tuple[Happening, ...]]]
) -> Mapping[str, list[list[Left]]]:
    """What leaves at each step, from the pipeline and from the model."""
    live, model, now = Live(folder, question), Model(question), STARTED
    found: dict[str, list[list[Left]]] = {"live": [], "model": []}
    for seconds, happenings in steps:
        now += seconds
        found["live"].append(live.step(now, happenings))
        found["model"].append(model.step(now, happenings))
    return found
