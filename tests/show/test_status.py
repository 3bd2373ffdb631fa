"""What `muntin status` shows: jobs in force with what became of them, and sources seen or not.

Lags and misses of real runs are in tests/whole/test_live_on_spark.py.
"""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from muntin.errors import InputError
from muntin.fidelity.scoreboard import Source
from muntin.fidelity.timing import Timing
from muntin.model.records import TIME
from muntin.run.catalog import InForce
from muntin.run.progress import Progress
from muntin.show.status import draw
from muntin.store.checkpoint import Checkpoint, Saved
from muntin.store.status import status

SECOND = 1_000_000


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """Two jobs, one of which has stopped, and one of three declared sources."""
    progress = Progress(sources={"web-1": Source({TIME.column: SECOND}, {TIME.column: SECOND})})
    progress.failures.positions["bad"] = [5 * SECOND]
    progress.failures.texts["bad"] = "version", 0
    in_force = InForce({"good": "a", "bad": "b"}, {"a": (TIME.column, 1), "b": (TIME.column, 1)})
    saved = Saved(0, progress, (), in_force, declared=("web-3", "web-1", "web-2"))
    Checkpoint(tmp_path, "logs").save(saved, whole=True)
    return tmp_path


def test_sources_that_were_never_seen_are_there(state: Path) -> None:
    _, sources = status(state)
    assert [(row["source"], row["seen"]) for row in sources] == [
        ("web-1", True),
        ("web-2", False),
        ("web-3", False),
    ]
    assert sources[1]["to"] is None


def test_jobs_that_have_stopped_are_there(state: Path) -> None:
    jobs, _ = status(state)
    assert [(row["job"], row["stopped"] is not None) for row in jobs] == [
        ("good", False),
        ("bad", True),
    ]


def test_a_job_that_sheds_windows_is_named_with_what_its_answers_take(tmp_path: Path) -> None:
    progress = Progress(
        timings={
            "cheap": Timing(100, 100.0, 0, SECOND, seconds=1.0),
            "dear": Timing(20, 4.0, 4, SECOND, shed=16, seconds=9.0),
        }
    )
    saved = Saved(0, progress, (), InForce({"cheap": "a", "dear": "b"}))
    Checkpoint(tmp_path, "logs").save(saved, whole=True)
    jobs, sources = status(tmp_path)
    assert [(row["shed"], row["answer"], row["share"]) for row in jobs] == [
        (0, 0.01, 0.1),
        (16, 2.25, 0.9),
    ]
    out = StringIO()
    draw(jobs, sources, Console(file=out, width=200))
    (line,) = (line for line in out.getvalue().splitlines() if "dear" in line)
    assert all(text in line for text in ("16", "2.25 s", "90 %", "20 %"))


def test_a_job_whose_records_take_long_is_named_with_what_it_lacks(tmp_path: Path) -> None:
    progress = Progress(
        timings={
            "cheap": Timing(100, 100.0, 0, SECOND, computing=1.0),
            "dear": Timing(100, 25.0, 0, SECOND, thinned=75, computing=19.0),
        }
    )
    saved = Saved(0, progress, (), InForce({"cheap": "a", "dear": "b"}))
    Checkpoint(tmp_path, "logs").save(saved, whole=True)
    jobs, sources = status(tmp_path)
    assert [(row["thinned"], row["computing"]) for row in jobs] == [(0, 0.05), (75, 0.95)]
    out = StringIO()
    draw(jobs, sources, Console(file=out, width=200))
    (line,) = (line for line in out.getvalue().splitlines() if "dear" in line)
    assert all(text in line for text in ("75", "95 %", "25 %"))


def test_people_see_the_same(state: Path) -> None:
    out = StringIO()
    draw(*status(state), Console(file=out, width=200))
    assert "1970-01-01 00:00:05" in out.getvalue()
    assert out.getvalue().count("were never seen") == 2


def test_a_folder_in_which_nothing_was_run_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nothing has been run in"):
        status(tmp_path)


def test_an_agent_was_last_heard_when_it_last_answered(tmp_path: Path) -> None:
    """Not when its logs were last written, nor when a pipeline was started again."""
    agent = Source({TIME.column: SECOND}, heard_at=90.0, wrote_at=20.0, answered_at=60.0)
    files = Source({TIME.column: SECOND}, heard_at=90.0, wrote_at=20.0)
    progress = Progress(sources={"a-agent": agent, "b-files": files})
    saved = Saved(0, progress, (), InForce({"j": "a"}, {"a": (TIME.column, 1)}))
    Checkpoint(tmp_path, "logs").save(saved, whole=True)
    _, sources = status(tmp_path)
    assert [row["heard"].timestamp() for row in sources] == [60.0, 20.0]


def test_nothing_is_cut_where_there_is_little_room(state: Path) -> None:
    """A table where there is room for it, and else a paragraph a job."""
    jobs, sources = status(state)
    jobs[0]["parameters"] = {"threshold": "250", "product": "'a lamp with a long name'"}
    out = StringIO()
    draw(jobs, sources, Console(file=out, width=80))
    text = " ".join(out.getvalue().split())
    assert (
        "good: windows 0, late 0, failed 0, version 1 (threshold = 250, product = 'a lamp" in text
    )
    assert "with a long name')" in text
    assert "bad: windows 0, late 0, failed 0, stopped at 1970-01-01 00:00:05" in text
    assert "…" not in text
    assert all(len(line) <= 80 for line in out.getvalue().splitlines())
