"""The demo on a terminal: logs are written, followed on Spark, and shown as they are answered."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import resources
from pathlib import Path

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from muntin.language.program import sql
from muntin.model.jobs import Program
from muntin.run.loop import Turn
from muntin.run.results import Departing
from muntin.show import terminal
from muntin.show.console import ready, tell
from muntin.show.demo.shop import SERVERS
from muntin.show.output import shown
from muntin.show.table import TableText
from muntin.spark.gateway import Jvm
from muntin.spark.runner import Settings, SparkRun
from muntin.units import percent


def run_demo(seconds: float | None, jvm: Jvm) -> None:
    """Shows answers for so many seconds, or until Ctrl-C."""
    console = terminal.console(sys.stdout)
    with tempfile.TemporaryDirectory(prefix="muntin-demo-") as folder:
        with _shop(Path(folder) / "logs") as program:
            board = _Board(Path(folder), console)
            settings = Settings(Path(folder) / "state", True, idle_seconds=3, seconds=seconds)
            with ready(jvm, console) as (context, stop):
                run = SparkRun(program, context, settings, stop)
                with board.shown():
                    for turn in run.turns():
                        board.seen(turn)
        tell(run.summary, console)
        console.print("Next: write your own SQL file and run `muntin try FILE.sql`; see README.md.")


@contextmanager
def _shop(folder: Path) -> Iterator[Program]:
    """The shop's program, while its servers write logs."""
    writer = subprocess.Popen([sys.executable, "-m", "muntin.show.demo.shop", str(folder)])
    try:
        _wait_for_logs(folder)
        text = resources.files("muntin.show.demo").joinpath("shop.sql").read_text()
        yield sql(text.replace("{folder}", str(folder)))
    finally:
        writer.terminate()
        writer.wait()


def _wait_for_logs(folder: Path) -> None:
    limit = time.monotonic() + 10
    logs = [folder / server / "events.jsonl" for server in SERVERS]
    while time.monotonic() < limit and not all(p.exists() and p.stat().st_size for p in logs):
        time.sleep(0.05)


class _Board:
    """The newest window of every job, redrawn as they come."""

    def __init__(self, folder: Path, console: Console) -> None:
        self._folder = folder
        self._console = console
        self._newest: dict[str, tuple[Departing, float]] = {}
        self._live: Live | None = None
        self._started = time.monotonic()
        self._records = 0
        self._windows = 0
        self._over = False

    @contextmanager
    def shown(self) -> Iterator[None]:
        with Live(self._drawn(), console=self._console, auto_refresh=False) as live:
            self._live = live
            yield
            self._over = True  # the summary has the last word on totals
            live.update(self._drawn(), refresh=True)
        self._console.print()

    def seen(self, turn: Turn) -> None:
        for windows in turn.emission.windows:
            if windows.counts:  # or all of them were shed
                self._newest[windows.job.title] = (windows, time.time())
            self._windows += windows.num_windows
            self._records = turn.records
        if turn.emission.windows and self._live is not None:
            self._live.update(self._drawn(), refresh=True)

    def _drawn(self) -> Group:
        head = Text(f"{len(SERVERS)} servers write to {self._folder / 'logs'}; Ctrl-C ends\n")
        if not self._newest:
            return Group(head, Text("waiting for the first windows to end …"))
        tables = [self._table(*item) for _, item in sorted(self._newest.items())]
        foot = Text(f"{self._records:,} records read, {self._windows:,} windows answered")
        return Group(head, *tables, *([] if self._over else [foot]))

    def _table(self, windows: Departing, at: float) -> Group:
        newest = windows.newest()
        (last,) = newest.counts
        _, end_us = newest.bounds(last)
        rows = shown(newest.table(), detail=False).drop_columns(["c2"])
        c2 = windows.scores[last]
        caption = (
            f"lag {at - end_us / 1e6:.1f} s · {windows.counts[last].read:,} records · "
            f"{percent(c2.area)} of {c2.sources} servers, {c2.reason}"
        )
        table = TableText(windows.job.title, rows, self._console.width)
        return Group(table.drawn(), Text(f"  {caption}\n", style="dim"))
