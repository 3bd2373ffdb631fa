"""Statistics keep their precision where sums of squares lose it, in any pieces."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from muntin.kernel.statistics import OF_TWO, STATISTICS
from tests.kernel.asking import asked

LARGE = [1_700_000_000_000 + n for n in (3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8)]
OTHER = [n * n % 7 + n / 3 for n in range(len(LARGE))]
NUMBERS = sorted(set(STATISTICS) - {"bit_and", "bit_or", "bit_xor", "product", "geomean"})


def in_duckdb(call: str, values: list[int]) -> float:
    rows = ", ".join(f"({x}, {y})" for x, y in zip(values, OTHER, strict=True))
    row = duckdb.execute(f"SELECT {call} FROM (VALUES {rows}) t(x, y)").fetchone()
    assert row is not None
    return float(row[0])


@pytest.mark.parametrize("pieces", [1, 3, 12])
@pytest.mark.parametrize("name", NUMBERS)
def test_times_in_milliseconds_have_a_spread(tmp_path: Path, name: str, pieces: int) -> None:
    call = f"{name}(x, y)" if name in OF_TWO else f"{name}(x)"
    found = asked(tmp_path, call, list(zip(LARGE, OTHER, strict=True)), pieces)
    assert found == pytest.approx(in_duckdb(call, LARGE), rel=1e-3)  # of the numbers' own precision


@pytest.mark.parametrize("kind", ["UTINYINT", "INTEGER", "BIGINT", "HUGEINT"])
@pytest.mark.parametrize("name", ["bit_and", "bit_or", "bit_xor"])
def test_bits_of_every_type_of_integer(tmp_path: Path, name: str, kind: str) -> None:
    values, call = [7, 3, 11, 15, 2], f"{name}(CAST(x AS {kind}))"
    found = asked(tmp_path, call, [(x, 0.0) for x in values], pieces=2)
    row = duckdb.execute(f"SELECT {call} FROM unnest({values}) t(x)").fetchone()
    assert row is not None
    assert found == row[0]
