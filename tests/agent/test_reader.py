"""Whatever is killed when, every record is in one delivery: rows, tallies and counts."""

from __future__ import annotations

import json
import os
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from unittest.mock import Mock

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from muntin.agent.buffers import Buffers
from muntin.agent.desk import Desk
from muntin.agent.reader import POLL_SECONDS, StreamReader, restarted
from muntin.agent.safe import SafeLog, SafePoint
from muntin.agent.settings import AgentSettings, StreamSettings
from muntin.fidelity.score import Gap, State
from muntin.fidelity.shedding import Use
from muntin.kernel.block import Block
from muntin.kernel.merge import merge
from muntin.kernel.reading import Reading, added_up
from muntin.language.program import sql
from muntin.logs.events import Events
from muntin.logs.records import read_lane
from muntin.logs.tail import Tail
from muntin.model.jobs import Program
from muntin.model.records import POSITION
from muntin.run.catalog import Catalog
from muntin.run.contracts import Delivery
from muntin.run.files import LaneTask
from muntin.wire.messages import Departed, Exchange, Known, Parcel, Plan, unpack
from muntin.wire.parcels import readings
from tests.effort import examples

SECOND = 1_000_000
NOW = 1_000_000.0
JOBS = """
CREATE STREAM logs (t DOUBLE, k VARCHAR, n BIGINT) FROM 'x' FORMAT json TIMESTAMP t SLACK 3 SECONDS;
CREATE JOB sums AS SELECT k, sum(n) AS n FROM logs GROUP BY k WINDOW 10 SECONDS EVERY 5 SECONDS;
CREATE JOB long AS SELECT count(*) AS c FROM logs WHERE n > 2 WINDOW 1 MINUTE;
CREATE JOB visits AS SELECT k, count(*) AS c FROM logs GROUP BY k WINDOW SESSION 4 SECONDS;
"""


@dataclass
class Beside:
    """An agent's reader of one log, and what a pipeline has of it."""

    folder: Path
    program: Program = field(default_factory=lambda: sql(JOBS))
    final: dict[int, Parcel] = field(default_factory=dict)
    now: float = NOW
    most_waiting: int = 1 << 20
    most_open: int = 1 << 20
    events: Events | None = None

    def __post_init__(self) -> None:
        self.write([(0.0, "a", 1)])
        catalog = Catalog.of(self.program.streams["logs"], self.program.jobs.values())
        self.shapes = catalog.shapes
        self.plan = Plan(catalog.stream, catalog.recipes, catalog.stream.slack_us)
        settings = StreamSettings((str(self.folder / "*.log"),))
        self.settings = AgentSettings("web", self.folder, {"logs": settings})
        self.start()

    def start(self, point: SafePoint | None = None) -> None:
        """After a crash, or for the first time: all but files is forgotten."""
        log = SafeLog(self.folder / "logs.safe")
        last = max(self.final, default=0)
        point = point or log.after(last)
        assert point is not None or not last
        point = point or SafePoint()
        log.begin("pipeline", point)
        stream = self.settings.local(self.plan.stream)
        buffers = Buffers(self.most_open, self.folder / "open")
        self.desk = Desk("pipeline", self.plan, Known(point.sequence))
        self.reader = StreamReader(
            stream, self.plan, point, log, self.desk, self.most_waiting, buffers, self.events
        )

    def write(self, records: list[tuple[float, str, int]], torn: bool = False) -> None:
        with (self.folder / "a.log").open("a") as file:
            for t, k, n in records:
                file.write(json.dumps({"t": t, "k": k, "n": n}) + "\n")
            file.write("{torn\n" if torn else "")

    def turn(self, seconds: float = 0.2) -> None:
        self.now += seconds
        self.reader.turn(self.now)

    def commit(self, most: int = 1 << 30) -> None:
        """Fetches deliveries, makes some of them final, and says so."""
        last = max(self.final, default=0)
        parcels = [unpack(data) for data in self.desk.fetch(last, self.desk.last)]
        numbers = [number for parcel in parcels for number in parcel.numbers.values()]
        assert numbers == list(range(last + 1, self.desk.last + 1))
        self.final |= dict(zip(numbers[:most], parcels, strict=False))
        told = Exchange("pipeline", "logs", self.plan.digest, plan=self.plan)
        self.desk.tell(told, Known(max(self.final, default=0)))
        self.reader.obey(self.desk.orders)

    def finish(self) -> None:
        """Has all leave that is open, as nobody writes any more."""
        self.write([(130.0, "a", 1)])
        for _ in range(4):
            self.turn(2.0)
            self.commit()

    def shipped(self) -> tuple[dict[str, pa.Table], Reading]:
        """All that is final, as one block a shape and one reading."""
        tables: dict[str, list[pa.Table]] = {}
        for parcel in self.final.values():
            for id_, data in parcel.blocks.items():
                tables.setdefault(id_, []).append(Block.decode(data, "b").table())
        blocks = {id_: merge(self.shapes[id_], several) for id_, several in tables.items()}
        readings = [reading for parcel in self.final.values() for reading in parcel.readings]
        return blocks, Reading.merge([Reading("web"), *readings])

    def expected(self) -> tuple[dict[str, pa.Table], Reading]:
        """The same of one reading from the start to the end."""
        stream = self.settings.local(self.plan.stream)
        batch = Tail(stream, False).next_batch(NOW, True)
        (lane,) = batch.lanes
        blocks, reading = read_lane(lane, stream, self.plan.recipes, self.plan.slack_us)
        return {id_: merge(self.shapes[id_], [block]) for id_, block in blocks.items()}, reading


def rows(blocks: dict[str, pa.Table]) -> dict[str, list[str]]:
    return {id_: sorted(map(repr, table.to_pylist())) for id_, table in blocks.items()}


def told(reading: Reading) -> tuple[object, ...]:
    tallies = sorted(added_up(reading.tallies), key=repr)
    without = [tally._replace(reached=0) for tally in tallies]
    return without, reading.records, reading.bad, reading.first, reading.reached


times = st.floats(0, 120).map(lambda t: round(t, 1))
records = st.lists(st.tuples(times, st.sampled_from("ab"), st.integers(0, 5)), max_size=8)
Happening = Callable[[Beside], None]
happenings = st.one_of(
    st.builds(lambda some, torn: lambda beside: beside.write(some, torn), records, st.booleans()),
    st.sampled_from([0.1, 2.0]).map(lambda seconds: lambda beside: beside.turn(seconds)),
    times.map(lambda t: lambda beside: beside.reader.flush({POSITION: int(t * SECOND)})),
    st.integers(0, 2).map(lambda most: lambda beside: beside.commit(most)),
    st.just(Beside.start),
)


@examples(60)
@given(st.lists(happenings, max_size=25), st.sampled_from([0, 1 << 20]))
def test_every_record_is_in_one_delivery(happen: list[Happening], most_open: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        beside = Beside(Path(folder), most_open=most_open)
        for happening in happen:
            happening(beside)
        beside.finish()
        blocks, reading = beside.shipped()
        wanted, expected = beside.expected()
        assert rows(blocks) == rows(wanted)
        assert told(reading) == told(expected)


def test_panes_leave_when_they_are_over(tmp_path: Path) -> None:
    beside = Beside(tmp_path)
    beside.program = sql(JOBS)
    beside.write([(4.0, "a", 3), (7.9, "a", 3)])
    beside.turn()
    assert beside.desk.last == 1  # sessions have no panes to wait for
    beside.commit()
    (parcel,) = beside.final.values()
    sums = beside.program.jobs["sums"].shape.id
    assert sums not in parcel.blocks  # the first pane is over at 5 seconds and 3 of slack
    beside.write([(8.1, "a", 3)])
    beside.turn()
    beside.commit()
    assert Block.decode(beside.final[2].blocks[sums], "b").table()["pane"].to_pylist() == [0]
    assert not beside.reader.standing.seen_at  # a pane is open
    beside.turn(2.0)
    beside.turn(2.0)
    assert beside.reader.standing.seen_at == beside.now


def test_nothing_more_is_read_while_too_much_waits(tmp_path: Path) -> None:
    beside = Beside(tmp_path, most_waiting=1)
    beside.turn()
    beside.write([(100.0, "a", 1)])
    beside.turn()
    assert beside.reader.is_full
    assert beside.desk.last == 1
    beside.commit()
    beside.turn()
    assert beside.desk.last == 2


def test_what_is_rotated_away_while_nobody_fetches_is_lost(tmp_path: Path) -> None:
    """With the pipeline away nothing piles up; what the logs do not have any more is told."""
    beside = Beside(tmp_path, most_waiting=1)
    for second in range(1, 60):
        beside.write([(float(second), "a", 1)] * 50)
        beside.turn()
    held = beside.desk.waiting_bytes
    assert held < 10_000
    (tmp_path / "a.log").unlink()  # as a rotation does that keeps no copy
    beside.write([(float(second), "a", 1) for second in range(60, 70)])
    beside.turn()
    assert beside.desk.waiting_bytes == held
    for _ in range(3):
        beside.commit()
        beside.turn(2.0)
    beside.finish()
    _, reading = beside.shipped()
    assert any("a.log" in loss.file for loss in reading.lost)
    assert reading.reached[POSITION] == 69 * SECOND  # and it goes on


def test_other_jobs_begin_with_the_next_pane(tmp_path: Path) -> None:
    """What was read before is not read again for them, so the pane at hand is lost."""
    beside = Beside(tmp_path)
    beside.turn()
    other = sql(JOBS.split("CREATE JOB visits")[0].replace("n > 2", "n > 3"))
    catalog = Catalog.of(other.streams["logs"], other.jobs.values())
    beside.plan = Plan(catalog.stream, catalog.recipes, catalog.stream.slack_us)
    beside.reader.install(beside.plan)
    beside.shapes = catalog.shapes | beside.shapes
    beside.write([(1.0, "a", 4), (40.0, "a", 1), (65.0, "a", 4), (70.0, "a", 1)])
    beside.turn()
    beside.finish()
    blocks, reading = beside.shipped()
    long = other.jobs["long"].shape.id
    (lost,) = reading.unmade
    assert (lost.shape, lost.state, lost.upper) == (long, State.LOST, 60 * SECOND)
    assert blocks[long]["pane"].to_pylist() == [1]


def test_open_panes_of_jobs_that_went_meanwhile_are_dropped(tmp_path: Path) -> None:
    """An agent was killed, and comes back when its pipeline has other jobs."""
    beside = Beside(tmp_path)
    beside.write([(4.0, "a", 3), (7.9, "a", 3)])
    beside.turn()
    beside.commit()
    long = beside.program.jobs["long"].shape.id
    others = [job for name, job in beside.program.jobs.items() if name != "long"]
    catalog = Catalog.of(beside.program.streams["logs"], others)
    beside.plan = Plan(catalog.stream, catalog.recipes, catalog.stream.slack_us)
    beside.start()
    beside.finish()
    blocks, _ = beside.shipped()
    wanted, _ = beside.expected()
    assert long not in blocks
    assert rows(blocks) == rows(wanted)


@pytest.mark.parametrize(("before", "now"), [(10, 5), (5, 10), (10, 4), (10, 10)])
def test_open_panes_move_to_others(tmp_path: Path, before: int, now: int) -> None:
    """An agent was killed, and comes back when its pipeline has smaller panes, or larger ones."""
    stream = JOBS.split("CREATE JOB")[0]
    count = "CREATE JOB sums AS SELECT k, count(*) AS c FROM logs GROUP BY k WINDOW 20 SECONDS"
    beside = Beside(tmp_path, sql(f"{stream} {count} PANE {before} SECONDS;"))
    beside.write([(i / 2, "ab"[i % 2], i) for i in range(50)])
    beside.turn()
    beside.commit()
    program = sql(f"{stream} {count} PANE {now} SECONDS;")
    catalog = Catalog.of(program.streams["logs"], program.jobs.values())
    beside.plan = Plan(catalog.stream, catalog.recipes, catalog.stream.slack_us)
    beside.shapes = catalog.shapes
    beside.start()
    beside.write([(25 + i / 2, "ab"[i % 2], i) for i in range(50)])
    beside.finish()
    (shape,) = catalog.shapes.values()
    counts: Counter[int] = Counter()
    tallied: Counter[int] = Counter()
    for parcel in beside.final.values():
        for data in parcel.blocks.values():
            block = Block.decode(data, "b").table(shape.pane)
            for pane, c in zip(block["pane"].to_pylist(), block["c0"].to_pylist(), strict=True):
                counts[pane * shape.pane // (20 * SECOND)] += c
        for reading in readings(catalog.shapes, [parcel]):
            for tally in reading.tallies:
                tallied[tally.pane * tally.size // (20 * SECOND)] += tally.records
    assert counts == tallied
    assert [counts[window] for window in (0, 1, 2, 3)] == [41, 40, 20, 0]


def test_open_panes_that_take_too_much_memory_go_to_disk(tmp_path: Path) -> None:
    beside = Beside(tmp_path, most_open=20_000)
    beside.write([(1.0 + i / 10_000, f"key {i}", 3) for i in range(5000)])
    beside.turn()
    beside.commit()
    assert list((tmp_path / "open").iterdir())
    beside.finish()
    blocks, _ = beside.shipped()
    wanted, _ = beside.expected()
    assert rows(blocks) == rows(wanted)
    assert not list((tmp_path / "open").iterdir())


def test_a_reader_that_is_closed_leaves_no_file(tmp_path: Path) -> None:
    beside = Beside(tmp_path, most_open=0)
    beside.turn()
    assert list((tmp_path / "open").iterdir())
    beside.reader.close()
    assert not list((tmp_path / "open").iterdir())


def test_what_a_job_fails_on_travels_with_the_reading(tmp_path: Path) -> None:
    text = JOBS + "CREATE JOB odd AS SELECT sum(10 // n) AS n FROM logs WINDOW 1 SECOND;"
    beside = Beside(tmp_path, sql(text))
    beside.write([(1.0, "a", 0), (60.0, "a", 1)])
    beside.turn()
    beside.turn(10.0)
    beside.commit()
    faults = [f for p in beside.final.values() for r in p.readings for f in r.faults]
    assert [(fault.job, fault.method, fault.given) for fault in faults] == [
        ("odd", '10 // "n"', f"n = 0 ({tmp_path}/a.log, line 2)")
    ]


def test_what_nobody_needs_any_more_is_dropped_at_once(tmp_path: Path) -> None:
    beside = Beside(tmp_path)
    beside.write([(4.0, "a", 3), (7.9, "a", 3)])
    beside.turn()
    sums, long = (beside.program.jobs[job].shape.id for job in ("sums", "long"))
    beside.reader.let_go({sums: Departed(needs=5 * SECOND), long: Departed(needs=0)})
    beside.finish()
    blocks, _ = beside.shipped()
    assert blocks[sums]["pane"].to_pylist()[0] == 1
    assert blocks[long]["pane"].to_pylist()[0] == 0


def test_where_a_shape_begins_is_forgotten_once_nobody_needs_what_is_before(tmp_path: Path) -> None:
    beside = Beside(tmp_path)
    beside.turn()
    beside.commit()
    sums, long = (beside.program.jobs[job].shape.id for job in ("sums", "long"))
    beside.start(SafePoint(beside.desk.last, begins={sums: 20 * SECOND, long: 60 * SECOND}))
    beside.reader.let_go({sums: Departed(needs=15 * SECOND), long: Departed()})
    assert begins(beside, 25.0) == {sums: 20 * SECOND, long: 60 * SECOND}
    beside.reader.let_go({sums: Departed(needs=20 * SECOND), long: Departed(needs=0)})
    assert begins(beside, 75.0) == {long: 60 * SECOND}
    others = [job for name, job in beside.program.jobs.items() if name != "long"]
    catalog = Catalog.of(beside.program.streams["logs"], others)
    beside.reader.install(Plan(catalog.stream, catalog.recipes, catalog.stream.slack_us))
    assert begins(beside, 95.0) == {}


def begins(beside: Beside, at: float) -> dict[str, int]:
    """Where shapes begin, by the safe point of the next delivery."""
    beside.write([(at, "a", 3), (at + 20, "a", 3)])
    beside.turn()
    point = SafeLog(beside.folder / "logs.safe").after(beside.desk.last)
    assert point is not None
    return dict(point.begins)


BOUNDED = """
CREATE STREAM logs (t DOUBLE, k VARCHAR, n BIGINT) FROM 'x' FORMAT json TIMESTAMP t SLACK 0 SECONDS;
CREATE JOB sums AS SELECT k, sum(n) AS n FROM logs GROUP BY k WINDOW 10 SECONDS WITHIN 5 SECONDS;
CREATE JOB patient AS SELECT count(*) AS c FROM logs WHERE n > 2 WINDOW 10 SECONDS;
"""


def behind(folder: Path, text: str) -> Beside:
    """A reader that has a hundred seconds to catch up on, and takes a second for five of them."""
    beside = Beside(folder, sql(text))
    recipes = tuple(
        replace(
            recipe,
            useful=None
            if "patient" in recipe.jobs
            else tuple(Use(spec, 5 * SECOND) for spec in recipe.windows),
        )
        for recipe in beside.plan.recipes
    )
    beside.plan = replace(beside.plan, recipes=recipes)
    beside.start()
    beside.write([(NOW + i / 100, "ab"[i % 2], 3) for i in range(10_000)])
    beside.now = NOW + 100
    while beside.reader.standing.unread:
        beside.turn(1.0)
        beside.commit()
    beside.write([(NOW + 150, "a", 3)] * 4)
    for _ in range(3):
        beside.turn(2.0)
        beside.commit()
    return beside


def test_panes_that_would_come_too_late_are_shed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("muntin.agent.reader.TURN_BYTES", 20_000)
    monkeypatch.setattr("muntin.logs.index.STRIDES", (500, 500))
    beside = behind(tmp_path, BOUNDED.split("CREATE JOB patient")[0])
    blocks, reading = beside.shipped()
    ((id_, rows),) = blocks.items()
    first, ninety = int(NOW) // 10, int(NOW) // 10 + 9
    assert rows.filter(pc.field("pane") >= ninety)["c0"].to_pylist()[:2] == [500, 500]
    shed = [each for each in reading.unmade if each.lower >= first * 10 * SECOND]
    assert [each.gap(10 * SECOND) for each in shed] == [Gap(first, ninety, State.SHED)]
    assert {each.shape for each in shed} == {id_}
    assert reading.records < 2500  # of ten thousand: what is shed is not read
    assert beside.now < NOW + 115


def test_nobody_waits_longer_because_of_what_is_shed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job without a bound gets all of its panes, whatever is shed of others."""
    monkeypatch.setattr("muntin.agent.reader.TURN_BYTES", 20_000)
    beside = behind(tmp_path, BOUNDED)
    blocks, reading = beside.shipped()
    patient = beside.program.jobs["patient"].shape.id
    panes = [int(NOW) // 10 + i for i in range(10)]
    counts = dict(zip(*(blocks[patient][c].to_pylist() for c in ("pane", "c0")), strict=True))
    assert [counts[pane] for pane in panes] == [1000] * 10
    assert reading.unmade
    assert all(each.shape != patient for each in reading.unmade)


def test_without_a_safe_point_nothing_is_counted_twice(tmp_path: Path) -> None:
    """Of the pane at hand some was counted, so it is lost; then all is as it would be."""
    beside = Beside(tmp_path)
    beside.write([(float(t), "a", 3) for t in range(1, 30)])
    beside.turn()
    beside.commit()
    _, before = beside.shipped()
    point = restarted("web", beside.plan, beside.desk.last, before.reached)
    (tmp_path / "logs.safe").unlink()
    beside.start(point)
    beside.write([(float(t), "a", 3) for t in range(30, 80)])
    beside.finish()
    blocks, reading = beside.shipped()
    wanted, expected = beside.expected()
    ids = {job: beside.program.jobs[job].shape.id for job in beside.program.jobs}
    lost = {each.shape: (each.lower, each.upper) for each in reading.unmade}
    assert {each.state for each in reading.unmade} == {State.LOST}
    assert lost[ids["sums"]] == (26 * SECOND, 30 * SECOND)
    assert lost[ids["long"]] == (26 * SECOND, 60 * SECOND)
    for job, size in (("sums", 5), ("long", 60)):
        lower, upper = (at // SECOND for at in lost[ids[job]])
        whole = (pc.field("pane") < lower // size) | (pc.field("pane") >= upper // size)
        assert blocks[ids[job]].filter(whole).equals(wanted[ids[job]].filter(whole))
    tallies = {t.pane: t.records for t in expected.tallies if t.size == 5 * SECOND}
    found = {t.pane: t.records for t in reading.tallies if t.size == 5 * SECOND}
    assert {p: n for p, n in found.items() if p != 5} == {
        p: n for p, n in tallies.items() if p != 5
    }


def test_blocks_tell_of_how_many_records_they_are_made(tmp_path: Path) -> None:
    beside = Beside(tmp_path)
    beside.write([(i / 10, "a", 3) for i in range(100)])
    beside.turn()
    beside.commit()
    beside.write([(10 + i / 10, "a", 3) for i in range(50)])
    beside.turn()
    beside.commit()
    told = [
        {Block.decode(data, "b").records for data in parcel.blocks.values()}
        for parcel in beside.final.values()
    ]
    assert told == [{101}, {50}]


class Deaf:
    """Events of a file system that tells nothing."""

    def watch(self, folders: object) -> None:
        pass

    def changed(self) -> set[str]:
        return set()

    def close(self) -> None:
        pass


def test_that_all_was_read_is_said_after_a_look_at_all_files_only(tmp_path: Path) -> None:
    """No event tells that somebody writes."""
    beside = Beside(tmp_path, events=Deaf())
    for _ in range(3):
        beside.turn(1.5)
    said = beside.reader.standing.seen_at
    assert said == beside.now
    beside.write([(100.0, "a", 1)])
    beside.turn(0.1)
    assert beside.reader.standing.seen_at == said  # it has not looked
    beside.turn(1.0)
    assert beside.reader.standing.seen_at == said  # it is read now
    beside.turn(1.5)
    assert beside.reader.standing.seen_at == beside.now
    beside.commit()
    assert beside.shipped()[1].records == 2


def test_a_safe_point_takes_what_has_changed_and_not_all_that_is_open(tmp_path: Path) -> None:
    """A pane of an hour with many keys is open, and another leaves every second."""
    text = """
    CREATE STREAM logs (t DOUBLE, k VARCHAR, n BIGINT) FROM 'x' FORMAT json TIMESTAMP t
    SLACK 0 SECONDS;
    CREATE JOB hours AS SELECT k, count(*) AS c FROM logs GROUP BY k WINDOW 1 HOUR;
    CREATE JOB seconds AS SELECT count(*) AS c FROM logs WHERE n = 7 WINDOW 1 SECOND;
    """
    beside = Beside(tmp_path, sql(text))
    log = tmp_path / "logs.safe"
    beside.write([(1.0, f"key {i}", 1) for i in range(20_000)])
    beside.write([(2.0, "key 1", 7)])
    beside.turn()
    beside.commit()
    beside.write([(3.1, "key 1", 7)])
    beside.turn()
    beside.commit()
    whole, grown = log.stat().st_size, []
    for second in range(4, 40):
        before = log.stat().st_size
        beside.write([(second + 0.1, f"key {i}", 7) for i in range(50)])
        beside.turn()
        beside.commit()
        grown.append(log.stat().st_size - before)
    assert whole > 100_000
    assert max(grown) < whole / 10
    beside.start()  # killed
    beside.finish()
    blocks, reading = beside.shipped()
    wanted, expected = beside.expected()
    assert rows(blocks) == rows(wanted)
    assert told(reading) == told(expected)


def test_turns_are_short_where_reading_is_slow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By what a byte took lately, a turn takes a tenth of a second; some is always read."""
    beside = Beside(tmp_path)
    (tmp_path / "a.log").write_bytes((b"x" * 1023 + b"\n") * (200 << 10))
    clock = Mock(perf_counter=Mock(return_value=0.0))
    sizes: list[int] = []

    def turns(number: int, seconds_a_byte: float) -> int:
        """How much is read in the last of some turns."""

        def deliver(task: LaneTask, recipes: object) -> list[Delivery]:
            sizes.append(sum(order.end - order.start for lane in task.lanes for order in lane))
            clock.perf_counter.return_value += sizes[-1] * seconds_a_byte
            return []

        monkeypatch.setattr(LaneTask, "deliver", deliver)
        for _ in range(number):
            beside.turn()
        return sizes[-1]

    monkeypatch.setattr("muntin.agent.reader.time", clock)
    assert 7 << 20 < turns(12, 1e-8) <= 10 << 20  # a tenth of a second at 100 MB/s is 10 MB
    assert 2 << 20 < turns(12, 4e-8) <= 3 << 20
    assert turns(12, 1e-5) <= 1 << 20


def test_what_no_job_wants_is_told_to_have_been_read(tmp_path: Path) -> None:
    """Somebody writes all the time, and nothing of it passes the filter."""
    text = JOBS.split("CREATE JOB sums")[0]
    text += "CREATE JOB rare AS SELECT count(*) AS c FROM logs WHERE n > 100 WINDOW 5 SECONDS;"
    beside = Beside(tmp_path, sql(text))
    for second in range(1, 30):
        beside.write([(float(second), "a", 1)])
        beside.turn()
        beside.commit()
    blocks, reading = beside.shipped()
    assert not blocks
    assert reading.reached[POSITION] >= 23 * SECOND


def test_a_trickle_is_read_when_a_pane_has_ended(tmp_path: Path) -> None:
    stream, *_ = JOBS.strip().splitlines()
    job = "CREATE JOB j AS SELECT count(*) AS c FROM logs WINDOW 1 SECOND;"
    beside = Beside(tmp_path, sql(f"{stream}{job}"), now=10.0)
    assert beside.reader.rest(10.0) == 0.0  # nobody has looked yet
    beside.write([(11.25, "a", 1)])
    beside.turn(4.5)  # with 3 seconds of slack the pane up to 11 was over half a second ago
    assert beside.reader.rest(14.5) == POLL_SECONDS  # a record behind 14 tells that
    beside.write([(14.25, "a", 1)])
    beside.turn(0.1)
    assert 0.4 < beside.reader.rest(14.6) < 0.45
    assert beside.reader.rest(14.95) < 0.1
    assert beside.reader.rest(16.0) == 0.25  # silent


def test_that_all_was_read_is_not_said_amid_a_line(tmp_path: Path) -> None:
    """Seed 18-0: a server fell silent in the middle of a line, and its second counted as whole."""
    beside = Beside(tmp_path)
    log = tmp_path / "a.log"
    with log.open("a") as file:
        file.write('{"t": 1.0, "k"')
    os.utime(log, (beside.now, beside.now))
    for _ in range(3):
        beside.turn(1.5)
    assert beside.reader.standing.seen_at is None
    for _ in range(3):
        beside.turn(30.0)
    assert beside.reader.standing.seen_at == beside.now  # nobody will ever end it
