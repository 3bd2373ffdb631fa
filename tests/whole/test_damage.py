"""A bit that has changed in any file of a state is found, or makes no difference to any answer."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import muntin as mt
from muntin.store.findings import Weight
from muntin.store.inspection import check
from tests.ask.keeping import Kept
from tests.effort import EFFORT
from tests.whole.damaging import KINDS

BEGIN = 1_700_000_000
PROGRAM = """
CREATE STREAM ev (t BIGINT, id BIGINT, k VARCHAR, s VARCHAR) FROM '{logs}/{{source}}.log'
    FORMAT json TIMESTAMP t RETAIN 7 DAYS OF STREAM (id, s, k);
CREATE TABLE names FROM '{logs}/names.csv';
CREATE JOB kept AS SELECT k, count(*) AS n, max(id) AS high FROM ev GROUP BY k
    WINDOW 10 SECONDS RETAIN 7 DAYS;
CREATE JOB named AS SELECT name, count(*) AS n FROM ev JOIN names ON names.k = ev.k GROUP BY name
    WINDOW 30 SECONDS;
CREATE JOB hot AS SELECT count(*) AS n FROM ev WHERE k IN (SELECT k FROM LATEST(kept) WHERE n > 3)
    WINDOW 10 SECONDS;
"""


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    logs, state = tmp_path_factory.mktemp("logs"), tmp_path_factory.mktemp("state")
    (logs / "names.csv").write_text("k,name\nk0,zero\nk1,one\nk2,two\n")
    program, kept = PROGRAM.format(logs=logs), None
    for step in range(6):
        for source in "ab":
            seconds = range(step * 40, step * 40 + 40)
            rows = ({"t": BEGIN + i, "id": i, "k": f"k{i % 5}", "s": source} for i in seconds)
            with (logs / f"{source}.log").open("a") as log:
                log.writelines(f"{json.dumps(row)}\n" for row in rows)
        kept = kept or Kept(mt.sql(program), state, follow=True, now=BEGIN + 600)
        if step in (2, 4):
            kept.whole()
        if step == 4:  # entries before this are summed up, and those behind it are not
            kept.journal.tidy()
        kept.turn()
        kept.loop.hear("kept", lambda: [mt.results("kept", state, "latest")])
        kept.turn()
    return state


def test_every_bit_counts_or_makes_no_difference(state: Path) -> None:
    assert {finding.weight for finding in check(state)} <= {Weight.LEFTOVER}
    flips = 5 * EFFORT
    command = [sys.executable, "-m", "tests.whole.damaging", str(state), "7", str(flips)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0, (lines[-1:], done.stderr[-2000:])
    told = [line for line in lines if "found" in line]
    assert len(told) == flips * len(KINDS)
    silent = [line for line in told if not line["found"] and (line["other"] or line["refused"])]
    assert silent == []
    found = Counter(line["kind"] for line in told if line["found"])
    for kind in KINDS[:5]:  # of which every bit has a checksum
        assert found[kind] == flips, found
    # A last commit that is not whole is taken for one that was cut off, and who reads results does
    # not look at the checksum of a file's end: check tells of both.
    wrong = {line["kind"] for line in told if line["other"]}
    assert wrong <= {"streams/*/state-*", "results/*/*.parquet"}, "refused, and never wrong"
