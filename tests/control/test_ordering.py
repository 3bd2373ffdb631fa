"""Orders over HTTP: each is a statement; what cannot be is refused, and nothing has changed."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from muntin.control.access import Access
from muntin.control.feed import Feed
from muntin.control.service import serving
from muntin.run.door import Door
from tests.control.running import Running, running
from tests.waiting import wait_for

BIG = (
    "CREATE JOB big (least DEFAULT 3) AS SELECT count(*) AS c FROM clicks WHERE n >= $least "
    "WINDOW 1 SECOND"
)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("program")) as program:
        yield program


@pytest.fixture
def here(program: Running) -> Running:
    """The program with its job as it was."""
    for job in jobs(program):
        if job != "sums":
            assert program.client.request("DELETE", f"/jobs/{job}", json={}).status_code == 200
    return program


def jobs(here: Running) -> dict[str, dict[str, Any]]:
    return {job["job"]: job for job in here.client.get("/jobs").json()["jobs"]}


def test_a_job_is_created_changed_and_dropped(here: Running) -> None:
    assert here.post("/jobs", text=BIG).status_code == 201
    assert jobs(here)["big"]["parameters"] == {"least": "3"}
    answer = here.client.put("/jobs/big/parameters/least", json={"value": 5})
    assert [e["does"] for e in answer.json()["effects"]] == ["set"]
    assert jobs(here)["big"]["parameters"] == {"least": "5"}
    assert here.client.put("/jobs/big/parameters/least", json={"sql": "2 + 2"}).is_success
    assert jobs(here)["big"]["parameters"] == {"least": "2 + 2"}
    assert here.post("/jobs/big/pause").json()["effects"][0]["does"] == "paused"
    assert jobs(here)["big"]["paused"]
    assert here.post("/jobs/big/resume").is_success
    assert here.post("/jobs/big/reset").is_success
    answer = here.client.put("/jobs/BIG", json={"text": BIG.replace("count(*)", "sum(n)")})
    version = answer.json()["effects"][0]["version"]
    assert answer.headers["etag"] == f'"{version}"'
    shown = here.client.get("/jobs/big")
    assert (shown.headers["etag"], shown.json()["version"]) == (f'"{version}"', version)
    assert "sum(n)" in shown.json()["text"]
    assert here.client.request("DELETE", "/jobs/big", json={}).is_success
    assert jobs(here).keys() == {"sums"}


def test_names_that_are_no_words_are_quoted(here: Running) -> None:
    assert here.post("/jobs", text=BIG.replace("JOB big", 'JOB "big-ones"')).is_success
    assert here.client.put("/jobs/big-ones/parameters/least", json={"value": 5}).is_success
    assert here.post("/jobs/big-ones/pause").is_success
    assert here.client.request("DELETE", "/jobs/big-ones", json={}).is_success


def test_a_text_is_done_as_a_whole_or_not_at_all(here: Running) -> None:
    answer = here.post("/sql", text=f"{BIG}; PAUSE JOB nope")
    assert answer.status_code == 400
    assert jobs(here).keys() == {"sums"}
    answer = here.post("/sql", text=f"{BIG}; PAUSE JOB big; RESUME JOB big")
    assert [e["does"] for e in answer.json()["effects"]] == ["created", "paused", "resumed"]


def test_mistakes_are_told_at_their_place(here: Running) -> None:
    text = "CREATE JOB big AS\nSELECT sum(m) AS s\nFROM clicks WINDOW 1 SECOND"
    error = here.post("/jobs", text=text).json()["error"]
    assert (error["kind"], error["line"], error["column"]) == ("language", 2, 12)
    assert error["message"].startswith("line 2, column 12: stream 'clicks' has no column 'm'")
    assert "^" in error["message"]
    assert here.post("/jobs", text=BIG).is_success
    one_line = "CREATE JOB big AS SELECT sum(m) AS s FROM clicks WINDOW 1 SECOND"
    error = here.client.put("/jobs/big", json={"text": one_line}).json()["error"]
    assert (error["line"], error["column"]) == (1, one_line.index("(m)") + 2)
    assert error["message"].splitlines()[1:] == [
        f"  1 | {one_line}",
        " " * 4 + "|" + " " * 30 + "^",
    ]


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "message"),
    [
        ("POST", "/jobs", {}, 400, 'expected a statement, as in {"text": "PAUSE JOB x"}'),
        ("POST", "/jobs", {"text": "DROP JOB sums"}, 400, "line 1, column 1: expected one statem"),
        ("POST", "/jobs", {"text": "CREATE JOB"}, 400, "line 1, column 11: expected"),
        ("POST", "/jobs", [], 400, "the body is no JSON object"),
        ("POST", "/sql", {"text": ""}, 400, "line 1, column 1: nothing is asked here"),
        ("POST", "/sql", {"text": "X", "expected": 1}, 400, "expected is an object of versions"),
        ("PUT", "/jobs/sums", {"text": BIG}, 400, "the text creates job 'big', and not 'sums'"),
        ("PUT", "/jobs/none", {"text": BIG}, 404, "unknown job 'none'; known are sums"),
        ("PUT", "/jobs/sums", {"text": BIG, "at": "noon"}, 400, "at is 'window' or 'pane'"),
        ("DELETE", "/jobs/none", {}, 404, "unknown job 'none'; known are sums"),
        ("POST", "/jobs/none/pause", {}, 404, "unknown job 'none'; known are sums"),
        ("POST", "/jobs/sums/resume", {}, 400, "line 1, column 12: job 'sums' is not paused"),
        ("PUT", "/jobs/sums/parameters/x", {"value": 1}, 400, "line 1, column 10: job 'sums' has"),
        ("PUT", "/jobs/sums/parameters/x", {}, 400, "expected a value, as in"),
        ("PUT", "/jobs/sums/parameters/x", {"value": []}, 400, "a value is a number, a text"),
        ("POST", "/jobs/sums/pause", {"expected": "x"}, 400, "expected is the number of a version"),
    ],
)
def test_what_cannot_be_is_refused(
    here: Running, method: str, path: str, body: Any, status: int, message: str
) -> None:
    before = here.client.get("/jobs").json()
    answer = here.client.request(method, path, json=body)
    assert answer.json()["error"]["message"].startswith(message), answer.text
    assert answer.status_code == status
    assert here.client.get("/jobs").json() == before


def made(here: Running) -> int:
    """The version of a job that is new: it goes on where one of that name has ended."""
    answer = here.post("/jobs", text=BIG)
    return int(answer.json()["effects"][0]["version"])


def test_a_writer_who_has_not_seen_the_last_change_is_told(here: Running) -> None:
    version = made(here)
    seen = {"if-match": f'"{version}"'}
    answer = here.client.put("/jobs/big", json={"text": BIG}, headers=seen)
    assert answer.headers["etag"] == f'"{version + 1}"'
    for body, headers in (({}, seen), ({"expected": version}, {})):
        answer = here.client.request("DELETE", "/jobs/big", json=body, headers=headers)
        assert answer.status_code == 409
        error = answer.json()["error"]
        assert (error["kind"], error["job"], error["version"]) == ("conflict", "big", version + 1)
    answer = here.post("/sql", text="DROP JOB big", expected={"big": version + 7})
    assert answer.status_code == 409
    assert here.post("/sql", text="DROP JOB big", expected={"big": version + 1}).is_success
    assert here.post("/sql", text=BIG, expected={"big": 0}).is_success


def test_of_two_writers_at_once_one_is_told(here: Running) -> None:
    version = made(here)

    def write(_: int) -> int:
        return here.client.put("/jobs/big", json={"text": BIG, "expected": version}).status_code

    with ThreadPoolExecutor(8) as threads:
        assert sorted(threads.map(write, range(8))) == [200] + [409] * 7
    assert jobs(here)["big"]["version"] == version + 1


def test_a_job_that_was_dropped_has_results_to_read(here: Running) -> None:
    assert here.post("/jobs", text=BIG).is_success
    here.write(*range(11, 15))
    wait_for(lambda: here.results("big"))
    assert here.client.request("DELETE", "/jobs/big", json={}).is_success
    assert here.results("big")
    assert here.client.get("/jobs/big").status_code == 404


def test_a_program_that_has_not_begun_takes_no_orders(tmp_path: Path) -> None:

    with serving(Access(), Door(), Feed(tmp_path), tmp_path) as address:
        answer = httpx.get(f"{address.url}/jobs")
        assert (answer.status_code, answer.json()["error"]["message"]) == (
            503, "the program has not begun yet, and takes no orders",
        )  # fmt: skip
        assert httpx.get(f"{address.url}/status").json()["jobs"] == []


def test_a_job_of_several_shapes_is_one_to_who_asks(here: Running) -> None:
    both = "CREATE JOB both AS SELECT sum(n) AS s FROM clicks WINDOW 1 SECOND, SESSION 5 SECONDS"
    assert here.post("/jobs", text=both).is_success
    answer = here.client.put("/jobs/both", json={"text": both.replace("sum(n)", "max(n)")})
    (effect,) = answer.json()["effects"]
    assert (effect["does"], effect["job"], effect["version"]) == ("replaced", "both", 2)
    told = here.client.get("/jobs/both").json()
    assert (told["version"], len(told["windows"])) == (2, 2)
    assert any("session" in window for window in told["windows"])
    assert here.post("/jobs/both/pause").is_success
    assert here.client.get("/jobs/both").json()["paused"]
    assert here.client.request("DELETE", "/jobs/both", json={}).is_success
    assert here.client.get("/jobs/both").status_code == 404
