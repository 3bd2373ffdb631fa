"""Sources whose times come further ahead than time has passed."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from muntin.fidelity.score import EVER
from muntin.fidelity.scoreboard import Source
from muntin.fidelity.stream_time import STEP_US
from muntin.units import describe, describe_time


def leaps(
    stream: str,
    before: Mapping[str, Source],
    after: Mapping[str, Source],
    behind: Collection[str],
    now: float,
) -> Iterator[str]:
    """Tells of sources that have leapt, from what they were `before`: what they skip is late.

    In logs of before there are gaps, of which nothing is told unless they lead to the future.
    """
    for name, source in sorted(before.items()):
        start, reached = source.time, after[name].time
        if start is None or reached is None or reached - start <= STEP_US:
            continue
        explained = EVER
        if source.moved_at is not None and name not in behind:
            explained = int((now - source.moved_at) * 1e6)
        ahead = int(now * 1e6) - start if start <= now * 1e6 else EVER
        if reached - start > min(explained, ahead) + STEP_US:
            skipped = describe((reached - start) // 1_000_000 * 1_000_000)
            yield (
                f"source '{name}' of stream '{stream}' leaps ahead by "
                f"{skipped}, from {describe_time(start)} to {describe_time(reached)}: what it "
                "still writes of the time between is late; see whether its clock is right"
            )
