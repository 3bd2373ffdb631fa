"""Does what orders say, stream by stream: the same for all streams of a run, here and on Spark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from muntin.language.orders import Create, Ordered, Replace, Resume, Set
from muntin.model.streams import Stream
from muntin.run.door import Reply, Running
from muntin.run.kept import program_of
from muntin.run.loop import Loop
from muntin.run.succession import Effect


class Runs(Protocol):
    """The streams of a run."""

    @property
    def loops(self) -> Sequence[Loop]:
        """Those of the streams that are read."""

    def begin(self, stream: Stream) -> Loop:
        """Begins to read a stream, with no jobs."""


@dataclass
class Steward:
    """Checks and does what orders say; nothing is done if something cannot be.

    Where what a stream holds is lost halfway, others may have committed their part. So whoever has
    the same text done again gives it to the same steward, which goes on behind these.
    """

    runs: Runs
    _text: Ordered | None = None  # what was done last, or is to be done again
    _effects: dict[int, Effect] = field(default_factory=dict)  # by the number of an order in it

    def check(self, ordered: Ordered) -> None:
        """Raises why some order cannot be followed, as far as only what runs can tell."""
        for order in ordered.orders:
            if isinstance(order, Create | Replace | Set | Resume):
                loop = self._loop_of(order.job.stream)
                if loop is not None:
                    for job in order.jobs:
                        loop.require(job)

    def _loop_of(self, stream: str) -> Loop | None:
        return next((loop for loop in self.runs.loops if loop.catalog.stream.name == stream), None)

    def do(self, ordered: Ordered) -> tuple[Reply, Running]:
        """Follows orders that have passed the check, in one commit for each stream.

        Also returns what runs then.
        """
        by_stream: dict[str, list[int]] = {}
        for number, order in enumerate(ordered.orders):
            by_stream.setdefault(order.job.stream, []).append(number)
        if ordered is not self._text:
            self._text, self._effects = ordered, {}
        effects = self._effects
        for stream, numbers in by_stream.items():
            if numbers[0] in effects:
                continue
            loop = self._loop_of(stream)
            if loop is None:
                loop = self.runs.begin(ordered.program.streams[stream])
            obeyed = loop.obey([ordered.orders[number] for number in numbers])
            effects |= dict(zip(numbers, obeyed, strict=True))
        done = tuple(effects[number] for number in sorted(effects))
        reply = Reply(done, tuple(_notes(ordered)))
        return reply, program_of(ordered.program, (loop.catalog for loop in self.runs.loops))


def _notes(ordered: Ordered) -> Iterator[str]:
    """What a writer may not expect."""
    for order in ordered.orders:
        if isinstance(order, Set) and order.at == "window":
            yield (
                f"job '{order.job.name}': {order.parameter} is a part of what its panes hold, so "
                "it changes with the next window, and not with the next pane"
            )
