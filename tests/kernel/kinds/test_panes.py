"""Panes: windows have no choice of sharing where panes are part of the answer."""

from __future__ import annotations

import numpy as np
import pytest

from muntin.kernel.kinds import kind_of
from tests.kernel.kinds.test_kind import job_of

COUNT = "CREATE JOB j AS SELECT count(*) AS n FROM logs WINDOW 10 SECONDS EVERY 5 SECONDS, 1 MINUTE"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (COUNT, None),
        (f"{COUNT} FIDELITY 50 PERCENT SAMPLED", "its windows may be made of some of their panes"),
        (f"{COUNT} FIDELITY 50 PERCENT OF SPACE", "its windows may be made of some of their panes"),
        (f"{COUNT} FIDELITY 50 PERCENT OF TIME", "its windows may be made of some of their panes"),
        ("CREATE JOB j AS PYTHON 'tests.python_jobs:Batches' FROM logs WINDOW 9 SECONDS",
         "jobs in Python work on panes"),
    ],
)  # fmt: skip
def test_why_windows_are_made_of_shared_panes(text: str, reason: str | None) -> None:
    job = job_of(text)
    assert kind_of(job.shape).always_shared(job.windows) == reason


def test_bounds_of_windows() -> None:
    job = job_of(COUNT)
    kind, second = kind_of(job.shape), 1_000_000
    starts, ends = kind.all_bounds(job, (np.array([0, 1]), np.array([3, 24])))
    assert (starts // second).tolist() == [5, 60]
    assert (ends // second).tolist() == [15, 120]
    assert kind.bounds(job, (1, 24)) == (60 * second, 120 * second)
    assert kind.names(job) == ["10 seconds every 5 seconds", "1 minute"]
    assert kind.algorithm(job.windows[1]).startswith("share: ")
