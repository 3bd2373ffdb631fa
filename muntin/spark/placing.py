"""Logs that an executor cannot read although the driver can: its machine does not see them.

That is no loss, and is never counted as one: rows that are missing so would be missing in silence.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Sequence
from dataclasses import replace

from muntin.errors import LostError
from muntin.fidelity.losses import Loss
from muntin.kernel.reading import Reading
from muntin.run.contracts import Delivery

_UNREAD = re.compile(r"cannot be read: |.* before it was read")  # by who has no such file


def placed(delivery: Delivery) -> Delivery:
    """The delivery; of files that could not be read it says on which host. For tasks."""
    if not any(reading.lost for reading in delivery.readings):
        return delivery
    readings = (
        replace(reading, lost=tuple(map(_on_host, reading.lost))) for reading in delivery.readings
    )
    return replace(delivery, readings=tuple(readings))


def _on_host(loss: Loss) -> Loss:
    if not _UNREAD.match(loss.why):
        return loss
    return replace(loss, why=f"{loss.why} (on host {socket.gethostname()})")


def require_read(readings: Sequence[Reading]) -> None:
    """Raises a LostError if a task could not read what can be read here. For the driver.

    A file that was cut or replaced meanwhile is taken for one, too: it is looked at again then.
    """
    for loss in (loss for reading in readings for loss in reading.lost):
        if "(on host " in loss.why and os.access(loss.file, os.R_OK):
            raise LostError(
                f"{loss.file} {loss.why}, but can be read where the program runs",
                "executors need logs under the same path as the driver has: put them on shared "
                "storage, or have agents read them where they are (FROM AGENTS)",
            )
