"""Types of DuckDB as text, taken apart: what lists, structs and maps are made of, and stored as."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

_AS_TEXT = ("UUID", "JSON", "BIT", "TIME", "TIME_NS", "INTERVAL", '"NULL"')
_OPEN, _CLOSE = "([", ")]"


def stored(kind: str, others: Mapping[str, str] = MappingProxyType({})) -> str:
    """The type a value has inside a block: one that Arrow carries without loss.

    `others` are types that some have in place of that, by the name that a type begins with.
    """
    return mapped(kind, lambda leaf: others.get(leaf.partition("(")[0]) or _stored(leaf))


def _stored(kind: str) -> str:
    if kind in ("HUGEINT", "UHUGEINT"):
        return "DECIMAL(38,0)"
    exotic = kind in _AS_TEXT or kind.startswith(("ENUM", "TIME WITH", "VARCHAR COLLATE"))
    return "VARCHAR" if exotic else kind


def mapped(kind: str, leaf: Callable[[str], str]) -> str:
    """The type with others in place of those that it is made of; arrays become lists."""
    if kind.endswith("]"):
        return f"{mapped(kind[: kind.rindex('[')], leaf)}[]"
    if kind.startswith("STRUCT(") and kind.endswith(")"):
        fields = (_named(field) for field in _split(kind[len("STRUCT(") : -1]))
        return f"STRUCT({', '.join(f'{name} {mapped(of, leaf)}' for name, of in fields)})"
    for outer in ("MAP", "TUPLE"):
        if kind.startswith(f"{outer}(") and kind.endswith(")"):
            inside = _split(kind[len(outer) + 1 : -1])
            return f"{outer}({', '.join(mapped(of, leaf) for of in inside)})"
    return leaf(kind)


def fields_of(kind: str) -> list[tuple[str, str]]:
    """Names and types of what a struct, tuple or map is made of; only those of structs have names.

    Of other types there is nothing.
    """
    outer, _, inside = kind.removesuffix(")").partition("(")
    if outer == "STRUCT":
        named = (_named(field) for field in _split(inside))
        return [(_unquoted(name), of) for name, of in named]
    return [("", of) for of in _split(inside)] if outer in ("MAP", "TUPLE") else []


def _unquoted(name: str) -> str:
    return name[1:-1].replace('""', '"') if name.startswith('"') else name


def _named(field: str) -> tuple[str, str]:
    """The name of a field, quoted as it is, and its type."""
    if not field.startswith('"'):
        name, _, kind = field.partition(" ")
        return name, kind
    end = 1
    while field[end] != '"' or field[end : end + 2] == '""':
        end += 2 if field[end] == '"' else 1
    return field[: end + 1], field[end + 2 :]


def _split(inside: str) -> Iterator[str]:
    """What stands between commas that are in no brackets or quotes."""
    depth, quoted, start = 0, False, 0
    for at, letter in enumerate(inside):
        if letter == '"':
            quoted = not quoted
        elif not quoted:
            depth += (letter in _OPEN) - (letter in _CLOSE)
            if letter == "," and not depth:
                yield inside[start:at].strip()
                start = at + 1
    yield inside[start:].strip()
