"""Gives every Python process that finds this a clock that jumps by what a file says, in seconds."""

import mmap
import os
import struct
import time
from pathlib import Path


def _shifted(path: str) -> None:
    with Path(path).open("rb") as file:
        offset, real = mmap.mmap(file.fileno(), 8, prot=mmap.PROT_READ), time.time
    time.time = lambda: real() + struct.unpack("d", offset[:])[0]


if os.environ.get("FAULTS_CLOCK"):
    _shifted(os.environ["FAULTS_CLOCK"])
