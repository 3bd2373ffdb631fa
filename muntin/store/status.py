"""How a run is doing: what its jobs have answered and how late, and what became of its sources."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from muntin.errors import InputError
from muntin.fidelity.scoreboard import Source
from muntin.fidelity.timing import Timing
from muntin.model.jobs import VERSIONED
from muntin.model.records import TIME
from muntin.run.kept import paused_edition
from muntin.run.progress import Lateness
from muntin.schedule.recovery import Recovery
from muntin.store.checkpoint import Saved, saved_in
from muntin.store.storage import Place
from muntin.units import moment

Row = dict[str, Any]


def status(state: Place) -> tuple[list[Row], list[Row]]:
    """A row for every job in force, and one for every source that was read or is declared."""
    streams = saved_in(state)
    if not streams:
        raise InputError(f"nothing has been run in {state} yet; see `muntin run --help`")
    return rows_of(streams)


def recoveries(state: Place) -> dict[str, Recovery]:
    """By stream, what is known of how long it takes to go on after a loss."""
    return {name: saved.progress.recovery for name, saved in saved_in(state).items()}


def told(stream: str, recovery: Recovery) -> str:
    """What that is, in a sentence."""
    size = f"{recovery.saved / 1e6:,.1f} MB of blocks in about {recovery.takes:.1f} s"
    text = f"recovery of stream '{stream}': reads back {size}"
    if recovery.bound < float("inf"):
        text += f", and again what was read since; bound {recovery.bound:g} s"
    if recovery.losses:
        times = "once" if recovery.losses == 1 else f"{recovery.losses:,} times"
        text += f"; needed {times}, last for {recovery.last:.1f} s"
    return text


def rows_of(streams: Mapping[str, Saved]) -> tuple[list[Row], list[Row]]:
    """The same of what states of streams say."""
    jobs = [row for saved in streams.values() for row in _jobs(saved)]
    sources = [row for name, saved in streams.items() for row in _sources(name, saved)]
    return jobs, sources


def _jobs(saved: Saved) -> Iterator[Row]:
    timings = saved.progress.timings.values()
    answering = sum(timing.seconds for timing in timings)
    computing = sum(timing.computing for timing in timings)
    for job in saved.in_force.shapes:
        if VERSIONED in job:
            continue  # an old version that brings its windows to an end
        timing = saved.progress.timings.get(job, Timing())
        yield {
            "job": job,
            "windows": timing.windows,
            "lag_p50": _seconds(timing.lag_us(0.5)),
            "lag_p99": _seconds(timing.lag_us(0.99)),
            "within": _seconds(timing.within_us),
            "misses": timing.misses if timing.within_us is not None else None,
            "c2_area": timing.mean_area if timing.windows else None,
            "shed": timing.shed,
            "answer": timing.mean_seconds,
            "share": timing.seconds / answering if answering else None,
            "thinned": timing.thinned,
            "computing": timing.computing / computing if computing else None,
            "late": saved.progress.late.get(job, Lateness()).records,
            "failed": saved.progress.failures.totals.get(job, 0),
            "stopped": _stopped(saved, job),
            "version": saved.kept.editions.get(job, (1, ""))[0],
            "parameters": dict(saved.kept.values.get(job, {})),
            "paused": False,
        }
    for job, text in saved.kept.paused.items():
        timing, edition = saved.progress.timings.get(job, Timing()), paused_edition(text)
        yield {
            "job": job,
            "windows": timing.windows,
            **dict.fromkeys(("lag_p50", "lag_p99", "within", "misses", "c2_area")),
            "shed": timing.shed,
            **dict.fromkeys(("answer", "share")),
            "thinned": timing.thinned,
            "computing": None,
            "late": 0,
            "failed": saved.progress.failures.totals.get(job, 0),
            "stopped": None,
            "version": edition.number,
            "parameters": dict(edition.values),
            "paused": True,
        }


def _stopped(saved: Saved, job: str) -> datetime | int | None:
    """From where on a job does not answer, as it has failed too often; on whichever axis."""
    position = saved.progress.failures.stopped_at(job)
    axis, _ = saved.in_force.grids.get(saved.in_force.shapes[job], (TIME.column, 0))
    return _moment(position) if axis == TIME.column else position


def _sources(stream: str, saved: Saved) -> Iterator[Row]:
    for name, source in sorted(saved.progress.sources.items()):
        yield {
            "stream": stream,
            "source": name,
            "from": _moment(source.first.get(TIME.column)),
            "to": _moment(source.reached.get(TIME.column)),
            "heard": _moment(int(1e6 * _heard(source)) or None),
            "ended": source.ended,
            "seen": True,
            "agent": bool(source.answered_at),
        }
    for name in sorted(set(saved.declared) - saved.progress.sources.keys()):
        unknown = dict.fromkeys(("from", "to", "heard"))
        told = {"ended": False, "seen": False, "agent": False}
        yield {"stream": stream, "source": name, **unknown, **told}


def _heard(source: Source) -> float:
    """When a source last gave a sign of life: its files tell, or its agent; no restart of ours."""
    return source.answered_at or max(source.wrote_at or source.heard_at or 0.0, source.touched_at)


def _moment(position: int | None) -> datetime | None:
    return None if position is None else moment(position)


def _seconds(us: int | None) -> float | None:
    return None if us is None else us / 1e6
