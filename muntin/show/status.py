"""How a run is doing, for people."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from rich.console import Console
from rich.table import Table
from rich.text import Text

from muntin.show.terminal import fits
from muntin.store.status import Row
from muntin.units import describe, percent


def draw(jobs: Sequence[Row], sources: Sequence[Row], console: Console) -> None:
    """The same for people."""
    _draw_jobs(jobs, console)
    table = Table(header_style="bold")
    for name in ("stream", "source", "counts from", "read up to", "last heard", "files"):
        table.add_column(name, overflow="fold")  # names in full
    for row in sources:
        times = (_text(row[name]) for name in ("from", "to", "heard"))
        files = "are gone" if row["ended"] else "are there" if row["seen"] else "were never seen"
        files = "are at its agent" if row["agent"] else files
        table.add_row(Text(row["stream"]), Text(row["source"]), *times, files)
    console.print(table)


def _draw_jobs(jobs: Sequence[Row], console: Console) -> None:
    """A table; where there is no room for it, a paragraph a job. Nothing is cut."""
    names = ["job", "windows", "lag p50", "lag p99", "within", "misses", "mean C²", "late"]
    names.append("failed")
    dear = any(row["shed"] for row in jobs)
    names += ["shed", "answer takes", "of all answers"] if dear else []
    thinned = any(row["thinned"] for row in jobs)
    names += ["lack shed panes", "of all computing"] if thinned else []
    stopped = any(row["stopped"] is not None for row in jobs)
    names += ["stopped at"] if stopped else []
    changed = any(row["version"] > 1 or row["parameters"] or row["paused"] for row in jobs)
    names += ["version"] if changed else []
    rows = []
    for row in jobs:
        lags = (_lag(row[name]) for name in ("lag_p50", "lag_p99", "within"))
        misses = "" if row["misses"] is None else f"{row['misses']:,}"
        area = "" if row["c2_area"] is None else percent(row["c2_area"])
        lost = (f"{row[name]:,}" for name in ("late", "failed"))
        more = [f"{row['shed']:,}", _lag(row["answer"]), _share(row["share"])] if dear else []
        more += [f"{row['thinned']:,}", _share(row["computing"])] if thinned else []
        more += [_text(row["stopped"])] if stopped else []
        more += [_version(row)] if changed else []
        rows.append([row["job"], f"{row['windows']:,}", *lags, misses, area, *lost, *more])
    table = Table(header_style="bold")
    for name in names:
        is_text = name in ("job", "stopped at", "version")
        table.add_column(name, justify="left" if is_text else "right", no_wrap=True)
    for cells in rows:
        table.add_row(*map(Text, cells))
    if fits(table, console):
        console.print(table)
        return
    for job, *cells in rows:
        told = ", ".join(f"{n} {cell}" for n, cell in zip(names[1:], cells, strict=True) if cell)
        console.print(Text.assemble((job, "bold"), f": {told}"))


def _version(row: Row) -> str:
    """The version of a job, with the values of its parameters, and whether it is paused."""
    values = ", ".join(f"{name} = {value}" for name, value in row["parameters"].items())
    told = f"{row['version']}" + (f" ({values})" if values else "")
    return f"{told}, paused" if row["paused"] else told


def _text(at: datetime | int | None) -> str:
    if isinstance(at, datetime):
        return at.replace(tzinfo=None).isoformat(" ", "seconds")
    return "" if at is None else f"{at:,}"


def _share(share: float | None) -> str:
    return "" if share is None else percent(share)


def _lag(seconds: float | None) -> str:
    if seconds is None:
        return ""
    if seconds < 0.1:
        return f"{1000 * seconds:.0f} ms"
    return f"{seconds:,.2f} s" if seconds < 100 else describe(round(seconds) * 1_000_000)
