"""Where the thread that reads a stream and those that answer its pipeline meet.

    pipeline ──orders──►  desk  ──orders──► reader       taken up between two turns
    pipeline ◄──news────  desk  ◄─deliveries, standing── reader

Whoever comes here moves a few values and goes. So a pipeline is answered at once, however long a
turn of reading takes: with what is there, and what it says holds from the next turn on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from threading import Condition

from muntin.fidelity.losses import Loss
from muntin.wire.messages import Departed, Exchange, Known, News, Plan

PROMPT = 0.2  # seconds that an answer may wait for panes that are wanted now


@dataclass(frozen=True)
class Orders:
    """What a pipeline said last: what to compute, what is final, what nobody needs, what it wants.

    `departed` is by shape, `wanted` is by axis.
    """

    plan: Plan
    known: Known
    departed: Mapping[str, Departed] = field(default_factory=dict)
    wanted: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Standing:
    """Where the reader of a stream stood after its last turn."""

    unread: bool = True  # whether there is more than deliveries tell of
    seen_at: float | None = None  # when all that was written had been read, and was in deliveries
    opens: Mapping[str, int] = field(default_factory=dict)
    """By axis, where the first pane ends that was read and is in no delivery."""
    unreadable: tuple[Loss, ...] = ()  # what is there and cannot be read now
    trouble: str = ""  # why it cannot go on


class Desk:
    """One stream for one pipeline. Deliveries are kept until the pipeline has made them final."""

    def __init__(self, pipeline: str, plan: Plan, known: Known) -> None:
        """Goes on behind the last delivery that the pipeline has."""
        self.pipeline = pipeline
        self._changed = Condition()
        self._orders = Orders(plan, known)
        self._obeyed: Orders | None = None
        self._standing = Standing()
        self._waiting: deque[tuple[int, bytes]] = deque()
        self._last = self._released = known.final

    @property
    def orders(self) -> Orders:
        return self._orders

    @property
    def last(self) -> int:
        """The number of the last delivery."""
        return self._last

    @property
    def released(self) -> int:
        """The number of the last delivery that is final."""
        return self._released

    @property
    def waiting_bytes(self) -> int:
        """Of deliveries that are not final."""
        with self._changed:
            return sum(len(data) for _, data in self._waiting)

    def tell(self, told: Exchange, known: Known) -> bool:
        """Takes what the pipeline says, and lets go of deliveries that are final.

        Returns whether it asks for anything new.
        """
        with self._changed:
            orders = Orders(told.plan or self._orders.plan, known, told.departed, told.wanted)
            is_new = orders != self._orders
            self._orders = orders if is_new else self._orders
            self._released = max(self._released, known.final)
            while self._waiting and self._waiting[0][0] <= known.final:
                self._waiting.popleft()
            return is_new or self._obeyed is not self._orders

    def await_obedience(self) -> None:
        """Waits for a moment if panes are wanted that are open."""
        with self._changed:
            orders = self._orders

            def is_done() -> bool:
                return self._obeyed is orders or not self._is_open(orders.wanted)

            self._changed.wait_for(is_done, PROMPT)

    def _is_open(self, wanted: Mapping[str, int]) -> bool:
        """Whether a pane from before these positions is in no delivery."""
        opens = self._standing.opens
        return any(axis in opens and opens[axis] <= at for axis, at in wanted.items())

    def news(self, agent: str, now: float) -> News:
        """What the pipeline is told."""
        with self._changed:
            standing = self._standing
            seen_at = standing.seen_at
            return News(
                agent,
                self._orders.plan.digest,
                self._last,
                sum(len(data) for _, data in self._waiting),
                standing.unread,
                None if seen_at is None else max(0.0, now - seen_at),
                standing.unreadable,
                standing.trouble,
            )

    def fetch(self, after: int, upto: int) -> list[bytes]:
        """The deliveries with these numbers that are here."""
        with self._changed:
            return [data for number, data in self._waiting if after < number <= upto]

    def deliver(self, data: bytes) -> None:
        """Takes the next delivery."""
        with self._changed:
            self._last += 1
            self._waiting.append((self._last, data))

    def stand(self, standing: Standing, obeyed: Orders) -> None:
        """Takes where the reader stands, and by which orders it has gone."""
        with self._changed:
            self._standing, self._obeyed = standing, obeyed
            self._changed.notify_all()

    def fail(self, trouble: str) -> None:
        """Takes that the reader cannot go on, and why. Its deliveries stay."""
        with self._changed:
            self._standing = replace(self._standing, trouble=trouble)
            self._changed.notify_all()
