"""What records have: columns, those that are added to them, and positions on axes."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import Literal

SOURCE_COLUMN = "source"  # every stream has it unless its records bring their own
POSITION = "__position"  # microseconds since the epoch, UTC; null in a bad row
UNTIL = "__until"  # where the span of a record ends, if it stands for one
SHARE = "__share"  # how much of the span lies in a pane
COPY = "__copy"  # which of a job's cores a record is counted for, where there are several
MEMBER = "__member"  # which stream a record is of, where a job reads several
SHAPE = "__shape"  # which shape a row is of, where those of one form are put together
SET = "__set"  # which of a job's sets of keys a row is grouped by, where there are several
ORIGIN = "__origin"  # the source of a record, where a job tells sources apart
SIZE = "__size"  # a record's bytes, where a job counts them
MARK = "__mark"  # stream time less slack when the record was read
NOWHERE = -(1 << 63)  # in arrays of positions and marks, which have no nulls
Spans = Literal["touch", "split"]  # what panes get of a record that stands for a span of time


@dataclass(frozen=True)
class Column:
    name: str
    type: str


@dataclass(frozen=True)
class Axis:
    """What windows are measured on: time, or a count that every source keeps for itself."""

    kind: Literal["time", "records", "bytes", "sequence"] = "time"
    sql: str | None = None  # of a sequence: the user's expression

    @property
    def column(self) -> str:
        """The column of records that holds their positions."""
        if self.kind == "time":
            return POSITION
        told = sha256((self.sql or "").encode()).hexdigest()[:8] if self.sql else ""
        return f"__{self.kind}{told}"

    @property
    def is_time(self) -> bool:
        return self.kind == "time"


TIME = Axis()
RECORDS = Axis("records")
