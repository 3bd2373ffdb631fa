"""Text to a program, with the columns of undeclared streams taken from their logs."""

from __future__ import annotations

from pathlib import Path

from muntin.errors import InputError
from muntin.language.check import check
from muntin.logs.infer import infer_columns
from muntin.model import Program


def sql(text: str) -> Program:
    """The streams and jobs that a text of SQL defines."""
    return check(text, infer_columns)


def load(path: str | Path) -> Program:
    """The streams and jobs that a file of SQL defines."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 text: {error}") from error
    return sql(text)
