"""Storages for whole runs."""

from tests.store.s3 import s3_port

__all__ = ["s3_port"]
