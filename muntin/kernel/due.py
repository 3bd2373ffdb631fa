"""Which windows are to be finished now, and which have left: what the driver tells the kernel."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import pyarrow as pa

from muntin.fidelity.score import Only
from muntin.model.jobs import Job
from muntin.windows.spec import WindowSpec

Ends = Sequence[int]
DueEnds = Mapping[str, Sequence[Ends]]  # job -> ends of its due windows, one list a kind
Previous = Mapping[int, tuple[int, pa.Table]]
"""Of a job, by kind of window: where the last one ended, in panes, and the rows of its result."""
NOTHING_BEFORE: Previous = MappingProxyType({})
_ANCIENT = -(1 << 62)


@dataclass(frozen=True)
class Due:
    """Windows to finish now, by job; of sessions, those that end in `(after, upto]`.

    `more` says that others will come, which may be made of these.
    """

    ends: DueEnds = field(default_factory=dict)
    sessions: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    more: bool = False
    only: Mapping[tuple[str, int, int], Only] = field(default_factory=dict)
    """What some windows are made of, by job, kind and end, where that is not everything."""
    previous: Mapping[str, Previous] = field(default_factory=dict)
    """The last results of jobs that look back at them."""
    open: frozenset[tuple[str, int, int]] = frozenset()
    """Which of them, by job, kind and end, are shown as they are so far, and do not leave yet."""

    def __bool__(self) -> bool:
        return bool(self.ends or self.sessions)

    def showing(self, jobs: Mapping[str, Job], windows: Iterable[tuple[str, int, int]]) -> Due:
        """The same with windows that are open."""
        ends = {name: [list(kind) for kind in kinds] for name, kinds in self.ends.items()}
        opened = frozenset(windows)
        for name, which, end in sorted(opened):
            ends.setdefault(name, [[] for _ in jobs[name].windows])[which].append(end)
        return replace(
            self, ends={n: [sorted(k) for k in ks] for n, ks in ends.items()}, open=opened
        )

    def of(self, jobs: Mapping[str, Job], shape: str) -> Due:
        """The windows of the jobs that have this shape."""
        mine = [name for name, job in jobs.items() if job.shape.id == shape]
        return replace(
            self,
            ends={name: self.ends[name] for name in mine if name in self.ends},
            sessions={name: self.sessions[name] for name in mine if name in self.sessions},
            only={window: only for window, only in self.only.items() if window[0] in mine},
        )

    def spread(self, jobs: Iterable[str], seconds: float) -> dict[str, float]:
        """What each of these jobs has of the time that all took together, by its windows."""
        windows = {name: sum(map(len, self.ends.get(name, ()))) or 1 for name in jobs}
        each = seconds / max(1, sum(windows.values()))
        return {name: count * each for name, count in windows.items()}

    def between(self, after: int, upto: int) -> Due:
        """The windows that end in `(after, upto]`, in panes; of jobs that have any."""
        kinds = {
            name: [[end for end in kind if after < end <= upto] for kind in kinds]
            for name, kinds in self.ends.items()
        }
        only = {window: only for window, only in self.only.items() if after < window[2] <= upto}
        return replace(self, ends={n: k for n, k in kinds.items() if any(k)}, only=only)


@dataclass(frozen=True)
class Emitted:
    """What has left: the last end of every kind of window, and where sessions are over."""

    windows: Mapping[WindowSpec, int | None]
    sessions: int | None = None

    @property
    def oldest_pane(self) -> int:
        """The first pane that a window still to come holds."""
        oldest = [_ANCIENT if e is None else w.oldest_pane(e) for w, e in self.windows.items()]
        return min(oldest, default=_ANCIENT)

    def is_on(self, pane: int) -> bool:
        """Whether ends are counted in panes of this size: the grid may have changed since."""
        return all(spec.pane == pane for spec in self.windows)

    @property
    def needed_from(self) -> int | None:
        """The position before which no record is needed, or None while all are."""
        oldest = self.oldest_pane
        pane = next((spec.pane for spec in self.windows), 0)
        return oldest * pane if oldest > _ANCIENT else None


def due_jobs(jobs: Mapping[str, Job], due: Due) -> dict[str, dict[str, Job]]:
    """All jobs of the shapes that have windows due, by shape."""
    asked = {jobs[name].shape.id: None for name in (*due.ends, *due.sessions)}
    by_shape: dict[str, dict[str, Job]] = {shape: {} for shape in asked}
    for name, job in jobs.items():
        if job.shape.id in by_shape:
            by_shape[job.shape.id][name] = job
    return by_shape


def due_kinds(jobs: Mapping[str, Job], due: Due) -> dict[str, list[WindowSpec]]:
    """The kinds of windows that are due, by shape."""
    kinds: dict[str, list[WindowSpec]] = {}
    for name, of_job in due.ends.items():
        specs = zip(jobs[name].windows, of_job, strict=True)
        kinds.setdefault(jobs[name].shape.id, []).extend(spec for spec, ends in specs if ends)
    return kinds
