"""What is typed at `muntin sql`."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import pytest

from muntin.control.client import connect
from muntin.errors import InputError, LanguageError
from muntin.show.shell import Shell, is_whole
from tests.control.running import Running, running
from tests.waiting import wait_for


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("shell")) as program:
        program.write(1, 2, 3, 4)
        wait_for(lambda: len(program.results("sums")) == 3)
        yield program


def said(here: Running, text: str) -> str:
    out = StringIO()
    Shell(lambda: connect(here.state), here.state, out).do(text)
    return out.getvalue()


def test_orders_and_questions_in_one_text(here: Running) -> None:
    text = """
    CREATE JOB peaks AS SELECT max(n) AS n FROM clicks WINDOW 1 SECOND; PAUSE JOB peaks;
    SELECT product, sum(n) AS total, count(*) AS windows FROM sums GROUP BY ALL;
    SHOW JOBS; DROP JOB peaks; help; exit; DROP JOB sums
    """
    told = said(here, text)
    assert "job 'peaks' is created, version 1" in told
    assert "job 'peaks' is paused, version 1" in told
    assert "│ pen     │     6 │       3 │" in told
    assert "paused" in told
    assert "job 'peaks' is dropped" in told
    assert "leaves, and the program goes on" in told
    assert [job.job for job in connect(here.state).jobs()] == ["sums"]


def test_everything_of_a_job_is_told(here: Running) -> None:
    told = said(here, "SELECT * FROM Sums ORDER BY window_end DESC LIMIT 1")
    assert "2026-03-01T12:00:03Z" in told
    assert "100 %" in told
    assert "…" not in told


def test_mistakes_are_told_at_their_place(here: Running) -> None:
    with pytest.raises(LanguageError) as caught:
        said(here, "SELECT 1;\n\n  PAUSE JOB nope")
    assert (caught.value.line, caught.value.column) == (3, 13)
    with pytest.raises(LanguageError, match=r"line 2"):
        said(here, "PAUSE JOB sums;\nPAUSE JOB nope")
    assert not connect(here.state).job("sums").paused
    for text, message in {
        "SELECT * FROM sun": "there are no results of a job 'sun'; known are sums",
        "SELECT m FROM sums": "there is no column 'm'",
        "SELECT": "this is not complete",
    }.items():
        with pytest.raises(LanguageError, match=message):
            said(here, text)


def test_an_unknown_statement_stops_the_orders_before_it(here: Running) -> None:
    with pytest.raises(LanguageError, match="unknown statement 'PAUS'; did you mean PAUSE"):
        said(here, "PAUSE JOB sums; PAUS JOB sums")
    assert not connect(here.state).job("sums").paused


def test_streams_are_shown(here: Running) -> None:
    assert "│ clicks │ ts, product, n │" in said(here, "show streams")


def test_results_of_elsewhere_are_not_asked_here(here: Running) -> None:
    shell = Shell(lambda: connect(here.address.url), None, StringIO())
    with pytest.raises(InputError, match="SELECT reads the results in a state folder"):
        shell.do("SELECT * FROM sums")


def test_words_are_completed(here: Running) -> None:
    shell = Shell(lambda: connect(here.state), here.state, StringIO())
    assert shell._completions("su") == ["sums"]
    assert shell._completions("PRO") == ["product"]
    assert shell._completions("cl") == ["clicks"]
    assert shell._completions("pau") == ["PAUSE JOB"]


def test_a_statement_is_whole_at_its_semicolon() -> None:
    assert is_whole("PAUSE JOB x;")
    assert is_whole("")
    for text in ("PAUSE JOB x", "SELECT ';", "SELECT 1 -- ;", "SELECT 1 /* ;"):
        assert not is_whole(text), text


def test_somebody_types(here: Running, tmp_path: Path) -> None:
    """On a terminal: several lines are one statement, a mistake ends nothing, and there is a
    history.
    """
    ours, theirs = pty.openpty()
    environment = os.environ | {"XDG_STATE_HOME": str(tmp_path), "TERM": "dumb"}
    command = [sys.executable, "-m", "muntin", "sql", "--state", str(here.state)]
    with subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, close_fds=True
    ) as shell:
        os.close(theirs)
        seen = b""

        def wait_until(text: bytes) -> None:
            nonlocal seen
            while text not in seen:
                seen += os.read(ours, 10_000)
            seen = seen.partition(text)[2]

        for line, answer in (
            (None, b"muntin> "),
            (b"PAUSE JOB nope;\n", b"unknown job 'nope'"),
            (b"SELECT product\n", b"...> "),
            (b"FROM sums LIMIT 1;\n", b"pen"),
            (b"exit\n", b"exit"),
        ):
            if line is not None:
                os.write(ours, line)
            wait_until(answer)
        assert shell.wait(60) == 0
    os.close(ours)
    assert "PAUSE JOB nope;" in (tmp_path / "muntin" / "history").read_text()
