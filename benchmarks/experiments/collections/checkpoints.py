"""Bytes written for a bound on recovery, on the lineage of a trends application; Figures 16 to 18.

A step takes requests, partitions them (`kv`), counts and keeps contents by key (`cnt`, `ctt`), adds
decayed counts of the step before (`ccnt`), keeps popular keys (`acnt`), decays (`dec`), adds
contents of the former result (`cctt`), joins these with popular keys (`jall`), and cleans up
(`res`).

Sizes and times of every dataset are measured on Spark, on this machine. Which would be written, by
minimum cut and by Edge, is then worked out on these: nothing is written here.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from pyspark import RDD, SparkContext, StorageLevel

from benchmarks.experiments.collections.data import pages, requests
from benchmarks.experiments.plots import Line, Panel, draw
from muntin.collections.lineage import Dataset, Lineage, cut, edge
from muntin.spark.context import start_context

Rows: TypeAlias = RDD[Any]
STEPS = 10
DATASETS = 9  # of a step
DECAY = 0.8


def run(pictures: Path | None, quick: bool) -> Iterator[str]:
    rows = 5_000 if quick else 20_000
    history = measured(start_context("local[2]"), rows)
    names = [each.name.rpartition(" ")[0] for each in history[-DATASETS:]]
    yield f"{STEPS} steps of {rows:,} requests; of the last step, measured:"
    yield ""
    yield "| | " + " | ".join(names) + " |"
    yield "|---" * (1 + len(names)) + "|"
    yield "| KB | " + " | ".join(f"{each.cost / 1e3:.0f}" for each in history[-DATASETS:]) + " |"
    yield "| ms | " + " | ".join(f"{1000 * each.delay:.0f}" for each in history[-DATASETS:]) + " |"
    yield ""
    step = sum(each.delay for each in history) / STEPS
    panels = []
    for factor in (1.0, 2.0, 4.0):
        bound = factor * step
        written = {name: simulated(history, bound, name) for name in ("Stark-1", "Stark-3", "Edge")}
        yield f"A bound of {1000 * bound:.0f} ms, as long as {_told(factor)}:"
        yield ""
        yield (
            "| MB written up to step | "
            + " | ".join(map(str, range(1, STEPS + 1)))
            + " | longest |"
        )
        yield "|---" * (STEPS + 2) + "|"
        for name, (totals, longest) in written.items():
            cells = " | ".join(f"{total / 1e6:.2f}" for total in totals)
            yield f"| {name} | {cells} | {1000 * longest:.0f} ms |"
        yield ""
        xs = list(range(1, STEPS + 1))
        lines = {name: Line(xs, [t / 1e6 for t in totals]) for name, (totals, _) in written.items()}
        panels.append(Panel(f"bound: {_told(factor)}", "step", "MB written", lines))
    if pictures is not None:
        draw(pictures / "collections-checkpoints.png", "Written for a bound on recovery", panels)


def _told(steps: float) -> str:
    return "1 step" if steps == 1 else f"{steps:g} steps"


def simulated(history: list[Dataset], bound: float, name: str) -> tuple[list[int], float]:
    """Bytes written after each step, and the longest recovery that there ever was after writing."""
    lineage, total, totals, longest = Lineage(), 0, [], 0.0
    for dataset in history:
        lineage = lineage.plus(dataset)
        if name == "Edge":
            chosen = edge(lineage, bound)
        else:
            chosen = cut(lineage, bound, float(name.removeprefix("Stark-")))
        total += sum(lineage.datasets[each].cost for each in chosen)
        lineage = lineage.written(chosen)
        longest = max(longest, *lineage.recovery.values())
        step = int(dataset.name.rpartition(" ")[2])
        if dataset.name.startswith("res "):
            totals.append(total)
            old = [each for each in lineage.datasets if int(each.rpartition(" ")[2]) < step]
            lineage = lineage.released(old)  # of which the next step needs nothing
    assert longest <= bound
    return totals, longest


def measured(context: SparkContext, rows: int) -> list[Dataset]:
    """All datasets of all steps, in the order in which they are made."""
    known = pages()
    found: list[Dataset] = []
    dec: Rows = context.parallelize([], 2)
    res: Rows = context.parallelize([], 2)
    for step in range(STEPS):
        lines = requests(rows, step, known).to_pylist()
        raw = context.parallelize([(row["page"][:6], row["line"][:60]) for row in lines], 2)

        now, before = f" {step}", f" {step - 1}"
        made = partial(_made, found, now)
        kv = made("kv", raw.partitionBy(2), is_shuffle=True)  # raw is what sources still have
        cnt = made("cnt", kv.mapValues(lambda _: 1.0).reduceByKey(_plus, 2), "kv" + now)
        contents: Rows = kv.mapValues(_alone)
        ctt = made("ctt", contents.reduceByKey(_first_texts, 2), "kv" + now)
        summed = cnt.cogroup(dec, 2).mapValues(lambda both: sum(both[0]) + sum(both[1]))
        ccnt = made("ccnt", summed, "cnt" + now, "dec" + before)
        limit = rows / 2000
        acnt = made("acnt", ccnt.filter(partial(_is_popular, limit)), "ccnt" + now)
        dec = made("dec", ccnt.mapValues(lambda count: count * DECAY), "ccnt" + now)
        texts = ctt.cogroup(res, 2).mapValues(
            lambda both: _kept([*both[0], *(r[1] for r in both[1])])
        )
        cctt = made("cctt", texts, "ctt" + now, "res" + before)
        jall = made("jall", cctt.join(acnt, 2), "cctt" + now, "acnt" + now)
        cleaned = jall.mapValues(lambda both: (both[1], both[0][-20:]))
        res = made("res", cleaned, "jall" + now)
    return found


def _made(
    found: list[Dataset], now: str, name: str, rdd: Rows, *parents: str, is_shuffle: bool = False
) -> Rows:
    """Computes a dataset and keeps it in memory; appends what that took."""
    rdd = rdd.persist(StorageLevel.MEMORY_ONLY)
    began = time.perf_counter()
    rdd.count()
    seconds = time.perf_counter() - began
    sizes = {each.id(): each.memSize() for each in rdd.context._jsc.sc().getRDDStorageInfo()}
    cost = int(sizes.get(rdd._jrdd.id(), 0))
    found.append(Dataset(name + now, parents, cost, seconds, written=is_shuffle))
    return rdd


def _alone(text: str) -> tuple[str, ...]:
    return (text,)


def _is_popular(limit: float, pair: tuple[str, float]) -> bool:
    return pair[1] > limit


def _plus(one: float, other: float) -> float:
    return one + other


def _first_texts(one: tuple[str, ...], other: tuple[str, ...]) -> tuple[str, ...]:
    return (one + other)[:40]


def _kept(lists: list[tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(text for texts in lists for text in texts)[:60]
