"""DuckDB alone, no Spark: one scan of the files into partial sums, as fast as it can be done.

The windows are made from the partial sums afterwards, untimed, to check everybody's rows.
"""

from __future__ import annotations

import duckdb

from benchmarks.contest import Entry, measure, parse_entry, report
from benchmarks.questions import panes_sql, windows_sql


def run(entry: Entry) -> None:
    con = duckdb.connect(config={"threads": entry.cores})
    con.execute("""SELECT from_json('{"a": 1}', '{"a": "BIGINT"}')""").fetchall()
    sql = f"CREATE TABLE panes AS {panes_sql(entry.question, entry.folder)}"
    measured = measure(lambda: con.execute(sql))
    report(measured, windows_sql(entry.question, "panes"), con)


if __name__ == "__main__":
    run(parse_entry(__doc__))
