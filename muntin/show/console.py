"""A run on Spark as seen from a terminal: a bar while catching up, lines as results come."""

from __future__ import annotations

import logging
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from muntin.control.access import Access
from muntin.control.address import Address
from muntin.control.feed import Feed
from muntin.loading import Stop
from muntin.model.jobs import Program
from muntin.run.agents import require_agents
from muntin.run.door import Door
from muntin.run.loop import Turn
from muntin.run.results import Departing
from muntin.schedule.recovery import DEFAULT
from muntin.show.output import losses, note
from muntin.show.values import window_text
from muntin.spark.context import own_context
from muntin.spark.gateway import Jvm
from muntin.spark.runner import Settings, SparkRun, Summary
from muntin.store import DEFAULT_STATE
from muntin.store.hold import locked
from muntin.store.storage import Place
from muntin.units import moment
from muntin.windows.choice import Sharing
from muntin.wire.keys import Keys

if TYPE_CHECKING:
    from pyspark import SparkContext

_DAY = 86_400.0  # seconds
_MB = 1_000_000  # below this, speed says nothing


@dataclass(frozen=True)
class RunOptions:
    """What the command line asks for."""

    state: Place
    once: bool
    seconds: float | None
    idle_seconds: float
    sharing: Sharing = "auto"
    keys: Keys | None = None
    access: Access | None = None  # to the control service, while logs are followed
    folder: Path | None = None  # where Python of jobs to come is looked for
    recovery: float = DEFAULT  # seconds, after the loss of an executor


def run_program(
    program: Program, options: RunOptions, jvm: Jvm, console: Console
) -> dict[str, Any]:
    """Runs to the end, to the time limit or to Ctrl-C; returns the totals."""
    settings = Settings(
        options.state,
        not options.once,
        options.idle_seconds,
        seconds=options.seconds,
        sharing=options.sharing,
        keys=options.keys,
        recovery=options.recovery,
    )
    require_agents(program, not options.once, options.keys)
    with (
        locked(options.state) as hold,
        _control(options) as control,
        ready(jvm, console) as (context, stop),
    ):
        door = None if control is None else control.door
        tell_now = partial(_note, console)
        run = SparkRun(program, context, settings, stop, hold=hold, door=door, note=tell_now)
        with _shown(console, options.once, control) as view:
            for turn in run.turns():
                if control is not None:
                    control.feed.take(turn.emission)
                view.seen(turn)
    tell(run.summary, console)
    where = "" if options.state == DEFAULT_STATE else f" --state {options.state}"
    kept = next((s.name for s in program.streams.values() if s.keep is not None), None)
    told = f"results are in {options.state}; see `muntin results "
    told += f"{next(iter(program.titles), 'JOB')}{where}`"
    if kept is not None and not program.jobs:
        told = f'records are in {options.state}; see `muntin ask "FROM {kept} LIMIT 5"{where}`'
    console.print(told, soft_wrap=True)
    return run.summary.to_json()


@dataclass(frozen=True)
class _Control:
    """What a program that follows logs has for those who ask and order."""

    door: Door
    feed: Feed
    address: Address


@contextmanager
def _control(options: RunOptions) -> Iterator[_Control | None]:
    if options.access is None or options.once:
        yield None
        return
    from muntin.control.service import serving  # other runs do without what it loads

    door, feed = Door(options.folder, options.keys), Feed(options.state)
    with serving(options.access, door, feed, options.state) as address:
        yield _Control(door, feed, address)


def tell(summary: Summary, console: Console) -> None:
    """The totals in words."""
    console.print(_totals(summary), soft_wrap=True)
    for job, (records, windows) in summary.open.items():
        wait = f"wait{'s' if records == 1 else ''} in {_count(windows, 'open window')}"
        console.print(f"{_count(records, 'record')} of job '{job}' {wait}", soft_wrap=True)
    for text in losses(summary.records, summary.bad, summary.late, summary.slack_us):
        console.print(note(text), soft_wrap=True)


def _totals(summary: Summary) -> str:
    if not (summary.records or summary.bad or summary.windows):
        return "nothing new since the last run" if summary.resumed else "no records, no windows"
    size = f" ({summary.bytes / 1e6:,.1f} MB)" if summary.bytes >= _MB else ""
    speed = f", {summary.mb_per_second:,.1f} MB/s" if summary.bytes >= _MB else ""
    return (
        f"{_count(summary.records, 'record')}{size} in {summary.seconds:.2f} s{speed}; "
        f"{_count(summary.windows, 'window')}"
    )


def _count(number: int, thing: str) -> str:
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


class _View:
    def __init__(self, console: Console, progress: Progress | None) -> None:
        self._console = console
        self._progress = progress
        self._task = progress.add_task("reading", total=None) if progress else None
        self._open: set[str] = set()  # jobs of which it was told that open windows are shown

    def seen(self, turn: Turn) -> None:
        for text in turn.notes:
            self._console.print(note(text), soft_wrap=True)
        if self._progress is not None and self._task is not None:
            done = self._progress.tasks[self._task].completed + turn.bytes
            self._progress.update(self._task, completed=done, total=done + turn.remaining)
            return
        for windows in turn.emission.windows:
            final, title = windows.final, windows.job.title
            if final.scores:
                self._console.print(_left(final), soft_wrap=True)
            elif windows.scores and title not in self._open:
                # Each change would be a line, among which the rest is not found.
                self._open.add(title)
                told = (
                    f"{title}: open windows change; `muntin results {title}` has them as they are"
                )
                self._console.print(told, soft_wrap=True)


def _left(windows: Departing) -> str:
    """Which windows left, and how long after their end."""
    if not windows.counts:
        return f"{windows.job.title}: {_count(len(windows.scores), 'window')} shed"
    last = windows.last
    start, end = windows.bounds(last)
    more = f" and {windows.num_windows - 1:,} before" if windows.num_windows > 1 else ""
    rows = _count(windows.num_rows, "row")
    c2, revision = windows.scores[last], windows.revisions.get(last, 0)
    more += f", revision {revision}" if revision else ""
    if not windows.job.shape.axis.is_time:
        return f"{windows.job.title}: {start:,} – {end:,}{more}, {rows}, {c2}"
    times = moment(start), moment(end)
    lag = windows.at - end / 1e6
    days = f"of {abs(lag) / _DAY:,.0f} days {'ago' if lag > 0 else 'ahead'}"
    shown = f"lag {lag:,.1f} s" if abs(lag) < _DAY else days
    return f"{windows.job.title}: {window_text(*times)}{more}, {rows}, {shown}, {c2}"


@contextmanager
def _shown(console: Console, once: bool, control: _Control | None) -> Iterator[_View]:
    if not once:
        console.print("following the logs; Ctrl-C stops, `muntin results JOB` shows")
        if control is not None:
            told = f"`muntin sql` and `muntin job` change jobs; control at {control.address.url}"
            console.print(told, soft_wrap=True)
        yield _View(console, None)
        return
    columns = (TextColumn("reading"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    is_plain = not console.is_terminal  # where a bar would be an empty line
    with Progress(*columns, console=console, transient=True, disable=is_plain) as progress:
        yield _View(console, progress)


@contextmanager
def ready(jvm: Jvm, console: Console) -> Iterator[tuple[SparkContext, Event]]:
    """A context, and the event that Ctrl-C sets, from before the start to after the end."""
    stop = Stop()
    with stop_on_signals(stop), ExitStack() as stack:
        with console.status("starting Spark"):
            context = stack.enter_context(own_context(jvm, stop, partial(_note, console)))
        yield context, stop


def _note(console: Console, text: str) -> None:
    console.print(note(text), soft_wrap=True)


@contextmanager
def stop_on_signals(stop: Event) -> Iterator[None]:
    """The first Ctrl-C ends after the batch at hand; a second one ends at once."""

    def on_signal(number: int, _: object) -> None:
        if stop.is_set():
            logging.disable()  # of calls of Java, which are cut off
            raise KeyboardInterrupt
        stop.set()

    before = {s: signal.signal(s, on_signal) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
