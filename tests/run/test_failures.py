"""Python that fails stops its own job, says where and with what, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
import pytest

import muntin as mt
from muntin.errors import CodeError, LanguageError
from muntin.kernel.python import mapping, partials, reducing, running
from muntin.kernel.python.jobs import Incremental, MapReduce, Pair
from muntin.kernel.python.rounds import Round
from muntin.language.program import sql, with_job
from muntin.model.jobs import Program
from muntin.model.shapes import Code
from muntin.run.inline import windows_inline
from muntin.store.status import status

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LINES = ["0 a", "5 b", "61 a", "62 bad", "130 a"]
Told = tuple[list[str], dict[str, list[tuple[int, str, str]]]]


class Words(MapReduce):
    window = "1 MINUTE"

    def mapper(self, _: None, line: str) -> Iterator[Pair]:
        yield line.split()[1], 1

    def reducer(self, key: Any, values: Iterable[int]) -> Iterator[Pair]:
        yield key, sum(values)


class Raises(Words):
    def mapper(self, _: None, line: str) -> Iterator[Pair]:
        if "bad" in line:
            yield "half", 1
            raise ValueError("no such word")
        yield from super().mapper(_, line)


class Leaves(Words):
    def mapper(self, _: None, line: str) -> Iterator[Pair]:
        if "bad" in line:
            raise SystemExit(3)
        yield from super().mapper(_, line)


class Forgives(Raises):
    max_errors = 1


class NoPairs(Words):
    def mapper(self, _: None, line: str) -> Iterator[Any]:
        yield "bad" if "bad" in line else (line.split()[1], 1)


class Renames(Words):
    def combiner(self, key: str, values: Iterable[int]) -> Iterator[Pair]:
        yield key.upper(), sum(values)


class Grows(Words):
    max_state = 200

    def mapper(self, _: None, line: str) -> Iterator[Pair]:
        yield "all", "x" * 250


class Unpicklable(Words):
    def mapper(self, _: None, line: str) -> Iterator[Pair]:
        yield "f", (lambda: line) if "bad" in line else 1


class Reduces(Words):
    def reducer(self, key: Any, values: Iterable[int]) -> Iterator[Pair]:
        yield key, 1 // (0 if key == "bad" else 1)


class Typed(Words):
    columns = {"word": "VARCHAR", "n": "BIGINT"}  # noqa: RUF012

    def reducer(self, key: Any, values: Iterable[int]) -> Iterator[Pair]:
        yield key, "many" if key == "bad" else sum(values)


class Opaque(Words):
    def reducer(self, key: Any, values: Iterable[int]) -> Iterator[Pair]:
        yield key, object() if key == "bad" else sum(values)


class Batches(Words):
    def map_batches(self, batch: pa.Table) -> Any:
        lines = batch["line"].to_pylist()
        return 7 if "62 bad" in lines else pa.table({"key": lines, "value": [1] * len(lines)})


class Returns(Words):
    def mapper(self, _: None, line: str) -> Any:
        return super().mapper(_, line) if "bad" not in line else 5


class Half(Words):
    columns: ClassVar[Any] = {"word": "VARCHAR", "n": "BIGINT"}

    def reducer(self, word: str, ones: Iterable[int]) -> Iterator[Pair]:
        yield word, 0.5 if word == "bad" else float(sum(ones))


class Updates(Incremental):
    window = "1 MINUTE"

    def map(self, _: None, line: str) -> Iterator[Pair]:
        yield line.split()[1], line

    def init(self, key: str) -> int:
        return 0

    def update(self, key: str, state: int, value: str) -> int:
        return state + int(value.split()[0] if key != "bad" else "bad")

    def finalize(self, key: str, state: int) -> Iterator[Pair]:
        yield key, state


@pytest.fixture
def lines(tmp_path: Path) -> Program:
    (tmp_path / "web.txt").write_text("\n".join(LINES) + "\n")
    return sql(
        f"CREATE STREAM lines FROM '{tmp_path}/{{source}}.txt' FORMAT text "
        "TIMESTAMP CAST(split_part(line, ' ', 1) AS BIGINT);"
    )


def told(program: Program, batch: int = 1 << 20) -> Told:
    notes: list[str] = []
    rows: dict[str, list[tuple[int, str, str]]] = {}
    for windows in windows_inline(program, notes.append, batch_bytes=batch):
        for result in windows.results():
            found = [(result.start // 60_000_000, *r.values()) for r in result.rows.to_pylist()]
            rows.setdefault(result.job, []).extend(found)
    return notes, rows


WORDS = [(0, '"a"', "1"), (0, '"b"', "1"), (1, '"a"', "1"), (1, '"bad"', "1"), (2, '"a"', "1")]


@pytest.mark.parametrize(
    ("job", "message"),
    [
        (Raises, "mapper failed on '62 bad': ValueError: no such word"),
        (Leaves, "mapper failed on '62 bad': SystemExit: 3"),
        (NoPairs, "mapper failed on '62 bad': it yielded 'bad'; expected pairs: yield key, value"),
        (Returns, "mapper failed on '62 bad': it returned 5; expected pairs: yield key, value"),
        (Half, "reducer failed on the result ('bad', 0.5): expected columns word VARCHAR, n BIGI"),
        (Unpicklable, "mapper failed on key 'f': its values cannot be pickled: "),
        (Reduces, "reducer failed on key 'bad': ZeroDivisionError: "),
        (Typed, "reducer failed on the result ('bad', 'many'): expected columns word VARCHAR, "),
        (Opaque, "reducer failed on the result <object object at "),
        (Batches, "map_batches failed on a batch of 2 records: it returned 7; expected a "),
        (Updates, "update failed on key 'bad', value '62 bad': ValueError: invalid literal "),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else "",
)
@pytest.mark.parametrize("batch", [8, 1 << 20])
def test_a_failing_job_stops_and_others_go_on(
    job: type, message: str, batch: int, lines: Program
) -> None:
    both = with_job(lines, "good", Words, stream="lines")
    notes, rows = told(with_job(both, "failing", job, stream="lines"), batch)
    assert notes[0].startswith(f"job 'failing': {message}")
    assert notes[1:] == [
        "job 'failing' stops: none is allowed (max_errors = 0); its windows from there on are "
        "left out, and other jobs go on"
    ]
    assert {row[0] for row in rows["failing"]} == {0}, "the window before is complete"
    assert rows["good"] == WORDS


def test_errors_within_the_limit_leave_out_their_records(lines: Program) -> None:
    notes, rows = told(with_job(lines, "job", Forgives, stream="lines"))
    (note,) = notes
    line = Raises.mapper.__code__.co_firstlineno + 3
    reason = f"ValueError: no such word (test_failures.py, line {line})"
    assert note == f"job 'job': mapper failed on '62 bad': {reason}"
    assert rows["job"] == [row for row in WORDS if "bad" not in row[1]]


def test_from_python_what_there_is_to_say_is_logged_or_handed_over(
    lines: Program, caplog: pytest.LogCaptureFixture
) -> None:
    failing = with_job(lines, "job", Raises, stream="lines")
    assert [result.start for result in mt.run(failing)] == [0]
    assert caplog.messages[0].startswith("job 'job': mapper failed on '62 bad'")
    assert caplog.messages[1].startswith("job 'job' stops")
    caplog.clear()
    notes: list[str] = []
    list(mt.run(failing, notes.append))
    assert len(notes) == 2
    assert not caplog.messages


class Slides(Words):
    window = "3 MINUTES EVERY 1 MINUTE"

    def combiner(self, word: str, ones: Iterable[int]) -> Iterator[Pair]:
        yield word, sum(ones)

    def uncombiner(self, word: str, whole: int, part: int) -> Iterator[Pair]:
        yield "A", whole - part


class Forgets(Slides):
    def uncombiner(self, word: str, whole: int, part: int) -> Iterator[Pair]:
        yield from ()


def test_an_uncombiner_yields_its_key_once(lines: Program) -> None:
    renamed, _ = told(with_job(lines, "job", Slides, stream="lines"))
    reason = "it changed the key to 'A'; expected the key it was given"
    assert renamed[0] == f"job 'job': uncombiner failed on key 'a': {reason}"
    nothing, _ = told(with_job(lines, "job", Forgets, stream="lines"))
    reason = "it yielded 0 pairs; expected the key with what is left"
    assert nothing[0] == f"job 'job': uncombiner failed on key 'a': {reason}"


class Drops(Words):
    window = "3 MINUTES"

    def combiner(self, word: str, ones: Iterable[int]) -> Iterator[Pair]:
        return iter(())


def test_a_key_without_values_is_not_reduced(lines: Program) -> None:
    notes, rows = told(with_job(lines, "job", Drops, stream="lines"))
    assert notes == []
    assert rows["job"] == [(0, '"b"', "1"), (0, '"bad"', "1")]


class Chain(Words):
    def steps(self) -> list[Any]:
        return [{"mapper": self.mapper, "reducer": self.reducer}, {"reducer": self.reducer}]


class Lasts(Incremental):
    map, init, update = Updates.map, Updates.init, Updates.update


@pytest.mark.parametrize("job", [Words, Chain, Batches, Updates, Lasts])
@pytest.mark.parametrize("batch", [8, 1 << 20])
def test_a_class_that_cannot_be_loaded_stops_its_job_alone(
    job: type, batch: int, lines: Program
) -> None:
    both = with_job(lines, "good", Words, stream="lines")
    both = with_job(both, "failing", job, stream="lines", window=None)
    failing = both.jobs["failing"]
    assert failing.shape.code is not None
    code = replace(failing.shape.code, payload=b"cnowhere\nNothing\n.")
    failing = replace(failing, shape=replace(failing.shape, code=code))
    notes, rows = told(Program(both.streams, {**both.jobs, "failing": failing}), batch)
    assert "test_failures:" in notes[0]
    assert "cannot be loaded: ModuleNotFoundError: No module named 'nowhere'; what it" in notes[0]
    assert rows == {"good": WORDS}


@pytest.mark.parametrize("job", [Words, Chain, Updates, Lasts])
def test_a_class_that_cannot_be_loaded_any_more_is_told(
    job: type, lines: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(_: Code) -> Any:
        raise CodeError("it cannot be loaded: it has gone")

    for module in (partials, reducing, running):
        monkeypatch.setattr(module, "loaded", gone)
    monkeypatch.setattr(mapping, "first_round", lambda _: Round(Words().mapper))
    notes, rows = told(with_job(lines, "job", job, stream="lines"), 8)
    assert notes[0].startswith("job 'job': job failed on its ")
    assert notes[0].endswith(": it cannot be loaded: it has gone")
    assert rows == {}


def test_a_combiner_keeps_its_key(lines: Program) -> None:
    notes, rows = told(with_job(lines, "job", Renames, stream="lines", window="2 MINUTES"))
    reason = "it changed the key to 'A'; expected the key it was given"
    assert notes[0] == f"job 'job': combiner failed on key 'a': {reason}"
    assert rows == {}


@pytest.mark.parametrize("batch", [8, 1 << 20])
def test_a_key_has_a_limit(lines: Program, batch: int) -> None:
    notes, rows = told(with_job(lines, "job", Grows, stream="lines"), batch)
    assert notes[0].startswith("job 'job': state failed on key 'all': its values take ")
    assert "max_state is 200; a combiner makes them fewer" in notes[0]
    assert rows == {}


class NoMethods:
    window = "1 MINUTE"


class BadCombine(Batches):
    combine = "median"


class BadLimit(Words):
    max_errors = -1


class BadColumn(Words):
    columns = {"word": "TEXTT"}  # noqa: RUF012


class TakesArguments(Words):
    def __init__(self, limit: int) -> None: ...


def refused(message: str, attempt: Callable[[], object]) -> None:
    with pytest.raises(LanguageError) as found:
        attempt()
    assert message in str(found.value)


@pytest.mark.parametrize(
    ("job", "message"),
    [
        (NoMethods, "has no methods of a job; expected mapper and reducer, or map_batches, or map"),
        (BadCombine, "is 'median'; expected sum, min, max"),
        (BadLimit, "is -1; expected a whole number"),
        (BadColumn, "column 'word' of"),
        (TakesArguments, "cannot be made without arguments: TypeError"),
    ],
)
def test_a_class_that_is_no_job_is_refused(job: type, message: str, lines: Program) -> None:
    refused(message, lambda: with_job(lines, "job", job, stream="lines"))


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("nowhere", "'nowhere' names no Python; expected 'module:Class'"),
        ("nowhere:Job", "module 'nowhere' cannot be imported (looked for in "),
        ("jobs:Other", "module 'jobs' has no 'Other'; it has Count, count"),
        ("jobs:count", "'jobs:count' is of type function; expected a class"),
    ],
)
def test_python_that_is_not_there_is_refused(code: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "jobs.py").write_text("class Count:\n    pass\n\ndef count(): ...\n")
    text = "CREATE STREAM s FROM 'x' FORMAT text TIMESTAMP line; CREATE JOB j AS PYTHON "
    refused(message, lambda: sql(f"{text}'{code}' FROM s WINDOW 1 DAY", tmp_path))


def test_a_window_is_needed(lines: Program) -> None:
    class Windowless(MapReduce):
        mapper, reducer = Words.mapper, Words.reducer

    refused("expected WINDOW", lambda: with_job(lines, "job", Windowless, stream="lines"))
    refused(
        "no SESSION", lambda: with_job(lines, "j", Words, stream="lines", window="SESSION 1 DAY")
    )


def test_failures_on_spark_survive_a_restart(
    spark: SparkSession, lines: Program, tmp_path: Path
) -> None:
    from muntin.spark.runner import Settings, SparkRun

    good = with_job(lines, "good", Words, stream="lines")
    how = Settings(tmp_path / "state", follow=False, batch_bytes=1 << 20)

    def run(job: type[MapReduce], more: str) -> tuple[list[str], dict[str, int]]:
        notes: list[str] = []
        rows: dict[str, int] = {}
        with (tmp_path / "web.txt").open("a") as file:
            file.write(more)
        program = with_job(good, "bad", job, stream="lines")
        for step in SparkRun(program, spark.sparkContext, how).turns():
            notes += step.notes
            for result in step.emission.results():
                rows[result.job] = rows.get(result.job, 0) + result.rows.num_rows
        return notes, rows

    def told(notes: list[str], words: str) -> int:
        return len([note for note in notes if words in note])

    notes, rows = run(Raises, "")
    assert told(notes, "failed") == 1
    assert rows == {"good": 5, "bad": 2}
    notes, rows = run(Raises, "190 a\n250 a\n")
    assert told(notes, "failed") == 0
    assert told(notes, "job 'bad' stopped in an earlier run") == 1
    assert rows == {"good": 2}
    notes, rows = run(Words, "310 a\n")
    assert told(notes, "stopped") == 0
    assert rows == {"good": 1, "bad": 1}


def test_spans_are_refused() -> None:
    text = (
        "CREATE STREAM calls (a BIGINT, b BIGINT) FROM 'x' FORMAT json TIMESTAMP a TO b BY TOUCH;"
        "CREATE JOB j AS PYTHON 'tests.run.test_failures:Words' FROM calls"
    )
    refused("jobs in Python count moments; declare the stream's spans BY", lambda: sql(text))


def failed(program: Program, batch: int = 1 << 20) -> list[tuple[int, int, int]]:
    """By window: where it starts, the records read, and those that the job dropped."""
    return [
        (result.start // 1_000_000, result.counts.read, result.counts.failed)
        for windows in windows_inline(program, batch_bytes=batch)
        for result in windows.results()
    ]


class AllowsBatches(Batches):
    max_errors = 1


class AllowsUpdates(Updates):
    max_errors = 1


class AllowsReducer(Reduces):
    max_errors = 1


class AllowsTwo(Raises):
    max_errors = 4
    window = "2 MINUTES EVERY 1 MINUTE"


@pytest.mark.parametrize("batch", [8, 1 << 20])
@pytest.mark.parametrize(
    ("job", "expected"),
    [
        (Forgives, [(0, 2, 0), (60, 2, 1), (120, 1, 0)]),
        (AllowsUpdates, [(0, 2, 0), (60, 2, 1), (120, 1, 0)]),
        (AllowsReducer, [(0, 2, 0), (60, 2, 1), (120, 1, 0)]),
        (AllowsTwo, [(-60, 2, 0), (0, 4, 1), (60, 3, 1), (120, 1, 0)]),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else "",
)
def test_what_was_dropped_is_counted_in_every_window_it_is_missing_in(
    job: type, expected: list[tuple[int, int, int]], batch: int, lines: Program
) -> None:
    assert failed(with_job(lines, "job", job, stream="lines"), batch) == expected


def test_a_batch_that_fails_costs_all_its_records(lines: Program) -> None:
    program = with_job(lines, "job", AllowsBatches, stream="lines", window="3 MINUTES")
    assert failed(program) == []  # one pane, and nothing of it is left
    notes, _ = told(program)
    assert len(notes) == 1
    shorter = with_job(
        lines, "job", AllowsBatches, stream="lines", window="3 MINUTES PANE 1 MINUTE"
    )
    assert failed(shorter) == [(0, 5, 2)]


def test_late_records_that_fail_count_as_late(tmp_path: Path) -> None:
    # 121 comes before 62, so that the minutes from 0 have left without it; those from 60 have not.
    (tmp_path / "web.txt").write_text("0 a\n60 a\n61 a\n121 a\n62 bad\n131 bad\n")
    stream = sql(
        f"CREATE STREAM lines FROM '{tmp_path}/{{source}}.txt' FORMAT text "
        "TIMESTAMP CAST(split_part(line, ' ', 1) AS BIGINT) SLACK 0 SECONDS;"
    )
    program = with_job(stream, "job", AllowsTwo, stream="lines")
    windows = [w for windows in windows_inline(program) for w in windows.results()]
    found = [(w.start // 1_000_000, w.counts.late, w.counts.failed) for w in windows]
    assert found == [(-60, 0, 0), (0, 1, 0), (60, 0, 2), (120, 0, 1)]


def test_what_was_dropped_survives_a_restart_and_is_in_results_and_status(
    spark: SparkSession, tmp_path: Path
) -> None:
    from muntin.spark.runner import Settings, SparkRun

    stream = sql(
        f"CREATE STREAM lines FROM '{tmp_path}/{{source}}.txt' FORMAT text "
        "TIMESTAMP CAST(split_part(line, ' ', 1) AS BIGINT) SLACK 0 SECONDS;"
    )
    program = with_job(stream, "job", AllowsTwo, stream="lines", window="2 MINUTES")
    how = Settings(tmp_path / "state", follow=True)
    for more in ("0 a\n10 bad\n70 bad\n", "80 bad\n90 a\n130 bad\n131 a\n", "300 a\n" * 3):
        with (tmp_path / "web.txt").open("a") as file:
            file.write(more)
        run = SparkRun(program, spark.sparkContext, how, clock=lambda: 1000.0)
        for turn in run.turns():
            if turn.bytes:
                run.stop.set()
    rows = mt.results("job", how.state, window="all").to_pylist()
    found = {(r["window_start"].timestamp(), r["records_read"], r["records_failed"]) for r in rows}
    assert found == {(0, 5, 3), (120, 2, 1)}
    (job,), _ = status(how.state)
    assert job["failed"] == 4
