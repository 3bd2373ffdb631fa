"""Groups are found as RE2 numbers them, whatever else the expression holds."""

from __future__ import annotations

import pytest

from muntin.logs.regexes import group_names, groups, portable


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        (r"(?P<a>x)(y)(?<b>z)", ["a", None, "b"]),
        (r"(?:x)(?i)(?P<a>(y))", ["a", None]),
        (r"\((?P<a>[^)(]+)\)", ["a"]),
        (r"[](](?P<a>x)[^](]", ["a"]),
        (r"[[:alpha:](](?P<a>\pN)", ["a"]),
        (r"\Q(a)\E(?P<a>x)\z", ["a"]),
        (r"\\(?P<a>x)", ["a"]),
        (r"\(?<(?P<priority>\d+)>", ["priority"]),
    ],
)
def test_groups(pattern: str, names: list[str | None]) -> None:
    assert groups(pattern) == names
    numbers = {name: number for number, name in enumerate(names, start=1) if name}
    assert group_names(pattern) == numbers


def test_both_ways_to_name_a_group() -> None:
    assert portable(r"(?<a>x)(?P<b>y)\(?<z>[(?<c>]") == r"(?P<a>x)(?P<b>y)\(?<z>[(?<c>]"


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        (r"(?P<a>x", "missing"),
        (r"(?P<a>x)(?=y)", r"\(\?="),
        (r"(?P<a>x)\1", r"\\1"),
        (r"(?P<a>x)(?P<A>y)", "two groups 'A'"),
    ],
)
def test_refused(pattern: str, message: str) -> None:
    with pytest.raises(ValueError, match=f"the regular expression.*{message}"):
        group_names(pattern)
