"""What is asked: jobs tell the numbers of the records they have counted, by server and second."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

_CELLS = (
    "SELECT source AS server, CAST(floor(t) AS BIGINT) AS second, count(*) AS c, sum(n) AS n, "
    "list(n) AS numbers FROM {stream} GROUP BY ALL"
)


@dataclass(frozen=True)
class Asked:
    """A job, with its windows in seconds."""

    name: str
    stream: str
    length: int
    slide: int
    bounds: str = ""

    @property
    def sql(self) -> str:
        return (
            f"CREATE JOB {self.name} AS {_CELLS.format(stream=self.stream)} "
            f"WINDOW {self.length} SECONDS EVERY {self.slide} SECONDS PANE 1 SECOND{self.bounds};"
        )

    @property
    def is_retained(self) -> bool:
        return "RETAIN" in self.bounds

    @property
    def hurries(self) -> bool:
        return "WITHIN" in self.bounds


FILES = (
    Asked("whole", "web", 1, 1),
    Asked("soon", "web", 4, 2, " WITHIN 3 SECONDS"),
    Asked("revised", "web", 2, 2, " WITHIN 2 SECONDS REVISE FOR 5 MINUTES"),
    Asked("kept", "web", 2, 2, " RETAIN 1 HOUR"),
)
AGENTS = (
    Asked("shipped", "shop", 2, 1, " RETAIN 1 HOUR"),
    Asked("hurried", "shop", 2, 2, " WITHIN 3 SECONDS"),
)
RETAINED = "web"  # the stream whose records are kept, in panes of a minute
SUMMED = (
    "CREATE JOB summed AS SELECT server, sum(c) AS c, sum(n) AS n FROM JOB whole GROUP BY server "
    "WINDOW 4 SECONDS;"
)
CLAUSES = "FORMAT json TIMESTAMP t SLACK 1 SECOND"
RECORDS = "RETAIN 1 HOUR OF STREAM (source, n)"


def question(of: str, start: str, end: str) -> str:
    """What is asked of a range: of a job that is retained, or of the records of a stream."""
    if of == RETAINED:
        return f"{_CELLS.format(stream=of)} BETWEEN '{start}' AND '{end}'"
    return f"SELECT server, second, c, n, numbers FROM {of} BETWEEN '{start}' AND '{end}'"


def program(logs: Path, agents: Path | None) -> str:
    """The SQL; `agents` is a file that lists addresses."""
    columns = "(t DOUBLE, n BIGINT, k VARCHAR)"
    web = f"CREATE STREAM web {columns} FROM '{logs}/{{source}}.log*' {CLAUSES} {RECORDS};"
    lines = [web]
    lines += [job.sql for job in FILES]
    if agents is not None:
        lines.append(f"CREATE STREAM shop {columns} FROM AGENTS '{agents}' {CLAUSES};")
        lines += [job.sql for job in AGENTS]
    lines.append(SUMMED)
    return "\n".join(lines) + "\n"
