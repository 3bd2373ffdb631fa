"""Which bytes of which files come next: unread bytes cut into batches, and batches into lanes.

Positions only ever describe bytes that were handed out in an earlier batch; saving them with
the results of that batch makes restarts exact.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from operator import itemgetter

from muntin.errors import InputError
from muntin.fidelity.losses import Loss
from muntin.logs.chunks import WorkOrder
from muntin.logs.events import Events
from muntin.logs.files import FilePosition
from muntin.logs.watch import Unread, Watch, absolute
from muntin.model.streams import Stream

__all__ = ["BATCH_BYTES", "Batch", "FilePosition", "Lane", "Tail"]

BATCH_BYTES = 512 << 20
LANE_BYTES = 8 << 20  # a shorter one is not worth a task
_LEAST_SHARE = 1 << 20

Lane = tuple[WorkOrder, ...]  # orders of one source, to be read one after another


@dataclass(frozen=True)
class Batch:
    """Work to do now, and the positions to remember once it is done."""

    lanes: tuple[Lane, ...]
    positions: tuple[FilePosition, ...]
    bytes: int
    remaining: int  # bytes that are there but did not fit
    behind: frozenset[str]  # sources with bytes that did not fit
    notes: tuple[str, ...] = ()
    touched: Mapping[str, float] | None = None
    """When a file of each source was last changed; None where nothing has, or nobody looked."""
    lost: tuple[Loss, ...] = ()
    unreadable: Mapping[str, Sequence[Loss]] = field(default_factory=dict)
    """By source, what is there and cannot be read now."""


@dataclass(frozen=True)
class _Taken:
    """An order, and what it was made of."""

    order: WorkOrder
    unread: Unread

    @property
    def bytes(self) -> int:
        return (self.order.end - self.order.start) * self.unread.unit_bytes

    def split(self, room: int) -> Iterator[WorkOrder]:
        """Orders of about `room` bytes each."""
        start, end = self.order.start, self.order.end
        size = end - start if self.unread.whole else max(1, room // self.unread.unit_bytes)
        for at in range(start, end, size):
            yield replace(self.order, start=at, end=min(end, at + size))


class Tail:
    """Follows the files of one stream."""

    def __init__(
        self,
        stream: Stream,
        follow: bool,
        positions: Iterable[FilePosition] = (),
        batch_bytes: int = BATCH_BYTES,
        lane_bytes: int = LANE_BYTES,
        lanes: int = 1,
        events: Events | None = None,
    ) -> None:
        """With `events`, files are looked at when these tell of them, and not each time."""
        self._stream = stream
        self._watch = Watch(stream, follow, positions, events)
        self._batch_bytes = batch_bytes
        self._lane_bytes = lane_bytes
        self._most_lanes = lanes

    def require_files(self) -> None:
        """Refuses patterns that match nothing at all."""
        if not self._watch.matches():
            raise InputError(self._watch.nothing_matches)

    def is_amid_line(self, now: float) -> bool:
        """Whether somebody has begun a line lately, and not ended it."""
        return self._watch.is_amid_line(now)

    def names(self, now: float) -> frozenset[str]:
        """The sources that have something to be read."""
        self._watch.look(now)
        return frozenset(unread.file.source for unread in self._watch.unread())

    def orders(self) -> dict[str, list[WorkOrder]]:
        """What there is to be read of each source, a file an order; nothing is handed out."""
        name = self._stream.name
        return {
            source: [
                WorkOrder(name, source, absolute(u.file.path), u.file.position, u.end)
                for u in unread
            ]
            for source, unread in _by_source(self._watch.unread()).items()
        }

    def skip(self, ends: Mapping[str, int], reached: Mapping[str, int]) -> None:
        """Goes on behind these places in files, by path: what is before them is not read.

        `reached` says how far sources have come in time.
        """
        for unread in self._watch.unread():
            end = ends.get(absolute(unread.file.path), 0)
            if unread.file.position < end <= unread.end:
                self._watch.hand_out(unread, end, reached.get(unread.file.source))

    def next_batch(
        self,
        now: float,
        in_order: bool,
        most: int | None = None,
        thorough: bool = False,
        reached: Mapping[str, int] | None = None,
        only: Set[str] | None = None,
    ) -> Batch:
        """What to read next, about `most` bytes where a batch has to be short.

        `in_order` keeps each source in one lane, as lateness needs. A `thorough` look is at all
        files, whatever events tell. `reached` says how far sources have come in time. Of sources
        that are not among the `only` ones nothing is read.
        """
        self._watch.look(now, thorough)
        sources = _by_source(self._unread(only))
        sizes = {source: sum(u.bytes for u in files) for source, files in sources.items()}
        if most is None or most >= self._batch_bytes:
            shares = _shares(sizes, self._batch_bytes)
        else:
            shares = _fair_shares(sizes, most)
        reached = reached or {}
        taken = [
            list(self._take(files, shares[source], reached.get(source)))
            for source, files in sources.items()
        ]
        taken = [orders for orders in taken if orders]
        left = self._unread(only)
        seen = not self._watch.quiet or bool(taken)
        return Batch(
            lanes=tuple(self._lanes(taken, in_order)),
            positions=self._watch.positions,
            bytes=sum(t.bytes for orders in taken for t in orders),
            remaining=sum(u.bytes for u in left),
            behind=frozenset(u.file.source for u in left) | self._watch.behind,
            notes=self._watch.notes(),
            touched=self._watch.touched if seen else None,
            lost=self._watch.lost(),
            unreadable=self._watch.unreadable,
        )

    def _unread(self, only: Set[str] | None) -> list[Unread]:
        unread = self._watch.unread()
        return unread if only is None else [u for u in unread if u.file.source in only]

    def _take(self, files: Sequence[Unread], share: int, reached: int | None) -> Iterator[_Taken]:
        for unread in files:
            if share <= 0:
                return
            order = self._watch.hand_out(unread, unread.cut(share), reached)
            if order is not None:
                taken = _Taken(order, unread)
                share -= taken.bytes
                yield taken

    def _lanes(self, taken: Sequence[Sequence[_Taken]], in_order: bool) -> Iterator[Lane]:
        """One lane a source, or where order does not matter as many as are asked for."""
        if in_order:
            yield from (tuple(t.order for t in orders) for orders in taken)
            return
        size = sum(t.bytes for orders in taken for t in orders)
        room = -(-size // max(1, min(self._most_lanes, size // self._lane_bytes)))
        for orders in taken:
            for t in orders:
                yield from ((order,) for order in t.split(room))


def _by_source(unread: Sequence[Unread]) -> dict[str, list[Unread]]:
    grouped: dict[str, list[Unread]] = {}
    for u in unread:
        grouped.setdefault(u.file.source, []).append(u)
    return grouped


def _shares(sizes: dict[str, int], batch_bytes: int) -> dict[str, int]:
    """Each source's share of a batch: in proportion, so that all arrive at the same time.

    What a source has left at the end of a backlog is read at once, not in ever smaller shares.
    """
    least = min(_LEAST_SHARE, batch_bytes // max(1, len(sizes)))
    shared = batch_bytes - least * len(sizes)
    total = sum(sizes.values())
    return {s: max(1, least + shared * size // total) for s, size in sizes.items()}


def _fair_shares(sizes: dict[str, int], most: int) -> dict[str, int]:
    """Each source's share of a short batch: all that is little is read, and the rest is shared.

    So what live sources have written does not wait for one that has much to catch up on.
    """
    shares: dict[str, int] = {}
    for count, (source, size) in enumerate(sorted(sizes.items(), key=itemgetter(1))):
        shares[source] = max(1, min(size, most // (len(sizes) - count)))
        most -= min(most, shares[source])
    return shares
