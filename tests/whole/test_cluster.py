"""Two executors, each a process with workers of its own: the same rows as inline."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import muntin as mt
from muntin.spark.internals import spark_home
from muntin.store.results import Results

SQL = """
CREATE STREAM logs (t BIGINT, k VARCHAR, n BIGINT) FROM '{folder}/{{source}}.log'
FORMAT json TIMESTAMP t;
CREATE JOB sums AS SELECT k, sum(n) AS n, count(DISTINCT n) AS d FROM logs GROUP BY k ORDER BY k
WINDOW 20 SECONDS EVERY 10 SECONDS;
"""


def test_two_executors_answer_as_one_process_does(tmp_path: Path) -> None:
    logs, state, home = tmp_path / "logs", tmp_path / "state", tmp_path / "spark"
    logs.mkdir()
    home.mkdir()
    for part in ("bin", "jars", "python"):  # executors work in this folder
        (home / part).symlink_to(spark_home() / part)
    for source in range(4):
        rows = [{"t": t, "k": f"k{t * source % 5}", "n": t % 7} for t in range(source, 60)]
        (logs / f"web-{source}.log").write_text("".join(json.dumps(row) + "\n" for row in rows))
    file = tmp_path / "jobs.sql"
    file.write_text(SQL.format(folder=logs))
    run = ["run", str(file), "--once", "--state", str(state)]
    done = subprocess.run(
        [sys.executable, "-m", "muntin", *run, "--master", "local-cluster[2,1,1024]"],
        cwd=Path(__file__).parents[2],
        env=os.environ | {"SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    executors = [path for app in (home / "work").iterdir() for path in app.iterdir()]
    assert len(executors) == 2
    inline = [
        (result.start, tuple(row.values()))
        for result in mt.run(mt.load(file))
        for row in result.rows.to_pylist()
    ]
    stored = [
        (int(row["window_start"].timestamp() * 1e6), (row["k"], row["n"], row["d"]))
        for row in Results(state).read("sums").to_pylist()
    ]
    assert stored == inline
    assert len(stored) > 20
