"""What a plan says is what runs: statements of a run are those of its operators."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pytest

import muntin as mt
from muntin.kernel import engine
from muntin.kernel.kinds.kind import Place
from muntin.kernel.plan import Sharing, plan_of
from muntin.run.inline import windows_inline
from muntin.windows.choice import Choice

JOBS = {
    "tumbling": "SELECT k, count(*) AS c FROM s GROUP BY k WINDOW 10 SECONDS",
    "several": "SELECT k, max(n) AS m FROM s GROUP BY k WINDOW 10 SECONDS, 20 SECONDS",
    "distinct": "SELECT count(DISTINCT n) AS d FROM s WHERE n > 3 WINDOW 10 SECONDS",
    "top": "SELECT k, sum(n) AS n FROM s GROUP BY k ORDER BY n DESC LIMIT 1 WINDOW 10 SECONDS",
    "sessions": "SELECT k, count(*) AS c FROM s GROUP BY k WINDOW SESSION 5 SECONDS",
}


def program(folder: Path, job: str) -> mt.Program:
    return mt.sql(
        f"CREATE STREAM s (t BIGINT, k VARCHAR, n BIGINT) FROM '{folder}/*.log' "
        f"FORMAT json TIMESTAMP t; CREATE JOB j AS {job};"
    )


@pytest.mark.parametrize("job", JOBS)
def test_all_statements_over_blocks_are_those_of_the_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, job: str
) -> None:
    for name in ("a", "b"):
        lines = [json.dumps({"t": t, "k": "xyz"[t % 3], "n": t % 7}) for t in range(0, 60, 3)]
        (tmp_path / f"{name}.log").write_text("\n".join(lines) + "\n")
    found = program(tmp_path, JOBS[job])
    ran: dict[str, set[str]] = {}
    real = engine.run

    def run(sql: str, tables: Mapping[str, pa.Table], doing: str) -> pa.Table:
        for table in tables:
            ran.setdefault(table, set()).add(sql)
        return real(sql, tables, doing)

    for module in ("kinds.panes", "kinds.sessions", "merge"):
        monkeypatch.setattr(f"muntin.kernel.{module}.run", run)
    assert list(windows_inline(found, batch_bytes=300))
    asked = found.jobs["j"]
    plan = plan_of(asked, asked.windows)
    planned = {each.name: each.sql for each in plan.operators}
    assert ran["records"] == {planned["compute"]}
    assert planned["merge"] in ran["blocks"]
    if job in ("tumbling", "distinct", "top"):  # a window is a pane
        assert ran["blocks"] == {planned["merge"], planned["finish"]}
    ordered = ran.get("rows", set())  # where keys alone order rows, Arrow does the same
    assert ordered <= {planned["order"]}


def test_sharing_is_what_was_decided_or_has_to_be(tmp_path: Path) -> None:
    asked = program(tmp_path, JOBS["several"]).jobs["j"]
    assert plan_of(asked, asked.windows).sharing is Sharing.SHARED
    separate = plan_of(asked, asked.windows, Choice(True, "few keys repeat"))
    assert (separate.sharing, separate.reason) == (Sharing.SEPARATE, "few keys repeat")
    (compute,) = (each for each in separate.operators if each.name == "compute")
    assert compute.sql is not None
    assert compute.sql.count("UNION ALL") == 1  # one window each
    sampled = f"{JOBS['tumbling']} FIDELITY 50 PERCENT SAMPLED"
    alone = program(tmp_path, sampled).jobs["j"]
    assert plan_of(alone, alone.windows, Choice(True, "?")).sharing is Sharing.SHARED


def test_later_rounds_have_a_place_of_their_own(tmp_path: Path) -> None:
    asked = program(tmp_path, "PYTHON 'tests.python_jobs:Most' FROM s WINDOW 10 SECONDS").jobs["j"]
    places = {each.name: each.place for each in plan_of(asked, asked.windows).operators}
    assert places["rounds"] is Place.WINDOW
    assert places["select"] is Place.SOURCE
