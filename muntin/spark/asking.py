"""Questions about the past on Spark: tasks merge panes of some files each, the driver the rest."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import pyarrow as pa
from pyspark import SparkContext

from muntin.ask.answering import Asking, Part, PastRows, merged_rows
from muntin.ask.keeping import Keeping, Read
from muntin.errors import MuntinError
from muntin.kernel.block import decode, encode
from muntin.spark.context import start_context
from muntin.store.panes import PaneFile, PaneFiles
from muntin.store.storage import Place

_Merged = tuple[bytes, Read]


class SparkMerge:
    """Merges panes in tasks: each reads some of the files, and sends what they merge to."""

    def __init__(self, context: SparkContext) -> None:
        self._context = context

    def __call__(self, part: Part) -> tuple[pa.Table, Read]:
        tasks = _tasks(part, self._context.defaultParallelism)
        made = self._context.parallelize(tasks, len(tasks)).mapPartitions(_merge).collect()
        tables, read = [], Read()
        for each in made:
            if isinstance(each, MuntinError):
                raise each
            tables.append(decode(each[0], f"merged panes of job {part.of.title}"))
            read = read.plus(each[1])
        again = tuple(f"p0.k{i}" for i in range(len(part.groups)))
        rows = pa.concat_tables(tables, promote_options="default")
        return merged_rows(replace(part, groups=again, where=()), rows), read


def _tasks(part: Part, most: int) -> list[Part]:
    """The part of a question, cut by files: of about the same size, and open panes in the first."""
    of = part.of
    files = of.panes.of(of.shape.id, part.start, min(part.end, of.moved))
    shares: list[dict[str, PaneFile]] = [{} for _ in range(max(1, min(most, len(files) + 1)))]
    sizes = [0] * len(shares)
    for name, file in sorted(files.items(), key=lambda item: -item[1].bytes):
        least = sizes.index(min(sizes))
        shares[least][name] = file
        sizes[least] += file.bytes
    tasks = []
    for number, share in enumerate(shares):
        panes = PaneFiles(of.panes.folder, share, of.panes.moved)
        blocks = of.blocks if number == 0 else replace(of.blocks, lengths={})
        tasks.append(replace(part, of=replace(of, panes=panes, blocks=blocks)))
    return tasks


def _merge(parts: Iterable[Part]) -> Iterator[_Merged | MuntinError]:
    for part in parts:
        try:
            keeping = Keeping(part.of.panes.folder)
            rows, read = keeping.rows(part.of, part.start, part.end, part.keys)
            yield encode(merged_rows(part, rows)), read
        except MuntinError as error:
            yield error


def asked_on(master: str, text: str, state: Place) -> PastRows:
    """The answer, with panes merged on a Spark of its own or the one there is."""
    return Asking(state).ask(text, SparkMerge(start_context(master)))
