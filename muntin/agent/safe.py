"""Safe points on disk: from where an agent goes on after each of its deliveries.

A delivery is handed out only once its safe point is written. So whichever delivery turns out to be
the last that a pipeline has made final, an agent that was killed goes on right behind it.

    head │ whole point │ what was added, what left │ … │ whole point │ …

Open panes may be large and change little from one delivery to the next. So most points say what
has changed. One that is whole comes when what was added since the last has become as long as that.
Nothing of them is kept in memory but where they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec

from muntin.errors import StateError
from muntin.fidelity.scoreboard import Source
from muntin.kernel.reading import Reading
from muntin.logs.files import FilePosition
from muntin.store import tape
from muntin.windows.ledger import Grid
from muntin.wire.coding import from_msgpack

_Value = TypeVar("_Value")
_WORTH_WRITING = 1 << 20  # bytes


class Rows(NamedTuple):
    """A block of open panes; those before pane `since` have left."""

    data: bytes
    since: int | None = None

    def without(self, before: int) -> Rows:
        """The rest, when panes before one have left."""
        return self._replace(since=before if self.since is None else max(before, self.since))


@dataclass(frozen=True)
class SafePoint:
    """Where a stream stands after a delivery: what was read, and what of it was not shipped.

    If it is not `whole`, its blocks are those that were added since the point before, of which
    panes have left: by shape those before one, or all.
    """

    sequence: int = 0
    positions: tuple[FilePosition, ...] = ()
    sources: Mapping[str, Source] = field(default_factory=dict)
    readings: Mapping[str, Reading] = field(default_factory=dict)  # tallies of open panes
    blocks: Mapping[str, tuple[Rows, ...]] = field(default_factory=dict)  # open panes, by shape
    begins: Mapping[str, int] = field(default_factory=dict)
    """By shape: the position before which it is not made any more."""
    grids: Mapping[str, Grid] = field(default_factory=dict)  # that shapes had
    whole: bool = True
    left: Mapping[str, int | None] = field(default_factory=dict)
    joined: Mapping[str, int] = field(default_factory=dict)
    """By table that records are joined with: the last version that was known."""

    def after(self, before: SafePoint) -> SafePoint:
        """This point as a whole; the one before it is."""
        if self.whole:
            return self
        blocks = dict(before.blocks)
        for id_, pane in self.left.items():
            known = () if pane is None else blocks.get(id_, ())
            blocks[id_] = tuple(rows.without(pane) for rows in known if pane is not None)
        for id_, added in self.blocks.items():
            blocks[id_] = (*blocks.get(id_, ()), *added)
        return replace(self, blocks=blocks, whole=True, left={})


class _Place(NamedTuple):
    """Where a point is in the file."""

    sequence: int
    start: int
    whole: bool


class SafeLog:
    """The safe points of one stream for one pipeline, the newest last."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.pipeline = ""  # whose deliveries these are; nobody's, if there are none
        self._places: list[_Place] = []
        self._size = 0
        if path.exists():
            head, *points = tape.places(path)
            self.pipeline = _decoded(head[1], str, path)
            for start, data in points:
                point = _decoded(data, SafePoint, path)
                self._places.append(_Place(point.sequence, start, point.whole))
                self._size = start + tape.length(data)

    @property
    def is_long(self) -> bool:
        """Whether the next point had better be whole."""
        *_, last = (i for i, place in enumerate(self._places) if place.whole)
        ends = [place.start for place in self._places[last + 1 : last + 2]] or [self._size]
        size = ends[0] - self._places[last].start
        return self._size - ends[0] > size + _WORTH_WRITING

    def after(self, sequence: int) -> SafePoint | None:
        """The safe point behind a delivery, as a whole, if it is known."""
        numbers = [place.sequence for place in self._places]
        if sequence not in numbers:
            return None
        at = len(numbers) - 1 - numbers[::-1].index(sequence)  # if it was written twice, the last
        first = max(i for i, place in enumerate(self._places[: at + 1]) if place.whole)
        found = SafePoint()
        for data in tape.at(self._path, [p.start for p in self._places[first : at + 1]]):
            found = _decoded(data, SafePoint, self._path).after(found)
        return found

    def begin(self, pipeline: str, point: SafePoint) -> None:
        """Starts over, for another pipeline or from another place, with a whole point."""
        head, data = msgspec.msgpack.encode(pipeline), msgspec.msgpack.encode(point)
        self._size = tape.create(self._path, [head, data])
        self.pipeline = pipeline
        self._places = [_Place(point.sequence, tape.length(head), True)]

    def add(self, point: SafePoint) -> None:
        """Writes the safe point of the next delivery."""
        start = self._size
        self._size = tape.add(self._path, [msgspec.msgpack.encode(point)])
        self._places.append(_Place(point.sequence, start, point.whole))

    def forget(self, before: int) -> None:
        """Drops safe points behind which nobody goes on any more."""
        whole = (i for i, p in enumerate(self._places) if p.whole and p.sequence <= before)
        self._places = self._places[max(whole, default=0) :]
        head = msgspec.msgpack.encode(self.pipeline)
        dead = self._places[0].start - tape.length(head)
        if dead > self._size - dead + _WORTH_WRITING:
            kept = tape.at(self._path, [place.start for place in self._places])
            self._size = tape.create(self._path, chain([head], kept))
            self._places = [place._replace(start=place.start - dead) for place in self._places]


def _decoded(record: bytes, kind: type[_Value], path: Path) -> _Value:
    try:
        return from_msgpack(record, kind)
    except msgspec.MsgspecError as error:
        raise StateError(f"{path} is of another version of Muntin; remove it") from error
