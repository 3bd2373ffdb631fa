"""A real service on loopback, and real requests to it, while a program runs."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from muntin.control.access import Access
from muntin.errors import InputError
from tests.control.running import Running, events, running, sums
from tests.waiting import wait_for

MANY = 1000


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Running]:
    with running(tmp_path) as program:
        yield program


def test_a_job_comes_and_goes_and_others_notice_nothing(here: Running) -> None:
    text = "CREATE JOB peaks AS SELECT max(n) AS n FROM clicks WINDOW 1 SECOND"
    here.write(1, 2, 3)
    wait_for(lambda: len(here.results("sums")) == 2)
    answer = here.post("/jobs", text=text)
    assert answer.status_code == 201
    (effect,) = answer.json()["effects"]
    assert (effect["does"], effect["job"], effect["version"]) == ("created", "peaks", 1)
    assert answer.headers["etag"] == '"1"'
    here.write(4, 5, 6, 7)
    wait_for(lambda: len(here.results("peaks")) >= 2)
    assert here.client.request("DELETE", "/jobs/peaks", json={}).status_code == 200
    here.write(8, 9, 10)
    wait_for(lambda: len(here.results("sums")) == 9)
    assert sums(here.results("sums")) == [(f"{n:02}", "pen", n) for n in range(1, 10)]
    assert {each["c2"]["area"] for each in here.results("sums")} == {1.0}
    assert [row["n"] for r in here.results("peaks") for row in r["rows"]] in ([4, 5, 6], [5, 6])
    assert [job["job"] for job in here.client.get("/jobs").json()["jobs"]] == ["sums"]


def test_a_program_that_stops_tells_those_who_follow(tmp_path: Path) -> None:
    with running(tmp_path) as program:
        found: list[str] = []
        begun = threading.Event()

        def follow() -> None:
            with httpx.stream("GET", f"{program.address.url}/jobs/sums/events") as stream:
                for line in stream.iter_lines():
                    begun.set()
                    found.append(line)

        thread = threading.Thread(target=follow)
        thread.start()
        assert begun.wait(60)
        program.write(1, 2)
        wait_for(lambda: any(line.startswith("data") for line in found))
    thread.join(60)
    assert not thread.is_alive()
    assert "event: end" in found
    assert sum(line.startswith("event: result") for line in found) == 1
    assert not (tmp_path / "state" / "control.json").exists()


def test_a_thousand_clients_do_not_hurt(here: Running) -> None:
    """Some are answered, others are told to come again or cut off, and results come as before."""
    sockets: list[socket.socket] = []
    where = here.address.host, here.address.port
    ask = f"GET /jobs HTTP/1.1\r\nhost: {where[0]}\r\n\r\n".encode()

    def come(_: int) -> bytes:
        try:
            one = socket.create_connection(where, 60)
            sockets.append(one)
            one.sendall(ask)
            return one.recv(12)
        except ConnectionError:
            return b""

    with ThreadPoolExecutor(50) as threads:
        answers = list(threads.map(come, range(MANY)))
        assert {answer[9:12] for answer in answers if answer} <= {b"200", b"503"}
        assert b"200" in {answer[9:12] for answer in answers}
        here.write(1, 2, 3)
        wait_for(lambda: here.feed.latest("sums") and here.feed.latest("sums")[0].position.at_us)
    for one in sockets:
        one.close()
    wait_for(lambda: here.client.get("/jobs").status_code == 200)
    wait_for(lambda: len(here.results("sums")) == 2)


CHANGED = "CREATE JOB sums AS SELECT {} FROM clicks {} WINDOW 1 SECOND"
LIKE = CHANGED.format("product, sum(n) AS n", "GROUP BY product")
BAD: list[tuple[str, str, dict[str, object], int, str]] = [
    ("PUT", "/jobs/nope", {"text": LIKE}, 404, "unknown job 'nope'"),
    ("POST", "/jobs/nope/pause", {}, 404, "unknown job 'nope'"),
    ("POST", "/sql", {"text": "DROP JOB nope"}, 400, "unknown job 'nope'"),
    ("PUT", "/jobs/sums", {"text": "CREATE JOB sums AS SELEC"}, 400, "line 1"),
    ("PUT", "/jobs/sums", {"text": LIKE.replace("sum(n)", "sum(m)")}, 400, "no column 'm'"),
    ("PUT", "/jobs/sums", {"text": CHANGED.format("max(n) AS n", ""), "at": "pane"}, 400,
     "windows cannot change at the next pane: it groups by other keys"),
    ("PUT", "/jobs/sums", {"text": LIKE.replace("sum(n)", "max(n)"), "at": "pane"}, 400,
     "windows cannot change at the next pane: it has other aggregates"),
    ("PUT", "/jobs/sums", {"text": LIKE.replace("1 SECOND", "2 SECONDS"), "at": "pane"}, 400,
     "windows cannot change at the next pane: its windows differ"),
    ("PUT", "/jobs/sums", {"text": LIKE, "expected": 7}, 409, "version 1"),
    ("POST", "/sql", {"text": "CREATE JOB x AS SELECT count(*) AS c FROM JOB x WINDOW 1 SECOND"},
     400, "x"),
    ("POST", "/sql", {"text": "SELECT 1"}, 400, "line 1"),
]  # fmt: skip


def test_whatever_is_asked_wrongly_running_jobs_notice_nothing(tmp_path: Path) -> None:
    """With and without the token, between records: no result is another, late or less complete."""
    access = Access(token="a-secret-of-the-test")
    with running(tmp_path, access) as program:
        stranger = httpx.Client(base_url=program.address.url, timeout=60)
        for second, (method, path, body, status, message) in enumerate(BAD, 1):
            program.write(second)
            answer = program.client.request(method, path, json=body)
            assert answer.status_code == status, answer.text
            assert message in answer.json()["error"]["message"]
            assert stranger.request(method, path, json=body).status_code == 401
            wrong = {"authorization": "Bearer another-secret-here"}
            refused = stranger.request(method, path, json=body, headers=wrong)
            assert refused.json()["error"]["kind"] == "token"
        stranger.close()
        last = len(BAD) + 1
        program.write(last)
        wait_for(lambda: len(program.results("sums")) == last - 1)
        assert sums(program.results("sums")) == [(f"{n:02}", "pen", n) for n in range(1, last)]
        told = program.results("sums")
        assert {(each["version"], each["c2"]["area"]) for each in told} == {(1, 1.0)}
        (job,) = program.client.get("/jobs").json()["jobs"]
        assert (job["job"], job["version"], job["paused"]) == ("sums", 1, False)


def test_a_client_that_says_nothing_is_not_waited_for(
    here: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("muntin.control.connection._PATIENCE", 0.2)
    for said in (b"", b"GET /jobs HT"):
        with socket.create_connection((here.address.host, here.address.port), 60) as one:
            one.sendall(said)
            with suppress(ConnectionResetError):  # closed, and what was said was not read
                assert one.recv(100) == b""


def test_a_port_that_is_taken_is_told(here: Running, tmp_path: Path) -> None:
    access = Access("127.0.0.1", here.address.port)
    (tmp_path / "other").mkdir()
    message = "cannot listen at 127.0.0.1:.*Address already in use; give another --control"
    with pytest.raises(InputError, match=message), running(tmp_path / "other", access):
        pass


def test_paths_that_there_are_not_are_told(here: Running) -> None:
    answer = here.client.get("/nowhere")
    assert answer.status_code == 404
    assert answer.json()["error"]["message"].startswith("there is no GET /nowhere here; GET /open")
    for method, path in (("GET", "/sql"), ("PATCH", "/jobs/sums"), ("PATCH", "/sql")):
        answer = here.client.request(method, path, headers={"content-type": "text/plain"})
        assert answer.status_code == 405, (method, path)


def test_a_fault_is_told_and_ends_nothing(
    here: Running, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("muntin.control.ordering.saved_in", lambda _: 1 / 0)
    answer = here.client.get("/status")
    assert answer.status_code == 500
    assert "ZeroDivisionError" in answer.json()["error"]["message"]
    wait_for(lambda: "ZeroDivisionError" in caplog.text)
    assert here.client.get("/jobs").status_code == 200


def test_results_are_followed_through_a_restart(tmp_path: Path) -> None:
    """What was seen before is not told again, and what left meanwhile is."""
    with running(tmp_path) as program:
        program.write(1, 2, 3)
        with program.client.stream("GET", "/jobs/sums/events?from=start") as stream:
            (first,) = events(stream.iter_lines(), 1)
        wait_for(lambda: len(program.results("sums")) == 2)
    (tmp_path / "logs" / "web.jsonl").write_text("")
    with running(tmp_path) as program:
        program.write(4, 5)
        last = {"last-event-id": first["id"]}
        with program.client.stream("GET", "/jobs/sums/events", headers=last) as stream:
            rest = events(stream.iter_lines(), 2)
    assert [start for start, *_ in sums([first, *rest])] == ["01", "02", "04"]
    assert json.loads(json.dumps(first)) == first
