"""A job that takes long for every record: others keep their bounds, and it loses panes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import muntin as mt
from muntin.fidelity.losses import Unmade, joined
from muntin.fidelity.score import C2, EVER, State
from muntin.fidelity.scoreboard import Source
from muntin.kernel.clocks import Clocks
from muntin.kernel.compute import Recipe, compute
from muntin.kernel.reading import Cost
from muntin.model.records import POSITION, TIME
from muntin.run.catalog import Catalog, InForce
from muntin.run.contracts import Batch, Delivery, Request, Task
from muntin.run.inline import InlineCollection, Unsaved
from muntin.run.loop import Loop, Rules
from muntin.run.progress import Progress
from muntin.schedule.pace import Measure, Pace

US = 1_000_000
START = 1_000.0
LINE = 100  # bytes
SOURCES = ("a", "b")
STREAM = "CREATE STREAM s (t BIGINT, k VARCHAR) FROM 'none/{source}' FORMAT json TIMESTAMP t;"
CHEAP = "CREATE JOB cheap AS SELECT count(*) AS c FROM s WINDOW 1 SECOND WITHIN 1 SECOND;"


class Time:
    """The clock of a test, which computing advances."""

    now = START
    cost = 0.0  # seconds that a record of a dear job takes
    rate = 20  # records a second of each source

    @classmethod
    def read(cls) -> float:
        return cls.now


def dear(window: str, name: str = "dear") -> str:
    return f"CREATE JOB {name} AS SELECT count(k) AS c FROM s WHERE k <> '{name}' WINDOW {window};"


@dataclass(frozen=True)
class Written:
    """Records of some sources, by their times in microseconds."""

    times: Mapping[str, tuple[int, ...]]
    since: Mapping[str, int]

    def tasks(self, most: int) -> Sequence[Task]:
        return [self]

    def deliver(self, recipes: Sequence[Recipe]) -> Iterator[Delivery]:
        for source, times in self.times.items():
            records = pa.table({POSITION: pa.array(times, pa.int64()), "k": ["x"] * len(times)})
            since = {TIME.column: self.since[source]} if source in self.since else {}
            clocks = Clocks.since(since, 0)
            blocks, reading = compute(records, source, recipes, clocks)
            costs = {r.shape.id: self._cost(r, times) for r in recipes}
            Time.now += sum(cost.seconds for cost in costs.values())
            yield Delivery(blocks, (replace(reading, costs=costs),))

    def _cost(self, recipe: Recipe, times: Sequence[int]) -> Cost:
        used = sum(recipe.needs is None or at >= recipe.needs for at in times)
        each = Time.cost if any("dear" in job for job in recipe.jobs) else 1e-6
        return Cost(len(times) if used else 0, used, used * each)


class Steady:
    """Sources that write all the time, and what was not read yet."""

    def __init__(self) -> None:
        self._unread: list[tuple[int, str]] = []
        self._upto = int(START * US)
        self.records: dict[str, list[int]] = {name: [] for name in SOURCES}

    def next(self, request: Request) -> Batch:
        step = US // Time.rate
        while self._upto + step <= Time.now * US:
            self._upto += step
            for name in SOURCES:
                self._unread.append((self._upto, name))
                self.records[name].append(self._upto)
        most = EVER if request.most is None else max(1, request.most // LINE)
        taken, self._unread = self._unread[:most], self._unread[most:]
        times: dict[str, list[int]] = {}
        for at, name in taken:
            times.setdefault(name, []).append(at)
        work = Written(
            {name: tuple(mine) for name, mine in times.items()},
            {name: s.time for name, s in request.sources.items() if s.time is not None},
        )
        return Batch(
            work if taken else None,
            LINE * len(taken),
            LINE * len(self._unread),
            touched=dict.fromkeys(SOURCES, Time.now),
        )

    def names(self, now: float) -> frozenset[str]:
        return frozenset()

    def behind(self, sources: Mapping[str, Source]) -> frozenset[str]:
        return frozenset(name for _, name in self._unread)


@dataclass
class Told:
    """What has left: by job and where windows end, rows and scores; lags in seconds."""

    counts: dict[str, dict[int, int]] = field(default_factory=dict)
    scores: dict[str, dict[int, C2]] = field(default_factory=dict)
    lags: dict[str, list[float]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def whole(self, job: str) -> float:
        """The share of windows that have all."""
        scores = self.scores[job].values()
        return sum(c2.area == 1.0 for c2 in scores) / len(scores)


class Run:
    """A stream that is followed by a clock of its own, as `muntin run` does it."""

    def __init__(self, *jobs: str) -> None:
        Time.now, Time.cost, Time.rate = START, 0.0, 20
        program = mt.sql(STREAM + "".join(jobs))
        catalog = Catalog.of(program.streams["s"], list(program.jobs.values()))
        self.told, self.intake, self.progress = Told(), Steady(), Progress()
        self.loop = Loop(
            catalog,
            self.intake,
            InlineCollection(Time.read),
            Unsaved(self.progress, InForce()),
            Rules(True, 1e9),
            Time.read,
            Pace(Measure(0.01), Measure(0.01)),
        )

    def until(self, second: float) -> Told:
        while Time.now < START + second:
            Time.now += 0.02  # that a batch takes in any case
            turn = self.loop.turn(self.loop.wake_at())
            self.told.notes += turn.notes
            for windows in turn.emission.windows:
                self._take(windows)
            wake_at = self.loop.wake_at()
            rest = 0.2 if wake_at is None else min(0.2, wake_at - Time.now)
            Time.now += 0.0 if turn.remaining else max(0.001, rest)
        return self.told

    def _take(self, windows: Any) -> None:
        job, told = windows.job.name, self.told
        for kind, c2 in windows.scores.items():
            end = windows.bounds(kind)[1]
            told.scores.setdefault(job, {})[end] = c2
            told.lags.setdefault(job, []).append(windows.at - end / US)
        for result in windows.results():
            (count,) = result.rows["c"].to_pylist() or [0]
            told.counts.setdefault(job, {})[result.end] = count

    def written(self, start: int, end: int) -> int:
        return sum(start <= at < end for times in self.intake.records.values() for at in times)


def test_what_takes_hardly_any_time_is_computed_as_ever() -> None:
    told = Run(CHEAP, dear("1 SECOND WITHIN 1 SECOND")).until(10)
    assert told.counts["cheap"] == told.counts["dear"]
    assert told.whole("dear") == 1.0
    assert not told.notes


@pytest.mark.parametrize("cost", [0.05, 0.5])
def test_a_dear_job_loses_panes_and_the_others_nothing(cost: float) -> None:
    """Forty records a second, of which each takes longer than there is time."""
    run = Run(CHEAP, dear("5 SECONDS WITHIN 1 SECOND"))
    Time.cost = cost
    run.until(10)  # so long it may take to learn what records take
    learned, run.told = run.told, Told()
    told = run.until(50)
    assert told.whole("cheap") >= 0.98
    assert max(told.lags["cheap"]) <= 1.1
    assert told.whole("dear") < 0.5
    assert max(told.lags["dear"]) <= 2
    missing = {m.why for c2 in told.scores["dear"].values() for m in c2.missing}
    assert "shed" in missing
    notes = [note for note in learned.notes + told.notes if "panes of it are shed" in note]
    assert len(notes) == 1
    assert "job 'dear'" in notes[0]


def test_a_job_that_fits_now_and_then_has_whole_panes() -> None:
    run = Run(CHEAP, dear("1 SECOND WITHIN 1 SECOND"))
    Time.cost = 0.02  # 0.8 seconds for every second, beside what else there is
    told = run.until(50)
    assert told.whole("cheap") >= 0.9
    assert told.whole("dear") >= 0.1


def test_a_job_that_becomes_cheap_again_loses_nothing_more() -> None:
    run = Run(CHEAP, dear("1 SECOND WITHIN 1 SECOND"))
    Time.cost = 0.5
    run.until(10)
    Time.cost = 0.0
    run.until(30)
    run.told = Told()
    assert run.until(40).whole("dear") == 1.0


def test_one_slow_batch_sheds_nothing() -> None:
    run = Run(CHEAP, dear("1 SECOND WITHIN 3 SECONDS"))
    run.until(20)
    Time.cost = 0.2
    run.loop.turn(run.loop.wake_at())
    Time.cost = 0.0
    run.until(30)
    whys = {m.why for c2 in run.told.scores["dear"].values() for m in c2.missing}
    assert "shed" not in whys


def test_without_bounds_nobody_is_held_up_and_nothing_shed() -> None:
    run = Run("CREATE JOB cheap AS SELECT count(*) AS c FROM s WINDOW 1 SECOND;", dear("1 SECOND"))
    Time.cost = 0.05
    told = run.until(20)
    assert told.whole("dear") == told.whole("cheap") == 1.0


def test_of_dear_jobs_the_dearest_goes_first() -> None:
    run = Run(CHEAP, *(dear("1 SECOND WITHIN 1 SECOND", name) for name in ("dear", "dear2")))
    Time.cost = 0.2
    told = run.until(40)
    assert told.whole("cheap") >= 0.9
    assert told.whole("dear") < 0.6 or told.whole("dear2") < 0.6


@settings(max_examples=5, deadline=None)
@given(
    windows=st.lists(
        st.sampled_from(["1 SECOND", "2 SECONDS", "4 SECONDS EVERY 2 SECONDS"]),
        min_size=1, max_size=2,
    ),
    within=st.sampled_from(["", " WITHIN 1 SECOND", " WITHIN 3 SECONDS"]),
    costs=st.lists(st.sampled_from([0.0, 0.01, 0.05, 0.3]), min_size=3, max_size=3),
)  # fmt: skip
def test_scores_are_true(windows: list[str], within: str, costs: list[float]) -> None:
    """A window at 100 % has every record that was written of it, and one with less says why."""
    jobs = [dear(w + within, f"dear_{n}") for n, w in enumerate(windows)]
    run = Run(CHEAP, *jobs)
    for number, cost in enumerate(costs, 1):
        Time.cost = cost
        run.until(7 * number)
    Time.cost = 0.0
    told = run.until(30)
    for job in run.loop.catalog.jobs.values():
        for end, c2 in told.scores[job.name].items():
            start = c2.start * job.shape.pane
            whole = run.written(start, end)
            count = told.counts[job.name].get(end, 0)
            assert count <= whole
            if c2.area == 1.0:
                assert count == whole
            elif count < whole:
                assert c2.missing


def test_intervals_that_touch_are_one() -> None:
    shed = [Unmade("s", low, low + 10, State.SHED) for low in (0, 20, 10, 40)]
    other = Unmade("s", 5, 8, State.LOST, "why")
    assert sorted(joined([*shed, other])) == sorted(
        [Unmade("s", 0, 30, State.SHED), Unmade("s", 40, 50, State.SHED), other]
    )
