"""Logs that grow faster than they are read: what is skipped is told, and nothing else lacks."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

import muntin as mt
from tests.whole.test_lost import LINE, Following

SERVERS = ("a", "b")
ROOM = 40_000  # bytes that are read in half a second
PADDING = "x" * 1000


def asked(folder: Path, bound: str) -> mt.Program:
    return mt.sql(
        f"CREATE STREAM s (t DOUBLE) FROM '{folder}/{{source}}.log*' FORMAT json TIMESTAMP t "
        "SLACK 100 MILLISECONDS;"
        "CREATE JOB j AS SELECT source AS server, floor(t) AS second, count(*) AS c FROM s "
        f"GROUP BY ALL WINDOW 4 SECONDS PANE 500 MILLISECONDS{bound};"
    )


def write(path: Path, times: list[float]) -> None:
    with path.open("a") as log:
        log.writelines(json.dumps({"t": t, "text": PADDING}) + "\n" for t in times)
    os.utime(path, (times[-1], times[-1]))


def flooded(run: Following, logs: Path, restart_at: float | None = None) -> list[mt.Result]:
    """Half a minute in which thrice as much is written as can be read, and a calm one."""
    found: list[mt.Result] = []
    now = 1000.0
    while now < 1060.0:
        now += 0.5
        each = 60 if now < 1030 else 5
        for name in SERVERS:
            write(logs / f"{name}.log", [now - 0.5 + n / (2 * each) for n in range(each)])
        found += run.turn(now)
        if now == restart_at:
            run.restart(logs.parent / "state")
    return found


def check(results: list[mt.Result]) -> None:
    """What is not in a window is named by its score, server by server."""
    for result in results:
        start = result.start // 1_000_000
        rows = {(row["server"], int(row["second"])): row["c"] for row in result.rows.to_pylist()}
        for name in SERVERS:
            written = {s: 120 if s < 1030 else 10 for s in range(start, start + 4)}
            assert all(rows.get((name, s), 0) <= count for s, count in written.items())
            lacking = [s for s, count in written.items() if rows.get((name, s), 0) < count]
            named = sum(missing.panes for missing in result.c2.missing if missing.source == name)
            assert len(lacking) <= named


@pytest.mark.parametrize("restart_at", [None, 1015.0, 1021.5])
def test_windows_keep_their_bound_and_name_what_was_skipped(
    tmp_path: Path, restart_at: float | None
) -> None:
    (logs := tmp_path / "logs").mkdir()
    run = Following(asked(logs, " WITHIN 2 SECONDS"), lines=ROOM // LINE)
    results = flooded(run, logs, restart_at)
    check(results)
    assert any("more is written than can be read" in note for note in run.notes)
    whys = {missing.why for result in results for missing in result.c2.missing}
    assert "shed" in whys
    late = [r for r in results if r.end / 1e6 > 1048]
    assert late
    assert all(result.c2.area == 1.0 for result in late)  # it has recovered


def test_without_a_bound_all_is_read(tmp_path: Path) -> None:
    (logs := tmp_path / "logs").mkdir()
    run = Following(asked(logs, ""), lines=ROOM // LINE)
    results = flooded(run, logs)
    check(results)
    assert {result.c2.area for result in results} == {1.0}
