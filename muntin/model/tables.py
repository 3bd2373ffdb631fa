"""What stands beside each record: rows of tables, in their versions, elements of lists, lookups."""

from __future__ import annotations

from dataclasses import dataclass, field

from muntin.model.records import NOWHERE, Axis, Column

_NEVER = "false"
OF_JOB = "job"  # the kind of a table whose rows are the newest result of a job


@dataclass(frozen=True)
class TableVersion:
    """What the file of a table held at a time, and from where on that is joined.

    `since` has positions by axis; the first version has none. The rows are in a file of their own,
    or in this process if there is no `path`.
    """

    number: int
    mark: tuple[int, ...]  # of the file that they were read from
    since: tuple[tuple[str, int], ...] = ()
    path: str | None = None
    result: tuple[int, int] | None = None
    """Of a job's result: where its window ends, and the version of the job that it is by."""

    def begins(self, axis: Axis, pane: int) -> int:
        """The position from which on it is joined: where a pane begins, if there are panes."""
        at = dict(self.since).get(axis.column, NOWHERE)
        return at if at == NOWHERE or not pane else -(-at // pane) * pane


@dataclass(frozen=True)
class Table:
    """Named rows of a file that records, or rows of windows, are joined with."""

    name: str
    path: str
    kind: str  # csv, parquet, json or delta; or of a job: then the path is the job and its window
    columns: tuple[Column, ...] = ()
    versions: tuple[TableVersion, ...] = field(default=(), compare=False, repr=False)
    """In a run: what the file has held, as far as it is still needed, the newest last."""

    @property
    def job(self) -> str | None:
        """The job whose newest result it is, if it is one."""
        return self.path.partition(": ")[0] if self.kind == OF_JOB else None

    @property
    def window(self) -> str:
        """Which of that job's windows."""
        return self.path.partition(": ")[2]


@dataclass(frozen=True)
class Join:
    """A table that records are joined with; its columns are `__j` and its number, and their name.

    `left` says whether records without a row of it count too.
    """

    table: Table
    number: int
    on: str
    left: bool = False

    @classmethod
    def aside(cls, table: Table, number: int) -> Join:
        """A table that statements can read, and of which no row is beside a record."""
        return cls(table, number, _NEVER, left=True)

    @property
    def is_aside(self) -> bool:
        return self.on == _NEVER

    @property
    def relation(self) -> str:
        return f"__table{self.number}"

    def column(self, name: str) -> str:
        """What a column of the table is called beside those of records."""
        return f"__j{self.number}_{name}"

    @property
    def columns(self) -> dict[str, str]:
        """What records have of it, with types."""
        return {self.column(column.name): column.type for column in self.table.columns}


@dataclass(frozen=True)
class Unnest:
    """A list of each record, whose elements the record is beside, each by itself."""

    sql: str
    number: int
    type: str
    words: str = field(default="", compare=False, repr=False)  # what the user calls an element

    @property
    def column(self) -> str:
        return f"__u{self.number}"

    @property
    def columns(self) -> dict[str, str]:
        return {self.column: self.type}


@dataclass(frozen=True)
class Lookup:
    """An expression over a record and tables that are aside, whose value the record is beside."""

    sql: str
    number: int
    type: str
    words: str = field(default="", compare=False, repr=False)  # what the user has written

    @property
    def column(self) -> str:
        return f"__l{self.number}"

    @property
    def columns(self) -> dict[str, str]:
        return {self.column: self.type}
