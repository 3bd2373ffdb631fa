"""The executors of a cluster, as a run sees them come and go. On a local master there are none.

A job waits for ever where no executor is left. A thread looks after that: it says so, and after a
while has what waits fail, as it does at once where somebody says stop.

One that has come takes seconds to start its Python. Until then its cores are taken by tasks that
do nothing else, so that batches are made by the others, as fast as before.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Event, Thread

from py4j.protocol import Py4JError
from pyspark import SparkContext

from muntin.errors import SparkError
from muntin.run.inline import ignore
from muntin.spark import internals
from muntin.spark.collections import internals as homes
from muntin.spark.first_tasks import prepared
from muntin.spark.master import is_local

PATIENCE_SECONDS = 5.0  # after which one wants to know what is waited for
GIVE_UP_SECONDS = 300.0
_LOOK_SECONDS = 0.5
_GREETING_SECONDS = 0.1  # after which one that has come is looked at again
_SETTLED_SECONDS = 2.0  # without another one, after which executors are believed to be all there
_NEAR_SECONDS = 2.0  # to a deadline, for which spreading waits
_LATEST_SECONDS = 10.0  # but no longer, as for one that does not get ready


class Executors:
    def __init__(
        self,
        context: SparkContext,
        stop: Event,
        note: Callable[[str], None] = ignore,
        give_up_seconds: float = GIVE_UP_SECONDS,
    ) -> None:
        self._context = context
        self._stop = stop
        self._note = note
        self._give_up_seconds = give_up_seconds
        self._is_local = is_local(context.master)
        self._known = self._seen = self._greeted = self._names()
        self._ready = set(self._known)  # of those that are greeted
        self._seen_at = self._came_at = time.monotonic()
        self._busy_since: float | None = None
        self.gave_up = False

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Looks after all that is `busy` within the block."""
        if self._is_local:
            yield
            return
        over = Event()
        thread = Thread(target=self._watch, args=(over,), name="muntin executors", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    @contextmanager
    def busy(self) -> Iterator[None]:
        """Within the block something is waited for that executors do.

        Raises a SparkError once none was there for long, or somebody says stop while none is there.
        """
        self._busy_since = time.monotonic()
        try:
            yield
        except SparkError:
            if not self.gave_up:
                raise
            raise SparkError(
                f"{self._context.master} has given no executor for {self._give_up_seconds:.0f} s; "
                "see on its page whether workers are there; what was committed stays, and the next "
                "run goes on from there"
            ) from None
        finally:
            self._busy_since = None

    def have_come(self, deadline_in: float | None = None) -> bool:
        """Whether there are others than when this was last true, over which to spread what is held.

        They are given some time to be all there; a deadline that is near is let pass before.
        """
        names, now = self._names(), time.monotonic()
        if names != self._seen:
            if not self._seen - self._known:
                self._came_at = now
            self._seen, self._seen_at = names, now
        if not names - self._known or now - self._seen_at < _SETTLED_SECONDS:
            return False
        is_near = deadline_in is not None and deadline_in < _NEAR_SECONDS
        waits = is_near or not names <= self._ready
        if waits and now - self._came_at < _LATEST_SECONDS:
            return False
        self._known = names
        return True

    def _names(self) -> frozenset[str]:
        if self._is_local:
            return frozenset()
        return internals.executor_names(self._context)

    def _watch(self, over: Event) -> None:
        none_since: float | None = None
        told = False
        while not over.wait(_LOOK_SECONDS):
            now, busy_since = time.monotonic(), self._busy_since
            with suppress(Py4JError, OSError):  # Spark has gone: whoever waits is told
                self._greet(over)
                if busy_since is None or internals.executors(self._context):
                    none_since, told = None, False
                    continue
                none_since = none_since or now
                if now - none_since > PATIENCE_SECONDS and not told:
                    told = True
                    self._note(no_executors(self._context.master))
                if self._stop.is_set() or now - none_since > self._give_up_seconds:
                    self.gave_up = True
                    self._context.cancelAllJobs()

    def _greet(self, over: Event) -> None:
        """Has those that have come start their Python."""
        names = self._names()
        come, self._greeted = names - self._greeted, names
        for name in come:
            args = (name, over)
            Thread(target=self._prepare, args=args, name="muntin greeting", daemon=True).start()

    def _prepare(self, name: str, over: Event) -> None:
        """Has all cores of an executor do what a batch does, until it has; others may be faster.

        One that gets no task by then is left to batches.
        """
        until = time.monotonic() + _LATEST_SECONDS
        with suppress(Py4JError, OSError):  # it has gone again, or Spark has
            while (
                not over.wait(_GREETING_SECONDS)
                and name in self._names()
                and time.monotonic() < until
            ):
                # Where it is becomes known a moment after its name.
                here = [each for each in homes.executors(self._context) if each.id == name]
                if here and internals.has_worked(self._context, name):
                    self._ready.add(name)
                    return
                if here:
                    cores = self._context.defaultParallelism // max(1, len(self._names()))
                    tasks = [homes.home(self._context, here[0])] * max(1, cores)
                    packs = homes.as_rdd(self._context, homes.union(self._context, tasks))
                    internals.compute(packs.mapPartitions(prepared))


def no_executors(master: str | None) -> str:
    """What is waited for where a cluster has given none; why, only the cluster knows."""
    return (
        f"waiting for executors: {master} has given none yet; either they are still starting, or "
        "no worker has cores and memory to spare; its page shows which; Ctrl-C stops"
    )
