"""How long a stream takes to stand again where it stood, and what keeps that below a bound.

Blocks in memory have no lineage. What is lost comes back from the last commit: blocks that were
saved are read back, and what was read since is read again. So recovery takes as long as both, and
there are two things to decide, each by what is measured here: how much is read before a commit, for
which the optimiser of checkpoints is asked, and when saved blocks are written anew, as few, without
those that nobody needs.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field

from muntin.collections.lineage import Dataset, Lineage, cut
from muntin.schedule.pace import Measure

DEFAULT = 30.0  # seconds
_OLD = 0.5  # the weight of what is known, against one new measurement
_SMALL = 1 << 20  # bytes; below this, reading back takes what it takes for none
_BACK = 0.5  # of the bound, that reading back may take before blocks are written anew
_LEAST = 0.25  # of the bound, that is always there to read on
_SAVED, _UNSAVED, _COMING = "saved blocks", "read since", "the next batch"


@dataclass
class Recovery:
    """What is measured of one stream, with the bound in seconds; without one, nothing is asked."""

    bound: float = float("inf")
    empty: Measure = field(default_factory=lambda: Measure(2.0))  # to read hardly a block back
    back: float = 4e-8  # seconds to read a byte of blocks back
    again: float = 4e-8  # seconds to read a byte of logs, and compute and keep its blocks
    saved: int = 0  # bytes of blocks of the last commit
    unsaved: float = 0.0  # seconds of reading since then
    slower: float = 1.0  # how much longer all takes on the executors that are left
    losses: int = 0
    last: float = 0.0  # seconds that the last of them took

    def read_back(self, size: int, seconds: float) -> None:
        """Takes what reading so many bytes of blocks back took."""
        if size < _SMALL:
            self.empty.take(seconds)
        else:
            rest = max(0.0, seconds - self.empty.mean)
            self.back = _mixed(self.back, rest / size)
        self.saved, self.unsaved = size, 0.0

    def read(self, size: int, seconds: float) -> None:
        """Takes what reading a batch of logs took, which is not committed yet."""
        if size >= _SMALL:
            self.again = _mixed(self.again, seconds / size)
        self.unsaved += seconds

    def committed(self, saved: int) -> None:
        """Takes that all that was read is final, with so many bytes of blocks."""
        self.saved, self.unsaved = saved, 0.0

    def lost(self, seconds: float) -> None:
        """Takes that an executor was lost, and how long it took to stand where one stood."""
        self.losses += 1
        self.last = seconds
        # All that is neither blocks nor logs: tasks that fail first, executors that have just come.
        self.empty.take(max(0.0, seconds / self.slower - self.saved * self.back))

    @property
    def known(self) -> tuple[float, ...]:
        """What the next run begins with."""
        empty = self.empty.mean, self.empty.spread
        return (self.bound, *empty, self.back, self.again, self.saved, self.losses, self.last)

    @staticmethod
    def of(known: Sequence[float]) -> Recovery:
        """One that begins with what another has known; of nothing, a new one."""
        if not known:
            return Recovery()
        bound, mean, spread, back, again, saved, losses, last = known
        empty = Measure(mean, spread)
        return Recovery(
            bound, empty, back, again, int(saved), losses=int(losses), last=last
        )  # fmt: skip

    def figures(self) -> dict[str, float | int | None]:
        """For programs: seconds, and bytes of blocks."""
        bound = None if self.bound == float("inf") else self.bound
        told = {"bound": bound, "takes": self.takes, "saved_bytes": self.saved}
        return {**told, "losses": self.losses, "last": self.last if self.losses else None}

    @property
    def takes(self) -> float:
        """Seconds that recovery would take now."""
        return self.slower * (self._reading_back + self.unsaved)

    @property
    def most(self) -> int | None:
        """Bytes of logs that the next batch may have; None: whatever there is."""
        if self.bound == float("inf"):
            return None
        return max(1, int(self._room / 2 / max(self.again, 1e-12)))

    @property
    def lineage(self) -> Lineage:
        """What would be made again, one from the other, if all were lost after another batch.

        Saved blocks come back, and what was read since is the only dataset that can be written.
        """
        back = Dataset(_SAVED, delay=self._limit - self._room, held=False)
        read = Dataset(_UNSAVED, (_SAVED,), self.saved, self.unsaved)
        coming = Dataset(_COMING, (_UNSAVED,), sys.maxsize, self._room / 2)
        return Lineage({each.name: each for each in (back, read, coming)})

    @property
    def is_due(self) -> bool:
        """Whether another batch might be too much to be read again: all is committed before it."""
        return self.bound < float("inf") and _UNSAVED in cut(self.lineage, self._limit)

    def is_loose(self, whole: int, added: int) -> bool:
        """Whether saved blocks take long to be read back, and would hardly if written anew.

        They were `whole` when that was last done. What they have become since is at least half as
        much: so the same bytes are not written over and over where all of them are needed.
        """
        return added > whole / 2 and self.slower * self._reading_back > _BACK * self.bound

    @property
    def _reading_back(self) -> float:
        return self.empty.mean + self.saved * self.back

    @property
    def _limit(self) -> float:
        """The bound, on the executors that are left when one is lost."""
        return self.bound / self.slower

    @property
    def _room(self) -> float:
        return max(self._limit - self._reading_back, _LEAST * self._limit)


def _mixed(known: float, new: float) -> float:
    return _OLD * known + (1 - _OLD) * new
