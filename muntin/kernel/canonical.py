"""Values as blocks compare them: what SQL takes for equal is the same, and in the same order.

Blocks hold what Arrow carries and are cut by hashes of texts, where minus zero is not zero, thirty
days are not a month, and a text has no collation. So keys, and whatever is compared when blocks
merge, are brought to one form where they are computed. Where equal values may be written in
several ways, the smallest spelling is the one that is shown.
"""

from __future__ import annotations

import re

from muntin.kernel.engine import literal
from muntin.kernel.types import fields_of, stored

_COLLATED = "VARCHAR COLLATE "
_BYTES = ("binary", "c", "posix")  # collations of texts that are compared byte by byte
_PLAIN = "C"
_LETTERS = {"nocase": "lower", "noaccent": "strip_accents", "nfc": "nfc_normalize"}
_SEVERAL_FORMS = re.compile(r"\b(DOUBLE|FLOAT|INTERVAL|ENUM)\b")
_SEVERAL_SPELLINGS = re.compile(r"\b(INTERVAL|ENUM)\b")


def canonical_sql(sql: str, kind: str, depth: int = 0) -> str:
    """An expression that is the same for all values that are equal, in the order they have."""
    if kind.startswith(_COLLATED):
        return _collated_sql(sql, kind.removeprefix(_COLLATED))
    if not _SEVERAL_FORMS.search(kind):
        return sql
    if kind in ("DOUBLE", "FLOAT"):
        return f"one_number({sql})"
    if kind == "INTERVAL":
        return f"epoch_us({sql})"
    if kind.startswith("ENUM("):
        return f"CAST(enum_code({sql}) AS INTEGER)"
    return _nested_sql(sql, kind, depth)


def canonical_type(kind: str) -> str:
    """The type that such an expression has in blocks."""
    if kind.startswith(_COLLATED):
        return "VARCHAR"
    return stored(kind, {"INTERVAL": "BIGINT", "ENUM": "INTEGER"})


def is_respelled(kind: str) -> bool:
    """Whether the canonical form of a value is not what people want to see."""
    return kind.startswith(_COLLATED) or _SEVERAL_SPELLINGS.search(kind) is not None


def spelling_sql(sql: str, kind: str) -> str:
    """The value as it is written, to be compared as that."""
    if kind.startswith(_COLLATED):
        return f"(({sql}) COLLATE {_PLAIN})"
    return f"CAST({sql} AS {stored(kind)})" if is_respelled(kind) else sql


def restored_sql(sql: str, kind: str) -> str:
    """The value that a spelling stands for, of its own type and with its collation."""
    if kind.startswith(_COLLATED):
        return f"({sql} COLLATE {kind.removeprefix(_COLLATED)})"
    return f"CAST({sql} AS {kind})" if is_respelled(kind) else sql


def collated(kind: str, collation: str | None) -> str:
    """The type of a text that has a collation."""
    plain = collation is None or collation.lower() in _BYTES
    return kind if plain else f"{_COLLATED}{collation}"


def without_collation(kind: str) -> str:
    """The type alone."""
    return "VARCHAR" if kind.startswith(_COLLATED) else kind


def _collated_sql(sql: str, collation: str) -> str:
    """What DuckDB compares in place of a text: letters first, then a language's own order."""
    names = collation.lower().split(".")
    found = f"(({sql}) COLLATE {_PLAIN})"
    for name in sorted(names, key=lambda name: name not in _LETTERS):
        found = f"{_LETTERS.get(name, f'icu_collate_{name}')}({found})"
    return found


def _nested_sql(sql: str, kind: str, depth: int) -> str:
    each = f"__e{depth}"
    if kind.endswith("]"):
        of_element = canonical_sql(each, kind[: kind.rindex("[")], depth + 1)
        return f"list_transform({sql}, lambda {each}: {of_element})"
    fields = fields_of(kind)
    if kind.startswith("MAP("):
        (_, key), (_, value) = fields
        entry = (
            f"{{'key': {canonical_sql(f'{each}.key', key, depth + 1)}, "
            f"'value': {canonical_sql(f'{each}.value', value, depth + 1)}}}"
        )
        entries = f"list_transform(map_entries({sql}), lambda {each}: {entry})"
        return f"CASE WHEN {sql} IS NOT NULL THEN map_from_entries({entries}) END"
    if kind.startswith("STRUCT("):
        packed = ", ".join(
            f"{literal(name)}: "
            f"{canonical_sql(f'struct_extract({sql}, {literal(name)})', of, depth + 1)}"
            for name, of in fields
        )
        return f"CASE WHEN {sql} IS NOT NULL THEN {{{packed}}} END"
    if kind.startswith("TUPLE("):
        row = ", ".join(
            canonical_sql(f"struct_extract({sql}, {number})", of, depth + 1)
            for number, (_, of) in enumerate(fields, 1)
        )
        return f"CASE WHEN {sql} IS NOT NULL THEN row({row}) END"
    return sql
