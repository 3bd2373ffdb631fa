"""What was read of a source, beside the blocks: one value from tasks, frames and this process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from muntin.fidelity.losses import Loss, Unmade
from muntin.fidelity.stream_time import Doubt, Leap, leapt
from muntin.model.counts import Fault, Tally
from muntin.windows.ledger import Grid, on_grids

Changed = Mapping[str, frozenset[int]]  # panes by shape


@dataclass(frozen=True)
class Cost:
    """What computing a shape's blocks took."""

    records: int = 0
    rows: int = 0
    seconds: float = 0.0

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.records + other.records, self.rows + other.rows, self.seconds + other.seconds
        )


def added_costs(one: Mapping[str, Cost], other: Mapping[str, Cost]) -> dict[str, Cost]:
    """What both tell of each shape."""
    return {**one, **{shape: one.get(shape, Cost()) + cost for shape, cost in other.items()}}


@dataclass(frozen=True)
class File:
    """The file that records are from, and whether they are its first."""

    path: str
    begins: bool


class Begun(NamedTuple):
    """The log that a file is a part of, the file, and the time of its first record."""

    log: str
    file: str
    at: int


@dataclass(frozen=True)
class Reading:
    """What was read of one source: counts, how far it has come, and what there is to tell.

    `a + b` is the reading of both, where b follows a in the log of their source. Adding is
    associative, so that pieces may be put together in any grouping, but not in any order.
    """

    source: str
    sequence: int = 0  # the number of the delivery among those of its source
    tallies: tuple[Tally, ...] = ()
    records: int = 0
    bad: int = 0
    first: Mapping[str, int] = field(default_factory=dict)  # axis -> the lowest position
    reached: Mapping[str, int] = field(default_factory=dict)  # axis -> how far the source has come
    doubt: Doubt | None = None  # what of its records does not count for that; None: nothing new
    loose: bool = False  # whether that is known of these records alone, which have no order
    costs: Mapping[str, Cost] = field(default_factory=dict)  # by shape
    faults: tuple[Fault, ...] = ()
    notes: tuple[str, ...] = ()
    columns: frozenset[str] = field(default=frozenset(), compare=False)
    """Columns of which this reading is the first in its task to have a value."""
    changed: Changed = field(default_factory=dict)
    """The panes that have got rows, of shapes whose windows may be revised."""
    backwards: int = 0  # records whose sequence number is lower than one before
    ahead: int = 0  # records of a time that is yet to come
    lost: tuple[Loss, ...] = ()  # what could not be read
    unmade: tuple[Unmade, ...] = ()  # what was not computed
    begun: tuple[Begun, ...] = ()
    leap: Leap | None = None  # the widest between two of its records

    def __add__(self, after: Reading) -> Reading:
        return Reading.merge((self, after))

    def placed(self, place: Callable[[int], str]) -> Reading:
        """The same, with faults that say where the record is that they were met on.

        `place` is given the number of a record in the piece that was read.
        """
        places = {f.row: place(f.row) for f in self.faults if f.row is not None}
        faults = tuple(
            f if f.row is None else replace(f, given=f"{f.given} ({places[f.row]})", row=None)
            for f in self.faults
        )
        return replace(self, faults=faults)

    def on_grids(self, before: Mapping[str, Grid], now: Mapping[str, Grid]) -> Reading:
        """The same on the grids that shapes have now; it was made with those they had before."""
        if before == now:
            return self
        changed = dict(self.changed)
        for id_ in changed.keys() & before.keys() & now.keys():
            (_, old), (_, new) = before[id_], now[id_]
            changed[id_] = frozenset(pane * old // new for pane in changed[id_])
        tallies = added_up(on_grids(self.tallies, before, now))
        return replace(self, tallies=tallies, changed=changed)

    @classmethod
    def merge(cls, readings: Iterable[Reading]) -> Reading:
        """The reading of consecutive pieces of one source, of which there is at least one."""
        pieces = list(readings)
        source = pieces[0].source
        if any(piece.source != source for piece in pieces):
            raise ValueError(f"readings of several sources: {sorted({p.source for p in pieces})}")
        first: dict[str, int] = {}
        reached: dict[str, int] = {}
        costs: dict[str, Cost] = {}
        changed: dict[str, frozenset[int]] = {}
        for piece in pieces:
            for axis, position in piece.first.items():
                first[axis] = min(first.get(axis, position), position)
            reached |= piece.reached
            for shape, cost in piece.costs.items():
                costs[shape] = costs.get(shape, Cost()) + cost
            for shape, panes in piece.changed.items():
                changed[shape] = changed.get(shape, frozenset()) | panes
        return cls(
            source,
            sequence=max(piece.sequence for piece in pieces),
            tallies=added_up(tally for piece in pieces for tally in piece.tallies),
            records=sum(piece.records for piece in pieces),
            bad=sum(piece.bad for piece in pieces),
            first=first,
            reached=reached,
            doubt=next((p.doubt for p in reversed(pieces) if p.doubt is not None), None),
            loose=any(piece.loose for piece in pieces),
            costs=costs,
            faults=tuple(fault for piece in pieces for fault in piece.faults),
            notes=tuple(note for piece in pieces for note in piece.notes),
            columns=frozenset().union(*(piece.columns for piece in pieces)),
            changed=changed,
            backwards=sum(piece.backwards for piece in pieces),
            ahead=sum(piece.ahead for piece in pieces),
            lost=tuple(loss for piece in pieces for loss in piece.lost),
            unmade=tuple(each for piece in pieces for each in piece.unmade),
            begun=tuple(file for piece in pieces for file in piece.begun),
            leap=leap_of(pieces),
        )


def leap_of(readings: Iterable[Reading]) -> Leap | None:
    """The widest leap between two records of one source, from all readings of it."""
    some = [reading for reading in readings if reading.records]
    return leapt((each.leap for each in some), in_order=not any(each.loose for each in some))


def costs_of(readings: Iterable[Reading]) -> dict[str, Cost]:
    """By shape, what all of it has cost."""
    sums: dict[str, tuple[int, int, float]] = {}  # there may be a thousand shapes and sources
    for reading in readings:
        for shape, cost in reading.costs.items():
            records, rows, seconds = sums.get(shape, (0, 0, 0.0))
            sums[shape] = records + cost.records, rows + cost.rows, seconds + cost.seconds
    return {shape: Cost(*known) for shape, known in sums.items()}


def added_up(tallies: Iterable[Tally]) -> tuple[Tally, ...]:
    """One tally for each source, pane and mark, in the order in which they first came."""
    sums: dict[tuple[str, str, int, int, int | None], Tally] = {}
    for tally in tallies:
        key = tally[:5]
        known = sums.get(key)
        sums[key] = tally if known is None else known.plus(tally)
    return tuple(sums.values())
