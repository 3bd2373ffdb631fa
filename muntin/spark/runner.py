"""Runs a program on Spark: batch after batch, each committed before the next.

The loop is ours rather than a streaming query's, because positions, panes and results then
become final in one commit, and a batch costs no planning by Spark.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from threading import Event
from typing import Any

from pyspark import SparkContext

from muntin.errors import LostError, SparkError
from muntin.language.orders import Ordered
from muntin.logs.events import FileEvents
from muntin.logs.tail import BATCH_BYTES
from muntin.model.jobs import Job, Program
from muntin.model.streams import Stream
from muntin.run.agents import Agents
from muntin.run.derived import JobResults, Left, Readers
from muntin.run.door import Door, Reply, Running
from muntin.run.inline import ignore
from muntin.run.kept import Remembered, begun_stream, encoded, program_of, taken_up
from muntin.run.loop import POLL_SECONDS, Clock, Loop, Rules, Turn
from muntin.run.members import Readable, files_of, results_in
from muntin.run.progress import Progress
from muntin.run.results import Emission
from muntin.run.steward import Steward
from muntin.schedule import recovery
from muntin.schedule.pace import Pace, rest_after
from muntin.spark import internals
from muntin.spark.collection import SparkCollection
from muntin.spark.executors import Executors
from muntin.spark.master import is_local
from muntin.spark.newest import catch_up
from muntin.spark.tasks import SparkTasks
from muntin.spark.trouble import WAITS, explained
from muntin.store.checkpoint import Checkpoint, block_files, saved_in
from muntin.store.hold import StateHold, locked
from muntin.store.journal import Journal
from muntin.store.results import Results
from muntin.store.settling import Tasks
from muntin.store.storage import Place
from muntin.windows.choice import Sharing
from muntin.wire.keys import Keys


@dataclass(frozen=True)
class Settings:
    """How to run. `follow` waits for more; otherwise the input is finite."""

    state: Place
    follow: bool
    idle_seconds: float = 10.0
    batch_bytes: int = BATCH_BYTES
    seconds: float | None = None
    sharing: Sharing = "auto"
    keys: Keys | None = None  # for agents
    recovery: float = recovery.DEFAULT  # seconds, after the loss of an executor


@dataclass
class Summary:
    """What a run came to. Seconds are from the first read to the last commit."""

    records: int = 0
    bytes: int = 0
    bad: int = 0
    windows: int = 0
    seconds: float = 0.0
    late: dict[str, int] = field(default_factory=dict)
    slack_us: dict[str, int] = field(default_factory=dict)
    open: dict[str, tuple[int, int]] = field(default_factory=dict)  # job -> records, windows
    stopped: list[str] = field(default_factory=list)  # jobs that had too many errors
    resumed: bool = False  # whether an earlier run had read anything

    @property
    def mb_per_second(self) -> float:
        return self.bytes / 1e6 / self.seconds if self.seconds else 0.0

    def to_json(self) -> dict[str, Any]:
        return {
            "records": self.records,
            "bytes": self.bytes,
            "bad": self.bad,
            "late": sum(self.late.values()),
            "windows": self.windows,
            "seconds": round(self.seconds, 3),
            "mb_per_second": round(self.mb_per_second, 1),
            "late_by_job": self.late,
            "slack_needed_us": self.slack_us,
            "stopped": self.stopped,
            "open_by_job": {job: records for job, (records, _) in self.open.items()},
        }


class StreamRun:
    """One stream of a program, from the logs where they are to its tables."""

    def __init__(
        self,
        context: SparkContext,
        stream: Stream,
        jobs: Sequence[Job],
        settings: Settings,
        clock: Clock = time.time,
        others: Iterable[str] = (),
        begun: bool = False,
    ) -> None:
        """`others` are the streams of the program beside this one.

        One that was `begun` while the program runs is in no file.
        """
        self._context = context
        self._stream = stream
        self._jobs = jobs
        self._settings = settings
        self._clock = clock
        self._others = others
        self._begun = begun
        self._results = Results(settings.state)
        self._events: list[FileEvents] = []
        self.intake: Readable
        self.attempts = 0  # to go on from the last commit, since one has led to something
        self._lost: tuple[float, int] | None = None  # when something was, and all read by then
        self._open(Pace(), None)
        self._before = _totals(self.loop.progress)
        self._late_before = {name: late.records for name, late in self.loop.progress.late.items()}

    def _open(self, pace: Pace, started: float | None) -> None:
        """Takes up what was committed."""
        stream, settings = self._stream, self._settings
        saved = Checkpoint(settings.state, stream.name).peek()
        begun = encoded(stream) if self._begun else ""
        known = saved.kept if saved is not None else Remembered(stream=begun)
        taken = taken_up(stream, self._jobs, known)
        catalog, follow = taken.catalog, settings.follow
        files, once = block_files(settings.state, stream.name), not catalog.in_order(follow)
        self._collection = SparkCollection(self._context, files, once)
        tasks = SparkTasks(self._context)
        journal = Journal(settings.state, catalog, self._collection, self._others, tasks)
        journal.notes += taken.notes
        self._journal, measured = journal, journal.progress.recovery
        measured.bound, measured.slower = settings.recovery, self._slower()
        sharing = settings.sharing
        if stream.agents:
            self.intake, sharing = (
                Agents(stream, journal.progress.pipeline, settings.keys, settings.idle_seconds),
                "shared",
            )
        else:
            self.intake = files_of(
                stream,
                follow,
                journal.positions,
                settings.batch_bytes,
                lanes=2 * self._collection.groups,  # for tasks of about the same size
                events=self._watch if follow else None,
                results=lambda of: _results(of, settings, journal.progress, tasks),
            )
        rules = Rules(follow, settings.idle_seconds, sharing)
        self.loop = Loop(
            catalog, self.intake, self._collection, journal, rules, self._clock, pace, started
        )
        self._committed = journal.batch
        if journal.batch >= 0:
            self.catch_up()

    def again(self) -> None:
        """Goes on from the last commit; what was made since is forgotten, and read again."""
        self.attempts += 1
        self.close()
        self._open(self.loop.pace, self.loop.started)
        self.loop.notes()  # which were told when it began

    def lose(self) -> None:
        """Notes that something was lost just now."""
        self._lost = self._lost or (time.monotonic(), self.loop.progress.bytes)

    @property
    def stands(self) -> bool:
        """Whether it is where it was before something was lost."""
        return self._lost is None

    def stand(self) -> list[str]:
        """Says how long it took to stand again where it stood, once it does."""
        # While logs are followed, all is committed with every turn.
        if self._settings.follow or self._journal.batch > self._committed:
            self.attempts, self._committed = 0, self._journal.batch
        if self._lost is None or self.loop.progress.bytes < self._lost[1]:
            return []
        seconds, self._lost = time.monotonic() - self._lost[0], None
        known = self.loop.progress.recovery
        known.lost(seconds)
        where = f"stream '{self._stream.name}' stands where it stood"
        told = f"{where}, {seconds:.1f} s after the loss was noticed"
        if seconds <= known.bound:
            return [told]
        size = f"{known.saved / 1e6:,.0f} MB of blocks had to be read back"
        return [f"{told}, which is longer than --recovery {known.bound:g}s allows; {size}"]

    def _slower(self) -> float:
        """How much longer all takes with one executor less; nobody else is there of one."""
        count = 1 if is_local(self._context.master) else internals.executors(self._context)
        return count / (count - 1) if count > 1 else 1.0

    def add_to(self, summary: Summary) -> None:
        """What this run has done."""
        progress = self.loop.progress
        done = [now - before for now, before in zip(_totals(progress), self._before, strict=True)]
        summary.windows += done[3]
        if not isinstance(self.intake, JobResults):  # their records were read elsewhere
            summary.records += done[0]
            summary.bytes += done[1]
            summary.bad += done[2]
        for name, late in progress.late.items():
            lost = late.records - self._late_before.get(name, 0)
            if lost:
                summary.late[name] = lost
                summary.slack_us[name] = late.slack_us
        for name in self.loop.catalog.jobs:
            records, windows = self.loop.waiting(name)
            if records:
                summary.open[name] = records, windows
        summary.stopped += self.loop.stopped
        summary.resumed |= any(self._before)

    def catch_up(self) -> None:
        """Has jobs know the newest results of others, as far as they are stored."""
        catch_up(self.loop, self._results)

    def _watch(self) -> FileEvents:
        self._events.append(FileEvents())
        return self._events[-1]

    def close(self) -> None:
        """Lets go of all it holds; once more does no harm."""
        self.intake.close()
        while self._events:
            self._events.pop().close()
        self._collection.clear()


class SparkRun:
    """All streams of a program, in turns, until the input ends or somebody says stop."""

    def __init__(
        self,
        program: Program,
        context: SparkContext,
        settings: Settings,
        stop: Event | None = None,
        clock: Clock = time.time,
        hold: StateHold | None = None,
        door: Door | None = None,
        note: Callable[[str], None] = ignore,
    ) -> None:
        """Who holds the state folder already says so; otherwise it is held from the first turn.

        Orders that are brought to the door are taken between two turns, while logs are followed.
        `note` is told, by another thread, what a turn that takes long waits for.
        """
        self._note = note
        self._hold = hold
        self._door = door
        self._clock = clock
        self._program = program
        self._context = context
        self._settings = settings
        self.stop = stop or Event()
        self.summary = Summary()

    def turns(self) -> Iterator[Turn]:
        executors = Executors(self._context, self.stop, self._note)
        with ExitStack() as stack:
            hold = self._hold or stack.enter_context(locked(self._settings.state))
            stack.enter_context(executors.watched())
            streams = _Streams(lambda stream: self._open(stream, stack))
            for stream in self._streams():
                streams.begin(stream)
            runs = streams.runs
            if self._door is not None:
                stack.callback(self._door.close)
                self._door.open(*program_of(self._program, [run.loop.catalog for run in runs]))
            started = time.monotonic()
            try:
                for turn in self._turns(streams, started, hold, executors):
                    if turn.bytes or turn.emission.windows:
                        self.summary.seconds = time.monotonic() - started
                    yield turn
            except SparkError:
                if not (executors.gave_up and self.stop.is_set()):
                    raise
            finally:
                for run in runs:
                    run.add_to(self.summary)

    def _streams(self) -> list[Stream]:
        """Those that are read, as the program says or by orders to an earlier run."""
        known = {name: saved.kept for name, saved in saved_in(self._settings.state).items()}
        kept = {name for name, each in known.items() if each.jobs or each.paused}
        streams = dict(self._program.streams)
        for name, each in known.items():
            if (begun := begun_stream(each)) is not None:
                streams.setdefault(name, begun)
        return [s for s in streams.values() if self._program.runs(s.name) or s.name in kept]

    def _open(self, stream: Stream, stack: ExitStack) -> StreamRun:
        jobs = self._program.jobs_of(stream.name)
        others = self._program.streams
        begun = stream.name not in others
        run = StreamRun(
            self._context, stream, jobs, self._settings, self._clock, others, begun
        )  # fmt: skip
        stack.callback(run.close)
        if not self._settings.follow:
            run.intake.require()
        return run

    def _turns(
        self, streams: _Streams, started: float, hold: StateHold, executors: Executors
    ) -> Iterator[Turn]:
        settings, steward, runs = self._settings, Steward(streams), list(streams.runs)

        @contextmanager
        def working() -> Iterator[None]:
            with hold.in_use(), executors.busy(), explained(settings.state):
                yield

        def does(ordered: Ordered) -> tuple[Reply, Running]:
            with explained(settings.state):  # within the door, which keeps an order that is lost
                return steward.do(ordered)

        over_by_now: list[StreamRun] = []  # of finite input
        while (runs or self._door is not None) and not self.stop.is_set():
            stand = all(run.stands for run in runs)  # first of all, on whoever is left
            if settings.follow and stand and executors.have_come(self._due_in(runs)):
                come = LostError("executors have come, to spread it over", "")
                for run in runs:
                    yield self._again(run, come, working)
            if self._door is not None and settings.follow:
                try:
                    with working():
                        served = self._door.serve(steward.check, does)
                    for run in streams.runs if served else ():
                        run.catch_up()
                except LostError as lost:  # whose it was is not known
                    for run in streams.runs:
                        yield self._again(run, lost, working)
                runs = list(streams.runs)
            begun = time.monotonic()
            taken: list[tuple[StreamRun, Turn]] = []
            for run in runs:
                try:
                    with working():
                        others = [other for other in runs if other is not run]
                        turn = run.loop.turn(_first(runs), _first(others))
                    turn = replace(turn, notes=[*turn.notes, *run.stand()])
                except LostError as lost:
                    run.lose()
                    turn = self._again(run, lost, working)
                    for other in over_by_now:  # which it has to be told again
                        streams.readers.hand_on(other.loop, Emission(), True)
                over = not (settings.follow or turn.remaining)
                over_by_now += [run] if over else []
                streams.readers.hand_on(run.loop, turn.emission, over)
                taken.append((run, turn))
                yield turn  # it is final, and may not wait for a stream that may fail
            behind = [run for run, turn in taken if turn.remaining]
            runs = runs if settings.follow else behind
            if settings.seconds is not None and time.monotonic() - started >= settings.seconds:
                return
            if settings.follow and not behind:
                rest = POLL_SECONDS
                if any(turn.bytes for _, turn in taken):
                    rest = rest_after(time.monotonic() - begun, POLL_SECONDS)
                until = time.monotonic() + self._rest_of(runs, rest)
                for run in runs:
                    try:
                        with working():
                            run.loop.tidy(until - time.monotonic())
                    except LostError as lost:
                        run.lose()
                        yield self._again(run, lost, working)
                self._rest(max(0.0, until - time.monotonic()))

    def _rest_of(self, runs: Sequence[StreamRun], rest: float) -> float:
        """How long to rest: so many seconds, or until windows have to set off, or are over."""
        due_in = self._due_in(runs)
        takes = max((run.loop.pace.batch.high for run in runs), default=0.0)
        rest = min((run.loop.rest(rest, takes) for run in runs), default=rest)
        return max(0.0, rest if due_in is None else min(rest, due_in))

    def _due_in(self, runs: Sequence[StreamRun]) -> float | None:
        """Seconds until the next windows have to set off."""
        wake_at = _first(runs)
        return None if wake_at is None else wake_at - self._clock()

    def _again(
        self, run: StreamRun, lost: LostError, working: Callable[[], AbstractContextManager[None]]
    ) -> Turn:
        """Has a stream go on from its last commit, which may take some attempts."""
        why = lost.why
        while not self.stop.is_set():
            if run.attempts == len(WAITS):
                raise lost
            self.stop.wait(WAITS[run.attempts])
            try:
                with working():
                    run.again()
                break
            except LostError as another:
                lost = another
        catalog, progress = run.loop.catalog, run.loop.progress
        note = f"stream '{catalog.stream.name}' goes on from its last commit: {why}"
        # There is something to read: at least what was read since then.
        return Turn(catalog.stream.name, Emission(), 0, 1, progress.records, [note])

    def _rest(self, seconds: float) -> None:
        """Waits for so long, unless somebody says stop or brings an order."""
        if self._door is None:
            self.stop.wait(seconds)
        else:
            self._door.rest(seconds, self.stop)


class _Streams:
    """The streams that are read; orders may begin others."""

    def __init__(self, open_: Callable[[Stream], StreamRun]) -> None:
        self._open = open_
        self.runs: list[StreamRun] = []

    @property
    def loops(self) -> list[Loop]:
        return [run.loop for run in self.runs]

    @property
    def readers(self) -> Readers:
        """Who reads results of whom."""
        intakes = [each for run in self.runs for each in results_in(run.intake)]
        return Readers(intakes, self.loops)

    def begin(self, stream: Stream) -> Loop:
        self.runs.append(self._open(stream))
        return self.runs[-1].loop


def _results(stream: Stream, settings: Settings, progress: Progress, tasks: Tasks) -> JobResults:
    """The results of a job, from those on that were not taken before."""
    mine = (s for name, s in progress.sources.items() if name.startswith(stream.before))
    taken_us = max((source.sequence for source in mine), default=0)
    intake, results = JobResults(stream, settings.follow, taken_us), Results(settings.state)
    if results.has(intake.job):
        untaken = results.untaken(intake.job, taken_us, tasks)
        if untaken is not None:
            intake.offer(Left.stored(untaken))
    return intake


def _first(runs: Sequence[StreamRun]) -> float | None:
    """When the next windows of any stream have to set off: streams take turns."""
    return min((at for run in runs if (at := run.loop.wake_at()) is not None), default=None)


def _totals(progress: Progress) -> tuple[int, int, int, int]:
    return progress.records, progress.bytes, progress.bad, progress.windows
