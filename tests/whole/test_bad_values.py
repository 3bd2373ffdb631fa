"""A value that SQL refuses costs its record, or the row it would be in, and nothing else."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hypothesis import given
from hypothesis import strategies as st

from muntin.language.program import sql
from muntin.run.inline import windows_inline
from muntin.windows.choice import Sharing
from tests.effort import examples
from tests.oracle import AGGREGATES, Question, Record, Window, same, write_logs
from tests.whole.test_answers import rows_of

if TYPE_CHECKING:
    pass

LARGE = 2**62
# What fails on a record whose `s` is no number, or whose `n` is too large to be doubled.
FAILING = {
    "sum(CAST(s AS INTEGER))": "s",
    "max(CAST(s AS INTEGER))": "s",
    "count(DISTINCT CAST(s AS INTEGER))": "s",
    "median(CAST(s AS INTEGER))": "s",
    "sum(n * 2)": "n",
    "min(100 // n)": "zero",
    "last(n * 2)": "n",
}
WHERES = {None: "", "CAST(s AS INTEGER) % 5 <> 3": "s", "n * n <> 9": "n", "x < 8": ""}
KEYS: dict[tuple[str, ...], str] = {(): "", ("k",): "", ("CAST(s AS INTEGER) % 2",): "s"}
AGGREGATES |= {text: text for text in FAILING}
AGGREGATES["last(n * 2)"] = "last(n * 2 ORDER BY t, n * 2 NULLS LAST)"

records = st.lists(
    st.fixed_dictionaries(
        {
            "t": st.integers(-100, 200),
            "k": st.sampled_from(["a", "b", None]),
            "s": st.sampled_from(["1", "2", "3", "x", "", None, "9999999999"]),
            "n": st.sampled_from([None, 1, 2, 3, 0, LARGE]),
            "x": st.sampled_from([None, 1.5, 9.0]),
        }
    ),
    max_size=40,
)
sources = st.dictionaries(st.sampled_from(["web-1", "web-2", "db"]), records, min_size=1)
windows = st.lists(
    st.sampled_from([Window(60, 60), Window(60, 20), Window(7, 3), Window(300, 10), Window(1, 1)]),
    min_size=1,
    max_size=3,
    unique=True,
)


def is_refused(record: Record, what: str) -> bool:
    """Whether an expression of that kind fails on a record."""
    if what == "s":
        return record["s"] in ("x", "", "9999999999")
    if what == "n":
        return bool(record["n"] == LARGE)
    return what == "zero" and record["n"] == 0


@dataclass(frozen=True)
class Careful(Question):
    """A question of which some expressions fail, and how often that may be."""

    errors: int | None = None

    def muntin(self, folder: Path) -> str:
        text = super().muntin(folder)
        return text if self.errors is None else f"{text[:-1]} MAX ERRORS {self.errors};"

    def fails(self, record: Record) -> bool:
        """What is written behind a filter is evaluated only where it holds."""
        if is_refused(record, WHERES[self.where]):
            return True
        passes = {
            None: True,
            "CAST(s AS INTEGER) % 5 <> 3": record["s"] not in (None, "3"),
            "n * n <> 9": record["n"] not in (None, 3),
            "x < 8": record["x"] is not None and record["x"] < 8,
        }[self.where]
        evaluated = [KEYS[self.keys], *(FAILING.get(a, "") for a in self.aggregates)]
        return passes and any(is_refused(record, what) for what in evaluated)

    def _starts(self, window: Window, records: Sequence[Record]) -> Any:
        """Without what fails; it is as late as it would be otherwise, and so are others."""
        starts = super()._starts(window, records)
        return [(record, []) if self.fails(record) else (record, of) for record, of in starts]

    def stopped_at(self, sources: dict[str, Sequence[Record]]) -> int | None:
        """The time from which on windows do not leave: that of one failure too many."""
        if self.errors is None:
            return None
        plain = replace(self, errors=None)
        failed = []
        for of_source in sources.values():
            by_kind = [Question._starts(plain, window, of_source) for window in self.windows]
            for each in zip(*by_kind, strict=True):
                record = each[0][0]
                if self.fails(record) and any(starts for _, starts in each):
                    failed.append(record["t"])
        return sorted(failed)[self.errors] if len(failed) > self.errors else None

    def answer(self, sources: dict[str, Sequence[Record]]) -> list[tuple[Any, ...]]:
        upto = self.stopped_at(sources)
        rows = super().answer(sources)
        return [row for row in rows if upto is None or row[1] <= upto]


@st.composite
def questions(draw: st.DrawFn) -> Careful:
    names = st.sampled_from([*FAILING, "count(*)", "sum(x)", "first(s)"])
    return Careful(
        aggregates=tuple(draw(st.lists(names, min_size=1, max_size=3, unique=True))),
        keys=draw(st.sampled_from(list(KEYS))),
        where=draw(st.sampled_from(list(WHERES))),
        having=None,
        limit=None,
        windows=tuple(draw(windows)),
        slack_s=draw(st.sampled_from([None, None, 0, 15])),
        errors=draw(st.sampled_from([None, None, 0, 1, 3, 1000])),
    )


@examples(150)
@given(
    question=questions(),
    logs=sources,
    batch=st.integers(1, 3000),
    piece=st.integers(1, 1500),
    sharing=st.sampled_from(["auto", "shared", "separate"]),
)
def test_inline_equals_a_plain_query_without_what_fails(
    question: Careful,
    logs: dict[str, Sequence[Record]],
    batch: int,
    piece: int,
    sharing: Sharing,
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        write_logs(Path(folder), logs)
        program = sql(question.muntin(Path(folder)))
        leaving = windows_inline(program, batch_bytes=batch, piece_bytes=piece, sharing=sharing)
        found = rows_of(result for windows in leaving for result in windows.results())
    assert same(found, question.answer(logs)), (found, question.answer(logs))
