"""The log of a Delta table: which of its entries are on disk, and how to do without the others.

Who writes entries does not sync them, so a power cut may leave entries empty, without the files
they name, or not at all. A checkpoint says up to which entry a table was synced. What came later is
not part of a commit that counts, or will be published again, and may be taken away.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from pyarrow import ArrowException
from pyarrow.parquet import ParquetFile, read_metadata

from muntin.errors import StateError

FOLDER = "_delta_log"
_SUMMARY = ".checkpoint.parquet"  # of the entries up to one
NEWEST = "_last_checkpoint"  # names the newest summary


def folder_of(table: Path) -> Path:
    return table / FOLDER


def version(table: Path) -> int:
    """The newest entry, or -1."""
    return max(_numbers(table, ".json"), default=-1)


def files_since(table: Path, synced: int) -> Iterator[Path]:
    """The entries after one, and what sums up entries."""
    folder = folder_of(table)
    yield from (_path(table, n, ".json") for n in _numbers(table, ".json") if n > synced)
    yield from (_path(table, n, _SUMMARY) for n in _numbers(table, _SUMMARY) if n >= synced)
    if (folder / NEWEST).exists():
        yield folder / NEWEST


def parts_since(table: Path, synced: int) -> Iterator[Path]:
    """The files of rows that entries after one have added."""
    for number in _numbers(table, ".json"):
        actions = _entry(table, number) if number > synced else None
        yield from (table / action["add"]["path"] for action in actions or () if "add" in action)


def has_rows(table: Path) -> bool:
    """Whether any file was ever made part of the table, as far as one can tell."""
    entries = (_path(table, number, ".json") for number in _numbers(table, ".json"))
    return bool(_numbers(table, _SUMMARY)) or any(b'"add"' in path.read_bytes() for path in entries)


def mend(table: Path, synced: int) -> bool:
    """Takes away what came after the synced entries and is not whole; True if anything was."""
    if not folder_of(table).is_dir():
        return False
    gone: list[Path] = []
    entries = [number for number in _numbers(table, ".json") if number > synced]
    whole = synced
    for number in entries:
        if number != whole + 1 or not _is_whole(table, number):
            break
        whole = number
    gone += (_path(table, number, ".json") for number in entries if number > whole)
    for number in _numbers(table, _SUMMARY):
        path = _path(table, number, _SUMMARY)
        if number > whole or (number >= synced and not _is_parquet(path)):
            gone.append(path)
    newest = folder_of(table) / NEWEST
    if newest.exists() and not _is_summed_up(table, newest, gone):
        gone.append(newest)
    for path in gone:
        path.unlink()
    return bool(gone)


def damaged(table: Path, parts: Iterable[Path] = ()) -> Path | None:
    """The first file of a table that cannot be read, of its log or of these parts, if one is."""
    with suppress(StateError):
        summed = _numbers(table, _SUMMARY)
        since = range(max(summed, default=-1) + 1, version(table) + 1)
        files = [_path(table, number, _SUMMARY) for number in summed]
        files += (_path(table, n, ".json") for n in since if _entry(table, n) is None)
        newest = folder_of(table) / NEWEST
        if newest.exists() and not _is_summed_up(table, newest, []):
            files.append(newest)
        return next((path for path in (*files, *parts) if not _can_be_read(path)), None)
    return None


def require_entries(table: Path) -> None:
    """Raises an OSError where an entry has nothing in it, which readers take for one of no rows."""
    summed = max(_numbers(table, _SUMMARY), default=-1)
    for number in _numbers(table, ".json"):
        path = _path(table, number, ".json")
        if number > summed and not path.stat().st_size:
            raise OSError(f"{path} is empty")


def require_summary(table: Path) -> None:
    """Raises an OSError where the newest summary makes no sense, at which the library panics."""
    summed = max(_numbers(table, _SUMMARY), default=-1)
    path = _path(table, summed, _SUMMARY)
    if summed >= 0 and not _can_be_read(path) and path.exists():
        raise OSError(f"{path} is damaged")


def _is_whole(table: Path, number: int) -> bool:
    """Whether an entry can be read, with the files that it names."""
    actions = _entry(table, number)
    adds = [action["add"] for action in actions or () if "add" in action]
    return actions is not None and all(
        _is_parquet(table / add["path"]) and (table / add["path"]).stat().st_size == add["size"]
        for add in adds
    )


def _entry(table: Path, number: int) -> list[dict[str, Any]] | None:
    """The actions of an entry; None if it is not whole."""
    try:
        lines = _path(table, number, ".json").read_bytes().splitlines()
        actions = [json.loads(line) for line in lines]
    except (OSError, ValueError):
        return None
    return actions if actions and all(isinstance(each, dict) for each in actions) else None


def _is_summed_up(table: Path, newest: Path, gone: list[Path]) -> bool:
    with suppress(OSError, ValueError, KeyError, TypeError):
        path = _path(table, json.loads(newest.read_bytes())["version"], _SUMMARY)
        return path.exists() and path not in gone
    return False


def _can_be_read(path: Path) -> bool:
    """Whether a file is a whole one of Parquet."""
    try:
        with ParquetFile(path, page_checksum_verification=True) as file:
            for group in range(file.num_row_groups):
                file.read_row_group(group).validate(full=True)
    except (OSError, ValueError, ArrowException):  # texts in it may be none
        return False
    return True


def _is_parquet(path: Path) -> bool:
    """The same from its end alone."""
    try:
        read_metadata(path)
    except (OSError, ValueError, ArrowException):
        return False
    return True


def _numbers(table: Path, suffix: str) -> list[int]:
    try:
        names = [path.name for path in folder_of(table).iterdir()]
    except OSError as error:
        raise StateError(f"{folder_of(table)} cannot be read: {error.strerror}") from error
    stems = (name.removesuffix(suffix) for name in names if name.endswith(suffix))
    return sorted(int(stem) for stem in stems if stem.isdigit())


def _path(table: Path, number: int, suffix: str) -> Path:
    return folder_of(table) / f"{number:020}{suffix}"
