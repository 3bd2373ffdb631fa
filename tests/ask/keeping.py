"""Runs in this process that leave a state behind, as those on Spark do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from muntin.kernel.compute import Recipe
from muntin.kernel.due import Due, Emitted
from muntin.kernel.kinds import kind_of
from muntin.kernel.merge import block_of, merge
from muntin.kernel.reading import Reading
from muntin.model.jobs import Program
from muntin.model.streams import Stream
from muntin.run.catalog import Catalog
from muntin.run.contracts import Answer, Intake, Work
from muntin.run.door import Door
from muntin.run.inline import InlineCollection
from muntin.run.kept import Remembered, program_of, taken_up
from muntin.run.loop import Loop, Rules
from muntin.run.members import files_of
from muntin.run.results import ToSave
from muntin.run.steward import Steward
from muntin.run.succession import Effect
from muntin.schedule.pace import Measure, Pace
from muntin.store.blocks import BlockFiles
from muntin.store.checkpoint import Checkpoint
from muntin.store.journal import Journal
from muntin.store.storage import Place


class Saving(InlineCollection):
    """Blocks in memory, of which those of a batch are saved with it."""

    def __init__(self) -> None:
        super().__init__()
        self._new: list[tuple[str, int, pa.Table]] = []

    def add(self, work: Work, recipes: Sequence[Recipe], final: Mapping[str, int]) -> list[Reading]:
        one = InlineCollection()
        readings = one.add(work, recipes, final)
        shapes = {recipe.shape.id: recipe.shape for recipe in recipes}
        for id_, table in one._blocks(shapes).items():
            self._new.append((id_, shapes[id_].pane, table))
            known = self._blocks(shapes).get(id_)
            whole = table if known is None else merge(shapes[id_], [known, table])
            self._held[id_] = shapes[id_].pane, whole
        self._shelf.drop_touched(shapes, [t for reading in readings for t in reading.tallies])
        return readings

    def answer(
        self, catalog: Catalog, due: Due, save: Mapping[str, Emitted] | None = None
    ) -> Answer:
        answer = super().answer(catalog, due, save)
        if save is None:
            return answer
        blocks: dict[str, list[object]] = {}
        for id_, pane, table in self._new:
            shape = catalog.shapes.get(id_)
            if shape is None:
                continue
            if id_ in save:
                table = kind_of(shape).without(table, save[id_])
            if table.num_rows:
                blocks.setdefault(id_, []).append(block_of(replace(shape, pane=pane), table))
        self._new = []
        return replace(answer, to_save=ToSave(blocks))  # type: ignore[arg-type]

    def compact(self, catalog: Catalog) -> None:
        self._new = [(id_, pane, table) for id_, (pane, table) in self._held.items()]

    def restore(self, catalog: Catalog, blocks: BlockFiles) -> None:
        for block in blocks.every(catalog.shapes):
            shape = catalog.shapes[block.shape]
            table, known = block.table(shape.pane), self._held.get(block.shape)
            whole = table if known is None else merge(shape, [known[1], table])
            self._held[block.shape] = shape.pane, whole


class Kept:
    """A stream of a program that is run by hand, with a state."""

    def __init__(
        self,
        program: Program,
        state: Place,
        follow: bool = False,
        batch_bytes: int = 1 << 20,
        now: float = 1_000_000.0,
        intake: Intake | None = None,
        stream: Stream | None = None,
    ) -> None:
        stream = stream or next(iter(program.streams.values()))
        self.now = now
        saved = Checkpoint(state, stream.name).peek()
        known = Remembered() if saved is None else saved.kept
        catalog = taken_up(stream, program.jobs_of(stream.name), known).catalog
        self.collection = Saving()
        self.journal = Journal(state, catalog, self.collection)
        intake = intake or files_of(stream, follow, self.journal.positions, batch_bytes)
        self.door = Door()
        self.door.open(*program_of(program, [catalog]))
        pace, rules = Pace(Measure(0.0), Measure(0.0)), Rules(follow, 1e9)
        self.loop = Loop(
            catalog, intake, self.collection, self.journal, rules, lambda: self.now, pace
        )

    def turn(self) -> None:
        self.now += 1
        self.last = self.loop.turn()

    @property
    def loops(self) -> list[Loop]:
        return [self.loop]

    def begin(self, stream: Stream) -> Loop:
        raise NotImplementedError

    def order(self, text: str) -> Effect:
        """Has an order done, and says from where on it holds."""
        visit, steward = self.door.bring(text), Steward(self)
        self.door.serve(steward.check, steward.do)
        reply = visit.reply(0)
        assert reply is not None
        return reply.effects[-1]

    def whole(self) -> None:
        """Has the next commit begin new files, as every so many do."""
        self.journal._saves = 1 << 30

    def finish(self, rewrite: int = 0) -> None:
        """Runs to the end of finite input; every so many turns, files are begun anew."""
        turns = 0
        while True:
            turns += 1
            if rewrite and turns % rewrite == 0:
                self.whole()
            self.turn()
            if not self.last.remaining:
                return
