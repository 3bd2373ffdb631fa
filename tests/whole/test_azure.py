"""A state on Azure's storage, as its emulator has it: the same rows as in a folder.

Needs `azurite-blob` (from npm) on the PATH, or where AZURITE says.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from email.utils import formatdate
from pathlib import Path

import pytest

from muntin.store import objects
from muntin.store.inspection import check
from muntin.store.lease import Lease
from muntin.store.objects import ObjectStorage
from tests.waiting import wait_for
from tests.whole.test_objects import PROGRAM, rows, write

AZURITE = os.environ.get("AZURITE") or shutil.which("azurite-blob")
ACCOUNT = "devstoreaccount1"  # of every emulator, with a key that everybody knows
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="

pytestmark = pytest.mark.skipif(AZURITE is None, reason="azurite-blob is not installed")


@pytest.fixture
def url(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = int(listening.getsockname()[1])
    words = [str(AZURITE), "--inMemoryPersistence", "--skipApiVersionCheck", "--silent"]
    words += ["--disableTelemetry", "--blobPort", str(port)]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    try:
        wait_for(lambda: is_there(port))
        make_container(port, "box")
        monkeypatch.setenv("AZURE_STORAGE_USE_EMULATOR", "true")
        monkeypatch.setenv("AZURITE_BLOB_STORAGE_URL", f"http://127.0.0.1:{port}")
        objects._opened.cache_clear()
        yield f"abfs://box@{ACCOUNT}.dfs.core.windows.net/some/state"
        objects._opened.cache_clear()
    finally:
        process.kill()
        process.wait()


def is_there(port: int) -> bool:
    with socket.socket() as asking:
        return asking.connect_ex(("127.0.0.1", port)) == 0


def make_container(port: int, name: str) -> None:
    told = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2021-08-06"}
    signed = "PUT" + 12 * "\n" + "".join(f"{key}:{value}\n" for key, value in told.items())
    signed += f"/{ACCOUNT}/{ACCOUNT}/{name}\nrestype:container"
    digest = hmac.new(base64.b64decode(KEY), signed.encode(), hashlib.sha256).digest()
    told["Authorization"] = f"SharedKey {ACCOUNT}:{base64.b64encode(digest).decode()}"
    there = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    there.request("PUT", f"/{ACCOUNT}/{name}?restype=container", headers=told)
    assert there.getresponse().status == 201
    there.close()


@pytest.mark.jvm
def test_a_state_on_azure_is_that_of_a_folder(tmp_path: Path, url: str) -> None:
    logs, folder = tmp_path / "logs", tmp_path / "state"
    (tmp_path / "jobs.sql").write_text(PROGRAM.format(folder=logs))
    for first in (0, 40):  # programs, one after another
        for source in "ab":
            write(logs, source, *range(first, first + 40))
        for state in (str(folder), url):
            words = ["run", str(tmp_path / "jobs.sql"), "--once", "--state", state]
            done = subprocess.run(
                [sys.executable, "-m", "muntin", *words, "--master", "local[1]"],
                capture_output=True, text=True, timeout=300,
            )  # fmt: skip
            assert done.returncode == 0, done.stderr
    for job in ("j", "top"):
        assert rows(url, job) == rows(folder, job) != []
    assert list(check(url)) == []


def test_one_of_two_programs_wins(url: str) -> None:
    storage = ObjectStorage.at(url)
    first = storage.create("a", b"0")
    assert first is not None
    assert storage.create("a", b"1") is None
    second = storage.exchange("a", b"2", first)
    assert second is not None
    assert storage.exchange("a", b"3", first) is None
    assert storage.tagged("a") == (b"2", second)
    lease = Lease(storage, alone=True)
    lease.renew()
    lease.require_there()
    lease.close()
