"""Orders come in by one door: taken as a whole between two turns, or refused."""

from __future__ import annotations

from pathlib import Path
from threading import Event, Thread
from time import monotonic

import pytest

from muntin.errors import ConflictError, LanguageError, OrderError
from muntin.run.door import Door
from muntin.run.kept import program_of
from muntin.run.steward import Steward
from tests.run.test_succession import Deployment, text
from tests.waiting import wait_for

TEN = "10 SECONDS"


@pytest.fixture
def run(tmp_path: Path) -> Deployment:
    deployment = Deployment(tmp_path, "CREATE " + text(3, "count(*)", TEN))
    deployment.write(("a", 101, "x", 5), ("b", 102, "x", 5))
    deployment.turn()
    return deployment


@pytest.mark.parametrize(
    ("order", "message"),
    [
        ("garbage", "expected CREATE STREAM"),
        ("", "nothing is asked here"),
        ("PAUSE JOB jj", "unknown job 'jj'; did you mean j?"),
        ("RESUME JOB j", "job 'j' is not paused"),
        ("CREATE " + text(3, "count(*)", TEN), "there is already a job named 'j' (version 1)"),
        ("SET j.lest = 5", "job 'j' has no parameter 'lest'; did you mean least?"),
        ("SET j.least = n", "a parameter's value is a constant"),
        (
            "CREATE OR REPLACE " + text(3, "sum(n)", TEN) + " AT NEXT PANE",
            "it has other aggregates",
        ),
        (
            "CREATE OR REPLACE " + text(3, "count(*)", "20 SECONDS") + " AT NEXT PANE",
            "its windows differ; so far they are 10 seconds",
        ),
        ("CREATE " + text(1, "count(*)", TEN, "k") + " AT NEXT PANE", "CREATE OR REPLACE JOB"),
        # What comes before the mistake is not done either.
        (f"DROP JOB j; CREATE {text(1, 'count(*)', TEN, 'k')}; DROP JOB l", "unknown job 'l'"),
    ],
)
def test_a_text_that_is_refused_changes_nothing(run: Deployment, order: str, message: str) -> None:
    before = run.loop.catalog
    with pytest.raises(LanguageError) as raised:
        run.door.bring(order)
    assert message in str(raised.value)
    run.turn()
    assert run.loop.catalog is before


def test_a_version_that_is_another_one_is_a_conflict(run: Deployment) -> None:
    run.door.bring("PAUSE JOB J; RESUME JOB j", expected={"j": 1})
    with pytest.raises(ConflictError, match="version 3 was expected, but it is at version 1"):
        run.door.bring("DROP JOB j", expected={"j": 3})
    with pytest.raises(ConflictError, match="no such job was expected, but it is at version 1"):
        run.door.bring("DROP JOB j", expected={"J": 0})
    with pytest.raises(ConflictError, match="version 2 was expected, but there is none"):
        run.door.bring("DROP JOB j", expected={"k": 2})


def test_orders_of_one_text_follow_each_other(run: Deployment) -> None:
    replaced, paused = run.order(f"CREATE OR REPLACE {text(1, 'sum(n)', TEN)}; PAUSE JOB j").effects
    assert (replaced.does, replaced.version, replaced.position) == ("replaced", 2, 110_000_000)
    assert (paused.does, paused.version) == ("paused", 2)
    (resumed,) = run.order("RESUME JOB j").effects
    assert (resumed.does, resumed.version, resumed.position) == ("resumed", 2, 110_000_000)


def test_an_order_that_nobody_takes_is_withdrawn(run: Deployment) -> None:
    with pytest.raises(OrderError, match="has not taken the order within"):
        run.door.submit("DROP JOB j", seconds=0.01)
    run.order("PAUSE JOB j")
    assert not run.loop.catalog.jobs.get("j")
    assert "j" in run.loop.catalog.paused


def test_whoever_waits_is_told_that_the_program_stops(run: Deployment) -> None:
    visit = run.door.bring("DROP JOB j")
    run.door.close()
    with pytest.raises(OrderError, match="the program has stopped"):
        visit.reply(0)
    with pytest.raises(OrderError, match="has stopped, and takes no orders"):
        run.door.submit("DROP JOB j")
    with pytest.raises(OrderError, match="has not begun yet"):
        Door().submit("DROP JOB j")


def test_many_writers_are_taken_one_after_another(run: Deployment) -> None:
    orders = [f"CREATE {text(n, 'count(*)', TEN, f'k{n}')}" for n in range(8)]
    writers = [Thread(target=run.door.submit, args=(order,)) for order in orders]
    for writer in writers:
        writer.start()
    names = {f"k{n}" for n in range(8)}
    steward = Steward(run)

    def are_taken() -> bool:
        run.door.serve(steward.check, steward.do)
        return names <= run.loop.catalog.jobs.keys()

    wait_for(are_taken)
    for writer in writers:
        writer.join()


def test_an_order_ends_the_rest_between_turns(run: Deployment) -> None:
    started, stop = monotonic(), Event()
    Thread(target=run.door.bring, args=("PAUSE JOB j",)).start()
    run.door.rest(30.0, stop)
    assert monotonic() - started < 10
    stop.set()
    Door().rest(30.0, stop)
    assert monotonic() - started < 20


CODE = """
class Count:
    columns = {{"k": "VARCHAR", "c": "BIGINT"}}

    def mapper(self, _, record):
        yield record["k"], {}

    def reducer(self, k, ones):
        yield k, sum(ones)
"""


def test_python_is_read_again(tmp_path: Path) -> None:
    """Windows of the old code are by the old code, though its file is another one."""
    job = "JOB j AS PYTHON 'counting_live:Count' FROM s WINDOW 10 SECONDS"
    (tmp_path / "counting_live.py").write_text(CODE.format(1))
    run = Deployment(tmp_path, "CREATE JOB other AS SELECT count(*) AS c, 'x' AS k FROM s "
                               "WINDOW 10 SECONDS")  # fmt: skip
    run.door = Door(tmp_path)
    run.door.open(*program_of(run.program, [run.loop.catalog]))
    run.order(f"CREATE {job}; DROP JOB other")
    run.write(("a", 101, "x", 5), ("b", 102, "x", 5))
    run.turn()
    (tmp_path / "counting_live.py").write_text(CODE.format(100))
    (effect,) = run.order(f"CREATE OR REPLACE {job}").effects
    assert (effect.version, effect.position) == (2, 110_000_000)
    for t in (103, 112, 125, 135, 145):
        run.write(("a", t, "x", 5), ("b", t, "x", 5))
        run.turn()
    found = {(w[1], w[2]): rows for w, (rows, _) in run.left.items()}
    assert found[1, 100] == {"x": 4}
    assert found[2, 110] == {"x": 200}
