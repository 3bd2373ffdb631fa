"""The jobs of a program that runs, for people."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console
from rich.table import Table
from rich.text import Text

from muntin.control.client import JobState


def draw(jobs: Iterable[JobState], console: Console) -> None:
    """A row for each job."""
    table = Table(header_style="bold")
    for name in ("job", "stream", "version", "windows", "parameters", "is"):
        table.add_column(name, justify="right" if name == "version" else "left")
    for job in jobs:
        values = ", ".join(f"{name} = {value}" for name, value in job.parameters.items())
        cells = (job.job, job.stream, str(job.version), ", ".join(job.windows), values)
        table.add_row(*map(Text, cells), "paused" if job.paused else "running")
    console.print(table)
