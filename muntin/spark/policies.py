"""When steps of a collection go: what no window needs any more, and when they are merged."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from muntin.kernel.block import Block
from muntin.kernel.due import Emitted
from muntin.kernel.kinds import kind_of
from muntin.model.shapes import Shape

STEPS_AT_MOST = 12


@dataclass(frozen=True)
class Span:
    """Where the rows of one shape lie in a step: panes `[lower, upper)` of size `pane`.

    Without panes, these are positions.
    """

    shape: str
    pane: int
    lower: int
    upper: int

    @property
    def positions(self) -> tuple[int, int]:
        size = self.pane or 1
        return self.lower * size, self.upper * size


def spans_of(blocks: Iterable[Block]) -> list[Span]:
    """Where the rows of some blocks lie; empty ones lie nowhere."""
    return joined(Span(b.shape, b.pane, b.lower, b.upper) for b in blocks if b.rows)


def joined(spans: Iterable[Span]) -> list[Span]:
    """One span for each shape and size of panes, that holds all of those given."""
    whole: dict[tuple[str, int], Span] = {}
    for span in spans:
        known = whole.get((span.shape, span.pane), span)
        lower, upper = min(known.lower, span.lower), max(known.upper, span.upper)
        whole[span.shape, span.pane] = Span(span.shape, span.pane, lower, upper)
    return list(whole.values())


def is_needed(
    spans: Iterable[Span], shapes: Mapping[str, Shape], emitted: Mapping[str, Emitted]
) -> bool:
    """Whether some window still to come may hold rows of a step.

    A shape that no job has any more is needed by none.
    """
    for span in spans:
        shape = shapes.get(span.shape)
        if shape is None:
            continue
        upper = span.upper
        if shape.pane and span.pane != shape.pane:
            upper = -(-span.positions[1] // shape.pane)
        known = emitted.get(span.shape)
        if known is None or not known.is_on(shape.pane) or not kind_of(shape).is_over(upper, known):
            return True
    return False


def is_many(steps: int) -> bool:
    """Whether so many steps are merged into one: each is one more to unite for every answer.

    What is lost does not come from them (`schedule/recovery.py`), so their number has no part in
    how long recovery takes.
    """
    return steps >= STEPS_AT_MOST
