"""Which sources there are, how far each has come, and what is still to be expected of it.

A source counts from its first pane on. One that the stream declares counts from the beginning.
One whose files are gone counts up to its last pane; a declared one goes on counting.

While logs are followed, a source that has sent nothing for the idle time is dead, by a look at its
files after that time: a pause of ours is not its silence. If they were touched meanwhile it lives,
and had nothing to say: the time of the touch is its word that nothing from before it follows. A
declared one that was never heard has the idle time from the start of the run.

Panes of which something was lost are never whole. A source of which nothing could be read counts as
lost in all of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from muntin.fidelity.losses import Loss, Unmade
from muntin.fidelity.score import EVER, NEVER, Board, Gap, State, Track
from muntin.fidelity.stream_time import NO_DOUBT, STEP_US, Doubt, after
from muntin.model.records import TIME
from muntin.model.shapes import Sample
from muntin.model.streams import Stream

FAR_BEHIND = 2  # panes


@dataclass
class Source:
    """How far one source has come on each axis, where it began, and when it was last heard."""

    reached: dict[str, int] = field(default_factory=dict)
    first: dict[str, int] = field(default_factory=dict)
    heard_at: float | None = None  # None after a restart, until the clock is known
    wrote_at: float = 0.0  # when the files were changed that were read last
    touched_at: float = 0.0  # when they were changed and nothing came of it
    ended: bool = False
    sequence: int = 0  # of its last delivery
    lost: tuple[Loss, ...] = ()
    doubt: Doubt = NO_DOUBT  # records that do not count for how far it has come
    moved_at: float | None = None  # when it had come so far, at the latest; None after a restart
    unmade: tuple[Unmade, ...] = ()
    answered_at: float = 0.0  # when its agent last did so, if it has one

    def __post_init__(self) -> None:
        self.reached, self.first = dict(self.reached), dict(self.first)

    @property
    def time(self) -> int | None:
        """Its stream time."""
        return self.reached.get(TIME.column)

    @property
    def counted(self) -> dict[str, int]:
        """By axis, the position behind which it has no record, believed or not."""
        ahead = {TIME.column: max((span.high for span in self.doubt.spans), default=NEVER)}
        return {axis: max(at, ahead.get(axis, at)) for axis, at in self.reached.items()}

    def advance(
        self,
        first: Mapping[str, int],
        reached: Mapping[str, int],
        doubt: Doubt | None = None,
        loose: bool = False,
        now: float = 0.0,
    ) -> None:
        """Takes the lowest position of its records, and how far it has come, on each axis.

        With a `doubt`, stream time is taken as it is: a young source may take it back. If that is
        `loose`, it is of some records without order, which are put with those of before here.
        """
        for axis, position in first.items():
            self.first[axis] = min(self.first.get(axis, position), position)
        for axis, position in reached.items():
            if doubt is None or axis != TIME.column:
                self.reached[axis] = max(self.reached.get(axis, position), position)
        if doubt is None:
            return
        known, time = self.reached.get(TIME.column), reached.get(TIME.column)
        if loose:
            if time is not None:  # enough records confirm each other
                known = time if known is None or self.doubt.young else max(known, time)
                self.doubt = Doubt(self.doubt.spans)
            time, doubt = after(known, self.doubt, doubt.spans, STEP_US)
        self.doubt = doubt
        if time is not None and time != self.reached.get(TIME.column):
            self.moved_at = now
            self.reached[TIME.column] = time


@dataclass(frozen=True)
class Moment:
    """When and on what the fate of windows is decided.

    Sources that are `behind` have more to be read at once. `final`: nothing more will come. What
    was written after somebody `looked` for it last is not known, so silence counts up to there.
    """

    now: float
    final: bool = False
    behind: frozenset[str] = frozenset()
    looked: float | None = None  # None: now

    @property
    def seen(self) -> float:
        """Up to when everything that was written has been seen."""
        return self.now if self.looked is None else min(self.looked, self.now)

    @property
    def now_us(self) -> int:
        return int(self.now * 1_000_000)


class Scoreboard:
    """The sources of one stream."""

    def __init__(
        self,
        stream: Stream,
        sources: dict[str, Source],
        follow: bool,
        idle_seconds: float,
    ) -> None:
        self.sources = sources
        self._stream = stream
        self._declared = stream.sources
        self._follow = follow
        self._slacks = [member.slack(follow) for member in stream.members or (stream,)]
        self._idle_seconds = idle_seconds
        self._since: float | None = None  # the first look at the clock
        self._unreadable: Mapping[str, Sequence[Loss]] = {}

    def lose(self, loss: Loss) -> None:
        """Takes what was lost of a source."""
        source = self.sources[loss.source]
        source.lost += (self._bounded(loss),)

    def _bounded(self, loss: Loss) -> Loss:
        """The loss with its bounds, as far as they can be told."""
        source = self.sources.get(loss.source, Source())
        lower = source.first.get(TIME.column, NEVER) if loss.lower is None else loss.lower
        lower = max(NEVER, lower - (self._slack(loss.source, TIME.column) or 0))
        upper = loss.upper if loss.upper > lower else EVER  # times of the file tell nothing
        others = {axis: at for axis, at in source.reached.items() if axis != TIME.column}
        return replace(loss, lower=lower, upper=upper, reached=others)

    def resume(self, name: str, log: str, at: int) -> None:
        """Takes that a file of a source's log was begun, with records from this time on.

        What was lost of that log before is from before that time, or a slack later.
        """
        source, end = self.sources[name], at + (self._slack(name, TIME.column) or 0) + 1
        source.lost = tuple(
            replace(loss, upper=min(loss.upper, end)) if _is_before(loss, log, at) else loss
            for loss in source.lost
        )

    def seen(
        self,
        touched: Mapping[str, float],
        read: Collection[str],
        now: float,
        unreadable: Mapping[str, Sequence[Loss]] | None = None,
    ) -> None:
        """Takes the times at which files of each source were changed, and who was read.

        A change of which nothing came is a sign of life. Sources without files have ended. Of files
        that are there and cannot be read now, all that was not read counts as lost.
        """
        self._unreadable = {
            name: [self._bounded(loss) for loss in losses]
            for name, losses in (unreadable or {}).items()
        }
        for name, source in self.sources.items():
            if self._of_job(name):
                continue  # it has no files
            changed_at = touched.get(name, 0.0)
            if name in read:
                source.wrote_at = changed_at
                if source.moved_at == now and changed_at:
                    source.moved_at = min(changed_at, now)
            elif changed_at > source.wrote_at:
                source.touched_at = min(changed_at, now)
            there = name in touched or name in self._unreadable
            source.ended = self._follow and not there and name not in self._declared

    def awaken(self, now: float) -> None:
        """Silence that nobody has seen begin is counted from the first look at the clock."""
        self._since = now if self._since is None else self._since
        for source in self.sources.values():
            source.heard_at = now if source.heard_at is None else source.heard_at

    def unseen(self, at: Moment) -> list[str]:
        """The declared sources that have not come, and are no longer awaited."""
        if not (at.final or self._follow):
            return []  # its files may be yet to be read
        unheard = (name for name in self._declared if name not in self.sources)
        return [name for name in unheard if not self._is_awaited(name, at)]

    def falls_silent(self, at: Moment, now: float) -> bool:
        """Whether a source that was awaited will not be, if the next look finds nothing of it."""
        then = replace(at, now=now, looked=None)
        names = {*self.sources, *self._declared}
        return any(self._is_awaited(n, at) and not self._is_awaited(n, then) for n in names)

    def read_up_to(self, axis: str, at: Moment) -> int:
        """The position before which nobody has anything left to be read."""
        known = self.sources
        behind = (self._believed(n, axis, at) if n in known else NEVER for n in at.behind)
        return min(behind, default=EVER)

    def horizon(self, axis: str, at: Moment) -> int | None:
        """The position before which no record is awaited, or None while that is unknown."""
        if at.final:
            return EVER
        if axis == TIME.column and None in self._slacks:
            return None
        sources = self.sources
        if any(name not in sources or axis not in sources[name].reached for name in at.behind):
            return None  # its first records are still to be read
        if any(name not in sources and self._is_awaited(name, at) for name in self._declared):
            return None
        known = [n for n, source in sources.items() if axis in source.reached]
        awaited = (n for n in known if self._is_awaited(n, at))
        holding = [self._passed(n, axis, at) - (self._slack(n, axis) or 0) for n in awaited]
        if holding:
            return min(holding)
        if not self._follow or not known:
            return None
        if axis == TIME.column:
            return int(at.seen * 1e6)  # all are silent, and windows of the future stay open
        return self.furthest(axis)

    def furthest(self, axis: str) -> int:
        """How far anybody has come."""
        reached = (source.reached.get(axis, NEVER) for source in self.sources.values())
        return max(reached, default=NEVER)

    def last(self, axis: str) -> int:
        """The position of the last record of all, believed or not."""
        counted = (source.counted.get(axis, NEVER) for source in self.sources.values())
        return max(counted, default=NEVER)

    def board(
        self,
        at: Moment,
        axis: str,
        pane: int,
        sample: Sample | None = None,
        leap: bool = False,
        left_out: Collection[str] = frozenset(),
        shape: str = "",
    ) -> Board:
        """What is known of every source, in panes, and of what they have not made for a shape.

        Sources that are left out without being read count everywhere, as nobody knows where they
        begin.
        """
        names = sorted(
            {*self.sources, *self._declared, *at.behind, *self._unreadable} - {*left_out}
        )
        known = ((name, self._track(name, axis, pane, at)) for name in names)
        tracks = {n: self._made(n, t, shape, pane) for n, t in known if t is not None}
        tracks |= {name: Track(NEVER, rest=State.CANCELLED) for name in left_out}
        return Board(_leaping(tracks) if leap else tracks, sample)

    def unmade(self, shape: str) -> bool:
        """Whether some source has not made all panes of a shape."""
        return any(each.shape == shape for s in self.sources.values() for each in s.unmade)

    def _made(self, name: str, track: Track, shape: str, pane: int) -> Track:
        """What is known of a source, less what it has not made for a shape."""
        unmade = self.sources[name].unmade if name in self.sources else ()
        gaps = [each.gap(pane) for each in unmade if each.shape == shape]
        return replace(track, never=tuple(sorted([*track.never, *gaps]))) if gaps else track

    def _track(self, name: str, axis: str, pane: int, at: Moment) -> Track | None:
        source = self.sources.get(name)
        declared = name in self._declared
        gaps = tuple(sorted(self._gaps(name, axis, pane)))
        if source is None or axis not in source.reached:
            awaited = declared or name in at.behind  # its first records are about to be read
            if gaps and not awaited:
                last = max(gap.upper for gap in gaps)
                return Track(NEVER, EVER if name in self._unreadable else last, never=gaps)
            return Track(NEVER, rest=self._rest(name, at), never=gaps) if awaited else None
        first = NEVER if declared else source.first.get(axis, source.reached[axis]) // pane
        first = min([first, *(gap.lower for gap in gaps)])
        until = EVER
        if source.ended:
            last = self._believed(name, axis, at) // pane
            until = max([last + 1, *(gap.upper for gap in gaps)])
        slack = self._slack(name, axis)
        if at.final or (not self._follow and name not in at.behind and slack is not None):
            whole = EVER
        elif source.ended:
            whole = until
        elif slack is None:
            whole = NEVER
        else:
            whole = (self._passed(name, axis, at) - slack) // pane
        return Track(first, until, whole, self._rest(name, at), gaps)

    def _gaps(self, name: str, axis: str, pane: int) -> Iterator[Gap]:
        """The panes of a source of which something was lost, or cannot be read now."""
        source = self.sources.get(name)
        known = source is not None and axis in source.reached
        for loss in (*(source.lost if source else ()), *self._unreadable.get(name, ())):
            bounds = loss.bounds(axis)
            if name in self._unreadable and not known:
                yield Gap(NEVER, EVER, State.LOST, str(loss))
            elif bounds is not None:
                lower = NEVER if bounds[0] <= NEVER else bounds[0] // pane
                upper = EVER if bounds[1] >= EVER else -(-bounds[1] // pane)
                yield Gap(lower, upper, State.LOST, str(loss))

    def _rest(self, name: str, at: Moment) -> State:
        return State.AWAITED if self._is_awaited(name, at) else State.DEAD

    def _is_awaited(self, name: str, at: Moment) -> bool:
        """Whether more of a source is to be expected."""
        if name in at.behind:
            return True
        if not self._follow or at.final:
            return False
        source = self.sources.get(name)
        if source is None:
            return name in self._declared and self._is_recent(self._since, at)
        if source.ended:
            return False
        if self._of_job(name):
            return True  # it is not dead because its windows are long
        return self._is_recent(source.heard_at, at) or self._is_recent(source.touched_at, at)

    def _is_recent(self, when: float | None, at: Moment) -> bool:
        return when is None or at.seen - when <= self._idle_seconds

    def _passed(self, name: str, axis: str, at: Moment) -> int:
        """How far a source has come, slack aside. Nobody has passed what is yet to happen."""
        source = self.sources[name]
        reached = self._believed(name, axis, at)
        if axis != TIME.column or not self._follow:
            return reached
        silent = source.touched_at - source.wrote_at > self._idle_seconds
        if silent and name not in at.behind:  # or what it wrote is yet to be read
            reached = max(reached, int(source.touched_at * 1_000_000))
        return min(reached, at.now_us)

    def _believed(self, name: str, axis: str, at: Moment) -> int:
        """How far a source has come by its records.

        A record ahead of its stream time is believed when nothing else is to be read of it, and
        it has been silent for about as long as the record is ahead, or is silent now.
        """
        source = self.sources[name]
        reached = source.reached.get(axis, NEVER)
        if axis != TIME.column or not source.doubt.spans:
            return reached
        if name in at.behind:
            return NEVER if source.doubt.young else reached  # its next records may be of before
        explained = EVER
        if self._is_recent(source.heard_at, at) and not source.ended:
            moved_at = at.seen if source.moved_at is None else source.moved_at
            explained = reached + int((at.seen - moved_at) * 1e6) + STEP_US
        limit = min(explained, at.now_us)
        ahead = (time for span in source.doubt.spans for time in (span.low, span.high))
        return max([reached, *(time for time in ahead if time <= limit)])

    def _of_job(self, name: str) -> bool:
        """Whether it is a source of another job, whose results are read."""
        return self._stream.of_source(name).job is not None

    def _slack(self, name: str, axis: str) -> int | None:
        if axis != TIME.column:
            return 0
        return self._stream.of_source(name).slack(self._follow)


def _is_before(loss: Loss, log: str, at: int) -> bool:
    """Whether records from this time on are read from behind a loss."""
    return loss.log == log and (NEVER if loss.lower is None else loss.lower) <= at


def _leaping(tracks: Mapping[str, Track]) -> dict[str, Track]:
    """The tracks with sources that are far behind the middle one no longer awaited."""
    alive = sorted(t.whole for t in tracks.values() if t.rest is State.AWAITED)
    if not alive:
        return dict(tracks)
    middle = alive[len(alive) // 2]
    return {
        name: replace(t, rest=State.LEAPT)
        if t.rest is State.AWAITED and t.whole <= middle - FAR_BEHIND
        else t
        for name, t in tracks.items()
    }
