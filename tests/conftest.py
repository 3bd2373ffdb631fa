"""One Spark session for all tests that need one, and hypothesis without deadlines.

Where CI is set, examples are the same in every run: what lands depends on the change alone.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

settings.register_profile(
    "muntin",
    deadline=None,
    derandomize="CI" in os.environ,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("muntin")


@pytest.fixture(autouse=True)
def looking_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small windows go the ways of large ones."""
    monkeypatch.setattr("muntin.kernel.consolidate.WORTH_LOOKING_AHEAD", 0)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    from pyspark.sql import SparkSession

    from muntin.spark.context import start_context

    session = SparkSession(start_context("local[2]"))
    yield session
    session.stop()
