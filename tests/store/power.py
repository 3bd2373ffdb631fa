"""What a disk has after the power was cut, at any moment of a program that was traced.

A trace of `strace` is replayed on a model of files and folders which knows what was synced. Nothing
else is sure to be there: names may be missing or there, and what was written may be missing,
there or zeros.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

CALLS = (
    "openat,write,pwrite64,lseek,ftruncate,fsync,fdatasync,rename,renameat,renameat2,link,linkat,"
    "unlink,unlinkat,mkdir,mkdirat,rmdir"
)
Loss = Literal["everything", "contents", "zeros"]
_CALL = re.compile(r"^(\d+) +(\w+)\((.*)\) += (-?\d+)", re.DOTALL)
_TEXT = re.compile(r'"((?:\\x[0-9a-f]{2})*)"')
_HANDLE = re.compile(r"^(\d+|AT_FDCWD)<((?:\\x[0-9a-f]{2})*)>")
_UNFINISHED, _RESUMED = re.compile(r" <unfinished \.\.\.>$"), re.compile(r"<\.\.\. \w+ resumed>")


def command(trace: Path) -> list[str]:
    """What to put before a command to have it traced."""
    return ["strace", "-f", "-y", "-xx", "-s", "10000000", "-e", f"trace={CALLS}", "-o", str(trace)]


@dataclass(frozen=True)
class Call:
    """A system call that was made: its name, what it was given, and what it returned."""

    name: str
    given: str
    returned: int

    @property
    def texts(self) -> list[bytes]:
        return [_bytes(text) for text in _TEXT.findall(self.given)]

    @property
    def handle(self) -> tuple[str, str]:
        """The number of the open file or folder that comes first, and its path."""
        found = _HANDLE.match(self.given)
        assert found is not None, self.given
        return found[1], _bytes(found[2]).decode()

    @property
    def numbers(self) -> list[int]:
        """What was given behind the last text or handle."""
        return [int(number) for number in re.findall(r", (-?\d+)(?=,|$)", self.given)]


def calls(trace: Path) -> Iterator[Call]:
    """The calls of a trace in the order in which they returned, but those that failed."""
    begun: dict[str, str] = {}
    for line in trace.read_text().splitlines():
        process = line.split(" ", 1)[0]
        if _UNFINISHED.search(line):
            begun[process] = _UNFINISHED.sub("", line)
            continue
        if _RESUMED.search(line):
            line = begun.pop(process) + _RESUMED.split(line, maxsplit=1)[1]
        found = _CALL.match(line)
        if found is not None and int(found[4]) >= 0:
            yield Call(found[2], found[3], int(found[4]))


@dataclass
class Node:
    """A file, or a folder, with what is sure to be there of it."""

    data: bytearray = field(default_factory=bytearray)
    synced: bytes = b""
    names: dict[str, Node] | None = None
    synced_names: dict[str, Node] = field(default_factory=dict)

    def sync(self) -> None:
        if self.names is None:
            self.synced = bytes(self.data)
        else:
            self.synced_names = dict(self.names)

    def left(self, loss: Loss) -> bytes:
        if loss == "zeros":
            return self.synced.ljust(len(self.data), b"\0")[: max(len(self.data), len(self.synced))]
        return self.synced

    def restore(self, path: Path, loss: Loss) -> None:
        """Writes what is left after a power cut."""
        if self.names is None:
            path.write_bytes(self.left(loss))
            return
        path.mkdir()
        names = self.synced_names if loss == "everything" else self.names
        for name, node in names.items():
            node.restore(path / name, loss)


class Disk:
    """One folder as a traced program has made it."""

    def __init__(self, root: Path) -> None:
        self._root = str(root)
        self.root = Node(names={})
        self._open: dict[str, tuple[Node, list[int], bool]] = {}  # with the place, and O_APPEND

    def see(self, call: Call) -> bool:
        """Does what a call did; False if it changed nothing here."""
        if call.name in ("write", "pwrite64", "lseek", "ftruncate", "fsync", "fdatasync"):
            number, path = call.handle
            return self._is_here(path) and self._on_open(call, number, path)
        paths = [self._path(call, text) for text in call.texts]
        if not any(map(self._is_here, paths)):
            return False
        if call.name == "openat":
            return self._opened(call, paths[0])
        folder, name = self._place(paths[0])
        if call.name.startswith("mkdir"):
            folder[name] = Node(names={})
        elif call.name.startswith(("unlink", "rmdir")):
            del folder[name]
        else:
            there, new = self._place(paths[1])
            there[new] = folder[name] if call.name.startswith("link") else folder.pop(name)
        return True

    def _opened(self, call: Call, path: str) -> bool:
        node = self._find(path)
        changes = node is None or "O_TRUNC" in call.given
        if node is None:
            assert "O_CREAT" in call.given, call
            folder, name = self._place(path)
            node = folder[name] = Node()
        elif "O_TRUNC" in call.given:
            node.data.clear()
        self._open[str(call.returned)] = node, [0], "O_APPEND" in call.given
        return changes

    def _on_open(self, call: Call, number: str, path: str) -> bool:
        node, place, at_end = self._open[number]
        if call.name in ("fsync", "fdatasync"):
            node.sync()
        elif call.name == "lseek":
            place[0] = call.returned
            return False
        elif call.name == "ftruncate":
            del node.data[call.numbers[-1] :]
        else:
            (data,) = call.texts
            at = call.numbers[-1] if call.name == "pwrite64" else place[0]
            at = len(node.data) if at_end else at
            node.data[at : at + call.returned] = data[: call.returned]
            place[0] = at + call.returned
        return True

    def _path(self, call: Call, text: bytes) -> str:
        name = text.decode()
        if name.startswith("/"):
            return name
        folders = [_bytes(found).decode() for found in re.findall(r"<((?:\\x..)*)>", call.given)]
        return f"{folders[0]}/{name}" if folders else name

    def _is_here(self, path: str) -> bool:
        return path == self._root or path.startswith(f"{self._root}/")

    def _find(self, path: str) -> Node | None:
        node: Node | None = self.root
        for name in path.removeprefix(self._root).strip("/").split("/"):
            if name and node is not None:
                node = (node.names or {}).get(name)
        return node

    def _place(self, path: str) -> tuple[dict[str, Node], str]:
        folder, _, name = path.rpartition("/")
        node = self._find(folder)
        assert node is not None, path
        assert node.names is not None, path
        return node.names, name


def _bytes(text: str) -> bytes:
    return bytes.fromhex(text.replace("\\x", ""))
