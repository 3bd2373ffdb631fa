"""Batches as they are committed: few files, whatever their number, and all of it comes back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

import muntin as mt
from benchmarks.driver import Nothing
from muntin.kernel.finish import Due
from muntin.kernel.merge import Emitted
from muntin.model import Shape
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


class Blocks(Nothing):
    """A collection of bytes; all that was added, or one that stands for it."""

    def __init__(self) -> None:
        super().__init__((), rows=False)
        self.held: list[bytes] = []

    def answer(
        self, catalog: Catalog, due: Due, save: Mapping[str, Emitted] | None = None
    ) -> Answer:
        return Answer(blocks={SHAPE: list(self.held)})

    def compact(self, shapes: Mapping[str, Shape]) -> None:
        self.held = [b"".join(self.held)]

    def restore(self, catalog: Catalog, blocks: Mapping[str, Sequence[bytes]]) -> None:
        self.held = list(blocks.get(SHAPE, ()))


def test_batches_come_back_in_few_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("muntin.store.journal.SAVES_PER_REWRITE", 4)
    blocks = Blocks()
    journal, text = Journal(tmp_path, CATALOG, blocks), b""
    for batch in range(40):
        new = b"%d," % batch
        text += new
        blocks.held.append(new)
        journal.progress.records += 1
        journal.commit(CATALOG, Emission(blocks={SHAPE: [new]}))
        if batch % 9 == 8:  # a restart
            blocks = Blocks()
            journal = Journal(tmp_path, CATALOG, blocks)
        assert (journal.batch, journal.progress.records) == (batch, batch + 1)
        assert b"".join(blocks.held) == text
        assert len(list((tmp_path / "streams" / "s").iterdir())) <= 3
