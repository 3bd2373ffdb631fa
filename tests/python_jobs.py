"""Jobs in Python for tests, each with what it must answer, record by record."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Generator, Iterable, Iterator
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from muntin.kernel.python.jobs import Incremental, MapReduce, Pair

Record = dict[str, Any]


class Sums(MapReduce):
    """Values of every key, added up. Text, None and tuples are keys."""

    uses = ("k", "s", "n", "source")
    columns = {"k": "VARCHAR", "s": "VARCHAR", "records": "BIGINT", "total": "BIGINT"}  # noqa: RUF012

    def mapper(self, _: None, record: Record) -> Iterator[Pair]:
        yield (record["k"], record["s"]), (1, record["n"] or 0)

    def combiner(self, key: Any, values: Iterable[tuple[int, int]]) -> Iterator[Pair]:
        pairs = list(values)
        yield key, (sum(p[0] for p in pairs), sum(p[1] for p in pairs))

    def reducer(self, key: Any, values: Iterable[tuple[int, int]]) -> Iterator[Pair]:
        yield from self.combiner(key, values)

    @staticmethod
    def answer(records: list[Record]) -> list[tuple[Any, ...]]:
        groups: dict[Any, list[int]] = {}
        for record in records:
            groups.setdefault((record["k"], record["s"]), []).append(record["n"] or 0)
        return [(*key, len(numbers), sum(numbers)) for key, numbers in groups.items()]


class Removed(Sums):
    """The same, with panes that leave taken out."""

    def uncombiner(self, key: Any, whole: tuple[int, int], part: tuple[int, int]) -> Iterator[Pair]:
        yield key, (whole[0] - part[0], whole[1] - part[1])


class Spread(MapReduce):
    """No combiner: the reducer sees every value."""

    columns = {"source": "VARCHAR", "values": "BIGINT[]"}  # noqa: RUF012

    def mapper(self, _: None, record: Record) -> Iterator[Pair]:
        if record["n"] is not None:
            yield record["source"], record["n"]

    def reducer(self, key: str, values: Iterable[int]) -> Iterator[Pair]:
        yield key, sorted(values)

    @staticmethod
    def answer(records: list[Record]) -> list[tuple[Any, ...]]:
        groups: dict[str, list[int]] = {}
        for record in records:
            if record["n"] is not None:
                groups.setdefault(record["source"], []).append(record["n"])
        return [(key, sorted(values)) for key, values in groups.items()]


class Batches(MapReduce):
    """Arrow in, Arrow out, values added as cells."""

    combine: ClassVar[str | None] = "sum"
    uses = ("k", "n")
    columns = {"k": "VARCHAR", "total": "BIGINT"}  # noqa: RUF012

    def map_batches(self, batch: pa.Table) -> pa.Table:
        known = batch.filter(pc.is_valid(batch["n"]))
        return pa.table({"key": known["k"], "value": known["n"]})

    @staticmethod
    def answer(records: list[Record]) -> list[tuple[Any, ...]]:
        totals: Counter[Any] = Counter()
        for record in records:
            if record["n"] is not None:
                totals[record["k"]] += record["n"]
        return list(totals.items())


class Largest(Batches):
    """Batches without a way to combine: Python reduces."""

    combine = None

    def reducer(self, key: Any, values: Iterable[int]) -> Iterator[Pair]:
        yield key, max(values)

    @staticmethod
    def answer(records: list[Record]) -> list[tuple[Any, ...]]:
        found: dict[Any, int] = {}
        for record in records:
            if record["n"] is not None:
                found[record["k"]] = max(record["n"], found.get(record["k"], record["n"]))
        return list(found.items())


class Runs(Incremental):
    """Tells every value that is larger than all before it, and at the end how many came."""

    columns = {"source": "VARCHAR", "what": "VARCHAR", "n": "BIGINT"}  # noqa: RUF012

    def map(self, _: None, record: Record) -> Iterator[Pair]:
        if record["n"] is not None:
            yield record["source"], record["n"]

    def init(self, key: str) -> tuple[int, int]:
        return 0, -(2**62)

    def update(
        self, key: str, state: tuple[int, int], value: int
    ) -> Generator[Pair, None, tuple[int, int]]:
        count, top = state
        if value > top:
            yield key, ("top", value)
        return count + 1, max(top, value)

    def finalize(self, key: str, state: tuple[int, int]) -> Iterator[Pair]:
        yield key, ("count", state[0])

    @staticmethod
    def answer(records: list[Record]) -> list[tuple[Any, ...]]:
        rows: list[tuple[Any, ...]] = []
        for source in {record["source"] for record in records}:
            mine = [r for r in records if r["source"] == source and r["n"] is not None]
            top, found = -(2**62), sorted(mine, key=lambda r: r["t"])  # stable: log order
            for record in found:
                if record["n"] > top:
                    top = record["n"]
                    rows.append((source, "top", top))
            rows += [(source, "count", len(found))] if found else []
        return rows


class Tops(Incremental):
    """Without a window: values of a source that are larger than all before them."""

    uses = ("n", "source")
    columns = {"source": "VARCHAR", "n": "BIGINT"}  # noqa: RUF012

    def map(self, _: None, record: Record) -> Iterator[Pair]:
        yield record["source"], record["n"]

    def init(self, key: str) -> int:
        return -(2**62)

    def update(self, key: str, state: int, value: int) -> Generator[Pair, None, int]:
        if value > state:
            yield key, value
        return max(state, value)


class Most(MapReduce):
    """The key with the largest sum in a window, which needs all its keys, and who chose it."""

    uses = ("k", "n")
    columns = {"k": "VARCHAR", "n": "BIGINT", "process": "BIGINT"}  # noqa: RUF012

    def steps(self) -> list[Any]:
        return [{"mapper": self.read, "reducer": self.add}, {"reducer": self.choose}]

    def read(self, _: None, record: Record) -> Iterator[Pair]:
        yield record["k"], record["n"]

    def add(self, key: str, values: Iterable[int]) -> Iterator[Pair]:
        yield None, (sum(values), key)

    def choose(self, _: None, sums: Iterable[tuple[int, str]]) -> Iterator[Pair]:
        total, key = max(sums)
        yield key, (total, os.getpid())


JOBS = (Sums, Removed, Spread, Batches, Largest, Runs)
