"""Where orders to a running program come in: any thread brings a text, the runner takes it.

    writer ──text──► door ──orders──► runner      taken between two turns
    writer ◄──reply, or why not────── runner      once it is committed

A text is understood and checked by whoever brings it, while the runner goes on: it notices nothing
of one that is refused. Orders are taken one text after another, each as a whole.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import Condition, Event
from time import monotonic

from muntin.errors import ConflictError, LostError, MuntinError, OrderError
from muntin.language.orders import Ordered
from muntin.language.program import orders
from muntin.model.jobs import Program
from muntin.run.succession import Effect
from muntin.wire.keys import Keys

PATIENCE = 30.0  # seconds in which an order is taken, or not at all
_LOOK = 0.05  # seconds between looks at whether to stop


@dataclass(frozen=True)
class Reply:
    """What became of a text: its orders one after another, and what there is to say of them."""

    effects: tuple[Effect, ...]
    notes: tuple[str, ...] = ()


class Visit:
    """A text that was understood, on its way to the runner and back."""

    def __init__(self, ordered: Ordered) -> None:
        self.ordered = ordered
        self.is_taken = False  # by the runner: it cannot be withdrawn any more
        self._over = Event()
        self._reply: Reply | None = None
        self._error: BaseException | None = None

    def end(self, reply: Reply | None, error: BaseException | None = None) -> None:
        """Tells whoever waits what became of it; the first word counts."""
        if not self._over.is_set():
            self._reply, self._error = reply, error
            self._over.set()

    def reply(self, seconds: float | None = None) -> Reply | None:
        """What became of it; None if that is not known in time. Raises why it was refused."""
        if not self._over.wait(seconds):
            return None
        if self._error is not None:
            raise self._error
        return self._reply


Running = tuple[Program, frozenset[str]]  # and the jobs that are paused
Does = Callable[[Ordered], tuple[Reply, Running]]


class Door:
    """One for a running program. Nobody waits here for the lock longer than a text takes."""

    def __init__(self, folder: str | Path | None = None, keys: Keys | None = None) -> None:
        """Python is looked for in the folder; agents of new streams are asked with the keys."""
        self._folder = folder
        self._keys = keys
        self._changed = Condition()
        self._compiling = Condition()
        self._waiting: deque[Visit] = deque()
        self._running: Running | None = None
        self._closed = False

    @property
    def program(self) -> Running:
        """What runs, or will when all that waits has been taken."""
        with self._changed:
            if self._running is None or self._closed:
                over = "has stopped" if self._closed else "has not begun yet"
                raise OrderError(f"the program {over}, and takes no orders")
            if self._waiting:
                last = self._waiting[-1].ordered
                return last.program, last.paused
            return self._running

    def submit(
        self, text: str, expected: Mapping[str, int] | None = None, seconds: float = PATIENCE
    ) -> Reply:
        """Has the running program do what a text says, and returns what became of it.

        `expected` are versions that jobs have, as far as the writer knows; 0: there is none. Raises
        a LanguageError for a text that cannot be understood or done, a ConflictError if a version
        is another one, and an OrderError if the program does not take it. Then nothing has changed.
        """
        visit = self.bring(text, expected)
        reply = visit.reply(seconds)
        if reply is None and self._withdraw(visit):
            raise OrderError(
                f"the program has not taken the order within {seconds:g} seconds; nothing has "
                "changed, try again"
            )
        reply = reply or visit.reply()
        assert reply is not None
        return reply

    def bring(self, text: str, expected: Mapping[str, int] | None = None) -> Visit:
        """The same, without waiting for what becomes of it."""
        with self._compiling:  # each text is understood as what follows the ones before it
            program, paused = self.program
            _require(program, expected or {})
            visit = Visit(orders(text, program, paused, self._folder, self._keys))
            with self._changed:
                self._waiting.append(visit)
                self._changed.notify_all()
        return visit

    def _withdraw(self, visit: Visit) -> bool:
        """Takes an order back, unless it was taken; those behind it were understood with it."""
        with self._changed:
            if visit.is_taken or visit not in self._waiting:
                return False
            self._refuse_from(visit)
            return True

    def _refuse_from(self, visit: Visit) -> None:
        while self._waiting:
            last = self._waiting.pop()
            if last is visit:
                return
            last.end(None, OrderError("an order before it was refused; try again"))

    # What follows is the runner's.

    def open(self, program: Program, paused: frozenset[str]) -> None:
        """Takes what runs now: orders are understood by that."""
        with self._changed:
            self._running = program, paused

    def serve(self, check: Callable[[Ordered], None], do: Does) -> bool:
        """Does what waits, as far as it passes the check; what `do` raises ends the run, too.

        Returns whether anything was done. After a LostError the order still waits.
        """
        served = False
        while True:
            with self._changed:
                visit = self._waiting[0] if self._waiting else None
                if visit is None:
                    return served
                visit.is_taken = True
            try:
                check(visit.ordered)
            except MuntinError as error:
                with self._changed:
                    self._refuse_from(visit)
                visit.end(None, error)
                continue
            try:
                reply, running = do(visit.ordered)
            except LostError:
                raise  # nothing has changed, and it is served again
            except BaseException as error:
                visit.end(None, error)
                raise
            with self._changed:
                self._running = running
                self._waiting.popleft()
            visit.end(reply)
            served = True

    def rest(self, seconds: float, stop: Event) -> None:
        """Waits until there is an order, or the time is over, or somebody says stop."""
        until = monotonic() + seconds
        with self._changed:
            while not self._waiting and not stop.is_set() and (left := until - monotonic()) > 0:
                self._changed.wait(min(left, _LOOK))

    def close(self) -> None:
        """Takes no more orders; whoever waits is told."""
        with self._changed:
            self._closed = True
            while self._waiting:
                self._waiting.pop().end(None, OrderError("the program has stopped"))


def _require(program: Program, expected: Mapping[str, int]) -> None:
    """Refuses an order whose writer has not seen the last change."""
    for name, version in expected.items():
        known = {job.lower(): each for job, each in program.jobs.items()}.get(name.lower())
        there = None if known is None else known.edition.number
        if (there or 0) != version:
            raise ConflictError(name, there, version)
