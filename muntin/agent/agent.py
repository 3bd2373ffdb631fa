"""The agent: one thread reads all streams, and others answer pipelines meanwhile.

Nobody but the thread that reads touches what was read. It meets the others at desks, one a stream.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from threading import Event, Lock
from uuid import uuid4

from muntin.agent.buffers import Buffers
from muntin.agent.desk import Desk
from muntin.agent.folder import open_path, safe_path
from muntin.agent.reader import POLL_SECONDS, StreamReader, restarted
from muntin.agent.safe import SafeLog
from muntin.agent.settings import AgentSettings
from muntin.errors import MuntinError, StateError, WireError
from muntin.loading import Stop
from muntin.logs.events import FileEvents
from muntin.logs.infer import infer_columns
from muntin.model.records import Column
from muntin.model.streams import Stream
from muntin.wire.messages import VERSION, Exchange, Fetch, Heard, Known, News, Plan

_PIPELINE_GONE = 15.0  # seconds after which another pipeline may take a stream over
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0  # seconds until a stream that has failed is tried again


@dataclass
class _Served:
    """A stream as the thread that reads sees it. It has no reader before its first turn."""

    desk: Desk
    reader: StreamReader | None = None
    failed_at: float = 0.0
    failed: str = ""  # the plan with which it did
    pause: float = 0.0  # seconds from then on

    def rests(self, now: float, plan: Plan) -> bool:
        """Whether it has failed with these jobs, and is not to be tried again yet."""
        if self.reader is not None or plan.digest != self.failed:
            return False
        return 0 <= now - self.failed_at < self.pause

    def fail(self, now: float, plan: Plan) -> None:
        """Each time it fails again, it rests for longer."""
        self.close()
        self.failed_at, self.failed = now, plan.digest
        self.pause = min(_LONGEST_PAUSE, max(_FIRST_PAUSE, 2 * self.pause))

    def close(self) -> None:
        if self.reader is not None:
            self.reader.close()
            self.reader = None


class Agent:
    """The streams of one server, each read for one pipeline."""

    def __init__(self, settings: AgentSettings, clock: Callable[[], float] = time.time) -> None:
        self.name = settings.name
        self._identity = uuid4().hex
        self.stop = Stop()
        self._settings = settings
        self._slacks = {stream: settings.slack_us(stream) for stream in settings.streams}
        self._clock = clock
        self._buffers = Buffers(settings.limits.open, open_path(settings.state))
        self._served: dict[str, _Served] = {}
        self._lock = Lock()  # of what follows; nobody holds it for long
        self._desks: dict[str, Desk] = {}
        self._heard: dict[str, float] = {}  # when their pipelines were
        self._asked = Event()
        self._inferring = Lock()

    def run(self) -> None:
        """Reads until somebody says stop, on its share of a core."""
        try:
            while not self.stop.is_set():
                began = time.monotonic(), time.process_time()
                busy = self.step()
                took, used = time.monotonic() - began[0], time.process_time() - began[1]
                rest = max(0.0, used / self._settings.limits.cpu - took)
                self._rest(max(rest, self._until_next(busy)))
        finally:
            for served in self._served.values():
                served.close()

    def _until_next(self, busy: bool) -> float:
        """Seconds in which no stream needs to be read."""
        now = self._clock()
        readers = [served.reader for served in self._served.values() if served.reader is not None]
        return min((r.rest(now) for r in readers), default=0.0 if busy else POLL_SECONDS)

    def step(self) -> bool:
        """Reads what is there of each stream, up to a limit; whether there was anything."""
        return self._attend(reading=True)

    def _rest(self, seconds: float) -> None:
        """Reads nothing for so long, and does what is asked for meanwhile."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0 and not self.stop.is_set():
            if self._asked.wait(min(left, POLL_SECONDS)):
                self._asked.clear()
                self._attend(reading=False)

    def _attend(self, reading: bool) -> bool:
        """Has every stream do what its pipeline asks for, and then read; whether any has read."""
        with self._lock:
            desks = dict(self._desks)
        read = [self._attended(name, desk, reading) for name, desk in desks.items()]
        return any(read)

    def _attended(self, name: str, desk: Desk, reading: bool) -> bool:
        """The same of one stream. If it fails, that is told, and it is tried again later."""
        served, now, orders = self._served.get(name), self._clock(), desk.orders
        if served is None or served.desk is not desk:
            if served is not None:
                served.close()
            served = self._served[name] = _Served(desk)
        if served.rests(now, orders.plan):
            return False
        try:
            reader = served.reader = served.reader or self._opened(name, desk)
            reader.obey(orders)
            desk.stand(reader.standing, orders)
            if not reading:
                return False
            read = reader.turn(now)
            desk.stand(reader.standing, orders)
        except Exception as error:  # whatever a pipeline may have sent: the agent goes on
            served.fail(now, orders.plan)
            desk.fail(_in_a_sentence(error))
            return False
        served.pause = 0.0
        return read

    def _opened(self, name: str, desk: Desk) -> StreamReader:
        """A reader that goes on behind the last delivery, or as near to it as is known."""
        log, last, orders = SafeLog(safe_path(self._settings.state, name)), desk.last, desk.orders
        point = log.after(last) if log.pipeline == desk.pipeline else None
        if point is None:
            if desk.released < last:
                raise StateError(f"it is not known any more from where to go on behind {last}")
            point = restarted(self.name, orders.plan, last, orders.known.counted)
        if desk.released == last:
            log.begin(desk.pipeline, point)
        stream = self._settings.local(orders.plan.stream)
        return StreamReader(
            stream, orders.plan, point, log, desk, self._settings.limits.waiting,
            self._buffers, FileEvents(),
        )  # fmt: skip

    def exchange(self, told: Exchange) -> Heard:
        """Takes what a pipeline says; tells how far deliveries go."""
        if told.version != VERSION:
            raise WireError(
                f"agent '{self.name}' speaks version {VERSION}, the pipeline {told.version}"
            )
        self._settings.require(told.stream)
        known, news = told.known.get(self.name), News(self.name, "")
        if known is not None and known.identity in ("", self._identity):
            with self._lock:
                desk = self._desk_for(told, known)
            if desk is not None:
                if desk.tell(told, known):
                    self._asked.set()
                    desk.await_obedience()
                news = desk.news(self.name, self._clock())
        slack_us = self._slacks[told.stream]
        return Heard((replace(news, identity=self._identity, slack_us=slack_us),))

    def columns(self, stream: Stream) -> tuple[Column, ...]:
        """What this server's logs of a stream look like."""
        # A thread has a connection to DuckDB, and memory with it: one at a time, and not for long.
        with self._inferring, ThreadPoolExecutor(1, "inferring") as thread:
            return thread.submit(infer_columns, self._settings.local(stream)).result()

    def clauses(self, stream: str) -> dict[str, str]:
        """What the settings say of a stream, in the words of SQL."""
        return self._settings.clauses(stream)

    def fetch(self, wanted: Fetch) -> list[bytes]:
        """Deliveries by number: all that are asked for, or none."""
        with self._lock:
            desk = self._desks.get(wanted.stream)
        if desk is None or desk.pipeline != wanted.pipeline:
            raise WireError(f"agent '{self.name}' has nothing for this pipeline")
        parcels = []
        for each in wanted.ranges:
            found = desk.fetch(each.after, each.upto)
            if each.agent != self.name or len(found) < each.upto - each.after:
                raise WireError(
                    f"agent '{self.name}' has no deliveries {each.after + 1} to {each.upto} of "
                    f"'{each.agent}'"
                )
            parcels += found
        return parcels

    def _desk_for(self, told: Exchange, known: Known) -> Desk | None:
        """The desk that serves a pipeline; None if its jobs are not known yet."""
        name, now, plan = told.stream, self._clock(), told.plan
        if plan is not None and plan.stream.name != name:
            raise WireError(f"agent '{self.name}': this is a plan for another stream")
        desk = self._desks.get(name)
        if desk is not None and desk.pipeline != told.pipeline:
            if now - self._heard[name] < _PIPELINE_GONE:
                raise WireError(f"agent '{self.name}': another pipeline reads stream '{name}'")
            desk = None
        if desk is not None and known.final < desk.released:
            desk = None  # an older state of the pipeline: what it asks for is gone
        if desk is not None and told.digest == desk.orders.plan.digest:
            self._heard[name] = now
            return desk
        if plan is None:
            return None
        if not self._settings.limits.allow_code and plan.python is not None:
            raise WireError(
                f"agent '{self.name}' runs no Python, as '{plan.python}' is; start it with "
                "--allow-code, or write the job in SQL"
            )
        self._heard[name] = now
        if desk is None:
            desk = self._desks[name] = Desk(told.pipeline, plan, known)
        return desk


def _in_a_sentence(error: Exception) -> str:
    first = next(iter(str(error).splitlines()), "")
    return first if isinstance(error, MuntinError) else f"{type(error).__name__}: {first}"
