"""Goodput while servers stop: what it brings to see that nothing more will come (Figure 10).

Ten servers write a line a second, into tumbling windows of two panes of a second. A share of the
servers falls silent for good in the middle of the first window. Windows leave at the latest 30
seconds after their end. The run is over with the twentieth result, and goodput is the panes in all
results by the seconds until then.

Without failure eviction a server may be silent for longer than the deadline before it counts as
dead, so nothing but the deadline lets a window leave. With it, ten seconds of silence are enough.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import muntin as mt
from benchmarks.experiments.playback import START, Piece, declared, names, play, ticks
from benchmarks.experiments.plots import Line, Panel, draw

WITHIN = 30
IDLE_SECONDS = 10.0  # the default of `muntin run`
NEVER_DEAD = 3600.0
STOPPED = (0, 1, 2, 3, 4, 5)
WORDS = ("block", "read", "sent", "write")


@dataclass(frozen=True)
class Setting:
    servers: int = 10
    stopped: int = 3
    window: int = 2  # seconds
    results: int = 20


@dataclass(frozen=True)
class Goodput:
    """What one run has delivered."""

    panes: int
    seconds: float
    lag: float  # of the mean result, in seconds after the end of its window
    area: float

    @property
    def panes_per_second(self) -> float:
        return self.panes / self.seconds


def write(setting: Setting, times: Sequence[float]) -> Iterator[Piece]:
    """Lines of all servers, of which some stop in the middle of the first window."""
    for count, at in enumerate(times):
        for number, name in enumerate(names(setting.servers)):
            if number >= setting.stopped or at <= START + setting.window / 2:
                word = WORDS[(count + number) % len(WORDS)]
                yield Piece(at, name, json.dumps({"t": at, "word": word}) + "\n")


def program(folder: Path, setting: Setting) -> mt.Program:
    return mt.sql(
        f"CREATE STREAM text (t DOUBLE, word VARCHAR) FROM '{folder}/{{source}}.log' "
        f"FORMAT json TIMESTAMP t {declared(setting.servers)};"
        "CREATE JOB words AS SELECT word, count(*) AS n FROM text GROUP BY word "
        f"WINDOW {setting.window} SECONDS PANE {setting.window // 2} SECONDS "
        f"WITHIN {WITHIN} SECONDS;"
    )


def measure(folder: Path, setting: Setting, idle_seconds: float) -> Goodput:
    folder.mkdir(parents=True)
    results, window = setting.results, setting.window
    times = ticks((results + 1) * window + WITHIN, window / 2)
    found = play(program(folder, setting), folder, write(setting, times), times, idle_seconds)
    left = list(islice(found, results))
    assert len(left) == results
    return Goodput(
        sum(sum(each.result.c2.panes) for each in left),
        left[-1].at - START,
        sum(each.lag for each in left) / results,
        sum(each.result.c2.area for each in left) / results,
    )


def both(
    folder: Path, setting: Setting, idle_seconds: float = IDLE_SECONDS
) -> tuple[Goodput, Goodput]:
    """Without failure eviction, and with it."""
    without = measure(folder / "without", setting, NEVER_DEAD)
    return without, measure(folder / "with", setting, idle_seconds)


def run(folder: Path, pictures: Path | None, quick: bool) -> Iterator[str]:
    """Runs the experiment, draws it if asked, and tells of it in Markdown."""
    shares = STOPPED[1::4] if quick else STOPPED
    found = {n: both(folder / f"{n}", Setting(stopped=n)) for n in shares}
    yield "| stopped | panes/s without | with | ratio | mean lag without | with | C² with |"
    yield "|---|---|---|---|---|---|---|"
    for stopped, (without, with_) in found.items():
        yield f"| {stopped / Setting.servers:.0%} | {_told(without, with_)} | {with_.area:.0%} |"
    if pictures is not None:
        _draw(pictures, found)
    if quick:
        return
    yield ""
    yield "| 30 % stopped | panes/s without | with | ratio | mean lag without | with |"
    yield "|---|---|---|---|---|---|"
    for window, idle in ((2, 5.0), (2, 20.0), (4, 10.0), (10, 10.0)):
        here = folder / f"{window}-{idle}"
        told = _told(*both(here, Setting(window=window), idle))
        yield f"| windows of {window} s, dead after {idle:.0f} s | {told} |"


def _told(without: Goodput, with_: Goodput) -> str:
    ratio = with_.panes_per_second / without.panes_per_second
    rates = f"{without.panes_per_second:.2f} | {with_.panes_per_second:.2f} | **{ratio:.2f}x**"
    return f"{rates} | {without.lag:.1f} s | {with_.lag:.1f} s"


def _draw(pictures: Path, found: dict[int, tuple[Goodput, Goodput]]) -> None:
    shares = [100 * stopped / Setting.servers for stopped in found]
    kinds = {"with failure eviction": 1, "deadline only": 0}
    rates, lags = {}, {}
    for name, which in kinds.items():
        runs = [pair[which] for pair in found.values()]
        rates[name] = Line(shares, [run.panes_per_second for run in runs])
        lags[name] = Line(shares, [run.lag for run in runs])
    x = "servers stopped, %"
    draw(
        pictures / "goodput.png",
        "Stopped servers (compare Figure 10)",
        [
            Panel("goodput", x, "panes delivered a second", rates),
            Panel("waiting", x, "seconds after the window's end", lags),
        ],
    )
