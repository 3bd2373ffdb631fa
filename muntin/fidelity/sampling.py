"""Which panes of which sources a job looks at: the same ones in every process and run."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import lru_cache
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from muntin.model.shapes import Sample

Panes = NDArray[np.int64]
Mask = NDArray[np.bool_]


def sampled(sample: Sample, source: str, panes: Panes) -> Mask:
    """Which of a source's panes are in the sample, each with the same chance."""
    mine: Mask = sampled_of(sample, [source], panes)[0]
    return mine


def sampled_of(sample: Sample, sources: Sequence[str], panes: Panes) -> Mask:
    """The same of several sources, one a row."""
    seeds = np.array([_seed(sample.job, source) for source in sources], np.uint64)
    mixed = panes.astype(np.uint64) + seeds[:, None]
    # The finish of splitmix64: neighbouring panes fall as if thrown one by one.
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    thrown = (mixed ^ (mixed >> np.uint64(31))) >> np.uint64(11)
    return thrown.astype(np.float64) < sample.share * (1 << 53)


def sufficient(share: float, parts: int) -> int:
    """How many of some equal parts are at least a share of all."""
    return next((n for n in range(parts + 1) if n >= share * parts or n / parts >= share), parts)


def picked(sources: Collection[str], most: int) -> frozenset[str]:
    """At most so many sources, the first in the order of a hash: more of them have the same too."""
    return frozenset(sorted(sources, key=lambda source: (_seed("", source), source))[:most])


@lru_cache(maxsize=65_536)
def _seed(job: str, source: str) -> int:
    told = blake2b(f"{job}\0{source}".encode(), digest_size=8).digest()
    return int.from_bytes(told, "little")
