"""How long computing takes here, shape by shape, and which shapes do not fit into the time.

What a batch costs beside its records is the same for all; here are shapes that take long for what
they are given. So much of a batch's time is theirs as they have of what all tasks together took.

A statement takes time however little it is given, and the more the busier the machine is. Were that
taken for the price of its records, batches would become smaller and smaller, and what waits to be
read more and more. So shapes together may take as long as the batch does beside them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping

NEGLIGIBLE = 0.05  # seconds that a shape may always take
_LAST = 2  # batches that tell what the next one takes: of one that was slow, nobody is to blame


class Loads:
    """What is measured of the shapes of one stream. Sizes are bytes, or records where none are."""

    def __init__(self) -> None:
        self._last: dict[str, deque[float]] = {}  # by shape, seconds for each of a size

    def take(self, size: int, seconds: float, costs: Mapping[str, float]) -> float:
        """Takes what a batch took, and what of that its tasks had for each shape.

        Returns how much of it was of shapes that take long.
        """
        spent = sum(costs.values())
        # Tasks are side by side, so that they may have taken longer than the batch.
        part = min(1.0, seconds / spent) if spent and seconds > 0 else 1.0
        beside = seconds - spent * part
        negligible = max(NEGLIGIBLE, beside / max(1, len(costs)))
        dear = 0.0
        for shape, cost in costs.items():
            beyond = max(0.0, cost * part - negligible)
            self._last.setdefault(shape, deque(maxlen=_LAST)).append(beyond / max(1, size))
            dear += beyond
        return dear

    def each(self, shapes: Collection[str]) -> float:
        """Seconds for each of a size that these shapes took lately, beyond what is negligible."""
        return sum(self._last[shape][-1] for shape in shapes if shape in self._last)

    def seconds(self, shape: str, size: int) -> float:
        """What a shape will take at least; no time as long as too little is known."""
        last = self._last.get(shape, ())
        return size * min(last) if len(last) == _LAST else 0.0

    def misfits(self, shapes: Collection[str], size: int, room: float) -> list[str]:
        """Of some shapes, those to be done without for the rest to fit into the room there is.

        They are the dearest ones, and never one that takes hardly any time.
        """
        takes = {shape: self.seconds(shape, size) for shape in shapes}
        total, left_out = sum(takes.values()), list[str]()
        for shape in sorted(takes, key=lambda shape: -takes[shape]):
            if total <= room or takes[shape] <= NEGLIGIBLE:
                break
            total -= takes[shape]
            left_out.append(shape)
        return left_out

    def keep(self, shapes: Collection[str]) -> None:
        """Forgets all shapes but these."""
        self._last = {shape: last for shape, last in self._last.items() if shape in shapes}
