"""What a task could not read and the driver can is no loss. On a real cluster: test_cluster.py."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from muntin.errors import LostError
from muntin.fidelity.losses import Loss
from muntin.kernel.reading import Reading
from muntin.run.contracts import Delivery
from muntin.spark.placing import placed, require_read


def test_files_that_only_the_driver_can_read_are_told_with_their_host(tmp_path: Path) -> None:
    here, gone = tmp_path / "here.log", tmp_path / "gone.log"
    here.touch()
    why, damaged = "was removed before it was read", "is not a readable gzip file"
    lost = Loss("web", str(here), why), Loss("web", str(gone), why), Loss("web", str(here), damaged)
    delivery = placed(Delivery({}, (Reading("web", lost=lost), Reading("other"))))
    (first, second, third) = delivery.readings[0].lost
    assert first.why == f"{why} (on host {socket.gethostname()})"
    assert third.why == damaged
    require_read([Reading("web", lost=(second, third))])  # what has gone for everybody is lost
    with pytest.raises(LostError) as raised:
        require_read(delivery.readings)
    assert str(raised.value).startswith(f"{here} {first.why}, but can be read where the program ru")
    denied = Reading("web", lost=(Loss("web", str(here), "cannot be read: Permission denied"),))
    with pytest.raises(LostError, match=r"cannot be read: Permission denied \(on host "):
        require_read(placed(Delivery({}, (denied,))).readings)


def test_a_delivery_without_losses_is_passed_on() -> None:
    delivery = Delivery({}, (Reading("web"),))
    assert placed(delivery) is delivery
