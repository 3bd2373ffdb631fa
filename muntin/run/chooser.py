"""Measures what windows cost while they run, and decides how they are computed from here on.

Windows hold rows of panes and rows of their own alike, so a change needs nothing to be moved.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from muntin.kernel.compute import Cost, Recipe
from muntin.kernel.kinds import kind_of
from muntin.logs.records import Report
from muntin.model import Shape
from muntin.windows.choice import Choice, Measured, Sharing, choose


class Chooser:
    """The choices for one stream's shapes; they are kept in the given mapping, which lives on."""

    def __init__(
        self, recipes: Sequence[Recipe], wish: Sharing, choices: dict[str, Choice]
    ) -> None:
        self._recipes = {recipe.shape.id: recipe for recipe in recipes}
        self._wish = wish
        self._choices = choices
        self._measured: dict[str, Measured] = {}

    def recipes(self) -> list[Recipe]:
        """What to compute in the next batch."""
        return [
            replace(recipe, separate=self._choice(recipe.shape).separate)
            for recipe in self._recipes.values()
        ]

    def computed(self, report: Report) -> None:
        """Takes note of what computing one lane has cost."""
        for id_, cost in report.costs.items():
            recipe = self._recipes[id_]
            separate = self._choice(recipe.shape).separate
            grid = recipe.shape.axis.column, recipe.shape.pane
            panes = sum(1 for tally in report.tallies if (tally.axis, tally.size) == grid)
            groupings = sum(window.overlap for window in recipe.windows) if separate else 1
            rows = 0 if separate else cost.rows
            self._measured[id_] = self._seen(id_).computed(
                panes, cost.records, rows, groupings, cost.seconds
            )

    def merged(self, costs: Mapping[str, Cost]) -> None:
        """Takes note of what merging rows into windows has cost."""
        for id_, cost in costs.items():
            self._measured[id_] = self._seen(id_).merged(cost.rows, cost.seconds)

    def choose(self) -> Iterator[tuple[Shape, Choice]]:
        """Decides anew; gives what has changed."""
        for id_, recipe in self._recipes.items():
            if kind_of(recipe.shape).always_shared is None:
                before = self._choice(recipe.shape)
                after = choose(recipe.windows, self._seen(id_), before, self._wish)
                self._choices[id_] = after
                if after.separate != before.separate:
                    yield recipe.shape, after

    def _choice(self, shape: Shape) -> Choice:
        reason = kind_of(shape).always_shared
        if reason is not None:
            return Choice(False, reason)
        if self._wish != "auto":
            return Choice(self._wish == "separate", "as the setting says")
        return self._choices.get(shape.id, Choice())

    def _seen(self, id_: str) -> Measured:
        return self._measured.get(id_, Measured())
