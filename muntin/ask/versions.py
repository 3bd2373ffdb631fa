"""Which version of a job answers for a range: the one that was in force when its panes were made.

Versions whose panes mean the same share them, and are one here. Of others, each has panes of its
own time. Where two have panes of the same time, as when windows of the older one came to their
end, the newer one answers, unless a question names the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from muntin.ask.keeping import Retained
from muntin.ask.ranges import Asked, positions_of
from muntin.errors import InputError, LanguageError
from muntin.units import describe_time

Span = tuple[int, int]


@dataclass(frozen=True)
class Reign:
    """Panes `[lower, upper)` that are there of one version of a job, as positions."""

    of: Retained
    number: int
    lower: int
    upper: int

    def __str__(self) -> str:
        return (
            f"version {self.number} from {describe_time(self.lower)} to {describe_time(self.upper)}"
        )


@dataclass(frozen=True)
class Chosen:
    """Whose panes answer, between which positions there are some, and which are asked for."""

    of: Retained
    number: int
    lower: int
    upper: int
    start: int
    end: int
    newest: bool  # whether no other version has panes behind these

    @property
    def there(self) -> str:
        """What there is, in words."""
        version = "" if self.newest else f"version {self.number} of "
        bounds = f"from {describe_time(self.lower)} to {describe_time(self.upper)}"
        what, has = _called(self.of)
        return f"{version}{what} has {has} {bounds}"


def chosen(several: Sequence[Retained], asked: Asked | None, text: str) -> Chosen:
    """Whose panes answer; an InputError where there are none, or where several versions would."""
    title, (what, has) = several[0].title, _called(several[0])
    every = [reign for of in several for reign in _reigns(of)]
    if not every:
        raise InputError(f"{what} has no whole pane yet; ask again a little later")
    last = max(every, key=lambda reign: (reign.number, reign.upper))
    if asked is not None and asked.version is not None and several[0].job.is_keeper:
        message = f"{what} has no versions: records are what was read; leave VERSION out"
        raise LanguageError(message, text, *asked.place)
    if asked is not None and asked.version is not None:
        mine = [reign for reign in every if reign.number == asked.version]
        if not mine:
            numbers = sorted({reign.number for reign in every})
            raise InputError(
                f"{what} has no {has} of version {asked.version}; it has some of "
                f"{', '.join(f'version {number}' for number in numbers)}"
            )
        ordered = sorted(mine, key=lambda reign: reign.lower)
    else:
        ordered = list(_in_force(every))
    began, until = ordered[0].lower, max(reign.upper for reign in ordered)
    if asked is None or asked.is_whole:
        newest = max(ordered, key=lambda reign: (reign.number, reign.upper))
        touched = [reign for reign in ordered if reign.of is newest.of]
        start, end = touched[0].lower, touched[-1].upper
    else:
        start, end = positions_of(asked, began, until, text)
        touched = [reign for reign in ordered if reign.lower < end and reign.upper > start]
    if not touched:
        there = f"{what} has {has} from {describe_time(began)} to {describe_time(until)}"
        bounds = f"{describe_time(start)} and {describe_time(end)}"
        raise InputError(f"nothing is retained between {bounds}: {there}{_of_which(ordered)}")
    if any(reign.of is not touched[0].of for reign in touched):
        raise InputError(
            f"{what} was changed within this range, and its versions do not count the same"
            f"{_of_which(touched)}; ask about each of them in a range of its own, or about one: "
            f"FROM {title} VERSION {touched[-1].number}"
        )
    mine = [reign for reign in ordered if reign.of is touched[0].of]
    number, lower, upper = touched[-1].number, mine[0].lower, mine[-1].upper
    return Chosen(touched[0].of, number, lower, upper, start, end, mine[-1].of is last.of)


def _called(of: Retained) -> tuple[str, str]:
    """What it is, and what there is of it."""
    if of.job.is_keeper:
        return f"stream '{of.title}'", "records"
    return f"job '{of.title}'", "panes"


def _of_which(reigns: Sequence[Reign]) -> str:
    apart = {id(reign.of) for reign in reigns}
    return f" ({', '.join(map(str, reigns))})" if len(apart) > 1 else ""


def _reigns(of: Retained) -> Iterator[Reign]:
    """The versions that share the panes of one shape, each with its time."""
    past, asked = of.past, of.asked
    size = past.grid(past.began)
    began = -(-past.began // size) * size
    upto = past.until if asked.ended is None else min(past.until, asked.ended)
    since = [*(asked.since or ((asked.edition, began),)), (0, upto)]
    for (number, lower), (_, upper) in pairwise(since):
        for span in _without((max(lower, began), min(upper, upto)), past.gaps):
            yield Reign(of, number, *span)


def _in_force(every: Sequence[Reign]) -> Iterator[Reign]:
    """What there is in the order of time, of several versions the newest."""
    free: list[Reign] = []
    taken: list[Span] = []
    for reign in sorted(every, key=lambda r: (r.number, r.of.past.until), reverse=True):
        for lower, upper in _without((reign.lower, reign.upper), taken):
            free.append(Reign(reign.of, reign.number, lower, upper))
        taken.append((reign.lower, reign.upper))
    yield from sorted(free, key=lambda reign: reign.lower)


def _without(span: Span, gaps: Sequence[Span]) -> Iterator[Span]:
    """The parts of a span that lie in no gap."""
    lower, upper = span
    for start, end in sorted(gaps):
        if start < upper and end > lower:
            if lower < start:
                yield lower, start
            lower = max(lower, end)
    if lower < upper:
        yield lower, upper
