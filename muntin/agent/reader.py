"""One stream at one agent: logs that are read, panes that are open, deliveries that wait.

    logs ─► blocks ─► open panes ──over──► deliveries ──final──► gone

Panes that are over leave in the next delivery, those that are open stay. What was counted besides,
as bad rows are, leaves with the next delivery whatever pane it is of. A delivery is kept until the
pipeline has made it final.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from muntin.agent.safe import SafeLog, SafePoint
from muntin.fidelity.scoreboard import Source
from muntin.kernel.block import Block, Sources
from muntin.kernel.compute import Recipe
from muntin.kernel.kinds import kind_of
from muntin.kernel.merge import block_of, merge
from muntin.kernel.reading import Reading
from muntin.logs.events import FileEvents
from muntin.model import TIME, Shape, Stream, Tally
from muntin.run.contracts import Request, TaskWork
from muntin.run.files import LogFiles
from muntin.wire.messages import Limits, Parcel, Plan, pack

TURN_BYTES = 16 << 20  # what is read before anybody else is listened to
_DAY_US = 86_400_000_000
_SILENT_SECONDS = 1.0  # after which panes that are open leave, as nobody writes
_MANY = 16  # blocks of a shape that are worth merging

Horizon = Mapping[str, int]  # by axis, the position before which panes are over


class StreamReader:
    """Reads the logs of one stream for one pipeline, from a safe point on."""

    def __init__(
        self,
        stream: Stream,
        plan: Plan,
        point: SafePoint,
        log: SafeLog,
        most_waiting: int,
        events: FileEvents | None = None,
    ) -> None:
        """`stream` says where the files are; about `most_waiting` bytes of deliveries may wait."""
        self._log = log
        self._most_waiting = most_waiting
        self._files = LogFiles(stream, True, point.positions, TURN_BYTES, events=events)
        self._positions = point.positions
        self._stream = stream
        self.sources = {name: replace(source) for name, source in point.sources.items()}
        self._readings = dict(point.readings)
        self._open = {
            shape: [Block.decode(data, f"open panes of {shape}").table()]
            for shape, data in point.blocks.items()
        }
        self._waiting: deque[tuple[int, bytes]] = deque()
        self.last = point.sequence  # the number of the last delivery
        self.unread = True  # until a look has shown that there is nothing
        self.seen_at = 0.0  # when all that was written had been read, and was in deliveries
        self._read_at = 0.0
        self._notes: list[str] = []
        self._limits: Mapping[str, Limits] = {}
        self._over: Horizon = {}  # how far panes were over at the last cut
        self.plan = plan

    @property
    def waiting_bytes(self) -> int:
        return sum(len(data) for _, data in self._waiting)

    @property
    def is_full(self) -> bool:
        """Whether so much waits for the pipeline that nothing more is read."""
        return self.waiting_bytes >= self._most_waiting

    def install(self, plan: Plan) -> None:
        """Goes on with other jobs: all that was counted for those of before leaves as it is."""
        self._cut(None)
        self.plan = plan

    def limit(self, limits: Mapping[str, Limits]) -> None:
        """Takes how far windows have left."""
        self._limits = limits

    def turn(self, now: float) -> bool:
        """Reads what is there, up to a limit, and cuts deliveries; whether anything was read."""
        if self.is_full:
            return False
        latest = int(now * 1e6) + _DAY_US
        request = Request(now, True, TURN_BYTES, self.sources, self.plan.slack_us, latest)
        batch = self._files.next(request)
        self._notes += batch.notes
        self.unread = bool(batch.remaining)
        if batch.positions is not None:
            self._positions = batch.positions
        self._take({}, [Reading(loss.source, lost=(loss,)) for loss in batch.lost], now)
        if batch.work is not None:
            assert isinstance(batch.work, TaskWork)
            self._read_at = now
            for task in batch.work.tasks(1):
                for delivery in task.deliver(self._recipes()):
                    self._take(delivery.blocks, delivery.readings, now)
        horizon = self._horizon()
        if self._is_over(horizon):
            self._cut(horizon)
        elif self._is_open and not self.unread and now - self._read_at >= _SILENT_SECONDS:
            self._cut(None)
        if not self.unread and not self._is_open:
            self.seen_at = now
        return batch.work is not None

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

    def release(self, final: int) -> None:
        """Lets go of deliveries that the pipeline has made final."""
        while self._waiting and self._waiting[0][0] <= final:
            self._waiting.popleft()
        self._log.forget(final)

    def fetch(self, after: int, upto: int) -> Iterator[bytes]:
        """The deliveries with these numbers."""
        return (data for number, data in self._waiting if after < number <= upto)

    def notes(self) -> tuple[str, ...]:
        """What there is to tell since this was last asked."""
        notes, self._notes = self._notes, []
        return tuple(notes)

    def _recipes(self) -> list[Recipe]:
        limited = []
        for recipe in self.plan.recipes:
            limits = self._limits.get(recipe.shape.id, Limits())
            # A job that has stopped may go on behind what was read here, and then needs it all.
            limited.append(replace(recipe, over=limits.over, needs=limits.needs, until=None))
        return limited

    def _take(
        self, blocks: Mapping[str, pa.Table], readings: Sequence[Reading], now: float
    ) -> None:
        for reading in readings:
            source = self.sources.setdefault(reading.source, Source())
            source.heard_at = now
            source.advance(reading.first, reading.reached, reading.doubt, reading.loose, now)
            known = self._readings.get(reading.source)
            self._readings[reading.source] = reading if known is None else known + reading
        for id_, rows in blocks.items():
            held = self._open.setdefault(id_, [])
            held.append(rows)
            if len(held) > _MANY:
                self._open[id_] = [merge(self._shapes[id_], held)]

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
            if axis not in horizon or not self._open.get(shape.id):
                continue
            before = self._over.get(axis)
            if not kind_of(shape).has_panes or before is None:
                return True
            if horizon[axis] // shape.pane > before // shape.pane:
                return True
        return False

    def _cut(self, horizon: Horizon | None) -> None:
        """Makes a delivery of what is over at the horizon, or of everything; writes it down."""
        blocks: dict[str, pa.Table] = {}
        open_: dict[str, list[pa.Table]] = {}
        for id_, held in self._open.items():
            shape = self._shapes[id_]
            whole = held[0] if len(held) == 1 else merge(shape, held)
            over, rest = _parted(shape, whole, horizon)
            if over.num_rows:
                blocks[id_] = over
            if rest.num_rows:
                open_[id_] = [rest]
        shipped = {name: _over(reading, horizon) for name, reading in self._readings.items()}
        self._readings = {
            name: Reading(name, tallies=rest)
            for name, reading in self._readings.items()
            if (rest := tuple(t for t in reading.tallies if not _is_tally_over(t, horizon)))
        }
        self._open = open_
        self._over = {} if horizon is None else dict(horizon)
        if not blocks and not any(_says_something(reading) for reading in shipped.values()):
            return
        number = self.last + 1
        parcel = Parcel(
            number,
            tuple(replace(reading, sequence=number) for reading in shipped.values()),
            {id_: self._block(id_, rows, number).encode() for id_, rows in blocks.items()},
        )
        self._log.add(self._safe_point(number))
        self._waiting.append((number, pack(parcel)))
        self.last = number

    def _block(self, id_: str, rows: pa.Table, number: int) -> Block:
        records = sum(reading.records for reading in self._readings.values())
        sources = Sources.of(self.sources)
        version = self.plan.recipes[0].version
        return block_of(self._shapes[id_], rows, sources, number, 0, records, version)

    def _safe_point(self, number: int) -> SafePoint:
        return SafePoint(
            number,
            self._positions,
            self.sources,
            self._readings,
            {id_: self._block(id_, rows, number).encode() for id_, (rows,) in self._open.items()},
        )


def _parted(shape: Shape, rows: pa.Table, horizon: Horizon | None) -> tuple[pa.Table, pa.Table]:
    """The rows of panes that are over, and the others. Where there are no panes, all are over."""
    axis = shape.axis.column
    if horizon is None or not kind_of(shape).has_panes:
        return rows, rows.slice(0, 0)
    if axis not in horizon:
        return rows.slice(0, 0), rows
    over = pc.less(rows.column("pane"), horizon[axis] // shape.pane)
    return rows.filter(over), rows.filter(pc.invert(over))


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
    return bool(counted or reading.notes or reading.lost)
