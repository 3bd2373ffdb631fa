"""Keys as bytes: equal keys have equal bytes in every process, so that they can be merged.

Plain keys (text, numbers, None and tuples or lists of these) have a form of their own. Others
are pickled, and are equal if their pickles are. Keys of different types differ: 1 is not 1.0.
"""

from __future__ import annotations

import pickle
from collections.abc import Hashable
from typing import Any


def encode_key(key: Any) -> bytes:
    kind = type(key)
    if kind is str:
        return b"s" + str(key).encode("utf-8", "surrogatepass")
    if key is None:
        return b"n"
    if kind is bool:
        return b"t" if key else b"f"
    if kind is int:
        return b"i%d" % key
    if kind is float:
        return b"d" + repr(key + 0.0).encode()
    if kind is tuple or kind is list:
        parts = [encode_key(part) for part in key]
        sizes = b",".join(b"%d" % len(part) for part in parts)
        return (b"(" if kind is tuple else b"[") + sizes + b":" + b"".join(parts)
    return b"p" + pickle.dumps(key, 5)


def decode_key(data: bytes) -> Any:
    tag, body = data[:1], data[1:]
    if tag == b"s":
        return body.decode("utf-8", "surrogatepass")
    if tag in _CONSTANTS:
        return _CONSTANTS[tag]
    if tag == b"i":
        return int(body)
    if tag == b"d":
        return float(body)
    if tag == b"p":
        return pickle.loads(body)
    parts = _parts(body)
    return tuple(parts) if tag == b"(" else parts


def group_key(key: Any) -> Hashable:
    """Something cheap that tells keys of one process apart as their bytes do."""
    return key if type(key) is str else encode_key(key)


def encoded(group: Hashable) -> bytes:
    """The bytes of a key, from what `group_key` made of it."""
    return encode_key(group) if type(group) is str else group  # type: ignore[return-value]


_CONSTANTS: dict[bytes, Any] = {b"n": None, b"t": True, b"f": False}


def _parts(body: bytes) -> list[Any]:
    told, _, rest = body.partition(b":")
    found, at = [], 0
    for size in map(int, told.split(b",") if told else ()):
        found.append(decode_key(rest[at : at + size]))
        at += size
    return found
