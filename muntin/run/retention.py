"""What nobody needs any more: blocks and tallies that no window still to come holds."""

from __future__ import annotations

from collections.abc import Mapping

from muntin.fidelity.score import EVER, NEVER
from muntin.kernel.due import Emitted
from muntin.kernel.kinds import kind_of
from muntin.model.shapes import Shape
from muntin.run.catalog import Catalog
from muntin.run.contracts import Collection
from muntin.run.departures import Departures
from muntin.run.progress import Progress
from muntin.windows.ledger import Grid


class Retention:
    """Decides what is kept of one stream, by what its jobs have sent off."""

    def __init__(self, progress: Progress, departures: Departures) -> None:
        self._progress = progress
        self._departures = departures
        self._passed: dict[str, int] = {}  # by axis, up to where nothing more is awaited

    def emitted(self, catalog: Catalog) -> dict[str, Emitted]:
        """What has left of each shape."""
        return {id_: self._departures.emitted(jobs) for id_, jobs in catalog.by_shape.items()}

    def forget(
        self, catalog: Catalog, emitted: Mapping[str, Emitted], collection: Collection, now: float
    ) -> None:
        """Drops what no window needs that comes after the emitted ones."""
        collection.forget(catalog, emitted)
        oldest: dict[Grid, int] = {}
        needed: dict[str, int] = {}  # by axis, the position before which nothing is
        for id_, shape in catalog.shapes.items():
            axis, left = shape.axis.column, emitted[id_]
            if not kind_of(shape).has_panes:
                first = NEVER if left.sessions is None else left.sessions - shape.reach
            else:
                pane, grid = self.oldest_pane(shape, left), catalog.grids[id_]
                oldest[grid] = min(pane, oldest.get(grid, pane))
                first = max(NEVER, pane * shape.pane)
                for job in catalog.by_shape[id_]:
                    self._progress.failures.forget(job.name, first)
            needed[axis] = min(first, needed.get(axis, first))
        for grid, pane in oldest.items():
            self._progress.ledger.forget(grid, pane)
        self._progress.let_go(needed, now)

    def forget_bounded(
        self,
        catalog: Catalog,
        horizons: Mapping[str, int | None],
        collection: Collection,
        now: float,
    ) -> None:
        """Drops what lies outside of the bounds of jobs, for which no window will ever leave."""
        bounded = any(s.begin is not None and s.pane for s in catalog.shapes.values())
        if bounded and any(horizons.values()):
            self._passed = {axis: at for axis, at in horizons.items() if at is not None}
            self.forget(catalog, self.emitted(catalog), collection, now)

    def oldest_pane(self, shape: Shape, emitted: Emitted) -> int:
        """The first pane that some window still to come holds, within the shape's bounds."""
        oldest = emitted.oldest_pane
        if shape.begin is None:
            return oldest
        longest = max(spec.length for spec in emitted.windows)
        oldest = max(oldest, shape.begin // shape.pane - longest)
        over = shape.until is not None and self._passed.get(shape.axis.column, NEVER) >= (
            shape.until + longest * shape.pane
        )
        return EVER if over else oldest
