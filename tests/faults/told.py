"""What a run has said of windows that left without a row, as no table has those."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime

from tests.faults.jobs import Asked

_EMPTY = re.compile(
    r"^(?P<job>\w+): (?P<start>\S+ \S+) – .*?(?: and [\d,]+ before)?"
    r"(?:, revision \d+)?, 0 rows, .*, (?P<area>[\d.]+) % \w+$",
    re.MULTILINE,
)


def left_empty(said: str, jobs: Sequence[Asked]) -> dict[str, set[tuple[int, int]]]:
    """By job, the windows that left with no row and a score of nothing.

    A line tells the score of its last window alone.
    """
    found: dict[str, set[tuple[int, int]]] = {}
    known = {job.name: job for job in jobs}
    for line in _EMPTY.finditer(said):
        job = known.get(line["job"])
        if job is not None and float(line["area"]) == 0:
            start = int(datetime.fromisoformat(line["start"]).replace(tzinfo=UTC).timestamp())
            found.setdefault(job.name, set()).add((start, start + job.length))
    return found
