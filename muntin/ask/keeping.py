"""What a state has of the past: panes in files and in blocks, and what is known of them.

Nothing here writes, so it may look while a program runs. A file that was merged into another
meanwhile is looked for in the newest state.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from threading import Lock
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from muntin.errors import InputError, StateError
from muntin.kernel.block import Block
from muntin.kernel.engine import run
from muntin.kernel.kinds import kind_of
from muntin.kernel.merge import distinct
from muntin.kernel.python.partials import SCHEMA as OBJECTS
from muntin.kernel.statements import cells_of, key_names
from muntin.model.jobs import Job
from muntin.model.shapes import Shape
from muntin.run.kept import decoded
from muntin.run.past import Asked, Past
from muntin.store.blocks import BlockFiles
from muntin.store.checkpoint import STREAMS, Checkpoint, saved_of
from muntin.store.panes import FOLDER, PaneFile, PaneFiles, Piece
from muntin.store.storage import Place, storage_of

MEMORY = 1 << 30  # bytes of rows that are remembered
_TIMES = 5  # that it is tried again, where a program goes on meanwhile
T = TypeVar("T")


@dataclass(frozen=True)
class Retained:
    """The panes of one job."""

    title: str
    stream: str
    job: Job
    asked: Asked
    past: Past
    panes: PaneFiles
    blocks: BlockFiles
    batch: int

    @property
    def shape(self) -> Shape:
        return self.job.shape

    @property
    def moved(self) -> int:
        """Before this position panes are in files, and from there on in blocks."""
        return self.panes.moved.get(self.shape.id, self.past.began)


@dataclass
class Read:
    """What was read for an answer."""

    files: int = 0
    pieces: int = 0
    of_pieces: int = 0  # that there are in these files
    rows: int = 0
    bytes: int = 0
    remembered: int = 0  # pieces that were in memory
    open_rows: int = 0
    open_remembered: int = 0  # of these, in memory

    def plus(self, other: Read) -> Read:
        mine, others = vars(self), vars(other)
        return Read(**{name: mine[name] + others[name] for name in mine})


class Memory:
    """Rows that were read, as many as there is room for; those that were asked for last stay."""

    def __init__(self, room: int = MEMORY) -> None:
        self._room = room
        self._size = 0
        self._known: OrderedDict[object, pa.Table] = OrderedDict()
        self._lock = Lock()

    def get(self, key: object, read: Callable[[], pa.Table]) -> tuple[pa.Table, bool]:
        """The rows, and whether they were there."""
        with self._lock:
            if key in self._known:
                self._known.move_to_end(key)
                return self._known[key], True
        rows = read()
        with self._lock:
            if key not in self._known and rows.nbytes <= self._room:
                self._known[key] = rows
                self._size += rows.nbytes
                while self._size > self._room:
                    self._size -= self._known.popitem(last=False)[1].nbytes
        return rows, False

    def has(self, key: object) -> bool:
        """Whether rows are there."""
        with self._lock:
            return key in self._known


class Keeping:
    """The past of a state, as its newest commits have it."""

    def __init__(self, state: Place, memory: Memory | None = None) -> None:
        self._state = storage_of(state)
        self._memory = memory or Memory(0)

    def jobs(self) -> dict[str, tuple[Retained, ...]]:
        """The jobs that can be asked about, by title: each shape that versions of them have."""
        found: dict[str, list[Retained]] = {}
        for stream in self._state.folders(STREAMS):
            checkpoint = Checkpoint(self._state, stream)
            document = checkpoint.document()
            if document is None:
                continue
            saved = saved_of(document)
            panes = PaneFiles(checkpoint.folder, dict(saved.panes), dict(saved.moved))
            blocks = BlockFiles(checkpoint.folder, dict(document["blocks"]))
            for past in saved.progress.past.values():
                for title, asked in past.jobs.items():
                    job = _job(asked.text, past.pane)
                    one = Retained(title, stream, job, asked, past, panes, blocks, saved.batch)
                    found.setdefault(title, []).append(one)
        return {title: _of_one_kind(several) for title, several in found.items()}

    def again(self, do: Callable[[], T]) -> T:
        """Does something that reads, once more where a program has changed files meanwhile."""
        for _ in range(_TIMES - 1):
            try:
                return do()
            except StateError:
                continue
        return do()

    def rows(
        self, of: Retained, lower: int, upper: int, keys: Collection[str | int] | None
    ) -> tuple[pa.Table, Read]:
        """The rows of panes between two positions, and what was read for them.

        With `keys`, rows whose first key is another may be left out.
        """
        read = Read()
        tables = [*self.pieces(of, lower, upper, keys, read)]
        if not tables:
            return empty_rows(of.shape.answered), read
        return pa.concat_tables(tables, promote_options="default"), read

    def pieces(
        self,
        of: Retained,
        lower: int,
        upper: int,
        keys: Collection[str | int] | None,
        read: Read,
    ) -> Iterator[pa.Table]:
        """The same rows, some at a time; what is read is added to `read`."""
        for table in self._kept(of, lower, min(upper, of.moved), keys, read):
            read.rows += table.num_rows
            yield table
        for table in self._open(of, max(lower, of.moved), upper, read) if upper > of.moved else ():
            read.rows += table.num_rows
            yield table

    def look(
        self, of: Retained, lower: int, upper: int, keys: Collection[str | int] | None
    ) -> Read:
        """What would be read, by what files say of themselves."""
        read = Read()
        for name, file in of.panes.of(of.shape.id, lower, min(upper, of.moved)).items():
            read.files += 1
            first, last = -(-lower // file.pane), -(-min(upper, of.moved) // file.pane)
            place = of.panes.folder.where(f"{FOLDER}/{name}")
            with of.panes.opened(name) as opened:
                read.of_pieces += len(opened.index)
                for number, piece in enumerate(opened.index):
                    if piece.has(first, last, keys):
                        known = self._memory.has((place, number))
                        read.pieces += 1
                        read.remembered += known
                        read.rows += piece.rows
                        read.bytes += 0 if known else file.share(piece.rows)
        first, last = (at // of.shape.pane for at in (max(lower, of.moved), upper))
        known = self._memory.has(_open_key(of))
        for block in distinct(list(of.blocks.every([of.shape.id]))) if upper > of.moved else ():
            if block.lower < last and block.upper > first:
                read.open_rows += block.rows
                read.open_remembered += block.rows if known else 0
                read.bytes += 0 if known else len(block.data)
        return read

    def _kept(
        self,
        of: Retained,
        lower: int,
        upper: int,
        keys: Collection[str | int] | None,
        read: Read,
    ) -> Iterator[pa.Table]:
        for name, file in of.panes.of(of.shape.id, lower, upper).items():
            read.files += 1
            first, last = -(-lower // file.pane), -(-upper // file.pane)
            for table, piece in self._pieces(of.panes, name, file, first, last, keys, read):
                inside = first <= piece.lower and piece.upper <= last
                yield table if inside else _between(table, first, last)

    def _pieces(
        self,
        panes: PaneFiles,
        name: str,
        file: PaneFile,
        first: int,
        last: int,
        keys: Collection[str | int] | None,
        read: Read,
    ) -> Iterator[tuple[pa.Table, Piece]]:
        """The pieces of a file that may have what is asked for."""
        place = panes.folder.where(f"{FOLDER}/{name}")
        with panes.opened(name) as opened:
            read.of_pieces += len(opened.index)
            for number, piece in enumerate(opened.index):
                if not piece.has(first, last, keys):
                    continue

                def batch(number: int = number) -> pa.Table:
                    return opened.rows(number).drop_columns(["spec", "not_before"])

                table, known = self._memory.get((place, number), batch)
                read.pieces += 1
                read.remembered += known
                read.bytes += 0 if known else file.share(piece.rows)
                yield table, piece

    def _open(self, of: Retained, lower: int, upper: int, read: Read) -> Iterator[pa.Table]:
        """Rows of panes that are still in blocks."""
        shape = of.shape

        def blocks() -> pa.Table:
            return _shared(shape, distinct(list(of.blocks.every([shape.id]))), of.moved)

        rows, known = self._memory.get(_open_key(of), blocks)
        rows = _between(rows, -(-lower // shape.pane), -(-upper // shape.pane))
        read.open_rows += rows.num_rows
        read.open_remembered += rows.num_rows if known else 0
        read.bytes += 0 if known else sum(of.blocks.lengths.values())
        yield rows


def _open_key(of: Retained) -> object:
    """What open panes are remembered by."""
    names = tuple(sorted(of.blocks.lengths.items()))
    return of.blocks.folder.where(), of.shape.id, of.shape.pane, of.moved, names


def _of_one_kind(several: Sequence[Retained]) -> tuple[Retained, ...]:
    """Versions of a job; or the newest of a stream, if that has the name and was kept last."""
    last = max(several, key=lambda of: of.past.until)
    if not last.job.is_keeper:
        return tuple(of for of in several if not of.job.is_keeper)
    kept = [of for of in several if of.job.is_keeper]
    return (max(kept, key=lambda of: (of.asked.edition, of.past.until)),)


def _shared(shape: Shape, blocks: Sequence[Block], lower: int) -> pa.Table:
    """The rows of blocks from a position on, without those of single windows."""
    tables = [empty_rows(shape.answered)]
    for block in blocks:
        if block.rows and block.upper * block.pane > lower:
            rows = block.table(shape.pane)
            late = [pc.equal(rows.column("spec"), 0)]
            late.append(pc.greater_equal(rows.column("pane"), lower // shape.pane))
            rows = rows.filter(pc.and_(*late)).drop_columns(["spec", "not_before"])
            if shape.by_source:
                rows = rows.drop_columns([f"k{len(shape.keys) - 1}"])
            tables.append(rows.replace_schema_metadata(None))
    return pa.concat_tables(tables, promote_options="permissive").combine_chunks()


def _between(rows: pa.Table, first: int, last: int) -> pa.Table:
    panes = rows.column("pane")
    lowest = pc.min_max(panes).as_py()
    if rows.num_rows and first <= lowest["min"] and lowest["max"] < last:
        return rows
    return rows.filter(pc.and_(pc.greater_equal(panes, first), pc.less(panes, last)))


@lru_cache(maxsize=256)
def _job(text: str, pane: int) -> Job:
    job = decoded(text, Job)
    return replace(job, shape=replace(job.shape, pane=pane))


def empty_rows(shape: Shape) -> pa.Table:
    """No rows of a shape, with the columns that they would have."""
    if not kind_of(shape).has_cells:
        return OBJECTS.empty_table().drop_columns(["spec", "not_before"])
    columns = ["CAST(NULL AS BIGINT) AS pane", "CAST(NULL AS TINYINT) AS part"]
    columns += [
        f"CAST(NULL AS {key.type}) AS {name}"
        for name, key in zip(key_names(shape), shape.keys, strict=True)
    ]
    columns += [
        f"CAST(NULL AS {part.sub_type}) AS s{i}"
        for i, part in enumerate(shape.parts)
        if part.sub_key is not None
    ]
    columns += [f"CAST(NULL AS {cell.type}) AS {cell.name}" for cell in cells_of(shape)]
    return run(f"SELECT {', '.join(columns)} LIMIT 0", {}, "rows of nothing")


def require(jobs: Sequence[str], state: Place) -> None:
    """Raises an InputError if there is nothing to ask about."""
    if not jobs:
        from muntin.store.inspection import there  # which loads more than an answer needs

        there(state)
        raise InputError(
            f"no job or stream of the state {state} has retained anything yet; RETAIN behind the "
            "WINDOW of a job has its panes kept, for example RETAIN 7 DAYS, and RETAIN 7 DAYS OF "
            "STREAM in CREATE STREAM its records"
        )
