"""A process that has ended is known to be gone, on the machine where it was."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

from muntin.store.holder import Holder


def test_who_is_there_and_who_is_gone() -> None:
    own = Holder.own()
    assert not own.is_gone
    assert str(own) == f"process {os.getpid()} on {own.host}"
    assert replace(own, began="1").is_gone  # another process has its number now
    other = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    holder = Holder.of(other.pid)
    assert not holder.is_gone
    other.communicate()
    assert holder.is_gone
    assert not replace(holder, machine="elsewhere").is_gone
    assert Holder.of(other.pid).is_gone
