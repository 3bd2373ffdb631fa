"""Keys as bytes: equal keys have equal bytes in every process, so that they can be merged.

A key is written member by member, without regard to which members are one object or in which order
a set was filled. Objects are written as what pickle would make them from. Keys of different types
differ: 1 is not 1.0. A class that says itself what is equal is refused, as bytes cannot know.
"""

from __future__ import annotations

import copyreg
import io
import pickle
import sys
from collections.abc import Callable, Hashable, Iterable
from dataclasses import fields, is_dataclass
from decimal import Decimal
from types import BuiltinFunctionType, FunctionType
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
    if kind in _WRITERS:
        return _WRITERS[kind](key)
    return _object(key)


def decode_key(data: bytes) -> Any:
    tag, body = data[:1], data[1:]
    if tag == b"s":
        return body.decode("utf-8", "surrogatepass")
    if tag in _CONSTANTS:
        return _CONSTANTS[tag]
    return _READERS[tag](body)


def group_key(key: Any) -> Hashable:
    """Something cheap that tells keys of one process apart as their bytes do."""
    return key if type(key) is str else encode_key(key)


def encoded(group: Hashable) -> bytes:
    """The bytes of a key, from what `group_key` made of it."""
    return encode_key(group) if type(group) is str else group  # type: ignore[return-value]


def _joined(tag: bytes, members: Iterable[bytes]) -> bytes:
    members = list(members)
    return tag + b",".join(b"%d" % len(member) for member in members) + b":" + b"".join(members)


def _members(body: bytes) -> list[Any]:
    told, _, rest = body.partition(b":")
    members, at = [], 0
    for size in map(int, told.split(b",") if told else ()):
        members.append(decode_key(rest[at : at + size]))
        at += size
    return members


def _decimal(key: Decimal) -> bytes:
    """Without zeros at the end, which make no difference to what is equal."""
    sign, digits, exponent = key.as_tuple()
    if not isinstance(exponent, int):
        return b"D" + str(key).encode()
    text = "".join(map(str, digits)).lstrip("0")
    short = text.rstrip("0")
    exponent += len(text) - len(short)
    return (
        b"D%s%se%d" % (b"-" * (sign and bool(short)), short.encode(), exponent) if short else b"D0"
    )


def _read_decimal(body: bytes) -> Decimal:
    number = Decimal(body.decode())
    exponent = number.as_tuple().exponent
    if isinstance(exponent, int) and 0 < exponent <= _ZEROS:
        return Decimal(int(number))
    return number


def _object(key: Any) -> bytes:
    """What makes the object: a function or class, its arguments, and what is set afterwards."""
    kind = type(key)
    if isinstance(key, type | FunctionType | BuiltinFunctionType):
        return b"p" + _named(key)
    _check_equality(kind)
    reduce = copyreg.dispatch_table.get(kind)
    made = reduce(key) if reduce is not None else key.__reduce_ex__(4)
    if isinstance(made, str):
        return b"p" + _named(key)
    make, args, state, items, pairs = (*made, None, None, None)[:5]
    if is_dataclass(kind) and isinstance(state, dict):  # not what it only remembers
        state = {field.name: state[field.name] for field in fields(kind) if field.name in state}
    rest = [state, list(items or ()), list(pairs or ())]
    data = _joined(b"o", map(encode_key, (make, args, *rest)))
    decode_key(data)  # what cannot be read again is not taken
    return data


def _made(body: bytes) -> Any:
    make, args, state, items, pairs = _members(body)
    instance = make(*args)
    if state is not None:
        _set(instance, state)
    for item in items:
        instance.append(item)
    for name, value in pairs:
        instance[name] = value
    return instance


def _set(instance: Any, state: Any) -> None:
    if hasattr(instance, "__setstate__"):
        instance.__setstate__(state)
        return
    named, slots = state if isinstance(state, tuple) and len(state) == 2 else (state, None)
    for name, value in {**(named or {}), **(slots or {})}.items():
        object.__setattr__(instance, name, value)


def _check_equality(kind: type) -> None:
    owner = next(each for each in kind.__mro__ if "__eq__" in vars(each))
    equal = vars(owner)["__eq__"]
    library = owner.__module__.partition(".")[0] in sys.stdlib_module_names - {"__main__"}
    if not isinstance(equal, FunctionType) or library:
        return
    told = f"keys cannot be of class {kind.__name__}"
    wanted = "expected text, numbers, tuples, named tuples or frozen dataclasses"
    file = equal.__code__.co_filename
    if not (file.startswith("<attrs ") or (is_dataclass(owner) and file == "<string>")):
        raise TypeError(f"{told}, which has an __eq__ of its own; {wanted}")
    if is_dataclass(owner) and not all(field.compare for field in fields(owner)):
        raise TypeError(f"{told}, which has fields that do not count (compare=False); {wanted}")


def _named(target: Any) -> bytes:
    """The name that pickle finds it by; without memory, so that equal names are equal bytes."""
    buffer = io.BytesIO()
    pickler = pickle.Pickler(buffer, 4)
    pickler.fast = True
    pickler.dump(target)
    return buffer.getvalue()


def _mapping(key: dict[Any, Any]) -> bytes:
    return _joined(b"m", sorted(encode_key(item) for item in key.items()))


_ZEROS = 30  # of a large decimal are written out, rather than an exponent
_CONSTANTS: dict[bytes, Any] = {b"n": None, b"t": True, b"f": False}
_WRITERS: dict[type, Callable[[Any], bytes]] = {
    tuple: lambda key: _joined(b"(", map(encode_key, key)),
    list: lambda key: _joined(b"[", map(encode_key, key)),
    frozenset: lambda key: _joined(b"{", sorted(map(encode_key, key))),
    set: lambda key: _joined(b"<", sorted(map(encode_key, key))),
    dict: _mapping,
    bytes: lambda key: b"b" + key,
    Decimal: _decimal,
}
_READERS: dict[bytes, Callable[[bytes], Any]] = {
    b"i": int,
    b"d": float,
    b"(": lambda body: tuple(_members(body)),
    b"[": _members,
    b"{": lambda body: frozenset(_members(body)),
    b"<": lambda body: set(_members(body)),
    b"m": lambda body: dict(_members(body)),
    b"b": bytes,
    b"D": _read_decimal,
    b"o": _made,
    b"p": pickle.loads,
}
