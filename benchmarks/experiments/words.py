"""Word count over servers that do not use the same words (Figure 9).

Ten servers write words as they come; a word is the likelier on a server the nearer its number is to
the server's. Windows of ten panes of ten seconds follow each other. A server sends a pane when it
is over, one after another. Fast servers need a second for it on average, slow ones five: some of
their panes queue up.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import muntin as mt
from benchmarks.experiments.playback import (
    PATIENCE,
    START,
    Piece,
    declared,
    names,
    play,
    sent_at,
)
from benchmarks.experiments.plots import Panel, draw
from benchmarks.experiments.policies import FEW, SHARES, Answers, jobs_sql, lines, table

PANE = 10.0
PANES = 10


@dataclass(frozen=True)
class Setting:
    servers: int = 10
    vocabulary: int = 50
    words: int = 150  # of a server in a pane
    windows: int = 10
    shares: Sequence[int] = SHARES


def write(setting: Setting, seed: int = 1) -> Iterator[Piece]:
    """The panes of every server, as it sends them."""
    random = np.random.default_rng(seed)
    ends = [START + PANE * (n + 1) for n in range(PANES * setting.windows)]
    slowness = random.permutation(np.linspace(0.1, 0.5, setting.servers))
    for server, name in enumerate(names(setting.servers)):
        likely = _likely(setting, server)
        for end, at in zip(ends, sent_at(random, ends, PANE * slowness[server]), strict=True):
            times = np.sort(random.uniform(end - PANE, end, setting.words)).round(3)
            words = random.choice(setting.vocabulary, setting.words, p=likely)
            yield Piece(at, name, _text(times.tolist(), words.tolist(), end))


def _likely(setting: Setting, server: int) -> NDArray[np.float64]:
    """How likely each word is on a server."""
    home = np.arange(setting.vocabulary) * setting.servers / setting.vocabulary
    near: NDArray[np.float64] = (1 + np.abs(home - server)) ** -2.0
    near /= near.sum()
    return near


def _text(times: Sequence[float], words: Sequence[int], end: float) -> str:
    """The lines of a pane, and one that says that it is over."""
    rows = [{"t": time, "word": f"word-{word:02}"} for time, word in zip(times, words, strict=True)]
    return "".join(json.dumps(row) + "\n" for row in [*rows, {"t": end, "word": None}])


def program(folder: Path, setting: Setting) -> mt.Program:
    select = "SELECT word, count(*) AS n FROM text WHERE word IS NOT NULL GROUP BY word"
    window = f"{PANE * PANES:.0f} SECONDS PANE {PANE:.0f} SECONDS"
    return mt.sql(
        f"CREATE STREAM text (t DOUBLE, word VARCHAR) FROM '{folder}/{{source}}.log' "
        f"FORMAT json TIMESTAMP t {declared(setting.servers)};"
        + jobs_sql(select, window, setting.shares)
    )


def measure(folder: Path, setting: Setting) -> Answers:
    pieces = list(write(setting))
    clock = sorted({piece.at for piece in pieces})
    return Answers.of(play(program(folder, setting), folder, pieces, clock, PATIENCE))


def count_errors(some: mt.Result, whole: mt.Result) -> Iterator[float]:
    """By how much the count of each word is off, relative to it."""
    mine, true = _counts(some), _counts(whole)
    return (abs(mine.get(word, 0) - n) / n for word, n in true.items())


def frequency_errors(some: mt.Result, whole: mt.Result) -> Iterator[float]:
    """The same of each word's share of all words."""
    mine, true = _counts(some), _counts(whole)
    scale = sum(true.values()) / sum(mine.values())
    return (abs(mine.get(word, 0) * scale - n) / n for word, n in true.items())


def _counts(result: mt.Result) -> dict[str, int]:
    return {row["word"]: row["n"] for row in result.rows.to_pylist()}


def run(folder: Path, pictures: Path | None, quick: bool) -> Iterator[str]:
    """Runs the experiment, draws it if asked, and tells of it in Markdown."""
    setting = Setting(windows=2, shares=FEW) if quick else Setting()
    found = measure(folder, setting)
    counts = lines(setting.shares, partial(found.line, error=count_errors))
    frequencies = lines(setting.shares, partial(found.line, error=frequency_errors))
    latency = lines(setting.shares, found.latency)
    yield f"{len(found.windows)} windows"
    yield ""
    yield from table("relative count error", counts, "{:.2f}")
    yield from table("relative frequency error", frequencies, "{:.3f}")
    spread = {policy: line.deviation for policy, line in frequencies.items()}
    yield from table("its standard deviation", spread, "{:.3f}")
    yield from table("latency, seconds", latency, "{:.0f}")
    yield from table("C²", lines(setting.shares, found.area), "{:.3f}")
    if pictures is not None:
        x = "fidelity asked for, %"
        draw(
            pictures / "words.png",
            "Word count over ten servers with words of their own (compare Figure 9)",
            [
                Panel("(a) count", x, "relative error", counts),
                Panel("(b) frequency", x, "relative error and std. dev.", frequencies),
                Panel("(c) latency", x, "seconds from the window's start", latency),
            ],
        )
