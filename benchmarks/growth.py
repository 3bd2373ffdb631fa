"""What 10, 100 and 1,000 nodes would take, from costs that were measured on a few.

    python -m benchmarks.growth                       # the costs below
    python -m benchmarks.growth --rate 5 --keys 10000 # MB/s and keys a pane of every node

A model and no measurement: every part costs what it costs here for each node, key or byte, and
parts of a window's way come one after another. It tells in which order parts give in.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

NODES = (10, 100, 1000)
BEHIND_RELAY = 50  # agents
BOUND = 1.0  # seconds
BATCH = "a batch and its commit"  # which costs the same with any number of nodes


@dataclass(frozen=True)
class Costs:
    """Seconds, by what they are for. Where each was measured stands behind it."""

    batch: float = 0.08  # two Spark jobs without records on local[2] (SPARK's 32 ms each, and ours)
    look: float = 0.46e-3  # at an agent, of 50: benchmarks.live agents
    source: float = 0.05e-3  # of the driver, for a source in a batch: benchmarks.driver
    row: float = 0.42e-6  # of a block that is merged: benchmarks.tree
    commit: float = 0.04  # with the results of one job: benchmarks.driver --sync
    agent_byte: float = 1 / 170e6  # that an agent reads: benchmarks.agents
    task_byte: float = 1 / 100e6  # that a task reads: make bench, half of what DuckDB scans alone


@dataclass(frozen=True)
class Part:
    """A part of the way from a window's end to its result, or of what goes on meanwhile."""

    name: str
    seconds: float  # for one window of a second
    room: float  # that it has, before windows are late or somebody falls behind

    @property
    def load(self) -> float:
        return self.seconds / self.room


@dataclass(frozen=True)
class Fleet:
    """Nodes that each write so many bytes a second, and have so many keys in every second."""

    nodes: int
    bytes: float
    keys: int
    cores: int

    def read_by_tasks(self, costs: Costs) -> Iterator[Part]:
        """Logs on storage that executors reach."""
        yield Part("reading in tasks", self.nodes * self.bytes * costs.task_byte / self.cores, 0.7)
        yield from self._rest(costs, self.nodes)

    def by_agents(self, costs: Costs) -> Iterator[Part]:
        """An agent on every node, asked by the driver itself."""
        yield Part("reading on a node", self.bytes * costs.agent_byte, 1.0)
        yield Part("asking all agents", self.nodes * costs.look, 0.3)
        yield from self._rest(costs, self.nodes)

    def by_relays(self, costs: Costs) -> Iterator[Part]:
        """The same behind relays."""
        relays = -(-self.nodes // BEHIND_RELAY)
        behind = min(self.nodes, BEHIND_RELAY)
        yield Part("reading on a node", self.bytes * costs.agent_byte, 1.0)
        yield Part("asking, at a relay", behind * costs.look, 0.3)
        yield Part("merging at a relay", behind * self.keys * costs.row, 0.3)
        yield Part("asking all relays", relays * costs.look, 0.3)
        yield from self._rest(costs, relays)

    def _rest(self, costs: Costs, deliveries: int) -> Iterator[Part]:
        yield Part("merging in tasks", deliveries * self.keys * costs.row / self.cores, 0.3)
        yield Part("deciding, by source", self.nodes * costs.source, 0.2)
        yield Part(BATCH, costs.batch + costs.commit, BOUND)


def first_to_give_in(fleet: Fleet, parts: Sequence[Part]) -> tuple[Part, int | None]:
    """The part that has least room left, and with how many nodes it has none, if it ever does."""
    first = max(parts, key=lambda part: part.load)
    return first, int(fleet.nodes / first.load) if first.name != BATCH else None


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rate", type=float, default=1.0, help="MB/s that a node writes")
    parser.add_argument("--keys", type=int, default=1000, help="of a node in a second")
    parser.add_argument("--cores", type=int, default=8, help="of the cluster")
    given = parser.parse_args()
    for way in ("read_by_tasks", "by_agents", "by_relays"):
        print(f"\n{way.replace('_', ' ')}, {given.rate:g} MB/s a node, {given.cores} cores")
        for nodes in NODES:
            fleet = Fleet(nodes, given.rate * 1e6, given.keys, given.cores)
            parts = list(getattr(fleet, way)(Costs()))
            first, gives_in = first_to_give_in(fleet, parts)
            lag = sum(part.seconds for part in parts if part.name != "reading on a node")
            until = f"; it gives in at about {gives_in:,} nodes" if gives_in else ""
            print(f"  {nodes:5,} nodes: lag {lag:6.2f} s, most in '{first.name}' "
                  f"({first.load:.0%} of its room){until}")  # fmt: skip


if __name__ == "__main__":
    main()
