"""Shapes of one form: their blocks are merged and finished together, the shape as one more key.

A statement takes a few milliseconds to plan and to start, however few rows it is given, and a
thousand jobs have a thousand shapes. Shapes are of one form if their blocks have the same columns,
merged by the same rules, on panes of one size. Rows of such blocks are put into one table, with the
number of their shape as one more key behind the others, and taken apart again afterwards: so
shapes get the rows they get alone, and nothing else knows of it.

Large blocks are left to themselves: what these take are their rows. So is a shape whose values
SQL refuses; it is found, and the others stay together.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from muntin.errors import BadValueError
from muntin.kernel.due import Due
from muntin.kernel.engine import run
from muntin.kernel.finish import finish
from muntin.kernel.kinds import kind_of
from muntin.kernel.kinds.panes import Panes
from muntin.kernel.merge import key_groups, merge, place, split
from muntin.kernel.reading import Cost
from muntin.kernel.statements import key_names, merge_sql
from muntin.model.jobs import Job
from muntin.model.records import SHAPE
from muntin.model.shapes import Key, Shape

Numbers = NDArray[np.int32]
LARGE = 30_000  # rows of a shape, which take longer than a statement does
ROWS_AT_ONCE = 150_000  # that are put together


def merge_all(
    shapes: Mapping[str, Shape],
    blocks: Mapping[str, Sequence[pa.Table]],
    alone: Callable[[Shape, Sequence[pa.Table]], pa.Table] = merge,
) -> dict[str, pa.Table]:
    """What `merge` gives for the blocks of each shape, or `gather` for those that stay alone."""
    merged = _together(shapes, blocks)
    return {id_: merged[id_] if id_ in merged else alone(shapes[id_], tables)
            for id_, tables in blocks.items()}  # fmt: skip


def _together(
    shapes: Mapping[str, Shape], blocks: Mapping[str, Sequence[pa.Table]]
) -> dict[str, pa.Table]:
    """Merged blocks of the shapes that others are of one form with."""
    merged: dict[str, pa.Table] = {}
    few = [id_ for id_, tables in blocks.items() if len(tables) > 1 and _rows(tables) <= LARGE]
    for ids in _forms((id_, kind_of(shapes[id_]).form, _rows(blocks[id_])) for id_ in few):
        merged |= _merged([(shapes[id_], blocks[id_]) for id_ in ids])
    return merged


def split_all(
    shapes: Mapping[str, Shape], blocks: Mapping[str, pa.Table], groups: int
) -> Iterator[tuple[str, int, pa.Table]]:
    """What `split` gives for the block of each shape: the shape, a place, and the rows there."""
    few = {
        id_: block
        for id_, block in blocks.items()
        if block.num_rows <= LARGE and groups > 1 and shapes[id_].keys
    }
    together: set[str] = set()
    for ids in _forms((i, kind_of(shapes[i]).form, block.num_rows) for i, block in few.items()):
        shape, count = shapes[ids[0]], len(ids)
        whole = _Whole.of(shape, [blocks[id_] for id_ in ids])
        of_rows = key_groups(shape, whole.rows, groups)
        parts = whole.apart(whole.rows, groups * count, of_rows * count)
        for number, rows in enumerate(parts):
            if rows.num_rows:
                id_ = ids[number % count]
                yield id_, place(shapes[id_].home, number // count, groups), rows
        together |= {*ids}
    for id_, block in blocks.items():
        if id_ not in together:
            for at, rows in split(shapes[id_], block, groups).items():
                yield id_, at, rows


def _rows(tables: Sequence[pa.Table]) -> int:
    return sum(table.num_rows for table in tables)


def _forms(named: Iterable[tuple[str, Hashable, int]]) -> Iterator[list[str]]:
    """What is of the same form, told with that and how many rows it has; two or more."""
    forms: dict[Hashable, list[tuple[str, int]]] = {}
    for id_, form, rows in named:
        if form is not None:
            forms.setdefault(form, []).append((id_, rows))
    for members in forms.values():
        some: list[str] = []
        size = 0
        for id_, rows in members:
            if some and size + rows > ROWS_AT_ONCE:
                yield some
                some, size = [], 0
            some.append(id_)
            size += rows
        if len(some) > 1:
            yield some


def _merged(members: Sequence[tuple[Shape, Sequence[pa.Table]]]) -> dict[str, pa.Table]:
    """The merged blocks of shapes of one form, by their ids; not of those that SQL refuses."""
    whole = _Whole.of(members[0][0], [pa.concat_tables(tables) for _, tables in members])
    doing = f"merging blocks of {whole.shape.stream}"
    try:
        rows = run(merge_sql(whole.shape), {"blocks": whole.rows}, doing)
    except BadValueError:
        if len(members) == 1:
            return {}
        middle = len(members) // 2
        return _merged(members[:middle]) | _merged(members[middle:])
    parts = whole.apart(rows, len(members))
    return {shape.id: rows for (shape, _), rows in zip(members, parts, strict=True)}


@dataclass(frozen=True)
class _Whole:
    """Rows of several shapes of one form as those of one shape, whose last key tells them apart."""

    shape: Shape
    rows: pa.Table

    @classmethod
    def of(cls, like: Shape, tables: Sequence[pa.Table]) -> _Whole:
        """Of tables that have the columns of blocks of a shape."""
        shape = replace(like, keys=(*like.keys, Key(SHAPE, "INTEGER")))
        numbers = np.repeat(np.arange(len(tables), dtype=np.int32), [t.num_rows for t in tables])
        rows = pa.concat_tables(tables).combine_chunks()
        behind = ("part", *key_names(like))[-1]  # where statements have it, too
        at = rows.column_names.index(behind) + 1
        return cls(shape, rows.add_column(at, _number(shape), pa.array(numbers)))

    def apart(self, rows: pa.Table, count: int, more: Numbers | int = 0) -> list[pa.Table]:
        """What was made of these rows for each of so many shapes, in order.

        If there is `more` to the numbers of shapes, they are apart by the sum.
        """
        place = rows.column_names.index(_number(self.shape))
        numbers = rows.column(place).to_numpy() + more
        rows = rows.remove_column(place).combine_chunks()
        order = np.argsort(numbers, kind="stable")
        sorted_ = rows.take(pa.array(order))
        bounds = np.searchsorted(numbers[order], np.arange(count + 1)).tolist()
        return [sorted_.slice(start, stop - start) for start, stop in pairwise(bounds)]


def _number(shape: Shape) -> str:
    """The column that has the number of a shape."""
    return f"k{len(shape.keys) - 1}"


@dataclass(frozen=True)
class Asked:
    """A shape that has windows due: its jobs, how many rows its blocks have, and these rows."""

    jobs: Mapping[str, Job]
    rows: int
    table: Callable[[], pa.Table]

    @property
    def shape(self) -> Shape:
        return next(iter(self.jobs.values())).shape


@dataclass(frozen=True)
class Member:
    """A job whose due windows are made together with those of others."""

    job: Job
    rows: int
    table: Callable[[], pa.Table]


Form = Sequence[Member]


def forms_of(asked: Iterable[Asked], due: Due) -> list[Form]:
    """The jobs whose windows `finish_form` makes together, form by form; two or more each.

    Windows that are made of a part of what there is, or of which others are made, are none of them.
    """
    in_part = {name for name, _, _ in due.only}
    members: dict[str, Member] = {}
    forms: dict[str, Hashable] = {}
    for each in asked:
        form = kind_of(each.shape).form
        lengths = {spec.length for job in each.jobs.values() for spec in job.windows}
        if form is None or each.rows > LARGE or (due.more and len(lengths) > 1):
            continue
        for name, job in each.jobs.items():
            if name in due.ends and name not in in_part:
                members[name] = Member(job, each.rows, each.table)
                forms[name] = form, _of_job(job, due.ends[name])
    together = _forms((name, forms[name], each.rows) for name, each in members.items())
    return [[members[name] for name in names] for names in together]


def merged_as(job: Job) -> Hashable:
    """Equal for jobs whose blocks may be merged together; None: for nobody else's."""
    return kind_of(job.shape).form


def finished_as(job: Job) -> Hashable:
    """Equal for jobs whose windows are made together when the same ones are due."""
    form = merged_as(job)
    return None if form is None else (form, _of_job(job, ()))


def _of_job(job: Job, ends: Sequence[Sequence[int]]) -> Hashable:
    """What jobs have in common whose windows are made by the same statements."""
    core = job.core
    return (
        core.windows, tuple(map(tuple, ends)), core.finishes, tuple(f.whole for f in core.finishes),
        tuple((output.sql, output.type) for output in core.outputs), core.having, core.order,
        core.limit,
    )  # fmt: skip


def finish_form(form: Form, due: Due) -> dict[str, pa.Table]:
    """The rows by job that `finish` gives for each of them."""
    first = form[0].job
    if len(form) == 1:
        return finish(first.shape, {first.name: first}, form[0].table(), due).rows
    whole = _Whole.of(first.shape, [each.table() for each in form])
    jobs = {first.name: replace(first.core, shape=whole.shape)}
    ends = {first.name: due.ends[first.name]}
    try:
        done = Panes(whole.shape).finish_together(jobs, whole.rows, Due(ends), ())
    except BadValueError:
        middle = len(form) // 2
        return finish_form(form[:middle], due) | finish_form(form[middle:], due)
    parts = whole.apart(done.rows[first.name], len(form))
    return {each.job.name: rows for each, rows in zip(form, parts, strict=True)}


def shared_cost(form: Form, seconds: float) -> dict[str, Cost]:
    """What each shape has of the time that a form took, by its rows."""
    every = max(1, sum(each.rows for each in form))
    costs: dict[str, Cost] = {}
    for each in form:
        id_, cost = each.job.shape.id, Cost(0, each.rows, seconds * each.rows / every)
        costs[id_] = costs.get(id_, Cost()) + cost
    return costs
