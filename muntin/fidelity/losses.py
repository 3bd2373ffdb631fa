"""What was lost: bytes of a source that were there, or may have been, and that nobody will read.

Lost records follow those that were read in the order of the log, so they lie in an interval of
time: from where their source had come, less the slack, to when their file was last written, or to
the first record that was read from behind them. Where less is known the interval is longer: every
pane that may have lost something is in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from muntin.fidelity.score import EVER, NEVER, Gap, State
from muntin.model.records import TIME


class Unmade(NamedTuple):
    """Positions `[lower, upper)` of which a source has made no panes for one shape, and never will.

    They were shed, or it does not know what of them was counted before.
    """

    shape: str
    lower: int
    upper: int
    state: State
    what: str = ""

    def gap(self, pane: int) -> Gap:
        return Gap(self.lower // pane, -(-self.upper // pane), self.state, self.what)


def joined(unmade: Iterable[Unmade]) -> tuple[Unmade, ...]:
    """The same with as few intervals as can be."""
    kept: list[Unmade] = []
    for each in sorted(unmade, key=lambda u: (u.shape, u.state, u.what, u.lower)):
        last = kept[-1] if kept else each
        whole = each._replace(lower=last.lower, upper=max(last.upper, each.upper))
        if kept and each.lower <= last.upper and last._replace(upper=whole.upper) == whole:
            kept[-1] = whole
        else:
            kept.append(each)
    return tuple(kept)


@dataclass(frozen=True)
class Loss:
    """What was lost of one file; times are `[lower, upper)`.

    Without a `lower` one, it is behind the first record of its source.
    """

    source: str
    file: str
    why: str  # "was removed", "cannot be read: Permission denied"
    log: str = ""  # that the file was a part of, whatever its name became
    bytes: int | None = None  # of the file, as far as that is known
    lower: int | None = NEVER
    upper: int = EVER
    reached: Mapping[str, int] = field(default_factory=dict)
    """On other axes than time: where the source had come."""

    def __str__(self) -> str:
        count = "" if self.bytes is None else f"{self.bytes:,} "
        unit = "byte" if self.bytes == 1 else "bytes"
        return f"{count}{unit} of {self.file}, which {self.why}"

    def bounds(self, axis: str) -> tuple[int, int] | None:
        """The positions between which something was lost on an axis."""
        if axis == TIME.column:
            return NEVER if self.lower is None else self.lower, self.upper
        at = self.reached.get(axis)
        return None if at is None else (at, at + 1)

    def is_needed(self, needed: Mapping[str, int]) -> bool:
        """Whether it lies in what windows still to come are made of, from these positions on."""
        bounds = ((self.bounds(axis), position) for axis, position in needed.items())
        return any(known is not None and known[1] > position for known, position in bounds)
