"""Parcels of many agents: fetched side by side, some at a time, and merged into one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pyarrow as pa

from muntin.errors import WireError
from muntin.kernel.block import Block, Sources
from muntin.kernel.merge import block_of, merge
from muntin.kernel.reading import Reading
from muntin.model import Shape
from muntin.windows.ledger import grids_of
from muntin.wire.client import Client, remaining
from muntin.wire.messages import Fetch, Parcel, Range

WAVE_BYTES = 64 << 20  # that are fetched before any of them is passed on
_AT_ONCE = 16  # addresses that are fetched from

Shapes = Mapping[str, Shape]


def waves(ranges: Iterable[Range], most: int = WAVE_BYTES) -> Iterator[tuple[Range, ...]]:
    """The ranges, in the order given, so many bytes at a time or one range that has more."""
    wave: list[Range] = []
    size = 0
    for each in ranges:
        if wave and size + each.bytes > most:
            yield tuple(wave)
            wave, size = [], 0
        wave.append(each)
        size += each.bytes
    if wave:
        yield tuple(wave)


def fetched(client: Client, wanted: Fetch) -> tuple[list[Parcel], dict[str, WireError]]:
    """What is had from the next addresses of all ranges, and by address what went wrong there."""
    ranges: dict[str, list[Range]] = {}
    for each in wanted.ranges:
        place, *rest = each.via
        ranges.setdefault(place, []).append(replace(each, via=tuple(rest)))
    parcels: dict[str, list[Parcel]] = {place: [] for place in ranges}
    failed: dict[str, WireError] = {}

    def fetch(place: str) -> None:
        try:
            for parcel in client.fetch(place, replace(wanted, ranges=tuple(ranges[place]))):
                parcels[place].append(parcel)
        except WireError as error:
            failed[place] = error

    if len(ranges) == 1:
        fetch(*ranges)
    else:
        with ThreadPoolExecutor(min(_AT_ONCE, len(ranges)), "fetching") as threads:
            list(threads.map(fetch, ranges))
    return [parcel for had in parcels.values() for parcel in had], failed


def fetched_somehow(client: Client, wanted: Fetch) -> list[Parcel]:
    """All deliveries of the ranges: of a relay that fails, from who is next behind it.

    Raises a WireError if there are some that cannot be had at all.
    """
    left = {each.agent: each for each in wanted.ranges}
    had: list[Parcel] = []
    while left:
        parcels, failed = fetched(client, replace(wanted, ranges=tuple(left.values())))
        had += parcels
        for parcel in parcels:
            left = remaining(left, parcel)
        for each in left.values():
            if len(each.via) == 1:
                told = f"the agent at {each.via[0]} has not sent what it told of"
                raise failed.get(each.via[0], WireError(told))
        left = {name: replace(each, via=each.via[1:]) for name, each in left.items()}
    return had


def tables(shapes: Shapes, parcels: Sequence[Parcel]) -> dict[str, pa.Table]:
    """The rows of all parcels by shape, merged, on the grids that these shapes have."""
    return {
        id_: _merged(shapes[id_], blocks)
        for id_, blocks in _blocks(parcels).items()
        if id_ in shapes
    }


def readings(shapes: Shapes, parcels: Sequence[Parcel]) -> tuple[Reading, ...]:
    """The readings of all parcels, on the grids that these shapes have."""
    grids = grids_of(shapes)
    return tuple(
        each.on_grids(parcel.grids, grids) for parcel in parcels for each in parcel.readings
    )


def merged(shapes: Shapes, parcels: Sequence[Parcel]) -> Parcel:
    """One parcel that says what all of them say; blocks of other shapes are left out.

    Parcels of one agent are given in the order of its deliveries.
    """
    numbers: dict[str, int] = {}
    for parcel in parcels:
        numbers |= parcel.numbers
    blocks = {}
    for id_, several in _blocks(parcels).items():
        if id_ in shapes:
            made = block_of(
                shapes[id_],
                _merged(shapes[id_], several),
                Sources.merged(block.sources for block in several),
                records=sum(block.records for block in several),
                version=max(block.version for block in several),
            )
            blocks[id_] = made.encode()
    return Parcel(numbers, readings(shapes, parcels), blocks, grids_of(shapes))


def _blocks(parcels: Sequence[Parcel]) -> dict[str, list[Block]]:
    blocks: dict[str, list[Block]] = {}
    for parcel in parcels:
        for id_, data in parcel.blocks.items():
            blocks.setdefault(id_, []).append(Block.decode(data, f"block of shape {id_}"))
    return blocks


def _merged(shape: Shape, blocks: Sequence[Block]) -> pa.Table:
    rows = [block.table(shape.pane) for block in blocks]
    return rows[0] if len(rows) == 1 else merge(shape, rows)
