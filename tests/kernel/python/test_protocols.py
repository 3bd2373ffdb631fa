"""Pairs go through a job's protocols where mrjob would write and read them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from muntin.kernel.python.protocols import with_protocols
from muntin.kernel.python.rounds import Round, rounds_of

Pair = tuple[Any, Any]


class Json:
    def read(self, line: bytes) -> Pair:
        key, _, value = line.partition(b"\t")
        return json.loads(key), json.loads(value)

    def write(self, key: Any, value: Any) -> bytes:
        return f"{json.dumps(key)}\t{json.dumps(value)}".encode()


class Values(Json):
    def read(self, line: bytes) -> Pair:
        return None, json.loads(line)

    def write(self, key: Any, value: Any) -> bytes:
        return json.dumps(value).encode()


class Job:
    """As mrjob has it: values come in and go out, and pairs are JSON between steps."""

    def internal_protocol(self) -> Json:
        return Json()

    def output_protocol(self) -> Json:
        return Values()

    def pick_protocols(
        self, number: int, step: str
    ) -> tuple[Callable[[bytes], Pair], Callable[[Any, Any], bytes]]:
        if step == "combiner":
            raise ValueError
        first, last = Values() if step == "mapper" else Json(), Json()
        return first.read, (Values() if step == "reducer" else last).write

    def steps(self) -> list[dict[str, Any]]:
        return [{"mapper": self.mapper, "reducer": self.reducer}]

    def mapper(self, key: Any, value: Any) -> Iterator[Pair]:
        yield (key, value), (1, 2)

    def reducer(self, key: Any, values: Iterator[Any]) -> Iterator[Pair]:
        yield key, [type(key).__name__, *values]


def test_a_job_without_protocols_is_left_alone() -> None:
    rounds = [Round()]
    assert with_protocols(object(), rounds) == rounds


def test_pairs_are_written_and_read_between_methods() -> None:
    (only,) = rounds_of(Job())
    assert only.mapper is not None
    assert list(only.mapper(None, '"x"') or ()) == [((None, "x"), [1, 2])]
    assert only.reduce((None, "x"), [[1, 2]]) == [(None, ["list", [1, 2]])]


def test_records_that_are_no_lines_are_given_as_they_are() -> None:
    (only,) = rounds_of(Job())
    assert only.mapper is not None
    assert list(only.mapper(None, {"a": 1}) or ()) == [((None, {"a": 1}), [1, 2])]
