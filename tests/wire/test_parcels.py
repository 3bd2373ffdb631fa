"""Merged on the way or not, in whatever steps: parcels come to the same rows, each once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from muntin.errors import WireError
from muntin.kernel.block import Block, Sources
from muntin.kernel.clocks import Clocks
from muntin.kernel.compute import Recipe, compute
from muntin.kernel.due import Due
from muntin.kernel.finish import finish
from muntin.kernel.merge import block_of, merge
from muntin.kernel.reading import Reading
from muntin.language.program import sql
from muntin.model.records import POSITION
from muntin.windows.ledger import grids_of
from muntin.wire.client import Client
from muntin.wire.messages import Fetch, Parcel, Range
from muntin.wire.parcels import fetched_somehow, merged, readings, tables, waves
from tests.effort import examples

JOB = sql("""
CREATE STREAM logs (t BIGINT, k VARCHAR, n BIGINT) FROM AGENTS 'a:1' FORMAT json TIMESTAMP t;
CREATE JOB many AS SELECT k, sum(n) AS s, min(n) AS m, approx_count_distinct(n) AS d,
    quantile_cont(n, 0.5) AS q FROM logs GROUP BY k WINDOW 8 SECONDS EVERY 4 SECONDS;
""").jobs["many"]
SHAPES = {JOB.shape.id: JOB.shape}
Record = tuple[int, str, int]
records = st.lists(
    st.tuples(st.integers(0, 30), st.sampled_from("abc"), st.integers(-9, 9)), min_size=1
)


def parcel_of(agent: str, number: int, found: list[Record]) -> Parcel:
    """A delivery with one block, and one of a shape that nobody asks for any more."""
    t, k, n = zip(*found, strict=True)
    columns = {POSITION: pa.array([each * 1_000_000 for each in t], pa.int64()), "k": k, "n": n}
    recipe = Recipe(JOB.shape, JOB.windows)
    blocks, reading = compute(pa.table(columns), agent, [recipe], Clocks())
    (table,) = blocks.values()
    block = block_of(JOB.shape, table, Sources.of([agent]), number, 0, len(found)).encode()
    told = replace(reading, sequence=number, costs={})
    blocks_by_shape = {JOB.shape.id: block, "old": block}
    return Parcel({agent: number}, (told,), blocks_by_shape, grids_of(SHAPES))


def rows_of(table: pa.Table) -> list[str]:
    """Rows of all windows that there may be."""
    (spec,) = JOB.windows
    ends = range(0, 40_000_000 // spec.pane)
    whole = merge(JOB.shape, [table])
    done = finish(JOB.shape, {JOB.name: JOB}, whole, Due({JOB.name: [list(ends)]}))
    return sorted(map(str, done.rows[JOB.name].to_pylist()))


@examples(60)
@given(st.lists(st.lists(records, min_size=1, max_size=3), min_size=1, max_size=4), st.data())
def test_however_they_are_merged(agents: list[list[list[Record]]], data: st.DataObject) -> None:
    parcels = [
        parcel_of(f"web{i}", number, found)
        for i, deliveries in enumerate(agents)
        for number, found in enumerate(deliveries, 1)
    ]
    wanted = rows_of(tables(SHAPES, parcels)[JOB.shape.id])
    assert wanted
    told = [reading for parcel in parcels for reading in parcel.readings]
    count = sum(len(found) for deliveries in agents for found in deliveries)
    while len(parcels) > 1:  # as relays do that stand one behind the other
        start = data.draw(st.integers(0, len(parcels) - 2))
        stop = data.draw(st.integers(start + 2, len(parcels)))
        parcels[start:stop] = [merged(SHAPES, parcels[start:stop])]
    (parcel,) = parcels
    assert parcel.numbers == {f"web{i}": len(found) for i, found in enumerate(agents)}
    assert list(parcel.readings) == told
    assert rows_of(tables(SHAPES, [parcel])[JOB.shape.id]) == wanted
    block = Block.decode(parcel.blocks[JOB.shape.id], "")
    assert block.records == count
    assert block.sources == Sources.of(parcel.numbers)


def test_of_a_shape_that_was_not_known_nothing_was_made() -> None:
    parcel = parcel_of("web", 1, [(3, "a", 1), (9, "a", 1)])
    (known,) = readings(SHAPES, [parcel])
    assert known.unmade == ()
    (unknown,) = readings(SHAPES, [replace(parcel, grids={}, blocks={})])
    (unmade,) = unknown.unmade
    pane = JOB.shape.pane
    assert (unmade.shape, unmade.lower) == (JOB.shape.id, 3_000_000)
    assert unmade.upper == (9_000_000 // pane + 1) * pane


@examples(100)
@given(st.lists(st.integers(0, 50)), st.integers(1, 100))
def test_waves_have_all_and_not_too_much(sizes: list[int], most: int) -> None:
    ranges = [Range(f"web{i}", 0, 1, size) for i, size in enumerate(sizes)]
    found = list(waves(ranges, most))
    assert [each for wave in found for each in wave] == ranges
    total = [sum(each.bytes for each in wave) for wave in found]
    assert all(size <= most or len(wave) == 1 for size, wave in zip(total, found, strict=True))
    assert all(size + after[0].bytes > most for size, after in zip(total, found[1:], strict=False))


@dataclass(frozen=True)
class Net(Client):
    """Addresses at which some agents are, or relays; those that are `broken` send one parcel."""

    agents: dict[str, int] = field(default_factory=dict)
    broken: frozenset[str] = frozenset()
    asked: list[tuple[str, list[tuple[str, int]]]] = field(default_factory=list)

    def fetch(self, address: str, wanted: Fetch) -> Iterator[Parcel]:
        self.asked.append((address, [(each.agent, each.after) for each in wanted.ranges]))
        sent = 0
        for each in wanted.ranges:
            for number in range(each.after + 1, min(each.upto, self.agents.get(each.agent, 0)) + 1):
                if address in self.broken and sent:
                    raise WireError(f"the agent at {address} cannot be reached")
                sent += 1
                yield Parcel({each.agent: number}, (Reading(each.agent, number),), {})


def fetch(net: Net, *ranges: Range) -> list[tuple[str, int]]:
    parcels = fetched_somehow(net, Fetch("p", "logs", "d", ranges))
    return [next(iter(parcel.numbers.items())) for parcel in parcels]


A, B = Range("a", 0, 2, via=("r2", "r1", "a:1")), Range("b", 3, 5, via=("r2", "b:1"))


def test_what_a_relay_does_not_send_comes_from_behind_it() -> None:
    agents = {"a": 2, "b": 5}
    assert fetch(Net(None, agents), A, B) == [("a", 1), ("a", 2), ("b", 4), ("b", 5)]
    net = Net(None, agents, frozenset(["r2", "r1"]))
    assert sorted(fetch(net, A, B)) == [("a", 1), ("a", 2), ("b", 4), ("b", 5)]
    # The first relay sends one delivery of a, the next the other; b is asked itself.
    assert net.asked[0] == ("r2", [("a", 0), ("b", 3)])
    assert sorted(net.asked[1:]) == [("b:1", [("b", 3)]), ("r1", [("a", 1)])]


def test_what_cannot_be_had_at_all_is_told() -> None:
    with pytest.raises(WireError, match="the agent at b:1 cannot be reached"):
        fetch(Net(None, {"a": 2, "b": 5}, frozenset(["r2", "b:1"])), A, B)
    with pytest.raises(WireError, match="the agent at b:1 has not sent what it told of"):
        fetch(Net(None, {"a": 2, "b": 4}), A, B)
