"""Values of results in few words, for people."""

from __future__ import annotations

from datetime import datetime
from math import isfinite
from typing import Any

import pyarrow as pa

from muntin.errors import harmless
from muntin.store.export import text
from muntin.units import percent


def window_text(start: datetime | int, end: datetime | int) -> str:
    """A window in the fewest words that say it: the date once, seconds where they matter."""
    if isinstance(start, int) or isinstance(end, int):
        return f"{start:,} – {end:,}"
    same_day = start.date() == end.date()
    return f"{_moment(start)} – {_moment(end)[11:] if same_day else _moment(end)}"


def _moment(time: datetime) -> str:
    text = time.replace(tzinfo=None, microsecond=0).isoformat(" ")
    return f"{text}.{time.microsecond:06d}".rstrip("0") if time.microsecond else text


def cell_text(value: Any, kind: pa.DataType) -> str:
    """A value for people: digits in groups, floating-point numbers rounded."""
    if isinstance(value, float) and isfinite(value):
        return f"{value:,.0f}" if 1000 <= abs(value) < 1e15 else f"{value:,.4g}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return "" if value is None else harmless(text(value, kind))


def score_text(c2: dict[str, Any]) -> str:
    """How complete a result is, and why it left if it is not; with the panes, all of it."""
    area = percent(c2["area"])
    if "panes" not in c2:
        return area if c2["reason"] == "complete" else f"{area} {c2['reason']}"
    panes = " ".join(map(str, c2["panes"]))
    gone = ", ".join(f"{m['source']} {m['panes']} {m['why']}" for m in c2["missing"])
    read = ", ".join(f"{r['source']} {' '.join(map(str, r['panes']))}" for r in c2["records"] or ())
    return (
        f"{area} {c2['reason']}, time {percent(c2['time'])}, space {percent(c2['space'])} of "
        f"{c2['sources']}, panes {panes}{f', missing {gone}' if gone else ''}"
        f"{f', records {read}' if read else ''}"
    )


def is_number(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    )
