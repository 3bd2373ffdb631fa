"""Who uses a state under a URL: a lease that its holder renews, and that ends when it does not.

The lease keeps programs from starting beside each other, and says whose it is. That no two commit
is decided by the commits themselves (`decisions`), so clocks that differ cannot do harm.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from threading import Event, Thread
from uuid import uuid4

from muntin.errors import StateError
from muntin.store.holder import Holder
from muntin.store.objects import ObjectStorage
from muntin.store.requests import Tag
from muntin.units import moment

SECONDS = 30.0
_NAME = "lease"
_RENEWALS = 3  # within the time of a lease
_FOLDERS = ("streams", "results", "spark")  # beside which there may be those of others
_STALE_SECONDS = 600.0  # after which nobody is writing what is not whole, with clocks that differ


class Lease:
    """A state that this process may use; others are refused until the lease is over."""

    def __init__(
        self, storage: ObjectStorage, clock: Callable[[], float] = time.time, alone: bool = False
    ) -> None:
        """Takes the lease, or raises a StateError that says who has it and how long.

        `alone` renews nothing by itself.
        """
        self._storage = storage
        self._clock = clock
        self._mark = uuid4().hex
        self._lost = ""
        self._tag = self._take()
        self._over = Event()
        self._thread = Thread(target=self._keep, name="muntin-lease", daemon=True)
        if not alone:
            self._thread.start()
        try:  # which may take longer than a lease that nobody renews
            storage.sweep(_FOLDERS, clock() - _STALE_SECONDS)
        except BaseException:
            self.close()
            raise

    def _take(self) -> Tag:
        found = self._storage.tagged(_NAME)
        if found is None:
            tag = self._storage.create(_NAME, self._told())
        else:
            refusal = refused(self._storage, found[0], self._clock())
            if refusal is not None:
                raise StateError(refusal)
            tag = self._storage.exchange(_NAME, self._told(), found[1])
        if tag is None:
            found = self._storage.tagged(_NAME)
            by = "another program" if found is None else str(_read(found[0])[0])
            raise StateError(_in_use(self._storage, f"{by}, which has just begun"))
        return tag

    def _told(self, is_over: bool = False) -> bytes:
        until = 0.0 if is_over else self._clock() + SECONDS
        return json.dumps(
            {"holder": asdict(Holder.own()), "until": until, "mark": self._mark, "at": uuid4().hex}
        ).encode()

    def _keep(self) -> None:
        while not self._over.wait(SECONDS / _RENEWALS):
            with suppress(StateError):  # a storage that does not answer may do so the next time
                self.renew()

    def renew(self) -> None:
        """Makes the lease longer, unless somebody else has taken it."""
        tag = self._storage.exchange(_NAME, self._told(), self._tag)
        if tag is not None:
            self._tag = tag
            return
        found = self._storage.tagged(_NAME)
        if found is not None and self._mark.encode() in found[0]:
            self._tag = found[1]  # it is longer: only the answer was lost
            return
        by = "nobody, as it was removed" if found is None else str(_read(found[0])[0])
        self._lost = f"the state {self._storage} is now used by {by}: the lease of this run was "
        self._lost += "over, so the run stops; what it has committed stays"

    def require_there(self) -> None:
        """Refuses to go on once somebody else has the lease."""
        if self._lost:
            raise StateError(self._lost)

    def close(self) -> None:
        """Lets others have the state at once."""
        self._over.set()
        if self._thread.ident is not None:
            self._thread.join()
        if not self._lost:
            with suppress(StateError):
                self._storage.exchange(_NAME, self._told(is_over=True), self._tag)


def refused(storage: ObjectStorage, data: bytes, now: float) -> str | None:
    """Why a lease keeps others out, if it does."""
    holder, until = _read(data)
    if until <= now or holder.is_gone:
        return None
    ends = f"{moment(int(until * 1e6)):%H:%M:%S}"
    return _in_use(storage, f"{holder}, whose lease ends at {ends} UTC unless it is renewed")


def require_free(storage: ObjectStorage, clock: Callable[[], float] = time.time) -> None:
    """Refuses a state that somebody uses, or a storage that cannot be used; changes nothing."""
    found = storage.tagged(_NAME)
    refusal = None if found is None else refused(storage, found[0], clock())
    if refusal is not None:
        raise StateError(refusal)


def _read(data: bytes) -> tuple[Holder, float]:
    try:
        told = json.loads(data)
        return Holder(**told["holder"]), float(told["until"])
    except (ValueError, KeyError, TypeError):
        return Holder("an unknown machine", 0), 0.0  # nobody's that is not whole


def _in_use(storage: ObjectStorage, by: str) -> str:
    return f"the state {storage} is in use by {by}; stop it, or use another --state"
