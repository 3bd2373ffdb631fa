"""Questions about the past on Spark: tasks merge panes of some files each, the driver the rest."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial

import pyarrow as pa
from pyspark import SparkContext

from muntin.ask.answering import Asking, Part, PastRows, merged_rows
from muntin.ask.keeping import Keeping, Read, empty_rows
from muntin.errors import InputError, LostError, MuntinError, SparkError
from muntin.kernel.block import decode, encode
from muntin.spark.context import start_context
from muntin.spark.trouble import WAITS, explained
from muntin.store.panes import PaneFile, PaneFiles
from muntin.store.storage import Place

SENT = 512 << 20  # bytes of records that tasks send to the driver, at most
_Merged = tuple[bytes, Read]


class SparkMerge:
    """Merges panes in tasks: each reads some of the files, and sends what they merge to."""

    def __init__(self, context: SparkContext) -> None:
        self._context = context

    def __call__(self, part: Part) -> tuple[pa.Table, Read]:
        tasks = _tasks(part, self._context.defaultParallelism)
        made = self._made(tasks)
        tables, read = [], Read()
        for each in made:
            if isinstance(each, MuntinError):
                raise each
            tables.append(decode(each[0], f"merged panes of job {part.of.title}"))
            read = read.plus(each[1])
        again = tuple(f"p0.k{i}" for i in range(len(part.groups)))
        rows = pa.concat_tables(tables, promote_options="default")
        return merged_rows(replace(part, groups=again, where=()), rows), read

    def _made(self, tasks: list[Part]) -> list[_Merged | MuntinError]:
        """What tasks make; those of executors that have gone are done again, as files stay."""
        merge = partial(_merge, most=SENT // len(tasks))
        for wait in WAITS:
            time.sleep(wait)
            try:
                with explained():
                    rdd = self._context.parallelize(tasks, len(tasks))
                    return rdd.mapPartitions(merge).collect()
            except LostError as error:
                lost = error
        raise SparkError(f"{lost}; the state is as it was: ask again") from lost


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


def _merge(parts: Iterable[Part], most: int) -> Iterator[_Merged | MuntinError]:
    for part in parts:
        try:
            keeping, read = Keeping(part.of.panes.folder), Read()
            if part.of.job.is_keeper:
                yield encode(_records(part, keeping, read, most)), read
                continue
            rows, read = keeping.rows(part.of, part.start, part.end, part.keys)
            yield encode(merged_rows(part, rows)), read
        except MuntinError as error:
            yield error


def _records(part: Part, keeping: Keeping, read: Read, most: int) -> pa.Table:
    """The records that are asked for, of which the driver can take some only."""
    size, tables = 0, [merged_rows(part, empty_rows(part.shape))]
    for rows in keeping.pieces(part.of, part.start, part.end, part.keys, read):
        tables.append(merged_rows(part, rows))
        size += tables[-1].nbytes
        if size > most:
            raise InputError(
                f"the records of this question are too many for tasks to send ({most >> 20:,} MB "
                "each): ask without Spark, which takes them piece by piece, about a shorter range, "
                "or about fewer records (WHERE)"
            )
    return pa.concat_tables(tables, promote_options="default")


def asked_on(master: str, text: str, state: Place) -> PastRows:
    """The answer, with panes merged on a Spark of its own or the one there is."""
    return Asking(state).ask(text, SparkMerge(start_context(master)))
