"""When steps of a collection go: what no window needs any more, and when they are merged.

And whether partials of an executor's tasks are merged before they are sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from muntin.kernel.block import Block
from muntin.kernel.due import Emitted
from muntin.kernel.kinds import kind_of
from muntin.model.shapes import Shape

STEPS_AT_MOST = 12
ROWS_THAT_WAIT = 100_000  # of a step; more are merged before somebody needs them

# Seconds that merging by executor takes: for one more stage of Spark, and a byte of partials that
# tasks of an executor hand to each other (both assumed); of a core, for a byte that is left of them
# (merged and packed), less what is saved for each that was there where they arrive (both a line
# through what `benchmarks.combine` measured).
STAGE_SECONDS = 0.03
HANDED_OVER_SECONDS = 1 / 500e6
_MERGED_SECONDS, _ARRIVING_SECONDS = 17e-9, 1.2e-9
_BATCHES_KNOWN = 64  # after which it is tried again how much merging leaves


@dataclass(frozen=True)
class Span:
    """Where rows of one shape lie in a step, and how many: panes `[lower, upper)` of size `pane`.

    Without panes, these are positions.
    """

    shape: str
    pane: int
    lower: int
    upper: int
    rows: int = field(default=0, compare=False)

    @property
    def positions(self) -> tuple[int, int]:
        size = self.pane or 1
        return self.lower * size, self.upper * size


def spans_of(blocks: Iterable[Block]) -> list[Span]:
    """Where the rows of some blocks lie; empty ones lie nowhere."""
    return joined(Span(b.shape, b.pane, b.lower, b.upper, b.rows) for b in blocks if b.rows)


def joined(spans: Iterable[Span]) -> list[Span]:
    """One span for each shape and size of panes, that holds all of those given."""
    whole: dict[tuple[str, int], Span] = {}
    for span in spans:
        known = whole.get((span.shape, span.pane))
        if known is not None:
            lower, upper = min(known.lower, span.lower), max(known.upper, span.upper)
            span = replace(span, lower=lower, upper=upper, rows=known.rows + span.rows)
        whole[span.shape, span.pane] = span
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


def may_wait(spans: Iterable[Span]) -> bool:
    """Whether a step is merged by whoever needs it: that is another stage of Spark less for each
    batch, and few rows are merged as fast each time.
    """
    return sum(span.rows for span in spans) <= ROWS_THAT_WAIT


@dataclass(frozen=True)
class Moved:
    """Bytes of a batch's partials: as tasks made them, as they were sent to their key groups, and
    as they were left once merged there, 0 where they are merged later.
    """

    made: int = 0
    sent: int = 0
    left: int = 0

    def __add__(self, other: Moved) -> Moved:
        return Moved(self.made + other.made, self.sent + other.sent, self.left + other.left)


@dataclass(frozen=True)
class ByExecutor:
    """What the last batches tell of merging the partials of each executor before they are sent.

    `made` are bytes of a batch's partials, a moving mean. `kept` is the share of them that was left
    when executors last merged theirs, so many batches `ago`, and `least` that of all merged.
    """

    made: float = 0.0
    kept: float | None = None
    least: float = 0.0
    ago: int = 0

    def after(self, moved: Moved, merged: bool) -> ByExecutor:
        """The same after one more batch, in which executors have merged theirs or have not."""
        made = (self.made + moved.made) / 2
        least = moved.left / moved.made if moved.made else self.least
        if merged and moved.made:
            return ByExecutor(made, moved.sent / moved.made, least)
        return replace(self, made=made, least=least, ago=self.ago + 1)

    def pays(self, tasks: int, executors: int, speed: float) -> bool:
        """Whether executors had better merge theirs, for a batch of so many tasks in all.

        What that leaves is not known before it was tried, or any more after many batches. Then the
        best is believed, that all keys are shared, if the partials that were left of all allow it.
        """
        if executors < 2 or not self.made:
            return False
        each, kept = tasks / executors, self.kept
        if kept is None or self.ago >= _BATCHES_KNOWN:
            kept = max(1 / max(1.0, each), self.least)
        sent = 1 - 1 / executors  # the rest is for key groups of the executor itself
        return pays_to_merge(self.made / executors, kept, each, speed / sent)


def pays_to_merge(made: float, kept: float, tasks: float, speed: float) -> bool:
    """Whether an executor saves time by merging the bytes of partials that its tasks made.

    `kept` is the share that is left of them, and `speed` how many bytes it sends in a second. Tasks
    merge side by side.
    """
    merging = kept * _MERGED_SECONDS - _ARRIVING_SECONDS + HANDED_OVER_SECONDS
    return made * (1 - kept) / speed > STAGE_SECONDS + made * merging / tasks
