"""What is wrong with a class is told when its job is created, at its place in the text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from muntin.errors import LanguageError
from muntin.language.program import sql
from tests.kernel.python.test_states import Second
from tests.whole.test_python_jobs import STREAM


class Counts:
    window = "1 MINUTE"

    def mapper(self, _: None, record: Any) -> Iterator[Any]:
        yield record["k"], 1


class Listed(Counts):
    columns: ClassVar[Any] = ["k", "n"]


class Untyped(Counts):
    columns: ClassVar[Any] = {"k": str, "n": int}


class OneName(Counts):
    uses = "k"


class Raises(Counts):
    def steps(self) -> list[Any]:
        raise RuntimeError("no steps today")


class NoList(Counts):
    def steps(self) -> Any:
        return 5


class Leaves(Counts):
    def __init__(self) -> None:
        raise SystemExit(2)


class Arguments(Second):
    def __init__(self, size: int) -> None:
        self.size = size


class Many(Second):
    max_errors = "many"


class Half(Second):
    max_state = 0.5


class Twice(Counts):
    columns: ClassVar[Any] = {"k": "VARCHAR", "K": "BIGINT"}


class Parsecs(Counts):
    window = "5 PARSECS"


class NoMethod(Counts):
    def steps(self) -> list[Any]:
        return [{"mapper": 3}]


class Uncombined(Counts):
    def uncombiner(self, key: Any, whole: Any, part: Any) -> Iterator[Any]:
        yield key, whole - part


class Combines(Counts):
    combine = "sum"


class Batches:
    window = "1 MINUTE"
    combine = "sum"
    value: ClassVar[pa.DataType] = pa.float64()

    def map_batches(self, batch: pa.Table) -> pa.Table:
        return pa.table({"key": batch["k"], "value": pa.nulls(batch.num_rows, self.value)})


class Rounds(Batches):
    columns: ClassVar[Any] = {"k": "VARCHAR", "n": "BIGINT"}


class Texts(Batches):
    value = pa.string()


class Reduces(Batches):
    def reducer(self, key: Any, values: Any) -> Iterator[Any]:
        yield key, sum(values)


class Uninitialised:
    def map(self, _: None, record: Any) -> Iterator[Any]:
        yield record["k"], 1

    def update(self, key: Any, state: Any, value: Any) -> Any:
        return value


class Endless(Uninitialised):
    def init(self, key: Any) -> int:
        return 0

    def finalize(self, key: Any, state: Any) -> Iterator[Any]:
        yield key, state


class Keyless(Endless):
    finalize = None  # type: ignore[assignment]
    max_keys = "all"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Twice", "columns of tests.language.test_python:Twice have two named 'k'"),
        ("Parsecs", "Parsecs asks for WINDOW 5 PARSECS: unknown unit 'PARSECS'; expected"),
        ("NoMethod", "mapper of a step of NoMethod is 3; expected a method"),
        ("Uncombined", "has an uncombiner, but no combiner"),
        ("Combines", "combine of tests.language.test_python:Combines is for map_batches"),
        ("Rounds", "gives values of type DOUBLE, but column 'n' is BIGINT, which would round"),
        ("Texts", "gives values of type VARCHAR, which cannot be added up; expected numbers"),
        ("Reduces", "has combine = 'sum' and a reducer, which would never run"),
        ("Uninitialised", "Uninitialised has no init; expected"),
        ("Endless", "runs when a window ends, but the job has none; give it a window"),
        ("Keyless", "max_keys of tests.language.test_python:Keyless is 'all'; expected a whole"),
        ("Listed", "columns of tests.language.test_python:Listed are ['k', 'n']; expected names"),
        ("Untyped", "expected names and SQL types"),
        ("OneName", "uses of tests.language.test_python:OneName is 'k'; expected names"),
        ("Raises", "steps() of tests.language.test_python:Raises failed: RuntimeError: no steps"),
        ("NoList", "expected a list of steps"),
        ("Leaves", "cannot be made without arguments: SystemExit: 2"),
    ],
)
def test_a_class_that_is_no_job_is_refused(name: str, message: str) -> None:
    job = f"CREATE JOB j AS PYTHON 'tests.language.test_python:{name}' FROM logs"
    with pytest.raises(LanguageError) as found:
        sql(STREAM.format(folder="nowhere", slack="") + job)
    assert message in str(found.value)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Arguments", "cannot be made without arguments: TypeError"),
        ("Many", "max_errors of tests.language.test_python:Many is 'many'; expected a whole"),
        ("Half", "max_state of tests.language.test_python:Half is 0.5; expected a whole number"),
    ],
)
def test_a_class_that_is_no_aggregate_is_refused(name: str, message: str) -> None:
    aggregate = f"CREATE AGGREGATE a AS PYTHON 'tests.language.test_python:{name}'"
    with pytest.raises(LanguageError) as found:
        sql(STREAM.format(folder="nowhere", slack="") + aggregate)
    assert message in str(found.value)
