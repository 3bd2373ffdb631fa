"""Objects under a URL, on a server that speaks S3: of two writers one wins, and faults are told."""

from __future__ import annotations

import json
import os
import pickle
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from obstore.store import from_url
from pyarrow import parquet

from muntin.errors import InputError, StateError, StorageError
from muntin.store import objects
from muntin.store.buckets import Bucket
from muntin.store.objects import ObjectStorage
from muntin.store.requests import Tag
from tests.store.s3 import Proxy

S3 = tuple[str, Proxy]


def test_what_was_put_is_read_and_listed(url: str) -> None:
    storage = pickle.loads(pickle.dumps(ObjectStorage(url)))
    storage.put("a", b"1")
    storage.put("b/c", b"22")
    storage.put("b/d/e", b"")
    assert (storage.read("a"), storage.within("b").read("c")) == (b"1", b"22")
    assert list(storage.read_all(["b/c", "a", "b/c"])) == [b"22", b"1", b"22"]
    assert (storage.names(""), storage.folders("")) == (["a"], ["b"])
    assert storage.within("b").sizes("") == {"c": 2, "d/e": 0}
    assert (storage.size("b/c"), storage.size("none")) == (2, None)
    with storage.output("b/f") as path:
        path.write_bytes(b"x" * 20_000_000)
    assert storage.size("b/f") == 20_000_000
    with pytest.raises(TypeError), storage.output("b/g") as path:
        path.write_bytes("no bytes")
    assert storage.names("b") == ["c", "f"]
    storage.remove(["a", "b/c", "none"])
    assert storage.names("") == []


def test_of_a_large_file_what_is_needed_is_fetched(s3: S3) -> None:
    url, proxy = s3
    storage, rows = ObjectStorage(url), pa.table({"n": np.random.default_rng(1).random(500_000)})
    with storage.output("t.parquet") as path:
        parquet.write_table(rows, path)
    size = storage.size("t.parquet")
    assert size is not None
    with storage.open("t.parquet") as file:
        assert parquet.read_metadata(file).num_rows == 500_000
        assert file.size() == size
    ranges = [length for method, length in proxy.sent if method == "GET"]
    assert sum(ranges) < size / 10
    with storage.open("t.parquet") as file:
        assert parquet.read_table(file).equals(rows)


def test_of_those_who_create_an_object_one_wins(url: str) -> None:
    storage = ObjectStorage(url)
    for number in range(10):
        with ThreadPoolExecutor(4) as threads:
            writers = [str(writer).encode() for writer in range(4)]
            tags = list(threads.map(lambda data, n=number: storage.create(f"{n}", data), writers))
        (winner,) = [writer for writer, tag in zip(writers, tags, strict=True) if tag]
        assert storage.read(f"{number}") == winner


def test_of_those_who_replace_an_object_one_wins(url: str) -> None:
    storage = ObjectStorage(url)
    first = storage.create("a", b"0")
    assert first is not None
    second = storage.exchange("a", b"1", first)
    assert second is not None
    assert storage.exchange("a", b"2", first) is None
    assert storage.tagged("a") == (b"1", second)
    assert storage.exchange("none", b"2", second) is None


def test_a_storage_that_fails_for_a_while_is_asked_again(s3: S3) -> None:
    url, proxy = s3
    failures = [503, 500, 503, 503]
    proxy.fault = lambda method, path: failures.pop() if failures else None
    storage = ObjectStorage(url)
    storage.put("a", b"1")
    assert not failures
    failures += [503, 503]
    assert storage.read("a") == b"1"
    failures += [500]
    assert storage.names("") == ["a"]


def test_one_that_goes_on_failing_or_stalls_is_told(s3: S3) -> None:
    url, proxy = s3
    storage = ObjectStorage(url, patience=0.5)
    proxy.fault = lambda method, path: 503
    with pytest.raises(StateError, match=r"state/a cannot be written: the storage answers 503 "):
        storage.put("a", b"1")
    proxy.fault = lambda method, path: 2.0
    with pytest.raises(StateError, match=r"state/a cannot be read: the storage does not answer"):
        storage.read("a")
    proxy.fault = lambda method, path: 403
    for refused in (lambda: ObjectStorage(url).read("a"), lambda: ObjectStorage(url).names("")):
        with pytest.raises(StateError, match="the storage refuses these credentials"):
            refused()
    proxy.fault = lambda method, path: None
    with pytest.raises(StateError, match=r"state/a cannot be read: it is not there"):
        ObjectStorage(url).read("a")
    with pytest.raises(StateError, match="there is no such bucket; make one"):
        ObjectStorage("s3://nobodys/state").put("a", b"")
    with pytest.raises(StateError, match="there is no such bucket; make one"):
        ObjectStorage("s3://nobodys/state").names("")


def test_an_answer_that_was_lost_is_no_defeat(s3: S3) -> None:
    url, proxy = s3
    storage, lost = ObjectStorage(url), [Proxy.LOST, Proxy.LOST]
    proxy.fault = lambda method, path: lost.pop() if lost and method == "PUT" else None
    tag = storage.create("a", b"mine")
    assert tag is not None
    assert not lost
    lost.append(Proxy.LOST)
    assert storage.exchange("a", b"mine too", tag) is not None
    assert storage.create("a", b"another's") is None


def test_keys_are_found_in_profiles(
    s3: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config").write_text(
        f"[default]\nregion = eu-west-1\n[profile work]\nregion = us-east-1\n"
        f"endpoint_url = {os.environ['AWS_ENDPOINT_URL']}\n"
    )
    keys = "aws_access_key_id = somebody\naws_secret_access_key = secret\n"
    (tmp_path / "credentials").write_text(f"[work]\n{keys}")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_PROFILE", "work")
    objects._opened.cache_clear()
    ObjectStorage(s3[0]).put("a", b"1")
    assert ObjectStorage(s3[0]).read("a") == b"1"
    monkeypatch.setenv("AWS_PROFILE", "home")
    objects._opened.cache_clear()
    with pytest.raises(InputError, match="AWS_PROFILE is home, but no profile of that name has"):
        ObjectStorage(s3[0]).read("a")


class Silent(BaseHTTPRequestHandler):
    def log_message(self, *args: object) -> None:
        pass


@contextmanager
def google(handler: type[Silent], monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Google's storage, as a handler has it answer; nobody is asked for a token."""
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        key = dict.fromkeys(("client_email", "private_key", "private_key_id"), "")
        told = key | {"gcs_base_url": f"http://127.0.0.1:{server.server_port}"}
        store = from_url(
            "gs://bucket/state",
            config={"service_account_key": json.dumps(told | {"disable_oauth": True})},
            client_options={"allow_http": True},
            retry_config={"max_retries": 0},
        )
        monkeypatch.setattr(objects, "_opened", lambda *_: Bucket("gs://bucket/state", store, {}))
        yield
        server.shutdown()


@pytest.mark.parametrize("status", [401, 403])
def test_credentials_that_google_refuses_are_told_at_once(
    status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    class Handler(Silent):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(status)
            self.send_header("content-length", "0")
            self.end_headers()

        do_HEAD = do_PUT = do_GET  # noqa: N815

    with google(Handler, monkeypatch):
        storage = ObjectStorage("gs://bucket/state")
        for request in (
            lambda: storage.tagged("lease"),
            lambda: storage.put("a", b""),
            lambda: storage.folders("streams"),
            lambda: storage.sizes(""),
        ):
            with pytest.raises(StorageError, match=r"the storage refuses these credentials$"):
                request()
    assert len(asked) == 4


def test_google_is_told_the_number_of_what_is_exchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    """It compares these, and no tags. Nothing that speaks as it does can be installed for tests."""
    asked: list[str | None] = []

    class Handler(Silent):
        def do_PUT(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            asked.append(self.headers["x-goog-if-generation-match"])
            self.send_response(200)
            self.send_header("etag", '"same"')
            self.send_header("x-goog-generation", str(16 + len(asked)))
            self.send_header("content-length", "0")
            self.end_headers()

    with google(Handler, monkeypatch):
        storage = ObjectStorage("gs://bucket/state", patience=5)
        first = storage.create("lease", b"1")
        assert first is not None
        assert storage.exchange("lease", b"2", first) == Tag('"same"', "18")
    assert asked == ["0", "17"]
