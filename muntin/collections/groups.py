"""Groups of fine partitions: leaves of a binary tree, which split and merge by size.

Partitions are numbered from 0, and all groups are nodes of one tree over them. So a group's
partitions are consecutive, groups never overlap, and together they hold every partition. Splitting
and merging changes which partitions a task works on, and nothing that lies in a partition.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

_WORTH_A_TASK = 1 << 20  # bytes: splitting less costs more than it gains


@dataclass(frozen=True, order=True)
class Group:
    """Partitions `[lower, upper)`."""

    lower: int
    upper: int

    def __len__(self) -> int:
        return self.upper - self.lower

    @property
    def partitions(self) -> range:
        return range(self.lower, self.upper)

    @property
    def halves(self) -> tuple[Group, Group]:
        """The nodes below this one, which has two partitions or more."""
        middle = (self.lower + self.upper) // 2
        return Group(self.lower, middle), Group(middle, self.upper)

    def holds(self, other: Group) -> bool:
        return self.lower <= other.lower and other.upper <= self.upper

    def size(self, sizes: Sequence[int]) -> int:
        """What its partitions have together, of sizes by partition."""
        return sum(sizes[self.lower : self.upper])


@dataclass(frozen=True)
class Bounds:
    """When groups change: above `upper` they split, and neighbours below `lower` merge.

    There are `at_least` so many groups, as long as there are partitions to split.
    """

    lower: int
    upper: int
    at_least: int = 1

    def __post_init__(self) -> None:
        if not 0 <= 2 * self.lower <= self.upper:
            raise ValueError(
                f"groups split above {self.upper:,} bytes and merge below {self.lower:,}: the "
                "second may be half of the first at most, or groups would split and merge for ever"
            )

    @staticmethod
    def fitting(total: int, tasks: int) -> Bounds:
        """Bounds that keep so many tasks about equally busy with data of this size."""
        upper = max(_WORTH_A_TASK, 5 * total // (4 * max(1, tasks)))
        return Bounds(upper // 3, upper, tasks)


@dataclass(frozen=True)
class Groups:
    """All groups, in order."""

    leaves: tuple[Group, ...]

    @staticmethod
    def even(partitions: int, count: int) -> Groups:
        """So many groups, of about as many partitions each."""
        return Groups((Group(0, partitions),)).balanced(
            [1] * partitions, Bounds(0, partitions, count)
        )

    @property
    def root(self) -> Group:
        return Group(0, self.leaves[-1].upper)

    def of(self, partition: int) -> Group:
        """The group of a partition."""
        return self.leaves[bisect_right(self.leaves, partition, key=lambda each: each.lower) - 1]

    def balanced(self, sizes: Sequence[int], bounds: Bounds) -> Groups:
        """The groups after all splits and merges that these sizes of partitions ask for.

        No group is larger than the upper bound but of one partition. Asking again changes nothing.
        """
        leaves = list(self.leaves)
        while (large := self._splitting(leaves, sizes, bounds)) is not None:
            at = leaves.index(large)
            leaves[at : at + 1] = large.halves
        while len(leaves) > bounds.at_least:
            pairs = [
                (whole.size(sizes), at, whole)
                for at, (one, other) in enumerate(pairwise(leaves))
                if (whole := self._parent(one, other)) and whole.size(sizes) < bounds.lower
            ]
            if not pairs:
                break
            _, at, whole = min(pairs)
            leaves[at : at + 2] = [whole]
        return Groups(tuple(leaves))

    def _splitting(
        self, leaves: Sequence[Group], sizes: Sequence[int], bounds: Bounds
    ) -> Group | None:
        """The group to split next, if there is one: the largest, by size and partitions."""
        can = [leaf for leaf in leaves if len(leaf) > 1]
        if not can:
            return None
        largest = max(can, key=lambda leaf: (leaf.size(sizes), len(leaf)))
        few = len(leaves) < bounds.at_least
        return largest if few or largest.size(sizes) > bounds.upper else None

    def _parent(self, one: Group, other: Group) -> Group | None:
        """The node above two neighbours, if they have the same."""
        node = self.root
        while len(node) > 1:
            below = node.halves
            if below == (one, other):
                return node
            node = below[0] if below[0].holds(one) else below[1]
        return None


def newest(sizes: Sequence[Sequence[int]], count: int, partitions: int) -> list[int]:
    """What the last so many datasets have in each partition, together."""
    return [sum(each) for each in zip([0] * partitions, *sizes[-count:], strict=True)]
