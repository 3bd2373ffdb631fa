"""Datasets of the experiments: Wikipedia edits and taxi trips where they are there, else generated.

Both sets are small. Where more is needed, rows are drawn from them again and again.
"""

from __future__ import annotations

import gzip
import json
import os
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from muntin.collections.zorder import ZOrder

DATA = Path(os.environ.get("MUNTIN_DATA", "data"))
WORDS = ("the", "of", "user", "page", "talk", "list", "new", "born", "film", "war")
CITY = ZOrder(0.0, 0.0, 1.0, 1.0, bits=16)
_ZONES = 265


def pages(folder: Path = DATA) -> list[tuple[str, str]]:
    """Pages of Wikipedia with the comment of an edit."""
    path = folder / "wikipedia" / "wikiticker-2015-09-12-sampled.json.gz"
    if not path.exists():
        rng = np.random.default_rng(1)
        words = np.array(WORDS)
        return [
            (f"page {int(n)}", " ".join(rng.choice(words, 12)))
            for n in rng.zipf(1.3, 40_000) % 9999
        ]
    with gzip.open(path, "rt") as lines:
        return [(row["page"], row["comment"]) for row in map(json.loads, lines)]


def requests(rows: int, seed: int, known: list[tuple[str, str]]) -> pa.Table:
    """So many requests of pages, each a line of text of about 200 bytes: comments of edits."""
    rng = np.random.default_rng(seed)
    names, comments = (pa.array(each, pa.string()) for each in zip(*known, strict=True))
    chosen = rng.integers(0, len(known), rows)
    named = names.take(chosen)
    return pa.table({"page": named, "line": _texts(200, rng, comments, named)})


def _texts(length: int, rng: np.random.Generator, comments: pa.Array, *begin: pa.Array) -> pa.Array:
    """Texts of a length at most, of what they begin with and comments drawn by chance."""
    rows = len(begin[0])
    drawn = [comments.take(rng.integers(0, len(comments), rows)) for _ in range(length // 40)]
    joined = pc.binary_join_element_wise(*begin, *drawn, " ")
    return pc.utf8_slice_codeunits(joined, 0, length)


def zones(folder: Path = DATA) -> list[int]:
    """Where taxis were taken, by the number of a zone, in the order of time."""
    paths = sorted((folder / "taxi").glob("*.csv.gz"))
    if not paths:
        rng = np.random.default_rng(2)
        drawn: list[int] = (rng.zipf(1.2, 60_000) % _ZONES).tolist()
        return drawn
    found: list[tuple[str, int]] = []
    for path in paths:
        with gzip.open(path, "rt") as lines:
            header = next(lines).strip().split(",")
            pickup, zone = header.index("pickup_datetime"), header.index("pickup_location_id")
            for line in lines:
                cells = line.strip().split(",")
                if cells[zone]:
                    found.append((cells[pickup], int(cells[zone])))
    return [zone for _, zone in sorted(found)]


def trips(
    rows: int, seed: int, known: list[int], centre: tuple[float, float] | None = None
) -> pa.Table:
    """So many trips: a place, as a key in Z-order, and a text, as if someone had written one then.

    A zone is a square of a grid, in which places are drawn. With a centre, half of the trips begin
    near it instead.
    """
    rng = np.random.default_rng(seed)
    side = 17
    zone = np.array(known)[rng.integers(0, len(known), rows)] % (side * side)
    x = (zone % side + rng.random(rows)) / side
    y = (zone // side + rng.random(rows)) / side
    if centre is not None:
        near = rng.random(rows) < 0.5
        x = np.where(near, np.clip(rng.normal(centre[0], 0.04, rows), 0, 1), x)
        y = np.where(near, np.clip(rng.normal(centre[1], 0.04, rows), 0, 1), y)
    words = pa.array(np.array(WORDS)[rng.integers(0, len(WORDS), rows)])
    return pa.table({"cell": CITY.keys(x, y), "line": _texts(120, rng, _comments(), words)})


@cache
def _comments() -> pa.Array:
    return pa.array([comment for _, comment in pages()], pa.string())
