"""The kinds of value that JSON lines have in their fields, and which of them are odd.

A structure is what DuckDB's `json_structure` says of a line: its fields with their types. Objects
without fields are called JSON there.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

Path = tuple[str, ...]  # names of fields, from the outermost object on
_FEW = 4  # values, of which one may be odd


def is_most(some: int, total: int) -> bool:
    """Whether so many of all values say what a column is: nine in ten, or all but one of a few."""
    others = total - some
    return some > 0 and (10 * others <= total or (others == 1 and total >= _FEW))


def odd_fields(structures: Mapping[str, int]) -> dict[str, list[Path]]:
    """By structure, the fields whose values are not of the kind that most others are.

    `structures` says how many lines have which. Where no kind is that of most, none is odd.
    """
    odd: dict[str, list[Path]] = defaultdict(list)
    lines = [(json.loads(text), count, text) for text, count in structures.items()]
    for text, path in _odd(lines, ()):
        odd[text].append(path)
    return dict(odd)


def without(line: str, paths: Sequence[Path]) -> str:
    """A line with null for some of its fields."""
    with suppress(ValueError, RecursionError):
        whole = json.loads(line)
        for *outer, last in paths:
            inner = whole
            for name in outer:
                inner = inner[name]
            inner[last] = None
        return json.dumps(whole)
    return line


def _odd(lines: Sequence[tuple[Any, int, str]], path: Path) -> Iterator[tuple[str, Path]]:
    fields: dict[str, list[tuple[Any, int, str]]] = defaultdict(list)
    for value, count, text in lines:
        for name, inner in value.items() if isinstance(value, dict) else ():
            if inner != "NULL":
                fields[name].append((inner, count, text))
    for name, values in fields.items():
        counts: Counter[str] = Counter()
        for inner, count, _ in values:
            counts[_kind(inner)] += count
        kind, most = counts.most_common(1)[0]
        if is_most(most, counts.total()):
            yield from ((text, (*path, name)) for v, _, text in values if _kind(v) != kind)
        objects = [value for value in values if isinstance(value[0], dict)]
        if objects and kind == "object":
            yield from _odd(objects, (*path, name))


def _kind(value: Any) -> str:
    if isinstance(value, dict) or value == "JSON":
        return "object"
    if isinstance(value, list):
        return "array"
    return {"VARCHAR": "text", "BOOLEAN": "truth"}.get(value, "number")
