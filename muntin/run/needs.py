"""Which stretches of time the windows of finite input are made of, where FIDELITY asks for a part.

A window needs its earliest panes. How many is known before anything is read, but for windows in
which a source begins: those are read as a whole.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from muntin.fidelity.sampling import sufficient
from muntin.fidelity.score import EVER
from muntin.kernel.kinds import kind_of
from muntin.logs.index import Numbers
from muntin.model.jobs import Job
from muntin.model.records import TIME
from muntin.run.catalog import Catalog
from muntin.windows.spec import WindowSpec

_WINDOWS_AT_MOST = 1_000_000


@dataclass(frozen=True)
class Needs:
    """Kinds of windows, each with the length of its beginning that is enough, and the slack."""

    kinds: tuple[tuple[WindowSpec, int], ...]
    slack_us: int

    @classmethod
    def of(cls, catalog: Catalog) -> Needs | None:
        """What the jobs of a stream need; None where that is everything, or not known."""
        stream = catalog.stream
        plain = stream.until is None and stream.format.kind != "parquet" and not stream.sources
        if (
            stream.members
            or stream.slack_us is None
            or not plain
            or not all(map(_is_part, catalog.every.values()))
        ):
            return None
        kinds = []
        for job in catalog.jobs.values():
            for spec in job.windows:
                enough = sufficient(job.bounds.fidelity or 1.0, spec.length) * spec.pane
                if enough >= spec.slide or not spec.regular:
                    return None
                kinds.append((spec, enough))
        return cls(tuple(kinds), stream.slack_us)

    def stretches(self, firsts: Collection[int], last: int) -> Numbers | None:
        """The stretches, if sources begin at these times and were looked at up to the last.

        None: everything.
        """
        found = []
        for spec, enough in self.kinds:
            begin = (min(firsts) - spec.range - spec.offset) // spec.slide * spec.slide
            starts = np.arange(begin + spec.offset, last + 1, spec.slide, dtype=np.int64)
            if len(starts) > _WINDOWS_AT_MOST:
                return None
            ends = starts + enough
            for first in firsts:
                ends[(starts <= first) & (first < starts + spec.range)] += spec.range - enough
            found.append(np.stack([starts, np.minimum(ends, starts + spec.range)], axis=1))
        rest = np.array([[last, EVER]])  # what comes after the last look is not known
        return np.concatenate([*found, rest])


def _is_part(job: Job) -> bool:
    """Whether a job needs the earliest panes of its windows, and nothing else."""
    bounds, shape = job.bounds, job.shape
    asks = bounds.fidelity is not None and bounds.form in ("area", "space")
    bound = bounds.leap or bounds.revise_us is not None
    return asks and not bound and shape.axes == (TIME,) and kind_of(shape).has_windows
