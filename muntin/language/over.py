"""What a job is computed over: its windows on one axis, or sessions, and the bounds of both."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime

from sqlglot import exp

from muntin.errors import LanguageError
from muntin.language.durations import describe, describe_extent, microseconds
from muntin.language.scope import Scope, is_number
from muntin.language.script import Script
from muntin.model import TIME, Axis, Stream
from muntin.windows.spec import WindowSpec, on_one_grid

_LONGEST_US = 36_525 * 86_400_000_000
_MOST_WINDOWS = 1_000_000
_MOST_PANES = 10_000_000
_BYTES = {"BYTE": 1, "KILOBYTE": 1 << 10, "MEGABYTE": 1 << 20, "GIGABYTE": 1 << 30}


@dataclass(frozen=True)
class Over:
    """Windows of panes of one size, or sessions with a gap, within `[begin, until)`."""

    windows: tuple[WindowSpec, ...] = ()
    axis: Axis = TIME
    gap: int | None = None
    begin: int | None = None
    until: int | None = None


def over_of(script: Script, stream: Stream, job: exp.Expr) -> Over:
    """What the clauses from WINDOW on say."""
    kinds = job.args.get("windows")
    if not kinds:
        message = "expected WINDOW and its length, for example WINDOW 5 MINUTES EVERY 1 MINUTE"
        raise LanguageError(message, script.text, int(job.args["end"]) + 1)
    clauses = _Clauses(script, stream)
    sessions = [kind for kind in kinds if kind.args.get("gap")]
    over = clauses.session(kinds, job) if sessions else clauses.windows(kinds, job.args.get("pane"))
    return clauses.bounded(over, job)


def duration_of(script: Script, node: exp.Expr) -> int:
    """A length of time in microseconds."""
    try:
        return microseconds(node.args["this"], node.args["unit"])
    except ValueError as error:
        raise script.error(str(error), node) from error


class _Clauses:
    def __init__(self, script: Script, stream: Stream) -> None:
        self._script = script
        self._stream = stream

    def session(self, kinds: list[exp.Expr], job: exp.Expr) -> Over:
        if len(kinds) > 1:
            message = "SESSION stands alone: its windows differ from key to key"
            raise self._script.error(message, kinds[1])
        if job.args.get("pane"):
            raise self._script.error("sessions have no panes", job.args["pane"])
        return Over(gap=self._length(kinds[0].args["gap"], "the gap of a session"))

    def windows(self, kinds: list[exp.Expr], pane: exp.Expr | None) -> Over:
        axis = self._axis(kinds[0].args["range"])
        specs: list[WindowSpec] = []
        for kind in kinds:
            found = self._axis(kind.args["range"])
            if found != axis:
                message = f"the windows of a job are all of one kind; the first is {_named(axis)}"
                raise self._script.error(f"{message}, this one {_named(found)}", kind)
            spec = self._window(axis, kind)
            if any(spec.key == other.key for other in specs):
                raise self._script.error("this window is there twice", kind)
            specs.append(spec)
        divisor = self._pane(axis, specs, pane)
        fitted = on_one_grid(specs, divisor)
        self._check_grid(axis, fitted, pane or kinds[-1])
        return Over(fitted, axis)

    def _window(self, axis: Axis, kind: exp.Expr) -> WindowSpec:
        length, every = kind.args["range"], kind.args.get("slide") or kind.args["range"]
        if self._axis(every) != axis:
            message = f"EVERY is {_named(self._axis(every))}, but the window {_named(axis)}"
            raise self._script.error(message, every)
        extent, slide = self._extent(axis, length, "a window"), self._extent(axis, every, "EVERY")
        if slide > extent:
            message = "EVERY is longer than the window, so records in between would be in none"
            raise self._script.error(message, every)
        if extent // slide > _MOST_WINDOWS:
            message = f"each record would be in {extent // slide:,} windows"
            raise self._script.error(f"{message}; at most {_MOST_WINDOWS:,} are possible", every)
        start = kind.args.get("start")
        offset = self._position(axis, start) % slide if start is not None else 0
        return WindowSpec(extent, slide, offset)

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

    def _check_grid(self, axis: Axis, specs: tuple[WindowSpec, ...], place: exp.Expr) -> None:
        panes = max(spec.length for spec in specs)
        if panes > _MOST_PANES:
            pane = describe_extent(axis, specs[0].pane)
            message = f"these windows fit one grid only with panes of {pane}, {panes:,} in a window"
            hint = f"at most {_MOST_PANES:,} are possible; choose lengths with a larger divisor"
            raise self._script.error(f"{message}; {hint}", place)

    def bounded(self, over: Over, job: exp.Expr) -> Over:
        begin, extent = job.args.get("begin"), job.args.get("extent")
        if begin is None and extent is None:
            return over
        if begin is None:
            raise self._script.error("EXTENT needs BEGIN, from where it is counted", extent)
        first = self._position(over.axis, begin)
        if extent is None:
            return replace(over, begin=first)
        if self._axis(extent) != over.axis:
            message = f"EXTENT is {_named(self._axis(extent))}, but the window {_named(over.axis)}"
            raise self._script.error(message, extent)
        return replace(over, begin=first, until=first + self._extent(over.axis, extent, "EXTENT"))

    def _axis(self, node: exp.Expr) -> Axis:
        sequence, unit = node.args.get("of"), str(node.args.get("unit") or "").upper()
        if sequence is not None:
            sql, kind = Scope(self._script, self._stream, self._stream.columns).bound(sequence)
            if not is_number(kind) or kind in ("DOUBLE", "FLOAT") or kind.startswith("DECIMAL"):
                message = f"a sequence is made of whole numbers, but this is {kind}"
                raise self._script.error(message, sequence)
            return Axis("sequence", sql)
        if unit.removesuffix("S") == "RECORD":
            return Axis("records")
        if unit.removesuffix("S") in _BYTES:
            if self._stream.format.kind == "parquet":
                message = "records of a Parquet file have no bytes of their own; count RECORDS"
                raise self._script.error(message, node)
            return Axis("bytes")
        return TIME

    def _extent(self, axis: Axis, node: exp.Expr, what: str) -> int:
        if axis.is_time:
            return self._length(node, what)
        number, unit = node.args["this"], str(node.args.get("unit") or "").upper()
        if not number.lstrip("-").isdigit():
            raise self._script.error(f"{what} must be a whole number here", node)
        if int(number) <= 0:
            raise self._script.error(f"{what} must be longer than zero", node)
        return int(number) * _BYTES.get(unit.removesuffix("S"), 1)

    def _length(self, node: exp.Expr, what: str) -> int:
        length = duration_of(self._script, node)
        if length <= 0:
            raise self._script.error(f"{what} must be longer than zero", node)
        if length > _LONGEST_US:
            longest = describe(_LONGEST_US)
            raise self._script.error(f"{what} can be no longer than {longest}", node)
        return length

    def _position(self, axis: Axis, node: exp.Expr) -> int:
        if axis.is_time != node.is_string:
            wanted = "a quoted time" if axis.is_time else "a whole number"
            raise self._script.error(f"expected {wanted} here", node)
        if not axis.is_time:
            if not node.name.isdigit():
                raise self._script.error("expected a whole number here", node)
            return int(node.name)
        try:
            time = datetime.fromisoformat(node.name)
        except ValueError as error:
            message = f"'{node.name}' is not a time; expected one like '2026-01-31 12:00:00'"
            raise self._script.error(message, node) from error
        moment = time.replace(tzinfo=UTC) if time.tzinfo is None else time
        since = moment - datetime(1970, 1, 1, tzinfo=UTC)
        return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def _named(axis: Axis) -> str:
    return f"of {axis.sql}" if axis.kind == "sequence" else f"in {axis.kind}"
