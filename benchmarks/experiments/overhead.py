"""What the scoreboard costs: its share of the run time with 200 sources and 60 panes.

A clock is put around everything that keeps or asks the scoreboard: what is noted of sources,
boards, decisions, scores, and the column of scores in the results. It runs in the outermost call
only. The same logs are read at once, as finite input, and followed in batches on a clock of their
own; with a job that waits for all sources, and with one that has bounds; in tumbling and in sliding
windows.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

import muntin as mt
from benchmarks.experiments.playback import START, Piece, names, step_through
from muntin.fidelity.eviction import Policy
from muntin.fidelity.score import Board
from muntin.fidelity.scoreboard import Scoreboard, Source
from muntin.fidelity.timing import Timing
from muntin.run import results as emission
from muntin.run.inline import windows_inline

SCORING: tuple[tuple[Any, str], ...] = (
    (Scoreboard, "seen"),
    (Scoreboard, "awaken"),
    (Scoreboard, "horizon"),
    (Scoreboard, "board"),
    (Scoreboard, "read_up_to"),
    (Source, "advance"),
    (Policy, "decide"),
    (Board, "score"),
    (Timing, "add"),
    (emission, "_stored"),
)
AT_MOST = 0.03
PANE = 60.0
PANES = 60
BOUNDS = {"complete": "", "bounded": " WITHIN 5 MINUTES FIDELITY 90 PERCENT"}
WINDOWS = {
    "tumbling": "60 MINUTES PANE 1 MINUTE",
    "sliding": "60 MINUTES EVERY 5 MINUTES PANE 1 MINUTE",
}


@dataclass(frozen=True)
class Setting:
    servers: int = 200
    records: int = 20  # of a server in a pane
    batch_panes: int = 10  # in each step of a run that follows


@dataclass
class Stopwatch:
    """Seconds in functions of which one may call another."""

    seconds: float = 0.0
    _running: bool = field(default=False, repr=False)

    def around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def timed(*args: Any, **kwargs: Any) -> Any:
            if self._running:
                return function(*args, **kwargs)
            self._running = True
            started = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                self.seconds += time.perf_counter() - started
                self._running = False

        return timed


@contextmanager
def scoring_timed() -> Iterator[Stopwatch]:
    watch = Stopwatch()
    with ExitStack() as stack:
        for owner, name in SCORING:
            timed = watch.around(getattr(owner, name))
            stack.enter_context(patch.object(owner, name, timed))
        yield watch


@dataclass(frozen=True)
class Cost:
    seconds: float
    scoring: float
    windows: int

    @property
    def share(self) -> float:
        return self.scoring / self.seconds


def write(setting: Setting, seed: int = 1) -> Iterator[Piece]:
    """Two windows of every server, in pieces of a few panes."""
    random = np.random.default_rng(seed)
    length = setting.batch_panes * PANE
    for name in names(setting.servers):
        for start in np.arange(START, START + 2 * PANES * PANE, length):
            times = random.uniform(start, start + length, setting.records * setting.batch_panes)
            rows = zip(np.sort(times).tolist(), random.integers(20, size=len(times)), strict=True)
            text = "".join(json.dumps({"t": t, "k": f"k{k:02}"}) + "\n" for t, k in rows)
            yield Piece(float(start + length), name, text)


def program(folder: Path, window: str, bounds: str) -> mt.Program:
    return mt.sql(
        f"CREATE STREAM s (t DOUBLE, k VARCHAR) FROM '{folder}/{{source}}.log' "
        "FORMAT json TIMESTAMP t;"
        f"CREATE JOB j AS SELECT k, count(*) AS n FROM s GROUP BY k WINDOW {window}{bounds};"
    )


def follow(asked: mt.Program, folder: Path, pieces: list[Piece]) -> Cost:
    """The logs in steps; what writes them is not timed."""
    clock = sorted({piece.at for piece in pieces})
    seconds, windows = 0.0, 0
    with scoring_timed() as watch:
        steps = step_through(asked, folder, pieces, clock, 60.0)
        for step in steps:
            started = time.perf_counter()
            for left in step():
                windows += len(left.table().column("window_end").unique())
            seconds += time.perf_counter() - started
    return Cost(seconds, watch.seconds, windows)


def read(asked: mt.Program) -> Cost:
    """The logs that are there, at once."""
    started, windows = time.perf_counter(), 0
    with scoring_timed() as watch:
        for left in windows_inline(asked):
            windows += len(left.table().column("window_end").unique())
    return Cost(time.perf_counter() - started, watch.seconds, windows)


def measure(folder: Path, setting: Setting, window: str, bounds: str) -> dict[str, Cost]:
    """Followed, and then read at once."""
    folder.mkdir(parents=True)
    asked = program(folder, window, bounds)
    followed = follow(asked, folder, list(write(setting)))
    return {"followed in batches": followed, "finite": read(asked)}


def run(folder: Path, pictures: Path | None, quick: bool) -> Iterator[str]:
    """Runs the benchmark and tells of it in Markdown."""
    setting = Setting(batch_panes=20) if quick else Setting()
    yield "| windows | job | logs | windows left | seconds | scoring | share |"
    yield "|---|---|---|---|---|---|---|"
    for window, clause in WINDOWS.items():
        for bounds, more in BOUNDS.items():
            found = measure(folder / f"{window}-{bounds}", setting, clause, more)
            for way, cost in found.items():
                told = f"{cost.seconds:.2f} | {cost.scoring:.3f} | {cost.share:.2%}"
                yield f"| {window} | {bounds} | {way} | {cost.windows} | {told} |"
    yield f"\nat most {AT_MOST:.0%} wanted"
