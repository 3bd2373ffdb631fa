"""When steps begin: at whole multiples of their length, and at no other time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from muntin.durations import parse_duration
from muntin.errors import InputError
from muntin.units import describe, describe_time, moment

Moment = datetime | str

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Grid:
    """Steps of one length, in microseconds, of the collection `whose`."""

    length: int
    whose: str

    @staticmethod
    def of(text: str, whose: str) -> Grid:
        """A grid with steps of a length such as `5 minutes`."""
        try:
            length = parse_duration(text)
        except ValueError as error:
            raise InputError(
                f"{whose}: step '{text}': {error}; say for example '5 minutes'"
            ) from None
        if length <= 0:
            raise InputError(f"{whose}: a step takes some time, not '{text}'; say '5 minutes'")
        return Grid(length, whose)

    def start(self, given: Moment) -> int:
        """The start of a step as it was given; InputError where no step begins."""
        at = microseconds(given, self.whose)
        begun = at - at % self.length
        if at != begun:
            raise InputError(
                f"{self.whose}: no step begins at {describe_time(at)}, as steps take "
                f"{describe(self.length)}; the one that holds it begins at {describe_time(begun)}"
            )
        return at

    def between(
        self, lower: Moment | None, upper: Moment | None, there: Sequence[int]
    ) -> tuple[int, ...]:
        """Those of the steps there are that begin in `[lower, upper)`; None is no bound.

        Raises InputError where that reaches beyond what there is.
        """
        if not there:
            raise InputError(f"{self.whose} has no steps; add some first")
        first, last = min(there), max(there) + self.length
        begin = first if lower is None else self.start(lower)
        end = last if upper is None else self.start(upper)
        if begin >= end:
            raise InputError(
                f"{self.whose}: {describe_time(begin)} to {describe_time(end)} holds no step; "
                "the end is not part of a range, and comes behind its beginning"
            )
        if begin < first or end > last:
            raise InputError(
                f"{self.whose} has steps from {describe_time(first)} to {describe_time(last)}, and "
                f"{describe_time(begin)} to {describe_time(end)} reaches beyond that"
            )
        chosen = tuple(sorted(step for step in there if begin <= step < end))
        if not chosen:
            before = max(step for step in there if step < begin)
            after = min(step for step in there if step >= end)
            raise InputError(
                f"{self.whose} has no step from {describe_time(begin)} to {describe_time(end)}; "
                f"the nearest begin at {describe_time(before)} and {describe_time(after)}"
            )
        return chosen


def microseconds(given: Moment, whose: str) -> int:
    """A moment since the epoch; what names no zone is UTC."""
    try:
        at = datetime.fromisoformat(given) if isinstance(given, str) else given
        aware = at.replace(tzinfo=UTC) if at.tzinfo is None else at
    except (ValueError, AttributeError):
        raise InputError(
            f"{whose}: '{given}' is no time; give a datetime, or a text such as '2026-03-01 12:05'"
        ) from None
    return (aware - _EPOCH) // timedelta(microseconds=1)


def moments(starts: Sequence[int]) -> list[datetime]:
    return [moment(start) for start in starts]
