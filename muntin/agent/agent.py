"""The agent: one thread reads all streams, and answers pipelines between two turns of it.

Nothing else touches what was read, so that an answer is always about whole batches.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable
from concurrent.futures import Future
from threading import Event
from typing import TypeVar

from muntin.agent.buffers import Buffers
from muntin.agent.reader import StreamReader, restarted
from muntin.agent.safe import SafeLog
from muntin.agent.settings import AgentSettings
from muntin.errors import MuntinError, WireError
from muntin.logs.events import FileEvents
from muntin.logs.infer import infer_columns
from muntin.model import Column, Stream
from muntin.wire.messages import VERSION, Exchange, Fetch, Heard, Known, News

POLL_SECONDS = 0.1
_PIPELINE_GONE = 15.0  # seconds after which another pipeline may take a stream over
_Answer = TypeVar("_Answer")


class Agent:
    """The streams of one server, each read for one pipeline."""

    def __init__(self, settings: AgentSettings, clock: Callable[[], float] = time.time) -> None:
        self.name = settings.name
        self.stop = Event()
        self._settings = settings
        self._clock = clock
        self._readers: dict[str, StreamReader] = {}
        self._buffers = Buffers(settings.limits.open, settings.state / "open")
        self._logs: dict[str, SafeLog] = {}
        self._events: list[FileEvents] = []
        self._heard: dict[str, float] = {}
        self._failed: dict[str, tuple[str, str]] = {}  # plans by stream, and what was wrong
        self._asked: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()

    def run(self) -> None:
        """Reads and answers until somebody says stop, on its share of a core."""
        try:
            while not self.stop.is_set():
                began = time.monotonic(), time.process_time()
                busy = self.step()
                took, used = time.monotonic() - began[0], time.process_time() - began[1]
                rest = max(0.0, used / self._settings.limits.cpu - took)
                self._listen(rest if busy else max(rest, POLL_SECONDS))
        finally:
            for events in self._events:
                events.close()

    def step(self) -> bool:
        """Reads what is there of each stream, up to a limit; whether there was anything."""
        read = [self._turn(stream) for stream in list(self._readers)]
        return any(read)

    def _turn(self, stream: str) -> bool:
        """A turn of one stream. One that fails waits for other jobs, and hinders no other."""
        reader = self._readers[stream]
        try:
            return reader.turn(self._clock())
        except MuntinError as error:
            self._failed[stream] = reader.plan.digest, str(error).splitlines()[0]
            self._drop(stream)
            return False

    def _drop(self, stream: str) -> None:
        """Ends the reading of a stream; its safe points stay."""
        self._readers.pop(stream).close()

    def _listen(self, seconds: float) -> None:
        """Answers all that was asked; waits so long for somebody to ask."""
        until = time.monotonic() + seconds
        while True:
            left = until - time.monotonic()
            try:
                answer = self._asked.get(timeout=left) if left > 0 else self._asked.get_nowait()
            except queue.Empty:
                return
            answer()

    def ask(self, question: Callable[[], _Answer], seconds: float = 10.0) -> _Answer:
        """Has the thread that reads answer, from any other."""
        future: Future[_Answer] = Future()

        def answer() -> None:
            try:
                future.set_result(question())
            except BaseException as error:
                future.set_exception(error)

        self._asked.put(answer)
        return future.result(timeout=seconds)

    def exchange(self, told: Exchange) -> Heard:
        """Takes what a pipeline says; tells how far deliveries go. Asked by the reading thread."""
        if told.version != VERSION:
            raise WireError(
                f"agent '{self.name}' speaks version {VERSION}, the pipeline {told.version}"
            )
        self._settings.require(told.stream)
        known = told.known.get(self.name)
        reader = None if known is None else self._reader_for(told, known)
        if known is None or reader is None:
            return Heard((News(self.name, ""),))
        reader.limit(told.limits)
        reader.release(known.final)
        if told.wanted:
            reader.flush(told.wanted)
        news = News(
            self.name,
            reader.plan.digest,
            reader.last,
            reader.waiting_bytes,
            reader.unread,
            reader.seen_at,
            reader.notes(),
        )
        return Heard((news,))

    def columns(self, stream: Stream) -> tuple[Column, ...]:
        """What this server's logs of a stream look like."""
        return infer_columns(self._settings.local(stream))

    def clauses(self, stream: str) -> dict[str, str]:
        """What the settings say of a stream, in the words of SQL."""
        return self._settings.clauses(stream)

    def fetch(self, wanted: Fetch) -> list[bytes]:
        """Deliveries by number: all that are asked for, or none."""
        reader = self._readers.get(wanted.stream)
        if reader is None or self._logs[wanted.stream].pipeline != wanted.pipeline:
            raise WireError(f"agent '{self.name}' has nothing for this pipeline")
        parcels = []
        for each in wanted.ranges:
            found = list(reader.fetch(each.after, each.upto))
            if each.agent != self.name or len(found) < each.upto - each.after:
                raise WireError(
                    f"agent '{self.name}' has no deliveries {each.after + 1} to {each.upto} of "
                    f"'{each.agent}'"
                )
            parcels += found
        return parcels

    def _reader_for(self, told: Exchange, known: Known) -> StreamReader | None:
        """The reader that serves a pipeline, with its jobs; None if these are not known yet."""
        name, now = told.stream, self._clock()
        if told.plan is not None and told.plan.stream.name != name:
            raise WireError(f"agent '{self.name}': this is a plan for another stream")
        log = self._logs.get(name)
        if log is None:
            log = self._logs[name] = SafeLog(self._settings.state / f"{name}.safe")
        reader = self._readers.get(name)
        if log.pipeline not in ("", told.pipeline):
            if reader is not None and now - self._heard[name] < _PIPELINE_GONE:
                raise WireError(f"agent '{self.name}': another pipeline reads stream '{name}'")
            if reader is not None:
                self._drop(name)
            reader = None
        self._heard[name] = now
        if reader is not None and known.final < reader.released:
            self._drop(name)  # an older state of the pipeline: what it asks for is gone
            reader = None
        if reader is not None and reader.plan.digest == told.digest:
            return reader
        digest, reason = self._failed.get(name, ("", ""))
        if digest == told.digest:
            raise WireError(f"agent '{self.name}' cannot go on with stream '{name}': {reason}")
        plan = told.plan
        if plan is None:
            return None
        if not self._settings.limits.allow_code and plan.python is not None:
            raise WireError(
                f"agent '{self.name}' runs no Python, as '{plan.python}' is; start it with "
                "--allow-code, or write the job in SQL"
            )
        if reader is not None:
            reader.install(plan)
            return reader
        point = log.after(known.final) if log.pipeline == told.pipeline else None
        if point is None:
            point = restarted(self.name, plan, known.final, known.counted)
        log.begin(told.pipeline, point)
        stream = self._settings.local(plan.stream)
        events = FileEvents()
        self._events.append(events)
        waiting = self._settings.limits.waiting
        reader = StreamReader(stream, plan, point, log, waiting, self._buffers, events)
        self._readers[name] = reader
        return reader


class Asked:
    """An agent as others see it: the thread that reads answers, from whatever thread they ask."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent

    def exchange(self, told: Exchange) -> Heard:
        return self._agent.ask(lambda: self._agent.exchange(told))

    def columns(self, stream: Stream) -> tuple[Column, ...]:
        return self._agent.ask(lambda: self._agent.columns(stream))

    def clauses(self, stream: str) -> dict[str, str]:
        return self._agent.ask(lambda: self._agent.clauses(stream))

    def fetch(self, wanted: Fetch) -> list[bytes]:
        return self._agent.ask(lambda: self._agent.fetch(wanted))
