"""A state as people read it: what is in it, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from muntin.show.terminal import fits
from muntin.store.findings import Finding, Weight
from muntin.store.inspection import Shown

_STYLES = {Weight.DAMAGE: "bold red", Weight.LEFTOVER: "dim", Weight.NOTE: ""}


def draw(shown: Shown, console: Console) -> None:
    """Lists streams and tables. Where there is no room for a table, each stream is a paragraph."""
    console.print(f"{shown.place}: {size_text(shown.bytes)}", soft_wrap=True)
    names = ("stream", "jobs", "batch", "sources", "records", "open panes", "files", "size")
    rows = []
    for each in shown.streams:
        numbers = (each.batch, each.sources, each.records, each.panes, each.files)
        told = (f"{number:,}" for number in numbers)
        rows.append([each.name, ", ".join(each.jobs), *told, size_text(each.bytes)])
    streams = _table(names, rows)
    if fits(streams, console):
        console.print(streams)
    else:
        for stream, (name, jobs, *cells) in zip(shown.streams, rows, strict=True):
            line = ", ".join(f"{n} {cell}" for n, cell in zip(names[2:], cells, strict=True))
            console.print(Text.assemble("stream ", (name, "bold"), f": {line}"))
            console.print(Text(f"jobs of {name}: {jobs}" if stream.jobs else f"{name} has no jobs"))
    tables = [
        [job.job, f"{job.rows:,}", f"{job.files:,}", size_text(job.bytes)] for job in shown.tables
    ]
    if tables:
        console.print(_table(("results of", "rows", "files", "size"), tables))


def tell(findings: Sequence[Finding], console: Console, every: bool = False) -> None:
    """Tells what was found, the worst first; what is left over by folder, or `every` file."""
    for weight in Weight:
        found = [finding for finding in findings if finding.weight is weight]
        if weight is Weight.LEFTOVER and not every:
            found = _counted(found)
        for finding in found:
            line = f"{weight.value}: {finding.place}: {finding.text}"
            console.print(line, style=_STYLES[weight], soft_wrap=True, highlight=False)
    damaged = sum(finding.weight is Weight.DAMAGE for finding in findings)
    files = "1 file or table is" if damaged == 1 else f"{damaged:,} files or tables are"
    console.print(
        f"{files} damaged" if damaged else "every file can be read, and all fits together"
    )


def _counted(findings: Sequence[Finding]) -> list[Finding]:
    """Those of one folder, of which the same is to be said, as one."""
    alike: dict[tuple[str, str], list[Finding]] = {}
    for finding in findings:
        alike.setdefault((finding.place.rpartition("/")[0], finding.text), []).append(finding)
    return [
        some[0]
        if len(some) == 1
        else Finding(some[0].weight, folder, f"{len(some):,} files, each of which {text}")
        for (folder, text), some in alike.items()
    ]


def size_text(size: float) -> str:
    """A size as people say it."""
    if size < 1000:
        return f"{size:.0f} B"
    for unit in ("kB", "MB", "GB"):
        size /= 1000
        if size < 1000:
            return f"{size:.1f} {unit}"
    return f"{size / 1000:,.1f} TB"


def _table(names: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for number, name in enumerate(names):
        is_text = number == 0 or name == "jobs"
        table.add_column(name, justify="left" if is_text else "right", overflow="fold")
    for cells in rows:
        table.add_row(*map(Text, cells))
    return table
