"""Values of our types as bytes, and back.

msgspec works out how a type is decoded when it first meets it, and keeps that with the type before
it is complete: two threads that do so at once end the process. So it is done by one at a time.
"""

from __future__ import annotations

from threading import Lock
from typing import Any, TypeVar

import msgspec

_Value = TypeVar("_Value")
_one_at_a_time = Lock()
_json: dict[Any, msgspec.json.Decoder[Any]] = {}
_msgpack: dict[Any, msgspec.msgpack.Decoder[Any]] = {}


def from_json(data: bytes, kind: type[_Value]) -> _Value:
    """The value; raises what msgspec does if it is none of this kind."""
    decoder = _json.get(kind)
    if decoder is None:
        with _one_at_a_time:
            decoder = _json[kind] = msgspec.json.Decoder(kind)
    value: _Value = decoder.decode(data)
    return value


def from_msgpack(data: bytes | memoryview, kind: type[_Value]) -> _Value:
    """The same of bytes that are no text."""
    decoder = _msgpack.get(kind)
    if decoder is None:
        with _one_at_a_time:
            decoder = _msgpack[kind] = msgspec.msgpack.Decoder(kind)
    value: _Value = decoder.decode(data)
    return value
