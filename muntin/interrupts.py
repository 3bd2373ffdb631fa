"""Ctrl-C before there is anything that has to end in order: one word, and the process is gone.

Loads next to nothing itself: before it counts, Python would tell of Ctrl-C in its own many words.
"""

import os
import signal


def end_at_once() -> None:
    """From here on Ctrl-C ends the process at once, unless whoever started it ignores Ctrl-C."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, stopped)


def stopped(number: int, _: object) -> None:
    """A handler of signals: says a word, and ends the process with the shell's usual code."""
    os.write(2, b"stopped\n")
    os._exit(128 + number)
