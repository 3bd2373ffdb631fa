"""The two questions every contestant answers, and how two answers are told to be the same.

An answer is rows of (window_start, window_end, product, clicks), whoever computed it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import duckdb

from benchmarks.shop import COLUMNS, FILE

MINUTE_US = 60_000_000


@dataclass(frozen=True)
class Question:
    """Clicks by product in every window of `range_us`, one each `slide_us`."""

    name: str
    range_us: int
    slide_us: int
    store: str | None = None  # only this store's records
    top: int | None = None  # only so many products a window, by clicks and then by name

    @property
    def reads(self) -> tuple[str, ...]:
        """The columns without which there is no answer."""
        return ("ts", "product", "clicks", *(["store"] if self.store else []))


QUESTIONS = {
    "tumbling": Question("tumbling", MINUTE_US // 2, MINUTE_US // 2, store="video_games"),
    "sliding": Question("sliding", 60 * MINUTE_US, MINUTE_US, top=10),
    "overlap": Question("overlap", 60 * MINUTE_US, MINUTE_US // 60, top=10),
}


def muntin_sql(question: Question, folder: Path) -> str:
    """The question as Muntin's users write it."""
    columns = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
    where = f"WHERE store = '{question.store}'\n" if question.store else ""
    limit = f"ORDER BY clicks DESC LIMIT {question.top}\n" if question.top else ""
    return (
        f"CREATE STREAM shop ({columns})\n"
        f"FROM '{folder}/{{source}}/{FILE}' FORMAT json TIMESTAMP ts;\n\n"
        f"CREATE JOB {question.name} AS\n"
        f"SELECT product, SUM(clicks) AS clicks FROM shop\n"
        f"{where}GROUP BY product\n{limit}"
        f"WINDOW {question.range_us // 1_000_000} SECONDS "
        f"EVERY {question.slide_us // 1_000_000} SECONDS;\n"
    )


def panes_sql(question: Question, folder: Path) -> str:
    """In DuckDB: one scan of the files into clicks by product and slide."""
    columns = ", ".join(f"{name}: '{COLUMNS[name]}'" for name in question.reads)
    where = f"WHERE store = '{question.store}'" if question.store else ""
    return f"""
        SELECT epoch_us(ts) // {question.slide_us} AS pane, product, sum(clicks) AS clicks
        FROM read_json('{folder}/*/{FILE}', format = 'newline_delimited', columns = {{{columns}}})
        {where} GROUP BY ALL
    """


def windows_sql(question: Question, panes: str) -> str:
    """In DuckDB: the answer from panes, by joining every pane to each window that holds it."""
    length = question.range_us // question.slide_us
    rank = "row_number() OVER (PARTITION BY w ORDER BY clicks DESC, product)"
    top = f"QUALIFY {rank} <= {question.top}" if question.top else ""
    return f"""
        SELECT make_timestamp(w * {question.slide_us}) AS window_start,
               make_timestamp((w + {length}) * {question.slide_us}) AS window_end,
               product, clicks
        FROM (SELECT w, product, sum(clicks) AS clicks
              FROM (SELECT *, unnest(range(pane - {length} + 1, pane + 1)) AS w FROM {panes})
              GROUP BY ALL)
        {top}
    """


@dataclass(frozen=True)
class Checksum:
    """Equal for equal rows, in whatever order they were written."""

    rows: int
    clicks: int
    md5: str


def checksum(con: duckdb.DuckDBPyConnection, answer_sql: str) -> Checksum:
    line = (
        "concat_ws(',', epoch_us(CAST(window_start AS TIMESTAMP)), "
        "epoch_us(CAST(window_end AS TIMESTAMP)), product, CAST(clicks AS BIGINT))"
    )
    found = con.execute(
        f"SELECT count(*), CAST(coalesce(sum(clicks), 0) AS BIGINT), "
        f"md5(coalesce(string_agg(line, chr(10) ORDER BY line), '')) "
        f"FROM (SELECT clicks, {line} AS line FROM ({answer_sql}))"
    ).fetchone()
    assert found is not None
    return Checksum(*found)
