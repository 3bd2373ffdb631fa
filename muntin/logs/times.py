"""Times as logs write them: text to a moment in UTC, or what to declare where that is not known.

ISO 8601 is tried first, and is fast. What it does not fit is tried with a comma before the
fraction, without marks around it, in the ways of web servers, mail and C, and as a number of
seconds, milli-, micro- or nanoseconds since 1970. A year has four digits: `17/06/09` may be a day
of June or of September, and is never one of the year 17.
"""

from __future__ import annotations

from functools import cache

from muntin.kernel.engine import literal, run

EPOCH_UNITS = ("SECONDS", "MILLISECONDS", "MICROSECONDS", "NANOSECONDS")
_MARKS = " \"'[]()"
# Months and days are read in any case, and days of the week need not be right. A comma is a point.
_FORMATS = (
    "%d/%b/%Y:%H:%M:%S %z",
    "%d/%b/%Y:%H:%M:%S",
    "%Y-%m-%d %H:%M:%S %z",
    "%Y-%m-%d %H:%M:%S.%f %z",
    "%Y%m%dT%H%M%SZ",
    "%Y%m%dT%H%M%S.%fZ",
    "%a. %d %b %Y %H:%M:%S %z",
    "%a. %d %b %Y %H:%M:%S %Z",
    "%a %b %d %H:%M:%S %Y",
    "%a %b %d %H:%M:%S.%f %Y",
    "%d %b %Y %H:%M:%S",
    "%d %b %Y %H:%M:%S.%f",
)
# Seconds since 2001 have ten digits until 2286; so all of these become microseconds as text.
_EPOCH = r"""^[ "']*((?:\d{10}|\d{13}|\d{16}|\d{19})(?:\.\d*)?)[ "']*$"""

# What has to be declared, because day and month may be meant otherwise or there is no date.
_DECLARED = (
    "%y/%m/%d %H:%M:%S",
    "%y-%m-%d %H:%M:%S",
    "%d.%m.%y %H:%M:%S",
    "%m/%d/%y %H:%M:%S",
    "%y/%m/%d %H:%M",
    "%d.%m.%Y %H:%M:%S",
    "%d.%m.%Y %H:%M:%S.%f",
    "%d.%m.%Y %H:%M",
    "%d/%m/%Y %H:%M:%S",
    "%d/%m/%Y %H:%M",
    "%m/%d/%Y %H:%M:%S",
    "%m/%d/%Y %H:%M",
    "%m/%d/%Y %I:%M:%S %p",
    "%d-%m-%Y %H:%M:%S",
    "%d-%b-%Y %H:%M:%S",
    "%Y.%m.%d %H:%M:%S",
    "%Y-%m-%d-%H.%M.%S.%f",
    "%Y%m%d %H:%M:%S",
    "%Y%m%d%H%M%S",
    "%y%m%d %H%M%S",
    "%Y%m%d",
)
_WITHOUT_YEAR = ("%b %d %H:%M:%S", "%b %d %H:%M:%S.%f", "%m-%d %H:%M:%S.%f", "%m-%d %H:%M:%S")
_WITHOUT_DATE = ("%H:%M:%S", "%H:%M:%S.%f", "%H:%M:%S,%f")
# Of years after that there is no question; others have to be written with four digits.
_YEARS = "TIMESTAMP WITH TIME ZONE '1000-01-01 00:00:00+00'"
_WHOLE_YEAR = r"^\W*\d{4}"
_ALL_DECLARED = (*_DECLARED, *_WITHOUT_YEAR, *_WITHOUT_DATE)


def time_sql(text: str) -> str:
    """A TIMESTAMP WITH TIME ZONE from text, or NULL; no offset means UTC."""
    # Most texts are as DuckDB writes them. What else is tried must cost nothing for these: DuckDB
    # works out for every row what tries share, and arguments of coalesce that it thinks are cheap.
    marks = literal(_MARKS)
    iso = f"upper(replace(trim({text}, {marks}), ',', '.'))"
    other = f"trim(replace({text}, ',', '.'), {marks})"
    number = f"nullif(regexp_extract({text}, {literal(_EPOCH)}, 1), '')"
    us = f"TRY_CAST(rpad(replace({number}, '.', ''), 16, '0') AS BIGINT)"
    formats = ", ".join(map(literal, _FORMATS))
    plain = f"TRY_CAST({text} AS TIMESTAMP WITH TIME ZONE)"
    spelt = f"TRY_CAST({iso} AS TIMESTAMP WITH TIME ZONE)"
    whole = f"regexp_matches({text}, {literal(_WHOLE_YEAR)})"
    return (
        f"CASE WHEN {plain} >= {_YEARS} OR ({plain} IS NOT NULL AND {whole}) THEN {plain} "
        f"ELSE coalesce(CASE WHEN {spelt} >= {_YEARS} OR {whole} THEN {spelt} END, "
        f"try_strptime({other}, [{formats}]), make_timestamptz({us})) END"
    )


def since_epoch_sql(number: str, unit: str, whole: bool) -> str:
    """A TIMESTAMP from a number, or a text of one, that counts units since 1970.

    Where the number is whole, it needs no more than integers.
    """
    number = f"CAST({number} AS {'BIGINT' if whole else 'DECIMAL(38, 9)'})"
    exponent = 6 - 3 * EPOCH_UNITS.index(unit)
    us = f"{number} * {10**exponent}"
    if exponent < 0:
        us = f"floor_div({number}, 1000)" if whole else f"{number} / 1000"
    return f"make_timestamp({us if whole else f'CAST(floor({us}) AS BIGINT)'})"


@cache
def clause_for(text: str, column: str) -> str:
    """The TIMESTAMP clause that understands a text of this column, or one to begin with."""
    tried = ", ".join(f"try_strptime({literal(text)}, {literal(f)})" for f in _ALL_DECLARED)
    (found,) = run(f"SELECT [{tried}] AS found", {}, "looking at a time")["found"].to_pylist()
    # A year of two digits is none of a format that has four, but for those without any.
    fits = [
        format_
        for format_, time in zip(_ALL_DECLARED, found, strict=True)
        if time is not None and (time.year >= 1000 or "%Y" not in format_)
    ]
    if not fits:
        return f"TIMESTAMP strptime({column}, '%d.%m.%Y %H:%M:%S')"
    if fits[0] in _WITHOUT_YEAR:
        return f"TIMESTAMP strptime('2026 ' || {column}, '%Y {fits[0]}')"
    if fits[0] in _WITHOUT_DATE:
        return f"TIMESTAMP strptime('2026-01-31 ' || {column}, '%Y-%m-%d {fits[0]}')"
    return f"TIMESTAMP strptime({column}, '{fits[0]}')"
