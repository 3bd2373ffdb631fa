"""Random ranges of what is retained, asked as a user would, and compared as windows are.

A range is judged by the rule of windows, and by a stricter one: what came too late for its pane is
told by the score from then on. So where a server is not named, all of it is there, unless something
was taken away that nobody had read: what that had of panes before it nobody can know.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from random import Random
from typing import Any

import muntin as mt
from muntin.errors import MuntinError
from muntin.store.storage import Place
from tests.faults import jobs
from tests.faults.jobs import Asked
from tests.faults.verdict import Truth, Window, Wrong, deviations, in_vain

_MINUTE = 60
_EVER = 1 << 40  # seconds
_REFUSED = {"area": 0.0, "reason": "refused", "missing": (), "panes": ()}


@dataclass
class Range(Window):
    """What was answered of a range, and when it was asked."""

    score: dict[str, Any] = field(default_factory=lambda: dict(_REFUSED))
    asked_at: float = 0.0
    whole: Collection[str] = ()  # servers of which nothing can have gone unseen
    is_settled: bool = False  # whether results have come to the end of its last pane

    @property
    def c2(self) -> dict[str, Any]:
        return self.score

    @property
    def left_at(self) -> float:
        return self.asked_at

    def closed_at(self, server: str, second: int) -> int:
        return _EVER if server in self.whole and not self.named[server] else second + 1


Judged = tuple[list[Range], list[Wrong]]


@dataclass(frozen=True)
class Past:
    """What may be asked about: between two `times`, of streams with these `truths`.

    `whole` are the servers from which nothing was taken away unread.
    """

    state: Place
    truths: Mapping[str, Truth]
    times: tuple[int, int]
    whole: Collection[str] = ()

    def ask(self, asked: Sequence[Asked], number: int, random: Random, now: float) -> Judged:
        """Asks for so many ranges of each job and stream that is retained."""
        ranges: list[Range] = []
        wrong: list[Wrong] = []
        retained = [(job.name, job.stream, 1) for job in asked if job.is_retained]
        for name, stream, pane in [*retained, (jobs.RETAINED, jobs.RETAINED, _MINUTE)]:
            for _ in range(number):
                start, end = sorted(random.sample(range(self.times[0], self.times[1] + 1), 2))
                range_ = Range(
                    name, start, end, 0, pane=pane, asked_at=now, whole=self.whole,
                    is_settled=-(-end // pane) * pane <= self.times[1],
                )  # fmt: skip
                ranges.append(range_)
                told = self._problems(range_, self.truths[stream])
                wrong += [Wrong(range_, what) for what in told]
        return ranges, wrong

    def _problems(self, range_: Range, truth: Truth) -> Iterator[str]:
        """Takes what is answered of a range; tells what is wrong with it."""
        question = jobs.question(range_.job, _text(range_.start), _text(range_.end))
        try:
            answer = mt.ask(question, state=self.state)
        except MuntinError as error:
            yield f"{question} is refused: {error}"
            return
        (of,) = answer.ranges
        range_.rows = answer.rows.to_pylist()
        range_.score = {
            "area": of.c2.area,
            "reason": of.c2.reason,
            "missing": [missing._asdict() for missing in of.c2.missing],
            "panes": [{"sources": sources, "panes": panes} for sources, panes in of.c2.runs],
        }
        if (of.start, of.end) != (range_.start * 1_000_000, range_.end * 1_000_000):
            yield f"{of.start} to {of.end} was answered instead"
        yield from deviations(range_, truth)
        range_.in_vain = in_vain(range_, truth)


def _text(second: int) -> str:
    return f"{datetime.fromtimestamp(second, UTC):%Y-%m-%d %H:%M:%S}"
