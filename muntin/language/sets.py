"""ROLLUP, CUBE and GROUPING SETS as the sets of keys that they stand for."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, combinations, product

from sqlglot import exp

Keys = list[exp.Expr]
MOST_SETS = 256


def key_sets(group: exp.Expr) -> list[Keys]:
    """The sets of keys that a GROUP BY names, in its order; one where it has plain keys alone."""
    parts = [_sets(node) for node in group.expressions]
    return [list(chain(*chosen)) for chosen in product(*parts)]


def count_sets(group: exp.Expr) -> int:
    """How many sets there are, told before they are made."""
    count = 1
    for node in group.expressions:
        count *= _count(node)
    return count


def _count(node: exp.Expr) -> int:
    if isinstance(node, exp.GroupingSets):
        return sum(map(_count, node.expressions))
    if isinstance(node, exp.Rollup):
        return len(node.expressions) + 1
    return 1 << len(node.expressions) if isinstance(node, exp.Cube) else 1


def _sets(node: exp.Expr) -> list[Keys]:
    if isinstance(node, exp.GroupingSets):
        return [keys for each in node.expressions for keys in _sets(each)]
    parts = [_keys(each) for each in node.expressions]
    if isinstance(node, exp.Rollup):
        return [list(chain(*parts[:count])) for count in range(len(parts), -1, -1)]
    if isinstance(node, exp.Cube):
        return [list(chain(*chosen)) for chosen in _subsets(parts)]
    return [_keys(node)]


def _subsets(parts: Sequence[Keys]) -> list[tuple[Keys, ...]]:
    counts = range(len(parts), -1, -1)
    return [chosen for count in counts for chosen in combinations(parts, count)]


def _keys(node: exp.Expr) -> Keys:
    if isinstance(node, exp.Tuple):
        return [key for each in node.expressions for key in _keys(each)]
    return _keys(node.this) if isinstance(node, exp.Paren) else [node]
