"""A storage that is not there is told soon when a command begins, and waited for in a run."""

from __future__ import annotations

import os
import pickle
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from muntin.errors import StorageError
from muntin.store import objects, patience
from muntin.store.objects import ObjectStorage
from muntin.store.results import Results
from tests.ports import free_port
from tests.store.s3 import KEYS, Proxy
from tests.waiting import PATIENCE


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What people are told, by a process that has not spoken to any storage."""
    notes: list[str] = []
    for name, value in {"FIRST": 0.8, "_TOLD_AFTER": 0.3, "_tell": notes.append}.items():
        monkeypatch.setattr(patience, name, value)
    for name in ("_answered", "_silent"):
        monkeypatch.setattr(patience, name, set())
    for key, value in KEYS.items():
        monkeypatch.setenv(key, value)
    objects._opened.cache_clear()
    yield notes
    objects._opened.cache_clear()


@pytest.fixture
def nobody(monkeypatch: pytest.MonkeyPatch) -> str:
    address = f"http://127.0.0.1:{free_port()}"
    monkeypatch.setenv("AWS_ENDPOINT_URL", address)
    return address


def test_an_address_at_which_nobody_listens_is_told_soon(told: list[str], nobody: str) -> None:
    began = time.monotonic()
    why = f"the storage does not answer at {nobody}: nobody listens there"
    with pytest.raises(StorageError, match=f"^s3://b/a/lease cannot be read: {why}$"):
        ObjectStorage.at("s3://b/a").read("lease")
    assert time.monotonic() - began < 20
    (note,) = told
    assert re.fullmatch(rf"s3://b: {why}; it is tried until \d\d:\d\d:\d\d UTC", note)


def test_so_is_a_host_that_nobody_knows(told: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://no.such.host.invalid:9000")
    why = "does not answer at http://no.such.host.invalid:9000: no host has that name"
    with pytest.raises(StorageError, match=why):
        ObjectStorage.at("s3://b/a").read("lease")


def test_results_are_not_asked_for_where_nobody_is(told: list[str], nobody: str) -> None:
    """Which deltalake would try for a minute, and not say where."""
    with pytest.raises(StorageError, match=f"does not answer at {nobody}: nobody listens there$"):
        Results("s3://b/a").read("job")


def test_in_a_run_patience_is_longer(
    told: list[str], s3: tuple[str, Proxy], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a storage that has answered, and in tasks, which never have the wrong address."""
    url, proxy = s3
    storage = ObjectStorage.at(url)
    storage.put("a", b"1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{free_port()}")
    objects._opened.cache_clear()
    for each in (
        ObjectStorage(url, patience=1.6, begins=True),
        pickle.loads(pickle.dumps(ObjectStorage("s3://other/a", patience=1.6, begins=True))),
    ):
        began = time.monotonic()
        with pytest.raises(StorageError, match="nobody listens there"):
            each.read("a")
        assert time.monotonic() - began > 1
    assert len(told) == 2
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{proxy.port}")
    objects._opened.cache_clear()
    assert storage.read("a") == b"1"
    assert told[2:] == [f"{'/'.join(url.split('/')[:3])}: the storage answers again"]


def test_one_that_says_nothing_is_told_of_while_it_is_waited_for(
    told: list[str], s3: tuple[str, Proxy]
) -> None:
    url, proxy = s3
    proxy.fault = lambda method, path: 1.5
    thread = threading.Thread(target=ObjectStorage.at(url).names, args=[""])
    thread.start()
    began = time.monotonic()
    while not told and time.monotonic() - began < PATIENCE:
        time.sleep(0.01)
    assert thread.is_alive()
    thread.join()
    bucket = re.escape("/".join(url.split("/")[:3]))
    assert re.fullmatch(f"{bucket}: the storage does not answer; it is tried until .*", told[0])
    assert told[1:] == [f"{'/'.join(url.split('/')[:3])}: the storage answers again"]


def test_a_command_says_so(tmp_path: Path) -> None:
    (tmp_path / "none.sql").write_text("")
    address = f"http://127.0.0.1:{free_port()}"
    command = [sys.executable, "-m", "muntin", "run", "none.sql", "--state", "s3://b/a"]
    variables = {**KEYS, "AWS_ENDPOINT_URL": address, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env=os.environ | variables,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    note, error = done.stderr.splitlines()
    assert note.startswith(f"note: s3://b: the storage does not answer at {address}: nobody lis")
    assert error.startswith("error: s3://b/a/lease cannot be read: the storage does not answer at")
