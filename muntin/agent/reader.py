"""One stream at one agent: logs that are read, panes that are open, deliveries that wait.

    logs ─► blocks ─► open panes ──over──► deliveries ──final──► gone

Panes that are over leave in the next delivery, those that are open stay. What was counted besides,
as bad rows are, leaves with the next delivery whatever pane it is of. A delivery is kept until the
pipeline has made it final.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc

from muntin.agent.buffers import Buffers
from muntin.agent.changes import Changes
from muntin.agent.desk import Desk, Orders, Standing
from muntin.agent.panes import OpenPanes
from muntin.agent.safe import Rows, SafeLog, SafePoint
from muntin.fidelity import shedding
from muntin.fidelity.losses import Loss, Unmade
from muntin.fidelity.score import NEVER, State
from muntin.fidelity.scoreboard import Source
from muntin.fidelity.shedding import Backlog, Speed, Wanted
from muntin.kernel.block import Block, Sources, decode, regrid
from muntin.kernel.compute import Recipe
from muntin.kernel.kinds import kind_of
from muntin.kernel.merge import block_of
from muntin.kernel.reading import Reading
from muntin.kernel.tables import hold, let_go
from muntin.logs.events import Events
from muntin.model.counts import Tally
from muntin.model.records import TIME
from muntin.model.shapes import Shape
from muntin.model.streams import Stream
from muntin.model.tables import Table, TableVersion
from muntin.run.contracts import AHEAD_US, Request, TaskWork
from muntin.run.files import LogFiles
from muntin.schedule.pace import Measure, Pace
from muntin.windows.ledger import grids_of
from muntin.wire.messages import Departed, Parcel, Plan, pack
from muntin.wire.parcels import NOT_KNOWN, OUTDATED, joined, outdated

TURN_BYTES = 16 << 20  # that are read at once, at most
POLL_SECONDS = 0.1  # after which there is another look at logs
TURN_SECONDS = 0.1  # that reading them takes, as far as it is known: orders wait for so long
_MEASURED_SECONDS = 0.3  # of reading that tell how fast it is
_SILENT_SECONDS = 1.0  # after which panes that are open leave, as nobody writes
_SILENT_REST = 0.25  # between looks at a log that is silent
_AFTER_PANE = 0.02  # when a record that follows it is likely to be there
_MOST_REST = 1.0
_STATE_LOST = "its agent has lost where it had come"

Horizon = Mapping[str, int]  # by axis, the position before which panes are over


@dataclass
class _Measured:
    """What some turns have read, from a time on, and how long that and each shape took."""

    began: float
    bytes: int = 0
    seconds: float = 0.0
    costs: Counter[str] = field(default_factory=Counter)

    def add(self, bytes_: int, seconds: float, costs: Mapping[str, float]) -> None:
        self.bytes += bytes_
        self.seconds += seconds
        self.costs.update(costs)

    def until(self, now: float) -> tuple[int, float, dict[str, float]]:
        """Bytes, all the time that has passed, and the share of each shape of what was used."""
        shares = {id_: cost / self.seconds for id_, cost in self.costs.items()}
        return self.bytes, now - self.began, shares


class StreamReader:
    """Reads the logs of one stream for one pipeline, from a safe point on."""

    def __init__(
        self,
        stream: Stream,
        plan: Plan,
        point: SafePoint,
        log: SafeLog,
        desk: Desk,
        most_waiting: int,
        buffers: Buffers,
        events: Events | None = None,
    ) -> None:
        """`stream` says where the files are; about `most_waiting` bytes may wait at the desk.

        Rows of panes that are open are in `buffers`. The events are closed with the reader.
        """
        self._log = log
        self._desk = desk
        self._most_waiting = most_waiting
        self._events = events
        self._files = LogFiles(stream, True, point.positions, TURN_BYTES, events=events)
        self._positions = point.positions
        self._stream = stream
        self.sources = {name: replace(source) for name, source in point.sources.items()}
        grids = grids_of({recipe.shape.id: recipe.shape for recipe in plan.recipes})
        self._readings = {n: r.on_grids(point.grids, grids) for n, r in point.readings.items()}
        self._buffers = buffers
        self._open: dict[str, OpenPanes] = {}
        self._changes = Changes(buffers)  # since the last safe point
        self._unread = True  # until a look has shown that there is nothing
        self._seen_at: float | None = None
        self._unreadable: tuple[Loss, ...] = ()
        self._read_at = 0.0
        self._looked_at = 0.0  # at all files, as nobody seemed to write
        self._released_at = 0.0  # memory, for others to have it
        self._unread_bytes = 0
        self._speed = Speed()
        self._pace = Pace(Measure(0.0))
        self._measured: _Measured | None = None  # since all turns had something left to read
        self._begins = dict(point.begins)
        self._orders: Orders | None = None
        self._departed: Mapping[str, Departed] = {}
        self._over: Horizon = {}  # how far panes were over at the last cut
        self._held: dict[str, tuple[Table, TableVersion]] = {}  # results that were sent, by path
        self._joined = dict(point.joined)
        self.plan = plan
        known = self._shapes
        for id_ in point.blocks.keys() & known.keys():  # jobs may have gone while nobody was here
            ends = [at for at, _ in outdated(known[id_], self._joined)]
            for data, since in point.blocks[id_]:
                block = Block.decode(data, f"open panes of {id_}")
                rows = block.table()
                if since is not None:
                    rows = rows.filter(pc.greater_equal(rows.column("pane"), since))
                rows = regrid(rows, block.pane, known[id_].pane)
                if ends:
                    rows = rows.filter(pc.less(rows["pane"], min(ends) // known[id_].pane))
                self._add(id_, rows)
        self._learn(plan, known.keys())

    @property
    def is_full(self) -> bool:
        """Whether so much waits for the pipeline that nothing more is read."""
        return self._desk.waiting_bytes >= self._most_waiting

    @property
    def standing(self) -> Standing:
        opens: dict[str, int] = {}
        for reading in self._readings.values():
            for t in reading.tallies:
                end = (t.pane + 1) * t.size
                opens[t.axis] = min(end, opens.get(t.axis, end))
        return Standing(self._unread, self._seen_at, opens, self._unreadable)

    def obey(self, orders: Orders) -> None:
        """Goes by what the pipeline has said last."""
        if orders is self._orders:
            return
        if orders.plan.digest != self.plan.digest:
            self.install(orders.plan)
        self._log.forget(orders.known.final)
        self.let_go(orders.departed)
        if orders.wanted:
            self.flush(orders.wanted)
        self._orders = orders

    def install(self, plan: Plan) -> None:
        """Goes on with other jobs: all that was counted for those of before leaves as it is.

        New ones begin with the next pane: what was read is not read again for them.
        """
        shapes = self._shapes
        if plan.meaning == self.plan.meaning and not any(self._late_for(plan, shapes)):
            self.plan = plan
            self._learn(plan, shapes)
            return
        self._cut(None)
        new = [r.shape for r in plan.recipes if r.shape.id not in shapes]
        self.plan = plan
        self._learn(plan, shapes)
        self._begins = {id_: at for id_, at in self._begins.items() if id_ in self._shapes}
        for name, source in self.sources.items():
            begins, unmade = _begun_behind(new, source.counted, plan.slack_us, NOT_KNOWN)
            self._begins |= begins
            # How far the pipeline had read when it began with them is not known here.
            unmade = tuple(each._replace(lower=NEVER) for each in unmade)
            if unmade:
                self._take({}, [Reading(name, unmade=unmade)], source.heard_at or 0.0)

    def _late_for(
        self, plan: Plan, known: Collection[str]
    ) -> Iterator[tuple[str, Shape, int, int, str]]:
        """What was read behind where results begin to be joined that come only now.

        Of shapes that were known: the source, the shape, from where to where, and whose results.
        """
        for shape in (recipe.shape for recipe in plan.recipes if recipe.shape.id in known):
            for since, job in outdated(shape, self._joined):
                for name, source in self.sources.items():
                    at = source.counted.get(shape.axis.column)
                    if at is not None and at >= since:
                        yield name, shape, since, (at // shape.pane + 1) * shape.pane, job

    def _learn(self, plan: Plan, known: Collection[str]) -> None:
        """Takes the results that records are joined with from now on.

        Panes that some records have been joined with others for are not made.
        """
        for name, shape, since, end, job in list(self._late_for(plan, known)):
            self._begins[shape.id] = max(end, self._begins.get(shape.id, end))
            lower = min(since, end - shape.pane - (plan.slack_us or 0))
            why = OUTDATED.format(job=job)
            unmade = (Unmade(shape.id, lower, end, State.LOST, why),)
            self._take({}, [Reading(name, unmade=unmade)], self.sources[name].heard_at or 0.0)
        self._joined = joined({recipe.shape.id: recipe.shape for recipe in plan.recipes})
        before, self._held = self._held, {}
        for join in (join for recipe in plan.recipes for join in recipe.shape.joins):
            for version in join.table.versions:
                if version.path is not None and version.path in plan.rows:
                    rows = decode(plan.rows[version.path], f"rows of {join.table.name}")
                    hold(join.table, version, rows)
                    self._held[version.path] = join.table, version
        for path in before.keys() - self._held.keys():
            let_go(*before[path])

    def let_go(self, departed: Mapping[str, Departed]) -> None:
        """Takes how far windows have left: what nobody needs any more is dropped at once."""
        self._departed = departed
        # From where on a shape is made says nothing once that is before all that is needed.
        begins = self._begins.items()
        self._begins = {id_: at for id_, at in begins if at > _needed_from(departed, id_)}
        shapes = self._shapes
        for id_, panes in list(self._open.items()):
            needs = _needed_from(departed, id_)
            if needs > NEVER and kind_of(shapes[id_]).has_panes:
                before = needs // shapes[id_].pane
                panes.take(before)
                self._changes.leave(id_, before)
                if not panes:
                    del self._open[id_]

    def close(self) -> None:
        """Lets go of what is open, for others to have the room."""
        for panes in self._open.values():
            panes.drop()
        self._open = {}
        self._changes.drop()
        if self._events is not None:
            self._events.close()

    def turn(self, now: float) -> bool:
        """Reads for a moment what is there, and cuts deliveries; whether anything was read."""
        if self.is_full:
            self._measured = None
            return False
        self._shed(now)
        latest = int(now * 1e6) + AHEAD_US
        most = min(TURN_BYTES, self._pace.most(2 * TURN_SECONDS))
        silent = not self._unread and now - self._read_at >= _SILENT_SECONDS
        thorough = silent and not 0 <= now - self._looked_at < _SILENT_SECONDS
        request = Request(
            now, True, most, self.sources, self.plan.slack_us, latest, thorough=thorough
        )
        batch = self._files.next(request)
        self._looked_at = now if thorough else self._looked_at
        self._unread_bytes, self._unread = batch.remaining, bool(batch.remaining)
        self._unreadable = tuple(
            loss for many in (batch.unreadable or {}).values() for loss in many
        )
        if batch.positions is not None:
            self._positions = batch.positions
        self._take({}, [Reading(loss.source, lost=(loss,)) for loss in batch.lost], now)
        if batch.notes:
            self._take({}, [Reading(self._stream.source or "", notes=batch.notes)], now)
        if batch.work is not None:
            assert isinstance(batch.work, TaskWork)
            self._read_at = now
            costs: Counter[str] = Counter()
            started = time.perf_counter()
            for task in batch.work.tasks(1):
                for delivery in task.deliver(self._recipes()):
                    self._take(delivery.blocks, delivery.readings, now)
                    for reading in delivery.readings:
                        costs.update({id_: cost.seconds for id_, cost in reading.costs.items()})
            took = time.perf_counter() - started
            self._pace.read(batch.bytes, took)
            self._measured = self._measured or _Measured(now)
            self._measured.add(batch.bytes, took, costs)
        if not self._unread:
            self._measured = None
        horizon = self._horizon()
        if self._is_over(horizon):
            self._cut(horizon)
        elif self._is_open and not self._unread and now - self._read_at >= _SILENT_SECONDS:
            self._cut(None)
        if thorough and not self._unread and not self._is_open:
            if not self._files.tail.is_amid_line(now):
                self._seen_at = now
            if self._read_at > self._released_at:
                pa.default_memory_pool().release_unused()
                self._released_at = now
        return batch.work is not None

    def rest(self, now: float) -> float:
        """Seconds in which nothing needs to be read: until a pane ends, as far as clocks tell.

        A few lines take as long to read as thousands, so those of a pane are read together.
        """
        if self.is_full or self._unread:
            return POLL_SECONDS if self.is_full else 0.0
        times = [shape for shape in self._shapes.values() if shape.axis.is_time]
        sizes = {shape.pane for shape in times}
        reached = self._horizon().get(TIME.column)
        if now - self._read_at >= _SILENT_SECONDS:
            return _SILENT_REST
        if reached is None or 0 in sizes or len(times) < len(self._shapes):
            return POLL_SECONDS
        slack = self.plan.slack_us or 0
        over = int(now * 1e6) - slack
        if any(over // size > reached // size for size in sizes):
            return POLL_SECONDS  # the first record behind a pane that has ended is awaited
        end = min((over // size + 1) * size for size in sizes) + slack
        return min(end / 1e6 - now + _AFTER_PANE, _MOST_REST)

    def _shed(self, now: float) -> None:
        """Gives up panes that would be done when they are of no use, and tells of them."""
        if self._measured is not None and now - self._measured.began >= _MEASURED_SECONDS:
            self._speed.take(*self._measured.until(now))
            self._measured = None
        times = [source.time for source in self.sources.values() if source.time is not None]
        if not times or not self._unread_bytes:
            return
        backlog = Backlog(min(times), int(now * 1e6), self._unread_bytes)
        made = [r for r in self.plan.recipes if self._begins.get(r.shape.id, NEVER) <= backlog.at]
        wanted = {r.shape.id: Wanted(r.shape.pane, r.useful) for r in made if r.useful is not None}
        ends, unread = shedding.plan(backlog, self._speed, wanted, len(wanted) < len(made))
        if not ends:
            return
        self._begins |= ends
        lower = backlog.at - (self.plan.slack_us or 0)  # what would come late is left out, too
        unmade = tuple(Unmade(id_, lower, end, State.SHED) for id_, end in ends.items())
        self._take({}, [Reading(self._stream.source or "", unmade=unmade)], now)
        if unread:
            first = min(self._begins[recipe.shape.id] for recipe in self.plan.recipes)
            self._files.skip(first, self.plan.slack_us or 0, self.sources)
        self._cut(self._horizon())

    @property
    def _is_open(self) -> bool:
        """Whether there is anything that was read and is in no delivery."""
        return bool(self._readings or self._open)

    def flush(self, wanted: Horizon) -> None:
        """Cuts a delivery with the panes before these positions, though they are not over."""
        open_ = (tally for reading in self._readings.values() for tally in reading.tallies)
        if any(_is_tally_over(tally, wanted) for tally in open_):
            reached = self._horizon()
            over = {axis: max(at, wanted.get(axis, at)) for axis, at in reached.items()}
            self._cut({**wanted, **over})

    def _recipes(self) -> list[Recipe]:
        limited = []
        for recipe in self.plan.recipes:
            departed = self._departed.get(recipe.shape.id, Departed())
            begins = self._begins.get(recipe.shape.id)
            # A job that has stopped may go on behind what was read here, and then needs it all.
            limited.append(
                replace(
                    recipe,
                    over=departed.over,
                    needs=_later(departed.needs, begins),
                    until=None,
                )
            )
        return limited

    def _take(
        self, blocks: Mapping[str, pa.Table], readings: Sequence[Reading], now: float
    ) -> None:
        for reading in map(self._uncounted, readings):
            source = self.sources.setdefault(reading.source, Source())
            source.heard_at = now
            source.advance(reading.first, reading.reached, reading.doubt, reading.loose, now)
            known = self._readings.get(reading.source)
            self._readings[reading.source] = reading if known is None else known + reading
        for id_, rows in blocks.items():
            self._add(id_, self._begun(id_, rows))

    def _add(self, id_: str, rows: pa.Table) -> None:
        if rows.num_rows:
            if id_ not in self._open:
                self._open[id_] = OpenPanes(self._shapes[id_], self._buffers)
            self._open[id_].add(rows)
            self._changes.add(id_, rows, self._open[id_].size)

    def _begun(self, id_: str, rows: pa.Table) -> pa.Table:
        """The rows of panes that are made; records that last go into several."""
        shape, begins = self._shapes[id_], self._begins.get(id_)
        if begins is None or shape.spans is None:
            return rows
        return rows.filter(pc.greater_equal(rows.column("pane"), begins // shape.pane))

    def _uncounted(self, reading: Reading) -> Reading:
        """The reading without what belongs to panes that are not made any more."""
        if not self._begins:
            return reading
        begins: dict[tuple[str, int], int] = {}  # of shapes with the same panes, the earliest
        for shape in self._shapes.values():
            grid, at = (shape.axis.column, shape.pane), self._begins.get(shape.id, NEVER)
            begins[grid] = min(at, begins.get(grid, at))
        tallies = tuple(
            t for t in reading.tallies if t.pane * t.size >= begins.get((t.axis, t.size), NEVER)
        )
        return replace(reading, tallies=tallies)

    @property
    def _shapes(self) -> dict[str, Shape]:
        return {recipe.shape.id: recipe.shape for recipe in self.plan.recipes}

    def _horizon(self) -> dict[str, int]:
        """By axis, the position that all sources have passed, on time's by the slack."""
        axes = {axis.column for shape in self._shapes.values() for axis in shape.axes}
        slack = {TIME.column: self.plan.slack_us or 0}
        passed = {}
        for axis in axes:
            reached = [s.reached[axis] for s in self.sources.values() if axis in s.reached]
            if reached:
                passed[axis] = min(reached) - slack.get(axis, 0)
        return passed

    def _is_over(self, horizon: Horizon) -> bool:
        """Whether any pane has come to its end since the last cut."""
        for shape in self._shapes.values():
            axis = shape.axis.column
            if axis not in horizon or shape.id not in self._open:
                continue
            before = self._over.get(axis)
            if not kind_of(shape).has_panes or before is None:
                return True
            if horizon[axis] // shape.pane > before // shape.pane:
                return True
        # A job may want none of the records: the pipeline has to hear that they were read.
        tallies = (tally for reading in self._readings.values() for tally in reading.tallies)
        return any(tally.size and _is_tally_over(tally, horizon) for tally in tallies)

    def _cut(self, horizon: Horizon | None) -> None:
        """Makes a delivery of what is over at the horizon, or of everything; writes it down."""
        shapes = self._shapes
        blocks: dict[str, pa.Table] = {}
        before = {id_: _over_before(shapes[id_], horizon) for id_ in self._open}
        for id_, panes in self._open.items():
            over = panes.take(before[id_])
            if over is not None:
                blocks[id_] = over
        self._open = {id_: panes for id_, panes in self._open.items() if panes}
        shipped = {name: _over(reading, horizon) for name, reading in self._readings.items()}
        self._readings = {
            name: Reading(name, tallies=rest)
            for name, reading in self._readings.items()
            if (rest := tuple(t for t in reading.tallies if not _is_tally_over(t, horizon)))
        }
        self._over = {} if horizon is None else dict(horizon)
        if not blocks and not any(_says_something(reading) for reading in shipped.values()):
            return
        number = self._desk.last + 1
        records = sum(reading.records for reading in shipped.values())
        parcel = Parcel(
            {self._stream.source or "": number},
            tuple(replace(reading, sequence=number) for reading in shipped.values()),
            {id_: self._block(id_, rows, number, records).encode() for id_, rows in blocks.items()},
            grids_of(self._shapes),
            self._joined,
        )
        for id_, pane in before.items():
            self._changes.leave(id_, pane)
        self._log.add(self._safe_point(number))
        self._changes.written()
        self._desk.deliver(pack(parcel))

    def _block(self, id_: str, rows: pa.Table, number: int, records: int = 0) -> Block:
        sources = Sources.of(self.sources)
        version = self.plan.recipes[0].version
        return block_of(self._shapes[id_], rows, sources, number, 0, records, version)

    def _safe_point(self, number: int) -> SafePoint:
        """What has changed since the last one; or all, where that is not more to write."""
        whole = self._changes.whole or self._log.is_long
        if whole:
            tables = {id_: panes.rows() for id_, panes in self._open.items()}
        else:
            added = self._changes.added()
            tables = {id_: kind_of(self._shapes[id_]).merge(rows) for id_, rows in added.items()}
        return SafePoint(
            number,
            self._positions,
            self.sources,
            self._readings,
            {id_: (Rows(self._block(id_, t, number).encode()),) for id_, t in tables.items()},
            self._begins,
            grids_of(self._shapes),
            whole,
            {} if whole else self._changes.left,
            self._joined,
        )


def restarted(name: str, plan: Plan, final: int, counted: Mapping[str, int]) -> SafePoint:
    """Where to begin for a pipeline that has counted so far, and from where nobody knows.

    All logs are read again, and what lies before the next pane is left out: of the pane at hand
    some was counted, and the rest is lost.
    """
    shapes = [recipe.shape for recipe in plan.recipes]
    begins, unmade = _begun_behind(shapes, counted, plan.slack_us, _STATE_LOST)
    told = {name: Reading(name, unmade=unmade)} if unmade else {}
    return SafePoint(final, readings=told, begins=begins)


def _begun_behind(
    shapes: Iterable[Shape], counted: Mapping[str, int], slack_us: int | None, why: str
) -> tuple[dict[str, int], tuple[Unmade, ...]]:
    """Where shapes begin behind what was counted, and what is lost of them because of it."""
    begins, unmade = {}, []
    for shape in shapes:
        at = counted.get(shape.axis.column)
        if at is not None:
            size = shape.pane if kind_of(shape).has_panes else 1
            begins[shape.id] = (at // size + 1) * size
            lower = at - (slack_us or 0 if shape.axis.is_time else 0)
            unmade.append(Unmade(shape.id, lower, begins[shape.id], State.LOST, why))
    return begins, tuple(unmade)


def _over_before(shape: Shape, horizon: Horizon | None) -> int | None:
    """The pane before which all are over; None: all are, as where there are no panes."""
    if horizon is None or not kind_of(shape).has_panes:
        return None
    at = horizon.get(shape.axis.column)
    return NEVER if at is None else at // shape.pane


def _needed_from(departed: Mapping[str, Departed], id_: str) -> int:
    """The position before which nobody needs anything of a shape."""
    needs = departed.get(id_, Departed()).needs
    return NEVER if needs is None else needs


def _later(one: int | None, other: int | None) -> int | None:
    return max((at for at in (one, other) if at is not None), default=None)


def _is_tally_over(tally: Tally, horizon: Horizon | None) -> bool:
    if horizon is None or not tally.size:
        return True
    return tally.axis in horizon and tally.pane < horizon[tally.axis] // tally.size


def _over(reading: Reading, horizon: Horizon | None) -> Reading:
    """The reading with the tallies of panes that are over."""
    tallies = tuple(tally for tally in reading.tallies if _is_tally_over(tally, horizon))
    return replace(reading, tallies=tallies)


def _says_something(reading: Reading) -> bool:
    counted = reading.records or reading.bad or reading.tallies
    return bool(counted or reading.notes or reading.lost or reading.unmade)
