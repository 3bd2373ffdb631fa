"""A run in a process of its own that is killed when it has touched its state so many times.

python -m tests.ask.dying program state turns kind number
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import muntin as mt
from muntin.store.storage import LocalFolder
from tests.ask.keeping import Kept

VERBS = ("put", "append", "output", "sync", "remove")


def main() -> None:
    program, state, turns, number = sys.argv[1:]
    run = Kept(mt.sql(Path(program).read_text()), Path(state), batch_bytes=2_000)
    for _ in range(int(turns)):
        run.turn()
    left = int(number)

    def dying(do: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*given: Any) -> Any:
            nonlocal left
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return do(*given)

        return wrapped

    for verb in VERBS:
        setattr(LocalFolder, verb, dying(getattr(LocalFolder, verb)))
    run.whole()  # panes move from blocks to files
    run.turn()
    print(int(number) - left, flush=True)  # it was not killed: so many moments there were


if __name__ == "__main__":
    main()
