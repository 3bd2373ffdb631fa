"""How a run is doing: what its jobs have answered and how late, and what became of its sources."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from muntin.errors import InputError
from muntin.fidelity.scoreboard import Source
from muntin.fidelity.timing import Timing
from muntin.model import TIME
from muntin.run.progress import Lateness
from muntin.store.checkpoint import Saved, saved_in
from muntin.units import describe, moment, percent

Row = dict[str, Any]


def status(state: Path) -> tuple[list[Row], list[Row]]:
    """A row for every job in force, and one for every source that was read or is declared."""
    streams = saved_in(state)
    if not streams:
        raise InputError(f"nothing has been run in {state} yet; see `muntin run --help`")
    jobs = [row for saved in streams.values() for row in _jobs(saved)]
    sources = [row for name, saved in streams.items() for row in _sources(name, saved)]
    return jobs, sources


def _jobs(saved: Saved) -> Iterator[Row]:
    for job in saved.in_force.shapes:
        timing = saved.progress.timings.get(job, Timing())
        yield {
            "job": job,
            "windows": timing.windows,
            "lag_p50": _seconds(timing.lag_us(0.5)),
            "lag_p99": _seconds(timing.lag_us(0.99)),
            "within": _seconds(timing.within_us),
            "misses": timing.misses if timing.within_us is not None else None,
            "c2_area": timing.mean_area if timing.windows else None,
            "late": saved.progress.late.get(job, Lateness()).records,
            "failed": saved.progress.failures.totals.get(job, 0),
            "stopped": _stopped(saved, job),
        }


def _stopped(saved: Saved, job: str) -> datetime | int | None:
    """From where on a job does not answer, as it has failed too often; on whichever axis."""
    position = saved.progress.failures.stopped_at(job)
    axis, _ = saved.in_force.grids.get(saved.in_force.shapes[job], (TIME.column, 0))
    return _moment(position) if axis == TIME.column else position


def _sources(stream: str, saved: Saved) -> Iterator[Row]:
    for name, source in sorted(saved.progress.sources.items()):
        yield {
            "stream": stream,
            "source": name,
            "from": _moment(source.first.get(TIME.column)),
            "to": _moment(source.reached.get(TIME.column)),
            "heard": _moment(int(1e6 * _heard(source)) or None),
            "ended": source.ended,
            "seen": True,
        }
    for name in sorted(set(saved.declared) - saved.progress.sources.keys()):
        unknown = dict.fromkeys(("from", "to", "heard"))
        yield {"stream": stream, "source": name, **unknown, "ended": False, "seen": False}


def _heard(source: Source) -> float:
    """When a source last gave a sign of life: its files tell, a restart of ours does not."""
    return max(source.wrote_at or source.heard_at or 0.0, source.touched_at)


def _moment(position: int | None) -> datetime | None:
    return None if position is None else moment(position)


def _seconds(us: int | None) -> float | None:
    return None if us is None else us / 1e6


def draw(jobs: Sequence[Row], sources: Sequence[Row], console: Console) -> None:
    """The same for people."""
    table = Table(header_style="bold")
    for name in (
        "job",
        "windows",
        "lag p50",
        "lag p99",
        "within",
        "misses",
        "mean C²",
        "late",
        "failed",
    ):
        table.add_column(name, justify="left" if name == "job" else "right")
    stopped = any(row["stopped"] is not None for row in jobs)
    if stopped:
        table.add_column("stopped at")
    for row in jobs:
        lags = (_lag(row[name]) for name in ("lag_p50", "lag_p99", "within"))
        misses = "" if row["misses"] is None else f"{row['misses']:,}"
        area = "" if row["c2_area"] is None else percent(row["c2_area"])
        lost = (f"{row[name]:,}" for name in ("late", "failed"))
        numbers = f"{row['windows']:,}", *lags, misses, area, *lost
        table.add_row(Text(row["job"]), *numbers, *([_text(row["stopped"])] if stopped else []))
    console.print(table)
    table = Table(header_style="bold")
    for name in ("stream", "source", "counts from", "read up to", "last heard", "files"):
        table.add_column(name)
    for row in sources:
        times = (_text(row[name]) for name in ("from", "to", "heard"))
        files = "are gone" if row["ended"] else "are there" if row["seen"] else "were never seen"
        table.add_row(Text(row["stream"]), Text(row["source"]), *times, files)
    console.print(table)


def _text(at: datetime | int | None) -> str:
    if isinstance(at, datetime):
        return at.replace(tzinfo=None).isoformat(" ", "seconds")
    return "" if at is None else f"{at:,}"


def _lag(seconds: float | None) -> str:
    if seconds is None:
        return ""
    if seconds < 0.1:
        return f"{1000 * seconds:.0f} ms"
    return f"{seconds:,.2f} s" if seconds < 100 else describe(round(seconds) * 1_000_000)
