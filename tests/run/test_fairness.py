"""A job whose answers take long beside others: these keep their bounds, and it loses windows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import muntin as mt
from muntin.fidelity.score import C2, Reason
from muntin.fidelity.scoreboard import Source
from muntin.kernel.clocks import Clocks
from muntin.kernel.compute import Recipe, compute
from muntin.kernel.python.jobs import MapReduce, Pair
from muntin.model.jobs import Job
from muntin.model.records import POSITION
from muntin.run.catalog import Catalog, InForce
from muntin.run.contracts import Batch, Delivery, Request, Task
from muntin.run.inline import InlineCollection, Unsaved
from muntin.run.loop import Loop, Rules
from muntin.run.progress import Progress
from muntin.schedule.pace import Measure, Pace

US = 1_000_000
START = 1_000.0
STREAM = "CREATE STREAM s (t BIGINT, k VARCHAR) FROM 'none/{source}' FORMAT json TIMESTAMP t;"
CHEAP = "CREATE JOB cheap AS SELECT k, count(*) AS c FROM s GROUP BY k WINDOW 1 SECOND "


class Time:
    """The clock of a test, which work advances."""

    now = START
    cost = 0.0  # seconds that one reduced key takes

    @classmethod
    def read(cls) -> float:
        return cls.now


class Slow(MapReduce):
    """Counts records, and takes its time."""

    uses = ("k",)
    columns = {"k": "VARCHAR", "c": "BIGINT"}  # noqa: RUF012

    def mapper(self, _: None, record: dict[str, Any]) -> Iterator[Pair]:
        yield record["k"], 1

    def combiner(self, key: str, values: Iterable[int]) -> Iterator[Pair]:
        yield key, sum(values)

    def reducer(self, key: str, values: Iterable[int]) -> Iterator[Pair]:
        Time.now += Time.cost
        yield key, sum(values)


def dear(window: str, name: str = "dear") -> str:
    return f"CREATE JOB {name} AS PYTHON 'tests.run.test_fairness:Slow' FROM s WINDOW {window};"


@dataclass(frozen=True)
class Written:
    """Records of one source, each with its time in microseconds."""

    times: tuple[int, ...]

    def tasks(self, most: int) -> Sequence[Task]:
        return [self]

    def deliver(self, recipes: Sequence[Recipe]) -> Iterator[Delivery]:
        records = pa.table(
            {POSITION: pa.array(self.times, pa.int64()), "k": ["x"] * len(self.times)}
        )
        blocks, reading = compute(records, "a", recipes, Clocks())
        yield Delivery(blocks, (reading,))


class Steady:
    """A source that writes a record every tenth of a second."""

    def __init__(self) -> None:
        self._next = int(START * 10)

    def next(self, request: Request) -> Batch:
        first, self._next = self._next, int(Time.now * 10)
        times = tuple(tenth * US // 10 for tenth in range(first, self._next))
        return Batch(Written(times) if times else None, touched={"a": Time.now})

    def names(self, now: float) -> frozenset[str]:
        return frozenset()

    def behind(self, sources: Mapping[str, Source]) -> frozenset[str]:
        return frozenset()


@dataclass
class Told:
    """What has left: rows of windows and their scores by where they end, and lags in seconds."""

    rows: dict[str, dict[float, list[int]]] = field(default_factory=dict)
    scores: dict[str, list[tuple[float, C2]]] = field(default_factory=dict)
    lags: dict[str, list[float]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def shed(self, job: str) -> list[float]:
        return [end for end, c2 in self.scores.get(job, []) if c2.reason is Reason.SHED]

    def late(self, job: str, within: float, learned: int = 0) -> float:
        """The share of windows that were late, once it is known what answers take."""
        lags = self.lags[job][learned:]
        return sum(lag > within + 1e-3 for lag in lags) / len(lags)


class Run:
    """A stream that is followed by a clock of its own, as `muntin run` does it."""

    def __init__(self, *jobs: str) -> None:
        Time.now, Time.cost = START, 0.0
        program = mt.sql(STREAM + "".join(jobs))
        catalog = Catalog.of(program.streams["s"], list(program.jobs.values()))
        self.told, self._wake_at = Told(), None
        self.progress = Progress()
        self.loop = Loop(
            catalog,
            Steady(),
            InlineCollection(Time.read),
            Unsaved(self.progress, InForce()),
            Rules(True, 1e9),
            Time.read,
            Pace(Measure(0.0), Measure(0.0)),
        )

    def until(self, second: float, late: float | None = None) -> Told:
        """Goes on so far; another stream is `late` by so many seconds all the time."""
        while Time.now < START + second:
            others = None if late is None else Time.now - late
            turn = self.loop.turn(self.loop.wake_at(), others)
            self.told.notes += turn.notes
            for windows in turn.emission.windows:
                self._take(windows)
            wake_at = self.loop.wake_at()
            rest = 0.5 if wake_at is None else min(0.5, wake_at - Time.now)
            Time.now += max(0.001, rest)
        return self.told

    def _take(self, windows: Any) -> None:
        job, told = windows.job.name, self.told
        for result in windows.results():
            at = result.end / US - START
            told.rows.setdefault(job, {}).setdefault(at, []).extend(result.rows["c"].to_pylist())
            told.lags.setdefault(job, []).append(windows.at - result.end / US)
        for kind, c2 in windows.scores.items():
            end = windows.bounds(kind)[1] / US - START
            told.scores.setdefault(job, []).append((end, c2))


def test_what_takes_no_time_is_answered_as_ever() -> None:
    told = Run(CHEAP + "WITHIN 1 SECOND;", dear("1 SECOND WITHIN 1 SECOND")).until(20)
    assert told.rows["cheap"] == told.rows["dear"]
    assert not told.shed("dear")


def test_a_dear_answer_that_fits_comes_behind_the_others() -> None:
    run = Run(CHEAP + "WITHIN 1 SECOND;", dear("10 SECONDS WITHIN 5 SECONDS"))
    Time.cost = 0.3
    told = run.until(100)
    assert not told.shed("dear")
    assert len(told.rows["dear"]) >= 9
    assert told.late("cheap", 1) == 0
    assert told.late("dear", 5) == 0


@pytest.mark.parametrize("cost", [0.9, 3.0])
def test_a_job_that_cannot_keep_up_loses_windows_and_the_others_none(cost: float) -> None:
    run = Run(CHEAP + "WITHIN 1 SECOND;", dear("1 SECOND WITHIN 1 SECOND"))
    Time.cost = cost
    told = run.until(100)
    assert not told.shed("cheap")
    assert told.late("cheap", 1, learned=20) <= 0.05
    shed, answered = told.shed("dear"), told.rows["dear"]
    assert shed
    assert answered
    assert any("job 'dear'" in note and "are shed" in note for note in told.notes)
    timing = run.progress.timings["dear"]
    assert timing.shed == len(shed)
    assert timing.mean_seconds == pytest.approx(cost, rel=0.01)


def test_a_job_alone_that_cannot_keep_up_answers_its_newest_windows() -> None:
    run = Run(dear("1 SECOND WITHIN 2 SECONDS"))
    Time.cost = 3.0
    told = run.until(100)
    assert len(told.rows["dear"]) > 25
    assert max(told.lags["dear"][3:]) < 8
    assert len(told.shed("dear")) > 50


def test_a_job_that_becomes_cheap_again_loses_nothing_more() -> None:
    run = Run(CHEAP + "WITHIN 1 SECOND;", dear("1 SECOND WITHIN 1 SECOND"))
    Time.cost = 2.0
    run.until(30)
    Time.cost = 0.0
    run.until(120)
    before = len(run.told.shed("dear"))
    run.until(150)
    assert len(run.told.shed("dear")) == before
    assert sorted(run.told.rows["dear"])[-20:] == sorted(run.told.rows["cheap"])[-20:]


def test_one_slow_answer_sheds_nothing() -> None:
    run = Run(CHEAP + "WITHIN 1 SECOND;", dear("1 SECOND WITHIN 1 SECOND"))
    run.until(20)
    Time.cost = 5.0
    run.until(21.5)
    Time.cost = 0.0
    told = run.until(60)
    assert not told.shed("dear")
    assert told.rows["dear"] == told.rows["cheap"]


@pytest.mark.parametrize("cost", [0.01, 0.025])
def test_a_pause_of_the_machine_sheds_nothing_of_a_job_that_keeps_up(cost: float) -> None:
    run = Run(CHEAP + "WITHIN 1 SECOND;", dear("1 SECOND WITHIN 1 SECOND"))
    Time.cost = cost
    run.until(20)
    Time.now += 15
    told = run.until(120)
    assert not told.shed("dear")
    assert {end: n for end, n in told.rows["dear"].items() if end < 110} == {
        end: n for end, n in told.rows["cheap"].items() if end < 110
    }
    assert max(told.lags["dear"][-20:]) < 2


def test_jobs_without_a_bound_wait_and_lose_nothing() -> None:
    run = Run(CHEAP + "WITHIN 1 SECOND;", dear("50 SECONDS"))
    Time.cost = 3.0
    told = run.until(220)
    assert told.late("cheap", 1, learned=60) <= 0.05
    assert sorted(told.rows["dear"]) == [50.0 * n for n in range(1, len(told.rows["dear"]) + 1)]
    assert len(told.rows["dear"]) >= 2
    assert not told.shed("dear")
    assert any("job 'dear' has no WITHIN" in note for note in told.notes)


def test_streams_that_are_late_do_not_wait_for_each_other() -> None:
    run = Run(dear("1 SECOND"))
    Time.cost = 0.1
    told = run.until(60, late=5.0)
    assert len(told.rows["dear"]) > 55
    assert max(told.lags["dear"]) < 3


def test_who_reads_results_is_not_told_that_windows_have_left_which_wait() -> None:
    run = Run(CHEAP + "WITHIN 1 SECOND;", dear("2 SECONDS"))
    for second in range(10, 100):
        Time.cost = 3.0 if second > 20 else 0.0
        told = run.until(second)
        upto = run.loop.standing("dear").upto / US - START
        assert told.rows["dear"].keys() >= {2.0 * n for n in range(1, int(upto // 2) + 1)}


_WINDOWS = st.sampled_from(
    ["1 SECOND", "2 SECONDS", "4 SECONDS EVERY 2 SECONDS", "1 SECOND, 3 SECONDS"]
)


@settings(max_examples=5)
@given(
    windows=st.lists(_WINDOWS, min_size=1, max_size=2),
    within=st.sampled_from(["", " WITHIN 1 SECOND", " WITHIN 3 SECONDS"]),
    costs=st.lists(st.sampled_from([0.0, 0.1, 0.7, 2.0]), min_size=3, max_size=3),
)
def test_every_window_leaves_once_and_is_right(
    windows: list[str], within: str, costs: list[float]
) -> None:
    """Each is answered or shed; one at 100 % has all records that were written of it."""
    jobs = [dear(w + within, f"dear_{n}") for n, w in enumerate(windows)]
    run = Run(CHEAP + "WITHIN 1 SECOND;", *jobs)
    for number, cost in enumerate(costs, 1):
        Time.cost = cost
        run.until(10 * number)
    Time.cost = 0.0
    told = run.until(80)
    for job in run.loop.catalog.jobs.values():
        written = Counter(
            {
                (end, spec.range // US): int(10 * min(spec.range // US, end))
                for spec in job.windows
                for end in map(float, range(1, 75))
                if (START + end) * US % spec.slide == 0
            }
        )
        left = Counter((end, _seconds(job, c2)) for end, c2 in told.scores[job.name] if end < 75)
        if job.bounds.within_us is None:  # it may still wait, for all windows from one on
            first = min((end for end, _ in written.keys() - left.keys()), default=75)
            assert left.keys() >= {window for window in written if window[0] < first}
            assert left == Counter(left.keys() & written.keys())
        else:
            assert left == Counter(written.keys())
        for end, c2 in told.scores[job.name]:
            if c2.reason is Reason.SHED:
                assert (c2.area, {m.why for m in c2.missing}) == (0, {"shed"})
            elif c2.area == 1 and end < 75:
                assert written[end, _seconds(job, c2)] in told.rows[job.name][end]
        rows = sum(len(counts) for end, counts in told.rows[job.name].items() if end < 75)
        assert rows == len(left) - sum(end < 75 for end in told.shed(job.name))


def _seconds(job: Job, c2: C2) -> int:
    """How long a window is."""
    return (c2.end - c2.start) * job.shape.pane // US
