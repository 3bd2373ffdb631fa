"""The messages between a pipeline and its agents, as values and as bytes.

    pipeline ──Exchange──► agent      jobs, how far deliveries are final    (every look)
    pipeline ◄──Heard───── agent      how far deliveries go, signs of life
    pipeline ──Fetch─────► agent      deliveries by number                  (from tasks)
    pipeline ◄──Parcel──── agent      blocks and readings, with a checksum

A relay between the two says the same: an exchange names every agent that it is for, what is heard
is of all that are behind one address, and a fetch has the ranges of several.

What arrives is checked against the types of its fields before anything else sees it; nothing in a
message is run, but the SQL of jobs and, where the agent allows it, their Python.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import sha256
from typing import TypeVar

import msgspec

from muntin.errors import WireError
from muntin.fidelity.losses import Loss
from muntin.kernel.block import Block
from muntin.kernel.block import encode as encode_rows
from muntin.kernel.compute import Recipe
from muntin.kernel.reading import Reading
from muntin.kernel.tables import version_rows
from muntin.model.streams import Stream
from muntin.model.tables import TableVersion
from muntin.windows.ledger import Grid
from muntin.wire.coding import from_json, from_msgpack

VERSION = 1  # of what is said here
_FRAME = struct.Struct("<4sHQI")  # magic, version, length and checksum of a parcel
_MAGIC = b"MNTP"
_Message = TypeVar("_Message")


@dataclass(frozen=True)
class Plan:
    """What an agent is to compute of one stream. Its own settings say where the files are."""

    stream: Stream
    recipes: tuple[Recipe, ...]
    slack_us: int | None
    rows: Mapping[str, bytes] = field(default_factory=dict, compare=False, repr=False)
    """Of the results that records are joined with, by the path of each version; where it is sent"""

    @cached_property
    def digest(self) -> str:
        """Tells plans apart by what they mean, not by how far windows have left."""
        newest = {name: (v.number, v.mark) for name, v in self.newest.items()}
        return sha256(repr((self.meaning, sorted(newest.items()))).encode()).hexdigest()[:16]

    @cached_property
    def meaning(self) -> str:
        """The same, whichever results records are joined with."""
        lasting = tuple(
            replace(recipe, over=None, needs=None, until=None) for recipe in self.recipes
        )
        told = repr((replace(self, recipes=lasting), [recipe.shape.pane for recipe in lasting]))
        return sha256(told.encode()).hexdigest()[:16]

    @property
    def newest(self) -> dict[str, TableVersion]:
        """The last versions of the tables that records are joined with, by their names."""
        joins = (join for recipe in self.recipes for join in recipe.shape.joins)
        return {join.table.name: join.table.versions[-1] for join in joins if join.table.versions}

    def sent(self, pipeline: str) -> Plan:
        """The plan as agents need it: with the rows of results that records are joined with.

        Versions are called by the name of the pipeline, since its files are not there.
        """
        rows: dict[str, bytes] = {}
        recipes = []
        for recipe in self.recipes:
            joins = []
            for join in recipe.shape.joins:
                called = [
                    replace(v, path=f"{pipeline}/{join.table.name}/{v.number}/{v.mark}")
                    for v in join.table.versions
                ]
                for version, own in zip(join.table.versions, called, strict=True):
                    if own.path is not None and own.path not in rows:
                        rows[own.path] = encode_rows(version_rows(join.table, version))
                joins.append(replace(join, table=replace(join.table, versions=tuple(called))))
            recipes.append(replace(recipe, shape=replace(recipe.shape, joins=tuple(joins))))
        return replace(self, recipes=tuple(recipes), rows=rows)

    @property
    def python(self) -> str | None:
        """A job that is no SQL alone, or an aggregate of one; None if all are SQL."""
        for recipe in self.recipes:
            for code in (recipe.shape.code, *(cell.code for cell in recipe.shape.states)):
                if code is not None:
                    return code.job
        return None


@dataclass(frozen=True)
class Departed:
    """Positions before which sessions of a shape have left, and nobody needs anything."""

    over: int | None = None
    needs: int | None = None


@dataclass(frozen=True)
class Known:
    """What a pipeline has of an agent."""

    final: int  # the number of the last delivery that is committed
    counted: Mapping[str, int] = field(default_factory=dict)
    """By axis: how far deliveries have come that are final."""
    identity: str = ""  # which agent of this name is meant; none: whichever there is


@dataclass(frozen=True)
class Exchange:
    """One look of a pipeline at agents. The plan is sent where one of them has another.

    An agent that is not among those `known` tells who it is, and does nothing else. So does one
    with the name of another that is meant.
    """

    pipeline: str  # a name for the state it keeps, which no other has
    stream: str
    digest: str  # of the plan
    known: Mapping[str, Known] = field(default_factory=dict)  # by agent
    plan: Plan | None = None
    departed: Mapping[str, Departed] = field(default_factory=dict)  # by shape
    wanted: Mapping[str, int] = field(default_factory=dict)
    """By axis: positions before which panes are wanted, whether or not they are over."""
    relays: tuple[str, ...] = ()  # that have passed it on
    version: int = VERSION


@dataclass(frozen=True)
class News:
    """Where an agent stands. With another `digest` than that of the exchange it needs the plan."""

    agent: str
    digest: str
    last: int = 0  # the number of the last delivery
    bytes: int = 0  # of deliveries that are not final
    unread: bool = False  # whether there is more than they tell of
    age: float | None = None  # seconds since all that was written had been read; None: never yet
    unreadable: tuple[Loss, ...] = ()  # what is there and cannot be read now
    trouble: str = ""  # why it cannot go on now; it tries again
    via: tuple[str, ...] = ()  # addresses from who hears this to the agent, its own the last
    identity: str = ""  # tells processes of one name apart
    slack_us: int | None = None  # as its own settings have it; None: they say nothing of it


@dataclass(frozen=True)
class Heard:
    """What is heard of all agents at an address or behind it, and by address who is away, why."""

    news: tuple[News, ...] = ()
    away: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Range:
    """Deliveries of one agent: those after one number and up to another."""

    agent: str
    after: int
    upto: int
    bytes: int = 0  # about so many
    via: tuple[str, ...] = ()  # addresses from who is asked to the agent; none: it is the agent


@dataclass(frozen=True)
class Fetch:
    """Asks for deliveries, of which blocks may be merged on their way."""

    pipeline: str
    stream: str
    digest: str  # of the plan
    ranges: tuple[Range, ...]
    within: float | None = None  # seconds in which they are wanted, if that matters


@dataclass(frozen=True)
class Parcel:
    """Deliveries on their way: what was read, and the blocks by shape.

    `numbers` has, by agent, the number of the last delivery in here; those before it, from where
    they were asked for, are in here or in parcels before. `grids` are those that shapes had when
    it was cut: tallies are on them.
    """

    numbers: Mapping[str, int]
    readings: tuple[Reading, ...]
    blocks: Mapping[str, bytes]
    grids: Mapping[str, Grid] = field(default_factory=dict)  # by shape
    joined: Mapping[str, int] = field(default_factory=dict)
    """By table that records are joined with: the last version that was known then."""


def encode(message: object) -> bytes:
    return msgspec.json.encode(message)


def encoded_for(told: Exchange) -> Callable[[Mapping[str, Known]], bytes]:
    """Encodes an exchange for one address after another: all but who is `known` there, once."""
    before, known, after = encode(replace(told, known={})).partition(b'"known":{}')
    return lambda mine: b"".join((before, known[:-2], encode(mine), after))


def decode(data: bytes, kind: type[_Message]) -> _Message:
    """A message of this kind; raises a WireError if it is anything else."""
    try:
        return from_json(data, kind)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise WireError(f"this is no {kind.__name__}: {error}") from error


def pack(parcel: Parcel) -> bytes:
    """A parcel as bytes, behind their length and checksum."""
    data = msgspec.msgpack.encode(parcel)
    return _FRAME.pack(_MAGIC, VERSION, len(data), zlib.crc32(data)) + data


def unpack(data: bytes) -> Parcel:
    """The parcel; raises a WireError if it was damaged on its way."""
    if len(data) < _FRAME.size:
        raise WireError(f"{len(data)} bytes are too few for a delivery")
    magic, version, length, checksum = _FRAME.unpack_from(data)
    inside = memoryview(data)[_FRAME.size :]
    if magic != _MAGIC or version != VERSION:
        raise WireError("these bytes are no delivery of this version of Muntin")
    if len(inside) != length or zlib.crc32(inside) != checksum:
        raise WireError(f"a delivery was damaged on its way ({len(inside)} of {length} bytes)")
    try:
        parcel = from_msgpack(inside, Parcel)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise WireError(f"this is no delivery: {error}") from error
    for shape, block in parcel.blocks.items():
        Block.decode(block, f"block of shape {shape}")
    return parcel
