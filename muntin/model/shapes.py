"""What blocks are made of, and what tells those of one shape from others.

The name of a shape is a digest of how its values print, and states know blocks by it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from hashlib import sha256
from typing import Literal

from muntin.model.records import RECORDS, TIME, Axis, Spans
from muntin.model.tables import Join, Lookup, Unnest


class Merge(StrEnum):
    """How two values of one cell become one."""

    SUM = "sum"
    MIN = "min"
    MAX = "max"
    FOLD = "fold"  # by an expression of its own
    STATE = "state"  # by the user's Python


@dataclass(frozen=True)
class Cell:
    """One column of a partial: how it is computed, and how two of it merge."""

    name: str
    sql: str
    merge: Merge
    type: str
    code: Code | None = None
    given: str = ""  # of a state: the type of what is added to it
    fold: str = field(default="", compare=False, repr=False)
    """The expression that merges it, if that is not its rule: `{c}` stands for the cell, and
    `{over}` follows the aggregate in it."""


@dataclass(frozen=True)
class Part:
    """The rows of a block that share a sub-key. Part 0 has none: one row per key.

    `ranked` parts are finished with each row's running count, for quantiles.
    """

    cells: tuple[Cell, ...]
    sub_key: str | None = None
    sub_type: str | None = None
    where: str | None = None
    ranked: bool = False


@dataclass(frozen=True)
class Key:
    """What records are grouped by, in a form that is the same for all values that are equal."""

    sql: str
    type: str
    words: str = field(default="", compare=False, repr=False)
    """What it is made of as the user says it, for messages."""


Style = Literal["pairs", "cells", "updates", "states"]


@dataclass(frozen=True)
class Code:
    """The Python a job is written in: where it is found, and what to send where it is not.

    pairs    mapper, combiner, reducer: blocks hold the values of each key
    cells    map_batches with `combine`: blocks hold a cell of each key, as those of SQL do
    updates  map, init, update, finalize over a window's values in time order
    states   the same without windows: blocks hold the values of each key, then its state

    Two are the same if they are called the same and have the same text.
    """

    job: str
    reference: str  # module:name
    style: Style
    version: str  # tells texts apart
    takes: tuple[str, ...] = ()  # the columns it is given
    lines: bool = False  # whether it is given the line alone
    files: bool = False  # whether it is given files in the place of records
    where: str | None = None
    max_errors: int = field(default=0, compare=False, repr=False)
    max_state: int = field(default=1 << 24, compare=False, repr=False)  # bytes of a key
    max_keys: int = field(default=1_000_000, compare=False, repr=False)  # that live on
    named: bool = field(default=False, compare=False, repr=False)  # it names its columns
    finalizes: bool = field(default=False, compare=False, repr=False)  # at the end
    chained: bool = field(default=False, compare=False, repr=False)  # it has more than one round
    removable: bool = field(default=False, compare=False, repr=False)  # panes can be taken out
    returns: str = field(default="", compare=False, repr=False)  # of an aggregate: its type
    folder: str | None = field(default=None, compare=False, repr=False)
    payload: bytes | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class Sample:
    """Which panes of which sources a job looks at: each with the same chance, told by a hash."""

    job: str
    share: float


@dataclass(frozen=True)
class KeySet:
    """The numbers of keys that rows are grouped by; others are unknown in them.

    It takes the rows of one copy.
    """

    keys: tuple[int, ...]
    copy: int = 0


@dataclass(frozen=True)
class Draw:
    """Blocks of another shape that count as this one's, as far as they lie before a position."""

    shape: str
    upper: int
    home: str = field(default="", compare=False, repr=False)
    """Where the other's key groups lie, by the first of all shapes whose blocks count here."""


@dataclass(frozen=True)
class Shape:
    """What blocks are made of. Jobs of one shape share blocks, whatever they make of them.

    Positions lie in `[begin, until)`. A shape with a `gap` has sessions instead of panes.
    """

    stream: str
    records: str  # how the stream's records are read: their time, and the columns in use
    keys: tuple[Key, ...]
    parts: tuple[Part, ...]
    uses: tuple[str, ...]
    where: str | None = None
    axis: Axis = TIME
    pane: int = 0
    begin: int | None = None
    until: int | None = None
    gap: int | None = None
    spans: Spans | None = None
    code: Code | None = None
    sample: Sample | None = None
    apart: Literal["panes", "sources"] | None = None
    """What of a window may have to be left out: then sources are the last key of blocks."""
    revise_us: int | None = None
    """How long late records count in windows that have left; other blocks are kept for it."""
    copies: int = 1
    """How many times each record counts, in groups of its own: `__copy` in keys says which."""
    members: tuple[str, ...] = ()
    """Of a stream of several: whose records each of these copies counts. Others it does not."""
    joins: tuple[Join, ...] = ()
    """Tables whose rows are beside each record."""
    lists: tuple[Unnest, ...] = ()
    """Lists whose elements are beside each record; with joins, they are numbered as they follow."""
    lookups: tuple[Lookup, ...] = ()
    """What tables tell of each record, by expressions; numbered with joins and lists."""
    sets: tuple[KeySet, ...] = ()
    """Where rows are grouped by several sets of keys: `__set` is a key that says by which."""
    since: int | None = None
    """Where it was emptied: records of before do not count in windows that go on from there."""
    draws: Draw | None = None
    """Where panes come from that are older than its filter, if windows take them in."""
    alone: bool = False
    """Whether its panes are not those of other jobs that differ in nothing else."""
    scalars: tuple[str, ...] = field(default=(), compare=False, repr=False)
    """What is evaluated on every record that passes the filter, to tell what failed on one."""
    conditions: tuple[str, ...] = field(default=(), compare=False, repr=False)
    """The filter as conditions that all have to hold; none where it was not taken apart."""

    @property
    def keeps_panes(self) -> bool:
        """Whether the size of its panes is part of what its blocks mean.

        Elsewhere panes are only a grid to add up on, which may become finer or coarser.
        """
        chosen = self.sample is not None or self.apart is not None or self.spans == "touch"
        lives_on = self.code is not None and self.code.style == "states"
        return self.alone or chosen or lives_on

    @property
    def meaning(self) -> tuple[object, ...]:
        """All that tells its blocks from those of other shapes, in this run and the next.

        What their stream is called does not matter: its state has no blocks of others.
        """
        return (
            self.records, self.uses, self.where, self.keys, self.parts, self.code,
            self.axis, self.begin, self.until, self.gap and self.reach, self.spans, self.sample,
            self.apart, self.revise_us, self.pane if self.keeps_panes else None,
            *((self.copies, self.sets) if self.copies > 1 or self.sets else ()),
            *self.joins, *self.lists, *self.lookups, *self.members,
            *(() if self.since is None else ("since", self.since)),
            *(() if self.draws is None else (self.draws,)),
        )  # fmt: skip

    @property
    def reach(self) -> int:
        """How far behind a record its session is over: just more than the gap."""
        return (self.gap or 0) + 1

    @property
    def by_source(self) -> bool:
        """Whether the last key is the source, which is no part of the answer."""
        return self.apart == "sources"

    @property
    def pure(self) -> Shape:
        """The shape of a job that has taken over nothing from versions before it."""
        return replace(self, since=None, draws=None)

    @cached_property
    def answered(self) -> Shape:
        """The shape without the source among its keys."""
        return replace(self, keys=self.keys[:-1], apart=None) if self.by_source else self

    @cached_property
    def states(self) -> tuple[Cell, ...]:
        """The cells that the user's Python merges."""
        return tuple(c for part in self.parts for c in part.cells if c.merge is Merge.STATE)

    @property
    def axes(self) -> tuple[Axis, ...]:
        """What records are counted on. Updates come in log order, so those are numbered."""
        numbered = self.code is not None and self.code.style in ("updates", "states")
        return (self.axis, RECORDS) if numbered else (self.axis,)

    @property
    def home(self) -> str:
        """What says where its key groups lie: beside those of the shapes that it draws on."""
        return (self.draws.home if self.draws is not None else "") or self.id

    @cached_property
    def id(self) -> str:
        """A short name of its meaning, the same in every process and in the next run."""
        return sha256(repr(self.meaning).encode()).hexdigest()[:16]
