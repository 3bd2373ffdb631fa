"""What is computed from what, and what to write so that nothing takes long to recover.

A dataset has a cost, the bytes that writing it takes, and a delay, the seconds that computing it
from its parents takes. One that is lost is computed again from those it comes of, up to what was
written. So its recovery takes as long as the longest path to it on which nothing was written.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

_INFINITE = float("inf")


@dataclass(frozen=True)
class Dataset:
    """`held` is whether it is there to be written; of others, only what comes of them is."""

    name: str
    parents: tuple[str, ...] = ()
    cost: int = 0
    delay: float = 0.0
    held: bool = True
    written: bool = False


@dataclass(frozen=True)
class Lineage:
    """Datasets by name, parents before children."""

    datasets: Mapping[str, Dataset] = field(default_factory=dict)

    def plus(self, dataset: Dataset) -> Lineage:
        """With one more, whose parents are here; those that are not need no recovery."""
        known = tuple(dict.fromkeys(each for each in dataset.parents if each in self.datasets))
        return Lineage({**self.datasets, dataset.name: replace(dataset, parents=known)})

    def written(self, names: Iterable[str]) -> Lineage:
        """With these written: what was computed before them is not needed to recover them."""
        done = {n: replace(self.datasets[n], written=True, parents=()) for n in names}
        return Lineage({**self.datasets, **done}).pruned()

    def released(self, names: Iterable[str]) -> Lineage:
        """With these no longer held: others may still have to be computed from them."""
        gone = {
            name: replace(self.datasets[name], held=False)
            for name in names
            if name in self.datasets
        }
        return Lineage({**self.datasets, **gone}).pruned()

    def pruned(self) -> Lineage:
        """Without datasets that are not held and that nothing held has to be computed from."""
        needed: set[str] = set()
        for name, dataset in reversed(list(self.datasets.items())):
            if dataset.held or name in needed:
                needed.add(name)
                needed.update(dataset.parents)
        return Lineage({name: each for name, each in self.datasets.items() if name in needed})

    @cached_property
    def recovery(self) -> dict[str, float]:
        """The seconds that each takes to be computed again, of those that are written none."""
        longest: dict[str, float] = {}
        for name, each in self.datasets.items():
            before = max((longest[parent] for parent in each.parents), default=0.0)
            longest[name] = 0.0 if each.written else before + each.delay
        return longest

    @property
    def leaves(self) -> list[str]:
        """Those that nothing was computed from."""
        parents = {parent for each in self.datasets.values() for parent in each.parents}
        return [name for name in self.datasets if name not in parents]


def cut(lineage: Lineage, bound: float, relaxation: float = 1.0) -> tuple[str, ...]:
    """What to write so that everything held is recovered within `bound` seconds.

    For each dataset that would take longer, all paths to it from where recovery takes too long are
    cut, at least cost. With a relaxation f, at most f times that, and nearer to the dataset: so
    that it takes longer until there is something to write again.
    """
    chosen: list[str] = []
    for name, dataset in lineage.datasets.items():
        if dataset.held and lineage.recovery[name] > bound:
            found = _cut_before(lineage, name, bound, relaxation)
            chosen += sorted(found)
            lineage = lineage.written(found)
    return tuple(chosen)


def edge(lineage: Lineage, bound: float) -> tuple[str, ...]:
    """What the Edge algorithm writes: all leaves, as soon as one would take too long."""
    if all(delay <= bound for delay in lineage.recovery.values()):
        return ()
    return tuple(
        name
        for name in lineage.leaves
        if lineage.datasets[name].held and not lineage.datasets[name].written
    )


def _onward(lineage: Lineage, name: str) -> dict[str, float]:
    """What is computed again for a dataset, and how long it takes from there on, both included."""
    onward = {name: lineage.datasets[name].delay}
    order = list(lineage.datasets)
    for each in reversed(order[: order.index(name) + 1]):
        if each not in onward:
            continue
        for parent in lineage.datasets[each].parents:
            if not lineage.datasets[parent].written:
                longest = onward[each] + lineage.datasets[parent].delay
                onward[parent] = max(longest, onward.get(parent, 0.0))
    return onward


def _cut_before(lineage: Lineage, name: str, bound: float, relaxation: float) -> set[str]:
    """Datasets that separate one from all that are too far away, itself among them if need be."""
    import networkx as nx  # type: ignore[import-untyped]  # when there is something to cut

    onward = _onward(lineage, name)
    network = nx.DiGraph()
    for each, longest in onward.items():
        dataset = lineage.datasets[each]
        network.add_edge((each, "in"), (each, "out"))
        if dataset.held:
            network[each, "in"][each, "out"]["capacity"] = dataset.cost
        if longest > bound:
            network.add_edge("source", (each, "in"))
        for parent in dataset.parents:
            if parent in onward:
                network.add_edge((parent, "out"), (each, "in"))
    network.add_edge((name, "out"), "sink")
    _, flow = nx.maximum_flow(network, "source", "sink")
    near = _near_the_sink(network, flow, relaxation)
    return {each for each in onward if (each, "in") not in near and (each, "out") in near}


def _near_the_sink(
    network: Any, flow: Mapping[Any, Mapping[Any, float]], relaxation: float
) -> set[Any]:
    """Nodes behind the last edges that are full, or as good as full, before the sink.

    No flow leads out of this set, so all that goes into it is the whole flow, which is the least
    cost of any cut. An edge counts as full where its capacity is at most `relaxation` times its
    flow.
    """
    near, waiting = {"sink"}, deque(["sink"])
    while waiting:
        node = waiting.popleft()
        before = (
            each
            for each in network.predecessors(node)
            if network[each][node].get("capacity", _INFINITE) > relaxation * flow[each][node]
        )
        after = (each for each in network.successors(node) if flow[node][each] > 0)
        for each in (*before, *after):
            if each not in near:
                near.add(each)
                waiting.append(each)
    return near
