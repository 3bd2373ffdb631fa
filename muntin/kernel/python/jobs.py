"""What a job in Python can say: any class with the methods is one, derived from these or not.

A mapper gets the line of a text stream, or a dictionary of the record's columns, and None as
the key. Every method yields pairs of a key and a value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

Pair = tuple[Any, Any]


class _Settings:
    """Attributes that all kinds of jobs have. SQL's own clauses go before them."""

    window: ClassVar[str | None] = None
    """As after WINDOW, for example `1 HOUR EVERY 5 MINUTES, 1 DAY`."""
    begin: ClassVar[str | int | None] = None
    extent: ClassVar[str | None] = None
    within: ClassVar[str | None] = None
    """When a window leaves at the latest after its end, for example `1 SECOND`."""
    fidelity: ClassVar[str | None] = None
    """When it may leave before it is complete, for example `90 PERCENT` or `50 PERCENT SAMPLED`."""
    stragglers: ClassVar[str | None] = None
    """`LEAP` or `WAIT`, for sources that are two panes behind the others."""
    revise: ClassVar[bool | str] = False
    """Whether late records correct windows that have left, or for how long, as in `1 HOUR`."""
    retain: ClassVar[str | None] = None
    """For how long panes are kept to be asked about, for example `7 DAYS`."""
    uses: ClassVar[Sequence[str] | None] = None
    """The columns of a record that the job looks at; all, if it does not say."""
    columns: ClassVar[Mapping[str, str] | None] = None
    """Names and types of the results' columns, for example `{"word": "VARCHAR", "n": "BIGINT"}`."""
    max_errors: ClassVar[int] = 0
    """More exceptions than this stop the job, and no other."""
    max_state: ClassVar[int] = 1 << 24
    """Bytes that the values or the state of one key may take in a window."""


class MapReduce(_Settings):
    """`mapper(self, key, value)`, `reducer(self, key, values)` and perhaps
    `combiner(self, key, values)` and `uncombiner(self, key, whole, part)`.

    `map_batches(self, batch)` in place of a mapper gets an Arrow table and returns one with the
    columns `key` and `value`; `combine` then says how values of a key become one.
    """

    combine: ClassVar[str | None] = None
    """`sum`, `min` or `max`: needs no combiner and no reducer."""


class Incremental(_Settings):
    """`map(self, key, value)`, `init(self, key)`, `update(self, key, state, value)` and perhaps
    `finalize(self, key, state)`.

    `update` returns the new state. As a generator it yields pairs, and then returns the new state.
    They leave with their window. Without one a key's state lives on from record to record, and they
    leave with the batch that ends their step (`every`).
    """

    every: ClassVar[str] = "1 SECOND"
    """Without a window: how often results leave."""
    max_keys: ClassVar[int] = 1_000_000
    """Without a window: more keys with a state than this stop the job, and no other."""
