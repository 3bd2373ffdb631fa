"""What a state says of recovery, in words and for programs."""

from __future__ import annotations

from pathlib import Path

from muntin.run.catalog import InForce
from muntin.run.progress import Progress
from muntin.schedule.pace import Measure
from muntin.schedule.recovery import Recovery
from muntin.store.checkpoint import Checkpoint, Saved
from muntin.store.status import recoveries, told


def test_recovery_is_kept_with_a_state_and_told(tmp_path: Path) -> None:
    recovery = Recovery(10.0, Measure(0.5), back=1e-7)
    Checkpoint(tmp_path, "logs").save(Saved(0, Progress(recovery=recovery), (), InForce()), True)
    assert recoveries(tmp_path) == {"logs": recovery}
    recovery.committed(5_000_000)
    text = told("logs", recovery)
    assert text == (
        "recovery of stream 'logs': reads back 5.0 MB of blocks in about 1.0 s, and again what was "
        "read since; bound 10 s"
    )
    recovery.lost(1.0)
    assert told("logs", recovery) == f"{text}; needed once, last for 1.0 s"
    recovery.lost(3.0)
    assert told("logs", recovery).endswith("; needed 2 times, last for 3.0 s")


def test_a_run_without_a_bound_tells_none(tmp_path: Path) -> None:
    assert "bound" not in told("logs", Recovery())
    assert Recovery().figures()["bound"] is None
