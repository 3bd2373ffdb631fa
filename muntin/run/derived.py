"""Results of a job as an intake: windows over windows.

Whoever runs both jobs hands over what the first one has made final. The sources of the second are
those of the first: each has come to where all windows of the first have left, and a result that
lacks some of a source lacks it in the second as well, for the same reason. Nothing of a result is
late: it is there as soon as its window has left.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from muntin.fidelity.losses import Unmade, joined
from muntin.fidelity.score import EVER, NEVER, Gap, State, Track, state_of
from muntin.fidelity.scoreboard import Source
from muntin.kernel.clocks import Clocks
from muntin.kernel.compute import Recipe, compute
from muntin.kernel.merge import gather
from muntin.kernel.reading import Reading
from muntin.logs.chunks import Chunk, WorkOrder
from muntin.logs.formats import Wanted
from muntin.logs.records import parse
from muntin.model.records import TIME, Column
from muntin.model.shapes import Shape
from muntin.model.streams import Stream
from muntin.run.contracts import Batch, Delivery, Request
from muntin.run.many import Parts, StoredWindows
from muntin.run.results import Departing, Emission
from muntin.run.sessions import StoredSessions

if TYPE_CHECKING:
    from muntin.run.loop import Loop


_NONE = pa.table({})


@dataclass(frozen=True)
class Lack:
    """What results of the window that ends at a position do not have of a source; "": of any."""

    end: int
    source: str
    state: State
    what: str


class Untaken(Parts, Protocol):
    """Rows that a table has of results that had left before, and that nobody has taken."""

    @property
    def at_us(self) -> int:
        """When the last of them left."""

    @property
    def lacking(self) -> Mapping[str, int]:
        """By source of which some lack something, where the first of their windows ends."""

    def ends(self, among: Collection[int]) -> set[int]:
        """Which of these are ends of windows that have rows here."""


@dataclass(frozen=True)
class Left:
    """Results that have left together: rows as they are stored, and what they lack."""

    at_us: int
    rows: pa.Table
    lacks: tuple[Lack, ...] = ()
    parts: tuple[Parts, ...] = ()  # in which rows are that were too many to be at hand
    elsewhere: frozenset[int] = frozenset()  # where windows of these end
    telling: tuple[Parts, ...] = ()  # in which more are, and only they say what they lack
    lacking: Mapping[str, int] = field(default_factory=dict)
    """By source of which these lack something, where the first of them ends."""
    untaken: Untaken | None = None  # those of them that are asked which windows they have

    def ends(self, among: Collection[int]) -> set[int]:
        """Which of these are ends of windows that have rows, or had some, or tell what they lack.

        Sessions are not asked for theirs.
        """
        known = {*self.elsewhere, *(lack.end for lack in self.lacks)}
        if self.rows.num_rows:
            known.update(_ends(self.rows))
        if self.untaken is not None:
            known |= self.untaken.ends(among)
        return known & {*among}

    @classmethod
    def of(cls, windows: Departing) -> Left:
        """What a job has just sent off."""
        at_us = int(windows.at * 1e6)
        if isinstance(windows, StoredSessions):
            lacking = windows.totals.lacking
            return cls(at_us, _NONE, telling=(windows.parts,), lacking=lacking)
        ends = {kind: windows.bounds(kind)[1] for kind in windows.scores}
        lacks = [
            lack
            for kind, c2 in windows.scores.items()
            for lack in _lacks(ends[kind], c2.area, [(m.source, m.why) for m in c2.missing])
        ]
        if isinstance(windows, StoredWindows):
            stored = (*windows.rows_of, *windows.withdrawn(windows.rows_of))
            elsewhere = frozenset(windows.bounds(kind)[1] for kind in stored)
            return cls(at_us, _NONE, tuple(lacks), (windows.parts,), elsewhere)
        rows = windows.table()
        has_rows = pc.is_valid(rows["c2"])  # a revision that takes back is no record
        gone = frozenset(_ends(rows.filter(pc.invert(has_rows))))
        return cls(at_us, rows.filter(has_rows), tuple(lacks), elsewhere=gone)

    @classmethod
    def stored(cls, rows: Untaken) -> Left:
        """What tables have of results that had left before."""
        return cls(rows.at_us, _NONE, telling=(rows,), lacking=rows.lacking, untaken=rows)


def lacks_of(rows: pa.Table) -> dict[Lack, None]:
    """What results lack, of rows as they are stored."""
    lacks: dict[Lack, None] = {}
    area = pc.struct_field(rows["c2"], "area")
    rows = rows.filter(pc.less(area, 1.0))
    scores = dict.fromkeys(
        (end, c2["area"], tuple((m["source"], m["why"]) for m in c2["missing"]))
        for end, c2 in zip(
            rows["window_end"].cast(pa.int64()).to_pylist(), rows["c2"].to_pylist(), strict=True
        )
    )
    for end, area, missing in scores:
        lacks |= dict.fromkeys(_lacks(end, area, missing))
    return lacks


def _lacks(end: int, area: float, missing: Sequence[tuple[str, str]]) -> Iterator[Lack]:
    for source, why in missing:
        yield Lack(end, source, *_final(*state_of(why)))
    if area < 1.0 and not missing:  # what a sample leaves out is not told source by source
        yield Lack(end, "", State.SKIPPED, "")


def _final(state: State, what: str) -> tuple[State, str]:
    """What is still awaited when a result leaves is lost to whoever reads results."""
    return (State.LOST, "had not come in time") if state is State.AWAITED else (state, what)


@dataclass(frozen=True)
class Standing:
    """Where the job stands whose results are read.

    All its windows that end at or before `upto` have left. By source, what is known of it, in
    positions. From `stopped` on it has failed, and answers nothing. Windows that end where `shed`
    says have left without an answer, lately, and where `lapsed` says with something missing.
    """

    upto: int = NEVER
    sources: Mapping[str, Track] = field(default_factory=dict)
    stopped: int | None = None
    shed: tuple[int, ...] = ()
    lapsed: tuple[int, ...] = ()

    def gaps(self, source: str, since: int) -> Iterator[Gap]:
        """What no result can have of a source, from where this was told before."""
        track = self.sources.get(source)
        if track is not None:
            passed = Gap(track.whole, min(self.upto, track.until), *_final(track.rest, ""))
            for gap in (passed, *track.never):
                lower, upper = max(gap.lower, since, track.first), min(gap.upper, self.upto)
                if lower < upper:
                    yield gap._replace(lower=lower, upper=upper)
        for end in self.shed:
            if end > since:
                yield Gap(end - 1, end, State.SHED)
        for end in self.lapsed:
            if end > since:
                yield Gap(end - 1, end, *_final(State.AWAITED, ""))
        if self.stopped is not None:
            yield Gap(max(self.stopped, since), EVER, State.LOST, "has stopped")


@dataclass(frozen=True)
class ResultTask:
    """Rows of results as records, and what has become of their sources."""

    stream: Stream
    rows: pa.Table
    lacks: tuple[Lack, ...]
    standing: Standing
    since: Mapping[str, tuple[int, int]]
    """Of every source, where it begins, and how far it had come."""
    number: int = 0
    """When the last of the results left, by which deliveries are numbered; 0: there is none."""
    parts: tuple[Parts, ...] = ()  # in which more rows are
    telling: tuple[Parts, ...] = ()  # in which more are, and only they say what they lack

    def tasks(self, most: int) -> list[ResultTask]:
        """One task: results are few beside the records they are made of."""
        return [self]

    def deliver(self, recipes: Sequence[Recipe]) -> Iterator[Delivery]:
        job, read = self.stream.job or "", Reading("")
        columns = frozenset(self.stream.column(c.name) for c in self.stream.columns)
        blocks: dict[str, list[pa.Table]] = {}
        pieces: list[Reading] = []
        lacks: dict[Lack, None] = {}
        for rows, alone in self._pieces():
            if alone:
                lacks |= lacks_of(rows)
            made, reading = self._computed(rows, recipes)
            pieces.append(reading)
            for shape, block in made.items():
                blocks.setdefault(shape, []).append(block)
        if pieces:
            read = replace(Reading.merge(pieces), columns=columns)
        of = {recipe.shape.id: recipe.shape for recipe in recipes}
        merged = {
            id_: tables[0] if len(tables) == 1 else gather(of[id_], tables)
            for id_, tables in blocks.items()
        }
        # Rows are of no source in particular: what was read comes with the first of them.
        readings: list[Reading] = []
        for source, (first, since) in self.since.items():
            gaps = [*_gaps(self.lacks, source), *self.standing.gaps(source, since)]
            told = dict.fromkeys(gap._replace(what=gap.what or f"in job {job}") for gap in gaps)
            unmade = [Unmade(shape, *gap) for shape in of for gap in told]
            if lacks:
                many = [
                    gap._replace(what=gap.what or f"in job {job}") for gap in _gaps(lacks, source)
                ]
                unmade += joined(_on_panes(shape, gap) for shape in of.values() for gap in many)
            readings.append(
                replace(
                    Reading(source) if readings else read,
                    source=self.stream.before + source,
                    sequence=self.number,
                    first={TIME.column: first},
                    reached={TIME.column: self.standing.upto},
                    unmade=tuple(unmade),
                )
            )
        yield Delivery(merged, tuple(readings))

    def _pieces(self) -> Iterator[tuple[pa.Table, bool]]:
        """The rows, some at a time where they are many; and whether they alone say what lacks."""
        if self.rows.num_rows:
            yield self.rows, False
        for parts in self.parts:
            yield from ((table, False) for table in parts.tables())
        for parts in self.telling:
            yield from ((table, True) for table in parts.tables())

    def _computed(
        self, rows: pa.Table, recipes: Sequence[Recipe]
    ) -> tuple[Mapping[str, pa.Table], Reading]:
        job = self.stream.job or ""
        order = WorkOrder(self.stream.name, job, f"results of {job}", 0, rows.num_rows)
        wanted = Wanted.of(recipe.shape for recipe in recipes)
        chunk = Chunk(fields_of(rows, self.stream.columns), 0, rows.nbytes, {})
        records = parse(chunk, self.stream, wanted, order)
        blocks, reading = compute(records, job, recipes, Clocks())
        return blocks, reading.placed(lambda _: f"results of job {job}")


def _gaps(lacks: Iterable[Lack], source: str) -> Iterator[Gap]:
    """What results lack of a source."""
    for lack in lacks:
        if lack.source in (source, ""):
            yield Gap(lack.end - 1, lack.end, lack.state, lack.what)


def _on_panes(shape: Shape, gap: Gap) -> Unmade:
    """A gap as panes see it: of many sessions that lack something, those in a pane are one."""
    lower, upper, state, what = gap
    pane = shape.pane
    return Unmade(shape.id, lower // pane * pane, -(-upper // pane) * pane, state, what)


RESULT_COLUMNS = ("result_start", "result_end", "result_window", "result_area")


def fields_of(rows: pa.Table, columns: Sequence[Column]) -> pa.Table:
    """The columns of results as records or a table has them, from rows as they are stored."""
    area = pa.chunked_array([chunk.field("area") for chunk in rows["c2"].chunks], pa.float64())
    told = (rows["window_start"], rows["window_end"], rows["window_name"], area)
    named = dict(zip(RESULT_COLUMNS, told, strict=True))
    named |= {name: rows[name] for name in rows.column_names}
    return pa.table({column.name: named[column.name] for column in columns})


class JobResults:
    """What a job has made final, as the next one asks for it."""

    def __init__(self, stream: Stream, follow: bool, taken_us: int = 0) -> None:
        """`taken_us` is when the last results left that were taken before."""
        self._stream = stream
        self._follow = follow
        self._taken_us = taken_us
        self._offered: list[Left] = []
        self._heard: list[Left] | None = []  # until it is known where the job stands
        self._standing = self._told = Standing()
        self._over = False

    @property
    def job(self) -> str:
        """Whose results they are."""
        assert self._stream.job is not None
        return self._stream.job

    def offer(self, *together: Left) -> None:
        """Takes results that became final at once; those that were taken before change nothing."""
        fresh = [left for left in together if left.at_us > self._taken_us]
        self._taken_us = max([self._taken_us, *(left.at_us for left in fresh)])
        self._offered += fresh
        if self._heard is not None:
            self._heard += fresh

    def follow(self, standing: Standing, over: bool = False) -> None:
        """Takes where the job stands now, after all that was offered; `over`: nothing follows.

        What windows lack is offered with them. Of windows from before a restart tables tell, but
        of those without rows it is only known here that something was missing.
        """
        told = self._standing is self._told
        untold = () if told else self._standing.shed
        shed = tuple(sorted({*untold, *standing.shed}))
        lapsed = () if told else self._standing.lapsed
        if self._heard is not None:
            heard = (left.ends(standing.lapsed) for left in self._heard)
            lapsed = tuple(sorted({*standing.lapsed}.difference(*heard)))
            self._heard = None
        self._standing, self._over = replace(standing, shed=shed, lapsed=lapsed), over

    def next(self, request: Request) -> Batch:
        remaining = 0 if self._follow or self._over else 1
        if not self._standing.sources or not (self._offered or self._standing != self._told):
            return Batch(remaining=remaining)
        left, self._offered = self._offered, []
        self._told = self._standing
        tables = [each.rows for each in left]
        rows = pa.concat_tables(tables, promote_options="default") if tables else _NONE
        lacks = tuple(lack for each in left for lack in each.lacks)
        lacking = [(lack.source, lack.end) for lack in lacks]
        lacking += [known for each in left for known in each.lacking.items()]
        before = self._stream.before
        mine = {n: s for n, s in request.sources.items() if n.startswith(before)}
        since = self._since(lacking, {n.removeprefix(before): s for n, s in mine.items()})
        number = self._taken_us if left else 0
        parts = tuple(part for each in left for part in each.parts)
        telling = tuple(part for each in left for part in each.telling)
        told = self._standing, since, number, parts, telling
        work = ResultTask(self._stream, rows, lacks, *told)
        return Batch(work, rows.nbytes, remaining)

    def _since(
        self, lacking: Iterable[tuple[str, int]], known: Mapping[str, Source]
    ) -> dict[str, tuple[int, int]]:
        """Every source, also one that is only known for what it lacks: its first, and how far."""
        first = {name: track.first for name, track in self._standing.sources.items()}
        for source, end in lacking:
            if source:
                first[source] = min(end - 1, first.get(source, end))
        for name, each in known.items():
            first[name] = min(each.first.get(TIME.column, EVER), first.get(name, EVER))
        reached = {name: each.time for name, each in known.items()}
        return {n: (at, NEVER if (r := reached.get(n)) is None else r) for n, at in first.items()}

    def behind(self, sources: Mapping[str, Source]) -> frozenset[str]:
        return frozenset()

    def names(self, now: float) -> frozenset[str]:
        return frozenset()

    def require(self) -> None:
        """There are no files that could be missing."""

    def close(self) -> None:
        """There is nothing to end."""


class Readers:
    """Who reads the results of which job, in one process."""

    def __init__(self, intakes: Iterable[JobResults], loops: Sequence[Loop] = ()) -> None:
        """All `loops` hear of results, for queries that look at the newest."""
        self._loops = loops
        self._of: dict[str, list[JobResults]] = {}
        for intake in intakes:
            self._of.setdefault(intake.job, []).append(intake)

    def hand_on(self, loop: Loop, emission: Emission, over: bool = False) -> None:
        """Gives what a turn has made final to those who read it."""
        by_title: dict[str, list[Departing]] = {}  # versions of a job leave together
        for windows in (left.final for left in emission.windows):
            if windows.scores:
                by_title.setdefault(windows.job.title, []).append(windows)
        for title, several in by_title.items():
            for intake in self._of.get(title, ()):
                intake.offer(*map(Left.of, several))
            for windows in several:
                for other in self._loops:
                    other.hear(title, windows.tables)
        for job in loop.catalog.jobs:
            for intake in self._of.get(job, ()):
                intake.follow(loop.standing(job), over)


def _ends(rows: pa.Table) -> list[int]:
    """Where the windows of stored rows end."""
    ends: list[int] = rows["window_end"].cast(pa.int64()).to_pylist()
    return ends
