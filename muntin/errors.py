"""Every error a user can meet, in one tree.

MuntinError
├── LanguageError    a query that cannot be understood; points at the place
├── InputError       log files that are missing, unreadable or not as described
│   └── BadRowError  a row that does not parse where the stream says ON BAD ROW FAIL
├── BlockError       bytes that are not a block this version can read
├── CodeError        Python of a job or an aggregate that is missing or of another form
├── EngineError      DuckDB refused a generated statement
│   └── BadValueError   values in it are to blame: no number, too large, divided by zero
├── OrderError       an order that a running program cannot follow; nothing has changed
│   └── ConflictError   a job is of another version than its writer believed
├── SparkError       Spark that has ended, or whose tasks fail
│   ├── LostError    what a batch needs of executors is gone; it can be made again
│   └── StartError   Spark that cannot be started or reached
├── StateError       a state folder that cannot be read, written or continued
│   └── StorageError    because the storage that it is on does not answer, or lets nobody in
└── WireError        an agent that cannot be reached, or says what cannot be understood
"""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from muntin.model.streams import Stream

_JOINERS = "\u200c\u200d"  # of letters


class MuntinError(Exception):
    """The root: catching it catches every error Muntin raises on purpose."""


class LanguageError(MuntinError):
    """A mistake in SQL text: the message, then the line with a caret under the place."""

    def __init__(self, message: str, text: str, start: int, end: int | None = None) -> None:
        self.message, self.start, self.end = message, start, end or start + 1
        self.streams: tuple[Stream, ...] = ()  # those defined before the mistake
        self.line, self.column = _line_and_column(text, start)
        self._excerpt = _excerpt(text, self.line, self.column, self.end - start)
        super().__init__(f"line {self.line}, column {self.column}: {message}\n{self._excerpt}")


class InputError(MuntinError):
    """Log files that are missing, unreadable or not as the stream describes them."""


class BadRowError(InputError):
    """A row that does not parse, in a stream declared ON BAD ROW FAIL."""


class BlockError(MuntinError):
    """Bytes that are not a block, or a block of another version."""


class CodeError(MuntinError):
    """Python of a job or an aggregate that cannot be found, sent or called."""


class EngineError(MuntinError):
    """DuckDB refused a statement: what was being done, why, and the statement."""

    def __init__(self, doing: str, reason: str, sql: str) -> None:
        self.doing, self.reason, self.sql = doing, reason, sql
        super().__init__(f"{doing}: {reason}" + (f"\nThe statement was:\n{sql}" if sql else ""))

    def __reduce__(self) -> tuple[type[EngineError], tuple[str, str, str]]:
        return (type(self), (self.doing, self.reason, self.sql))


class BadValueError(EngineError):
    """DuckDB refused values that a statement was given; the statement is not worth a look."""


class OrderError(MuntinError):
    """An order to a running program that was refused: it goes on as it was."""


class ConflictError(OrderError):
    """Somebody has changed a job since its writer looked: its version is another one."""

    def __init__(self, job: str, version: int | None, expected: int) -> None:
        self.job, self.version, self.expected = job, version, expected
        there = "there is none" if version is None else f"it is at version {version}"
        wanted = "no such job" if not expected else f"version {expected}"
        super().__init__(
            f"job '{job}': {wanted} was expected, but {there}; look at it, then try again"
        )


class SparkError(MuntinError):
    """Spark cannot be started or reached, has ended, or has failed."""


class LostError(SparkError):
    """What executors held is gone, or they did not reach what they had to read.

    Everything since the last commit can be done again.
    """

    def __init__(self, why: str, advice: str) -> None:
        self.why = why
        super().__init__(f"{why}; {advice}")


class StartError(SparkError):
    """Spark cannot be started or reached, as things are."""


class StateError(MuntinError):
    """A state folder that cannot be read, written or continued."""


class StorageError(StateError):
    """A state whose storage does not answer, or refuses: nothing is wrong with the state."""


class WireError(MuntinError):
    """An agent, relay or pipeline that cannot be reached, or a message that is none."""


def _line_and_column(text: str, start: int) -> tuple[int, int]:
    before = text[:start]
    return before.count("\n") + 1, start - (before.rfind("\n") + 1) + 1


def _excerpt(text: str, line: int, column: int, width: int) -> str:
    """The line with carets under the place, also after tabs and wide characters."""
    shown = text.split("\n")[line - 1].rstrip("\r")
    before, place = shown[: column - 1], shown[column - 1 :][:width]
    blank = "".join("\t" if char == "\t" else " " * _width(char) for char in before)
    carets = "^" * max(1, sum(map(_width, place)))
    number = f"{line} | "
    return f"  {number}{shown}\n  {' ' * (len(number) - 2)}| {blank}{carets}"


def _width(char: str) -> int:
    """How many places of a terminal a character takes."""
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def as_text(name: str) -> str:
    """A text that may name files, in which bytes that are not UTF-8 become `\\xe9`."""
    try:
        data = name.encode(errors="surrogateescape")
    except UnicodeEncodeError:  # halves of characters that are no bytes of a name
        data = name.encode(errors="backslashreplace")
    return data.decode(errors="backslashreplace")


def harmless(text: str) -> str:
    """The text without characters that would do something to a terminal."""
    return "".join(c if _is_seen(c) else ascii(c)[1:-1] for c in text)


def _is_seen(char: str) -> bool:
    return char.isprintable() or char in _JOINERS or unicodedata.category(char) == "Zs"
