"""Random orders at random moments: every window is by the version that the boundaries say."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

import muntin as mt
from muntin.kernel.due import Due, Emitted
from muntin.kernel.merge import block_of
from muntin.logs.files import FilePosition
from muntin.run.catalog import Catalog, InForce
from muntin.run.contracts import Answer
from muntin.run.door import Door, Reply
from muntin.run.files import LogFiles
from muntin.run.inline import InlineCollection, Unsaved
from muntin.run.kept import Remembered, program_of, taken_up
from muntin.run.loop import Loop, Rules
from muntin.run.progress import Progress
from muntin.run.results import ToSave
from muntin.run.steward import Steward
from muntin.schedule.pace import Measure, Pace
from muntin.spark.collection import SparkCollection
from muntin.store.blocks import BlockFiles
from muntin.store.checkpoint import Checkpoint
from muntin.store.journal import Journal, Resident
from muntin.windows.choice import Sharing
from tests.effort import examples

SOURCES = ("a", "b")
STREAM = """CREATE STREAM s (t BIGINT, k VARCHAR, n BIGINT)
FROM '{folder}/{{source}}.log' FORMAT json TIMESTAMP t SOURCES 'a', 'b';"""
WINDOWS = {"10 SECONDS": (10, 10), "20 SECONDS EVERY 10 SECONDS": (20, 10)}
CELLS = {"count(*)": lambda ns: len(ns), "sum(n)": lambda ns: sum(ns)}
Record = tuple[str, int, str, int]  # source, seconds, key, number


def text(limit: int, cell: str, window: str, name: str = "j") -> str:
    return (
        f"JOB {name} (least DEFAULT {limit}) AS SELECT k, CAST({cell} AS BIGINT) AS c FROM s "
        f"WHERE n >= $least GROUP BY k WINDOW {window}"
    )


class Held(InlineCollection):
    """Blocks in memory that come back after a restart."""

    def answer(
        self, catalog: Catalog, due: Due, save: Mapping[str, Emitted] | None = None
    ) -> Answer:
        answer = super().answer(catalog, due, save)
        if save is None:
            return answer
        blocks = {id_: [block_of(catalog.shapes[id_], table)]
                  for id_, table in self._blocks(catalog.shapes).items()}  # fmt: skip
        return replace(answer, to_save=ToSave(blocks))

    def compact(self, catalog: Catalog) -> None: ...

    def restore(self, catalog: Catalog, blocks: BlockFiles) -> None:
        for block in blocks.every(catalog.shapes):
            pane, known = self._held.get(block.shape, (catalog.shapes[block.shape].pane, None))
            tables = [block.table(pane)] if known is None else [known, block.table(pane)]
            self._held[block.shape] = pane, pa.concat_tables(tables)


class Deployment:
    """One stream that is followed by hand; with a state, it can be stopped and started again."""

    def __init__(
        self,
        folder: Path,
        program: str,
        state: Path | None = None,
        collection: Callable[[], Resident] = Held,
        sharing: Sharing = "auto",
    ) -> None:
        self.folder, self.state, self._sharing = folder, state, sharing
        self._collection = collection
        self.program = mt.sql(STREAM.format(folder=folder) + program)
        self.now = 1_000_000.0
        self.notes: list[str] = []
        self.left: dict[tuple[str, int, int, int], tuple[dict[str, int], float]] = {}
        self.start()

    def start(self) -> None:
        stream, jobs = self.program.streams["s"], self.program.jobs_of("s")
        saved = None if self.state is None else Checkpoint(self.state, "s").peek()
        taken = taken_up(stream, jobs, Remembered() if saved is None else saved.kept)
        collection = self._collection()
        journal: Journal | Unsaved
        positions: tuple[FilePosition, ...] = ()
        if self.state is None:
            journal = Unsaved(Progress(), InForce())
        else:
            journal = Journal(self.state, taken.catalog, collection)
            positions = journal.positions
        self.door = Door()
        self.door.open(*program_of(self.program, [taken.catalog]))
        self.notes += [*taken.notes, *journal.notes]
        intake = LogFiles(stream, True, positions)
        pace = Pace(Measure(0.0), Measure(0.0))
        rules, clock = Rules(True, 1e9, self._sharing), lambda: self.now
        self.loop = Loop(taken.catalog, intake, collection, journal, rules, clock, pace)

    @property
    def loops(self) -> list[Loop]:
        return [self.loop]

    def begin(self, stream: object) -> Loop:
        raise NotImplementedError

    def write(self, *records: Record) -> None:
        for source, t, k, n in records:
            with (self.folder / f"{source}.log").open("a") as log:
                log.write(json.dumps({"t": t, "k": k, "n": n}) + "\n")

    def turn(self) -> None:
        self.now += 1
        for result in self.loop.turn().emission.results():
            window = result.job, result.version, result.start // 10**6, result.end // 10**6
            assert window not in self.left, "a window has left twice"
            rows = dict(zip(*(result.rows[c].to_pylist() for c in ("k", "c")), strict=True))
            assert len(rows) == result.rows.num_rows, "a group is there twice"
            self.left[window] = rows, result.c2.area

    def order(self, order: str) -> Reply:
        visit = self.door.bring(order)
        steward = Steward(self)
        self.door.serve(steward.check, steward.do)
        reply = visit.reply(0)
        assert reply is not None
        return reply


@dataclass(frozen=True)
class Reign:
    """The windows that one form of a job answers for, and what counts in them; in seconds."""

    version: int
    cell: str
    window: str
    limits: tuple[tuple[float, int], ...]  # from where on which least number counts
    since: float = float("-inf")  # where windows start, at the earliest
    after: float = float("-inf")  # where they end, at the earliest
    before: float = float("inf")
    upto: float = float("inf")
    emptied: float = float("-inf")

    def answers(self, records: list[Record]) -> Iterator[tuple[tuple[int, int], dict[str, int]]]:
        length, step = WINDOWS[self.window]
        starts = {
            t // step * step - back for _, t, _, _ in records for back in range(0, length, step)
        }
        for start in sorted(starts):
            end = start + length
            if self.since <= start < self.before and self.after < end <= self.upto:
                groups: dict[str, list[int]] = {}
                for _, t, k, n in records:
                    if max(start, self.emptied) <= t < end and n >= self._limit(t):
                        groups.setdefault(k, []).append(n)
                if groups:
                    yield (start, end), {k: CELLS[self.cell](ns) for k, ns in groups.items()}

    def _limit(self, t: int) -> int:
        return [least for at, least in self.limits if at <= t][-1]


@dataclass
class Oracle:
    """What has to leave, record by record, by the letter of the rule."""

    records: list[Record] = field(default_factory=list)
    reigns: list[Reign] = field(default_factory=list)  # the last one rules, unless there is a pause
    rules: bool = True
    dropped: dict[tuple[int, int, int], dict[str, int]] = field(default_factory=dict)

    def follow(self, order: tuple[str, ...], at: float, version: int) -> None:
        kind, now = order[0], self.reigns[-1] if self.reigns else None
        if kind in ("create", "resume"):
            limit, cell, window = order[1:]
            self.reigns.append(Reign(version, cell, window, ((float("-inf"), int(limit)),), at))
            return
        assert now is not None
        if kind == "window":
            limit, cell, window = order[1:]
            self.reigns[-1] = replace(now, before=at)
            self.reigns.append(Reign(version, cell, window, ((float("-inf"), int(limit)),), at))
        elif kind in ("pane", "set"):
            self.reigns[-1] = replace(now, upto=at)
            limits = (*(x for x in now.limits if x[0] < at), (at, int(order[1])))
            self.reigns.append(replace(now, version=version, limits=limits, after=at))
        elif kind == "reset":
            self.reigns[-1] = replace(now, upto=at)
            self.reigns.append(replace(now, after=at, emptied=at))
        elif kind == "pause":
            self.reigns[-1] = replace(now, upto=at)

    def expected(self) -> dict[tuple[int, int, int], dict[str, int]]:
        found: dict[tuple[int, int, int], dict[str, int]] = dict(self.dropped)
        for reign in self.reigns:
            for (start, end), rows in reign.answers(self.records):
                found[reign.version, start, end] = rows
        return found


limits = st.integers(0, 9)
written = st.tuples(st.integers(0, 9), st.sampled_from("xy"), limits)  # seconds on, key, number
steps = st.one_of(
    st.tuples(
        st.just("write"), st.sampled_from(SOURCES), st.lists(written, min_size=1, max_size=4)
    ),
    st.tuples(st.just("turn")),
    st.tuples(st.just("restart")),
    st.tuples(st.just("window"), limits, st.sampled_from([*CELLS]), st.sampled_from([*WINDOWS])),
    st.tuples(st.just("pane"), limits),
    st.tuples(st.just("set"), limits),
    st.tuples(st.just("reset")),
    st.tuples(st.just("pause")),
    st.tuples(st.just("drop")),
)


Moves = list[tuple[Any, ...]]


def play(
    moves: Moves,
    stateful: bool,
    collection: Callable[[], Resident] = Held,
    sharing: Sharing = "auto",
) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder)
        cell, window, limit = "count(*)", "20 SECONDS EVERY 10 SECONDS", 3
        state = path / "state" if stateful else None
        run = Deployment(path, "CREATE " + text(limit, cell, window), state, collection, sharing)
        oracle = Oracle()
        oracle.follow(("create", str(limit), cell, window), float("-inf"), 1)
        clocks, there, paused, number = dict.fromkeys(SOURCES, 100), True, False, 1
        for move in moves:
            kind = move[0]
            if kind == "write":
                for ahead, k, n in move[2]:
                    clocks[move[1]] += ahead
                    record = (move[1], clocks[move[1]], k, n)
                    run.write(record)
                    oracle.records.append(record)
            elif kind == "turn":
                run.turn()
            elif kind == "restart":
                if stateful:
                    run.start()
            else:
                run.turn()  # the model knows what was written, an order what was read
                if not there or paused:
                    back = "CREATE " + text(limit, cell, window) if not there else "RESUME JOB j"
                    effect = run.order(back).effects[0]
                    number, there, paused = effect.version, True, False
                    since = float("-inf") if effect.position is None else effect.position / 1e6
                    oracle.follow(("create", str(limit), cell, window), since, number)
                    continue
                if kind == "window":
                    limit, cell, window = move[1:]
                    order = "CREATE OR REPLACE " + text(limit, cell, window)
                elif kind == "pane":
                    limit = move[1]
                    order = "CREATE OR REPLACE " + text(limit, cell, window) + " AT NEXT PANE"
                elif kind == "set":
                    limit = move[1]
                    order = f"SET j.least = {limit}"
                else:
                    order = f"{kind.upper()} JOB j"
                (effect,) = run.order(order).effects
                assert effect.version == number + (kind in ("window", "pane"))
                number = effect.version
                if kind == "drop":
                    there = False
                    done = {w[1:]: rows for w, (rows, _) in run.left.items()}
                    oracle.dropped = done
                    oracle.reigns = []
                    continue
                paused = kind == "pause"
                at = float("-inf") if effect.position is None else effect.position / 1e6
                if effect.position is None and kind in ("window", "pane", "set"):
                    oracle.reigns = []
                    oracle.follow(("create", str(limit), cell, window), at, number)
                elif effect.position is not None:
                    assert at > max((t for _, t, _, _ in oracle.records), default=0)
                    oracle.follow(tuple(map(str, move)), at, number)
                else:
                    oracle.reigns = [] if paused else oracle.reigns
        end = max(clocks.values()) + 1000
        run.write(*[(source, end, "x", 9) for source in SOURCES for _ in range(4)])
        run.turn()
        run.turn()
        found = {w[1:]: rows for w, (rows, _) in run.left.items()}
        assert found == oracle.expected()
        assert all(job.term.is_open for job in run.loop.catalog.jobs.values())


@examples(15)
@given(moves=st.lists(steps, max_size=16), sharing=st.sampled_from(["shared", "separate"]))
def test_every_window_is_by_its_version(moves: Moves, sharing: Sharing) -> None:
    play(moves, stateful=False, sharing=sharing)


@examples(5)
@given(moves=st.lists(steps, max_size=12))
def test_restarts_change_nothing(moves: Moves) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("muntin.store.journal.SAVES_PER_REWRITE", 0)
        patch.setattr("muntin.store.checkpoint.Checkpoint.is_loose", property(lambda _: True))
        play(moves, stateful=True)


#   read    100 · · · 120   ┊   130 · ·   ┊  150 · · ·
#   order                  set         restart     pane, then window
ON_SPARK: Moves = [
    ("write", "a", [(0, "x", 2), (5, "y", 9), (9, "x", 5)]),
    ("write", "b", [(3, "x", 9), (4, "y", 4), (8, "y", 1)]),
    ("turn",),
    ("set", 1),
    ("write", "a", [(6, "x", 1), (9, "y", 2), (9, "x", 8)]),
    ("restart",),
    ("write", "b", [(9, "x", 1), (9, "y", 0), (9, "x", 3)]),
    ("pane", 4),
    ("write", "b", [(9, "x", 5), (9, "y", 3)]),
    ("window", 0, "sum(n)", "10 SECONDS"),
    ("write", "a", [(9, "x", 1), (9, "y", 2), (9, "x", 8), (9, "y", 1)]),
    ("restart",),
    ("turn",),
    ("reset",),
    ("write", "b", [(9, "x", 1), (9, "y", 2), (9, "x", 8), (9, "y", 1)]),
    ("pause",),
    ("write", "a", [(9, "x", 1), (9, "y", 2)]),
    ("restart",),
    ("set", 1),  # it is paused: it is resumed
    ("write", "a", [(9, "x", 1), (9, "y", 2)]),
    ("write", "b", [(9, "x", 1), (9, "y", 2)]),
    ("drop",),
    ("turn",),
    ("pane", 3),  # it is gone: it is created
    ("write", "a", [(9, "x", 1), (9, "y", 7)]),
]


def test_it_is_the_same_on_spark(spark: SparkSession) -> None:
    context = spark.sparkContext
    play(ON_SPARK, stateful=True, collection=lambda: SparkCollection(context))


def test_panes_of_before_meet_those_of_now_on_spark(spark: SparkSession) -> None:
    """Shapes lie at places of their own, and windows over a boundary have panes of both."""
    records = [(2, "x", 9), (3, "y", 9), (2, "z", 8)]
    moves = [
        each
        for limit in (1, 4, 2, 7, 0, 6)
        for each in (("write", "a", records), ("write", "b", records), ("set", limit))
    ]
    context = spark.sparkContext
    play(moves, stateful=True, collection=lambda: SparkCollection(context))


def test_it_is_the_same_inline() -> None:
    play(ON_SPARK, stateful=False)


def test_a_session_is_by_the_version_that_it_began_with(tmp_path: Path) -> None:
    """One that begins within the gap may go on from before, so the old version answers for it."""
    session = "SELECT k, {} AS c FROM s GROUP BY k WINDOW SESSION 10 SECONDS"
    run = Deployment(tmp_path, f"CREATE JOB j AS {session.format('count(*)')}")
    run.write(("a", 100, "x", 5), ("a", 105, "x", 5), ("b", 104, "y", 5))
    run.turn()
    (effect,) = run.order(f"CREATE OR REPLACE JOB j AS {session.format('10 * count(*)')}").effects
    assert effect.position is not None
    at = effect.position // 1_000_000
    assert 114 <= at <= 117
    for t, k in [
        (110, "x"),
        (112, "z"),
        (119, "x"),
        (125, "y"),
        (128, "x"),
        (150, "z"),
        (151, "x"),
    ]:
        run.write(("a", t, k, 5), ("b", t, "other", 5))
        run.turn()
        if t <= 119:
            assert any(not job.term.is_open for job in run.loop.catalog.jobs.values())
    for t in (180, 200, 220, 240):
        run.write(("a", t, "end", 5), ("b", t, "end", 5))
        run.turn()
    found: dict[tuple[int, int], dict[str, int]] = {}
    for (_, version, start, _), (rows, _) in run.left.items():
        mine = {k: c for k, c in rows.items() if k != "other"}
        found[version, start] = found.get((version, start), {}) | mine
    assert found[1, 100] == {"x": 5}  # to its end, also what was read by the new version
    assert found[1, 104] == {"y": 1}
    assert found[1, 112] == {"z": 1}
    assert found[2, 125] == {"y": 10}
    assert found[2, 150] == {"z": 10}
    assert found[2, 151] == {"x": 10}
    assert all(job.term.is_open for job in run.loop.catalog.jobs.values())


def test_windows_and_sessions_of_one_job_change_at_one_boundary(tmp_path: Path) -> None:
    """Of both, each is by the version that was in force where it began, and by one alone."""
    both = "SELECT k, {} AS c FROM s GROUP BY k WINDOW 10 SECONDS, SESSION 5 SECONDS"
    run = Deployment(tmp_path, f"CREATE JOB j AS {both.format('count(*)')}")
    run.write(("a", 100, "x", 5), ("b", 103, "y", 5))
    run.turn()
    (effect,) = run.order(f"CREATE OR REPLACE JOB j AS {both.format('10 * count(*)')}").effects
    assert (effect.does, effect.version, effect.position) == ("replaced", 2, 110_000_000)
    for t, k in [(106, "x"), (111, "y"), (113, "x"), (121, "y"), (125, "y"), (140, "x")]:
        run.write(("a", t, k, 5), ("b", t, "other", 5))
        run.turn()
    for t in (180, 220, 260):
        run.write(("a", t, "end", 5), ("b", t, "end", 5))
        run.turn()
    found = {
        (start, end - start): (version, {k: c for k, c in rows.items() if k != "other"})
        for (_, version, start, end), (rows, _) in run.left.items()
        if start < 150
    }
    windows = {s: told for (s, length), told in found.items() if length == 10 and s % 10 == 0}
    assert windows == {
        100: (1, {"x": 2, "y": 1}),
        110: (2, {"x": 10, "y": 10}),
        120: (2, {"y": 20}),
        140: (2, {"x": 10}),
    }
    versions = {start: version for (start, _), (version, _) in found.items() if start % 10}
    # One that begins within the gap behind the boundary may go on from before.
    assert all(version == (1 if start < 114 else 2) for start, version in versions.items())
    assert {103, 106, 111, 113, 121} <= versions.keys()
    assert all(job.term.is_open for job in run.loop.catalog.jobs.values())
    assert {job.edition.number for job in run.loop.catalog.jobs.values()} == {2}
    run.order(
        "CREATE OR REPLACE JOB j AS SELECT k, count(*) AS c FROM s GROUP BY k WINDOW 5 SECONDS"
    )
    assert sum(job.term.is_open for job in run.loop.catalog.jobs.values()) == 1
