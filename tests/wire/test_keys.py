"""Who is let in: TLS, the token, and certificates on both sides where that is asked for."""

from __future__ import annotations

import stat
from dataclasses import replace
from pathlib import Path

import pytest

from muntin.errors import InputError, WireError
from muntin.wire.client import Client
from muntin.wire.keys import PIPELINE, make_keys, read_keys
from tests.agent.serving import serving


def test_keys_are_made_once_and_secrets_are_nobody_elses(tmp_path: Path) -> None:
    made = make_keys(tmp_path, ["web01", "pipeline"])
    assert sorted(path.name for path in made) == [
        "ca.key", "ca.pem", "pipeline.key", "pipeline.pem", "token", "web01.key", "web01.pem",
    ]  # fmt: skip
    for path in made:
        if path.suffix != ".pem":
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
    before = {path.name: path.read_bytes() for path in made}
    assert [path.name for path in make_keys(tmp_path, ["web02", "web01"])] == [
        "web02.pem", "web02.key",
    ]  # fmt: skip
    assert all((tmp_path / name).read_bytes() == data for name, data in before.items())


def test_who_has_the_token_is_answered(tmp_path: Path) -> None:
    make_keys(tmp_path / "keys", ["web01", "pipeline"])
    agent = read_keys(tmp_path / "keys", "web01", required=True)
    mine = read_keys(tmp_path / "keys", "none")
    assert not mine.key
    with serving("web01", tmp_path / "logs", agent, at="0.0.0.0:0") as (_, place):
        assert Client(mine).settings(place, "logs")["FORMAT"] == "json"
        with pytest.raises(WireError, match="this agent answers pipelines with its token"):
            Client(replace(mine, token="another-token-of-some")).settings(place, "logs")
        with pytest.raises(WireError, match="cannot be reached; one that listens to others needs"):
            Client().settings(place, "logs")
        make_keys(tmp_path / "other", [])
        other = read_keys(tmp_path / "other", "none")
        with pytest.raises(
            WireError, match=r"it has none, or its certificate is of another ca\.pem"
        ):
            Client(replace(mine, ca=other.ca)).settings(place, "logs")
        elsewhere = place.replace("127.0.0.1", "127.0.0.2")
        with pytest.raises(WireError, match="its certificate is for other hosts; `muntin keys"):
            Client(mine).settings(elsewhere, "logs")
    with (
        serving("web01", tmp_path / "logs") as (_, place),
        pytest.raises(WireError, match="with these --keys: it has none"),
    ):
        Client(mine).settings(place, "logs")


def test_certificates_on_both_sides(tmp_path: Path) -> None:
    make_keys(tmp_path / "keys", ["web01", "pipeline"])
    agent = read_keys(tmp_path / "keys", "web01", required=True)
    pipeline = read_keys(tmp_path / "keys", PIPELINE)
    with serving("web01", tmp_path / "logs", agent, mutual=True) as (_, place):
        assert Client(pipeline).settings(place, "logs")["FORMAT"] == "json"
        with pytest.raises(WireError, match=r"with --mutual it wants to see pipeline\.pem and"):
            Client(replace(pipeline, certificate=b"", key=b"")).settings(place, "logs")


def test_what_is_missing_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"has no web01\.pem and web01\.key; `muntin keys "):
        read_keys(tmp_path, "web01", required=True)
    with pytest.raises(InputError, match=r"token cannot be read: No such file"):
        read_keys(tmp_path, "web01")
    (tmp_path / "token").write_text("short")
    with pytest.raises(InputError, match="a token has 16 characters or more"):
        read_keys(tmp_path, "web01")


@pytest.mark.parametrize("name", ["a/b", "", "=host"])
def test_names_are_those_of_files(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match=f"'{name}' is no name of an agent"):
        make_keys(tmp_path, [name])


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=r"keys cannot be made in .*file/keys: Not a directory"):
        make_keys(tmp_path / "file" / "keys", ["a"])
