"""A job's methods, called so that whatever goes wrong has a name: method, input and reason."""

from __future__ import annotations

import contextlib
import inspect
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from traceback import walk_tb
from types import GeneratorType
from typing import Any

from muntin.errors import CodeError
from muntin.kernel.python.environment import unpacked, uri_of, variables
from muntin.kernel.python.keys import encode_key
from muntin.kernel.python.protocols import with_protocols
from muntin.kernel.reading import File

Pair = tuple[Any, Any]
Method = Callable[..., Iterable[Pair] | None]
CAUGHT = (Exception, SystemExit)  # a job that asks to leave must not take others with it
_PACKAGE = Path(__file__).parents[2]
_SHOWN = 200  # characters of a record in a message
_METHODS = ("mapper", "mapper_init", "mapper_final", "combiner", "reducer", "reducer_init",
            "reducer_final")  # fmt: skip
_RAW = "mapper_raw"  # which takes files
_ELSEWHERE = ("mapper_cmd", "combiner_cmd", "reducer_cmd",
                      "mapper_pre_filter", "combiner_pre_filter", "reducer_pre_filter",
                      "combiner_init", "combiner_final")  # fmt: skip


class FailedCallError(Exception):
    """A call of the user's Python that did not end well, and how many records that costs."""

    def __init__(self, method: str, given: str, reason: str, records: int = 1) -> None:
        super().__init__(method, given, reason, records)
        self.method, self.given, self.reason, self.records = method, given, reason, records

    def costing(self, records: int) -> FailedCallError:
        """The same, of so many records: the values of a key, or a batch."""
        return FailedCallError(self.method, self.given, self.reason, records)


@dataclass(frozen=True)
class Round:
    """One round of map and reduce. What is None leaves pairs as they are."""

    mapper: Method | None = None
    mapper_init: Method | None = None
    mapper_final: Method | None = None
    combiner: Method | None = None
    reducer: Method | None = None
    reducer_init: Method | None = None
    reducer_final: Method | None = None
    sort_values: bool = False
    files: bool = False  # whether the mapper is given files in the place of records
    variables: Mapping[str, str] = field(default_factory=dict)  # that its methods are run with

    def combine(self, key: Any, values: list[Any]) -> list[Any]:
        """The values of a key, fewer if there is a combiner."""
        if self.combiner is None or len(values) < 2:
            return values
        given = f"key {shown(key)}"
        return kept("combiner", key, called("combiner", given, self.combiner, key, iter(values)))

    def reduce(self, key: Any, values: list[Any]) -> list[Pair]:
        """The result's pairs of a key; none, if its combiner has left no values."""
        if self.reducer is None or not values:
            return [(key, value) for value in values]
        try:
            values = sorted(values, key=_sort_text) if self.sort_values else values
        except CAUGHT as error:
            raise failed("sorting values", f"key {shown(key)}", error) from error
        return called("reducer", f"key {shown(key)}", self.reducer, key, iter(values))


def rounds_of(job: Any) -> list[Round]:
    """The rounds of a job: what its `steps()` says, as in mrjob, or else its methods."""
    sort_values = bool(getattr(job, "SORT_VALUES", False))
    if not callable(getattr(job, "steps", None)):
        methods: dict[str, Any] = {name: getattr(job, name, None) for name in _METHODS}
        return [Round(**methods, sort_values=sort_values)]
    return with_protocols(job, [_step(job, step, sort_values) for step in job.steps()])


def _step(job: Any, step: Any, sort_values: bool) -> Round:
    try:
        names = (*_METHODS, *_ELSEWHERE, _RAW)
        known = step if isinstance(step, dict) else {name: step[name] for name in names}
    except (TypeError, LookupError) as error:
        message = f"a step of {type(job).__name__} is a {type(step).__name__}"
        raise CodeError(f"{message}; expected one with a mapper and a reducer") from error
    understood = (*_METHODS, _RAW)
    other = next((name for name in known if name not in understood and known[name]), None)
    methods = {name: known.get(name) for name in _METHODS}
    raw = known.get(_RAW)
    if raw is not None:
        methods["mapper"] = _of_file(raw)
    if other is not None:
        raise CodeError(f"{type(job).__name__} uses {other}, which cannot run here")
    for name, method in methods.items():
        if method is not None and not callable(method):
            message = f"{name} of a step of {type(job).__name__} is {shown(method)}"
            raise CodeError(f"{message}; expected a method, as in self.{name}")
    if methods["mapper_init"] is not None and getattr(job, "FILES", None):
        methods["mapper_init"] = _beside(job, methods["mapper_init"])
    settings = _settings(job, {} if isinstance(step, dict) else step["jobconf"])
    return Round(
        **methods, sort_values=sort_values, files=raw is not None, variables=variables(settings)
    )


def _settings(job: Any, of_step: Mapping[str, object] | None) -> dict[str, object]:
    """What a job of mrjob says of its settings, in its class, its options and a step."""
    told = job.jobconf() if callable(getattr(job, "jobconf", None)) else {}
    options = getattr(getattr(job, "options", None), "jobconf", None)
    return {**(told or {}), **(options or {}), **(of_step or {})}


def _of_file(method: Method) -> Method:
    """A mapper that is given files: `mapper_raw` of mrjob gets a path, and where that is from."""

    def of_file(_: object, file: File) -> Iterator[Pair]:
        with unpacked(file.path) as path:
            yield from method(path, uri_of(file.path)) or ()

    return of_file


def _beside(job: Any, method: Method) -> Method:
    """The method, run in its file's folder: where jobs of mrjob find the files they name."""

    def run() -> Iterator[Pair]:
        with contextlib.chdir(Path(inspect.getfile(type(job))).parent):
            yield from method() or ()

    return run


def called(name: str, given: str, method: Method, *args: Any) -> list[Pair]:
    """All pairs of a call."""
    try:
        return checked(name, given, listed(name, given, method(*args)))
    except FailedCallError:
        raise
    except CAUGHT as error:
        raise failed(name, given, error) from error


def listed(name: str, given: str, yielded: Any) -> list[Any]:
    """What a method has yielded, or returned in the place of a generator."""
    if yielded is None:
        return []
    if not isinstance(yielded, Iterable):
        reason = f"it returned {shown(yielded)}; expected pairs: yield key, value"
        raise FailedCallError(name, given, reason)
    return list(yielded)


def checked(name: str, given: str, pairs: Sequence[Any]) -> list[Pair]:
    for pair in pairs:
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            reason = f"it yielded {shown(pair)}; expected pairs: yield key, value"
            raise FailedCallError(name, given, reason)
    return [(key, value) for key, value in pairs]


def kept(name: str, key: Any, pairs: Sequence[Pair]) -> list[Any]:
    """The values of pairs that have the key which was given."""
    for other, _ in pairs:
        if not _is_same(other, key):
            reason = f"it changed the key to {shown(other)}; expected the key it was given"
            raise FailedCallError(name, f"key {shown(key)}", reason)
    return [value for _, value in pairs]


def updated(method: Callable[..., Any], key: Any, state: Any, value: Any) -> tuple[Any, list[Pair]]:
    """The new state of a key, and the pairs that were yielded."""
    given = f"key {shown(key)}, value {shown(value)}"
    try:
        result = method(key, state, value)
        if not isinstance(result, GeneratorType):
            return result, []
        pairs = []
        while True:
            try:
                pairs.append(next(result))
            except StopIteration as end:
                return end.value, checked("update", given, pairs)
    except FailedCallError:
        raise
    except CAUGHT as error:
        raise failed("update", given, error) from error


def failed(name: str, given: str, error: BaseException) -> FailedCallError:
    if isinstance(error, CodeError):
        return FailedCallError(name, given, str(error))
    return FailedCallError(name, given, f"{type(error).__name__}: {error}{_place(error)}")


def _place(error: BaseException) -> str:
    """Where in the user's Python it happened: in the first lines below ours."""
    for frame, line in walk_tb(error.__traceback__):
        path = Path(frame.f_code.co_filename)
        if not path.is_relative_to(_PACKAGE) and path.suffix == ".py":
            return f" ({path.name}, line {line})"
    return ""


def shown(value: Any) -> str:
    """A value in a message."""
    try:
        text = repr(value)
    except Exception as error:  # whatever the user's own __repr__ may raise
        text = f"a {type(value).__name__} ({error})"
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"


def _is_same(one: Any, two: Any) -> bool:
    if one is two:
        return True
    try:
        return encode_key(one) == encode_key(two)
    except CAUGHT:  # what cannot be a key is not the one that was given
        return False


def _sort_text(value: Any) -> str:
    return json.dumps(value, default=repr)
