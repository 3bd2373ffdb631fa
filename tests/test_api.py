"""Options given from Python are checked before anything starts."""

from __future__ import annotations

from pathlib import Path

import pytest

import muntin as mt
from muntin.api import is_latest, microseconds_of, seconds_of
from muntin.errors import InputError


def test_durations_are_read_as_on_the_command_line() -> None:
    assert (microseconds_of("1500ms", "slack"), seconds_of("2m", "idle")) == (1_500_000, 120.0)


@pytest.mark.parametrize("text", ["0s", "x", "", "3 parsecs"])
def test_an_option_that_is_no_duration_is_named(text: str) -> None:
    with pytest.raises(InputError, match=r"^idle"):
        seconds_of(text, "idle")


def test_windows_to_read_are_the_latest_or_all() -> None:
    assert (is_latest("latest", "window"), is_latest("all", "window")) == (True, False)
    with pytest.raises(InputError, match="window is 'latest' or 'all', not 'last'"):
        mt.results("job", window="last")


def test_results_that_are_not_there_are_told(tmp_path: Path) -> None:
    with pytest.raises(mt.MuntinError, match="job"):
        mt.results("job", tmp_path)
