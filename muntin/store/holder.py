"""Who has a state: a process of a machine, as others are told and can find out."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Holder:
    """A process, the name of its machine, and what tells this machine, and process, from others."""

    host: str
    process: int
    machine: str = ""
    began: str = ""

    def __str__(self) -> str:
        return f"process {self.process} on {self.host}"

    @classmethod
    def own(cls) -> Holder:
        return cls.of(os.getpid())

    @classmethod
    def of(cls, process: int) -> Holder:
        """A process of this machine."""
        return cls(socket.gethostname(), process, _machine(), _began(process))

    @property
    def is_gone(self) -> bool:
        """Whether it is known to have ended: it was on this machine, and is not any more."""
        is_here = bool(self.machine) and self.machine == _machine()
        return is_here and (not self.began or _began(self.process) != self.began)


def _machine() -> str:
    """The same for all processes that see each other's numbers, until the machine starts again."""
    with suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{Path('/proc/self/ns/pid').readlink()}"
    return ""


def _began(process: int) -> str:
    """When a process was started; nothing if there is none."""
    try:
        stat = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return ""
    fields = stat.rpartition(")")[2].split()
    return "" if fields[0] in ("Z", "X") else fields[19]
