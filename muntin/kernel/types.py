"""Types of DuckDB as text, taken apart: what lists, structs and maps are made of."""

from __future__ import annotations

from collections.abc import Callable, Iterator

_OPEN, _CLOSE = "([", ")]"


def mapped(kind: str, leaf: Callable[[str], str]) -> str:
    """The type with others in place of those that it is made of; arrays become lists."""
    if kind.endswith("]"):
        return f"{mapped(kind[: kind.rindex('[')], leaf)}[]"
    if kind.startswith("STRUCT(") and kind.endswith(")"):
        fields = (_named(field) for field in _split(kind[len("STRUCT(") : -1]))
        return f"STRUCT({', '.join(f'{name} {mapped(of, leaf)}' for name, of in fields)})"
    if kind.startswith("MAP(") and kind.endswith(")"):
        return f"MAP({', '.join(mapped(of, leaf) for of in _split(kind[len('MAP(') : -1]))})"
    return leaf(kind)


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
