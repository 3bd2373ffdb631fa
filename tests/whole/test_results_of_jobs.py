"""Windows over the results of another job: rows and scores follow from that job's results."""

from __future__ import annotations

import json
import tempfile
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from muntin.fidelity.score import Reason
from muntin.language.program import sql
from muntin.model.jobs import Program
from muntin.run.derived import Left, Readers, lacks_of
from muntin.run.inline import InlineCollection, InlineRun, run_inline, windows_inline
from muntin.run.loop import Rules
from muntin.run.members import files_of, results_in
from muntin.run.results import Result
from muntin.store.untaken import UntakenRows
from tests.effort import examples
from tests.spark.sending import Sent

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STARTED = 1_700_000_000  # twenty seconds into a minute
UPPER = "WINDOW 30 SECONDS EVERY 10 SECONDS"
COLUMNS = "(t BIGINT, k VARCHAR, n BIGINT)"
Row = tuple[int, str, int]


def text(folder: Path, first: str = "10 SECONDS", second: str = UPPER, more: str = "") -> str:
    return (
        f"CREATE STREAM s {COLUMNS} FROM '{folder}/{{source}}.jsonl' FORMAT json "
        f"TIMESTAMP t {more};"
        f"CREATE JOB low AS SELECT k, sum(n) AS n FROM s GROUP BY k HAVING sum(n) <> 5 "
        f"WINDOW {first};"
        f"CREATE JOB high AS SELECT k, sum(n) AS n, max(result_end) AS last, count(*) AS results "
        f"FROM JOB low GROUP BY k {second};"
    )


def write(folder: Path, source: str, records: Iterable[Row]) -> None:
    with (folder / f"{source}.jsonl").open("a") as file:
        for t, k, n in records:
            file.write(json.dumps({"t": t, "k": k, "n": n}) + "\n")


def of(results: Iterable[Result], job: str) -> list[Result]:
    return [result for result in results if result.job == job]


def expected(low: Sequence[Result], start: int, end: int) -> dict[str, tuple[int, int, int]]:
    """The rows of one window of the second job, from the results of the first."""
    sums: dict[str, tuple[int, int, int]] = defaultdict(lambda: (0, 0, 0))
    for result in low:
        if start < result.end <= end:
            for row in result.rows.to_pylist():
                n, last, count = sums[row["k"]]
                sums[row["k"]] = n + int(row["n"]), max(last, result.end), count + 1
    return dict(sums)


def found(result: Result) -> dict[str, tuple[int, int, int]]:
    rows = result.rows.to_pylist()
    return {r["k"]: (int(r["n"]), int(r["last"].timestamp() * 1e6), r["results"]) for r in rows}


records = st.lists(
    st.tuples(st.integers(0, 200), st.sampled_from("xyz"), st.integers(-3, 6)), max_size=60
)


@examples(60)
@given(
    logs=st.dictionaries(st.sampled_from(["a", "b"]), records, min_size=1),
    first=st.sampled_from(["10 SECONDS", "20 SECONDS EVERY 10 SECONDS", "SESSION 4 SECONDS"]),
    batch=st.sampled_from([60, 500, 1 << 20]),
)
def test_windows_over_windows_are_made_of_their_results(
    logs: dict[str, list[Row]], first: str, batch: int
) -> None:
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        for source, written in logs.items():
            write(folder, source, sorted((STARTED + t, k, n) for t, k, n in written))
        program = sql(text(folder, first))
        windows = windows_inline(program, batch_bytes=batch)
        results = [result for left in windows for result in left.results()]
    low, high = of(results, "low"), of(results, "high")
    for result in high:
        assert found(result) == expected(low, result.start, result.end)
        assert result.c2.area == 1.0
        assert result.counts.read == sum(
            each.rows.num_rows for each in low if result.start < each.end <= result.end
        )
    ends = {each.end for each in low if each.rows.num_rows}
    answered = {end for end in ends if any(r.start < end <= r.end for r in high)}
    assert ends == answered


@dataclass(frozen=True)
class AtHand:
    """Rows as a table has them, in memory."""

    rows: pa.Table

    @property
    def at_us(self) -> int:
        return max(map(int, self.rows["emitted_at"].cast(pa.int64()).to_pylist()))

    @property
    def lacking(self) -> dict[str, int]:
        lacks = sorted(lacks_of(self.rows), key=lambda lack: -lack.end)
        return {lack.source: lack.end for lack in lacks if lack.source}

    def tables(self, window: tuple[str, int, int] | None = None) -> Iterator[pa.Table]:
        assert window is None
        yield self.rows

    def ends(self, among: Collection[int]) -> set[int]:
        return {*among} & {*self.rows["window_end"].cast(pa.int64()).to_pylist()}


class Pair:
    """Both jobs while logs are followed, by a clock of its own."""

    def __init__(self, program: Program, second: str = "JOB low") -> None:
        stream, self._derived = program.streams["s"], program.streams[second]
        self._low = InlineRun(stream, program.jobs_of("s"), Rules(True, 10.0))
        self._jobs = program.jobs_of(second)
        self._high = self._begun()
        self._untaken: list[pa.Table] = []  # that tables have, and the second job has not read
        self.results: list[Result] = []

    def _begun(self, before: InlineRun | None = None) -> InlineRun:
        """The second job, with what it had if it was there before."""
        intake = files_of(self._derived, follow=True)
        self._intakes = results_in(intake)
        self._readers = Readers(self._intakes)
        rules, kept = Rules(True, 10.0), None if before is None else before.loop
        if kept is None:
            return InlineRun(self._derived, self._jobs, rules, intake=intake)
        blocks = kept.collection
        assert isinstance(blocks, InlineCollection)
        return InlineRun(
            self._derived, self._jobs, rules, intake=intake, collection=blocks,
            progress=kept.progress,
        )  # fmt: skip

    def crash(self, now: float) -> None:
        """As if all ended when the first job had committed: the second finds what tables have."""
        emission = self._low.turn(now)
        self.results += emission.results()
        self._high = self._begun(self._high)
        self._untaken += [windows.table() for windows in emission.windows]
        for rows in self._untaken:
            if rows.num_rows:
                self._intakes[0].offer(Left.stored(AtHand(rows)))

    def turn(self, now: float) -> None:
        emission = self._low.turn(now)
        self._readers.hand_on(self._low.loop, emission)
        self.results += emission.results()
        self.results += self._high.turn(now).results()
        self._untaken = []


@st.composite
def happenings(draw: st.DrawFn) -> list[tuple[float, dict[str, list[Row]]]]:
    """What each server writes until each look; some fall silent, some are behind."""
    now, steps = float(STARTED), []
    for _ in range(draw(st.integers(1, 15))):
        now += draw(st.sampled_from([1.0, 3.0, 8.0, 30.0]))
        wrote = {}
        for source in draw(st.sets(st.sampled_from("abc"))):
            times = sorted(draw(st.lists(st.integers(-12, 0), max_size=4)))
            wrote[source] = [
                (int(now) + t, draw(st.sampled_from("xy")), draw(st.integers(1, 5))) for t in times
            ]
        steps.append((now, wrote))
    return steps


@examples(80)
@given(
    steps=happenings(),
    within=st.sampled_from(["", " WITHIN 2 SECONDS", " FIDELITY 60 PERCENT"]),
    declared=st.sampled_from(["", "SOURCES 'a', 'z'"]),
    crashes=st.sets(st.integers(0, 14), max_size=3),
)
def test_live_results_are_carried_on_with_what_they_lack(
    steps: list[tuple[float, dict[str, list[Row]]]], within: str, declared: str, crashes: set[int]
) -> None:
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        pair = Pair(sql(text(folder, f"10 SECONDS{within}", more=declared)))
        for number, (now, wrote) in enumerate(steps):
            for source, rows in wrote.items():
                write(folder, source, rows)
            (pair.crash if number in crashes else pair.turn)(now)
        for later in range(1, 12):
            pair.turn(steps[-1][0] + 10.0 * later)
    low, high = of(pair.results, "low"), of(pair.results, "high")
    whole = {result.end: result.c2.area == 1.0 for result in low}
    for result in high:
        before = pair.results[: pair.results.index(result)]
        assert found(result) == expected(of(before, "low"), result.start, result.end)
        ends = [end for end in whole if result.start < end <= result.end]
        if result.c2.area == 1.0:  # then nothing has come later, as from a source that was silent
            assert found(result) == expected(low, result.start, result.end)
            assert all(whole[end] for end in ends)
        if any(not whole[end] for end in ends):
            assert result.c2.area < 1.0
    last = max((r.end for r in low if r.rows.num_rows), default=None)
    if last is not None:
        assert any(result.start < last <= result.end for result in high)


JOINED = (
    "CREATE JOB joined AS SELECT k, a.n AS n, b.n AS seen, b.results "
    "FROM (SELECT k, sum(n) AS n FROM s GROUP BY k) a "
    "FULL JOIN (SELECT k, sum(n) AS n, count(*) AS results FROM JOB low GROUP BY k) b USING (k) "
    "WINDOW 20 SECONDS;"
)


def joined_rows(
    wrote: Iterable[Row], low: Sequence[Result], start: int, end: int
) -> dict[str, tuple[int | None, int | None, int | None]]:
    """The rows of one window of the join, from records and from the results of the first job."""
    sums: dict[str, int] = {}
    for t, k, n in wrote:
        if start <= t * 1_000_000 < end:
            sums[k] = sums.get(k, 0) + n
    of_low = expected(low, start, end)
    return {
        k: (sums.get(k), *((of_low[k][0], of_low[k][2]) if k in of_low else (None, None)))
        for k in {*sums, *of_low}
    }


def joined(result: Result) -> dict[str, tuple[int | None, int | None, int | None]]:
    return {r["k"]: (r["n"], r["seen"], r["results"]) for r in result.rows.to_pylist()}


def test_a_window_without_rows_that_left_too_early_is_known_after_a_crash(tmp_path: Path) -> None:
    """What was missing then comes later, and so the first job's sources do not tell of it."""
    pair = Pair(sql(text(tmp_path, "10 SECONDS WITHIN 2 SECONDS")))
    begin = STARTED - STARTED % 60
    write(tmp_path, "a", [(begin + 1, "x", 1), (begin + 12, "x", 5)])  # HAVING wants no five
    write(tmp_path, "b", [(begin + 1, "x", 1), (begin + 11, "y", 5)])
    pair.turn(begin + 13.0)
    write(tmp_path, "a", [(begin + 21, "x", 1)])
    pair.crash(begin + 22.5)
    assert [r.end // 1_000_000 - begin for r in of(pair.results, "low")] == [10]
    for now in range(23, 120, 3):
        for source in "ab":
            write(tmp_path, source, [(begin + now, "x", 1)])
        pair.turn(begin + now + 0.5)
    areas = {r.end // 1_000_000 - begin: r.c2.area for r in of(pair.results, "high")}
    assert all(areas[end] < 1.0 for end in (20, 30, 40))
    assert areas[10] == areas[70] == 1.0


@examples(40)
@given(
    logs=st.dictionaries(st.sampled_from(["a", "b"]), records, min_size=1),
    batch=st.sampled_from([60, 500, 1 << 20]),
)
def test_a_stream_is_joined_with_the_results_of_a_job(
    logs: dict[str, list[Row]], batch: int
) -> None:
    with tempfile.TemporaryDirectory() as made:
        folder, wrote = Path(made), []
        for source, written in logs.items():
            rows = sorted((STARTED + t, k, n) for t, k, n in written)
            wrote += rows
            write(folder, source, rows)
        windows = windows_inline(sql(text(folder) + JOINED), batch_bytes=batch)
        results = [result for left in windows for result in left.results()]
    low = of(results, "low")
    for result in of(results, "joined"):
        assert joined(result) == joined_rows(wrote, low, result.start, result.end)
        assert result.c2.area == 1.0


@examples(40)
@given(steps=happenings())
def test_live_joins_with_results_wait_for_both(
    steps: list[tuple[float, dict[str, list[Row]]]],
) -> None:
    wrote: list[Row] = []
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        declared = text(folder, more="SOURCES 'a', 'b', 'c'")  # so that none comes as a surprise
        pair, last = Pair(sql(declared + JOINED), "JOB low+s"), dict.fromkeys("abc", 0)
        for now, written in steps:
            for source, rows in written.items():
                in_order = [row for row in rows if row[0] >= last[source]]  # none is late
                last[source] = max([last[source], *(t for t, _, _ in in_order)])
                write(folder, source, in_order)
                wrote += in_order
            pair.turn(now)
        for later in range(1, 8):
            pair.turn(steps[-1][0] + 10.0 * later)
    low = of(pair.results, "low")
    for result in of(pair.results, "joined"):
        if result.c2.area == 1.0:
            assert joined(result) == joined_rows(wrote, low, result.start, result.end)


def test_a_source_that_lacks_in_results_lacks_in_what_is_made_of_them(tmp_path: Path) -> None:
    write(tmp_path, "a", [(STARTED + t, "x", 1) for t in range(60)])
    results = list(run_inline(sql(text(tmp_path, more="SOURCES 'z'"))))
    high, end = of(results, "high"), (STARTED + 60) * 1e6
    inside = [r for r in high if r.start >= STARTED * 1e6 and r.end <= end]
    assert len(inside) == 4
    for result in inside:
        assert result.c2.area == 0.5
        assert [(m.source, m.why) for m in result.c2.missing] == [("z", "dead: in job low")]
        assert result.c2.reason is Reason.EXHAUSTED


def test_what_a_sample_left_out_is_left_out(tmp_path: Path) -> None:
    write(tmp_path, "a", [(STARTED + t, "x", 1) for t in range(100)])
    low = "20 SECONDS PANE 1 SECOND FIDELITY 50 PERCENT SAMPLED"
    results = list(run_inline(sql(text(tmp_path, low, "WINDOW 20 SECONDS"))))
    assert all(result.c2.area < 1.0 for result in of(results, "low"))
    assert all(result.c2.area == 0.0 for result in of(results, "high"))


def test_results_of_results(tmp_path: Path) -> None:
    write(tmp_path, "a", [(STARTED + t, "x", 1) for t in range(100)])
    more = (
        "CREATE JOB top AS SELECT sum(n) AS n, min(result_area) AS area FROM JOB high "
        "WINDOW 1 HOUR;"
    )
    (top,) = of(run_inline(sql(text(tmp_path, second="WINDOW 30 SECONDS") + more)), "top")
    assert top.rows.to_pylist() == [{"n": 100, "area": 1.0}]


@pytest.mark.spark
def test_results_go_on_after_restarts_on_spark(tmp_path: Path, spark: SparkSession) -> None:
    from muntin.spark.runner import Settings, SparkRun

    logs, state = tmp_path / "logs", tmp_path / "state"
    logs.mkdir()
    program = sql(text(logs, second="WINDOW 30 SECONDS"))
    # As if it ended before the second has taken what the first had made final.
    first_alone = Program({"s": program.streams["s"]}, {"low": program.jobs["low"]})

    def run(program: Program) -> list[Result]:
        turns = SparkRun(program, spark.sparkContext, Settings(state, False)).turns()
        return [result for turn in turns for result in turn.emission.results()]

    results: list[Result] = []
    for number, which in enumerate([program, first_alone, program, first_alone, program]):
        minute = STARTED - STARTED % 60 + 60 * number
        for source in "ab":
            write(logs, source, [(minute + t, "xy"[t % 2], t % 4) for t in range(0, 60, 3)])
        results += run(which)
    low, high = of(results, "low"), of(results, "high")
    assert len(high) == 10
    assert all(found(result) == expected(low, result.start, result.end) for result in high)
    assert all(result.c2.area == 1.0 for result in high)


@pytest.mark.spark
def test_what_was_not_taken_is_read_by_tasks(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver is told as much of many rows as of few, and reads none of them."""
    from muntin.spark.runner import Settings, SparkRun

    sent, sizes = Sent(monkeypatch), []
    monkeypatch.setattr("muntin.spark.tasks.BY_DRIVER", 0)
    monkeypatch.delattr(UntakenRows, "tables")  # of this process alone
    for keys in (10_000, 40_000):
        logs, state = tmp_path / f"{keys}" / "logs", tmp_path / f"{keys}" / "state"
        logs.mkdir(parents=True)
        lines = (f'{{"t": {STARTED + n % 20}, "k": "{n % keys}", "n": 1}}\n' for n in range(keys))
        (logs / "a.jsonl").write_text("".join(lines))
        program = sql(
            f"CREATE STREAM s {COLUMNS} FROM '{logs}/{{source}}.jsonl' FORMAT json TIMESTAMP t;"
            "CREATE JOB low AS SELECT k, sum(n) AS n FROM s GROUP BY k WINDOW 10 SECONDS;"
            "CREATE JOB high AS SELECT sum(n) AS n, count(*) AS c FROM JOB low WINDOW 1 HOUR;"
        )
        first_alone = Program({"s": program.streams["s"]}, {"low": program.jobs["low"]})
        for asked in (first_alone, program):
            sent.bytes = 0
            turns = SparkRun(asked, spark.sparkContext, Settings(state, False)).turns()
            results = [result for turn in turns for result in turn.emission.results()]
        (high,) = results
        assert high.rows.to_pylist() == [{"n": keys, "c": keys}]
        assert high.c2.area == 1.0
        sizes.append(sent.bytes)
    assert sizes[1] < 1.3 * sizes[0] < 100_000, sizes
