"""Click sessions of users who move between servers, over a day (Figure 11).

A user comes some times a day, clicks every few minutes for a while, and is gone for at least half
an hour. Any click may go to another server than the one before. Windows of two hours are made of
panes of six minutes. The question is how many sessions each user has in a window.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

import muntin as mt
from benchmarks.experiments.playback import (
    PATIENCE,
    START,
    Piece,
    busy_ticks,
    declared,
    names,
    play,
    sent_at,
)
from benchmarks.experiments.plots import Panel, draw
from benchmarks.experiments.policies import FEW, SHARES, Answers, jobs_sql, lines, table

HOUR, PANE, GAP = 3600.0, 360.0, 1800
WINDOW = 20 * PANE
Click = tuple[float, int, int]  # when, server, user


@dataclass(frozen=True)
class Setting:
    servers: int = 10
    users: int = 600
    hours: int = 24
    moves: float = 0.3  # how often the next click is on another server
    shares: Sequence[int] = SHARES


def clicks_of(random: np.random.Generator, setting: Setting, user: int) -> Iterator[Click]:
    """A user's clicks, in seconds since the start."""
    at = float(random.exponential(2 * HOUR))
    while at < setting.hours * HOUR:
        server = int(random.integers(setting.servers))
        for _ in range(1 + random.poisson(6)):
            yield at, server, user
            at += float(random.exponential(180))
            if random.random() < setting.moves:
                server = int(random.integers(setting.servers))
        at += GAP + float(random.exponential(2 * HOUR))


def write(setting: Setting, seed: int = 1) -> Iterator[Piece]:
    """The panes of every server, as it sends them."""
    random = np.random.default_rng(seed)
    panes = int(setting.hours * HOUR / PANE)
    rows: dict[tuple[int, int], list[Click]] = {}
    for user in range(setting.users):
        for click in clicks_of(random, setting, user):
            rows.setdefault((click[1], int(click[0] / PANE)), []).append(click)
    ends = [START + PANE * (n + 1) for n in range(panes)]
    for server, name in enumerate(names(setting.servers)):
        sent = sent_at(random, ends, PANE * random.uniform(0.1, 0.5))
        for pane, at in enumerate(sent):
            yield Piece(at, name, _text(rows.get((server, pane), []), ends[pane]))


def _text(clicks: Sequence[Click], end: float) -> str:
    """The lines of a pane, and one that says that it is over."""
    rows = [{"t": round(START + at, 3), "user": f"u{user:03}"} for at, _, user in sorted(clicks)]
    return "".join(json.dumps(row) + "\n" for row in [*rows, {"t": end, "user": None}])


def program(folder: Path, setting: Setting) -> mt.Program:
    times = "list_sort(map_keys(histogram(t)))"
    gaps = (
        f"list_filter(range(2, len({times}) + 1), lambda i: {times}[i] - {times}[i - 1] >= {GAP})"
    )
    select = (
        f'SELECT "user", 1 + len({gaps}) AS sessions FROM clicks '
        'WHERE "user" IS NOT NULL GROUP BY "user"'
    )
    return mt.sql(
        f"CREATE STREAM clicks (t DOUBLE, user VARCHAR) FROM '{folder}/{{source}}.log' "
        f"FORMAT json TIMESTAMP t {declared(setting.servers)};"
        + jobs_sql(select, "2 HOURS PANE 6 MINUTES", setting.shares)
    )


def measure(folder: Path, setting: Setting) -> Answers:
    pieces = list(write(setting))
    # After the end of a window, every server that has sent its last pane counts.
    last = (piece.at for piece in pieces if (piece.at - START) % WINDOW < PANE)
    clock = sorted({*busy_ticks(pieces, PANE / 5), *last})
    return Answers.of(play(program(folder, setting), folder, pieces, clock, PATIENCE))


def session_errors(some: mt.Result, whole: mt.Result) -> Iterator[float]:
    """By how much the sessions of each user are off, relative to them; unseen users have none."""
    mine, true = _sessions(some), _sessions(whole)
    return (abs(mine.get(user, 0) - n) / n for user, n in true.items())


def seen_errors(some: mt.Result, whole: mt.Result) -> Iterator[float]:
    """The same, of users that were seen."""
    true = _sessions(whole)
    return (abs(n - true[user]) / true[user] for user, n in _sessions(some).items())


def users_seen(some: mt.Result, whole: mt.Result) -> Iterator[float]:
    yield some.rows.num_rows / whole.rows.num_rows


def _sessions(result: mt.Result) -> dict[str, int]:
    return {row["user"]: row["sessions"] for row in result.rows.to_pylist()}


def run(folder: Path, pictures: Path | None, quick: bool) -> Iterator[str]:
    """Runs the experiment, draws it if asked, and tells of it in Markdown."""
    setting = Setting(users=100, hours=4, shares=FEW) if quick else Setting()
    found = measure(folder, setting)
    errors, seen, of_seen = (
        {policy: line.scaled(100) for policy, line in lines(setting.shares, of).items()}
        for of in (
            partial(found.line, error=session_errors),
            partial(found.line, error=users_seen),
            partial(found.line, error=seen_errors),
        )
    )
    latency = {p: line.scaled(1 / 60) for p, line in lines(setting.shares, found.latency).items()}
    yield f"{len(found.windows)} windows"
    yield ""
    yield from table("relative error in sessions, %", errors, "{:.1f}")
    yield from table("the same of users seen, %", of_seen, "{:.1f}")
    yield from table("users seen, %", seen, "{:.1f}")
    yield from table("latency, minutes", latency, "{:.0f}")
    yield from table("C²", lines(setting.shares, found.area), "{:.3f}")
    if pictures is not None:
        x = "fidelity asked for, %"
        draw(
            pictures / "clicks.png",
            "Sessions of users who move between ten servers (compare Figure 11)",
            [
                Panel("(a) sessions per user", x, "relative error, %", errors),
                Panel("(b) users", x, "users seen, %", seen, 105),
                Panel("(c) latency", x, "minutes from the window's start", latency),
            ],
        )
