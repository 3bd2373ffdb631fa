"""Batches as they are committed: few files, whatever their number, and all of it comes back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pytest

import muntin as mt
from benchmarks.driver import Nothing
from muntin.kernel.block import Block, encode
from muntin.kernel.due import Due, Emitted
from muntin.run.catalog import Catalog
from muntin.run.contracts import Answer
from muntin.run.results import Emission
from muntin.store.journal import Journal

PROGRAM = mt.sql(
    "CREATE STREAM s (t BIGINT) FROM 'none/{source}' FORMAT json TIMESTAMP t;"
    "CREATE JOB j AS SELECT count(*) AS c FROM s WINDOW 10 SECONDS;"
)
CATALOG = Catalog.of(PROGRAM.streams["s"], PROGRAM.jobs_of("s"))
(SHAPE,) = CATALOG.shapes


def block(*numbers: int) -> Block:
    return Block(SHAPE, encode(pa.table({"n": numbers})), len(numbers))


class Blocks(Nothing):
    """A collection of numbers; all blocks that were added, or one that stands for them."""

    def __init__(self) -> None:
        super().__init__((), rows=False)
        self.held: list[Block] = []

    def answer(
        self, catalog: Catalog, due: Due, save: Mapping[str, Emitted] | None = None
    ) -> Answer:
        return Answer(blocks={SHAPE: list(self.held)})

    @property
    def numbers(self) -> list[int]:
        return [n for block in self.held for n in block.table()["n"].to_pylist()]

    def compact(self, catalog: Catalog) -> None:
        self.held = [block(*self.numbers)]

    def restore(self, catalog: Catalog, blocks: Mapping[str, Sequence[Block]]) -> None:
        self.held = list(blocks.get(SHAPE, ()))


def test_batches_come_back_in_few_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("muntin.store.journal.SAVES_PER_REWRITE", 4)
    blocks = Blocks()
    journal = Journal(tmp_path, CATALOG, blocks)
    for batch in range(40):
        new = block(batch)
        blocks.held.append(new)
        journal.progress.records += 1
        journal.commit(CATALOG, Emission(blocks={SHAPE: [new]}))
        if batch % 9 == 8:  # a restart
            blocks = Blocks()
            journal = Journal(tmp_path, CATALOG, blocks)
        assert (journal.batch, journal.progress.records) == (batch, batch + 1)
        assert blocks.numbers == list(range(batch + 1))
        assert len(list((tmp_path / "streams" / "s").iterdir())) <= 3
