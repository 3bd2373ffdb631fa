"""Ctrl-C that is ignored, and no more; how a command ends by it is in test_loading."""

from __future__ import annotations

import subprocess
import sys


def test_who_ignores_ctrl_c_is_not_ended_by_it() -> None:
    """As a shell has it for what it starts in the background."""
    code = (
        "import os, signal\n"
        "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "from muntin.interrupts import end_at_once\n"
        "end_at_once()\n"
        "os.kill(os.getpid(), signal.SIGINT)\n"
        "print('over')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("over\n", "")
