"""A running program from Python."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from itertools import islice
from os import getpid
from pathlib import Path

import pytest

import muntin as mt
from muntin.control.access import Access
from muntin.control.address import Address, announced
from muntin.control.client import Client, connect
from muntin.errors import WireError
from tests.control.running import Running, running
from tests.waiting import wait_for

BIG = "CREATE JOB big (least DEFAULT 3) AS SELECT count(*) AS c FROM clicks WHERE n >= $least "
BIG += "WINDOW 1 SECOND"
TOKEN = "a-token-of-many-letters"


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Running]:
    with running(tmp_path) as program:
        yield program


def test_orders_and_results(here: Running) -> None:
    app = connect(here.state)
    assert app.process == getpid()
    assert [job.job for job in app.jobs()] == ["sums"]
    assert app.streams() == {"clicks": ["ts", "product", "n"]}
    (change,) = app.create(BIG)
    assert str(change).startswith("job 'big' is created, version 1")
    assert app.set("big", "least", 5)[0].does == "set"
    assert app.set_sql("big", "least", "2 + 2")[0].does == "set"
    assert app.job("big").parameters == {"least": "2 + 2"}
    assert app.pause("big", expected=1)[0].does == "paused"
    assert app.job("big").paused
    assert app.resume("big")[0].does == "resumed"
    assert app.reset("big")[0].does == "reset"
    assert app.replace("big", BIG, at="window", expected=1)[0].version == 2
    assert app.drop("big", expected=2)[0].does == "dropped"
    assert [change.does for change in app.sql(f"{BIG}; DROP JOB big")] == ["created", "dropped"]
    here.write(1, 2, 3)
    wait_for(lambda: len(app.results("sums")) == 2)
    (latest,) = app.latest("sums")
    assert latest.start == datetime(2026, 3, 1, 12, 0, 2, tzinfo=UTC)
    assert latest.rows == ({"product": "pen", "n": 2},)
    assert latest.to_pandas().to_dict("records") == [{"product": "pen", "n": 2}]
    assert latest.c2 is not None
    assert latest.c2["area"] == 1.0


def test_what_there_is_not_is_refused(here: Running) -> None:
    app = connect(here.state)
    assert app.latest("sums", "1 second") == [], "there is none yet"
    with pytest.raises(mt.InputError, match="'sums' has no window '2 hours'; there are: '1 sec"):
        app.latest("sums", "2 hours")
    with pytest.raises(mt.InputError, match=r"parameter 'least' of job 'big': .* not a object;"):
        app.set("big", "least", object())


def test_errors_are_those_of_the_program(here: Running) -> None:
    app = connect(here.state)
    wrong = "CREATE JOB big AS\nSELECT sum(m) AS s FROM clicks WINDOW 1 SECOND"
    with pytest.raises(mt.LanguageError) as caught:
        app.create(wrong)
    assert (caught.value.line, caught.value.column) == (2, 12)
    with pytest.raises(mt.ConflictError) as conflict:
        app.pause("sums", expected=4)
    assert (conflict.value.job, conflict.value.version) == ("sums", 1)
    with pytest.raises(mt.InputError, match="unknown job 'none'; known are sums"):
        app.latest("none")
    with pytest.raises(mt.InputError, match="unknown job 'none'"):
        next(app.follow("none"))


def test_a_connection_that_breaks_loses_nothing(
    here: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each connection gives one result, then it is cut."""
    app = connect(here.state)
    here.write(*range(1, 8))
    whole = Client._events

    def one(*args: object, **named: object) -> Iterator[object]:
        yield next(whole(*args, **named))  # type: ignore[arg-type]

    monkeypatch.setattr(Client, "_events", one)
    found = list(islice(app.follow("sums", start=True), 6))
    assert [each.rows[0]["n"] for each in found] == [1, 2, 3, 4, 5, 6]
    after = app.follow("sums", after=found[3].id)
    assert [each.rows[0]["n"] for each in islice(after, 2)] == [5, 6]


def test_followers_end_with_the_program(tmp_path: Path) -> None:
    with running(tmp_path) as program:
        app = connect(program.state)
        program.write(1, 2, 3)
        follow = app.follow("sums", start=True)
        first = next(follow)
        wait_for(lambda: len(program.results("sums")) == 2)
    assert [each.rows[0]["n"] for each in (first, *follow)] == [1, 2]
    with pytest.raises(WireError, match=r"has gone, and nothing runs on the state folder"):
        app.jobs()


def test_tokens(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(TOKEN)
    with running(tmp_path, Access(token=TOKEN, file=file)) as program:
        assert connect(program.state).jobs()
        assert connect(program.address.url, TOKEN).jobs()
        with pytest.raises(mt.InputError, match="a token is asked"):
            connect(program.address.url)
        with pytest.raises(mt.InputError, match="the token is another one"):
            connect(program.state, "another")


def test_who_is_not_there_is_told(tmp_path: Path, here: Running) -> None:
    with pytest.raises(mt.InputError, match="no program that takes orders runs on the state"):
        connect(tmp_path)
    with pytest.raises(mt.InputError, match="'http://' is no address"):
        connect("http://")
    unused = replace(here.address, port=1)
    with pytest.raises(WireError, match="does not answer: Connection refused; see whether"):
        connect(unused.url)


class _Another(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def test_another_service_at_that_address_is_recognised(tmp_path: Path) -> None:
    with http.server.HTTPServer(("127.0.0.1", 0), _Another) as other:
        thread = threading.Thread(target=other.serve_forever)
        thread.start()
        try:
            address = Address("127.0.0.1", other.server_port, getpid())
            with announced(tmp_path, address), pytest.raises(WireError, match="something else is"):
                connect(tmp_path)
            with pytest.raises(WireError, match="is no service of Muntin's"):
                connect(address.url)
        finally:
            other.shutdown()
            thread.join()
