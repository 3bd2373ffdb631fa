"""HDFS as a storage of objects: whole files or none, one winner, and nodes that go."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pytest
from hdfs_native import Client, WriteOptions

from muntin.errors import InputError, StateError
from muntin.store import delta, objects
from muntin.store.checkpoint import Checkpoint
from muntin.store.hdfs import _client
from muntin.store.lease import Lease
from muntin.store.objects import ObjectStorage
from muntin.store.results import Results
from muntin.store.storage import storage_of
from tests.ports import free_port
from tests.store.hdfs import Server, serving
from tests.store.test_checkpoint import advanced, first

ROWS = pa.table({"window_name": ["w"], "window_start": [0], "window_end": [1]})


@pytest.fixture
def own_server() -> Iterator[Server]:
    """One that the test may kill."""
    with serving() as server:
        yield server
    objects._opened.cache_clear()
    _client.cache_clear()


def raw(url: str) -> tuple[Client, str]:
    """The file system, and the path of a state in it."""
    server, slash, path = url.removeprefix("hdfs://").partition("/")
    return Client(f"hdfs://{server}"), slash + path


def files(url: str) -> list[str]:
    client, path = raw(url)
    every = client.list_status(path, recursive=True)
    return sorted(each.path.removeprefix(f"{path}/") for each in every if not each.isdir)


def test_what_is_half_written_is_seen_by_nobody_and_swept_by_the_next(hdfs: str) -> None:
    code = (
        "import sys, time; from muntin.store.storage import storage_of\n"
        "from hdfs_native import FileWriter\n"
        "FileWriter.close = lambda self: (print('now', flush=True), time.sleep(600))\n"
        "storage_of(sys.argv[1]).put('streams/s/blocks.tape', b'half')"
    )
    command = [sys.executable, "-c", code, hdfs]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=Path.cwd()) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.kill()
    (left,) = files(hdfs)
    assert left.startswith("streams/s/.blocks.tape.")
    storage = ObjectStorage.at(hdfs)
    assert (storage.names("streams/s"), storage.sizes("")) == ([], {})
    Lease(storage, alone=True).close()
    assert left in files(hdfs)  # as it may still be written
    Lease(storage, lambda: time.time() + 3600, alone=True).close()
    assert left not in files(hdfs)


OURS = (
    f".lease.{uuid4().hex}.tmp",
    f"streams/s/panes/.1.arrow.{uuid4().hex}.tmp",
    f"results/j/.part-1.parquet.{uuid4().hex}.tmp",
    "results/j/.part-00001-c000.snappy.parquet.tmp",  # as deltalake leaves them
    "results/j/_delta_log/.0.json.tmp",
    "results/j/_delta_log/.0.json.tmp.1",
)
OF_OTHERS = (
    ".part-1.parquet.tmp",
    ".vimrc.tmp",
    f"mail/.box.{uuid4().hex}.tmp",
    "mail/results/_delta_log/.0.json.tmp",
    "results/j/.hidden",
    "results/j/.notes.tmp",
    f"results/j/whole.{uuid4().hex}.tmp",
    f"spark/s/offsets/.1.{uuid4()}.tmp",
)


def leave(url: str, names: Iterable[str], seconds: float) -> None:
    """Has files there that were written some time ago."""
    client, path = raw(url)
    at = int(1000 * (time.time() - seconds))
    for name in names:
        client.create(f"{path}/{name}", WriteOptions(overwrite=True)).close()
        client.set_times(f"{path}/{name}", at, at)


def test_who_takes_a_state_sweeps_what_is_old_and_ours_alone(hdfs: str) -> None:
    storage = ObjectStorage.at(hdfs)
    leave(hdfs, OURS, seconds=60)
    leave(hdfs, OF_OTHERS, seconds=100_000)
    Lease(storage, alone=True).close()
    assert {*files(hdfs)} > {*OURS, *OF_OTHERS}
    leave(hdfs, OURS, seconds=700)
    Lease(storage, alone=True).close()
    assert {name for name in files(hdfs) if not name.startswith("lease")} == {*OF_OTHERS}


def test_a_run_sweeps_what_its_tasks_have_left(hdfs: str) -> None:
    checkpoint, saved, results = Checkpoint(hdfs, "s"), first(), Results(hdfs)
    checkpoint.load()
    results.prepare({"j": ROWS.schema})
    left = [name for name in OURS if "/" in name]
    for seconds, stays in ((1800, left), (4000, [])):
        leave(hdfs, left, seconds)
        checkpoint.save(advanced(saved, 1), whole=True, anew=True)
        assert list(results.compact(["j"])) == []
        assert [name for name in left if name in files(hdfs)] == stays
    assert results.has("j")


def test_folders_are_listed_whatever_they_are_called(hdfs: str) -> None:
    storage, names = ObjectStorage.at(hdfs), [".x.tmp", "x.202601011230"]
    for name in names:
        storage.put(f"results/{name}/a", b"1")
        leave(hdfs, [name], seconds=0)
    assert (storage.folders("results"), storage.names("")) == (names, [])


def test_who_is_swept_while_writing_writes_again(
    hdfs: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage, rename, swept = ObjectStorage.at(hdfs), Client.rename, list[str]()

    def late(self: Client, src: str, dst: str, overwrite: bool = False) -> None:
        if not swept:
            swept.append(src)
            ObjectStorage.at(hdfs).sweep([], time.time() + 60)
        rename(self, src, dst, overwrite)

    monkeypatch.setattr(Client, "rename", late)
    storage.put("a", b"1")
    assert swept
    assert files(hdfs) == ["a"]


def test_an_answer_that_was_lost_is_no_defeat(hdfs: str, monkeypatch: pytest.MonkeyPatch) -> None:
    storage, rename, lost = ObjectStorage.at(hdfs), Client.rename, [True]

    def losing(self: Client, src: str, dst: str, overwrite: bool = False) -> None:
        rename(self, src, dst, overwrite)
        if lost and lost.pop():
            raise ConnectionResetError(104, "Connection reset by peer")

    monkeypatch.setattr(Client, "rename", losing)
    tag = storage.create("a", b"mine")
    assert tag is not None
    assert not lost
    lost.append(True)
    tag = storage.exchange("a", b"mine too", tag)
    assert tag is not None
    assert storage.create("a", b"another's") is None
    lost.append(True)
    storage.put("b", b"1")
    assert storage.tagged("a") == (b"mine too", tag)
    assert files(hdfs) == ["a", "a.000000000001", "b"]


def test_who_was_asleep_while_others_exchanged_has_lost(
    hdfs: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number that it takes is free again, as it was taken and removed meanwhile."""
    storage, rename, others = ObjectStorage.at(hdfs), Client.rename, list[str]()
    first = storage.create("a", b"0")
    assert first is not None

    def asleep(self: Client, src: str, dst: str, overwrite: bool = False) -> None:
        if not others:
            others.append(dst)
            tag = storage.exchange("a", b"1", first)
            assert tag is not None
            assert storage.exchange("a", b"2", tag) is not None
            assert files(hdfs)[1:] == ["a", "a.000000000002"]  # beside what is being written
        rename(self, src, dst, overwrite)

    monkeypatch.setattr(Client, "rename", asleep)
    assert storage.exchange("a", b"late", first) is None
    found = storage.tagged("a")
    assert found is not None
    assert found[0] == b"2"


def test_of_many_who_exchange_at_once_one_wins_each_time(hdfs: str) -> None:
    storage = ObjectStorage.at(hdfs)
    tag = storage.create("a", b"first")
    for turn in range(5):
        writers = [f"{turn} {writer}".encode() for writer in range(4)]
        with ThreadPoolExecutor(4) as threads:
            tags = list(threads.map(lambda data, t=tag: storage.exchange("a", data, t), writers))
        ((winner, tag),) = [(w, each) for w, each in zip(writers, tags, strict=True) if each]
        assert storage.tagged("a") == (winner, tag)
    assert storage.names("") == ["a"]
    assert len(files(hdfs)) == 2


def test_ranges_of_large_files(hdfs: str) -> None:
    storage, data = ObjectStorage.at(hdfs), os.urandom(20_000_000)
    storage.put("a", data)
    assert storage.read("a") == data
    assert storage.read_range("a", 8_000_000, 17_000_000) == data[8_000_000:17_000_000]
    assert storage.read_range("a", 19_999_999, 30_000_000) == data[-1:]
    assert storage.read_range("a", 30_000_000, 30_000_001) == b""
    with storage.open("a") as file:
        file.seek(-5, 2)
        assert file.read() == data[-5:]


def test_wrong_addresses_are_told_at_once(hdfs: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without asking again, which would come after a pause."""
    monkeypatch.setattr(time, "sleep", lambda seconds: pytest.fail(f"waited for {seconds} s"))
    port = free_port()
    told = f"hdfs://127.0.0.1:{port} cannot be reached: Connection refused; the address is that of"
    with pytest.raises(InputError, match=told):
        storage_of(f"hdfs://127.0.0.1:{port}/a")
    with pytest.raises(InputError, match=r"hdfs://nobody.invalid:8020 cannot be reached: "):
        storage_of("hdfs://nobody.invalid:8020/a")
    with pytest.raises(InputError, match="No NameNode hosts found; give hdfs://HOST:PORT/PATH, or"):
        storage_of("hdfs://cluster/a").names("")
    for path in ("a b", "größe", "a%41"):
        with pytest.raises(InputError, match=r"tables on HDFS cannot be in folders with '.' in"):
            storage_of(f"{hdfs}/{path}")


def test_who_may_not_write_is_told_at_once(hdfs: str) -> None:
    client, path = raw(hdfs)
    client.mkdirs(path, 0o755, create_parent=True)
    code = "import sys; from muntin.store.hold import locked\nwith locked(sys.argv[1]): pass"
    environment = {**os.environ, "HADOOP_USER_NAME": "somebody"}
    command, began = [sys.executable, "-c", code, hdfs], time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    told = (
        "state/lease cannot be written: HDFS refuses it: Permission denied: user=somebody, access="
    )
    assert told in done.stderr.splitlines()[-1]
    assert time.monotonic() - began < 20


@pytest.mark.jvm
def test_nodes_that_go_and_come_back_are_waited_for(
    own_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(objects, "SECONDS", 3.0)
    storage = ObjectStorage.at(f"{own_server.url}/state")
    place = storage.within("results/j")
    delta.create(place, ROWS.schema, {})
    for number, kill in enumerate((own_server.kill_name_node, own_server.kill_data_node)):
        name = delta.write_file(place, ROWS.schema, number, [ROWS])
        assert name is not None
        kill()
        back = threading.Timer(2.0, own_server.start)
        back.start()
        assert delta.add_files(place, [name], "writer", number) == number + 1
        back.join()
        kill()
        back = threading.Timer(2.0, own_server.start)
        back.start()
        assert storage.create(f"a{number}", b"1") is not None
        back.join()
    assert delta.last_batch(place, "writer") == 1
    assert storage.read("a0") == storage.read("a1") == b"1"


@pytest.mark.jvm
def test_nodes_that_do_not_come_back_are_told(own_server: Server) -> None:
    storage = ObjectStorage(f"{own_server.url}/state", patience=2)
    storage.put("a", b"1")
    place = storage.within("results/j")
    delta.create(place, ROWS.schema, {})
    with own_server.stopped():
        began = time.monotonic()
        with pytest.raises(
            StateError, match=rf"a cannot be read: {own_server.url} does not answer"
        ):
            storage.read("a")
        assert time.monotonic() - began < 10
    assert storage.read("a") == b"1"
    own_server.kill_data_node()
    with pytest.raises(
        StateError, match=r"state/a cannot be read: HDFS says All DataNodes failed$"
    ):
        storage.read("a")
    with pytest.raises(StateError, match=r"results/j cannot be used: .*one of its DataNodes: data"):
        delta.snapshot(place)
    own_server.kill_name_node()
    with pytest.raises(StateError, match=r"state/b cannot be written: .* cannot be reached: "):
        storage.put("b", b"1")
    with pytest.raises(StateError, match=r"cannot be used: .*HDFS \(Connection refused\)"):
        delta.snapshot(place)
    own_server.start()
    assert storage.read("a") == b"1"
    assert delta.snapshot(place).files == ()
