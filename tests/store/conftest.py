"""Storages for the tests of everything that is stored."""

from tests.store.s3 import s3, s3_port

__all__ = ["s3", "s3_port"]
