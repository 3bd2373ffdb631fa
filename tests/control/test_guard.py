"""Who may ask, how much, and in which form."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator

import httpx
import pytest

from muntin.control.access import Access
from tests.control.running import Running, running

TOKEN = "a-token-of-many-letters"


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("open")) as program:
        yield program


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("guarded"), Access(token=TOKEN)) as program:
        yield program


@pytest.mark.parametrize("given", [None, "", "Bearer", "Bearer x", TOKEN, f"Basic {TOKEN}"])
def test_without_the_token_nothing_is_told(guarded: Running, given: str | None) -> None:
    headers = {} if given is None else {"authorization": given}
    for path in ("/jobs", "/status", "/openapi.json", "/jobs/sums/events", "/nowhere"):
        answer = httpx.get(f"{guarded.address.url}{path}", headers=headers)
        assert (answer.status_code, answer.json()["error"]["kind"]) == (401, "token")
        assert answer.headers["www-authenticate"] == "Bearer"
    answer = httpx.post(f"{guarded.address.url}/sql", json={"text": "DROP JOB sums"})
    assert answer.status_code == 401


def test_with_the_token_all_is_told(guarded: Running) -> None:
    assert guarded.client.get("/jobs").status_code == 200
    headers = {"host": "muntin.example.org", "origin": "https://muntin.example.org"}
    assert guarded.client.get("/jobs", headers=headers).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://localhost:3000"},
        {"host": "evil.example"},
        {"host": "127.0.0.1.evil.example"},
        {"host": ""},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
def test_a_web_page_cannot_forge_a_request(here: Running, headers: dict[str, str]) -> None:
    for answer in (
        here.client.get("/jobs", headers=headers),
        here.client.post("/sql", json={"text": "DROP JOB sums"}, headers=headers),
    ):
        assert (answer.status_code, answer.json()["error"]["kind"]) == (403, "forged")
        assert "access-control-allow-origin" not in answer.headers
    assert [job["job"] for job in here.client.get("/jobs").json()["jobs"]] == ["sums"]


def test_the_page_of_the_service_itself_may_ask(here: Running) -> None:
    host = f"localhost:{here.address.port}"
    headers = {"host": host, "origin": f"http://{host}", "sec-fetch-site": "same-origin"}
    assert here.client.get("/jobs", headers=headers).status_code == 200


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", None])
def test_what_a_form_could_send_is_refused(here: Running, kind: str | None) -> None:
    content = json.dumps({"text": "DROP JOB sums"}).encode()
    headers = {} if kind is None else {"content-type": kind}
    for path in ("/sql", "/jobs/sums/pause"):
        answer = here.client.post(path, content=content, headers=headers)
        assert (answer.status_code, answer.json()["error"]["kind"]) == (415, "form")


def test_a_body_of_100_mb_is_not_read(here: Running) -> None:
    where = here.address.host, here.address.port
    head = f"POST /sql HTTP/1.1\r\nhost: {where[0]}\r\ncontent-type: application/json\r\n"
    with socket.create_connection(where, 60) as one:
        one.sendall(f"{head}content-length: {100 << 20}\r\n\r\n".encode() + b"x" * 1000)
        assert one.recv(1000).startswith(b"HTTP/1.1 413")
    with socket.create_connection(where, 60) as one:  # nothing is said of how long it is
        one.sendall(f"{head}transfer-encoding: chunked\r\n\r\n".encode())
        sent = 0
        try:
            while sent < 100 << 20:
                one.sendall(b"10000\r\n" + b"x" * 65536 + b"\r\n")
                sent += 65536
        except ConnectionError:
            pass
        assert sent < 20 << 20  # what buffers hold
    assert here.client.get("/jobs").status_code == 200


def test_a_body_of_a_megabyte_is_read(here: Running) -> None:
    text = "PAUSE JOB nope --" + "x" * 1_000_000
    assert here.post("/sql", text=text).status_code == 400
    answer = here.post("/sql", text=text + "x" * 100_000)
    assert answer.status_code == 413
    assert answer.json()["error"]["message"] == "the body is longer than 1 MB, which is the most"


def test_a_body_that_does_not_come_is_not_waited_for(
    here: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("muntin.control.guard._SECONDS", 0.2)
    where = here.address.host, here.address.port
    head = f"POST /sql HTTP/1.1\r\nhost: {where[0]}\r\ncontent-type: application/json\r\n"
    with socket.create_connection(where, 60) as one:
        one.sendall(f"{head}content-length: 1000\r\n\r\n".encode() + b"x")
        assert one.recv(1000).startswith(b"HTTP/1.1 408")


@pytest.mark.parametrize("content", [b"{", b"\xff", b"[" * 100_000, b"7"])
def test_what_is_no_object_is_told(here: Running, content: bytes) -> None:
    headers = {"content-type": "application/json"}
    answer = here.client.post("/sql", content=content, headers=headers)
    assert (answer.status_code, answer.json()["error"]["kind"]) == (400, "form")
