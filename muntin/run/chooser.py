"""Measures what windows cost while they run, and decides how they are computed from here on.

Windows hold rows of panes and rows of their own alike, so a change needs nothing to be moved.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from muntin.kernel.compute import Recipe
from muntin.kernel.kinds import kind_of
from muntin.kernel.reading import Cost, Reading
from muntin.kernel.statements import Windows
from muntin.model.shapes import Shape
from muntin.run.catalog import Catalog
from muntin.windows.choice import Choice, Measured, Sharing, choose


class Chooser:
    """The choices for one stream's shapes; they are kept in the given mapping, which lives on."""

    def __init__(self, wish: Sharing, choices: dict[str, Choice]) -> None:
        self._wish = wish
        self._choices = choices
        self._measured: dict[str, Measured] = {}

    def recipes(self, catalog: Catalog) -> list[Recipe]:
        """What to compute in the next batch."""
        return [
            replace(
                recipe,
                separate=self.choice(recipe.shape, recipe.windows).separate
                and recipe.shape.id not in {*catalog.drawn, *catalog.retained},
                version=catalog.version,
            )
            for recipe in catalog.recipes
        ]

    def computed(
        self, catalog: Catalog, readings: Sequence[Reading], costs: Mapping[str, Cost]
    ) -> None:
        """Takes note of what computing a batch has cost, by shape."""
        panes: Counter[tuple[str, int]] = Counter()
        for reading in readings:
            panes.update((tally.axis, tally.size) for tally in reading.tallies)
        for id_, cost in costs.items():
            if cost.records and id_ in catalog.shapes:
                shape, windows = catalog.shapes[id_], catalog.windows[id_]
                separate = self.choice(shape, windows).separate
                overlaps = sum(window.overlap for window in windows)
                self._measured[id_] = self._seen(id_).computed(
                    panes[shape.axis.column, shape.pane],
                    cost.records,
                    0 if separate else cost.rows,
                    overlaps if separate else 1,
                    cost.seconds,
                )

    def merged(self, costs: Mapping[str, Cost]) -> None:
        """Takes note of what merging rows into windows has cost."""
        for id_, cost in costs.items():
            self._measured[id_] = self._seen(id_).merged(cost.rows, cost.seconds)

    def choose(self, catalog: Catalog) -> Iterator[tuple[Shape, Choice]]:
        """Decides anew; gives what has changed."""
        for id_, shape in catalog.shapes.items():
            windows = catalog.windows[id_]
            free = shape.draws is None and id_ not in catalog.retained
            if free and kind_of(shape).always_shared(windows) is None:
                before = self.choice(shape, windows)
                after = choose(windows, self._seen(id_), before, self._wish)
                self._choices[id_] = after
                if after.separate != before.separate:
                    yield shape, after

    def choice(self, shape: Shape, windows: Windows) -> Choice:
        """How the windows of a shape are computed now, and why."""
        reason = kind_of(shape).always_shared(windows)
        if reason is None and shape.draws is not None:
            reason = "panes of an earlier version are taken in"
        if reason is not None:
            return Choice(False, reason)
        if self._wish != "auto":
            return Choice(self._wish == "separate", "as the setting says")
        return self._choices.get(shape.id, Choice())

    def _seen(self, id_: str) -> Measured:
        return self._measured.get(id_, Measured())
