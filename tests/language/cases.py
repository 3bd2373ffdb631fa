"""Reads the fixtures. In all of them a blank line ends a case and `# ` starts a heading."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from muntin.language.check import check
from muntin.model.jobs import Job, Program
from muntin.model.records import Axis, Column
from muntin.model.streams import Stream
from muntin.units import describe, describe_extent, describe_time, describe_window

FIXTURES = Path(__file__).parent / "fixtures"
SHOP = """
CREATE STREAM shop (
  ts TIMESTAMP, product VARCHAR, store VARCHAR, clicks INTEGER, price DECIMAL(10, 2), ms DOUBLE,
  ok BOOLEAN, day DATE, id UBIGINT, tags VARCHAR[], geo STRUCT(city VARCHAR, lat DOUBLE),
  extra JSON, "http.status" INTEGER
) FROM 'logs/{source}/*.jsonl' FORMAT json TIMESTAMP ts
"""


@dataclass(frozen=True)
class Mistake:
    """A text, and the error it must give: its message, its line and the carets under it."""

    text: str
    line: int
    carets: str
    message: str

    def shown(self) -> str:
        """The error as a user sees it."""
        column = self.carets.index("^") + 1
        row = self.text.split("\n")[self.line - 1]
        margin = " " * len(str(self.line))
        return (
            f"line {self.line}, column {column}: {self.message}\n"
            f"  {self.line} | {row}\n  {margin} | {self.carets}"
        )


@dataclass(frozen=True)
class Pair:
    """A text, and the facts that it becomes: of each kind that is named, all there are."""

    text: str
    facts: dict[str, list[str]]


def mistakes(name: str) -> list[Mistake]:
    """Cases of a text with `^^^ message` under the place of the error."""
    return [_mistake(block) for block in _blocks(name)]


def pairs(name: str) -> list[Pair]:
    """Cases of a text, a line `=>`, and lines of a kind of fact and its value, if any."""
    return [_pair(block) for block in _blocks(name)]


def lines(name: str) -> list[str]:
    """Cases of one line."""
    return [line for block in _blocks(name) for line in block]


def program(text: str) -> Program:
    """What a text defines when the stream `shop` is there."""
    return check(text, _no_columns, _shop())


@cache
def _shop() -> Mapping[str, Stream]:
    return check(SHOP, _no_columns).streams


def facts_of_job(job: Job) -> dict[str, list[str]]:
    """What a job is, as the fixtures say it: a kind of fact, and its values in order."""
    shape = job.shape
    bounds = [("begin", shape.begin), ("until", shape.until)]
    cells = [cell for part in job.shape.parts for cell in part.cells]
    return {
        "window": [describe_window(shape.axis, spec) for spec in job.windows],
        "pane": [describe_extent(shape.axis, shape.pane)],
        "gap": [describe(shape.gap)] if shape.gap is not None else [],
        "bound": [f"{n} {_position(shape.axis, at)}" for n, at in bounds if at is not None],
        "where": [job.shape.where] if job.shape.where else [],
        "key": [f"{key.type} = {key.sql}" for key in job.shape.keys],
        "cell": [f"{cell.type} = {cell.merge.upper()} of {cell.sql}" for cell in cells],
        "column": [f"{o.name} {o.type} = {o.sql}".strip() for o in job.outputs],
        "having": [job.having] if job.having else [],
        "order": [f"{o.sql} {o.direction}" for o in job.order],
        "limit": [str(job.limit)] if job.limit is not None else [],
        "uses": [", ".join(job.shape.uses)],
        "finish": [" ".join(job.around.sql.split())] if job.around is not None else [],
    }


def facts_of_stream(stream: Stream) -> dict[str, list[str]]:
    """What a stream is, as the fixtures say it."""
    form = stream.format
    return {
        "files": list(stream.patterns),
        "format": [form.kind],
        "pattern": [form.pattern] if form.pattern is not None else [],
        "csv": [f"header {form.header}, delimiter {form.delimiter!r}"],
        "column": [f"{c.name} {c.type}" for c in stream.columns],
        "timestamp": [stream.timestamp],
        "slack": [describe(stream.slack_us)] if stream.slack_us is not None else [],
        "bad": [stream.on_bad_row],
    }


def _position(axis: Axis, at: int) -> str:
    return describe_time(at) if axis.is_time else str(at)


def _no_columns(stream: Stream) -> tuple[Column, ...]:
    """Stands for looking into log files."""
    return (Column("ts", "TIMESTAMP"), Column("level", "VARCHAR"), Column("line", "VARCHAR"))


def _blocks(name: str) -> Iterator[list[str]]:
    block: list[str] = []
    for line in (*(FIXTURES / name).read_text(encoding="utf-8").split("\n"), ""):
        if line and not line.startswith("# "):
            block.append(line)
        elif block:
            yield block
            block = []


def _mistake(block: list[str]) -> Mistake:
    marks = [re.fullmatch(r"(\s*\^+) (.+)", line) for line in block]
    at, mark = next((i, mark) for i, mark in enumerate(marks) if mark)
    return Mistake("\n".join(block[:at] + block[at + 1 :]), at, mark[1], mark[2])


def _pair(block: list[str]) -> Pair:
    at = block.index("=>")
    facts: dict[str, list[str]] = {}
    for line in block[at + 1 :]:
        kind, _, value = line.partition(" ")
        facts.setdefault(kind, []).extend([value.strip()] if value.strip() else [])
    return Pair("\n".join(block[:at]), facts)
