"""Jobs that are changed while they run: every range is answered by the version of its time."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

import muntin as mt
from muntin.ask.answering import Asking
from muntin.ask.keeping import Retained
from muntin.units import describe_time
from tests.ask.keeping import Kept

BEGIN, PANE = 100_000, 10
STREAM = """CREATE STREAM s (t BIGINT, k VARCHAR, n BIGINT) FROM '{folder}/{{source}}.log'
FORMAT json TIMESTAMP t SOURCES 'a', 'b';"""


def job(name: str = "j", least: int = 0, windows: str = "20 SECONDS EVERY 10 SECONDS",
        retain: str = "RETAIN 1 DAY", more: str = "") -> str:  # fmt: skip
    return (
        f"JOB {name} (least DEFAULT {least}) AS SELECT k, count(*) AS c{more} FROM s "
        f"WHERE n >= $least GROUP BY k WINDOW {windows} {retain}"
    )


class Changing:
    """A stream that is followed, whose jobs are changed, and records that are known."""

    def __init__(self, folder: Path, jobs: str) -> None:
        self.folder, self.state = folder, folder / "state"
        self.program = mt.sql(STREAM.format(folder=folder) + jobs)
        self.records: list[tuple[str, int, str, int]] = []
        self.at = dict.fromkeys("ab", BEGIN)
        self.asking = Asking(self.state)
        self.start()

    def start(self) -> None:
        self.run = Kept(self.program, self.state, follow=True)

    def write(self, source: str, ahead: int, k: str, n: int) -> None:
        self.at[source] += ahead
        record = source, self.at[source], k, n
        self.records.append(record)
        with (self.folder / f"{source}.log").open("a") as log:
            log.write(json.dumps({"t": record[1], "k": k, "n": n}) + "\n")

    def step(self, seconds: int = PANE, sources: str = "ab") -> None:
        """Sources write on for so long, and are read."""
        for source in sources:
            for i in range(5):
                self.write(source, seconds // 5, "xy"[i % 2], i)
        self.run.turn()

    def truth(self, start: int, end: int, least: int) -> Counter[str]:
        return Counter(k for _, t, k, n in self.records if start <= t < end and n >= least)

    def ask(self, start: int, end: int, job: str = "j", version: str = "") -> mt.PastRows:
        bounds = f"'{describe_time(start * 10**6)}' AND '{describe_time(end * 10**6)}'"
        return self.asking.ask(f"SELECT k, c FROM {job} {version} BETWEEN {bounds} GROUP BY k")


def rows_of(answer: mt.PastRows) -> Counter[str]:
    return Counter({row["k"]: row["c"] for row in answer.rows.to_pylist()})


LEAST = (0, 2, 3)


def orders(rand: random.Random) -> list[str]:
    """An order that may be refused where it does not fit, and is left out then."""
    name = rand.choice("jk")
    windows = rand.choice(["20 SECONDS EVERY 10 SECONDS", "10 SECONDS", "4 SECONDS"])
    least, retain = rand.choice(LEAST), rand.choice(["RETAIN 1 DAY", "RETAIN 2 MINUTES", ""])
    text = job(name, least, windows, retain)
    return rand.choice(
        [
            [f"CREATE OR REPLACE {text}"],
            [f"CREATE OR REPLACE {job(name, least)} AT NEXT PANE"],
            [f"CREATE {text}"],
            [f"SET {name}.least = {least}"],
            [f"RESET JOB {name}"],
            [f"PAUSE JOB {name}", f"RESUME JOB {name}"],
            [f"PAUSE JOB {name}"],
            [f"RESUME JOB {name}"],
            [f"DROP JOB {name}"],
            [f"DROP JOB {name}; SET {'k' if name == 'j' else 'j'}.least = {least}"],
        ]
    )  # fmt: skip


def play(folder: Path, seed: int, moves: int = 20) -> int:
    """Random orders among records; returns how many ranges were found to be whole."""
    rand = random.Random(seed)
    other = job("k", 2, "10 SECONDS", rand.choice(["", "RETAIN 2 MINUTES"]))
    run = Changing(folder, f"CREATE {job('j')}; CREATE {other};")
    whole = 0
    for _ in range(moves):
        kind = rand.choice(["step", "step", "some", "order", "order", "restart", "whole", "ask"])
        if kind == "step":
            run.step()
        elif kind == "some":
            run.step(rand.choice([5, 10, 30]), rand.choice("ab"))
        elif kind == "restart":
            run.start()
        elif kind == "whole":
            run.run.whole()
        elif kind == "order":
            for order in orders(rand):
                try:
                    run.run.order(order)
                except mt.MuntinError:
                    continue
                if rand.random() < 0.5:
                    run.step(10, rand.choice(["a", "b", "ab"]))
        else:
            whole += check(run, rand)
    run.step(100)
    run.run.whole()
    run.step(100)
    return whole + check(run, rand)


def check(run: Changing, rand: random.Random) -> int:
    whole = 0
    for name, several in run.asking._keeping.jobs().items():
        for of in several:
            first, last = of.past.began // 10**6, of.past.until // 10**6
            for _ in range(4 if first < last else 0):
                start = rand.randrange(first, last, 1) // 20 * 20
                end = rand.choice([start + 20, start + 40, start + 80])
                try:
                    answer = run.ask(start, end, name)
                except mt.InputError as error:
                    if "changed within" in str(error) or "nothing is retained" in str(error):
                        continue
                    raise
                (only,) = answer.ranges
                rows, bounds = rows_of(answer), (only.start // 10**6, only.end // 10**6)
                possible = [run.truth(*bounds, least) for least in limits(several, only.version)]
                assert any(rows <= truth for truth in possible), (name, bounds)
                if only.c2.area == 1.0:
                    whole += 1
                    assert rows in possible, (name, only.version, bounds)
    return whole


def limits(several: Sequence[Retained], version: int) -> list[int]:
    """What the filter of a version was: several, if it was set."""
    of = (each for each in several if version in dict(each.asked.since))
    return [int(dict(each.job.edition.values)["least"]) for each in of]


@pytest.mark.parametrize("seed", range(6))
def test_random_orders(tmp_path: Path, seed: int) -> None:
    play(tmp_path, seed)


def changed(folder: Path, order: str) -> tuple[Changing, int]:
    """A job that was changed by an order after a minute, and a minute more of records."""
    run = Changing(folder, f"CREATE {job()};")
    for _ in range(6):
        run.step()
    effect = run.run.order(order)
    assert effect.position is not None
    for _ in range(6):
        run.step()
    run.run.whole()
    run.step(200)
    return run, effect.position // 10**6


@pytest.mark.parametrize("at", ["", " AT NEXT PANE"])
def test_versions_answer_for_their_time(tmp_path: Path, at: str) -> None:
    run, begins = changed(tmp_path, f"CREATE OR REPLACE {job(least=3)}{at}")
    for start, end, least, version in (
        (begins - 40, begins, 0, 1),
        (begins, begins + 40, 3, 2),
    ):
        for named in ("", f"VERSION {version}"):
            answer = run.ask(start, end, version=named)
            assert rows_of(answer) == run.truth(start, end, least)
            assert (answer.c2.area, answer.ranges[0].version) == (1.0, version)
            told = ["version 1 of job 'j'" in note for note in answer.notes]
            assert told == [True] * (version == 1)
    older = run.asking.ask("SELECT k, c FROM j VERSION 1 GROUP BY k")
    assert older.ranges[0].end >= begins * 10**6
    newer = run.asking.ask("SELECT k, c FROM j GROUP BY k")
    assert newer.ranges[0].start == begins * 10**6
    message = (
        r"changed within this range.*\(version 1 from .* to .*, version 2 from .*\).*VERSION 2"
    )
    with pytest.raises(mt.InputError, match=message):
        run.ask(begins - 20, begins + 20)
    with pytest.raises(mt.InputError, match="no panes of version 7; it has some of version 1, ver"):
        run.ask(begins - 20, begins, version="VERSION 7")
    together = run.asking.ask(
        "SELECT k, now.c AS now, before.c AS before FROM j VERSION 2 AS now "
        "JOIN j VERSION 1 AS before USING (k) ORDER BY k"
    )
    assert [each.version for each in together.ranges] == [2, 1]
    assert "version 1" in run.asking.explain("SELECT c FROM j VERSION 1 LAST 20 SECONDS")


def test_versions_that_count_the_same_are_one(tmp_path: Path) -> None:
    run, begins = changed(tmp_path, f"CREATE OR REPLACE {job(more=', count(*) + 1 AS d')}")
    answer = run.ask(begins - 40, begins + 40)
    assert rows_of(answer) == run.truth(begins - 40, begins + 40, 0)
    assert (answer.c2.area, answer.ranges[0].version) == (1.0, 2)
    first = run.asking.ask("SELECT k, c, d FROM j VERSION 1 GROUP BY k").ranges[0]
    assert (first.version, first.end // 10**6) == (1, begins)


def test_what_a_job_did_not_read_while_it_was_paused_is_not_there(tmp_path: Path) -> None:
    run = Changing(tmp_path, f"CREATE {job()};")
    run.step(60)
    run.run.order("PAUSE JOB j")
    run.step(60, "a")  # what the other one has of this time is read when the job goes on
    run.run.order("RESUME JOB j")
    for _ in range(20):
        run.step()
    run.run.whole()
    run.step()
    for start in range(BEGIN, BEGIN + 240, 20):
        try:
            answer = run.ask(start, start + 20)
        except mt.InputError:
            continue
        truth = run.truth(start, start + 20, 0)
        assert rows_of(answer) <= truth
        assert answer.c2.area < 1 or rows_of(answer) == truth, start


def test_a_job_that_was_dropped_is_asked_about_for_the_rest_of_its_time(tmp_path: Path) -> None:
    run = Changing(tmp_path, f"CREATE {job('j', retain='RETAIN 5 MINUTES')}; CREATE {job('k')};")
    for _ in range(6):
        run.step()
    run.run.order("DROP JOB j; SET k.least = 3")  # which begins new files in the same commit
    start = BEGIN + 20
    assert rows_of(run.ask(start, start + 20)) == run.truth(start, start + 20, 0)
    before = rows_of(run.asking.ask("SELECT k, c FROM j GROUP BY k"))
    run.start()
    run.run.whole()
    run.step(100)
    assert rows_of(run.asking.ask("SELECT k, c FROM j GROUP BY k")) == before
    run.step(300)
    run.step(20)
    with pytest.raises(mt.LanguageError, match="no job or stream 'j' that is retained"):
        run.asking.ask("SELECT c FROM j")


def test_jobs_that_share_panes_keep_them_as_long_as_one_of_them_says(tmp_path: Path) -> None:
    jobs = job("j", retain="RETAIN 1 MINUTE"), job("k", retain="RETAIN 10 MINUTES")
    run = Changing(tmp_path, "".join(f"CREATE {each};" for each in jobs))
    for _ in range(20):
        run.step()
    for name in "jk":
        answer = run.ask(BEGIN + 20, BEGIN + 60, name)
        assert rows_of(answer) == run.truth(BEGIN + 20, BEGIN + 60, 0)
        assert answer.c2.area == 1.0
    run.run.order("DROP JOB k")
    run.step(700)
    run.step()
    run.run.whole()
    run.step()
    (only,) = run.asking.ask("SELECT c FROM j").ranges
    assert (only.end - only.start) / 10**6 <= 100
    named = run.asking._keeping.jobs()["j"][0].panes
    assert not named.strays()
    assert all(file.upper > only.start for file in named.files.values())
