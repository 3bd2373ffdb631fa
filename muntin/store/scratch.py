"""Where temporary files are: in a folder of this machine, wherever the state is."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from muntin.errors import InputError


def keep_in(folder: Path) -> None:
    """Has this process and all that it starts, Spark too, keep temporary files in a folder."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        message = f"--local-dir {folder} cannot be written to: {error.strerror}"
        raise InputError(f"{message}; give a folder of this machine") from error
    place = str(folder.absolute())
    os.environ["TMPDIR"] = os.environ["SPARK_LOCAL_DIRS"] = place
    tempfile.tempdir = None  # so that it is looked up again
