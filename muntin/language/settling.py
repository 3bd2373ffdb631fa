"""The types of columns that depend on themselves, as those of a job do that looks back at its rows.

A type is what the statement gives the column if the rows of before have that type already. It is
looked for from below: first nothing is known of the rows of before, then all but the column itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from muntin.errors import LanguageError

UNKNOWN = "NULL"  # the type of a value of which nothing is known
_LOOKS = 4
Types = dict[str, str]  # by column
Look = Callable[[Mapping[str, str]], Types]
"""The types that columns have where those of before had these; raises a LanguageError."""


class UnsettledError(Exception):
    """The type of a column is another one with each look."""

    def __init__(self, column: str, before: str, now: str) -> None:
        super().__init__(f"{column}: {before}, then {now}")
        self.column, self.before, self.now = column, before, now


def settled(names: Iterable[str], look: Look) -> Types:
    """The types of columns with which a look gives the same again; or an UnsettledError."""
    types = look(dict.fromkeys(names, UNKNOWN))
    for _ in range(_LOOKS):
        known = {name: _apart(name, types, look) for name in types}
        if known == types:
            break
        types = known
    before = types
    for _ in range(_LOOKS):
        before, types = types, look(types)
        if types == before:
            return types
    name = next(name for name, kind in types.items() if before.get(name) != kind)
    raise UnsettledError(name, before.get(name, UNKNOWN), types[name])


def _apart(name: str, types: Types, look: Look) -> str:
    """The type of a column if nothing is known of it before, but of the others."""
    try:
        return look({**types, name: UNKNOWN}).get(name, types[name])
    except LanguageError:  # those of the others do not fit yet
        return types[name]
