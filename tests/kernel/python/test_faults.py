"""What fails in one job's Python fails alone: in its window, of its key, and in no other job."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from muntin.language.program import sql, with_job
from muntin.run.inline import windows_inline
from tests.oracle import Record, write_logs
from tests.whole.test_python_jobs import STREAM

Rows = list[tuple[Any, ...]]
BYSTANDER = "CREATE JOB bystander AS SELECT count(*) AS n FROM logs WINDOW 1 MINUTE;"
LOGS: dict[str, Sequence[Record]] = {
    "a": [{"t": t, "k": f"k{t % 2}", "s": "s", "n": t, "x": 0.5} for t in range(60)]
}


class UnloadableError(Exception):
    def __init__(self, a: int, b: int) -> None:
        super().__init__(a)


class Counts:
    window = "1 MINUTE"
    max_errors = 1000
    columns: ClassVar[Any] = {"k": "VARCHAR", "n": "BIGINT"}

    def mapper(self, _: None, record: Record) -> Iterator[Any]:
        yield record["k"], 1

    def reducer(self, key: Any, values: Iterable[int]) -> Iterator[Any]:
        yield key, sum(values)


class UnpicklableKey(Counts):
    def mapper(self, _: None, record: Record) -> Iterator[Any]:
        yield (part for part in "text"), 1


class UnpicklableKeyAtTheEnd(Counts):
    def mapper_final(self) -> Iterator[Any]:
        yield threading.Lock(), 1


class UnloadableValue(Counts):
    def mapper(self, _: None, record: Record) -> Iterator[Any]:
        yield record["k"], UnloadableError(1, 2)


class UnloadableKey(Counts):
    def mapper(self, _: None, record: Record) -> Iterator[Any]:
        yield UnloadableError(1, 2), 1


class UnpicklableKeyOfCombiner(Counts):
    def combiner(self, key: Any, values: Iterable[int]) -> Iterator[Any]:
        yield threading.Lock(), sum(values)


class TwoSteps(Counts):
    def steps(self) -> list[Any]:
        return [{"mapper": self.mapper, "reducer": self.first}, {"reducer": self.reducer}]

    def first(self, key: Any, values: Iterable[int]) -> Iterator[Any]:
        yield key, (value for value in values)


class TwoStepsUnloadable(TwoSteps):
    def first(self, key: Any, values: Iterable[int]) -> Iterator[Any]:
        yield key, UnloadableError(1, 2)


class TwoStepsUnpicklableKey(TwoSteps):
    def steps(self) -> list[Any]:
        return [{"mapper": self.mapper}, {"mapper": self.second, "reducer": self.reducer}]

    def second(self, key: Any, value: int) -> Iterator[Any]:
        yield threading.Lock(), value


class ChangesItsType:
    window = "1 MINUTE"
    max_errors = 1000
    combine = "sum"

    def map_batches(self, batch: pa.Table) -> pa.Table:
        if batch.num_rows:
            return pa.table({"key": batch["k"], "value": ["x"] * batch.num_rows})
        return pa.table({"key": batch["k"], "value": pa.array([], pa.int64())})


class UnpicklableState:
    max_errors = 1000
    every = "10 SECONDS"

    def map(self, _: None, record: Record) -> Iterator[Any]:
        yield record["k"], 1

    def init(self, key: Any) -> Any:
        return threading.Lock()

    def update(self, key: Any, state: Any, value: int) -> Any:
        return state


class UnloadableState(UnpicklableState):
    def init(self, key: Any) -> Any:
        return UnloadableError(1, 2)


def answers(folder: Path, job: type, batch: int = 1 << 29) -> tuple[dict[str, Rows], list[str]]:
    write_logs(folder, LOGS)
    program = sql(STREAM.format(folder=folder, slack=" SLACK 0 SECONDS") + BYSTANDER)
    notes: list[str] = []
    found: dict[str, Rows] = {}
    leaving = windows_inline(
        with_job(program, "failing", job, stream="logs"), notes.append, batch_bytes=batch
    )
    for result in (result for each in leaving for result in each.results()):
        rows = [(result.end // 1_000_000, *row.values()) for row in result.rows.to_pylist()]
        found.setdefault(result.job, []).extend(rows)
    return found, [note for note in notes if " goes on with " not in note]


@pytest.mark.parametrize("batch", [300, 1 << 29])
@pytest.mark.parametrize(
    ("job", "message"),
    [
        (UnpicklableKey, "mapper failed on {'t': 0, 'k': 'k0'"),
        (UnpicklableKeyAtTheEnd, "mapper_final failed on no record: TypeError: cannot pickle"),
        (UnloadableValue, "failed on key 'k0': TypeError: UnloadableError.__init__() missing"),
        (UnloadableKey, "mapper failed on {'t': 0, 'k': 'k0'"),
        (UnpicklableKeyOfCombiner, "combiner failed on key 'k0': it changed the key to "),
        (TwoSteps, "reducer failed on the result ('k0', <generator"),
        (
            TwoStepsUnloadable,
            "steps failed on a window: TypeError: UnloadableError.__init__() missing",
        ),
        (TwoStepsUnpicklableKey, "mapper failed on key <unlocked _thread.lock"),
        (ChangesItsType, "its value is string; expected int64"),
        (UnpicklableState, "update failed on key 'k0': its state cannot be pickled: TypeError"),
        (
            UnloadableState,
            "state failed on key 'k0': TypeError: UnloadableError.__init__() missing",
        ),
    ],
)
def test_other_jobs_still_answer(job: type, message: str, batch: int, tmp_path: Path) -> None:
    found, notes = answers(tmp_path, job, batch)
    assert found["bystander"] == [(60, 60)]
    assert notes[0].startswith("job 'failing': ")
    assert message in notes[0]


class Small(Counts):
    """One window's values are small enough, those of several are not."""

    window = "10 SECONDS"
    max_state = 60


class OneBadCombination(Counts):
    window = "10 SECONDS"

    def mapper(self, _: None, record: Record) -> Iterator[Any]:
        yield record["k"], record["n"]

    def combiner(self, key: Any, values: Iterable[int]) -> Iterator[Any]:
        numbers = list(values)
        if 25 in numbers:
            raise ValueError("bad 25")
        yield key, sum(numbers)


class OneBadPaneRemoved(OneBadCombination):
    window = "20 SECONDS EVERY 5 SECONDS"

    def uncombiner(self, key: Any, whole: int, part: int) -> Iterator[Any]:
        yield key, whole - part


@pytest.mark.parametrize("batch", [100, 1000, 1 << 29])
def test_a_window_fails_alone(batch: int, tmp_path: Path) -> None:
    found, notes = answers(tmp_path, Small, batch)
    assert found["failing"] == [(end, k, 5) for end in range(10, 70, 10) for k in ("k0", "k1")]
    assert notes == []
    found, notes = answers(tmp_path, OneBadCombination, batch)
    keys = [(end, k) for end, k, _ in found["failing"]]
    assert keys == [(e, k) for e in range(10, 70, 10) for k in ("k0", "k1") if (e, k) != (30, "k1")]
    (note,) = notes
    assert note.startswith("job 'failing': combiner failed on key 'k1': ValueError: bad 25 (")


@pytest.mark.parametrize("batch", [100, 1000, 1 << 29])
def test_windows_after_a_pane_that_failed_are_right(batch: int, tmp_path: Path) -> None:
    found, notes = answers(tmp_path, OneBadPaneRemoved, batch)
    right = [
        (end, k, sum(r["n"] for r in LOGS["a"] if r["k"] == k and end - 20 <= r["t"] < end))
        for end in range(5, 80, 5)
        for k in ("k0", "k1")
        if k == "k0" or not end - 20 <= 25 < end
    ]
    assert found["failing"] == right
    assert len(notes) == 4


class Hoards(UnpicklableState):
    """Its third pane is too large; what comes after goes on from before it."""

    max_state = 300

    def map(self, _: None, record: Record) -> Iterator[Any]:
        if record["t"] % 10 == 0:
            yield "key", record["t"]

    def init(self, key: Any) -> Any:
        return []

    def update(self, key: Any, state: Any, value: int) -> Any:
        yield key, len(state)
        return [*state, "x" * (1000 if value == 20 else 1)]


@pytest.mark.parametrize("batch", [100, 1000, 1 << 29])
def test_a_state_fails_in_its_pane_alone(batch: int, tmp_path: Path) -> None:
    found, notes = answers(tmp_path, Hoards, batch)
    lengths = [(10, "0"), (20, "1"), (30, "2"), (40, "2"), (50, "3"), (60, "4")]
    assert found["failing"] == [(end, '"key"', length) for end, length in lengths]
    assert len(notes) == 1


class ManyWindows(Counts):
    window = ", ".join(f"{number * 10} MILLISECONDS" for number in range(100, 231))


def test_a_job_has_more_than_127_kinds_of_windows(tmp_path: Path) -> None:
    write_logs(tmp_path, {"a": LOGS["a"][:1]})
    program = sql(STREAM.format(folder=tmp_path, slack=""))
    leaving = windows_inline(with_job(program, "many", ManyWindows, stream="logs"), pytest.fail)
    assert len({r.window for each in leaving for r in each.results()}) == 131
