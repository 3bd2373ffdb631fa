"""Jobs on a streaming DataFrame that the user already has.

The frame's batches go through the same loop as log files. Offsets and restarts are Spark's; a
batch that Spark repeats after a restart changes nothing, because its number is in the journal.
Between batches, and when the frame has none, a thread looks at the clock and lets windows leave
that are due.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Lock, Thread

from py4j.protocol import Py4JError
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.query import StreamingQuery

from muntin.errors import InputError, MuntinError, StateError
from muntin.kernel.engine import column_types
from muntin.language.check import check
from muntin.model import Column, Format, Stream
from muntin.run.catalog import Catalog
from muntin.run.loop import POLL_SECONDS, Clock, Loop, Rules
from muntin.schedule.pace import Pace
from muntin.spark.collection import SparkCollection
from muntin.spark.frames import Frames
from muntin.spark.offsets import Offsets
from muntin.store.hold import StateHold
from muntin.store.journal import Journal
from muntin.windows.choice import Sharing

_log = logging.getLogger("muntin")
_QUIET_LOOKS = 3


@dataclass
class _Post:
    """Who works on the state of a stream in this process: one handler, one thread at a time."""

    lock: Lock = field(default_factory=Lock)
    holder: _Handler | None = None


_posts: dict[Path, _Post] = {}


def attach(
    frame: DataFrame,
    text: str,
    state: Path,
    stream: str,
    timestamp: str,
    slack_us: int = 0,
    source: str | None = None,
    idle_seconds: float = 10.0,
    sources: Sequence[str] = (),
    sharing: Sharing = "auto",
    clock: Clock = time.time,
) -> StreamingQuery:
    """Starts the jobs of `text` on a streaming frame that they call `stream`.

    `source` names the column that says which server a record is from, if there is one; `sources`
    are those that are awaited whether or not they have been seen.
    """
    if not frame.isStreaming:
        raise InputError("the DataFrame is not streaming; expected spark.readStream…load()")
    if source is not None and source not in frame.columns:
        raise InputError(f"the DataFrame has no column '{source}'; it has {frame.columns}")
    described = _described(frame, stream, timestamp, slack_us, tuple(sources))
    program = check(text, lambda _: (), {stream: described})
    jobs = program.jobs_of(stream)
    if not jobs:
        raise InputError(f"the text defines no job on stream '{stream}'")
    catalog = Catalog.of(described, jobs)
    if catalog.counts:
        message = "rows of a DataFrame have no order to count them by, or to update states in"
        raise InputError(f"{message}; use windows of time")
    key, offsets = state.resolve() / stream, Offsets(state, stream)
    post = _posts.setdefault(key, _Post())
    with post.lock:  # what an earlier query on the same state has begun comes first
        hold = StateHold(state)
        try:
            collection = SparkCollection(frame.sparkSession.sparkContext)
            journal = Journal(state, catalog, collection, _attached(key.parent))
            if journal.called is not None:
                offsets.take_over(journal.called)
                known = journal.progress.sources
                if source is None and journal.called in known:  # the frame itself is the source
                    known[stream] = known.pop(journal.called)
            journal.notes += offsets.require_with(journal.progress.frame_batch)
            intake = Frames(described, source, journal.progress.frame_batch)
            rules = Rules(True, idle_seconds, sharing)
            loop = Loop(catalog, intake, collection, journal, rules, clock, Pace())
        except BaseException:
            hold.release()
            raise
        _tell(loop.notes())
        post.holder = handler = _Handler(loop, intake, clock, post, hold, offsets)
    writer = frame.writeStream.foreachBatch(handler.take)
    try:
        query = writer.option("checkpointLocation", offsets.location).start()
    except BaseException:
        hold.release()
        post.holder = None
        raise
    handler.query = query
    Thread(target=handler.watch, args=(query,), name=f"muntin {stream}", daemon=True).start()
    return query


def _attached(state: Path) -> list[str]:
    """The streams of a state folder that this process has queries on."""
    holders = ((key, post.holder) for key, post in _posts.items() if key.parent == state)
    active = [(key, holder.query) for key, holder in holders if holder is not None]
    return [key.name for key, query in active if query is None or _is_active(query)]


def _described(
    frame: DataFrame, name: str, timestamp: str, slack_us: int, sources: tuple[str, ...]
) -> Stream:
    """The frame as a stream: Arrow columns, no files."""
    schema = to_arrow_schema(frame.schema, timezone="UTC")
    columns = tuple(Column(n, t) for n, t in column_types(schema.empty_table()).items())
    bare = Stream(name, (), Format("parquet"), columns, timestamp, slack_us)
    declared = f"CREATE STREAM {name} FROM 'frame' FORMAT parquet TIMESTAMP {timestamp}"
    checked = check(declared, lambda _: columns).streams[name]
    return replace(bare, timestamp=checked.timestamp, sources=sources)


class _Handler:
    """What Spark calls with each batch of the frame, and what goes on between batches."""

    def __init__(
        self,
        loop: Loop,
        intake: Frames,
        clock: Clock,
        post: _Post,
        hold: StateHold,
        offsets: Offsets,
    ) -> None:
        self._loop = loop
        self._intake = intake
        self._clock = clock
        self._post = post
        self._hold = hold
        self._offsets = offsets
        self.query: StreamingQuery | None = None  # None: not yet started
        self._quiet_looks = 0  # after the first batch, at a Spark that has nothing to do

    def take(self, frame: DataFrame, number: int) -> None:
        """One turn for each batch; one more first where windows have to leave before it is read."""
        with self._working():
            if not self._intake.offer(frame, number):
                return
            self._offsets.sync(number)
            read = self._intake.batches
            while self._intake.batches == read:
                _tell(self._loop.turn(self._loop.wake_at()).notes)
            self._loop.tidy()

    def watch(self, query: StreamingQuery) -> None:
        """Lets windows leave in time when Spark has no batch, as long as the query goes on."""
        try:
            while _is_active(query):
                try:
                    with self._working():
                        if _is_active(query):
                            _tell(self._leave(query))
                except Exception as error:
                    if _is_active(query):
                        stream = self._loop.catalog.stream.name
                        message = "stream '%s': its query stops: %s"
                        known = isinstance(error, MuntinError)
                        _log.error(message, stream, error, exc_info=None if known else error)
                        with suppress(Py4JError):  # where Spark's notes have gone, it says so too
                            query.stop()
                time.sleep(POLL_SECONDS)
        finally:
            self._hold.release()

    def _leave(self, query: StreamingQuery) -> Sequence[str]:
        """Lets windows leave, once all is read that was written before the first of them.

        That is so with the second batch, or when Spark has looked for data and waits for some. Only
        such a look tells that sources are silent: a Spark that is busy may have their records.
        """
        now, status = self._clock(), query.status
        waits = not status["isTriggerActive"] and str(status["message"]).startswith("Waiting")
        self._quiet_looks += waits
        if self._intake.batches <= 1 and self._quiet_looks < _QUIET_LOOKS:
            return ()
        self._intake.settle()
        return self._loop.leave(now, looked=waits).notes

    @contextmanager
    def _working(self) -> Iterator[None]:
        """Holds the pipeline, which nobody uses again once something has failed halfway."""
        with self._post.lock:
            if self._post.holder is not self:
                stream = self._loop.catalog.stream.name
                raise StateError(f"stream '{stream}': this query has failed, or another took over")
            try:
                with self._hold.in_use():
                    yield
            except BaseException:
                self._post.holder = None
                raise


def _is_active(query: StreamingQuery) -> bool:
    try:
        return query.isActive
    except (Py4JError, OSError):  # Spark has gone, and the query with it
        return False


def _tell(notes: Iterable[str]) -> None:
    for note in notes:
        _log.warning(note)
