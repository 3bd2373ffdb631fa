"""Records that stand for a span of time, against walking over every pane they touch."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from math import isclose
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import muntin as mt
from muntin.run.inline import windows_inline
from tests.effort import examples
from tests.oracle import Record, write_logs

PANE = 10
records = st.lists(
    st.builds(
        lambda start, length, k, n: {
            "a": start,
            "b": None if length is None else start + length,
            "k": k,
            "n": n,
        },
        st.integers(-30, 60),
        st.one_of(st.none(), st.integers(-2, 45)),
        st.sampled_from(["x", "y"]),
        st.one_of(st.none(), st.integers(0, 9)),
    ),
    max_size=15,
)
sources = st.dictionaries(st.sampled_from(["web-1", "web-2"]), records, min_size=1)
Row = dict[str, Any]
SELECT = "k, count(*) AS c, count(n) AS known, sum(n) AS total, avg(n) AS mean, max(n) AS most"


def program(folder: Path, policy: str, slack: str = "") -> mt.Program:
    return mt.sql(
        f"CREATE STREAM calls (a BIGINT, b BIGINT, k VARCHAR, n BIGINT) FROM "
        f"'{folder}/{{source}}.jsonl' FORMAT json TIMESTAMP a TO b BY {policy} {slack};"
        f"CREATE JOB j AS SELECT {SELECT} FROM calls GROUP BY k WINDOW {PANE} SECONDS, 30 SECONDS;"
    )


def shares(record: Record, policy: str) -> Iterable[tuple[int, float]]:
    """The panes that count a record, and how much of it."""
    start, end = record["a"], record["a"] if record["b"] is None else record["b"]
    if end < start:
        return  # bad
    if policy in ("START", "END"):
        yield (start if policy == "START" else end) // PANE, 1.0
        return
    for pane in range(start // PANE, max(start, end - 1) // PANE + 1):
        inside = min(end, (pane + 1) * PANE) - max(start, pane * PANE)
        share = inside / (end - start) if end > start else 1.0
        yield pane, share if policy == "SPLIT" else 1.0


def expected(logs: dict[str, Sequence[Record]], policy: str) -> dict[tuple[int, int, str], Row]:
    windows: dict[tuple[int, int, str], list[tuple[float, int | None]]] = {}
    for log in logs.values():
        for record in log:
            if policy == "END" and record["b"] is None:
                continue  # no time
            if policy in ("START", "END"):
                at = record["a"] if policy == "START" else record["b"]
                found: Iterable[tuple[int, float]] = [(at // PANE, 1.0)]
            else:
                found = shares(record, policy)
            for pane, share in found:
                for length in (PANE, 30):
                    start = pane * PANE // length * length
                    key = start, start + length, record["k"]
                    windows.setdefault(key, []).append((share, record["n"]))
    return {key: _row(found) for key, found in windows.items()}


def _row(found: list[tuple[float, int | None]]) -> Row:
    known = [(share, n) for share, n in found if n is not None]
    weight, total = sum(s for s, _ in known), sum(s * n for s, n in known)
    return {
        "c": sum(share for share, _ in found),
        "known": weight,
        "total": total if known else None,
        "mean": total / weight if known else None,
        "most": max((n for _, n in known), default=None),
    }


def same(found: Any, wanted: Any) -> bool:
    if found is None or wanted is None:
        return found is wanted
    return isclose(found, wanted, abs_tol=1e-9)


@examples(60)
@given(
    logs=sources,
    policy=st.sampled_from(["START", "END", "TOUCH", "SPLIT"]),
    piece=st.integers(1, 600),
)
def test_every_policy(logs: dict[str, Sequence[Record]], policy: str, piece: int) -> None:
    every = [record for log in logs.values() for record in log]
    # Where not one record has a time, the run is refused.
    assume(not every or policy != "END" or any(record["b"] is not None for record in every))
    with tempfile.TemporaryDirectory() as folder:
        write_logs(Path(folder), logs)
        leaving = windows_inline(program(Path(folder), policy), piece_bytes=piece)
        found = {
            (r.start // 1_000_000, r.end // 1_000_000, row.pop("k")): row
            for windows in leaving
            for r in windows.results()
            for row in r.rows.to_pylist()
        }
    wanted = expected(logs, policy)
    assert found.keys() == wanted.keys()
    for key, row in wanted.items():
        assert all(same(found[key][name], value) for name, value in row.items()), (key, found[key])


def test_a_span_counts_in_the_windows_it_touches(tmp_path: Path) -> None:
    """From 5 to 25 s over panes of 10 s: one record read in each of three windows."""
    write_logs(tmp_path, {"web-1": [{"a": 5, "b": 25, "k": "x", "n": 4}]})
    found = [r for r in mt.run(program(tmp_path, "SPLIT")) if r.window == "10 seconds"]
    assert [(r.start // 1_000_000, r.counts.read) for r in found] == [(0, 1), (10, 1), (20, 1)]
    assert [r.rows["total"].to_pylist() for r in found] == [[1.0], [2.0], [1.0]]


def test_endless_spans_are_bad(tmp_path: Path) -> None:
    logs = [{"a": 5, "b": 10**8, "k": "x", "n": 4}, {"a": 5, "b": 6, "k": "x", "n": 4}]
    write_logs(tmp_path, {"web-1": logs})
    found = list(mt.run(program(tmp_path, "TOUCH")))
    assert [(r.counts.read, r.counts.bad) for r in found] == [(1, 1), (1, 1)]


def test_a_span_that_ends_before_it_starts_is_told(tmp_path: Path) -> None:
    write_logs(tmp_path, {"web-1": [{"a": 5, "b": 4, "k": "x", "n": 4}, {"a": 5, "k": "x"}]})
    notes: list[str] = []
    list(windows_inline(program(tmp_path, "TOUCH"), note=notes.append))
    assert "an end before the start" in notes[0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("TIMESTAMP a BY SPLIT", "expected TIMESTAMP start TO end"),
        ("TIMESTAMP a TO b BY CHANCE", "expected START, END, TOUCH or SPLIT after BY"),
        ("TIMESTAMP a TO nothing BY TOUCH", "has no column 'nothing'"),
        ("TO b BY TOUCH", "expected TIMESTAMP"),
        ("TIMESTAMP a TO", "where a record's span ends"),
    ],
)
def test_clauses_that_say_nothing(text: str, message: str) -> None:
    with pytest.raises(mt.LanguageError, match=message):
        mt.sql(f"CREATE STREAM s (a BIGINT, b BIGINT) FROM 'x' FORMAT json {text};")


@pytest.mark.parametrize(
    ("select", "window", "message"),
    [
        ("median(a)", "1 HOUR", "median cannot be split among panes"),
        ("count(DISTINCT a)", "1 HOUR", "count cannot be split among panes"),
        ("count(*)", "SESSION 1 HOUR", "sessions are made of moments"),
    ],
)
def test_what_shares_cannot_answer(select: str, window: str, message: str) -> None:
    stream = "CREATE STREAM s (a BIGINT, b BIGINT) FROM 'x' FORMAT json TIMESTAMP a TO b BY SPLIT;"
    with pytest.raises(mt.LanguageError, match=message):
        mt.sql(f"{stream} CREATE JOB j AS SELECT {select} FROM s WINDOW {window}")
