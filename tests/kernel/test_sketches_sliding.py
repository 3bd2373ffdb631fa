"""Sliding windows of an aggregate whose rows are not counted: the registers of a sketch."""

from __future__ import annotations

import json
from pathlib import Path

import muntin as mt

BASE = 1_700_000_000


def test_distinct_values_are_estimated_in_sliding_windows(tmp_path: Path) -> None:
    rows = [{"t": BASE + i // 10, "k": f"k{i % 2}", "u": i % 40} for i in range(600)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    program = mt.sql(
        f"CREATE STREAM s FROM '{tmp_path}/a.jsonl' FORMAT json TIMESTAMP t; CREATE JOB j AS "
        "SELECT k, approx_count_distinct(u) AS users, count(*) AS n FROM s GROUP BY k "
        "WINDOW 30 SECONDS EVERY 2 SECONDS"
    )
    full = [r for r in mt.run(program) if r.counts.read == 300]
    assert len(full) == 16
    for result in full:
        assert result.rows.column("n").to_pylist() == [150, 150]
        assert all(19 <= users <= 21 for users in result.rows.column("users").to_pylist())
