"""Calls of the user's Python: pairs come back, and whatever goes wrong has a name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from muntin.errors import CodeError
from muntin.kernel.python.rounds import FailedCallError, Round, called, rounds_of, shown, updated


def pairs(*given: Any) -> Iterator[Any]:
    yield from given


@pytest.mark.parametrize("give", [lambda: pairs(("a", 1)), lambda: [["a", 1]], lambda: [("a", 1)]])
def test_pairs_may_be_yielded_or_returned(give: Any) -> None:
    assert called("mapper", "a record", give) == [("a", 1)]
    assert called("mapper", "a record", lambda: None) == []


def raises() -> Iterator[Any]:
    yield "a", 1
    raise KeyError("price")


@pytest.mark.parametrize(
    ("give", "reason"),
    [
        (lambda: 7, "it returned 7; expected pairs: yield key, value"),
        (lambda: ["abc"], "it yielded 'abc'; expected pairs: yield key, value"),
        (lambda: [("a", 1, 2)], r"it yielded ('a', 1, 2); expected pairs: yield key, value"),
        (raises, "KeyError: 'price' (test_rounds.py, line "),
    ],
)
def test_what_is_wrong_with_a_call_is_told(give: Any, reason: str) -> None:
    with pytest.raises(FailedCallError) as raised:
        called("mapper", "a record", give)
    failure = raised.value
    assert (failure.method, failure.given) == ("mapper", "a record")
    assert failure.reason.startswith(reason)


def test_leaving_is_a_failure_like_others() -> None:
    def leave() -> None:
        raise SystemExit(3)

    with pytest.raises(FailedCallError, match="SystemExit: 3"):
        called("mapper", "a record", leave)


def test_a_combiner_keeps_its_key_and_has_something_to_combine() -> None:
    adding = Round(combiner=lambda key, values: [(key, sum(values))])
    assert adding.combine("a", [1, 2, 3]) == [6]
    assert adding.combine("a", [1]) == [1]
    renaming = Round(combiner=lambda key, values: [("b", sum(values))])
    with pytest.raises(FailedCallError, match="it changed the key to 'b'"):
        renaming.combine("a", [1, 2])


def test_values_are_sorted_where_the_job_says_so() -> None:
    listing = Round(reducer=lambda key, values: [(key, list(values))], sort_values=True)
    assert listing.reduce("a", [3, 1, 2]) == [("a", [1, 2, 3])]
    assert Round().reduce("a", [3, 1]) == [("a", 3), ("a", 1)]
    assert listing.reduce("a", []) == []


def test_an_update_gives_a_state_and_perhaps_pairs() -> None:
    def telling(key: str, state: int, value: int) -> Any:
        yield key, state
        return state + value

    assert updated(lambda key, state, value: state + value, "a", 1, 2) == (3, [])
    assert updated(telling, "a", 1, 2) == (3, [("a", 1)])


def test_steps_are_rounds() -> None:
    class Chain:
        def steps(self) -> list[dict[str, Any]]:
            return [{"mapper": lambda _, x: [(x, 1)]}, {"reducer": lambda k, v: [(k, sum(v))]}]

    first, second = rounds_of(Chain())
    assert (first.mapper is None, first.reducer is None) == (False, True)
    assert (second.mapper is None, second.reducer is None) == (True, False)


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (7, "a step of Job is a int; expected one with a mapper and a reducer"),
        ({"mapper_cmd": "cat"}, "Job uses mapper_cmd, which cannot run here"),
        ({"mapper": "count"}, r"mapper of a step of Job is 'count'; expected a method"),
    ],
)
def test_steps_that_cannot_run_are_refused(step: Any, message: str) -> None:
    class Job:
        def steps(self) -> list[Any]:
            return [step]

    with pytest.raises(CodeError, match=message):
        rounds_of(Job())


def test_values_in_messages_are_short_and_always_there() -> None:
    class Silent:
        def __repr__(self) -> str:
            raise RuntimeError("no")

    assert shown("x" * 500) == "'" + "x" * 199 + "…"
    assert shown(Silent()) == "a Silent (no)"
