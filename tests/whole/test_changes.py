"""EMIT CHANGES: open windows are shown with every batch that has changed them.

The oracle counts all records that were written so far: whatever was shown last of a window is what
these come to, and what leaves at its end is what all records of it come to.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muntin.control.feed import Feed
from muntin.errors import LanguageError
from muntin.fidelity.score import Reason
from muntin.language.program import sql, with_job
from muntin.model.jobs import Program
from muntin.run.derived import JobResults, Readers
from muntin.run.inline import InlineCollection, InlineRun, run_inline
from muntin.run.loop import Rules
from muntin.run.results import Emission, Result
from muntin.store.results import Results
from tests.effort import examples

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from muntin.spark.runner import StreamRun

pytestmark = pytest.mark.usefixtures("looking_at_all")

STARTED = 1_700_000_000
STREAM = """CREATE STREAM s (t BIGINT, k VARCHAR, n BIGINT) FROM '{folder}/{{source}}.jsonl'
FORMAT json TIMESTAMP t;"""
Record = tuple[int, str, int]  # seconds from the start, key and number
Rows = list[tuple[Any, ...]]
Window = tuple[str, int, int]


@dataclass(frozen=True)
class Question:
    """A job, and what its rows are if they are counted by hand."""

    sql: str
    windows: str = "10 SECONDS"
    slide: int = 10
    range: int = 10

    def text(self, folder: Path) -> str:
        return f"{STREAM.format(folder=folder)} CREATE JOB j AS {self.sql} WINDOW {self.windows} "

    def program(self, folder: Path) -> Program:
        return sql(f"{self.text(folder)} EMIT CHANGES;")

    def rows(self, records: Iterable[Record]) -> Rows:
        sums: Counter[str] = Counter()
        for _, k, n in records:
            sums[k] += n
        rows = sorted(sums.items())
        if "HAVING" in self.sql:
            rows = [row for row in rows if row[1] < 6]
        if "LIMIT" in self.sql:
            rows = sorted(rows, key=lambda row: (-row[1], row[0]))[:2]
        if "OVER" in self.sql:
            whole = sum(sums.values())
            return [(k, n, whole) for k, n in rows]
        return rows

    def ends(self, second: int) -> Iterator[int]:
        """The ends of the windows that hold a second."""
        last = second // self.slide * self.slide + self.range
        yield from (end for end in range(last, second, -self.slide))


SUMS = "SELECT k, sum(n) AS n FROM s GROUP BY k"
QUESTIONS = [
    Question(SUMS),
    Question(f"{SUMS} HAVING sum(n) < 6"),  # rows that were shown may go again
    Question(f"{SUMS} ORDER BY n DESC, k LIMIT 2"),
    Question("SELECT k, sum(n) AS n, sum(sum(n)) OVER () AS whole FROM s GROUP BY k"),
    Question(SUMS, "20 SECONDS EVERY 5 SECONDS", 5, 20),
]


def write(folder: Path, source: str, records: Iterable[Record], now: float) -> None:
    path = folder / f"{source}.jsonl"
    with path.open("a") as log:
        for t, k, n in records:
            log.write(json.dumps({"t": STARTED + t, "k": k, "n": n}) + "\n")
    os.utime(path, (now, now))


@dataclass
class Watched:
    """What was shown and left of each window, compared with the records there are by then."""

    question: Question
    written: list[Record] = field(default_factory=list)
    shown: dict[int, Rows] = field(default_factory=dict)  # by the end of windows
    revisions: dict[int, int] = field(default_factory=dict)
    left: dict[int, Rows] = field(default_factory=dict)

    def of_window(self, end: int) -> Rows:
        held = (r for r in self.written if end in self.question.ends(r[0]))
        return self.question.rows(held)

    def see(self, emission: Emission) -> None:
        for result in emission.results():
            end, rows = result.end // 1_000_000 - STARTED, _rows(result)
            assert result.end - result.start == self.question.range * 1_000_000
            assert end not in self.left, "what has left does not leave again"
            assert result.revision == self.revisions.get(end, -1) + 1
            self.revisions[end] = result.revision
            assert rows == self.of_window(end)
            if result.c2.reason is Reason.OPEN:
                assert rows != self.shown.get(end, []), "only what has changed is shown"
                self.shown[end] = rows
            else:
                self.left[end] = rows
        for end in {end for t, _, _ in self.written for end in self.question.ends(t)}:
            if end not in self.left:
                assert self.shown.get(end, []) == self.of_window(end)


def _rows(result: Result) -> Rows:
    return [tuple(row.values()) for row in result.rows.to_pylist()]


ahead = st.integers(0, 9)
batches = st.lists(
    st.lists(
        st.tuples(st.sampled_from("ab"), ahead, st.sampled_from("xyz"), st.integers(1, 4)),
        max_size=5,
    ),
    min_size=1,
    max_size=8,
)


def steps_of(batches: list[Any]) -> Iterator[tuple[int, dict[str, list[Record]]]]:
    """By step, what each source writes: its times only go on, and no further than the clock."""
    reached: dict[str, int] = {"a": 0, "b": 0}
    for number, batch in enumerate(batches):
        written: dict[str, list[Record]] = defaultdict(list)
        for source, seconds, key, n in batch:
            reached[source] = max(reached[source], 7 * number + seconds)
            written[source].append((reached[source], key, n))
        yield 7 * number + 10, written


@examples(30)
@given(question=st.sampled_from(QUESTIONS), batches=batches, again=st.integers(0, 8))
def test_what_is_shown_is_what_was_read(question: Question, batches: list[Any], again: int) -> None:
    """A run is taken up again in between: nothing is shown, or leaves, twice because of it."""
    with tempfile.TemporaryDirectory() as made:
        folder, watched = Path(made), Watched(question)
        program = question.program(folder)
        stream, jobs = program.streams["s"], program.jobs_of("s")
        rules = Rules(True, idle_seconds=1000)
        for source in "ab":
            write(folder, source, [(0, "x", 1)], STARTED)
            watched.written.append((0, "x", 1))
        run = InlineRun(stream, jobs, rules)
        for number, (now, written) in enumerate(steps_of(batches)):
            for source, records in written.items():
                write(folder, source, records, STARTED + now)
                watched.written += records
            watched.see(run.turn(STARTED + now))
            if number == again:
                loop = run.loop
                assert isinstance(loop.collection, InlineCollection)
                files, held = loop._intake, loop.collection
                run = InlineRun(stream, jobs, rules, print, files, held, loop.progress)
        for source in "ab":
            write(folder, source, [(200, "end", 1)], STARTED + 200)
            watched.written.append((200, "end", 1))
        watched.see(run.turn(STARTED + 201))
        expected = {end for t, _, _ in watched.written for end in question.ends(t) if end <= 200}
        assert {end: rows for end, rows in watched.left.items() if rows} == {
            end: rows for end in expected if (rows := watched.of_window(end))
        }


def test_finite_input_has_each_window_once(tmp_path: Path) -> None:
    write(tmp_path, "a", [(1, "x", 1), (12, "x", 2)], STARTED)
    results = list(run_inline(QUESTIONS[0].program(tmp_path)))
    assert [(r.revision, str(r.c2.reason), _rows(r)) for r in results] == [
        (0, "complete", [("x", 1)]),
        (0, "complete", [("x", 2)]),
    ]


def test_scores_say_how_much_is_there_so_far(tmp_path: Path) -> None:
    write(tmp_path, "a", [(0, "x", 1), (5, "x", 1)], STARTED)
    write(tmp_path, "b", [(0, "x", 1)], STARTED)
    program = sql(f"{QUESTIONS[0].text(tmp_path)} PANE 1 SECOND EMIT CHANGES;")
    run = InlineRun(program.streams["s"], program.jobs_of("s"), Rules(True, idle_seconds=100))
    (first,) = run.turn(STARTED + 5).results()
    assert (first.c2.reason, first.c2.area, first.counts.read) == (Reason.OPEN, 5 / 20, 3)
    write(tmp_path, "b", [(10, "y", 1)], STARTED + 10)
    shown = {r.start // 1_000_000 - STARTED: r for r in run.turn(STARTED + 10).results()}
    assert shown.keys() == {10}  # of the first window, the rows are the same
    write(tmp_path, "a", [(10, "y", 1)], STARTED + 11)
    left = {r.start // 1_000_000 - STARTED: r for r in run.turn(STARTED + 11).results()}
    assert (left[0].c2.reason, left[0].c2.area, left[0].revision) == (Reason.COMPLETE, 1.0, 1)
    assert (left[10].revision, _rows(left[10])) == (1, [("y", 2)])


def test_late_records_revise_what_has_left_behind_what_was_shown(tmp_path: Path) -> None:
    program = sql(f"{QUESTIONS[0].text(tmp_path)} REVISE EMIT CHANGES;")
    run = InlineRun(program.streams["s"], program.jobs_of("s"), Rules(True))
    told = []
    for number, records in enumerate(
        ([(1, "x", 1)], [(2, "x", 1)], [(11, "x", 9)], [(3, "x", 1)], [(4, "x", 1)])
    ):
        write(tmp_path, "a", records, STARTED + number)
        for r in run.turn(STARTED + 12.0 + number).results():
            told.append((r.start // 1_000_000 - STARTED, r.revision, str(r.c2.reason), _rows(r)))
    assert told == [
        (0, 0, "open", [("x", 1)]),
        (0, 1, "open", [("x", 2)]),
        (0, 2, "complete", [("x", 2)]),
        (10, 0, "open", [("x", 9)]),
        (0, 3, "complete", [("x", 3)]),
        (0, 4, "complete", [("x", 4)]),
    ]
    timing = run.loop.progress.timings["j"]
    assert timing.windows == 1  # revisions are no windows of their own


def test_what_fails_in_an_open_window_counts_once(tmp_path: Path) -> None:
    """The finish cannot be made of a window with a certain key, with each of five batches."""
    (tmp_path / "logs").mkdir()
    text = STREAM.format(folder=tmp_path / "logs") + (
        "CREATE JOB j AS SELECT CAST(k AS INTEGER) AS k, n FROM "
        "(SELECT k, sum(n) AS n FROM s GROUP BY k) WINDOW 10 SECONDS MAX ERRORS 1 EMIT CHANGES;"
    )
    program, notes = sql(text), list[str]()
    run = InlineRun(program.streams["s"], program.jobs_of("s"), Rules(True), notes.append)
    found = []
    for number in range(5):
        write(tmp_path / "logs", "a", [(number, "no number", 1)], STARTED + number)
        found += list(run.turn(STARTED + number + 0.5).results())
    assert not found
    assert not any("job 'j'" in note for note in notes)
    write(tmp_path / "logs", "a", [(11, "7", 1)], STARTED + 11)
    (shown,) = run.turn(STARTED + 11.5).results()
    assert _rows(shown) == [(7, 1)]
    assert sum("job 'j'" in note for note in notes) == 1
    assert not run.loop.stopped


def test_others_see_what_has_left_alone(tmp_path: Path) -> None:
    """FROM JOB and LATEST take finished results, whatever was shown before."""
    text = (
        f"{QUESTIONS[0].text(tmp_path)} EMIT CHANGES;"
        "CREATE JOB most AS SELECT k, max(n) AS n FROM JOB j GROUP BY k WINDOW 20 SECONDS;"
        "CREATE JOB beside AS SELECT g.n, l.n AS was FROM (SELECT sum(n) AS n FROM s) g "
        "LEFT JOIN LATEST(j) l ON true WINDOW 10 SECONDS;"
    )
    program = sql(text)
    run = InlineRun(program.streams["s"], program.jobs_of("s"), Rules(True))
    stream = program.streams["JOB j"]
    intake = JobResults(stream, True)
    second = InlineRun(stream, program.jobs_of(stream.name), Rules(True), intake=intake)
    readers = Readers([intake], [run.loop, second.loop])
    found: dict[str, list[Rows]] = defaultdict(list)
    for t in (1, 2, 3, 11, 12, 21, 22, 31, 32, 41):
        write(tmp_path, "a", [(t, "x", 1)], STARTED + t)
        for each in (run, second):
            emission = each.turn(STARTED + t + 0.1)
            readers.hand_on(each.loop, emission)
            for result in emission.results():
                found[result.job].append(_rows(result))
    assert found["most"] == [[("x", 3)], [("x", 2)]]
    assert found["beside"][:3] == [[(3, None)], [(2, None)], [(2, 3)]]


def started(spark: SparkSession, folder: Path, program: Program, clock: list[float]) -> StreamRun:
    from muntin.schedule.pace import Measure
    from muntin.spark.runner import Settings, StreamRun

    settings = Settings(folder / "state", follow=True, idle_seconds=1000)
    with patch.object(StreamRun, "_watch", return_value=None):
        run = StreamRun(
            spark.sparkContext, program.streams["s"], program.jobs_of("s"), settings,
            lambda: clock[0],
        )  # fmt: skip
    run.loop.pace.leaving = Measure(0.0)
    return run


@pytest.mark.spark
def test_on_spark_tables_and_followers_have_the_revisions(
    tmp_path: Path, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    """With a new program for every batch."""
    logs, clock = tmp_path / "logs", [STARTED + 0.0]
    logs.mkdir()
    question = QUESTIONS[0]
    watched, program, feed = Watched(question), question.program(logs), Feed(tmp_path / "state")
    for number, records in enumerate(
        ([(1, "x", 1)], [(2, "y", 2)], [], [(4, "x", 3), (12, "x", 1)], [(13, "z", 1)])
    ):
        clock[0] = STARTED + 5.0 * number
        write(logs, "a", records, clock[0])
        watched.written += records
        run = started(spark, tmp_path, program, clock)
        emission = run.loop.turn().emission
        run.close()
        watched.see(emission)
        feed.take(emission)
    assert watched.revisions == {10: 2, 20: 1}
    stored = Results(tmp_path / "state")
    every = stored.read("j", revisions=True).to_pylist()
    assert [(r["revision"], r["c2"]["reason"], r["k"], r["n"]) for r in every] == [
        (0, "open", "x", 1),
        (1, "open", "x", 1), (1, "open", "y", 2),
        (2, "complete", "x", 4), (2, "complete", "y", 2),
        (0, "open", "x", 1),
        (1, "open", "x", 1), (1, "open", "z", 1),
    ]  # fmt: skip
    newest = [(r["revision"], r["k"], r["n"]) for r in stored.read("j").to_pylist()]
    assert newest == [(2, "x", 4), (2, "y", 2), (1, "x", 1), (1, "z", 1)]
    told = [json.loads(one.text) for one in feed.after("j", feed.last("j").of("0.0.0.0."))]
    assert [(one["revision"], one["c2"]["reason"]) for one in told] == [
        (0, "open"), (1, "open"), (2, "complete"), (0, "open"), (1, "open")
    ]  # fmt: skip
    (latest,) = feed.latest("j")
    assert json.loads(latest.text)["rows"] == [{"k": "x", "n": 1}, {"k": "z", "n": 1}]
    from muntin.cli import main

    asked = ["results", "j", "--state", str(tmp_path / "state"), "--format", "json"]
    with patch.object(sys, "argv", ["muntin", *asked]), pytest.raises(SystemExit):
        main()
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(line["k"], line["n"], line["c2"]["reason"]) for line in lines] == [
        ("x", 1, "open"), ("z", 1, "open")
    ]  # fmt: skip


REFUSED = {
    "WINDOW SESSION 5 SECONDS EMIT CHANGES": "EMIT needs windows made of panes; sessions have none",
    "WINDOW 1 HOUR EVERY 1 SECOND EMIT CHANGES": "a record is in 3,600 of these windows",
    "WINDOW 1 HOUR EMIT": "expected CHANGES or FINAL after EMIT",
    "WINDOW 1 HOUR EMIT CHANGES EMIT FINAL": "EMIT is there twice",
}


@pytest.mark.parametrize("clause", REFUSED)
def test_what_cannot_be_shown_is_refused(clause: str, tmp_path: Path) -> None:
    with pytest.raises(LanguageError, match=REFUSED[clause]):
        sql(f"{STREAM.format(folder=tmp_path)} CREATE JOB j AS {SUMS} {clause};")


def test_previous_needs_results_that_have_left(tmp_path: Path) -> None:
    text = (
        f"{STREAM.format(folder=tmp_path)} CREATE JOB j AS SELECT g.n, p.n AS was FROM "
        "(SELECT sum(n) AS n FROM s) g LEFT JOIN PREVIOUS(j) p ON true "
        "WINDOW 5 SECONDS EMIT CHANGES;"
    )
    with pytest.raises(LanguageError, match="which PREVIOUS looks back at"):
        sql(text)


class Alarms:
    """Tells when a key's numbers have come to five, and lives on."""

    columns: ClassVar = {"key": "VARCHAR", "sum": "BIGINT"}
    uses = ("k", "n")
    every = "10 SECONDS"

    def map(self, _: object, record: dict[str, Any]) -> Iterator[tuple[str, int]]:
        yield record["k"], record["n"]

    def init(self, key: str) -> int:
        return 0

    def update(self, key: str, state: int, value: int) -> Generator[tuple[str, int], None, int]:
        if state < 5 <= state + value:
            yield key, state + value
        return state + value


class Windowed(Alarms):
    window = "10 SECONDS"


def alarms(written: list[Record], windowed: bool) -> dict[int, Rows]:
    """By the end of steps, what is told in them, keys in their order."""
    steps: dict[int, Rows] = defaultdict(list)
    sums: Counter[tuple[int, str]] = Counter()
    for t, k, n in sorted(written, key=lambda record: record[0]):
        end = t // 10 * 10 + 10
        before = sums[end if windowed else 0, k]
        sums[end if windowed else 0, k] += n
        if before < 5 <= before + n:
            steps[end].append((k, before + n))
    return {end: sorted(rows) for end, rows in steps.items()}


@examples(20)
@given(batches=batches, job=st.sampled_from([Alarms, Windowed]))
def test_what_update_yields_is_out_with_the_next_batch(batches: list[Any], job: type) -> None:
    """One source, in time order: what was told is never taken back, and leaves once."""
    with tempfile.TemporaryDirectory() as made:
        folder, written = Path(made), list[Record]()
        program = with_job(sql(STREAM.format(folder=folder)), "j", job, stream="s")
        run = InlineRun(program.streams["s"], program.jobs_of("s"), Rules(True))
        shown: dict[int, Rows] = {}
        left: dict[int, Rows] = {}
        for now, by_source in [*steps_of(batches), (300, {"a": [(300, "end", 1)]})]:
            records = sorted(r for some in by_source.values() for r in some)
            records = [
                (max(t, max((w[0] for w in written), default=0)), k, n) for t, k, n in records
            ]
            write(folder, "a", records, STARTED + now)
            written += records
            for result in run.turn(STARTED + now).results():
                end = result.end // 1_000_000 - STARTED
                seen = left if result.c2.reason is not Reason.OPEN else shown
                assert end not in left
                seen[end] = sorted(_rows(result))
            expected = alarms(written, job is Windowed)
            assert {**shown, **left} == expected
        assert {end: rows for end, rows in left.items() if end <= 300} == {
            end: rows for end, rows in alarms(written, job is Windowed).items() if end <= 300
        }


def test_a_class_may_wait_for_the_end(tmp_path: Path) -> None:
    class Patient(Windowed):
        emit = "final"

    stream = sql(STREAM.format(folder=tmp_path))
    assert with_job(stream, "j", Windowed, stream="s").jobs["j"].bounds.changes
    assert not with_job(stream, "j", Patient, stream="s").jobs["j"].bounds.changes
