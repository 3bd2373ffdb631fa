"""Windows of days, weeks, months and years by the clocks of a time zone, as clauses say them."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from difflib import get_close_matches
from zoneinfo import ZoneInfo, available_timezones

from sqlglot import exp

from muntin.durations import microseconds
from muntin.language.script import Script
from muntin.units import describe_count, in_calendar, usual_offset
from muntin.windows.calendar import DAY_US, Calendar, Unit, grain
from muntin.windows.spec import Units, WindowSpec, calendar_windows

_MOST: dict[Unit, int] = {"day": 36_525, "month": 1_200}


def units_of(script: Script, kind: exp.Expr) -> WindowSpec | None:
    """The windows if they are of a calendar; days and weeks without a zone are all as long."""
    zone, of = kind.args.get("zone"), in_calendar("1", kind.args["range"].args["unit"])
    name = "UTC" if zone is None else zone.name
    if zone is not None:
        _check_zone(script, zone)
    elif of is None:
        return None
    if of is None:
        message = (
            "AT TIME ZONE is for windows of DAYS, WEEKS, MONTHS or YEARS; shorter ones are the"
        )
        raise script.error(f"{message} same everywhere, and FROM moves them", zone)
    if (name, of[0]) == ("UTC", "day"):
        return None
    return _Clauses(script, Calendar(of[0], name), kind).windows()


def time_of(script: Script, node: exp.Expr, what: str) -> datetime:
    """A quoted time, as it is written."""
    if not node.is_string:
        message = f"{what} is a time here; expected one like '2026-01-31 12:00:00', in quotes"
        raise script.error(message, node)
    try:
        return datetime.fromisoformat(node.name)
    except ValueError as error:
        message = f"'{node.name}' is not a time; expected one like '2026-01-31 12:00:00'"
        raise script.error(message, node) from error


def _counted(script: Script, node: exp.Expr) -> tuple[Unit, int] | None:
    try:
        return in_calendar(node.args["this"], node.args["unit"])
    except ValueError as error:
        raise script.error(str(error), node) from error


def _check_zone(script: Script, node: exp.Expr) -> None:
    try:
        grain(node.name)
    except (KeyError, ValueError, OSError):
        close = get_close_matches(node.name, sorted(available_timezones()), n=1)
        hint = f"did you mean '{close[0]}'?" if close else "expected one like 'Europe/Berlin'"
        raise script.error(f"there is no time zone '{node.name}'; {hint}", node) from None


class _Clauses:
    """One kind of window of a calendar."""

    def __init__(self, script: Script, calendar: Calendar, kind: exp.Expr) -> None:
        self._script = script
        self._calendar = calendar
        self._kind = kind

    def windows(self) -> WindowSpec:
        length, every = self._kind.args["range"], self._kind.args.get("slide")
        count = self._count(length, "a window")
        slide = self._count(every, "EVERY") if every is not None else count
        units = Units(self._calendar, count, slide, self._offset(slide))
        step = self._kind.args.get("step")
        return calendar_windows(units) if step is None else self._cumulating(units, step)

    def _count(self, node: exp.Expr, what: str) -> int:
        unit = self._calendar.unit
        found = _counted(self._script, node)
        if found is None or found[0] != unit:
            raise self._script.error(f"{what} is in {unit}s here, as the window is", node)
        if found[1] <= 0:
            raise self._script.error(f"{what} must be longer than zero", node)
        if found[1] > _MOST[unit]:
            longest = f"{_MOST[unit]:,} {unit}s"
            raise self._script.error(f"{what} can be no longer than {longest}", node)
        return found[1]

    def _offset(self, slide: int) -> int:
        """The day or month on which some window starts, as few as possible after 1970-01-01."""
        unit, start = self._calendar.unit, self._kind.args.get("start")
        if start is None:
            return usual_offset(slide * DAY_US) // DAY_US if unit == "day" else 0
        time = time_of(self._script, start, "FROM")
        if time.tzinfo is not None:
            time = time.astimezone(ZoneInfo(self._calendar.zone))
        day = time.replace(tzinfo=None)
        if day != datetime(day.year, day.month, day.day if unit == "day" else 1):
            message = f"a window of {unit}s starts where one does; expected FROM and the first"
            raise self._script.error(f"{message} moment of a {unit}, like '2026-01-01'", start)
        number = (day - datetime(1970, 1, 1)).days
        return (number if unit == "day" else 12 * (day.year - 1970) + day.month - 1) % slide

    def _cumulating(self, units: Units, node: exp.Expr) -> WindowSpec:
        unit, found = units.calendar.unit, _counted(self._script, node)
        if found is None:
            step = self._fixed(node)
            if unit == "day" and units.range == 1 and step > 0 and DAY_US % step == 0:
                return calendar_windows(units, step)
        elif found[1] > 0:
            by = Calendar(found[0], units.calendar.zone)
            divides = by == units.calendar and units.range % found[1] == 0
            if divides or (unit == "month" and found == ("day", 1)):
                same = (unit, units.range) == found  # which is not to cumulate
                return calendar_windows(units if same else replace(units, by=by, step=found[1]))
        fitting = "1 DAY, or by months" if unit == "month" else "days"
        if unit == "day" and units.range == 1:
            fitting = "what 24 hours are a multiple of"
        length = describe_count(unit, units.range)
        message = f"CUMULATE must divide the window: {length} can cumulate by {fitting}"
        raise self._script.error(message, node)

    def _fixed(self, node: exp.Expr) -> int:
        try:
            return microseconds(node.args["this"], node.args["unit"])
        except ValueError as error:
            raise self._script.error(str(error), node) from error
