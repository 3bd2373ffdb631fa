"""Rows for people, in the room there is. Nothing is cut.

Where a table is too wide, headers, texts and windows are broken into lines; where that is not
enough, every column gets a line of its own.
"""

from __future__ import annotations

import pyarrow as pa
from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from muntin.show.values import cell_text, is_number, score_text, window_text
from muntin.store.export import values_of

_COUNTS = ("records_read", "records_bad", "records_late", "records_failed")
_BORDER = 3  # places beside every column
_HEADER = 6  # places of a header that stay on one line
_TEXT = 12


class TableText:
    """Rows of one job, under the header of the table `above` them if they fit there."""

    def __init__(
        self, job: str, rows: pa.Table, width: int, above: TableText | None = None
    ) -> None:
        shown = _shown(rows, above.names[1:] if above is not None else [])
        self.names: list[str] = ["window", *shown]
        self._job = job
        self._room = width
        self._numbers = [False, *(is_number(rows.schema.field(name).type) for name in shown)]
        columns = zip(*map(values_of, rows.columns), strict=True)
        every = (dict(zip(rows.column_names, row, strict=True)) for row in columns)
        self._rows = [_cells(row, shown, rows.schema) for row in every]
        self._headed = above is None or above.names != self.names
        self.widths: list[int] = self._widths()
        if above is not None and not self._headed:
            together = [max(pair) for pair in zip(self.widths, above.widths, strict=True)]
            self._headed = together != above.widths
            self.widths = together

    def drawn(self) -> RenderableType:
        """A table, or one line a column where no table fits."""
        for widths in (self.widths, self._narrowed()):
            if self._places(widths) <= self._room:
                return self._table(widths)
        return self._listed()

    def _table(self, widths: list[int]) -> Table:
        table = Table(
            title=Text(self._job, "bold") if self._headed else None,
            title_justify="left",
            header_style="bold",
            show_header=self._headed,
        )
        for name, width, number in zip(self.names, widths, self._numbers, strict=True):
            side = "right" if number else "left"
            table.add_column(Text(name), width=width, overflow="fold", justify=side)  # type: ignore[arg-type]
        previous = ""
        for window, *cells in self._rows:
            first = "" if window == previous else window
            table.add_row(*map(Text, (first, *cells)))
            previous = window
        return table

    def _listed(self) -> Group:
        width = max(map(cell_len, self.names))
        lines = [Text(self._job, "bold")] if self._headed else []
        for row in self._rows:
            for name, cell in zip(self.names, row, strict=True):
                lines.append(Text.assemble((f"{name:>{width}}", "bold"), "  ", cell))
            lines.append(Text())
        return Group(*lines)

    def _widths(self) -> list[int]:
        """What each column takes if nothing is broken into lines."""
        cells = zip(*self._rows, strict=True) if self._rows else [()] * len(self.names)
        return [
            max(map(cell_len, (name, *column)))
            for name, column in zip(self.names, cells, strict=True)
        ]

    def _narrowed(self) -> list[int]:
        """What each column has to have, and what is left given to texts, then to the window."""
        narrow = [self._least(index) for index in range(len(self.names))]
        spare = self._room - self._places(narrow)
        for index in sorted(range(len(narrow)), key=lambda i: (self._numbers[i], i == 0)):
            more = max(0, min(spare, self.widths[index] - narrow[index]))
            narrow[index] += more
            spare -= more
        return narrow

    def _least(self, index: int) -> int:
        if index == 0:
            halves = (half for row in self._rows for half in row[0].split(" – "))
            return max([len(self.names[0]), *map(len, halves)])
        if not self._numbers[index]:
            return min(self.widths[index], _TEXT)
        cells = (cell_len(row[index]) for row in self._rows)
        return max([min(cell_len(self.names[index]), _HEADER), *cells])

    def _places(self, widths: list[int]) -> int:
        return sum(widths) + _BORDER * len(widths) + 1


def _shown(rows: pa.Table, before: list[str]) -> list[str]:
    """The columns worth showing: counts where something is wrong, names where they differ."""
    hidden = {"job", "window_start", "window_end", "records_read"}
    hidden |= {c for c in _COUNTS if c in rows.column_names and not any(rows[c].to_pylist())}
    if len(set(rows["window_name"].to_pylist())) < 2:
        hidden.add("window_name")
    return [name for name in rows.column_names if name not in hidden or name in before]


def _cells(row: dict[str, object], shown: list[str], schema: pa.Schema) -> list[str]:
    window = window_text(row["window_start"], row["window_end"])  # type: ignore[arg-type]
    cells = {name: cell_text(row[name], schema.field(name).type) for name in shown}
    if "c2" in cells:
        cells["c2"] = score_text(row["c2"])  # type: ignore[arg-type]
    return [window, *cells.values()]
