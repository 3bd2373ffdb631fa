"""Jobs on a streaming DataFrame that the user already has.

The frame's batches go through the same loop as log files. Offsets and restarts are Spark's; a
batch that Spark repeats after a restart changes nothing, because its number is in the journal.
Between batches, and when the frame has none, a thread looks at the clock and lets windows leave
that are due.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from threading import Event, Lock, Thread

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.query import StreamingQuery

from muntin.errors import InputError, LostError, MuntinError, OrderError, StateError
from muntin.kernel.engine import column_types
from muntin.language.check import check
from muntin.language.orders import Ordered
from muntin.model.records import Column
from muntin.model.streams import Format, Stream
from muntin.run.derived import Readers
from muntin.run.door import Door, Reply, Running
from muntin.run.kept import Remembered, TakenUp, program_of, taken_up
from muntin.run.loop import POLL_SECONDS, Clock, Loop, Rules
from muntin.run.results import Emission
from muntin.run.steward import Steward
from muntin.schedule.pace import Pace
from muntin.spark.collection import SparkCollection
from muntin.spark.frames import Frames
from muntin.spark.newest import catch_up
from muntin.spark.offsets import Offsets, offsets_in
from muntin.spark.tasks import SparkTasks
from muntin.spark.trouble import WAITS, explained, is_lost
from muntin.store.checkpoint import Checkpoint, block_files
from muntin.store.hold import StateHold
from muntin.store.journal import Journal
from muntin.store.results import Results
from muntin.store.storage import Place, place_of, storage_of
from muntin.windows.choice import Sharing

_log = logging.getLogger("muntin")
_QUIET_LOOKS = 3
_UNORDERED = (
    "rows of a DataFrame have no order to count them by, or to update states in; use windows of "
    "time"
)


@dataclass(frozen=True)
class Control:
    """Where orders come in while a query runs, who hears of results, and what follows its end."""

    door: Door
    hear: Callable[[Emission], None]
    over: Callable[[], None]


@dataclass
class _Post:
    """Who works on the state of a stream in this process: one handler, one thread at a time."""

    lock: Lock = field(default_factory=Lock)
    holder: _Handler | None = None


_posts: dict[tuple[str, str], _Post] = {}  # by the place of a state, and a stream


def attach(
    frame: DataFrame,
    text: str,
    state: Place,
    stream: str,
    timestamp: str,
    slack_us: int = 0,
    source: str | None = None,
    idle_seconds: float = 10.0,
    sources: Sequence[str] = (),
    sharing: Sharing = "auto",
    clock: Clock = time.time,
    control: Callable[[], Control] | None = None,
) -> StreamingQuery:
    """Starts the jobs of `text` on a streaming frame that they call `stream`.

    `source` names the column that says which server a record is from, if there is one; `sources`
    are those that are awaited whether or not they have been seen. Orders that are brought to the
    door of a `control` are taken between two batches; it begins when the state is held.
    """
    if not frame.isStreaming:
        raise InputError("the DataFrame is not streaming; expected spark.readStream…load()")
    if source is not None and source not in frame.columns:
        raise InputError(f"the DataFrame has no column '{source}'; it has {frame.columns}")
    described = _described(frame, stream, timestamp, slack_us, tuple(sources))
    program = check(text, lambda _: (), {stream: described})
    jobs = program.jobs_of(stream)
    joining = next((job for job in program.jobs.values() if job.stream != stream), None)
    if joining is not None:
        message = f"job '{joining.name}' reads '{joining.stream}', but a DataFrame is one stream"
        raise InputError(f"{message}; expected jobs on '{stream}' alone")
    kept = next((s.name for s in program.streams.values() if s.keep is not None), None)
    if kept is not None:
        message = f"stream '{kept}' cannot be retained here, where a DataFrame is the one stream"
        raise InputError(f"{message}; RETAIN behind the WINDOW of a job keeps its panes")
    if not jobs:
        raise InputError(f"the text defines no job on stream '{stream}'")

    def remembered() -> TakenUp:
        saved = Checkpoint(state, stream).peek()
        return taken_up(described, jobs, Remembered() if saved is None else saved.kept)

    if remembered().catalog.counts:
        raise InputError(_UNORDERED)
    post = _posts.setdefault((place_of(state), stream), _Post())
    with post.lock:  # what an earlier query on the same state has begun comes first
        hold = StateHold(state)

        def opened(before: Loop | None) -> tuple[Loop, Frames, Offsets]:
            """What was committed, in place of what was made since."""
            taken = remembered()
            catalog = taken.catalog
            context = frame.sparkSession.sparkContext
            collection = SparkCollection(context, block_files(state, stream))
            tasks = SparkTasks(context)
            journal = Journal(state, catalog, collection, _attached(state), tasks)
            offsets = offsets_in(storage_of(state), stream, journal.called)
            if journal.called is not None:
                known = journal.progress.sources
                if source is None and journal.called in known:  # the frame itself is the source
                    known[stream] = known.pop(journal.called)
            journal.notes += taken.notes
            journal.notes += offsets.require_with(journal.progress.frame_batch)
            intake = Frames(described, source, journal.progress.frame_batch)
            rules = Rules(True, idle_seconds, sharing)
            pace, started = Pace(), None
            if before is not None:
                assert isinstance(before.collection, SparkCollection)
                before.collection.clear()
                pace, started = before.pace, before.started
            loop = Loop(catalog, intake, collection, journal, rules, clock, pace, started)
            catch_up(loop, Results(state))
            return loop, intake, offsets

        try:
            loop, intake, offsets = opened(None)
            begun = None if control is None else control()
        except BaseException:
            hold.release()
            raise
        _tell(loop.notes())
        post.holder = handler = _Handler(loop, intake, opened, clock, post, hold, offsets, begun)
    writer = frame.writeStream.foreachBatch(handler.take)
    try:
        query = writer.option("checkpointLocation", offsets.location).start()
    except BaseException:
        hold.release()
        post.holder = None
        if begun is not None:
            begun.over()
        raise
    handler.query = query
    if begun is not None:
        begun.door.open(*program_of(program, [loop.catalog]))
    Thread(target=handler.watch, args=(query,), name=f"muntin {stream}", daemon=True).start()
    return query


def _attached(state: Place) -> list[str]:
    """The streams of a state that this process has queries on."""
    here = ((name, post.holder) for (at, name), post in _posts.items() if at == place_of(state))
    active = [(name, holder.query) for name, holder in here if holder is not None]
    return [name for name, query in active if query is None or _is_active(query)]


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
        opened: Callable[[Loop], tuple[Loop, Frames, Offsets]],
        clock: Clock,
        post: _Post,
        hold: StateHold,
        offsets: Offsets,
        control: Control | None,
    ) -> None:
        """`opened` takes up what was committed."""
        self._loop = loop
        self._intake = intake
        self._opened = opened
        self._clock = clock
        self._post = post
        self._hold = hold
        self._offsets = offsets
        self._control = control
        self.query: StreamingQuery | None = None  # None: not yet started
        self._stop = Event()  # never set: the query tells when it is over
        self._quiet_looks = 0  # after the first batch, at a Spark that has nothing to do

    def take(self, frame: DataFrame, number: int) -> None:
        """One turn for each batch; one more first where windows have to leave before it is read."""
        with self._working():
            self._repeated(lambda: self._take(frame, number))

    def _take(self, frame: DataFrame, number: int) -> None:
        if not self._intake.offer(frame, number):
            return
        self._offsets.sync(number)
        self._serve()
        read = self._intake.batches
        while self._intake.batches == read:
            turn = self._loop.turn(self._loop.wake_at())
            self._hear(turn.emission)
            _tell(turn.notes)
        self._loop.tidy(math.inf)  # Spark waits, and more batches follow

    def _repeated(self, do: Callable[[], None]) -> None:
        """Does it, from the last commit on once more where executors were lost meanwhile."""
        for attempt, wait in enumerate((0.0, *WAITS)):
            time.sleep(wait)
            try:
                if attempt:
                    # Spark goes on to write its notes where it was told at first.
                    self._loop, self._intake, _ = self._opened(self._loop)
                    self._loop.notes()  # which were told when it began
                do()
                return
            except (LostError, Py4JError, PySparkException) as error:
                lost = isinstance(error, LostError) or is_lost(str(error))
                if attempt == len(WAITS) or not lost:
                    raise
                stream = self._loop.catalog.stream.name
                _tell([f"stream '{stream}' goes on from its last commit: executors were lost"])

    def watch(self, query: StreamingQuery) -> None:
        """Lets windows leave in time when Spark has no batch, as long as the query goes on."""
        try:
            while _is_active(query):
                try:
                    with self._working():
                        if _is_active(query):
                            self._repeated(lambda: self._look(query))
                except Exception as error:
                    if _is_active(query):
                        stream = self._loop.catalog.stream.name
                        message = "stream '%s': its query stops: %s"
                        known = isinstance(error, MuntinError)
                        _log.error(message, stream, error, exc_info=None if known else error)
                        with suppress(Py4JError):  # where Spark's notes have gone, it says so too
                            query.stop()
                self._rest()
        finally:
            # A query that was told to stop is not active any more, and may still hand over a batch.
            with suppress(Py4JError, PySparkException, OSError):
                query.awaitTermination()
            assert isinstance(self._loop.collection, SparkCollection)
            with suppress(Py4JError):  # what it held is not needed any more
                self._loop.collection.clear()
            self._hold.release()
            if self._control is not None:
                self._control.door.close()
                self._control.over()

    def _look(self, query: StreamingQuery) -> None:
        self._serve()
        _tell(self._leave(query))

    @property
    def loops(self) -> list[Loop]:
        return [self._loop]

    def begin(self, stream: Stream) -> Loop:
        raise OrderError(f"stream '{stream.name}' cannot be begun: a DataFrame is one stream")

    def _serve(self) -> None:
        """Does what was ordered meanwhile; whoever calls it holds the pipeline."""
        if self._control is not None:
            steward = Steward(self)

            def check(ordered: Ordered) -> None:
                _require_frame(ordered, self._loop.catalog.stream.name)
                steward.check(ordered)

            def do(ordered: Ordered) -> tuple[Reply, Running]:
                with explained():
                    return steward.do(ordered)

            self._control.door.serve(check, do)
            _tell(self._loop.notes())

    def _hear(self, emission: Emission) -> None:
        """Tells of results: queries that look at the newest, and whoever asks for them."""
        Readers((), [self._loop]).hand_on(self._loop, emission)
        if self._control is not None:
            self._control.hear(emission)

    def _rest(self) -> None:
        """Waits a moment, unless there is an order."""
        if self._control is None:
            time.sleep(POLL_SECONDS)
        else:
            self._control.door.rest(POLL_SECONDS, self._stop)

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
        emission = self._loop.leave(now, looked=waits)
        self._hear(emission)
        return emission.notes

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


def _require_frame(ordered: Ordered, stream: str) -> None:
    """Refuses jobs that a DataFrame cannot have."""
    for order in ordered.orders:
        if order.job.stream != stream:
            message = f"job '{order.job.title}' reads '{order.job.stream}', but a DataFrame is one"
            raise OrderError(f"{message} stream; expected jobs on '{stream}' alone")
        if any(not axis.is_time for job in order.jobs for axis in job.shape.axes):
            raise OrderError(_UNORDERED)


def _is_active(query: StreamingQuery) -> bool:
    try:
        return query.isActive
    except (Py4JError, OSError):  # Spark has gone, and the query with it
        return False


def _tell(notes: Iterable[str]) -> None:
    for note in notes:
        _log.warning(note)
