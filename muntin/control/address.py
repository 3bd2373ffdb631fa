"""Where the service of a running program is: a small file in its state.

It is there as long as the program runs. One that a killed program has left behind names a process
that is gone, or that is another one now; whoever uses it finds that out.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from ipaddress import ip_address

from muntin.errors import InputError, StateError
from muntin.store.holder import Holder
from muntin.store.storage import Place, storage_of

_FILE = "control.json"


@dataclass(frozen=True)
class Address:
    """Where a service listens, the process it is in, and the file that has its token."""

    host: str
    port: int
    process: int
    token: str | None = None

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"


@contextmanager
def announced(state: Place, address: Address) -> Iterator[None]:
    """Has the address in the state, where `address_of` finds it, for some time."""
    storage = storage_of(state)
    told = {**asdict(address), "holder": asdict(Holder.of(address.process))}
    storage.put(_FILE, f"{json.dumps(told)}\n".encode())
    try:
        yield
    finally:
        with suppress(StateError):
            storage.remove([_FILE])


def address_of(state: Place) -> Address:
    """Where the program that uses a state is asked; an InputError if there is none."""
    storage = storage_of(state)
    if storage.size(_FILE) is None:
        raise InputError(not_running(state))
    try:
        told = json.loads(storage.read(_FILE))
        address = Address(told["host"], told["port"], told["process"], told["token"])
        holder = Holder(**told["holder"])
    except StateError as error:
        raise InputError(f"{error}; start the program again, which writes it anew") from error
    except (ValueError, KeyError, TypeError) as error:
        message = f"{storage.where(_FILE)} cannot be read: it is no address of a service"
        raise InputError(f"{message}; start the program again, which writes it anew") from error
    if holder.is_gone:
        raise InputError(not_running(state, address))
    if holder.machine != Holder.own().machine and ip_address(address.host).is_loopback:
        raise InputError(
            f"the program runs on {holder.host}, and is asked from there only; do so, or start it "
            "with --control and an address that can be reached from here"
        )
    return address


def not_running(state: Place, last: Address | None = None) -> str:
    """What to say, and what to do, where nobody answers."""
    found = "no program that takes orders runs"
    if last is not None:
        found = f"the program that ran (process {last.process}) has gone, and nothing runs"
    return (
        f"{found} on the state folder {state}; start one with `muntin run FILE --state {state}` "
        "(not with --once or --control off), or give the --state of one that runs"
    )
