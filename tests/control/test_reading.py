"""Results as clients read them: the latest, all of them, or as they are committed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.control.running import Running, events, running, sums
from tests.waiting import wait_for


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Running]:
    with running(tmp_path) as program:
        yield program


def test_results_and_jobs_are_listed(here: Running) -> None:
    here.write(1, 1, 2, 5)
    wait_for(lambda: len(here.results("sums")) == 2)
    assert sums(here.results("sums")) == [("01", "pen", 2), ("02", "pen", 2)]
    assert sums(here.results("SUMS", "latest")) == [("02", "pen", 2)]
    (latest,) = here.results("sums", "latest")
    assert latest["records"] == {"read": 1, "bad": 0, "late": 0, "failed": 0}
    assert latest["c2"]["area"] == 1.0
    assert latest == here.results("sums")[-1]
    (job,) = here.client.get("/jobs").json()["jobs"]
    assert (job["job"], job["version"], job["paused"], job["windows"]) == (
        "sums", 1, False, ["1 second"],
    )  # fmt: skip
    assert here.client.get("/status").json()["process"] == here.address.process


def test_followers_are_told_of_each_result_once(here: Running) -> None:
    with here.client.stream("GET", "/jobs/sums/events") as stream:
        lines = stream.iter_lines()
        assert next(lines).startswith(":")
        here.write(1, 2, 3, 6)
        first = events(lines, 2)
    here.write(7, 9)
    last = {"last-event-id": first[-1]["id"]}
    with here.client.stream("GET", "/jobs/sums/events", headers=last) as stream:
        rest = events(stream.iter_lines(), 3)
    assert [start for start, *_ in sums([*first, *rest])] == ["01", "02", "03", "06", "07"]


def test_what_is_asked_wrongly_is_told(here: Running) -> None:
    asked = {
        "/jobs/sums/results?window=some": (400, "window is 'latest' or 'all', not 'some'"),
        "/jobs/sums/events?from=here": (400, "from is 'now' or 'start', not 'here'"),
        "/jobs/sun/results": (404, "unknown job 'sun'; known are sums"),
        "/jobs/%2E%2E/results": (404, "unknown job '..'; known are sums"),
        "/jobs/summ/events": (404, "unknown job 'summ'; did you mean sums?"),
    }
    for path, (status, message) in asked.items():
        answer = here.client.get(path)
        assert answer.status_code == status, path
        assert answer.json()["error"]["message"].startswith(message)
    answer = here.client.get("/jobs/sums/events", headers={"last-event-id": "7"})
    assert (answer.status_code, answer.json()["error"]["message"]) == (
        400, "'7' is no id of a result; give the id of the last event as it came",
    )  # fmt: skip


def test_a_result_that_is_too_large_is_not_sent(
    here: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("muntin.control.reading.ROWS", 1)
    here.write(1, 2, 3)
    wait_for(lambda: here.results("sums", "latest"))
    wait_for(lambda: here.client.get("/jobs/sums/results?window=all").status_code == 413)
    answer = here.client.get("/jobs/sums/results?window=all").json()["error"]
    assert (answer["kind"], answer["message"][:52]) == (
        "size", "the results of job 'sums' have more than 1 rows, whi",
    )  # fmt: skip


def test_there_are_not_too_many_followers(here: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("muntin.control.reading.FOLLOWERS", 1)
    with here.client.stream("GET", "/jobs/sums/events") as stream:
        lines = stream.iter_lines()  # without which it would be closed
        assert next(lines)
        answer = here.client.get("/jobs/sums/events")
        assert answer.status_code == 503
        assert "1 clients follow results" in answer.json()["error"]["message"]
        assert here.client.get("/jobs").status_code == 200
    wait_for(lambda: _is_followed(here))


def _is_followed(here: Running) -> bool:
    with here.client.stream("GET", "/jobs/sums/events") as stream:
        return stream.status_code == 200


def test_silence_has_signs_of_life(here: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("muntin.control.reading._HEARTBEAT", 0.05)
    with here.client.stream("GET", "/jobs/sums/events") as stream:
        said = (line for line in stream.iter_lines() if line)
        assert [next(said) for _ in range(3)][1:] == [": nothing new"] * 2
