"""Jobs in Python that retain their panes: any range is what their own code makes of its records."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import muntin as mt
from muntin.ask.answering import Asking
from muntin.units import describe_time
from tests.ask.keeping import Kept
from tests.python_jobs import JOBS

BEGIN = 36_000
STREAM = """CREATE STREAM s (t BIGINT, k VARCHAR, s VARCHAR, n BIGINT)
FROM '{folder}/{{source}}.log' FORMAT json TIMESTAMP t SLACK 1 SECOND;
"""
CODE = """
from muntin import MapReduce

class Words(MapReduce):
    columns = {"word": "VARCHAR", "n": "BIGINT"}
    window = "1 MINUTE"
    retain = "1 DAY"

    def mapper(self, _, record):
        yield record["k"], 1

    def combiner(self, key, values):
        yield key, sum(values)

    def reducer(self, key, values):
        n = sum(values)
        if n > 1000:
            raise ValueError("too many")
        yield key, n

class Longest:
    returns = "VARCHAR"
    def zero(self): return ""
    def add(self, longest, text): return max(longest, text or "", key=lambda t: (len(t), t))
    def merge(self, a, b): return max(a, b, key=lambda t: (len(t), t))
    def finish(self, longest): return longest
"""


def written(folder: Path, many: int = 240) -> list[dict[str, Any]]:
    rand, records = random.Random(3), []
    for source in "ab":
        at = BEGIN
        with (folder / f"{source}.log").open("w") as log:
            for _ in range(many):
                at += rand.randint(0, 3)
                record = {
                    "t": at, "k": rand.choice(["x", "yy", "z"]),
                    "s": rand.choice(["p", "qqq", "q"]),
                    "n": rand.choice([None, rand.randint(1, 9)]),
                }  # fmt: skip
                log.write(json.dumps(record) + "\n")
                records.append(record | {"source": source})
    return records


def between(start: int, end: int) -> str:
    return f"BETWEEN '{describe_time(start * 10**6)}' AND '{describe_time(end * 10**6)}'"


def kept(folder: Path, jobs: str) -> Asking:
    Kept(mt.sql(STREAM.format(folder=folder) + jobs), folder / "state", batch_bytes=3_000).finish(3)
    return Asking(folder / "state")


@pytest.mark.parametrize("code", JOBS, ids=lambda code: code.__name__)
def test_any_range_is_what_a_window_over_it_would_be(tmp_path: Path, code: Any) -> None:
    records = written(tmp_path)
    named = f"tests.python_jobs:{code.__name__}"
    window = "WINDOW 1 MINUTE PANE 10 SECONDS RETAIN 1 DAY"
    asking = kept(tmp_path, f"CREATE JOB j AS PYTHON '{named}' FROM s {window};")
    for start, end in ((BEGIN + 20, BEGIN + 30), (BEGIN + 30, BEGIN + 190), (BEGIN, BEGIN + 300)):
        answer = asking.ask(f"SELECT * FROM j {between(start, end)}")
        truth = code.answer([r for r in records if start <= r["t"] < end])
        found = [tuple(row.values()) for row in answer.rows.to_pylist()]
        assert sorted(found, key=repr) == sorted(truth, key=repr)
        assert answer.c2.area == 1.0
        assert not answer.notes


def test_values_that_cells_combine_are_asked_for_any_groups(tmp_path: Path) -> None:
    records = written(tmp_path)
    window = "WINDOW 1 MINUTE PANE 10 SECONDS RETAIN 1 DAY"
    asking = kept(tmp_path, f"CREATE JOB j AS PYTHON 'tests.python_jobs:Batches' FROM s {window};")
    start, end = BEGIN + 30, BEGIN + 190
    mine = [r for r in records if start <= r["t"] < end and r["n"] is not None]
    answer = asking.ask(
        "SELECT length(k) AS long, sum(total) AS total FROM j WHERE k <> 'z' GROUP BY 1 "
        f"{between(start, end)} ORDER BY 1"
    )
    totals = {n: sum(r["n"] for r in mine if len(r["k"]) == n and r["k"] != "z") for n in (1, 2)}
    assert {row["long"]: row["total"] for row in answer.rows.to_pylist()} == totals
    with pytest.raises(mt.LanguageError, match="its panes merge to total, as it is, without max"):
        asking.ask("SELECT max(total) FROM j")


def test_rows_of_python_are_filtered_and_grouped_around(tmp_path: Path) -> None:
    records = written(tmp_path)
    window = "WINDOW 1 MINUTE PANE 10 SECONDS RETAIN 1 DAY"
    asking = kept(tmp_path, f"CREATE JOB j AS PYTHON 'tests.python_jobs:Sums' FROM s {window};")
    start, end = BEGIN + 30, BEGIN + 190
    answer = asking.ask(
        "SELECT k, sum(records) AS n FROM (SELECT * FROM j WHERE s = 'p' "
        f"{between(start, end)}) GROUP BY k ORDER BY k"
    )
    truth = {
        k: sum(start <= r["t"] < end and (r["k"], r["s"]) == (k, "p") for r in records)
        for k in ("x", "yy", "z")
    }
    assert {row["k"]: row["n"] for row in answer.rows.to_pylist()} == truth
    with pytest.raises(mt.LanguageError, match=r"FROM \(SELECT \* FROM j …\)"):
        asking.ask("SELECT k, sum(records) FROM j GROUP BY k")


def test_aggregates_in_python_are_merged_for_any_groups(tmp_path: Path) -> None:
    records = written(tmp_path)
    (tmp_path / "longest_texts.py").write_text(CODE)
    program = tmp_path / "program.sql"
    program.write_text(
        STREAM.format(folder=tmp_path)
        + "CREATE AGGREGATE longest AS PYTHON 'longest_texts:Longest'; CREATE JOB j AS SELECT k, "
        "s, longest(s) AS long, count(*) AS c FROM s GROUP BY k, s "
        "WINDOW 1 MINUTE PANE 10 SECONDS RETAIN 1 DAY;"
    )
    Kept(mt.load(program), tmp_path / "state", batch_bytes=3_000).finish(3)
    asking = Asking(tmp_path / "state")
    start, end = BEGIN + 30, BEGIN + 190
    mine = [r for r in records if start <= r["t"] < end]
    for where in ("true", "s <> 'qqq'"):
        answer = asking.ask(
            f"SELECT k, long, c FROM j WHERE {where} GROUP BY k {between(start, end)} ORDER BY k"
        )
        some = [r for r in mine if where == "true" or r["s"] != "qqq"]
        truth = [
            {"k": k, "long": max((r["s"] for r in some if r["k"] == k), key=lambda t: (len(t), t)),
             "c": sum(r["k"] == k for r in some)}
            for k in ("x", "yy", "z")
        ]  # fmt: skip
        assert answer.rows.to_pylist() == truth


def test_code_is_kept_with_the_panes(tmp_path: Path) -> None:
    records = written(tmp_path)
    (tmp_path / "words.py").write_text(CODE)
    program = tmp_path / "program.sql"
    program.write_text(
        STREAM.format(folder=tmp_path) + "CREATE JOB words AS PYTHON 'words:Words' FROM s;"
    )
    run = (
        "import muntin as mt; from tests.ask.keeping import Kept; "
        f"Kept(mt.load('{program}'), '{tmp_path}/state').finish(1)"
    )
    subprocess.run([sys.executable, "-c", run], check=True, timeout=300)
    (tmp_path / "words.py").unlink()
    asking = Asking(tmp_path / "state")
    answer = asking.ask("SELECT word, n FROM words ORDER BY word")
    truth = {k: sum(r["k"] == k for r in records) for k in ("x", "yy", "z")}
    assert {row["word"]: row["n"] for row in answer.rows.to_pylist()} == truth
    rare = asking.ask(f"SELECT word FROM words {between(BEGIN, BEGIN + 60)} WHERE n > 5")
    assert rare.ranges[0].end == (BEGIN + 60) * 10**6


def test_what_python_fails_on_is_told_and_left_out(tmp_path: Path) -> None:
    written(tmp_path, 1_200)  # whose minutes are fine, and all of them are too many
    (tmp_path / "many.py").write_text(CODE.replace("1000", "600"))
    program = tmp_path / "program.sql"
    program.write_text(
        STREAM.format(folder=tmp_path) + "CREATE JOB words AS PYTHON 'many:Words' FROM s;"
    )
    Kept(mt.load(program), tmp_path / "state").finish(1)
    answer = Asking(tmp_path / "state").ask("SELECT * FROM words")
    assert answer.rows.num_rows < 3
    assert "the answer lacks" in answer.notes[0]
    assert "ValueError: too many" in answer.notes[0]


def test_states_that_live_on_are_refused() -> None:
    with pytest.raises(mt.LanguageError, match="its states live on: give it windows of time"):
        mt.sql(
            STREAM.format(folder="logs")
            + "CREATE JOB j AS PYTHON 'tests.ask.test_answering_python:Living' FROM s;"
        )


class Living(mt.Incremental):
    """Without a window, with panes that nobody could ask about."""

    uses = ("n", "source")
    columns = {"source": "VARCHAR", "n": "BIGINT"}  # noqa: RUF012
    retain = "1 DAY"

    def map(self, _: None, record: dict[str, Any]) -> Any:
        yield record["source"], record["n"]

    def init(self, key: str) -> int:
        return 0

    def update(self, key: str, state: int, value: int) -> Any:
        yield key, value
        return state
