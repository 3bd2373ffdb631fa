"""What an agent's file may say, and what is said of a file that is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from muntin.agent.settings import Limits, read_settings
from muntin.errors import InputError
from muntin.language.program import sql

GOOD = """
[streams.clicks]
paths = ["/var/log/shop/*.log"]
format = "json"
timestamp = "epoch_ms(t)"
slack = "5 SECONDS"

[streams.errors]
paths = "/var/log/errors.log"
"""


def test_streams_have_files_and_clauses(tmp_path: Path) -> None:
    (tmp_path / "agent.toml").write_text(GOOD)
    settings = read_settings(tmp_path / "agent.toml", "web01", tmp_path)
    assert settings.clauses("clicks") == {
        "FORMAT": "json", "TIMESTAMP": "epoch_ms(t)", "SLACK": "5 SECONDS",
    }  # fmt: skip
    assert settings.clauses("errors") == {}
    told = "CREATE STREAM clicks (t BIGINT) FROM AGENTS 'a:1' FORMAT json TIMESTAMP t"
    local = settings.local(sql(told).streams["clicks"])
    assert (local.patterns, local.source, local.agents) == (("/var/log/shop/*.log",), "web01", ())
    with pytest.raises(InputError, match=r"'web01' has no stream 'x'; .* have: clicks, errors"):
        settings.clauses("x")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"has no stream; it needs a table such as \[streams\.clicks\]"),
        ("streams = 1", "has no stream"),
        ("[streams.a]", r'\[streams\.a\] needs paths = \["/var/log/…"\]'),
        ("[streams.a]\npaths = [1]", "needs paths"),
        ("[streams]\na = 1", "needs paths"),
        ("[streams.a]\npaths = '/x/**'", r"paths of \[streams\.a\]: '\*\*' is not possible"),
        ("[streams.a]\npaths = '/x/{source}.log'", r"an agent is one source, by its --name"),
        ("[streams.a]\npaths = '/x'\nformt = 'json'", r"has 'formt'; known are paths, format"),
        (
            "[streams.a]\npaths = '/x'\ntimestamp = ''",
            r"timestamp of \[streams\.a\] is empty; name",
        ),
        ("[streams.'a/b']\npaths = '/x'", r"'a/b' is no name of a stream here, as a file is named"),
        ("[streams.a]\npaths = '/x'\nslack = 5", r"slack of \[streams\.a\] is no text in quotes"),
        ("[streams.a]\npathes = '/x'", r"has 'pathes'; known are paths, format"),
        (
            "[streams.a]\npaths = '/x'\nformat = 'jsn'",
            r"format of .* is 'jsn'; known are json, csv",
        ),
        ("[streams.a]\npaths = '/x'\nformat = ''", r"format of .* is ''; known are json"),
        ("[streams.a]\npaths = '/x'\nslack = 'five'", r"slack of \[streams\.a\]: .*'5 SECONDS'"),
        ("[streams", "is no TOML"),
    ],
)
def test_mistakes_are_told(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "agent.toml").write_text(text)
    with pytest.raises(InputError, match=message):
        read_settings(tmp_path / "agent.toml", "web01", tmp_path)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"agent\.toml cannot be read: No such file"):
        read_settings(tmp_path / "agent.toml", "web01", tmp_path)


def test_limits_that_cannot_be_kept_are_refused() -> None:
    with pytest.raises(InputError, match="an agent needs 256 MB"):
        Limits(memory=100 << 20)
    with pytest.raises(InputError, match="--cpu 0 is no share of a core"):
        Limits(cpu=0.0)
    assert Limits(memory=640 << 20).waiting == 128 << 20
    assert Limits(memory=640 << 20).open == 128 << 20


def test_a_server_has_a_name(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--name is empty"):
        read_settings(tmp_path / "agent.toml", " ", tmp_path)
