"""Parcels of many agents: fetched side by side, some at a time, and merged into one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from muntin.errors import WireError
from muntin.fidelity.losses import Unmade
from muntin.fidelity.score import State
from muntin.kernel.block import Block, Sources
from muntin.kernel.merge import block_of, merge
from muntin.kernel.reading import Reading
from muntin.model.shapes import Shape
from muntin.windows.ledger import Grid, grids_of
from muntin.wire.client import Client, remaining
from muntin.wire.messages import Fetch, Parcel, Range

NOT_KNOWN = "its agent had read on before it knew of the job"
OUTDATED = "its agent had read on before it had the newest result of job {job}"
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
        id_: _merged(shapes[id_], [rows for _, rows in blocks])
        for id_, blocks in _blocks(shapes, parcels).items()
    }


def readings(shapes: Shapes, parcels: Sequence[Parcel]) -> tuple[Reading, ...]:
    """The readings of all parcels, on the grids that these shapes have.

    Of a shape that its agent did not know when a parcel was cut, nothing was counted, and nothing
    counts from where a result is joined that it did not have.
    """
    grids, told = grids_of(shapes), []
    for parcel in parcels:
        outdated = [each for shape in shapes.values() for each in _outdated(shape, parcel)]
        for each in parcel.readings:
            reading = _without(grids.items() - parcel.grids.items(), parcel, each)
            reading = _up_to_date(outdated, reading)
            told.append(reading.on_grids(parcel.grids, grids))
    return tuple(told)


def outdated(shape: Shape, joined: Mapping[str, int]) -> Iterator[tuple[int, str]]:
    """From which positions on records would have been joined with another result, of which job.

    By table that is the last version that was known.
    """
    for join in shape.joins:
        known = joined.get(join.table.name, -1)
        later = [version for version in join.table.versions if version.number > known]
        if later:
            yield later[0].begins(shape.axis, shape.pane), join.table.job or ""


def _outdated(shape: Shape, parcel: Parcel) -> Iterator[tuple[Shape, int, str]]:
    if shape.id in parcel.grids:  # or else nothing of it is there
        for since, job in outdated(shape, parcel.joined):
            yield shape, since, job


def _up_to_date(outdated: Sequence[tuple[Shape, int, str]], reading: Reading) -> Reading:
    """A reading that says what of its records was joined with an older result."""
    unmade = []
    for shape, since, job in outdated:
        axis, size = shape.axis.column, shape.pane
        if axis in reading.reached and reading.reached[axis] >= since:
            upper = (reading.reached[axis] // size + 1) * size
            why = OUTDATED.format(job=job)
            unmade.append(Unmade(shape.id, since, upper, State.LOST, why))
    return replace(reading, unmade=(*reading.unmade, *sorted(unmade))) if unmade else reading


def _without(missing: Iterable[tuple[str, Grid]], parcel: Parcel, reading: Reading) -> Reading:
    """A reading that says which shapes were not made of its records."""
    unmade = []
    for id_, (axis, size) in missing:
        if id_ not in parcel.grids and axis in reading.first and axis in reading.reached:
            upper = (max(reading.reached[axis], reading.first[axis]) // size + 1) * size
            unmade.append(Unmade(id_, reading.first[axis], upper, State.LOST, NOT_KNOWN))
    return replace(reading, unmade=(*reading.unmade, *sorted(unmade))) if unmade else reading


def merged(shapes: Shapes, parcels: Sequence[Parcel]) -> Parcel:
    """One parcel that says what all of them say; blocks of other shapes are left out.

    Parcels of one agent are given in the order of its deliveries.
    """
    numbers: dict[str, int] = {}
    for parcel in parcels:
        numbers |= parcel.numbers
    blocks = {}
    for id_, several in _blocks(shapes, parcels).items():
        made = block_of(
            shapes[id_],
            _merged(shapes[id_], [rows for _, rows in several]),
            Sources.merged(block.sources for block, _ in several),
            records=sum(block.records for block, _ in several),
            version=max(block.version for block, _ in several),
        )
        blocks[id_] = made.encode()
    return Parcel(numbers, readings(shapes, parcels), blocks, grids_of(shapes), joined(shapes))


def joined(shapes: Shapes) -> dict[str, int]:
    """The last versions of the tables that records are joined with, by their names."""
    joins = (join.table for shape in shapes.values() for join in shape.joins)
    return {table.name: table.versions[-1].number for table in joins if table.versions}


def _blocks(shapes: Shapes, parcels: Sequence[Parcel]) -> dict[str, list[tuple[Block, pa.Table]]]:
    """The blocks of each shape with their rows, less those that are out of date."""
    blocks: dict[str, list[tuple[Block, pa.Table]]] = {}
    for parcel in parcels:
        for id_, data in parcel.blocks.items():
            block, shape = Block.decode(data, f"block of shape {id_}"), shapes.get(id_)
            if shape is not None:
                rows = block.table(shape.pane)
                since = min((at for at, _ in outdated(shape, parcel.joined)), default=None)
                if since is not None:
                    rows = rows.filter(pc.less(rows["pane"], since // shape.pane))
                blocks.setdefault(id_, []).append((block, rows))
    return blocks


def _merged(shape: Shape, rows: Sequence[pa.Table]) -> pa.Table:
    return rows[0] if len(rows) == 1 else merge(shape, rows)
