"""What to leave out where there is more to read than can be read in time.

    read so far      unread, at a density                      now
    ────────────┬──────────────┬──────────────┬────────────────┤
                at     pane ▲  ·   pane       ·      ▲ the next that is done while it is of use
                            └── would be done too late: shed, and so are those up to the next

A pane is of use for some time: up to the end of the last window that holds it, and as long as that
is waited for. How long a byte takes is measured, with and without the shapes that
could be left out, and the bytes that wait are taken to lie evenly between what was read and now.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from muntin.fidelity.score import EVER
from muntin.windows.spec import WindowSpec

FIRST_LOOK = 0.3  # of a pane that is read before anybody says how long it takes
SHIPPING_US = 200_000  # of a pane that is done at an agent
_RECENT = 0.8  # the weight of the newest measurement
_PANES = 10_000  # that are looked at for one that will be in time


@dataclass
class Speed:
    """How long bytes have taken lately: all that is done with them, and each shape's share."""

    seconds: float | None = None  # a byte
    shares: dict[str, float] = field(default_factory=dict)  # of the time, by shape

    def take(self, bytes_: int, seconds: float, shares: Mapping[str, float]) -> None:
        """Takes one measurement."""
        if bytes_ > 0:
            self.seconds = _moved(self.seconds, seconds / bytes_)
            for shape, share in shares.items():
                self.shares[shape] = _moved(self.shares.get(shape), share)

    def without(self, shapes: Mapping[str, object]) -> float:
        """Seconds a byte, if these shapes are left out."""
        left_out = sum(self.shares.get(shape, 0.0) for shape in shapes)
        return (self.seconds or 0.0) * max(0.0, 1.0 - left_out)


def _moved(known: float | None, now: float) -> float:
    return now if known is None else _RECENT * now + (1 - _RECENT) * known


@dataclass(frozen=True)
class Backlog:
    """Bytes of the times from `at` to `now`, in microseconds, that are to be read.

    From when a pane is done to when windows are made of it, `shipping` passes. A pane is done when
    what is read is a `slack` behind its end, and records of it begin a slack before it.
    """

    at: int
    now: int
    bytes: int
    shipping: int = SHIPPING_US
    slack: int = 0

    def load(self, seconds: float) -> float:
        """How long it takes to read a second of time, if a byte takes so long."""
        return self.bytes * seconds * 1e6 / max(1, self.now - self.at)


@dataclass(frozen=True)
class Use:
    """Windows that panes are for, and how long each of them is waited for after its end."""

    windows: WindowSpec
    within: int

    def until(self, start: int) -> int:
        """Up to when the pane that begins here is of use."""
        size = self.windows.pane
        return self.windows.last_end(start // size) * size + self.within


@dataclass(frozen=True)
class Wanted:
    """A shape's panes, and what they are of use for."""

    pane: int
    uses: tuple[Use, ...]

    def until(self, start: int) -> int:
        """Up to when the pane that begins here is of use to anybody."""
        return max(use.until(start) for use in self.uses)

    def is_late(self, backlog: Backlog, seconds: float) -> bool:
        """Whether the pane at hand will be done when it is of no use any more."""
        whole = backlog.at - backlog.slack
        start = whole // self.pane * self.pane
        if backlog.now + backlog.shipping > self.until(start):
            return True
        if whole - start < FIRST_LOOK * self.pane:
            return False
        done = backlog.now + (start + self.pane - whole) * backlog.load(seconds)
        return done + backlog.shipping > self.until(start)

    def next(self, backlog: Backlog, seconds: float, others: float) -> int:
        """The start of the next pane that will be done in time; EVER if there is none near.

        Up to it a byte takes only as long as `others` take, which is no time if it is not read.
        """
        whole, rest = backlog.load(seconds), backlog.load(others)
        if rest >= 1:
            return EVER
        longest = max(use.within + use.windows.range for use in self.uses)
        takes = (self.pane + 2 * backlog.slack) * whole
        soonest = backlog.now + backlog.shipping - backlog.at * rest + takes - longest
        first = max(backlog.at + 1, int(soonest / (1 - rest)))
        first = -(-first // self.pane) * self.pane
        for start in range(first, first + _PANES * self.pane, self.pane):
            done = backlog.now + (start - backlog.at) * rest + takes
            if done + backlog.shipping <= self.until(start):
                return start
        return EVER


def plan(
    backlog: Backlog, speed: Speed, wanted: Mapping[str, Wanted], others: bool
) -> tuple[dict[str, int], bool]:
    """By shape, up to where its panes are shed, and whether the bytes need not be read at all.

    `wanted` are shapes that are of use for some time only; `others` says whether there are any
    besides. The dearest are shed first, and no more than have to be for the rest to be in time.
    """
    if speed.seconds is None or not any(
        shape.is_late(backlog, speed.seconds) for shape in wanted.values()
    ):
        return {}, False
    shed: dict[str, Wanted] = {}
    for id_ in sorted(wanted, key=lambda id_: -speed.shares.get(id_, 0.0)):
        shed[id_] = wanted[id_]
        rest = speed.without(shed)
        kept = (shape for id_, shape in wanted.items() if id_ not in shed)
        if not any(shape.is_late(backlog, rest) for shape in kept):
            break
    unread = len(shed) == len(wanted) and not others
    rest = 0.0 if unread else speed.without(shed)
    ends = {id_: shape.next(backlog, speed.seconds, rest) for id_, shape in shed.items()}
    now = backlog.now
    return {
        id_: end if end < EVER else -(-now // wanted[id_].pane) * wanted[id_].pane
        for id_, end in ends.items()
    }, unread
