"""Versions of code: the same in every process, and another when the code would answer otherwise.

Looked at are the text of a class, and the functions, classes and values that its methods refer to,
by closure or by name, as far as they are the user's own. Pickles would not do: those of the same
class differ from process to process, and a restart would find no state of its job.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from hashlib import sha256
from types import CodeType, FunctionType, ModuleType
from typing import Any

from muntin.kernel.python.keys import encode_key

Own = Callable[[ModuleType], bool]
_DEEPEST = 50  # references after references


def digest(target: Any, is_own: Own) -> str:
    hashed = sha256()
    for token in _Walk(is_own).tokens(target, 0):
        hashed.update(b"%d:" % len(token))
        hashed.update(token)
    return hashed.hexdigest()[:12]


class _Walk:
    def __init__(self, is_own: Own) -> None:
        self._is_own = is_own
        self._seen: dict[int, Any] = {}  # by identity; kept, so that no identity is used again

    def tokens(self, target: Any, depth: int) -> Iterator[bytes]:
        if depth > _DEEPEST or id(target) in self._seen:
            return
        if isinstance(target, staticmethod | classmethod):
            target = target.__func__
        if isinstance(target, property):
            for each in (target.fget, target.fset):
                yield from self.tokens(each, depth + 1)
        elif isinstance(target, FunctionType | type):
            self._seen[id(target)] = target
            yield f"{target.__module__}:{target.__qualname__}".encode()
            if self._is_mine(target):
                yield from (
                    self._function(target, depth)
                    if isinstance(target, FunctionType)
                    else self._class(target, depth)
                )
        elif isinstance(target, ModuleType):
            yield target.__name__.encode()
        else:
            yield from self._value(target, depth)

    def _is_mine(self, target: Any) -> bool:
        module = sys.modules.get(target.__module__ or "")
        return module is None or self._is_own(module) or "<locals>" in target.__qualname__

    def _class(self, target: Any, depth: int) -> Iterator[bytes]:
        yield _text(target)
        for base in target.__bases__:
            yield from self.tokens(base, depth + 1)
        for name, value in sorted(vars(target).items()):
            if name not in _MACHINERY:
                yield name.encode()
                yield from self.tokens(value, depth + 1)

    def _function(self, target: FunctionType, depth: int) -> Iterator[bytes]:
        yield from _instructions(target.__code__)
        closed = [_content(cell) for cell in target.__closure__ or ()]
        used = [target.__globals__[n] for n in _names(target.__code__) if n in target.__globals__]
        for value in (target.__defaults__, target.__kwdefaults__, *closed, *used):
            yield from self.tokens(value, depth + 1)

    def _value(self, target: Any, depth: int) -> Iterator[bytes]:
        """Plain values by what they are, others by their class and what they hold."""
        try:
            yield encode_key(target)
            return
        except Exception:  # what cannot be written may still be looked into
            self._seen[id(target)] = target
        yield from self.tokens(type(target), depth + 1)
        held = (
            target.items() if isinstance(target, dict) else getattr(target, "__dict__", {}).items()
        )
        for name, value in held:
            yield str(name).encode() if isinstance(name, str | int) else b""
            yield from self.tokens(value, depth + 1)
        if isinstance(target, list | tuple):
            for value in target:
                yield from self.tokens(value, depth + 1)


_MACHINERY = {"__dict__", "__weakref__", "__doc__", "__module__", "__qualname__", "__slotnames__",
              "__firstlineno__", "__static_attributes__", "__abstractmethods__", "_abc_impl",
              "__annotations__", "__annotate__", "__parameters__", "__orig_bases__"}  # fmt: skip


def _text(target: Any) -> bytes:
    try:
        return inspect.getsource(target).encode()
    except (OSError, TypeError):
        return b""


def _instructions(code: CodeType) -> Iterator[bytes]:
    """What a function does, without where it is written."""
    yield code.co_code
    yield encode_key((code.co_names, code.co_varnames, code.co_freevars))
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _instructions(constant)
        elif constant is not Ellipsis:
            yield encode_key(constant)


def _names(code: CodeType) -> list[str]:
    inner = [name for c in code.co_consts if isinstance(c, CodeType) for name in _names(c)]
    return sorted({*code.co_names, *inner})


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not filled yet
        return None
