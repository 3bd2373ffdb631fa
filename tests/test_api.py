"""Options given from Python are checked before anything starts."""

from __future__ import annotations

from pathlib import Path

import pytest

import muntin as mt
from muntin.api import is_latest
from muntin.errors import InputError


def test_windows_to_read_are_the_latest_or_all() -> None:
    assert (is_latest("latest", "window"), is_latest("all", "window")) == (True, False)
    with pytest.raises(InputError, match="window is 'latest' or 'all', not 'last'"):
        mt.results("job", window="last")


def test_results_that_are_not_there_are_told(tmp_path: Path) -> None:
    with pytest.raises(mt.MuntinError, match="job"):
        mt.results("job", tmp_path)
