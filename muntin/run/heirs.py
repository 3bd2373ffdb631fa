"""Deliveries for shapes that draw on others: panes of before their filter was another one.

Whoever makes a delivery knows nothing of that. It has the blocks of both shapes, and here those of
the older one become blocks of the newer, too, as far as they lie before the boundary. So it does
not matter when a source learns of the newer shape.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from muntin.fidelity.losses import Unmade
from muntin.kernel.block import regrid
from muntin.kernel.compute import Recipe
from muntin.kernel.reading import Reading
from muntin.model.shapes import Draw, Shape
from muntin.run.contracts import Delivery


class Heirs:
    """The shapes of recipes that draw on others, each behind those that it draws on."""

    def __init__(self, recipes: Sequence[Recipe]) -> None:
        self._shapes = {recipe.shape.id: recipe.shape for recipe in recipes}
        self._drawing = [(s, s.draws) for s in self._shapes.values() if s.draws is not None]
        self._drawing.sort(key=lambda each: each[1].upper)

    def __call__(self, delivery: Delivery) -> Delivery:
        """The delivery with the blocks that shapes inherit, and what is not made of them."""
        if not self._drawing:
            return delivery
        blocks, readings = dict(delivery.blocks), delivery.readings
        for shape, draws in self._drawing:
            table = self._inherited(blocks, shape, draws)
            if table is not None:
                blocks[shape.id] = table
            readings = tuple(_less(reading, shape.id, draws) for reading in readings)
        return Delivery(blocks, readings)

    def _inherited(
        self, blocks: Mapping[str, pa.Table], shape: Shape, draws: Draw
    ) -> pa.Table | None:
        """The block of a shape: its own panes from the boundary on, the other's before it."""
        parts = []
        first = draws.upper // shape.pane
        if shape.id in blocks:
            mine = blocks[shape.id]
            parts.append(mine.filter(pc.greater_equal(mine.column("pane"), first)))
        older = self._shapes.get(draws.shape)
        if older is not None and older.id in blocks:
            theirs = regrid(blocks[older.id], older.pane, shape.pane)
            parts.append(theirs.filter(pc.less(theirs.column("pane"), first)))
        return pa.concat_tables(parts) if parts else None


def _less(reading: Reading, heir: str, draws: Draw) -> Reading:
    """The reading with what a shape has not been made of: the older one's until the boundary."""
    if not reading.unmade:
        return reading
    kept: list[Unmade] = []
    for each in reading.unmade:
        if each.shape != heir:
            kept.append(each)
        elif each.upper > draws.upper:
            kept.append(each._replace(lower=max(each.lower, draws.upper)))
        if each.shape == draws.shape and each.lower < draws.upper:
            kept.append(each._replace(shape=heir, upper=min(each.upper, draws.upper)))
    return replace(reading, unmade=tuple(kept))
