"""`muntin job` and `muntin sql` against a program that runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from muntin.cli import app
from muntin.errors import InputError, MuntinError
from tests.control.running import Running, running

BIG = "CREATE JOB big (least DEFAULT 3) AS SELECT count(*) AS c FROM clicks WHERE n >= $least "
BIG += "WINDOW 1 SECOND"


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("cli")) as program:
        yield program


def said(*words: str, given: str | None = None) -> str:
    """What a command prints; an error of ours is raised, as `main` prints it."""
    done = CliRunner().invoke(app, words, input=given)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.output


def test_an_address_is_no_folder() -> None:
    for command in (("job", "list"), ("job", "pause", "sums"), ("sql", "SHOW JOBS")):
        with pytest.raises(InputError, match=r"--url 127.0.0.1 is no address; say for example"):
            said(*command, "--url", "127.0.0.1")


def test_a_job_from_its_creation_to_its_end(here: Running, tmp_path: Path) -> None:
    at = "--state", str(here.state)
    file = tmp_path / "big.sql"
    file.write_text(BIG)
    assert said("job", "create", str(file), *at).startswith("job 'big' is created, version 1")
    assert "least = 3" in said("job", "list", *at)
    said("job", "set", "big", "least", "2 + 3", *at)
    jobs = [json.loads(line) for line in said("job", "list", "--json", *at).splitlines()]
    assert {job["job"]: job["parameters"] for job in jobs} == {
        "sums": {},
        "big": {"least": "2 + 3"},
    }
    assert "is paused" in said("job", "pause", "big", *at)
    assert "is resumed" in said("job", "resume", "big", *at)
    assert "is reset" in said("job", "reset", "big", *at)
    assert "version 2" in said("job", "replace", "big", "-", "--at", "pane", *at, given=BIG)
    url = "--url", here.address.url
    assert "version 3" in said("job", "replace", "big", BIG, "--expected", "2", *url)
    with pytest.raises(MuntinError, match="version 2 was expected, but it is at version 3"):
        said("job", "drop", "big", "--expected", "2", *url)
    assert "is dropped" in said("sql", "DROP JOB big", *at)
    assert "is created" in said("sql", *at, given=f"{BIG};\nDROP JOB big;\n")


def test_what_cannot_be_is_told(here: Running, tmp_path: Path) -> None:
    at = "--state", str(here.state)
    with pytest.raises(InputError, match=r"none\.sql cannot be read: No such file.*or -"):
        said("job", "create", str(tmp_path / "none.sql"), *at)
    with pytest.raises(InputError, match="--at is window or pane, not 'noon'"):
        said("job", "replace", "sums", BIG, "--at", "noon", *at)
    with pytest.raises(InputError, match="unknown job 'none'; known are sums"):
        said("job", "pause", "none", *at)
    nobody = str(tmp_path / "nobody")
    for words in (("job", "list"), ("job", "pause", "x"), ("sql", "PAUSE JOB x")):
        message = "no program that takes orders runs on the state folder.*start one with `muntin r"
        with pytest.raises(InputError, match=message):
            said(*words, "--state", nobody)
