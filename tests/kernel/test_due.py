"""What is due and what has left, by shape and by where windows end."""

from __future__ import annotations

from muntin.fidelity.score import Only
from muntin.kernel.due import Due, Emitted, due_kinds
from muntin.windows.spec import WindowSpec
from tests.kernel.test_consolidate import ALL, SUMS, job_of

SPEC = WindowSpec(60, 20)
JOBS = {"sums": job_of(SUMS, SPEC), "all": job_of(ALL, SPEC)}


def test_windows_of_a_shape_and_of_a_stretch() -> None:
    due = Due({"sums": [[3, 4, 9]], "all": [[4]]}, only={("sums", 0, 4): Only(panes=(1,))})
    mine = due.of(JOBS, JOBS["sums"].shape.id)
    assert mine.ends == {"sums": [[3, 4, 9]]}
    assert list(due.of(JOBS, JOBS["all"].shape.id).only) == []
    assert mine.between(3, 9).ends == {"sums": [[4, 9]]}
    assert list(mine.between(4, 9).only) == []
    assert not mine.between(9, 100)
    assert due_kinds(JOBS, due) == {job.shape.id: [SPEC] for job in JOBS.values()}


def test_what_is_needed_after_what_has_left() -> None:
    """Up to [40, 100) all have left; the next window is [60, 120)."""
    assert Emitted({SPEC: 5}).oldest_pane == 3
    assert Emitted({SPEC: 5}).needed_from == 60
    assert Emitted({SPEC: None}).needed_from is None
    assert Emitted({SPEC: 5}).is_on(20)
    assert not Emitted({SPEC: 5}).is_on(10)
