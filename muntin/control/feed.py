"""What a running program has answered lately, for all who read and follow it.

    runner ──emission──► feed ◄──position── readers      in memory, or else from the job's table

The runner leaves here what it has committed, and nothing is done with it until somebody asks. A
reader has a position and no queue: one who is slow, or was away, is given what the table has.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile
from threading import Lock

import pyarrow as pa
import pyarrow.compute as pc

from muntin.control.told import FIRST, Position, Told, told
from muntin.errors import InputError
from muntin.run.many import Stored
from muntin.run.results import Departing, Emission
from muntin.store import history
from muntin.store.results import Results
from muntin.store.storage import Place

MEMORY = 64 << 20  # bytes of rows and scores that are kept, as they are computed
_WINDOW, _SOURCE = 256, 64  # bytes of a score, and of each source in it, more or less
_NEVER = FIRST.at_us - 1
_ROWS_AT_ONCE = 20_000  # that are read of a table
ROWS = 100_000  # of one answer, or one result of those that are followed, at the most


@dataclass(frozen=True)
class Departed:
    """What one job has sent off at one time."""

    job: str
    at_us: int
    windows: tuple[Departing, ...]

    @cached_property
    def nbytes(self) -> int:
        return sum(each.nbytes + _score_bytes(each) for each in self.windows)

    @property
    def is_stored(self) -> bool:
        """Whether some rows are in files alone."""
        return any(isinstance(each, Stored) for each in self.windows)

    @cached_property
    def table(self) -> pa.Table:
        tables = [table for each in self.windows for table in each.tables()]
        return pa.concat_tables(tables, promote_options="default")

    @cached_property
    def told(self) -> tuple[Told, ...]:
        """Made once for all who follow."""
        return tuple(told(self.table))

    @cached_property
    def newest(self) -> tuple[Told, ...]:
        """Those that no other of the same windows is behind."""
        return tuple(told(_ending_last(self.table)))


class Feed:
    """One for a running program: any thread may read, and only the runner adds."""

    def __init__(self, state: Place, memory: int = MEMORY) -> None:
        self._state = state
        self._memory = memory
        self._lock = Lock()
        self._kept: dict[str, deque[Departed]] = {}
        self._order: deque[str] = deque()  # the jobs of what is kept, first things first
        self._size = 0
        self._floors: dict[str, int] = {}  # by job, when the last left that is not in memory
        self._newest: dict[str, tuple[int, list[Told]]] = {}  # and up to when they count
        self._bells: list[Callable[[Iterable[str]], None]] = []

    # The runner's.

    def take(self, emission: Emission) -> None:
        """Keeps what was committed, and rings for those who wait."""
        by_job: dict[tuple[str, float], list[Departing]] = {}
        for windows in emission.windows:
            by_job.setdefault((windows.job.title, windows.at), []).append(windows)
        if not by_job:
            return
        with self._lock:
            for (job, at), several in by_job.items():
                departed = Departed(job, int(at * 1e6), tuple(several))
                if departed.is_stored:  # nor is what was before it of use, as readers go in order
                    self._drop(job)
                    self._floors[job] = departed.at_us
                    continue
                self._kept.setdefault(job, deque()).append(departed)
                self._order.append(job)
                self._size += departed.nbytes
            while self._size > self._memory:
                job = self._order.popleft()
                oldest = self._kept[job].popleft()
                self._size -= oldest.nbytes
                self._floors[job] = oldest.at_us
            bells = tuple(self._bells)
        for ring in bells:
            ring({job for job, _ in by_job})

    def _drop(self, job: str) -> None:
        """Lets go of what is kept of a job."""
        kept = self._kept.pop(job, deque())
        self._size -= sum(each.nbytes for each in kept)
        self._order = deque(each for each in self._order if each != job)

    # Everybody's.

    def on_change(self, ring: Callable[[Iterable[str]], None]) -> None:
        """Has something called with names of jobs, by the runner, when there is more of them."""
        with self._lock:
            self._bells.append(ring)

    def last(self, job: str) -> Position:
        """A position behind everything that has left so far."""
        floor, kept = self._floor(job), self._since(job, _NEVER)
        return Position.behind(max([floor, *(each.at_us for each in kept[-1:])]))

    def after(self, job: str, position: Position) -> Sequence[Told]:
        """The next results behind a position: some of them, or none if there are none yet."""
        known = self._since(job, position.at_us)  # before it may be dropped
        if position >= Position.behind(self._floor(job)):  # others may have left with that one
            return [one for each in known for one in each.told if one.position > position]
        table = history.left_since(self._state, job, position.at_us, _ROWS_AT_ONCE, ROWS)
        return [one for one in told(table) if one.position > position]

    def latest(self, job: str) -> list[Told]:
        """The newest result of each of the job's windows, from memory once it is known."""
        at_us, known = self._newest.get(job, (_NEVER, None))
        later = self._since(job, at_us + 1)
        floor = self._floor(job)
        if known is None or at_us < floor:
            stored = list(self._stored(job, latest=True))
            at_us, known = max([floor, *(one.position.at_us for one in stored)]), stored
            later = [each for each in later if each.at_us > at_us]
        if later:
            at_us = later[-1].at_us
            known = _newest([*known, *(one for each in later for one in each.newest)])
        self._newest[job] = at_us, known
        return [one for one in known if not one.withdrawn]

    def rows(self, job: str) -> int:
        """How many rows the table of a job has, of all revisions."""
        return history.rows(self._state, job) if history.has_results(self._state, job) else 0

    def every(self, job: str) -> Iterable[Told]:
        """All results of a job, as its table has them: of revised windows the last revision."""
        return self._stored(job, latest=False)

    def _stored(self, job: str, latest: bool) -> Iterable[Told]:
        if not history.has_results(self._state, job):
            return ()  # it is new
        if latest:
            self._require_few(job)
        return told(Results(self._state).read(job, latest))

    def _require_few(self, job: str) -> None:
        """Refuses to have very many rows in memory, of whoever asks for them."""
        rows = Results(self._state).latest_rows(job)
        if rows > ROWS:
            raise InputError(
                f"the latest results of job '{job}' have {rows:,} rows, and {ROWS:,} are the most "
                f"that are sent at once; `muntin results {job}` or its Delta table has all"
            )

    def _since(self, job: str, at_us: int) -> list[Departed]:
        """What is in memory of a job from a time on."""
        with self._lock:
            kept = reversed(self._kept.get(job, ()))
            return [*takewhile(lambda each: each.at_us >= at_us, kept)][::-1]

    def _floor(self, job: str) -> int:
        """When the last results of a job left that are not in memory."""
        with self._lock:
            floor, kept = self._floors.get(job), self._kept.get(job)
            first = kept[0].at_us if kept else None
        if floor is not None:
            return floor
        # Nothing was dropped so far: there is what earlier runs have left.
        stored = history.has_results(self._state, job)
        before = history.last_left(self._state, job, first) if stored else None
        with self._lock:
            return self._floors.setdefault(job, _NEVER if before is None else before)


def _score_bytes(windows: Departing) -> int:
    sources = next((c2.sources for c2 in windows.scores.values()), 0)
    return len(windows.scores) * (_WINDOW + _SOURCE * sources)


def _newest(results: Iterable[Told]) -> list[Told]:
    """Of each of the windows the one that ends last, as it was revised last."""
    newest: dict[str, dict[int, Told]] = {}  # by name and start: sessions may end together
    ends: dict[str, int] = {}
    for one in results:
        place = one.position
        if place.end > ends.get(place.name, place.end - 1):
            ends[place.name], newest[place.name] = place.end, {}
        if place.end == ends[place.name]:
            before = newest[place.name].get(place.start)
            if before is None or before.position.revision <= place.revision:
                newest[place.name][place.start] = one
    return [one for by_start in newest.values() for one in by_start.values()]


def _ending_last(table: pa.Table) -> pa.Table:
    """The rows of windows of which none of that name ends later."""
    ends = pc.cast(table["window_end"], pa.int64())
    rows = pa.table({"name": table["window_name"], "end": ends})
    last = rows.group_by("name").aggregate([("end", "max")])
    by_name = dict(zip(last["name"].to_pylist(), last["end_max"].to_pylist(), strict=True))
    wanted = pa.array([by_name[name] for name in rows["name"].to_pylist()], pa.int64())
    return table.filter(pc.equal(ends, wanted))
