"""Log files as an intake: bytes that nobody has read yet, handed out as lanes to be read in tasks.

Within a lane the clocks of its source advance in the order of the log, from where the source had
come before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from operator import itemgetter

import numpy as np

from muntin.errors import InputError
from muntin.fidelity.score import EVER
from muntin.fidelity.scoreboard import Source
from muntin.kernel.compute import Recipe
from muntin.logs.chunks import PIECE_BYTES, WorkOrder
from muntin.logs.events import Events
from muntin.logs.files import FilePosition
from muntin.logs.index import Ranges, TimeIndex
from muntin.logs.records import read_lanes
from muntin.logs.tail import BATCH_BYTES, Lane, Tail
from muntin.model.records import TIME
from muntin.model.streams import Stream
from muntin.run.contracts import Batch, Delivery, Request
from muntin.run.needs import Needs

# At what was written a moment ago, where there is no time for more: so little of it may be read in
# vain.
_FEW_LOOKS = 64


@dataclass(frozen=True)
class LaneTask:
    """Lanes that one process reads, one after another."""

    lanes: tuple[Lane, ...]
    stream: Stream
    slack_us: int | None
    piece_bytes: int

    def deliver(self, recipes: Sequence[Recipe]) -> Iterator[Delivery]:
        read = read_lanes(self.lanes, self.stream, recipes, self.slack_us, self.piece_bytes)
        for blocks, readings in read:
            yield Delivery(blocks, tuple(readings))


@dataclass(frozen=True)
class LaneWork:
    """The lanes of a batch."""

    lanes: tuple[Lane, ...]
    stream: Stream
    slack_us: int | None
    piece_bytes: int

    def tasks(self, most: int) -> list[LaneTask]:
        return [
            LaneTask(tuple(lanes), self.stream, self.slack_us, self.piece_bytes)
            for lanes in shared_out(self.lanes, most)
        ]


def shared_out(lanes: Sequence[Lane], tasks: int) -> list[list[Lane]]:
    """The lanes in at most so many tasks of about the same size, the longest first."""
    shares: list[list[Lane]] = [[] for _ in range(min(tasks, len(lanes)))]
    sizes = [(0, number) for number in range(len(shares))]
    for size, lane in sorted(((_size(lane), lane) for lane in lanes), key=itemgetter(0))[::-1]:
        least, number = heappop(sizes)
        shares[number].append(lane)
        heappush(sizes, (least + size, number))
    return shares


def _size(lane: Lane) -> int:
    return sum(order.end - order.start for order in lane)


class LogFiles:
    """The files of one stream, from the positions at which reading stopped."""

    def __init__(
        self,
        stream: Stream,
        follow: bool,
        positions: Iterable[FilePosition] = (),
        batch_bytes: int = BATCH_BYTES,
        piece_bytes: int = PIECE_BYTES,
        lanes: int | None = None,
        events: Events | None = None,
    ) -> None:
        """Where order does not matter, a batch has as many `lanes`, or one a piece of log.

        With `events` of the file system, files are looked at when something happens to them.
        """
        most = batch_bytes if lanes is None else lanes
        self.tail = Tail(stream, follow, positions, batch_bytes, piece_bytes, most, events)
        self._stream = stream
        self._piece_bytes = piece_bytes
        self._behind: frozenset[str] = frozenset()
        self._kept: Mapping[str, Ranges] | None = None  # by path; None: not looked yet

    def require(self) -> None:
        """Refuses patterns that match nothing at all."""
        self.tail.require_files()

    def close(self) -> None:
        """There is nothing to end."""

    def next(self, request: Request) -> Batch:
        reached = _times(request.sources)
        only = _wanted(request.recipes)
        if request.needs is not None and self._kept is None:
            self._kept = self._needed(request.now, request.needs, request.sources)
        batch = self.tail.next_batch(
            request.now, request.in_order, request.most, request.thorough, reached, only
        )
        self._behind = batch.behind
        kept = [tuple(self._kept_of(lane)) for lane in batch.lanes]
        lanes = tuple(_dated(filter(None, kept), request))
        work = LaneWork(lanes, self._stream, request.slack_us, self._piece_bytes)
        size = batch.bytes
        if self._kept is not None:
            size = sum(map(_size, kept)) * size // max(1, sum(map(_size, batch.lanes)))
        return Batch(
            work if lanes else None,
            size,
            batch.remaining,
            positions=batch.positions,
            notes=batch.notes,
            touched=batch.touched,
            lost=batch.lost,
            unreadable=batch.unreadable,
        )

    def behind(self, sources: Mapping[str, Source]) -> frozenset[str]:
        return self._behind

    def names(self, now: float) -> frozenset[str]:
        return self.tail.names(now)

    def _needed(
        self, now: float, needs: Needs, sources: Mapping[str, Source]
    ) -> Mapping[str, Ranges]:
        """By path, the bytes that are needed; none where all are."""
        self.tail.names(now)
        firsts = [s.first[TIME.column] for s in sources.values() if TIME.column in s.first]
        indexes = []
        try:
            for orders in self.tail.orders().values():
                indexes.append(index := TimeIndex.of(orders, self._stream))
                if index.first is None:
                    return {}  # where its source begins is not known
                firsts.append(index.first)
        except (OSError, InputError):
            return {}  # told of when the file is read
        firsts += [first - needs.slack_us for first in firsts]
        last = max((index.last for index in indexes), default=0) + needs.slack_us
        stretches = needs.stretches(firsts, last) if firsts else None
        if stretches is None:
            return {}
        kept = [index.kept(stretches, needs.slack_us) for index in indexes]
        return {path: ranges for of_source in kept for path, ranges in of_source.items()}

    def skip(self, before: int, slack_us: int, sources: Mapping[str, Source]) -> None:
        """Leaves out what was not read yet and is from before a time, as far as some lines tell."""
        try:
            for orders in self.tail.orders().values():
                index = TimeIndex.of(orders, self._stream, _FEW_LOOKS)
                kept = index.kept(np.array([[before, EVER]]), slack_us)
                ends = {order.path: order.end for order in orders}
                starts = {path: r[0][0] if r else ends[path] for path, r in kept.items()}
                self.tail.skip(starts, _times(sources))
        except (OSError, InputError):
            return  # told of when the file is read

    def _kept_of(self, lane: Lane) -> Iterator[WorkOrder]:
        """The orders of a lane, less what nobody needs."""
        for order in lane:
            ranges = (self._kept or {}).get(order.path)
            if ranges is None:
                yield order
                continue
            for start, end in ranges:
                if start < order.end and order.start < end:
                    yield replace(order, start=max(start, order.start), end=min(end, order.end))


def _times(sources: Mapping[str, Source]) -> dict[str, int]:
    """How far sources have come in time."""
    return {name: source.time for name, source in sources.items() if source.time is not None}


def _wanted(recipes: Sequence[Recipe]) -> frozenset[str] | None:
    """The sources that some recipe wants; None: all."""
    wanted: set[str] = set()
    for recipe in recipes:
        if recipe.sources is None:
            return None
        wanted |= recipe.sources
    return frozenset(wanted) if recipes else None


def _dated(lanes: Iterable[Lane], request: Request) -> Iterator[Lane]:
    """The lanes with how far their source had come, what is too far ahead, and their number."""
    numbers: dict[str, int] = {}
    for lane in lanes:
        source = lane[0].source
        known = request.sources.get(source, Source(sequence=request.released))
        numbers[source] = numbers.get(source, known.sequence) + 1
        first = replace(
            lane[0],
            since=dict(known.reached),
            latest=request.latest,
            sequence=numbers[source],
            doubt=known.doubt,
        )
        yield (first, *lane[1:])
