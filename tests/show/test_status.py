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
from muntin.model import TIME
from muntin.run.catalog import InForce
from muntin.run.progress import Progress
from muntin.show.status import draw, status
from muntin.store.checkpoint import Checkpoint, Saved

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


def test_people_see_the_same(state: Path) -> None:
    out = StringIO()
    draw(*status(state), Console(file=out, width=200))
    assert "1970-01-01 00:00:05" in out.getvalue()
    assert out.getvalue().count("were never seen") == 2


def test_a_folder_in_which_nothing_was_run_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nothing has been run in"):
        status(tmp_path)
