"""How long batches take here, as measured, and so how much can be read before a deadline."""

from __future__ import annotations

from dataclasses import dataclass, field

_OLD = 0.8  # the weight of what is known, against one new measurement
_SMALL = 1 << 20  # bytes; below this a batch tells what a batch costs, however little it reads
_LEAST = 1 << 20  # takes hardly longer than one byte
_FASTEST = 1e-9  # seconds a byte
_ALONG = 1.0  # of what a batch takes, for which one may always read
_SHORT = 0.1  # seconds that may always be read for
_SAFE = 0.5  # how much of the time that is left may be planned with
_REST = 3  # times as long as the last batch took
_MOST_REST = 2.0  # seconds
_WRITTEN = 0.05  # seconds after which servers are likely to have written behind a window's end
TOO_SOON = 0.04  # seconds behind an end in which they may not have
_WORTH = 0.25  # of what a batch takes, which another one has to save


@dataclass
class Measure:
    """Seconds that something takes, and by how much it usually differs."""

    mean: float
    spread: float = 0.0

    def take(self, seconds: float) -> None:
        self.spread = _mixed(self.spread, abs(seconds - self.mean))
        self.mean = _mixed(self.mean, seconds)

    @property
    def high(self) -> float:
        """What it will hardly exceed."""
        return self.mean + 2 * self.spread


@dataclass
class Pace:
    batch: Measure = field(default_factory=lambda: Measure(0.2))  # of one with hardly a record
    leaving: Measure = field(default_factory=lambda: Measure(0.2))
    """From the decision that windows leave until they are committed."""
    byte_seconds: float = 4e-8
    known: float = 4 * _SMALL  # bytes from which that is known, older ones counting less
    shortest: float | None = None  # from a look at the files to a commit of windows
    written: float = 0.0  # bytes a second, lately

    def read(self, size: int, seconds: float) -> None:
        """Takes what reading and computing a batch took."""
        # One with records that took less than one without is said to, tells that, too.
        if size < _SMALL or seconds < self.batch.mean:
            self.batch.take(seconds)
        if size >= _SMALL:
            # By their size: of a smaller batch, more is what batches take by themselves, or chance.
            rest, known = max(0.0, seconds - self.batch.mean), _OLD * self.known
            mean = (known * self.byte_seconds + rest) / (known + size)
            self.byte_seconds, self.known = max(_FASTEST, mean), known + size

    def found(self, size: int, seconds: float) -> None:
        """Takes that so much was written within some time."""
        if seconds > 0:
            self.written = _mixed(self.written, size / seconds)

    def left(self, leaving: float, whole: float) -> None:
        """Takes what a batch with due windows took, from the decision on and altogether."""
        self.leaving.take(leaving)
        self.shortest = whole if self.shortest is None else min(self.shortest, whole)

    def takes(self, size: int) -> float:
        """Seconds that one of this size will hardly exceed."""
        return self.batch.high + size * self.byte_seconds

    def least(self, size: float) -> float:
        """Seconds that the shortest batch will hardly exceed, where so many bytes wait for it."""
        return self.batch.high + min(size * self.byte_seconds, _ALONG * self.batch.mean)

    def fade(self) -> None:
        """Takes that one was not dared: what is known becomes less, or none might be ever again."""
        self.batch = Measure(_OLD * self.batch.mean, _OLD * self.batch.spread)
        self.byte_seconds *= _OLD

    def most(self, seconds: float, more: float = 0.0) -> int:
        """How many bytes can be read before windows have to set off, so many seconds from now.

        A byte takes so much `more` than what is measured here.
        """
        room = _SAFE * seconds - self.batch.mean
        # Shorter batches would take hardly less time, and who is behind would never catch up.
        along = int(_ALONG * self.batch.mean / (self.byte_seconds + more))
        least = min(_LEAST, int(_SHORT / more)) if more else max(_LEAST, along)
        return max(1, least, int(room / (self.byte_seconds + more)))


def rest_after(seconds: float, least: float) -> float:
    """How long to wait after a batch that took so long, where no deadline is nearer.

    The next batch then reads more at once. What a batch and a file cost beside their records is
    paid less often, and reading takes a quarter of the time at most, whatever is written.
    """
    return max(least, min(_REST * seconds, _MOST_REST))


def rest_towards(rest: float, over: float | None, takes: float, reading: float = 0.0) -> float:
    """How long to wait, rather than so long, if windows are `over` in so many seconds.

    A batch, which `takes` some time, is then begun right behind their end: one that has begun
    before could not complete them, and if the rest were longer, their bound might not leave room
    for another. Where it would have to read for long, as `reading` says, most of that is read just
    before: what windows wait for is then what was written since.
    """
    if over is None:
        return rest
    before = over - takes - reading
    if reading > _WORTH * takes and before > 0:
        return rest if rest + takes + reading < before else before
    return rest if rest + takes < over else over + _WRITTEN


def _mixed(known: float, new: float) -> float:
    return _OLD * known + (1 - _OLD) * new
