"""How far a source has come, by the word of its records: its stream time.

Stream time decides what is late, so one record of a wrong clock must not move it. It is the latest
time that either lies within a step of the records before it, or that three records have come to:

    times in order   a b c     d e        x
    steps            └─┴─┘     └─┘               gaps of at most a step hold together
    stream time          ^ with d alone   ^ x waits for two more: its time is not the source's yet
                                 ^ with d, e and x: three records are at d or beyond

A step is a minute. So one wrong record costs those of a minute at most, and with as much slack
none. The rule looks at which records were read and not at their order, and a few spans of time are
enough to go on from; so it does not matter in which pieces or batches they come.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

CONFIRMING = 3  # records that have to come as far before a source is believed to be there
STEP_US = 60_000_000  # how far ahead of its source one record is believed


class Span(NamedTuple):
    """Records that lie within a step of each other; more than CONFIRMING count as that many."""

    low: int
    high: int
    records: int = 1


class Doubt(NamedTuple):
    """Records of a source that do not count for its stream time, or not for good.

    They lie ahead of it. Of a `young` source, with fewer than CONFIRMING records, they are all of
    them: stream time is where the lowest are, and goes back if one of a lower time comes.
    """

    spans: tuple[Span, ...] = ()
    young: bool = False


NO_DOUBT = Doubt()


class Leap(NamedTuple):
    """A time of which a source has no record, and that it has left behind."""

    start: int
    end: int


def leapt(leaps: Iterable[Leap | None], in_order: bool = True) -> Leap | None:
    """The widest leap of consecutive records, of which each part tells its own.

    Parts without order may fill each other's gaps: of these it is what all of them leap over.
    """
    every = list(leaps)
    known = [leap for leap in every if leap is not None]
    if in_order:
        return max(known, key=lambda leap: leap.end - leap.start, default=None)
    if not known or len(known) < len(every):
        return None
    start, end = max(leap.start for leap in known), min(leap.end for leap in known)
    return Leap(start, end) if start < end else None


def settled(
    reached: int | None, spans: Iterable[Span], step: int = STEP_US
) -> tuple[int, tuple[Span, ...]]:
    """The stream time after all records of these spans, and those that lie ahead of it.

    None for `reached` means that there are no others: then it begins with the lowest ones.
    """
    groups = joined(spans, step)
    at = groups[0].high if reached is None else reached
    for number, group in enumerate(groups):
        if group.low > at + step and sum(g.records for g in groups[number:]) < CONFIRMING:
            return at, tuple(groups[number:])
        at = max(at, group.high)
    return at, ()


def joined(spans: Iterable[Span], step: int = STEP_US) -> list[Span]:
    """The same records in as few spans as hold together, in order."""
    groups: list[Span] = []
    for span in sorted(spans):
        if groups and span.low <= groups[-1].high + step:
            low, high, records = groups[-1]
            records = min(CONFIRMING, records + span.records)
            groups[-1] = Span(low, max(high, span.high), records)
        else:
            groups.append(span)
    return groups


def after(
    reached: int | None, doubt: Doubt, spans: Sequence[Span], step: int = STEP_US
) -> tuple[int | None, Doubt]:
    """Stream time and doubts after these records, from what they were before."""
    every = (*doubt.spans, *spans)
    if not every or (reached is not None and not doubt.young):
        at, ahead = (None, ()) if reached is None else settled(reached, every, step)
        return at, Doubt(ahead)
    at, ahead = settled(None, every, step)
    young = sum(span.records for span in every) < CONFIRMING
    return at, Doubt(tuple(joined(every, step)) if young else ahead, young)
