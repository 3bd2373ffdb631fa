"""What --control and --control-token say."""

from __future__ import annotations

from pathlib import Path

import pytest

from muntin.control.access import Access, access_of, token_in
from muntin.errors import InputError


@pytest.fixture
def token(tmp_path: Path) -> Path:
    file = tmp_path / "token"
    file.write_text("0123456789abcdef\n")
    return file


def test_addresses(token: Path) -> None:
    assert access_of("off", None) is None
    assert access_of("127.0.0.1:0", None) == Access()
    assert access_of("localhost:7080", None) == Access(port=7080)
    assert access_of("[::1]:7080", None) == Access("::1", 7080)
    assert access_of("0.0.0.0:7080", token) == Access("0.0.0.0", 7080, "0123456789abcdef", token)


@pytest.mark.parametrize("control", ["", "7080", "host:7080", "127.0.0.1:", "127.0.0.1:99999"])
def test_what_is_no_address_is_told(control: str) -> None:
    with pytest.raises(InputError, match=r"is no address; say for example 127.0.0.1:7080, or off"):
        access_of(control, None)


@pytest.mark.parametrize("control", ["0.0.0.0:7080", "10.0.0.5:0", "[::]:7080"])
def test_others_need_a_token(control: str) -> None:
    with pytest.raises(InputError, match=r"is open to others.*give --control-token FILE"):
        access_of(control, None)


def test_tokens_are_checked(token: Path) -> None:
    with pytest.raises(InputError, match="--control is off"):
        access_of("off", token)
    with pytest.raises(InputError, match="cannot be read: No such file"):
        token_in(token.with_name("none"))
    for text in ("", "short", "0123456789 abcdef", "0123456789\nabcdef", "0123456789äbcdef"):
        token.write_text(text)
        with pytest.raises(InputError, match="has no token: that is one line of at least 16"):
            token_in(token)
    token.write_bytes(b"\xff" * 20)
    with pytest.raises(InputError, match="cannot be read: it is no text"):
        token_in(token)


def test_names_of_this_machine() -> None:
    access = Access("::1", 7080)
    for host in ("localhost", "LOCALHOST:1", "127.0.0.1:7080", "[::1]", "[::1]:7080"):
        assert access.forged(host, None, None) is None
    for host in ("", "example.org", "[::2]", "127.0.0.2", "localhost.example.org:80"):
        assert access.forged(host, None, None) is not None
