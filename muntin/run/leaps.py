"""Sources of which a record comes further ahead of the one before than time has passed."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from muntin.fidelity.score import EVER
from muntin.fidelity.scoreboard import Source
from muntin.fidelity.stream_time import STEP_US, Leap
from muntin.units import describe, describe_time


def leaps(
    stream: str,
    before: Mapping[str, Source],
    found: Mapping[str, Leap | None],
    behind: Collection[str],
    now: float,
) -> Iterator[str]:
    """Tells of sources that have leapt, from what they were `before`: what they skip is late.

    In logs of before there are gaps, of which nothing is told unless they lead to the future.
    """
    for name, leap in sorted(found.items()):
        if leap is None:
            continue
        source, (start, end) = before[name], leap
        explained = EVER
        if source.moved_at is not None and name not in behind:
            explained = int((now - source.moved_at) * 1e6)
        ahead = int(now * 1e6) - start if start <= now * 1e6 else EVER
        if end - start > min(explained, ahead) + STEP_US:
            skipped = describe((end - start) // 1_000_000 * 1_000_000)
            yield (
                f"source '{name}' of stream '{stream}' leaps ahead by "
                f"{skipped}, from {describe_time(start)} to {describe_time(end)}: what it "
                "still writes of the time between is late; see whether its clock is right"
            )
