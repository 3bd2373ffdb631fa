"""A run on Spark as seen from a terminal: a bar while catching up, lines as results come."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from muntin.emission import JobWindows
from muntin.model import Program
from muntin.output import late_text, window_text
from muntin.spark.context import start_context
from muntin.spark.runner import Settings, SparkRun, Step, Summary
from muntin.windows.choice import Sharing


@dataclass(frozen=True)
class RunOptions:
    """What the command line asks for."""

    state: Path
    master: str | None
    once: bool
    seconds: float | None
    idle_seconds: float
    sharing: Sharing = "auto"


def run_program(program: Program, options: RunOptions, console: Console) -> dict[str, Any]:
    """Runs to the end, to the time limit or to Ctrl-C; returns the totals."""
    with console.status("starting Spark"):
        context = start_context(options.master)
    settings = Settings(
        options.state,
        not options.once,
        options.idle_seconds,
        seconds=options.seconds,
        sharing=options.sharing,
    )
    run = SparkRun(program, context, settings)
    try:
        with stop_on_signals(run.stop), _shown(console, options.once) as view:
            for step in run.steps():
                view.seen(step)
    finally:
        context.stop()
    summary = run.summary
    tell(summary, console)
    console.print(f"results are in {options.state}; see `muntin results JOB`", soft_wrap=True)
    return summary.to_json()


def tell(summary: Summary, console: Console) -> None:
    """The totals in words."""
    console.print(
        f"{summary.records:,} records ({summary.bytes / 1e6:,.1f} MB) in {summary.seconds:.2f} s, "
        f"{summary.mb_per_second:,.1f} MB/s; {summary.bad:,} bad; {summary.windows:,} windows"
    )
    for job, records in summary.late.items():
        console.print(f"[yellow]note:[/] {late_text(job, records, summary.slack_us[job])}")


class _View:
    def __init__(self, console: Console, progress: Progress | None) -> None:
        self._console = console
        self._progress = progress
        self._task = progress.add_task("reading", total=None) if progress else None

    def seen(self, step: Step) -> None:
        for note in step.notes:
            self._console.print(f"[yellow]note:[/] {escape(note)}", soft_wrap=True)
        if self._progress is not None and self._task is not None:
            done = self._progress.tasks[self._task].completed + step.bytes
            self._progress.update(self._task, completed=done, total=done + step.remaining)
            return
        for windows in step.emission.windows:
            self._console.print(_left(windows))


def _left(windows: JobWindows) -> str:
    """Which windows left, and how long after their end."""
    newest = windows.newest()
    (last,) = newest.counts
    start, end = newest.bounds(last)
    more = f" and {len(windows.counts) - 1} before" if len(windows.counts) > 1 else ""
    rows = f"{windows.rows.num_rows:,} rows"
    if not windows.job.shape.axis.is_time:
        return f"{windows.job.name}: {start:,} – {end:,}{more}, {rows}"
    times = (datetime.fromtimestamp(us / 1e6, UTC) for us in (start, end))
    lag = time.time() - end / 1e6
    return f"{windows.job.name}: {window_text(*times)}{more}, {rows}, lag {lag:,.1f} s"


@contextmanager
def _shown(console: Console, once: bool) -> Iterator[_View]:
    if not once:
        console.print("following the logs; Ctrl-C stops, `muntin results JOB` shows")
        yield _View(console, None)
        return
    columns = (TextColumn("reading"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        yield _View(console, progress)


@contextmanager
def stop_on_signals(stop: threading.Event) -> Iterator[None]:
    """The first Ctrl-C ends after the batch at hand; a second one ends at once."""

    def on_signal(number: int, _: object) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    before = {s: signal.signal(s, on_signal) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
