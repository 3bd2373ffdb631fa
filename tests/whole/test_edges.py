"""Answers at the edges: odd numbers, many windows, bounds, and what must be forgotten."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import muntin as mt
from muntin.run.inline import InlineCollection, InlineRun, windows_inline
from muntin.run.loop import Rules

STREAM = (
    "CREATE STREAM s (t DOUBLE, e DOUBLE, k DOUBLE, x DOUBLE, u UBIGINT) "
    "FROM '{folder}/{{source}}.jsonl' FORMAT json TIMESTAMP t{clauses};"
)


def write(folder: Path, *rows: dict[str, Any], source: str = "a") -> None:
    with (folder / f"{source}.jsonl").open("a") as log:
        log.writelines(json.dumps(row) + "\n" for row in rows)


def program(folder: Path, *jobs: str, clauses: str = "") -> mt.Program:
    texts = [f"CREATE JOB j{i} AS SELECT {job};" for i, job in enumerate(jobs)]
    return mt.sql(STREAM.format(folder=folder, clauses=clauses) + "".join(texts))


def column(results: Sequence[mt.Result], name: str, job: str = "j0") -> list[Any]:
    return [v for r in results if r.job == job for v in r.rows[name].to_pylist()]


def test_sub_keys_of_open_sessions_stay(tmp_path: Path) -> None:
    """Distinct values far apart in one long session, in batches of a record each."""
    write(tmp_path, *({"t": t, "x": t // 50} for t in range(0, 200, 10)))
    asked = program(tmp_path, "count(DISTINCT x) AS n FROM s WINDOW SESSION 30 SECONDS",
                    clauses=" SLACK 0 SECONDS")  # fmt: skip
    leaving = windows_inline(asked, batch_bytes=1)
    found = [row["n"] for w in leaving for r in w.results() for row in r.rows.to_pylist()]
    assert found == [4]


def test_numbers_that_are_none_are_not_infinite(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"t": 1, "x": "NaN"}\n{"t": 5, "x": "NaN"}\n')
    asked = "min(x) AS low, max(x) AS high FROM s WINDOW 10 SECONDS EVERY 1 SECOND"
    found = list(mt.run(program(tmp_path, asked)))
    assert {str(v) for v in column(found, "low")} == {"nan"}
    assert {str(v) for v in column(found, "high")} == {"nan"}


def test_zero_and_minus_zero_are_one_key(tmp_path: Path) -> None:
    write(tmp_path, *({"t": t, "k": 0.0 if t % 2 else -0.0} for t in range(10)))
    asked = "k, count(*) AS n FROM s GROUP BY k WINDOW 10 SECONDS EVERY 1 SECOND"
    found = list(mt.run(program(tmp_path, asked)))
    assert max(column(found, "n")) == 10
    assert all(r.rows.num_rows == 1 for r in found)


def test_wide_sums_keep_their_digits_where_windows_slide(tmp_path: Path) -> None:
    write(tmp_path, *({"t": t, "u": 2**55} for t in range(10)))
    asked = "sum(u) * 40 AS n FROM s WINDOW 10 SECONDS EVERY 1 SECOND"
    assert max(column(list(mt.run(program(tmp_path, asked))), "n")) == 400 * 2**55


def test_more_windows_than_a_byte_counts(tmp_path: Path) -> None:
    write(tmp_path, {"t": 1})
    windows = ", ".join(f"{n} SECONDS" for n in range(1, 200))
    found = list(mt.run(program(tmp_path, f"count(*) AS n FROM s WINDOW {windows} PANE 1 SECOND")))
    assert len({r.window for r in found}) == len(found) == 199


def test_a_limit_beyond_all_rows(tmp_path: Path) -> None:
    write(tmp_path, *({"t": 1, "k": k} for k in range(3)))
    asked = "k, count(*) AS n FROM s GROUP BY k ORDER BY n DESC LIMIT 2000000 WINDOW 10 SECONDS"
    assert len(column(list(mt.run(program(tmp_path, asked))), "n")) == 3


def test_what_spans_touch_does_not_depend_on_other_jobs(tmp_path: Path) -> None:
    write(tmp_path, {"t": 60, "e": 540})
    long, short = "count(*) AS n FROM s WINDOW 10 MINUTES", "count(*) AS n FROM s WINDOW 1 MINUTE"
    alone = list(mt.run(program(tmp_path, long, clauses=" TO e BY TOUCH")))
    beside = list(mt.run(program(tmp_path, long, short, clauses=" TO e BY TOUCH")))
    assert column(alone, "n") == column(beside, "n") == [1]


@pytest.mark.parametrize(
    ("bounds", "share"),
    [
        ("BEGIN '1970-01-01 00:02:00'", [120 / 480, 240 / 480, 60 / 480]),
        ("BEGIN '1970-01-01' EXTENT 2 MINUTES", [60 / 480]),
    ],
)
def test_spans_are_cut_at_the_bounds(tmp_path: Path, bounds: str, share: list[float]) -> None:
    """From 1 to 9 minutes, in windows of 4."""
    write(tmp_path, {"t": 60, "e": 540})
    asked = f"count(*) AS n FROM s WINDOW 4 MINUTES {bounds}"
    found = column(list(mt.run(program(tmp_path, asked, clauses=" TO e BY SPLIT"))), "n")
    assert found == pytest.approx(share)


def follow(asked: mt.Program) -> InlineRun:
    """A run that is stepped by hand, with a clock of its own."""
    (stream,) = asked.streams.values()
    return InlineRun(stream, list(asked.jobs.values()), Rules(True, idle_seconds=5))


def step(run: InlineRun, now: float) -> list[mt.Result]:
    return list(run.turn(now).results())


def test_sessions_that_left_get_nothing_more_and_say_so(tmp_path: Path) -> None:
    """b is silent while the sessions of a leave, and then speaks of that time."""
    write(tmp_path, {"t": 1, "k": 1}, source="a")
    write(tmp_path, {"t": 0, "k": 1}, source="b")
    asked = program(tmp_path, "k, count(*) AS n FROM s GROUP BY k WINDOW SESSION 10 SECONDS")
    run = follow(asked)
    step(run, 1000.0)
    write(tmp_path, {"t": 40, "k": 1}, source="a")
    found = step(run, 1100.0)
    assert column(found, "n") == [2]
    write(tmp_path, {"t": 12, "k": 1}, {"t": 20, "k": 1}, source="b")
    assert step(run, 1101.0) == []
    write(tmp_path, {"t": 60, "k": 1}, source="a")
    assert column(step(run, 1200.0), "n") == [1]  # what is open might have reached back to them
    assert run.loop.progress.late["j0"].records == 2


def test_a_job_that_is_over_leaves_nothing_behind(tmp_path: Path) -> None:
    asked = program(
        tmp_path,
        "count(*) AS n FROM s WINDOW 10 SECONDS BEGIN '1970-01-01' EXTENT 30 SECONDS",
    )
    write(tmp_path, {"t": 1})
    run = follow(asked)
    step(run, 1000.0)
    for t in range(100, 3000, 50):
        write(tmp_path, {"t": t})
        step(run, 1000.0 + t)
    assert len(list(run.loop.progress.ledger)) <= 1


def test_of_overlapping_windows_only_what_the_next_needs_is_kept(tmp_path: Path) -> None:
    asked = program(tmp_path, "count(*) AS n FROM s WINDOW 30 SECONDS EVERY 1 SECOND, 5 MINUTES")
    write(tmp_path, {"t": 0})
    run = follow(asked)
    for t in range(1, 120):
        write(tmp_path, {"t": t})
        step(run, 1000.0 + t)
    collection = run.loop.collection
    assert isinstance(collection, InlineCollection)
    (kept,) = collection._shelf.complete
    assert (kept.last_end, kept.rows["c0"].to_pylist()) == (119, [29])


def test_lengths_beyond_all_numbers(tmp_path: Path) -> None:
    with pytest.raises(mt.LanguageError):
        program(tmp_path, "count(*) FROM s WINDOW 1e9999999 MINUTES")
