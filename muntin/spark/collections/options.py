"""What is said of a collection when it is opened, checked and in units."""

from __future__ import annotations

from dataclasses import dataclass

from muntin.collections.groups import Bounds
from muntin.durations import parse_duration
from muntin.errors import InputError
from muntin.units import parse_bytes


@dataclass(frozen=True)
class Options:
    """Bytes and seconds; None is no limit."""

    limits: Bounds | None
    newest: int
    memory: int | None
    recovery: float | None
    relaxation: float

    @staticmethod
    def of(
        whose: str,
        split_above: str | None,
        merge_below: str | None,
        newest: int,
        memory: str | None,
        recovery: str | None,
        relaxation: float,
    ) -> Options:
        """InputError, saying what was expected, where one cannot be."""
        if relaxation < 1:
            raise InputError(f"{whose}: relaxation is a factor of 1 or more, not {relaxation}")
        return Options(
            _limits(whose, split_above, merge_below),
            at_least_one(whose, "newest", newest),
            None if memory is None else _bytes(whose, "memory", memory),
            None if recovery is None else _seconds(whose, recovery),
            relaxation,
        )


def at_least_one(whose: str, what: str, number: int) -> int:
    if number < 1:
        raise InputError(f"{whose}: {what} is 1 or more, not {number}")
    return number


def _limits(whose: str, split_above: str | None, merge_below: str | None) -> Bounds | None:
    if split_above is None and merge_below is None:
        return None
    if split_above is None or merge_below is None:
        raise InputError(f"{whose}: give both of split_above= and merge_below=, or none")
    lower, upper = (
        _bytes(whose, "merge_below", merge_below),
        _bytes(whose, "split_above", split_above),
    )
    try:
        return Bounds(lower, upper)
    except ValueError as error:
        raise InputError(f"{whose}: {error}") from None


def _bytes(whose: str, what: str, text: str) -> int:
    try:
        return parse_bytes(text)
    except ValueError as error:
        raise InputError(f"{whose}: {what}='{text}': {error}; say '512 MB'") from None


def _seconds(whose: str, text: str) -> float:
    try:
        return parse_duration(text) / 1e6
    except ValueError as error:
        raise InputError(f"{whose}: recovery='{text}': {error}; say '10 seconds'") from None
