"""Protocols of mrjob: what a job's pairs become where one method hands them to the next.

There, lines are read by the input protocol, pairs are written and read again between methods, and
results are written by the output protocol. A tuple that is written as JSON comes back as a list,
and a protocol of values alone loses the key. Jobs rely on that, so pairs go the same way here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from muntin.kernel.python.environment import environment

if TYPE_CHECKING:
    from muntin.kernel.python.rounds import Method, Round

Pair = tuple[Any, Any]
_Through = Callable[[Pair], Pair]
_AS_IT_IS = nullcontext()


def with_protocols(job: Any, rounds: Sequence[Round]) -> list[Round]:
    """The rounds of a job of mrjob, with pairs as its protocols leave them."""
    if not callable(getattr(job, "pick_protocols", None)):
        return list(rounds)
    made = []
    for number, each in enumerate(rounds):
        results: Callable[[bytes], Pair] = job.output_protocol().read
        if number + 1 < len(rounds):
            results = _reads(job, number + 1, _first(number + 1, rounds[number + 1]))
        between = _reads(job, number, "reducer") if _reduces(each) else results
        methods: dict[str, Any] = {
            name: getattr(each, name) for name in (*_MAPPERS, "combiner", *_REDUCERS)
        }
        if number == 0:
            methods["mapper"] = _of_lines(each.mapper, _reads(job, 0, "mapper"))
        lists = _makes_lists(*_protocols(job, number, "mapper"))
        for name, method in methods.items():
            if method is not None:
                read = results if name in _REDUCERS else between
                through = _through(job, number, name.partition("_")[0], read)
                methods[name] = _each(method, through, lists, each.variables)
        made.append(replace(each, **methods))
    return made


_MAPPERS = ("mapper", "mapper_init", "mapper_final")
_REDUCERS = ("reducer", "reducer_init", "reducer_final")


def _first(number: int, of_round: Round) -> str:
    """The first step of a round, by which its input is read."""
    mappers = (getattr(of_round, name) for name in (*_MAPPERS, "combiner"))
    return "mapper" if number == 0 or any(mappers) else "reducer"


def _reduces(of_round: Round) -> bool:
    return any(getattr(of_round, name) for name in _REDUCERS)


def _protocols(
    job: Any, number: int, step: str
) -> tuple[Callable[[bytes], Pair], Callable[[Any, Any], bytes]]:
    """How a step of a round reads its pairs, and how it writes them."""
    try:
        read, write = job.pick_protocols(number, step)
    except ValueError:  # mrjob leaves out a step without a method of its own
        between = job.internal_protocol()
        return between.read, between.write
    return read, write


def _reads(job: Any, number: int, step: str) -> Callable[[bytes], Pair]:
    return _protocols(job, number, step)[0]


def _makes_lists(_: object, write: Callable[[Any, Any], bytes]) -> bool:
    """Whether tuples come back as lists, as they do from JSON."""
    try:
        return b"[" in write((1,), None)[:1]
    except (TypeError, ValueError, AttributeError):  # a protocol of texts alone
        return False


def _through(job: Any, number: int, step: str, read: Callable[[bytes], Pair]) -> _Through:
    """What becomes of a pair that a method of a step yields."""
    _, write = _protocols(job, number, step)

    def through(pair: Pair) -> Pair:
        key, value = read(write(*pair))
        return _as_key(key), value

    return through


def _of_lines(mapper: Method | None, read: Callable[[bytes], Pair]) -> Method:
    """The first mapper, which is given lines; records of other streams it gets as they are."""

    def of_line(key: Any, line: Any) -> Iterable[Pair] | None:
        pair = read(line.encode()) if isinstance(line, str) else (key, line)
        return [pair] if mapper is None else mapper(*pair)

    return of_line


def _each(method: Method, through: _Through, lists: bool, variables: Mapping[str, str]) -> Method:
    """A method whose pairs go through protocols; keys that it is given may have been lists."""

    def pairs(*args: Any) -> Iterator[Pair]:
        given = (_as_written(args[0]), *args[1:]) if args and lists else args
        with environment(variables) if variables else _AS_IT_IS:
            yield from written(method(*given))

    def written(yielded: Iterable[Any] | None) -> Iterator[Pair]:
        for pair in yielded or ():
            is_pair = isinstance(pair, tuple | list) and len(pair) == 2
            yield through((pair[0], pair[1])) if is_pair else pair

    return pairs


def _as_key(value: Any) -> Any:
    """Keys are grouped by, which lists cannot be."""
    return tuple(map(_as_key, value)) if isinstance(value, list | tuple) else value


def _as_written(key: Any) -> Any:
    """The key as a protocol reads it; there are no tuples in JSON."""
    return list(map(_as_written, key)) if isinstance(key, tuple) else key
