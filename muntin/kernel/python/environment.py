"""What jobs of mrjob find in their environment, and the files that some take as a whole.

Hadoop tells a task of its settings and of the file that it reads by variables whose names have
underscores for dots. They are those of the process, so they are there for as long as a call takes.
"""

from __future__ import annotations

import gzip
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

_FILE = ("mapreduce.map.input.file", "map.input.file")  # of Hadoop 2 and before


def variables(settings: Mapping[str, object]) -> dict[str, str]:
    """Settings as variables; what is None is not set."""
    return {name.replace(".", "_"): str(v) for name, v in settings.items() if v is not None}


def file_variables(path: str) -> dict[str, str]:
    """The variables that tell of a file."""
    return variables(dict.fromkeys(_FILE, uri_of(path)))


def uri_of(path: str) -> str:
    return f"file://{Path(path).absolute()}"


@contextmanager
def environment(given: Mapping[str, str]) -> Iterator[None]:
    """Variables of this process, which are afterwards as they were before."""
    before = {name: os.environ.get(name) for name in given}
    os.environ.update(given)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def unpacked(path: str) -> Iterator[str]:
    """The path of a file with plain text: its own, or that of a copy which is gone afterwards."""
    if not path.endswith(".gz"):
        yield path
        return
    with TemporaryDirectory(prefix="muntin-") as folder:
        copy = Path(folder) / Path(path).name.removesuffix(".gz")
        with gzip.open(path) as packed, copy.open("wb") as plain:
            shutil.copyfileobj(packed, plain)
        yield str(copy)
