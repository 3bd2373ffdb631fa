"""Windows of records, bytes and sequence numbers against counting them one by one.

The rules: each source counts for itself, bad rows have no number and take no room, a number
lower than one before makes its record bad, and window [start, end) of all sources is one.
"""

from __future__ import annotations

import gzip
import json
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from muntin.errors import BadRowError
from muntin.language.program import sql
from muntin.model.jobs import Program
from muntin.run.inline import windows_inline
from muntin.run.loop import Loop
from muntin.run.results import Result
from muntin.store.results import Results
from muntin.units import describe_window
from tests.effort import examples

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.usefixtures("looking_at_all")

Kind = Literal["records", "bytes", "sequence"]
UNITS = {"records": "RECORDS", "bytes": "BYTES", "sequence": "OF seq"}


@dataclass(frozen=True)
class Line:
    """One line of a log; one without `k` is bad."""

    k: str | None
    n: int = 0
    seq: int | None = 0

    def text(self, form: str) -> str:
        if self.k is None:
            return "1,2" if form == "csv" else "not json"
        if form == "csv":
            return f'1,"{self.k}",{self.n},{"" if self.seq is None else self.seq}'
        return json.dumps({"t": 1, "k": self.k, "n": self.n, "seq": self.seq}, ensure_ascii=False)

    def size(self, form: str) -> int:
        """Bytes with the end of the line; quotes around a field of CSV are no part of it."""
        return len(self.text(form).encode()) + 1 - (2 if form == "csv" else 0)


Logs = dict[str, list[Line]]
Row = tuple[Any, ...]  # window, start, end, key, count, sum, max


@dataclass(frozen=True)
class Window:
    length: int
    slide: int
    offset: int = 0

    def holding(self, position: int) -> Iterator[int]:
        """Starts of the windows that hold a position."""
        last = (position - self.offset) // self.slide * self.slide + self.offset
        yield from range(last, position - self.length, -self.slide)


@dataclass(frozen=True)
class Question:
    kind: Kind
    windows: tuple[Window, ...]
    bounds: tuple[int, int] | None = None
    form: str = "json"
    zipped: bool = False

    def muntin(self, folder: Path, rest: str = "") -> str:
        unit = UNITS[self.kind]
        windows = ", ".join(
            f"{w.length} {unit} EVERY {w.slide} FROM {w.offset}" for w in self.windows
        )
        bounds = f" BEGIN {self.bounds[0]} EXTENT {self.bounds[1]}" if self.bounds else ""
        return (
            f"CREATE STREAM logs (t BIGINT, k VARCHAR, n BIGINT, seq BIGINT) "
            f"FROM '{folder}/{{source}}.log*' FORMAT {self.form} TIMESTAMP t{rest};\n"
            f"CREATE JOB job AS SELECT k, count(*) AS c, sum(n) AS s, max(n) AS m FROM logs "
            f"GROUP BY k WINDOW {windows}{bounds};"
        )

    def write(self, folder: Path, logs: Logs) -> None:
        header = "t,k,n,seq\n" if self.form == "csv" else ""
        for source, lines in logs.items():
            text = header + "".join(line.text(self.form) + "\n\n" for line in lines)
            if self.zipped:
                (folder / f"{source}.log.gz").write_bytes(gzip.compress(text.encode()))
            else:
                (folder / f"{source}.log").write_text(text, encoding="utf-8")

    def numbered(self, lines: Sequence[Line]) -> Iterator[tuple[Line, int | None, int]]:
        """Every line, its position, or None if it is bad, and where the source stood."""
        used, highest = 0, None
        for line in lines:
            bad = line.k is None or (self.kind == "sequence" and line.seq is None)
            if self.kind == "sequence":
                number = line.seq or 0
                bad = bad or (highest is not None and number < highest)
                highest = highest if bad else number
                yield line, None if bad else number, highest or 0
            else:
                yield line, None if bad else used, used
                used += 0 if bad else line.size(self.form) if self.kind == "bytes" else 1

    def answer(self, logs: Logs) -> list[Row]:
        groups: dict[tuple[int, int, str], list[int]] = defaultdict(list)
        for lines in logs.values():
            for line, position, _ in self.numbered(lines):
                if position is None or not self._inside(position):
                    continue
                for number, window in enumerate(self.windows):
                    for start in window.holding(position):
                        groups[number, start, line.k or ""].append(line.n)
        return sorted(
            (number, start, start + self.windows[number].length, k, len(n), sum(n), max(n))
            for (number, start, k), n in groups.items()
        )

    def counts(self, logs: Logs) -> dict[tuple[int, int], tuple[int, int]]:
        """Records read and bad of each window."""
        found: dict[tuple[int, int], list[int]] = defaultdict(lambda: [0, 0])
        for lines in logs.values():
            for _, position, stood in self.numbered(lines):
                for number, window in enumerate(self.windows):
                    for start in window.holding(stood if position is None else position):
                        found[number, start][position is None] += 1
        return {window: (read, bad) for window, (read, bad) in found.items()}

    def bad(self, logs: Logs) -> int:
        numbered = (each for lines in logs.values() for each in self.numbered(lines))
        return sum(position is None for _, position, _ in numbered)

    def _inside(self, position: int) -> bool:
        return self.bounds is None or 0 <= position - self.bounds[0] < self.bounds[1]


WINDOWS: dict[Kind, list[Window]] = {
    "records": [Window(5, 5), Window(4, 2), Window(7, 3, 1), Window(1, 1), Window(12, 1),
                Window(40, 40)],
    "bytes": [Window(100, 100), Window(256, 64), Window(90, 30, 10), Window(1000, 1000),
              Window(600, 20)],
    "sequence": [Window(10, 5), Window(6, 6), Window(9, 6, 3), Window(30, 2), Window(1, 1)],
}  # fmt: skip


@st.composite
def questions(draw: st.DrawFn) -> Question:
    kind: Kind = draw(st.sampled_from(["records", "bytes", "sequence"]))
    windows = draw(st.lists(st.sampled_from(WINDOWS[kind]), min_size=1, max_size=3, unique=True))
    bounds = st.tuples(st.integers(0, 30), st.integers(1, 400))
    return Question(
        kind,
        tuple(windows),
        draw(st.one_of(st.none(), bounds)),
        draw(st.sampled_from(["json", "csv"])),
        draw(st.booleans()),
    )


@st.composite
def logs_of(draw: st.DrawFn) -> Logs:
    lines = st.one_of(
        *[st.tuples(st.sampled_from(["a", "b", "ü, x"]), st.integers(-9, 9), st.integers(0, 3))]
        * 6,
        st.just((None, 0, 0)),
        st.tuples(st.just("a"), st.just(1), st.integers(-5, -1)),
    )
    logs: Logs = {}
    for source in draw(st.sets(st.sampled_from(["web-1", "web-2", "db"]), min_size=1)):
        at = draw(st.integers(-5, 5))
        logs[source] = [Line("first", 0, at)]
        for k, n, step in draw(st.lists(lines, max_size=30)):
            logs[source].append(Line(k, n, at + step))
            at = max(at, at + step)
    return logs


def names_of(program: Program) -> list[str]:
    job = program.jobs["job"]
    return [describe_window(job.shape.axis, spec) for spec in job.windows]


def rows_of(program: Program, results: Iterable[Result]) -> list[Row]:
    names = names_of(program)
    return sorted(
        (names.index(result.window), result.start, result.end, *row.values())
        for result in results
        for row in result.rows.to_pylist()
    )


def stored_rows(program: Program, stored: list[dict[str, Any]]) -> list[Row]:
    names = names_of(program)
    shown = ("window_start", "window_end", "k", "c", "s", "m")
    return sorted(
        (names.index(row["window_name"]), *(row[name] for name in shown)) for row in stored
    )


@examples(100)
@given(question=questions(), logs=logs_of(), batch=st.integers(1, 2000), piece=st.integers(1, 900))
@example(Question("records", (Window(5, 5),), (0, 1)), {"web-1": [Line("first")]}, 99, 99)
def test_inline_equals_counting(question: Question, logs: Logs, batch: int, piece: int) -> None:
    pipelines: list[Loop] = []
    with tempfile.TemporaryDirectory() as folder:
        question.write(Path(folder), logs)
        program = sql(question.muntin(Path(folder)))
        leaving = windows_inline(
            program, done=pipelines.append, batch_bytes=batch, piece_bytes=piece
        )
        results = [result for windows in leaving for result in windows.results()]
    assert rows_of(program, results) == question.answer(logs)
    counts = question.counts(logs)
    for result in results:
        found = result.counts
        number = names_of(program).index(result.window)
        assert (found.read, found.bad) == counts[number, result.start]
        assert found.late == 0
    assert pipelines[0].progress.bad == question.bad(logs)
    assert pipelines[0].progress.late == {}


@examples(6)
@given(question=questions(), logs=logs_of(), batch=st.integers(100, 2000))
def test_spark_equals_counting(
    spark: SparkSession, question: Question, logs: Logs, batch: int
) -> None:
    from muntin.spark.runner import Settings, SparkRun

    with tempfile.TemporaryDirectory() as folder:
        question.write(Path(folder), logs)
        program = sql(question.muntin(Path(folder)))
        settings = Settings(Path(folder) / "state", follow=False, batch_bytes=batch)
        for _ in SparkRun(program, spark.sparkContext, settings).turns():
            pass
        stored = Results(Path(folder) / "state").read("job").to_pylist()
    assert stored_rows(program, stored) == question.answer(logs)


@pytest.mark.parametrize("kind", ["records", "bytes", "sequence"])
def test_a_run_that_starts_again_in_the_middle(
    spark: SparkSession, tmp_path: Path, kind: Kind
) -> None:
    """Every run takes one batch and is left; the numbers go on where they stopped."""
    from muntin.spark.runner import Settings, StreamRun

    lines = [Line(None) if i % 7 == 3 else Line("ab"[i % 2], i, i * 2) for i in range(60)]
    logs = {"web-1": lines, "web-2": lines[:25]}
    question = Question(kind, (Window(600, 200), Window(200, 200, 100), Window(13, 13)))
    question.write(tmp_path, logs)
    program = sql(question.muntin(tmp_path))
    settings = Settings(tmp_path / "state", follow=False, batch_bytes=700)
    stream, jobs = program.streams["logs"], program.jobs_of("logs")
    steps = 0
    remaining = True
    while remaining:
        run = StreamRun(spark.sparkContext, stream, jobs, settings)
        remaining = run.loop.turn(0.0).remaining > 0
        run.close()
        steps += 1
    assert steps > 3
    stored = Results(tmp_path / "state").read("job").to_pylist()
    assert stored_rows(program, stored) == question.answer(logs)
    counts, names = question.counts(logs), names_of(program)
    for row in stored:
        key = names.index(row["window_name"]), row["window_start"]
        assert (row["records_read"], row["records_bad"], row["records_late"]) == (*counts[key], 0)


def run(text: str) -> tuple[dict[str, list[Row]], list[str]]:
    """(start, end, columns…) of every job, and what was noted."""
    notes: list[str] = []
    found: dict[str, list[Row]] = defaultdict(list)
    for windows in windows_inline(sql(text), notes.append):
        for result in windows.results():
            rows = result.rows.to_pylist()
            found[result.job] += [(result.start, result.end, *row.values()) for row in rows]
    return found, notes


def test_a_sequence_that_goes_backwards(tmp_path: Path) -> None:
    question = Question("sequence", (Window(10, 10),))
    numbers = [1, 5, 3, 5, 12, 4, 13]
    logs = {"web-1": [Line("a", 1, seq) for seq in numbers]}
    question.write(tmp_path, logs)
    found, notes = run(question.muntin(tmp_path))
    assert found == {"job": [(0, 10, "a", 3, 3, 1), (10, 20, "a", 2, 2, 1)]}
    (note,) = notes
    place = f"{tmp_path}/web-1.log, line 5: a row does not fit stream 'logs': "
    assert note.startswith(f'{place}"seq" is 3 after 5, but a sequence must not fall: {{')
    with pytest.raises(BadRowError, match=r'line 5: .* "seq" is 3 after 5'):
        run(question.muntin(tmp_path, " ON BAD ROW FAIL"))


def test_time_and_counts_of_one_stream_do_not_meddle(tmp_path: Path) -> None:
    """Records 1, 3 and 4 are late for their windows of time, but keep their numbers."""
    times = [25, 3, 31, 4, 12, 44]
    lines = [json.dumps({"t": t, "seq": 10 - i}) for i, t in enumerate(times)]
    (tmp_path / "web-1.log").write_text("\n".join(lines) + "\n")
    found, _ = run(
        f"CREATE STREAM logs (t BIGINT, seq BIGINT) FROM '{tmp_path}/{{source}}.log' FORMAT json "
        f"TIMESTAMP t SLACK 0 SECONDS;"
        f"CREATE JOB timed AS SELECT count(*) AS c FROM logs WINDOW 10 SECONDS;"
        f"CREATE JOB counted AS SELECT list_sort(map_keys(histogram(t))) AS t FROM logs "
        f"WINDOW 2 RECORDS;"
        f"CREATE JOB numbered AS SELECT count(*) AS c FROM logs WINDOW 100 OF seq;"
    )
    second = 1_000_000
    assert found["timed"] == [(t * second, (t + 10) * second, 1) for t in (20, 30, 40)]
    assert found["counted"] == [(0, 2, [3, 25]), (2, 4, [4, 31]), (4, 6, [12, 44])]
    assert found["numbered"] == [(0, 100, 1)]


def test_numbers_that_are_none_or_do_not_fit_are_bad(tmp_path: Path) -> None:
    lines = [json.dumps({"t": 1, "id": id_}) for id_ in (7, None, 2**63 + 5, "x", 8)]
    (tmp_path / "web-1.log").write_text("\n".join(lines) + "\n")
    found, notes = run(
        f"CREATE STREAM logs (t BIGINT, id UBIGINT) FROM '{tmp_path}/{{source}}.log' FORMAT json "
        f"TIMESTAMP t; CREATE JOB job AS SELECT count(*) AS c FROM logs WINDOW 10 OF id;"
    )
    assert found == {"job": [(0, 10, 2)]}
    assert len(notes) == 1


def test_records_of_parquet_are_counted(tmp_path: Path) -> None:
    for name in ("a", "b"):
        table = pa.table({"t": list(range(10)), "seq": list(range(100, 110))})
        pq.write_table(table, tmp_path / f"{name}.parquet", row_group_size=3)
    found, _ = run(
        f"CREATE STREAM logs FROM '{tmp_path}/{{source}}.parquet' FORMAT parquet TIMESTAMP t;"
        f"CREATE JOB counted AS SELECT sum(t) AS s FROM logs WINDOW 4 RECORDS;"
        f"CREATE JOB numbered AS SELECT sum(t) AS s FROM logs WINDOW 5 OF seq;"
    )
    assert found["counted"] == [(0, 4, 12), (4, 8, 44), (8, 12, 34)]
    assert found["numbered"] == [(100, 105, 20), (105, 110, 70)]


def test_first_values_and_lists_are_by_time_in_counted_windows_too(tmp_path: Path) -> None:
    times = [3, 1, 2, 5, 4]
    lines = "".join(json.dumps({"t": t, "k": f"at {t}"}) + "\n" for t in times)
    (tmp_path / "a.jsonl").write_text(lines)
    program = sql(
        f"CREATE STREAM s FROM '{tmp_path}/*.jsonl' FORMAT json TIMESTAMP t;"
        "CREATE JOB j AS SELECT first(k) AS f, last(k) AS l, list(k) AS all FROM s WINDOW 3 RECORDS"
    )
    rows = [row for w in windows_inline(program) for r in w.results() for row in r.rows.to_pylist()]
    assert [tuple(row.values()) for row in rows] == [
        ("at 1", "at 3", ["at 1", "at 2", "at 3"]),
        ("at 4", "at 5", ["at 4", "at 5"]),
    ]
