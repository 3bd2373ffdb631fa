"""Panes that are kept are kept once: whoever is killed while they move, wherever they are."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import muntin as mt
from muntin.ask.answering import Asking
from muntin.store import objects
from tests.ask.keeping import Kept
from tests.ask.test_answering import (
    BEGIN,
    HOUR,
    JOB,
    STREAM,
    Rows,
    expected,
    records,
    rows_of,
    write,
)
from tests.store.s3 import KEYS, make_bucket, s3_port, shaky

__all__ = ["s3_port"]

COUNTED = "SELECT product, clicks, total, kinds FROM hot GROUP BY product ORDER BY 1"
TRUTH = """SELECT product, count(*), sum(n), count(DISTINCT n) FROM raw WHERE n > 0
GROUP BY 1 ORDER BY 1"""


def killed(program: Path, state: Path, number: int) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.ask.dying", str(program), str(state), "4", str(number)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)


def test_a_kill_while_panes_move_leaves_each_in_one_place(tmp_path: Path) -> None:
    found = [records(5, 120)]
    write(tmp_path, found[0])
    text, file = STREAM.format(folder=tmp_path, more="") + JOB, tmp_path / "program.sql"
    file.write_text(text)
    whole = killed(file, tmp_path / "first", 1 << 30)
    assert whole.returncode == 0, whole.stderr
    moments = int(whole.stdout)
    assert moments > 4
    shutil.rmtree(tmp_path / "first")
    moved = 0
    for number in {1, 2, 3, moments // 2, moments - 1, moments}:
        state = tmp_path / f"state{number}"
        assert killed(file, state, number).returncode == -signal.SIGKILL
        asking = Asking(state)
        retained = asking._keeping.jobs()["hot"][0]
        moved += bool(retained.panes.files)
        # What is committed is answered as it was before, from blocks or from files.
        so_far = asking.ask("SELECT count(*) FROM hot")
        assert 0 < so_far.rows.column(0)[0].as_py() < 240
        for _ in range(2):
            Kept(mt.sql(text), state, batch_bytes=2_000).finish(2)
            answer = asking.ask(COUNTED)
            assert rows_of(answer) == expected(found, TRUTH)
            assert answer.c2.area == 1.0
        assert not asking._keeping.jobs()["hot"][0].panes.strays()
    assert moved  # by some of these moments, and not by others
    assert moved < 6


def test_panes_that_move_in_a_rest_are_named_by_the_next_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("muntin.store.journal._WORTH_A_REST", 0)
    found = [records(5, 120)]
    write(tmp_path, found[0])
    text = STREAM.format(folder=tmp_path, more="") + JOB
    state = tmp_path / "state"
    for rests in (1, 2, 3):  # a run that ends between both changes nothing
        run = Kept(mt.sql(text), state, batch_bytes=2_000)
        for _ in range(rests):
            run.turn()
            named = Asking(state)._keeping.jobs()["hot"][0].panes
            run.loop.tidy(1e9)
            after = Asking(state)._keeping.jobs()["hot"][0].panes
            assert (after.files, after.moved) == (named.files, named.moved)
    assert after.strays()  # which the last rest has written
    assert after.files  # and an earlier one, before a commit
    Kept(mt.sql(text), state, batch_bytes=2_000).finish(1)
    answer = Asking(state).ask(COUNTED)
    assert rows_of(answer) == expected(found, TRUTH)
    assert answer.c2.area == 1.0
    assert not Asking(state)._keeping.jobs()["hot"][0].panes.strays()


@pytest.fixture
def url(s3_port: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A state on a storage that fails now and then, and loses answers."""
    bucket = f"ask-{os.getpid()}-{time.monotonic_ns()}"
    make_bucket(s3_port, bucket)
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    with shaky(s3_port, seed=7, fails=0.03, slow=0.0) as port:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
        objects._opened.cache_clear()
        yield f"s3://{bucket}/state"
    objects._opened.cache_clear()


def test_a_state_under_a_url_is_asked_restarted_and_tidied(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("muntin.store.panes._MANY", 3)
    text = STREAM.format(folder=tmp_path, more="") + JOB.replace("7 DAYS", "4 HOURS")
    found: list[Rows] = []
    asking = Asking(url)
    for part in range(5):
        found.append(records(20 + part, 40, BEGIN + part * 3 * HOUR // 2))
        write(tmp_path, found[-1])
        Kept(mt.sql(text), url, batch_bytes=3_000).finish(1)
        answer = asking.ask(COUNTED)
        (only,) = answer.ranges
        inside = f"n > 0 AND t >= {only.start // 10**6}"
        assert rows_of(answer) == expected(found, TRUTH.replace("n > 0", inside))
        kept = asking._keeping.jobs()["hot"][0].panes
        assert not kept.strays()
    assert 1 <= len(kept.files) <= 3  # small ones became larger ones
    assert only.start // 10**6 >= BEGIN + HOUR  # and old ones have gone
    assert all(file.upper > only.start for file in kept.files.values())
