"""What differs between two states of nested mappings, as a value that can be written and applied.

Keys are texts, numbers or tuples of them. What is not a mapping is a leaf, compared as a whole; a
leaf is never changed in place.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from typing import Any

Document = dict[Any, Any]
Patch = dict[str, list[Any]]
_ABSENT = object()


def difference(known: Document, now: Mapping[Any, Any]) -> Patch:
    """What has to be changed in `known` so that it is as `now`. It is changed, too.

    Mappings of `now` are copied, so that they may change afterwards.
    """
    changed: list[Any] = []
    inside: list[Any] = []
    for key, value in now.items():
        before = known.get(key, _ABSENT)
        if isinstance(value, dict):
            if not isinstance(before, dict):
                before = known[key] = {}
            elif before == value:
                continue
            inside.append((key, difference(before, value)))
        elif before is not value and before != value:
            known[key] = value
            changed.append((key, value))
    gone = [key for key in known if key not in now] if len(known) > len(now) else []
    for key in gone:
        del known[key]
    changes = {"set": changed, "gone": gone, "in": inside}
    return {name: change for name, change in changes.items() if change}


def apply(document: Document, patch: Patch) -> None:
    """Makes the changes of a patch that was read."""
    for key in patch.get("gone", ()):
        del document[_key(key)]
    for key, value in patch.get("set", ()):
        document[_key(key)] = value
    for key, inner in patch.get("in", ()):
        if not isinstance(document.get(_key(key)), dict):
            document[_key(key)] = {}
        apply(document[_key(key)], inner)


def encode(patch: Patch) -> bytes:
    """As compressed JSON; leaves that are dataclasses become lists of what is in their fields."""
    text = json.dumps(patch, separators=(",", ":"), default=_listed)
    return zlib.compress(text.encode(), 1)


def decode(data: bytes) -> Patch:
    patch: Patch = json.loads(zlib.decompress(data))
    return patch


def _listed(leaf: Any) -> list[Any]:
    return [getattr(leaf, name) for name in leaf.__dataclass_fields__]


def _key(key: Any) -> Any:
    return tuple(key) if isinstance(key, list) else key
