"""Panes that are kept for questions, in files of their own, once no window to come holds them.

Open panes are blocks of the state. Those that have settled move into files here (`settling`); the
same commit names them, and says up to where panes of the shape have moved. So a pane is in one of
both places, whatever happens in between.

A file is a tape: pieces of some thousand rows in the order of panes and keys, and behind them an
index of where each piece lies, so that a question reads the pieces it is about. Each has its
checksum, and nothing is made of bytes that do not fit it. Small files become larger ones as they
grow in number, piece by piece; pieces and files that are older than the panes are kept for are left
out and removed. Files of earlier versions are Arrow's, without checksums, until they are merged.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Protocol
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from muntin.errors import StateError
from muntin.fidelity.score import NEVER
from muntin.run.past import Past
from muntin.store import tape
from muntin.store.packs import SUFFIX, packed, unpacked
from muntin.store.storage import Storage

FOLDER = "panes"
PIECE_ROWS = 1 << 16
PIECE_BYTES = 32 << 20  # of rows, of which one may be large
_PACKED_BYTES = 8 << 20  # of small pieces that become one, in their files
_MANY = 8  # files of about one size that become fewer
_AT_ONCE = 64  # files that are open together
_SIZES = 8  # by which sizes of files differ that are not about the same
_SMALL = 1 << 16  # bytes, of files that are all about the same
_LARGE = 32 << 20  # bytes, of files that stay as they are
_INDEX = b"muntin"  # where an Arrow file has its index
Key = str | int | None


@dataclass(frozen=True)
class PaneFile:
    """What a state knows of a file: whose panes, how large these are, and where they lie."""

    shape: str
    pane: int
    lower: int  # positions
    upper: int
    rows: int
    bytes: int
    index: int = 0  # the byte at which its index begins; 0: it is an Arrow file

    def share(self, rows: int) -> int:
        """About how many of its bytes so many rows are."""
        return self.bytes * rows // max(1, self.rows)


@dataclass(frozen=True)
class Piece:
    """Rows that are read together: panes `[lower, upper)`, and the bounds of their first key."""

    rows: int
    lower: int
    upper: int
    least: Key = None  # None where nothing is told
    most: Key = None
    at: int = 0  # the byte at which it begins, of a file that is a tape
    size: int = 0

    def has(self, lower: int, upper: int, keys: Collection[Key] | None) -> bool:
        """Whether rows may be of panes `[lower, upper)` and one of these first keys."""
        if self.upper <= lower or self.lower >= upper:
            return False
        if keys is None or self.least is None or self.most is None:
            return True
        return any(_between(self.least, key, self.most) for key in keys)


def _between(least: Key, key: Key, most: Key) -> bool:
    if isinstance(least, str) and isinstance(key, str) and isinstance(most, str):
        return least.encode() <= key.encode() <= most.encode()
    if isinstance(least, int) and isinstance(key, int) and isinstance(most, int):
        return least <= key <= most
    return True  # of what cannot be compared, nothing is left out


@dataclass
class PaneFiles:
    """The files of one stream's panes."""

    folder: Storage  # of the stream
    files: dict[str, PaneFile] = field(default_factory=dict)
    moved: dict[str, int] = field(default_factory=dict)  # by shape, up to where panes are here
    new: list[str] = field(default_factory=list)  # files that no commit has named yet
    damaged: set[str] = field(default_factory=set)  # which cannot be merged with others
    began: dict[str, int] = field(default_factory=dict)
    """By shape, before which position panes are not kept any longer."""

    def add(self, files: Mapping[str, PaneFile]) -> None:
        """Takes files that were written, for the next commit to name."""
        self.files |= files
        self.new += files

    @property
    def many(self) -> list[str]:
        """Files of about one size of which some are to become one, the smallest first; or none.

        They follow each other, and are together about as large as a file that stays as it is.
        """
        by_size: dict[tuple[int, str, int], list[str]] = {}
        for name, file in self.files.items():
            if file.bytes < _LARGE and name not in self.damaged:
                size = int(np.log(max(file.bytes, _SMALL) / _SMALL) / np.log(_SIZES))
                by_size.setdefault((size, file.shape, file.pane), []).append(name)
        names = next((names for _, names in sorted(by_size.items()) if len(names) >= _MANY), [])
        some, size = list[str](), 0
        for name in sorted(names, key=lambda name: (self.files[name].lower, name)):
            if (len(some) > 1 and size + self.files[name].bytes > _LARGE) or len(some) == _AT_ONCE:
                break
            some.append(name)
            size += self.files[name].bytes
        return some

    def merge(self) -> list[str]:
        """Makes one file of many, which the next commit names in their place.

        One that cannot be read stays as it is. Returns what there is to say.
        """
        many = {name: self.files[name] for name in self.many}
        began = max((self.began.get(file.shape, NEVER) for file in many.values()), default=NEVER)
        made, damaged = merged(self.folder, many, began)
        self.files = {n: f for n, f in self.files.items() if n in damaged or n not in many}
        self.add(made)
        self.damaged |= damaged.keys()
        return [*damaged.values()]

    def expire(self, past: Mapping[str, Past]) -> None:
        """Drops files of panes that are not kept any longer, and of shapes that nobody keeps."""
        self.began = {shape: known.began for shape, known in past.items()}
        for name, file in list(self.files.items()):
            if file.shape not in past or file.upper <= past[file.shape].began:
                del self.files[name]
        self.moved = {shape: at for shape, at in self.moved.items() if shape in past}

    def strays(self) -> list[str]:
        """Files that no state names, as it is known here."""
        return [f"{FOLDER}/{n}" for n in self.folder.names(FOLDER) if n not in self.files]

    def opened(self, name: str) -> Opened:
        """A file to be read piece by piece; a StateError if it is damaged."""
        return _opened(self.folder, name, self.files[name])

    def pieces(self, name: str) -> Iterator[pa.Table]:
        """All rows of a file, some at a time."""
        with self.opened(name) as opened:
            yield from map(opened.rows, range(len(opened.index)))

    def verify(self, name: str) -> None:
        """Reads all of a file; a StateError if it is damaged, or not as long as it was."""
        known, size = self.files[name], self.folder.size(f"{FOLDER}/{name}")
        rows = sum(piece.num_rows for piece in self.pieces(name))
        if (rows, size) != (known.rows, known.bytes):
            where, told = self.folder.where(f"{FOLDER}/{name}"), f"{known.rows:,} rows in "
            told += f"{known.bytes:,} bytes were written, and {rows:,} in {size or 0:,} are there"
            raise DamagedError(_damaged(where, told), name)

    def of(self, shape: str, lower: int, upper: int) -> dict[str, PaneFile]:
        """The files that may have panes between two positions."""
        return {
            name: file
            for name, file in self.files.items()
            if file.shape == shape and file.lower < upper and file.upper > lower
        }


def store(folder: Storage, shape: str, pane: int, rows: pa.Table) -> dict[str, PaneFile]:
    """Writes rows into a file of their own, in the order of panes and their first key.

    It has a name that nobody else uses, and is on disk then. Without rows there is none.
    """
    if not rows.num_rows:
        return {}
    told = _is_told(rows.schema)
    rows = _in_order(rows, told)
    each = PIECE_BYTES * rows.num_rows // max(1, rows.nbytes)
    each = max(1, min(PIECE_ROWS, each))
    pieces = [rows.slice(at, each) for at in range(0, rows.num_rows, each)]
    return _written(folder, shape, pane, [_piece(piece, told) for piece in pieces], pieces)


def merged(
    folder: Storage, files: Mapping[str, PaneFile], began: int = NEVER
) -> tuple[dict[str, PaneFile], dict[str, str]]:
    """One file with the rows of several, which are of one shape and size of panes.

    Pieces that end where panes begin to be kept are left out. Some rows at a time are in memory,
    however many there are. Files that cannot be read are left out, and it is told what is wrong
    with each; without any other, nothing is written.
    """
    damaged: dict[str, str] = {}
    while left := [name for name in files if name not in damaged]:
        with ExitStack() as stack:
            sources: list[_Source] = []
            try:
                for name in left:
                    opened = stack.enter_context(_opened(folder, name, files[name]))
                    file = files[name]
                    for number, piece in enumerate(opened.index):
                        if piece.upper * file.pane > began:
                            sources.append((piece, file, number, opened))
                if not sources:  # nothing of them is kept any longer
                    return {}, damaged
                sources.sort(key=lambda each: (each[0].lower, each[0].upper))
                several, of = [*_together(sources)], files[left[0]]
                told = [_joined([piece for piece, *_ in some]) for some in several]
                made = _written(folder, of.shape, of.pane, told, map(_rows, several))
            except DamagedError as error:  # without it, once more
                damaged[error.name] = str(error)
            else:
                return made, damaged
    return {}, damaged


class DamagedError(StateError):
    """A file whose rows cannot be read."""

    def __init__(self, message: str, name: str = "") -> None:
        super().__init__(message)
        self.name = name


def _damaged(where: str, why: object) -> str:
    advice = "questions about its panes are refused until a copy of it is put back"
    return f"{where} is damaged: {why}; {advice}"


class Opened(Protocol):
    """A file that is read piece by piece; whatever is damaged in it is a DamagedError."""

    @property
    def index(self) -> Sequence[Piece]:
        """What it says of its pieces."""

    def __enter__(self) -> Opened: ...

    def __exit__(self, *_: object) -> None: ...

    def rows(self, number: int) -> pa.Table:
        """The rows of one piece."""


def _opened(folder: Storage, name: str, file: PaneFile) -> Opened:
    return _Tape(folder, name, file) if file.index else _ArrowFile(folder, name)


class _File:
    """A file that is closed in the end, with words for what is wrong with it."""

    def __init__(self, folder: Storage, name: str) -> None:
        self._name, self._where = name, folder.where(f"{FOLDER}/{name}")
        try:
            self._file = folder.open(f"{FOLDER}/{name}")
        except StateError as error:
            raise DamagedError(str(error), name) from error

    def __exit__(self, *_: object) -> None:
        self._file.close()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except (pa.ArrowException, OSError, ValueError, TypeError) as error:
            raise DamagedError(_damaged(self._where, error), self._name) from error


class _Tape(_File):
    """Pieces and an index with checksums."""

    def __init__(self, folder: Storage, name: str, file: PaneFile) -> None:
        super().__init__(folder, name)
        try:
            with self._explained():
                index = tape.whole(self._read(file.index, file.bytes - file.index))
                self.index = [Piece(*row) for row in json.loads(index)]
        except DamagedError:
            self._file.close()
            raise

    def __enter__(self) -> _Tape:
        return self

    def rows(self, number: int) -> pa.Table:
        piece = self.index[number]
        with self._explained():
            return unpacked(self._read(piece.at, piece.size))

    def _read(self, at: int, size: int) -> bytes:
        self._file.seek(at)
        data: bytes = self._file.read(size)
        return data


class _ArrowFile(_File):
    """As earlier versions wrote it: what is in it can only be looked at for whether it makes sense.

    That takes longer than a checksum, but what makes none would end the process.
    """

    def __init__(self, folder: Storage, name: str) -> None:
        super().__init__(folder, name)
        try:
            with self._explained():
                self._reader = pa.ipc.open_file(self._file)
                metadata = self._reader.schema.metadata or {}
                self.index = [Piece(*row) for row in json.loads(metadata.get(_INDEX, b"[]"))]
                if not self.index or len(self.index) != self._reader.num_record_batches:
                    raise ValueError("its index is of other pieces")
        except DamagedError:
            self._file.close()
            raise

    def __enter__(self) -> _ArrowFile:
        return self

    def rows(self, number: int) -> pa.Table:
        with self._explained():
            batch = self._reader.get_batch(number)
            batch.validate(full=True)
            if batch.num_rows != self.index[number].rows:
                raise ValueError(f"piece {number} has {batch.num_rows:,} rows")
        return pa.Table.from_batches([batch]).replace_schema_metadata(None)


_Source = tuple[Piece, PaneFile, int, Opened]


def _together(sources: Iterable[_Source]) -> Iterator[list[_Source]]:
    """Pieces one behind the other that are small enough to become one."""
    some, rows, size = list[_Source](), 0, 0
    for source in sources:
        piece, file, *_ = source
        rows, size = rows + piece.rows, size + file.share(piece.rows)
        if some and (rows > PIECE_ROWS or size > _PACKED_BYTES):
            yield some
            some, rows, size = [], piece.rows, file.share(piece.rows)
        some.append(source)
    if some:
        yield some


def _joined(pieces: Sequence[Piece]) -> Piece:
    """What is told of pieces that become one."""
    return Piece(
        sum(piece.rows for piece in pieces),
        min(piece.lower for piece in pieces),
        max(piece.upper for piece in pieces),
        *_bounds([key for piece in pieces for key in (piece.least, piece.most)]),
    )


def _bounds(keys: Sequence[Key]) -> tuple[Key, Key]:
    """The first and the last of keys, as they are compared; nothing where one is not told."""
    numbers = [key for key in keys if isinstance(key, int)]
    texts = sorted((key for key in keys if isinstance(key, str)), key=str.encode)
    if keys and len(numbers) == len(keys):
        return min(numbers), max(numbers)
    return (texts[0], texts[-1]) if keys and len(texts) == len(keys) else (None, None)


def _rows(several: Sequence[_Source]) -> pa.Table:
    """The rows of pieces that become one."""
    tables = [opened.rows(number) for _, _, number, opened in several]
    rows = pa.concat_tables(tables)
    return rows if len(tables) == 1 else _in_order(rows, _is_told(rows.schema))


def _in_order(rows: pa.Table, told: bool) -> pa.Table:
    by = ["pane", "k0"] if told else ["pane"]
    return rows.combine_chunks().take(pc.sort_indices(rows, [(name, "ascending") for name in by]))


def _written(
    folder: Storage, shape: str, pane: int, told: Sequence[Piece], pieces: Iterable[pa.Table]
) -> dict[str, PaneFile]:
    """Writes a file of pieces, of which it is told before what they have."""
    name = f"{shape}-{uuid4().hex[:12]}{SUFFIX}"
    index, at = list[Piece](), 0
    try:
        with folder.output(f"{FOLDER}/{name}") as path, path.open("wb") as file:
            for piece, rows in zip(told, pieces, strict=True):
                size = file.write(packed(rows.combine_chunks().replace_schema_metadata(None)))
                index.append(replace(piece, at=at, size=size))
                at += size
            end = json.dumps([list(vars(piece).values()) for piece in index]).encode()
            length = at + file.write(tape.framed([end]))
    except OSError as error:
        where = folder.where(f"{FOLDER}/{name}")
        raise StateError(f"{where} cannot be written: {error.strerror or error}") from error
    folder.sync([f"{FOLDER}/{name}"])
    lower, upper = min(p.lower for p in index) * pane, max(p.upper for p in index) * pane
    rows_in_all = sum(piece.rows for piece in index)
    return {name: PaneFile(shape, pane, lower, upper, rows_in_all, length, at)}


def _is_told(columns: pa.Schema) -> bool:
    """Whether it is told of pieces which first keys they have."""
    kind = columns.field("k0").type if "k0" in columns.names else pa.null()
    return bool(pa.types.is_string(kind) or pa.types.is_integer(kind))


def _piece(rows: pa.Table, told: bool) -> Piece:
    panes = pc.min_max(rows.column("pane")).as_py()
    keys = pc.min_max(rows.column("k0")).as_py() if told else {"min": None, "max": None}
    whole = told and not rows.column("k0").null_count
    least, most = (keys["min"], keys["max"]) if whole else (None, None)
    return Piece(rows.num_rows, panes["min"], panes["max"] + 1, least, most)
