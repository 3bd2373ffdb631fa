"""The product from Python: inline, on Spark, attached to a frame, and results read back.

Spark is imported when it is asked for, so that everything else works without a JVM.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pyarrow as pa

from muntin.durations import microseconds_of, seconds_of
from muntin.errors import InputError, WireError
from muntin.model.jobs import Program
from muntin.run.agents import require_agents
from muntin.run.inline import log
from muntin.run.results import Result
from muntin.store import DEFAULT_STATE
from muntin.store.results import Results
from muntin.store.storage import Place, storage_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from muntin.ask.answering import PastRows
    from muntin.control.access import Access
    from muntin.control.client import Client
    from muntin.spark.attach import Control
    from muntin.windows.choice import Sharing


def run_on_spark(
    program: Program,
    state: Place = DEFAULT_STATE,
    spark: SparkSession | None = None,
    follow: bool = False,
    seconds: float | None = None,
    idle: str = "10s",
    note: Callable[[str], None] = log,
) -> Iterator[Result]:
    """Every result as it is committed; with `follow`, until the time is over or you stop.

    `note` is given what there is to say: bad rows, exceptions in Python, jobs that stop.
    """
    from muntin.spark.context import start_context
    from muntin.spark.runner import Settings, SparkRun
    from muntin.store.hold import locked

    settings = Settings(storage_of(state), follow, seconds_of(idle, "idle"), seconds=seconds)
    require_agents(program, follow)
    with locked(settings.state) as hold:
        context = spark.sparkContext if spark else start_context()
        for turn in SparkRun(program, context, settings, hold=hold).turns():
            for text in turn.notes:
                note(text)
            yield from turn.emission.results()


def attach(
    frame: DataFrame,
    jobs: str,
    *,
    stream: str,
    timestamp: str,
    state: Place = DEFAULT_STATE,
    slack: str = "0s",
    source: str | None = None,
    idle: str = "10s",
    sources: Sequence[str] = (),
    sharing: str = "auto",
    control: str = "off",
    control_token: str | Path | None = None,
) -> StreamingQuery:
    """Runs `jobs`, SQL over a stream of that name, on a streaming DataFrame.

    `source` names the column that says which server a record is from. `sources` are those that are
    awaited whether or not they have been seen, as after SOURCES. `sharing` is `auto`, `shared` or
    `separate`. With an address for `control`, such as `127.0.0.1:0`, jobs can be changed and
    results followed as long as the query runs; `control_token` is a file with a secret.
    """
    from muntin.control.access import access_of
    from muntin.spark.attach import attach as attach_frame

    slack_us, idle_s = microseconds_of(slack, "slack"), seconds_of(idle, "idle")
    chosen = sharing_of(sharing, "sharing")
    access = access_of(control, None if control_token is None else Path(control_token))
    return attach_frame(
        frame,
        jobs,
        storage_of(state),
        stream,
        timestamp,
        slack_us,
        source,
        idle_s,
        sources,
        chosen,
        control=None if access is None else lambda: _controlled(access, state),
    )


def _controlled(access: Access, state: Place) -> Control:
    """Begins a service for orders, which whoever takes them ends."""
    from muntin.control.feed import Feed
    from muntin.control.service import serving
    from muntin.run.door import Door
    from muntin.spark.attach import Control

    door, feed, service = Door(), Feed(state), ExitStack()
    service.enter_context(serving(access, door, feed, state))
    return Control(door, feed.take, service.close)


def sharing_of(text: str, option: str) -> Sharing:
    """How windows are computed, given as an option."""
    if text not in ("auto", "shared", "separate"):
        raise InputError(f"{option} is auto, shared or separate, not '{text}'")
    return cast("Sharing", text)


def results(job: str, state: Place = DEFAULT_STATE, window: str = "all") -> pa.Table:
    """A job's stored rows: all of them, or those of the `latest` window."""
    return Results(state).read(job, latest=is_latest(window, "window"))


def ask(text: str, state: Place = DEFAULT_STATE, spark: SparkSession | None = None) -> PastRows:
    """The answer to a question about any range of what jobs have retained, with its score.

    A program that runs on the state is asked, and answers from its memory; else the state is
    read. With a session of Spark, panes are merged there.
    """
    from muntin.ask.answering import Asking

    if spark is not None:
        from muntin.spark.asking import SparkMerge

        return Asking(state).ask(text, SparkMerge(spark.sparkContext))
    client = running(state)
    return Asking(state).ask(text) if client is None else client.ask(text)


def explain(text: str, state: Place = DEFAULT_STATE) -> str:
    """What would be read to answer a question, and whether that is in memory or on disk."""
    from muntin.ask.answering import Asking

    client = running(state)
    return Asking(state).explain(text) if client is None else client.explain(text)


def running(state: Place) -> Client | None:
    """The program that runs on a state, if one does that can be asked from here."""
    from muntin.control.client import connect

    try:
        return connect(state)
    except (InputError, WireError):
        return None


def is_latest(text: str, option: str) -> bool:
    """Which windows to read, given as an option: only the `latest`, or `all`."""
    if text not in ("latest", "all"):
        raise InputError(f"{option} is 'latest' or 'all', not '{text}'")
    return text == "latest"
