"""Logs that grow on a clock of their own, followed by the real pipeline.

Every piece of log is due at a moment. The clock goes from tick to tick: what has become due is
appended to the log of its server, whose time of change is set to that moment, and the pipeline
makes one step. Nothing sleeps, and nothing but the clock is pretended: the logs are files, and
the windows leave by the decisions that are made in production.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from pathlib import Path

import numpy as np

import muntin as mt
from muntin.run.inline import InlineRun
from muntin.run.loop import Rules
from muntin.run.results import Departing

START = 1_799_884_800.0  # where windows of every length in use here begin
PATIENCE = 1e9  # so many seconds of silence are not death


@dataclass(frozen=True)
class Piece:
    """Lines that a server writes at one moment."""

    at: float
    source: str
    text: str


@dataclass(frozen=True)
class Left:
    """A result, and when it left."""

    result: mt.Result
    at: float

    @property
    def latency(self) -> float:
        """Seconds since the window began."""
        return self.at - self.result.start / 1e6

    @property
    def lag(self) -> float:
        """Seconds since the window ended."""
        return self.at - self.result.end / 1e6


def play(
    asked: mt.Program,
    folder: Path,
    pieces: Iterable[Piece],
    ticks: Sequence[float],
    idle_seconds: float,
) -> Iterator[Left]:
    """The results, as the logs of `folder` grow piece by piece."""
    for step in step_through(asked, folder, pieces, ticks, idle_seconds):
        for windows in step():
            yield from (Left(result, windows.at) for result in windows.results())


def step_through(
    asked: mt.Program,
    folder: Path,
    pieces: Iterable[Piece],
    ticks: Sequence[float],
    idle_seconds: float,
) -> Iterator[Callable[[], list[Departing]]]:
    """A step for every tick, to be made once the logs have grown."""
    (stream,) = asked.streams.values()
    run = InlineRun(stream, list(asked.jobs.values()), Rules(True, idle_seconds))
    waiting = sorted(pieces, key=attrgetter("at"))[::-1]
    for now in ticks:
        while waiting and waiting[-1].at <= now:
            _write(folder, waiting.pop())
        yield partial(_step, run, now)


def _step(run: InlineRun, now: float) -> list[Departing]:
    return list(run.turn(now).windows)


def _write(folder: Path, piece: Piece) -> None:
    path = folder / f"{piece.source}.log"
    with path.open("a") as log:
        log.write(piece.text)
    os.utime(path, (piece.at, piece.at))


def names(servers: int) -> list[str]:
    return [f"server-{n:02}" for n in range(servers)]


def declared(servers: int) -> str:
    """The clause that says which servers there are."""
    return "SOURCES " + ", ".join(f"'{name}'" for name in names(servers))


def sent_at(random: np.random.Generator, ends: Sequence[float], mean: float) -> list[float]:
    """When a server has sent each of its panes, one after another, none before its end.

    A pane takes `mean` seconds on average, and some take much longer, so that panes queue up.
    """
    sent: list[float] = []
    for end, takes in zip(ends, random.exponential(mean, len(ends)), strict=True):
        sent.append(max([end, *sent[-1:]]) + float(takes))
    return sent


def ticks(seconds: float, step: float) -> list[float]:
    return [START + count * step for count in range(int(seconds / step) + 1)]


def busy_ticks(pieces: Sequence[Piece], step: float) -> list[float]:
    """Only those before which something was written; without deadlines the others do nothing."""
    return [
        START + count * step for count in sorted({-int((START - p.at) // step) for p in pieces})
    ]
