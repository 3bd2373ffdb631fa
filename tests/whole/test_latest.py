"""LATEST(x): what a job sees of the newest result of another one, and from which pane on."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muntin.errors import LanguageError
from muntin.language.explain import explain
from muntin.language.program import sql
from muntin.run import tables
from muntin.run.derived import Readers
from muntin.run.inline import InlineRun
from muntin.run.loop import Rules
from muntin.run.results import Result
from tests.effort import examples

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STARTED = 1_700_000_000
STREAM = (
    "CREATE STREAM s (t BIGINT, k VARCHAR) FROM '{folder}/{{source}}.jsonl' FORMAT json "
    "TIMESTAMP t;"
)
HOT = "CREATE JOB hot AS SELECT k, count(*) AS n FROM s GROUP BY k ORDER BY n DESC, k LIMIT 1 "
JOBS = (
    HOT + "WINDOW 10 SECONDS;"
    "CREATE JOB watched AS SELECT s.k, count(*) AS n, max(l.result_end) AS used "
    "FROM s JOIN LATEST(hot) l USING (k) GROUP BY s.k WINDOW 10 SECONDS;"
    "CREATE JOB beside AS SELECT g.k, g.n, l.k AS hottest FROM "
    "(SELECT k, count(*) AS n FROM s GROUP BY k) g LEFT JOIN LATEST(hot) l ON true "
    "WINDOW 10 SECONDS;"
    "CREATE JOB looked AS SELECT k, count(*) AS n, "
    "sum((SELECT max(n) FROM LATEST(hot))) AS times FROM s "
    "WHERE k IN (SELECT k FROM LATEST(hot)) GROUP BY k WINDOW 10 SECONDS;"
    "CREATE JOB others AS SELECT count(*) FILTER (WHERE k NOT IN (SELECT k FROM LATEST(hot))) AS n "
    "FROM s WINDOW 10 SECONDS;"
)


def text(folder: Path, jobs: str = JOBS) -> str:
    return STREAM.format(folder=folder) + jobs


def write(folder: Path, records: list[tuple[int, str]]) -> None:
    with (folder / "a.jsonl").open("a") as file:
        for t, k in records:
            file.write(json.dumps({"t": t, "k": k}) + "\n")


steps = st.lists(st.lists(st.sampled_from("xyz"), min_size=1, max_size=6), min_size=2, max_size=8)


@examples(25)
@given(steps=steps)
def test_the_newest_result_counts_from_the_next_pane_on(steps: list[list[str]]) -> None:
    """Each step writes a window's records: so the hottest of one step is watched in the third.

    The result of step i leaves while step i + 1 is read; it counts behind all that was read then.
    """
    results: list[Result] = []
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        program = sql(text(folder))
        run = InlineRun(program.streams["s"], program.jobs_of("s"), Rules(True))
        readers = Readers([], [run.loop])
        for number, keys in enumerate([*steps, ["end"], ["end"]]):
            write(folder, [(STARTED + 10 * number + 5, key) for key in keys])
            emission = run.turn(STARTED + 10.0 * number + 6)
            readers.hand_on(run.loop, emission)
            results += emission.results()
    hottest = [
        min(Counter(keys).items(), key=lambda each: (-each[1], each[0]))[0] for keys in steps
    ]
    for number in range(2, len(steps)):
        start = (STARTED + 10 * number) * 1_000_000
        seen = hottest[number - 2]
        watched = [r for r in results if r.job == "watched" and r.start == start]
        rows = [row for result in watched for row in result.rows.to_pylist()]
        count = steps[number].count(seen)
        assert [(row["k"], row["n"]) for row in rows] == ([(seen, count)] if count else [])
        if rows:
            used = int(rows[0]["used"].timestamp())
            assert used == STARTED + 10 * (number - 1)
        (beside,) = [r for r in results if r.job == "beside" and r.start == start]
        assert {row["hottest"] for row in beside.rows.to_pylist()} == {seen}
        looked = [r for r in results if r.job == "looked" and r.start == start]
        rows = [tuple(row.values()) for result in looked for row in result.rows.to_pylist()]
        times = count * steps[number - 2].count(seen)
        assert rows == ([(seen, count, times)] if count else [])
        (others,) = [r for r in results if r.job == "others" and r.start == start]
        assert others.rows.to_pylist() == [{"n": len(steps[number]) - count}]
        ended = (STARTED + 10 * (number - 1)) * 1_000_000
        assert [tuple(each) for each in others.used] == [("hot", "10 seconds", ended, 1)]


CIRCLES = (
    "CREATE JOB own AS SELECT s.k, count(*) + coalesce(max(l.n), 0) AS n "
    "FROM s LEFT JOIN LATEST(own) l USING (k) GROUP BY s.k WINDOW 10 SECONDS;"
    "CREATE JOB a AS SELECT s.k, count(*) + coalesce(max(l.n), 0) AS n "
    "FROM s LEFT JOIN LATEST(b) l USING (k) GROUP BY s.k WINDOW 10 SECONDS;"
    "CREATE JOB b AS SELECT g.k, g.n + 10 * coalesce(l.n, 0) AS n "
    "FROM (SELECT k, count(*) AS n FROM s GROUP BY k) g LEFT JOIN LATEST(a) l USING (k) "
    "WINDOW 10 SECONDS;"
)
USES = {"own": ("own", 1), "a": ("b", 1), "b": ("a", 10)}  # and how often its number counts


@examples(15)
@given(steps=steps)
def test_jobs_that_use_one_another_see_finished_results(steps: list[list[str]]) -> None:
    """A job counts a key's records and what the result two steps earlier has of the key.

    Which result that was is told with the one that is made of it.
    """
    found: dict[tuple[str, int], Result] = {}
    with tempfile.TemporaryDirectory() as made:
        program = sql(text(Path(made), CIRCLES))
        run = InlineRun(program.streams["s"], program.jobs_of("s"), Rules(True))
        readers = Readers([], [run.loop])
        for number, keys in enumerate([*steps, ["end"], ["end"]]):
            write(Path(made), [(STARTED + 10 * number + 5, key) for key in keys])
            emission = run.turn(STARTED + 10.0 * number + 6)
            readers.hand_on(run.loop, emission)
            for result in emission.results():
                found[result.job, (result.start // 1_000_000 - STARTED) // 10] = result
    rows: dict[tuple[str, int], dict[str, int]] = {}
    for number, keys in enumerate(steps):
        for job, (other, times) in USES.items():
            before = rows.get((other, number - 2), {})
            counted = {k: n + times * before.get(k, 0) for k, n in Counter(keys).items()}
            rows[job, number] = counted
            result = found[job, number]
            assert {row["k"]: row["n"] for row in result.rows.to_pylist()} == counted
            ended = (STARTED + 10 * (number - 1)) * 1_000_000
            used = [(other, "10 seconds", ended, 1)] if number >= 2 else []
            assert [tuple(each) for each in result.used] == used


def test_explain_shows_cycles(tmp_path: Path) -> None:
    told = explain(sql(text(tmp_path, CIRCLES)))
    assert "  cycle    own → own: each uses the newest finished result of the next" in told
    assert "  cycle    a → b → a: " in told
    assert "  cycle    b → a → b: " in told
    assert "  cycle  " not in explain(sql(text(tmp_path)))


@pytest.mark.parametrize("sliding", ["", " EVERY 5 MINUTES"])
@pytest.mark.parametrize("window", ["'1 hour'", "1 HOUR"])
def test_one_of_several_windows_is_named_as_it_is_written(
    window: str, sliding: str, tmp_path: Path
) -> None:
    jobs = HOT + f"WINDOW 1 MINUTE, 1 HOUR{sliding}; CREATE JOB a AS SELECT s.k, count(*) AS n "
    named = f"FROM s JOIN LATEST(hot, {window}) l USING (k) GROUP BY s.k WINDOW 1 MINUTE;"
    (table,) = sql(text(tmp_path, jobs + named)).jobs["a"].tables
    assert (table.job, table.window) == ("hot", f"1 hour{sliding.lower()}")


REFUSED = {
    HOT + "WINDOW 1 MINUTE, 1 HOUR; CREATE JOB a AS SELECT s.k, count(*) AS n FROM s JOIN "
    "LATEST(hot, 1 DAY) l USING (k) GROUP BY s.k WINDOW 1 MINUTE;":
    "job 'hot' has no window '1 day'; known are",
    "CREATE JOB a AS SELECT s.k, count(*) AS n FROM s JOIN LATEST(a) l USING (k) GROUP BY s.k;":
    "a → a; each step of that takes a finished result, and those of job 'a' are never",
    "CREATE JOB a AS SELECT s.k, count(*) AS n FROM s JOIN LATEST(b) l USING (k) GROUP BY s.k "
    "WINDOW 5 SECONDS; CREATE JOB b AS SELECT s.k, count(*) AS n FROM s JOIN LATEST(a) l "
    "USING (k) GROUP BY s.k;": "b → a → b; each step",
    "CREATE JOB a AS SELECT k, count(*) AS n FROM s JOIN LATEST(c) l USING (k) GROUP BY k "
    "WINDOW 5 SECONDS;": "unknown job 'c'; no job is defined here",
    "CREATE JOB a AS SELECT max(n) AS n FROM JOB b WINDOW 1 MINUTE; " + HOT.replace("hot", "b")
    + "WINDOW 5 SECONDS;": "unknown job 'b'; it is defined behind this one",
    "CREATE JOB a AS SELECT g.* FROM (SELECT k FROM s GROUP BY k) g LEFT JOIN LATEST(a) l "
    "USING (k) WINDOW 5 SECONDS;": "so they need names instead of",
    "CREATE JOB c AS SELECT count(*) AS n FROM s WINDOW 5 RECORDS; CREATE JOB a AS SELECT "
    "count(*) AS n, max(l.n) AS m FROM s LEFT JOIN LATEST(c) l ON true WINDOW 5 SECONDS;":
    "windows of job 'c' are no spans of time",
}  # fmt: skip


@pytest.mark.parametrize("jobs", REFUSED)
def test_what_cannot_be_used_is_refused(jobs: str, tmp_path: Path) -> None:
    with pytest.raises(LanguageError, match=REFUSED[jobs]):
        sql(text(tmp_path, jobs))


def test_records_for_which_a_lookup_fails_are_told_of(tmp_path: Path) -> None:
    """Of a value that cannot be compared, and of a subquery with more rows than one."""
    jobs = (
        "CREATE JOB all AS SELECT k, count(*) AS n FROM s GROUP BY k WINDOW 10 SECONDS;"
        "CREATE JOB cast AS SELECT count(*) AS n FROM s "
        "WHERE CAST(k AS BIGINT) IN (SELECT n FROM LATEST(all)) WINDOW 10 SECONDS;"
        "CREATE JOB one AS SELECT count(*) AS n FROM s "
        "WHERE 1 = (SELECT n FROM LATEST(all)) WINDOW 10 SECONDS;"
    )
    program, notes = sql(text(tmp_path, jobs)), list[str]()
    run = InlineRun(program.streams["s"], program.jobs_of("s"), Rules(True), notes.append)
    readers, found = Readers([], [run.loop]), list[Result]()
    for number, keys in enumerate(["1", "1", "1x", "12", "12", "1"]):
        write(tmp_path, [(STARTED + 10 * number + 5, key) for key in keys])
        emission = run.turn(STARTED + 10.0 * number + 6)
        readers.hand_on(run.loop, emission)
        found += emission.results()
    told = [note for note in notes if "failed on" in note]
    assert any(
        "CAST(k AS BIGINT) IN (SELECT n FROM LATEST(all)) failed on k = 'x'" in t for t in told
    )
    assert any(
        "(SELECT n FROM LATEST(all)) failed on" in t and "More than one row" in t for t in told
    )
    rows = {(r.job, (r.start // 1_000_000 - STARTED) // 10): r.rows.to_pylist() for r in found}
    assert rows["cast", 2] == [{"n": 1}]
    assert rows["one", 2] == [{"n": 2}]


def test_before_a_result_there_are_no_rows(tmp_path: Path) -> None:
    write(tmp_path, [(STARTED, "x"), (STARTED + 30, "x")])
    program = sql(text(tmp_path))
    run = InlineRun(program.streams["s"], program.jobs_of("s"), Rules(False))
    found = {result.job: result.rows.to_pylist() for result in run.turn(0.0).results()}
    assert "watched" not in found
    assert found["beside"] == [{"k": "x", "n": 1, "hottest": None}]


def test_a_result_that_is_too_large_is_told_and_not_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "MOST_BYTES", 1)
    program, notes = sql(text(tmp_path)), list[str]()
    run = InlineRun(program.streams["s"], program.jobs_of("s"), Rules(True), notes.append)
    readers = Readers([], [run.loop])
    for number in range(4):
        write(tmp_path, [(STARTED + 10 * number + 5, "x")])
        readers.hand_on(run.loop, run.turn(STARTED + 10.0 * number + 6))
    assert any("LATEST(hot)" in note and "the result from before stays" in note for note in notes)


@pytest.mark.spark
def test_results_reach_tasks_on_spark(tmp_path: Path, spark: SparkSession) -> None:
    from muntin.spark.runner import Settings, SparkRun

    folder, state = tmp_path / "logs", tmp_path / "state"
    folder.mkdir()
    now = [float(STARTED)]
    program = sql(text(folder))
    settings = Settings(state, True, seconds=60)
    run = SparkRun(program, spark.sparkContext, settings, clock=lambda: now[0])
    results: list[Result] = []
    turns = run.turns()
    for number in range(6):
        write(folder, [(STARTED + 10 * number + 5, key) for key in "xxyz"])
        now[0] = STARTED + 10.0 * number + 6
        for turn in turns:
            results += turn.emission.results()
            if turn.bytes:
                break
    run.stop.set()
    for job in ("watched", "looked"):
        watched = [result for result in results if result.job == job]
        assert watched
        assert all(row["k"] == "x" and row["n"] == 2 for r in watched for row in r.rows.to_pylist())


@pytest.mark.spark
def test_results_that_have_left_are_known_after_a_restart(
    tmp_path: Path, spark: SparkSession
) -> None:
    """A new program for each step: what the one before it has left is there, and is told of."""
    from muntin.spark.runner import Settings, StreamRun
    from muntin.store.results import Results

    folder, state = tmp_path / "logs", tmp_path / "state"
    folder.mkdir()
    now = [float(STARTED)]
    program = sql(text(folder, CIRCLES))
    keys = ["xxy", "xyy", "xx", "yx", "xxx"]
    for number, some in enumerate(keys):
        write(folder, [(STARTED + 10 * number + 5, key) for key in some])
        now[0] = STARTED + 10.0 * number + 6
        settings = Settings(state, True)
        with patch.object(StreamRun, "_watch", return_value=None):
            run = StreamRun(
                spark.sparkContext, program.streams["s"], program.jobs_of("s"), settings,
                lambda: now[0],
            )  # fmt: skip
        run.loop.turn()
        run.close()
    stored = Results(state).read("own").to_pylist()
    x = {number: sum(key == "x" for key in some) for number, some in enumerate(keys)}
    x[2] += x[0]
    x[3] += x[1]
    found = {(r["window_end"].timestamp() - STARTED) // 10 - 1: r for r in stored if r["k"] == "x"}
    assert {number: row["n"] for number, row in found.items()} == {n: x[n] for n in range(4)}
    for number, row in found.items():
        used = [(u["job"], u["window"], u["end"].timestamp()) for u in row["results_used"]]
        ended = STARTED + 10 * (number - 1)
        assert used == ([("own", "10 seconds", ended)] if number >= 2 else [])
