"""What people are told where Spark does not start; starting is in tests/show/test_console.py."""

from __future__ import annotations

import pytest

from muntin.spark.gateway import not_started


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("SparkException: Master must start so\n\tat a.b(C)", "Master must start so"),
        ("\tat a\nCaused by: x.Y: closed\nCaused by: java.Z: refused\n\tat d", "refused"),
        ("An error occurred while calling o.\n: java.lang.X: odd\n\tat a.b(C)", "odd"),
        ("java: not found", "java: not found\nSpark needs Java"),
    ],
)  # fmt: skip
def test_why_spark_did_not_start_is_one_sentence(said: str, told: str) -> None:
    assert str(not_started("k8s://a", said)).startswith(f"Spark did not start on k8s://a: {told}")
