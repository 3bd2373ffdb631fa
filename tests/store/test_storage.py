"""Where a state may be, what a folder can do, and what is no place for a state."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from muntin.errors import InputError, StateError
from muntin.store.objects import ObjectStorage
from muntin.store.storage import LocalFolder, place_of, storage_of


def test_a_place_is_a_folder_or_a_url(tmp_path: Path) -> None:
    folder = LocalFolder(tmp_path)
    assert storage_of(tmp_path) == storage_of(str(tmp_path)) == storage_of(folder) == folder
    assert storage_of(f"file://{tmp_path}") == folder
    assert storage_of("s3://bucket/a/").where() == "s3://bucket/a"
    assert storage_of("gs://bucket/a") == ObjectStorage("gs://bucket/a")
    assert place_of("s3://bucket/a") == "s3://bucket/a"
    assert place_of(Path()) == str(Path.cwd())


@pytest.mark.parametrize(
    ("place", "told"),
    [
        ("hdfs:///a", "is no place for a state: give hdfs://HOST:PORT/PATH, with the address of"),
        ("hdfs://host:8020/", "is no place for a state"),
        ("hdfs://host:port/a", "is no place for a state"),
        ("ftp://host/a", "is no place for a state; give a folder, or s3://BUCKET/PATH"),
        ("s3://", "is no place for a state"),
    ],
)
def test_other_places_are_refused(place: str, told: str) -> None:
    with pytest.raises(InputError, match=told):
        storage_of(place)


def test_files_of_a_folder(tmp_path: Path) -> None:
    folder = LocalFolder(tmp_path / "new")
    assert (folder.names(""), folder.folders(""), folder.size("a")) == ([], [], None)
    folder.put("b/c", b"12")
    assert folder.append("b/c", b"3") == 3
    assert folder.within("b").read("c") == b"123"
    assert (folder.names("b"), folder.folders(""), folder.sizes("")) == (["c"], ["b"], {"b/c": 3})
    with pytest.raises(StateError, match=r"none cannot be written: No such file"):
        folder.append("none", b"1")
    with pytest.raises(StateError, match=r"none cannot be read: No such file"):
        folder.read("none")
    with pytest.raises(TypeError), folder.output("d") as path:
        path.write_bytes("no bytes")  # type: ignore[arg-type]
    folder.remove(["b/c", "none"])
    assert folder.sizes("") == {}
    assert folder.above("a/b") == ["a/b", "a", "", ".."]
    folder.sync(folder.above("b"))


def test_a_folder_is_the_same_one_for_whoever_works_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    sent = pickle.dumps(LocalFolder(Path("state")))
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    assert pickle.loads(sent).path() == tmp_path / "state"
