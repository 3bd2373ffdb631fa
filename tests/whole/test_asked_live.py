"""Jobs that are changed while they run: what their panes hold, and what the score says of it."""

from __future__ import annotations

from pathlib import Path

import pytest

import muntin as mt
from muntin.ask.answering import Asking
from tests.ask.keeping import Saving
from tests.run.test_succession import Deployment

JOB = (
    "CREATE JOB j (least DEFAULT 0) AS SELECT k, count(*) AS c FROM s WHERE n >= $least GROUP BY k "
    "WINDOW 20 SECONDS EVERY 10 SECONDS RETAIN 1 HOUR"
)


def asked(state: Path, question: str) -> mt.PastRows:
    return Asking(state).ask(question)


def run(folder: Path) -> Deployment:
    (folder / "state").mkdir()
    return Deployment(folder, JOB, folder / "state", Saving)


def write(run: Deployment, begin: int, end: int) -> None:
    """A record of each source and second, n is the second."""
    run.write(*((source, t, "x", t) for t in range(begin, end) for source in "ab"))
    run.turn()


def test_panes_of_a_job_that_was_paused_are_missing(tmp_path: Path) -> None:
    live = run(tmp_path)
    write(live, 0, 100)
    live.order("PAUSE JOB j")
    write(live, 100, 200)
    live.order("RESUME JOB j")
    write(live, 200, 300)
    state = tmp_path / "state"
    answer = asked(state, "SELECT count(*) FROM j BETWEEN '00:00' AND '00:01'")
    assert (answer.rows.to_pylist(), answer.c2.area) == ([{"count(*)": 120}], 1.0)
    answer = asked(state, "SELECT count(*) FROM j BETWEEN '00:00:20' AND '00:04:50'")
    (counted,) = answer.rows["count(*)"].to_pylist()
    whole = round(answer.c2.area * 27)
    assert 20 * whole <= counted < 20 * (whole + 2)  # panes that were cut count as missing
    assert 14 <= whole <= 17
    assert "not kept then" in answer.c2.missing[0].why


def test_a_parameter_that_is_set_begins_new_panes(tmp_path: Path) -> None:
    live = run(tmp_path)
    write(live, 0, 100)
    live.order("SET j.least = 150")
    write(live, 100, 200)
    write(live, 200, 260)
    state = tmp_path / "state"
    answer = asked(state, "SELECT count(*) FROM j")
    (only,) = answer.ranges
    first = only.start // 10**6
    expected = sum(2 for t in range(max(first, 0), 260) if t >= 150 or t < 101)
    assert abs(answer.rows["count(*)"][0].as_py() - expected) <= 2


def test_a_job_that_was_dropped_can_be_asked_about(tmp_path: Path) -> None:
    live = run(tmp_path)
    write(live, 0, 100)
    live.order(JOB.replace("JOB j", "JOB other").replace("$least", "$least + 1"))
    live.order("DROP JOB j")
    write(live, 100, 200)
    answer = asked(tmp_path / "state", "SELECT count(*) FROM j")
    assert answer.rows.to_pylist() == [{"count(*)": 200}]
    assert asked(tmp_path / "state", "SELECT count(*) FROM other").ranges[0].start >= 100 * 10**6
    with pytest.raises(mt.InputError, match="nothing is retained"):
        asked(tmp_path / "state", "SELECT count(*) FROM j BETWEEN '00:02' AND '00:03'")
