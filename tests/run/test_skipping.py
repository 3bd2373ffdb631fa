"""More is written than can be read: windows leave in time with a part of it, and say so."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pytest

from muntin.fidelity.scoreboard import Source
from muntin.kernel.compute import Recipe
from muntin.run.contracts import Batch, Delivery, Request, Task
from tests.run import test_omissions
from tests.run.test_omissions import START, US, Run, Steady, Time, Told, Written

JOB = (
    "CREATE JOB counted AS SELECT count(*) AS c FROM s "
    "WINDOW 2 SECONDS PANE 100 MILLISECONDS WITHIN 1 SECOND;"
)
PARSED = 400  # records a second, of all sources


@dataclass(frozen=True)
class Parsed(Written):
    """Records that take their time to be parsed, whoever wants them."""

    def tasks(self, most: int) -> Sequence[Task]:
        return [self]

    def deliver(self, recipes: Sequence[Recipe]) -> Iterator[Delivery]:
        Time.now += sum(map(len, self.times.values())) / PARSED
        yield from super().deliver(recipes)


class Flood(Steady):
    """Sources that may write more than can be read."""

    def next(self, request: Request) -> Batch:
        batch = super().next(request)
        work = batch.work
        if isinstance(work, Written):
            return Batch(
                Parsed(work.times, work.since), batch.bytes, batch.remaining, touched=batch.touched
            )
        return batch

    def skip(self, before: int, slack_us: int, sources: Mapping[str, Source]) -> None:
        self._unread = [(at, name) for at, name in self._unread if at >= before - slack_us]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setattr(test_omissions, "Steady", Flood)
    monkeypatch.setattr(test_omissions, "LINE", 100_000)  # so that batches have some size
    return Run(JOB)


def check(run: Run) -> None:
    """A window at 100 % has all that was written, and none has more."""
    for end, c2 in run.told.scores["counted"].items():
        written, found = run.written(end - 2 * US, end), run.told.counts["counted"].get(end, 0)
        assert found <= written
        if c2.area == 1.0 and end >= (START + 2) * US:
            assert found == written


def areas(told: Told) -> list[float]:
    return [c2.area for c2 in told.scores["counted"].values()]


def test_who_keeps_up_skips_nothing(run: Run) -> None:
    Time.rate = PARSED // 4  # each of two sources
    assert min(areas(run.until(20))[2:]) == 1.0
    check(run)


@pytest.mark.parametrize("over", [1.5, 2.0, 5.0])
def test_at_overload_windows_leave_in_time_with_what_can_be_read(run: Run, over: float) -> None:
    Time.rate = PARSED // 4
    run.until(10)
    Time.rate = int(over * PARSED) // 2
    run.until(20)
    learned, run.told = run.told, Told()
    told = run.until(60)
    assert max(told.lags["counted"]) <= 1.2
    assert len(told.scores["counted"]) >= 19
    found = areas(told)
    assert sum(found) / len(found) > 0.4 / over
    assert max(found) < 1.0
    whys = {missing.why for c2 in told.scores["counted"].values() for missing in c2.missing}
    assert whys <= {"shed", "awaited"}  # which it is, depends on when they were given up
    assert len([n for n in learned.notes + told.notes if "more is written than" in n]) == 1
    check(run)
    Time.rate = PARSED // 4
    run.until(66)
    run.told = Told()
    assert min(areas(run.until(80))) == 1.0  # it has recovered
    check(run)


def test_a_job_without_a_bound_has_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(test_omissions, "Steady", Flood)
    monkeypatch.setattr(test_omissions, "LINE", 100_000)
    run = Run(JOB, "CREATE JOB all_ AS SELECT count(*) AS c FROM s WINDOW 2 SECONDS;")
    Time.rate = PARSED
    run.until(20)
    Time.rate = PARSED // 8
    told = run.until(60)
    assert told.whole("all_") == 1.0
