"""The file that says where a service is, and those that are left behind."""

from __future__ import annotations

import subprocess
import sys
from os import getpid
from pathlib import Path

import pytest

from muntin.control.address import Address, address_of, announced
from muntin.errors import InputError


def test_it_is_there_as_long_as_the_program_runs(tmp_path: Path) -> None:
    address = Address("127.0.0.1", 7080, getpid(), "/token")
    with announced(tmp_path, address):
        assert address_of(tmp_path) == address
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(InputError, match="no program that takes orders runs on the state folder"):
        address_of(tmp_path)
    assert Address("::1", 7080, 1).url == "http://[::1]:7080"


def test_one_that_was_left_behind_is_recognised(tmp_path: Path) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    manager = announced(tmp_path, Address("127.0.0.1", 7080, gone.pid))
    manager.__enter__()
    message = rf"the program that ran \(process {gone.pid}\) has gone.*start one with `muntin run"
    with pytest.raises(InputError, match=message):
        address_of(tmp_path)


@pytest.mark.parametrize("text", ["", "{", "[]", "7", '{"host": "127.0.0.1"}'])
def test_one_that_is_damaged_is_told(tmp_path: Path, text: str) -> None:
    (tmp_path / "control.json").write_text(text)
    with pytest.raises(InputError, match="it is no address of a service; start the program again"):
        address_of(tmp_path)
