"""What a job is computed over: its windows on one axis, or sessions, and the bounds of both."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from difflib import get_close_matches

from sqlglot import exp

from muntin.durations import UNITS, microseconds, whole
from muntin.errors import LanguageError
from muntin.language.calendars import time_of, units_of
from muntin.language.calls import check_one_record
from muntin.language.dialect import is_count
from muntin.language.scope import Scope, is_whole
from muntin.language.script import Script
from muntin.model.records import TIME, Axis
from muntin.model.streams import Stream
from muntin.units import (
    COUNTS,
    LAST_US,
    counted,
    describe,
    describe_extent,
    describe_sequence,
    in_calendar,
    is_unit,
    usual_offset,
)
from muntin.windows.spec import MOST_PANES, WindowSpec, on_one_grid

_LONGEST_US = 36_525 * 86_400_000_000
_MOST_WINDOWS = 1_000_000
# No sum of a position and a window leaves 64 bits.
_LONGEST_COUNT = 10**18
_FURTHEST = 4 * 10**18


@dataclass(frozen=True)
class Over:
    """Windows of panes of one size, or sessions with a gap, within `[begin, until)`."""

    windows: tuple[WindowSpec, ...] = ()
    axis: Axis = TIME
    gap: int | None = None
    begin: int | None = None
    until: int | None = None
    beside: bool = False  # whether the job has other windows, too

    @property
    def hint(self) -> str:
        """What to do about sessions for which something is refused."""
        return "; give the sessions a job of their own" if self.beside else ""


def overs_of(script: Script, stream: Stream, job: exp.Expr) -> tuple[Over, ...]:
    """What the clauses from WINDOW on say: all windows of panes first, then each of the sessions.

    There is at least one.
    """
    kinds = job.args.get("windows")
    if not kinds:
        message = "expected WINDOW and its length, for example WINDOW 5 MINUTES EVERY 1 MINUTE"
        raise LanguageError(message, script.text, int(job.args["end"]) + 1)
    read = job.args["query"].args.get("from_")
    alias = read.this.alias if read is not None else ""
    clauses = _Clauses(script, Scope(script, stream, stream.columns, alias))
    fixed = [kind for kind in kinds if not kind.args.get("gap")]
    overs = [clauses.windows(fixed, job.args.get("pane"))] if fixed else []
    overs += clauses.sessions([kind for kind in kinds if kind.args.get("gap")])
    if not overs[0].axis.is_time and len(overs) > 1:
        message = f"sessions are of time, but this window is {_named(overs[0].axis)}"
        raise script.error(f"{message}; make it a job of its own", fixed[0])
    if not fixed and job.args.get("pane"):
        raise script.error("sessions have no panes", job.args["pane"])
    overs = [replace(over, beside=len(overs) > 1) for over in overs]
    return tuple(clauses.bounded(over, job) for over in overs)


def duration_of(script: Script, node: exp.Expr) -> int:
    """A length of time in microseconds."""
    try:
        return microseconds(node.args["this"], node.args["unit"])
    except ValueError as error:
        raise script.error(str(error), node) from error


class _Clauses:
    def __init__(self, script: Script, scope: Scope) -> None:
        self._script = script
        self._scope = scope

    def sessions(self, kinds: list[exp.Expr]) -> list[Over]:
        overs: list[Over] = []
        for kind in kinds:
            gap = kind.args["gap"]
            if is_count(gap):
                axis = _named(self._axis(gap))
                message = f"the gap of a session is a length of time, but this is {axis}"
                raise self._script.error(message, gap)
            over = Over(gap=self._length(gap, "the gap of a session"))
            if over in overs:
                raise self._script.error("this window is there twice", kind)
            overs.append(over)
        return overs

    def windows(self, kinds: list[exp.Expr], pane: exp.Expr | None) -> Over:
        axis = self._axis(kinds[0].args["range"])
        specs: list[WindowSpec] = []
        for kind in kinds:
            own = self._axis(kind.args["range"])
            if own != axis:
                message = f"the windows of a job are all of one kind; the first is {_named(axis)}"
                raise self._script.error(f"{message}, this one {_named(own)}", kind)
            spec = self._window(axis, kind)
            if any(spec.key == other.key for other in specs):
                raise self._script.error("this window is there twice", kind)
            specs.append(spec)
        divisor = self._pane(axis, specs, pane)
        fitted = on_one_grid(specs, divisor)
        self._check_grid(axis, fitted, kinds[-1], pane)
        return Over(fitted, axis)

    def _window(self, axis: Axis, kind: exp.Expr) -> WindowSpec:
        length, every = kind.args["range"], kind.args.get("slide") or kind.args["range"]
        step, start = kind.args.get("step"), kind.args.get("start")
        for word, node in (("EVERY", every), ("CUMULATE", step)):
            if node is not None and self._axis(node) != axis:
                message = f"{word} is {_named(self._axis(node))}, but the window {_named(axis)}"
                raise self._script.error(message, node)
        if step is not None and kind.args.get("slide"):
            message = "windows that CUMULATE follow each other; leave out EVERY"
            raise self._script.error(message, every)
        if not axis.is_time and (zone := kind.args.get("zone")) is not None:
            message = f"AT TIME ZONE is for windows of time, but this one is {_named(axis)}"
            raise self._script.error(message, zone)
        if axis.is_time and (units := units_of(self._script, kind)) is not None:
            return units
        extent = self._extent(axis, length, "a window")
        slide = self._extent(axis, every, "EVERY")
        by = 0 if step is None else self._extent(axis, step, "CUMULATE")
        if by and extent % by:
            message = f"CUMULATE must divide the window, {describe_extent(axis, extent)}"
            raise self._script.error(message, step)
        many = extent // (by or slide)
        if many > _MOST_WINDOWS:
            message = f"each record would be in {many:,} windows"
            raise self._script.error(
                f"{message}; at most {_MOST_WINDOWS:,} are possible", step or every
            )
        offset = usual_offset(slide) if axis.is_time else 0
        if start is not None:
            offset = self._position(axis, start, "FROM")
        return WindowSpec(extent, slide, offset % slide, step=by if by < extent else 0)

    def _pane(self, axis: Axis, specs: list[WindowSpec], node: exp.Expr | None) -> int:
        if node is None:
            return 0
        if self._axis(node) != axis:
            message = f"PANE is {_named(self._axis(node))}, but the window {_named(axis)}"
            raise self._script.error(message, node)
        pane = self._extent(axis, node, "PANE")
        largest = on_one_grid(specs)[0].pane
        if largest % pane:
            fitting = describe_extent(axis, largest)
            message = f"PANE must divide {fitting}, the largest pane that fits all windows"
            raise self._script.error(message, node)
        return pane

    def _check_grid(
        self, axis: Axis, specs: tuple[WindowSpec, ...], last: exp.Expr, pane: exp.Expr | None
    ) -> None:
        longest = max(specs, key=lambda spec: spec.length)
        if longest.length <= MOST_PANES:
            return
        few = "the windows fit one grid only if" if len(specs) > 1 else "this fits a grid only if"
        length, size = (describe_extent(axis, n) for n in (longest.range, longest.pane))
        message = f"a window of {length} has {longest.length:,} panes of {size}"
        limit = f"at most {MOST_PANES:,} are possible"
        if pane is not None:
            raise self._script.error(f"{message}; {limit}", pane)
        hint = "choose lengths and FROM with a larger common divisor"
        raise self._script.error(f"{few} {message}; {limit}; {hint}", last)

    def bounded(self, over: Over, job: exp.Expr) -> Over:
        begin, extent = job.args.get("begin"), job.args.get("extent")
        if begin is None and extent is None:
            return over
        if begin is None:
            raise self._script.error("EXTENT needs BEGIN, from where it is counted", extent)
        first = self._position(over.axis, begin, "BEGIN")
        if extent is None:
            return replace(over, begin=first)
        if self._axis(extent) != over.axis:
            message = f"EXTENT is {_named(self._axis(extent))}, but the window {_named(over.axis)}"
            raise self._script.error(message, extent)
        until = first + self._extent(over.axis, extent, "EXTENT")
        if over.axis.is_time and until > LAST_US:
            raise self._script.error("EXTENT goes beyond the year 9999", extent)
        return replace(over, begin=first, until=until)

    def _axis(self, node: exp.Expr) -> Axis:
        members = self._scope.stream.members
        if members and is_count(node):
            names = " and ".join(f"'{member.name}'" for member in members)
            message = f"{names} are counted apart, so what joins them has windows of time"
            raise self._script.error(f"{message}, as WINDOW 1 MINUTE", node)
        if node.args.get("of") is not None:
            return self._sequence(node.args["of"])
        unit = node.args["unit"]
        if not is_unit(unit) and in_calendar("1", unit) is None:
            words = re.findall(r"(\w{3,})s\b", f"{UNITS}, months or years")
            close = get_close_matches(unit.lower(), words, n=1, cutoff=0.75)
            meant = f"expected {UNITS}, months or years, or {COUNTS}"
            meant = f"did you mean {close[0].upper()}?" if close else meant
            raise self._script.error(f"unknown unit '{unit}'; {meant}", node)
        count = counted(unit)
        if count is None:
            return TIME
        if count.axis == "bytes" and self._scope.stream.format.kind == "parquet":
            message = "records of a Parquet file have no bytes of their own; count RECORDS"
            raise self._script.error(message, node)
        return Axis(count.axis)

    def _sequence(self, node: exp.Expr) -> Axis:
        check_one_record(node, self._scope, "a sequence number")
        sql, kind = self._scope.bound(node)
        if not is_whole(kind):
            raise self._script.error(f"a sequence is of whole numbers, but this is {kind}", node)
        return Axis("sequence", sql)

    def _extent(self, axis: Axis, node: exp.Expr, what: str) -> int:
        return self._length(node, what) if axis.is_time else self._count(axis, node, what)

    def _length(self, node: exp.Expr, what: str) -> int:
        length = duration_of(self._script, node)
        self._check_size(length, _LONGEST_US, describe(_LONGEST_US), node, what)
        return length

    def _count(self, axis: Axis, node: exp.Expr, what: str) -> int:
        number, unit = node.args["this"], counted(node.args.get("unit") or "")
        of = "sequence numbers" if axis.kind == "sequence" else axis.kind
        try:
            count = whole(number, unit.size if unit else 1, f"{what} is a whole number of {of}")
        except ValueError as error:
            raise self._script.error(str(error), node) from error
        self._check_size(count, _LONGEST_COUNT, f"{_LONGEST_COUNT:,}", node, what)
        return count

    def _check_size(self, size: int, most: int, shown: str, node: exp.Expr, what: str) -> None:
        if size <= 0:
            raise self._script.error(f"{what} must be longer than zero", node)
        if size > most:
            raise self._script.error(f"{what} can be no longer than {shown}", node)

    def _position(self, axis: Axis, node: exp.Expr, what: str) -> int:
        if axis.is_time:
            return self._moment(node, what)
        if node.is_string or not re.fullmatch(r"-?\d+", node.name):
            of = "a sequence number" if axis.kind == "sequence" else f"a number of {axis.kind}"
            raise self._script.error(f"{what} is {of} here; expected a whole number", node)
        if abs(int(node.name)) > _FURTHEST:
            raise self._script.error(f"{what} can be no further than {_FURTHEST:,}", node)
        return int(node.name)

    def _moment(self, node: exp.Expr, what: str) -> int:
        time = time_of(self._script, node, what)
        moment = time.replace(tzinfo=UTC) if time.tzinfo is None else time
        since = moment - datetime(1970, 1, 1, tzinfo=UTC)
        return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def _named(axis: Axis) -> str:
    return f"of {describe_sequence(axis)}" if axis.kind == "sequence" else f"in {axis.kind}"
