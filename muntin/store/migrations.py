"""States of earlier formats, made into those of this one; what is newer, or too old, is refused.

A document is changed when it is read, and is written in the format of now with the next commit, so
whoever only looks changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable

from muntin.errors import StateError
from muntin.store.document import Document

VERSION = 10


def _several_files(document: Document) -> None:
    """8: the driver wrote a job's rows, into one file a batch, and all blocks, as it does still."""
    document["now"]["results"] = [(job, [file]) for job, file in document["now"]["results"]]


def _known_by_less(document: Document) -> None:
    """9: files were known by their first and last bytes alone, as they are until they are read."""


# What makes a document of one format into one of the next.
_STEPS: dict[int, Callable[[Document], None]] = {8: _several_files, 9: _known_by_less}


def migrated(document: Document, place: str) -> Document:
    """A document as it is now, whichever of the known formats it had."""
    version = document.get("now", {}).get("version")
    if isinstance(version, int) and version > VERSION:
        raise StateError(
            f"{place} was written by a newer version of Muntin (its format is {version}, and this "
            f"one knows formats up to {VERSION}); use that version, or another --state"
        )
    while version != VERSION:
        if version not in _STEPS:
            raise too_old(place, version)
        _STEPS[version](document)
        version += 1
        document["now"]["version"] = version
    return document


def too_old(place: str, version: object) -> StateError:
    known = f"its format is {version}, " if isinstance(version, int) else ""
    return StateError(
        f"{place} was written by an old version of Muntin ({known}and this one goes on from "
        f"{min(_STEPS)} and later); stop that version once its windows have left and remove "
        f"{place}, or use another --state: logs are then read again, and windows that are stored "
        "are not stored twice"
    )
