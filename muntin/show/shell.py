"""A shell for statements to a program that runs, and for questions about results of its jobs.

Orders go to the program. `SELECT` is answered here (`questions`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

import pyarrow as pa
from rich.console import Console, JustifyMethod
from rich.table import Table
from rich.text import Text
from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import Token, TokenType

from muntin.control.client import Client
from muntin.errors import InputError, LanguageError, MuntinError, as_text
from muntin.language.dialect import ORDERS, Muntin
from muntin.language.messages import nearest
from muntin.show.jobs import draw
from muntin.show.questions import Question
from muntin.show.terminal import console, fits, messages
from muntin.show.values import cell_text, is_number, score_text
from muntin.store.export import values_of
from muntin.store.results import Results
from muntin.store.storage import Place

# Words with which statements begin that are no orders.
_ASKS = ("SELECT", "WITH", "FROM", "DESCRIBE", "SUMMARIZE", "VALUES", "PIVOT")
_HERE = (*_ASKS, "SHOW", "HELP", "EXIT", "QUIT")
_ORDERS = ("CREATE", "DROP", *ORDERS, "SET")
_WORDS = (
    "CREATE JOB", "CREATE OR REPLACE JOB", "CREATE STREAM", "CREATE TABLE", "DROP JOB",
    "PAUSE JOB", "RESUME JOB", "RESET JOB", "SET", "AT NEXT WINDOW", "AT NEXT PANE", "SELECT",
    "FROM", "WHERE", "GROUP BY", "ORDER BY", "LIMIT", "WINDOW", "EVERY", "WITHIN", "FIDELITY",
    "LATEST", "SHOW JOBS", "SHOW STREAMS", "HELP", "EXIT",
)  # fmt: skip
_HELP = """\
CREATE JOB …; CREATE OR REPLACE JOB … AT NEXT WINDOW; DROP, PAUSE, RESUME or RESET JOB name;
SET job.parameter = value;      orders to the program
SELECT … FROM job;              over the results that it has stored
SELECT … FROM LATEST(job);      over the newest; of several windows, LATEST(job, 1 HOUR)
SHOW JOBS; SHOW STREAMS;        what runs, and what it reads
EXIT; or Ctrl-D                 leaves, and the program goes on"""
_ROWS = 1000  # of an answer that are shown


class Shell:
    """Does what statements say, one after another."""

    def __init__(self, connect: Callable[[], Client], state: Place | None, out: TextIO) -> None:
        """`connect` is called when a program is needed; `state` has results, if it is here."""
        self._connect = connect
        self._state = state
        self._client: Client | None = None
        self._console: Console = console(out)

    @property
    def client(self) -> Client:
        self._client = self._client or self._connect()
        return self._client

    def do(self, text: str) -> bool:
        """Does a text; False if it asks to leave. What is refused raises a MuntinError."""
        for is_order, start, end in _parts(text):
            statement = text[start:end]
            words = statement.upper().rstrip("; \n").split()
            if is_order:
                # Blanks in the place of what was done before: errors are told at their places.
                before = "".join(c if c == "\n" else " " for c in text[:start])
                for change in self.client.sql(before + statement):
                    self._console.print(Text(str(change)), soft_wrap=True)
            elif words in (["EXIT"], ["QUIT"]):
                return False
            elif words == ["HELP"]:
                self._console.print(_HELP, soft_wrap=True)
            elif words == ["SHOW", "JOBS"]:
                draw(self.client.jobs(), self._console)
            elif words == ["SHOW", "STREAMS"]:
                streams = self.client.streams()
                columns = [", ".join(names) for names in streams.values()]
                self._draw(pa.table({"stream": list(streams), "columns": columns}))
            elif words[0] == "SHOW":
                message = "expected SHOW JOBS or SHOW STREAMS; DESCRIBE tells the columns of a job"
                raise LanguageError(message, text, start, end)
            else:
                self._draw(self._answer(text, start, end))
        return True

    def _answer(self, text: str, start: int, end: int) -> pa.Table:
        """The answer to a question about results."""
        if self._state is None:
            message = "SELECT reads the results in a state folder"
            raise InputError(f"{message}; give --state of a program on this machine, not --url")
        return Question(text, start, end).answer(Results(self._state))

    def _draw(self, rows: pa.Table) -> None:
        """A table; where that is too wide, one line a column. Nothing is cut."""
        some, types = rows.slice(0, _ROWS), rows.schema.types
        cells = [
            [_cell(value, kind) for value, kind in zip(row, types, strict=True)]
            for row in zip(*map(values_of, some.columns), strict=True)
        ]
        table = Table(header_style="bold")
        for field in rows.schema:
            side: JustifyMethod = "right" if is_number(field.type) else "left"
            table.add_column(Text(field.name), justify=side, no_wrap=True)
        for row in cells:
            table.add_row(*map(Text, row))
        if fits(table, self._console):
            self._console.print(table)
        else:
            self._list(rows.column_names, cells)
        if rows.num_rows > _ROWS:
            more = f"{rows.num_rows - _ROWS:,} more rows; LIMIT, or `muntin results` has them"
            self._console.print(more, soft_wrap=True)

    def _list(self, names: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        width = max(map(len, names))
        for row in rows:
            for name, cell in zip(names, row, strict=True):
                line = Text.assemble((f"{name:>{width}}", "bold"), "  ", cell)
                self._console.print(line, soft_wrap=True)
            self._console.print()

    # With somebody at the keyboard.

    def interact(self) -> None:
        """Takes statements until somebody leaves; what is refused is told, and nothing ends."""
        told = messages()
        self._console.print(f"muntin at {self.client.url}; HELP; tells what can be said")
        with _lines(self._completions):
            pending = ""
            while True:
                try:
                    line = input("muntin> " if not pending else "   ...> ")
                except EOFError:
                    self._console.print()
                    return
                except KeyboardInterrupt:
                    self._console.print()
                    pending = ""
                    continue
                pending = f"{pending}\n{line}" if pending else line
                if not is_whole(pending) and pending.strip().upper() not in ("EXIT", "QUIT"):
                    continue
                text, pending = pending, ""
                try:
                    if not self.do(text):
                        return
                except MuntinError as error:
                    words = as_text(str(error))
                    told.print(Text.assemble(("error:", "bold red"), " ", words), soft_wrap=True)

    def _completions(self, begun: str) -> list[str]:
        """What a word that was begun may become: keywords, jobs, streams, columns."""
        names: list[str] = []
        with suppress(MuntinError):  # Tab is no place to say that the program has gone
            for job in self.client.jobs():
                names += [job.job, *job.columns]
            for stream, columns in self.client.streams().items():
                names += [stream, *columns]
        every = dict.fromkeys([*sorted(set(names)), *_WORDS])
        return [word for word in every if word.lower().startswith(begun.lower())]


def _cell(value: object, kind: pa.DataType) -> str:
    if isinstance(value, dict) and {"area", "reason"} <= value.keys():
        return score_text({name: value[name] for name in ("area", "reason")})
    return cell_text(value, kind)


def is_whole(text: str) -> bool:
    """Whether a text ends with a statement's semicolon, and not within quotes or a comment."""
    try:
        tokens = Muntin().tokenize(text)
    except TokenError:  # something is open
        return False
    return not tokens or tokens[-1].token_type is TokenType.SEMICOLON


def _parts(text: str) -> Iterator[tuple[bool, int, int]]:
    """Where the statements of a text are; orders that follow each other are one part of it.

    These are done all or none. What cannot be cut is left to the program to refuse.
    """
    try:
        tokens = Muntin().tokenize(text)
    except TokenError:
        yield True, 0, len(text)
        return
    begun: tuple[int, int] | None = None  # a part of orders
    for first, last in _statements(tokens):
        word = text[first.start : last.end + 1].split()[0].upper()
        if word not in (*_HERE, *_ORDERS):
            hint = nearest(word, (*_HERE, *_ORDERS), "")
            message = f"unknown statement '{word}'; {hint}; HELP tells what can be said"
            raise LanguageError(message, text, first.start, first.end + 1)
        if word not in _HERE:
            begun = (first.start if begun is None else begun[0]), last.end + 1
            continue
        if begun is not None:
            yield True, *begun
            begun = None
        yield False, first.start, last.end + 1
    if begun is not None:
        yield True, *begun


def _statements(tokens: Sequence[Token]) -> Iterator[tuple[Token, Token]]:
    """The first and the last token of each."""
    first = last = None
    for token in tokens:
        if token.token_type is not TokenType.SEMICOLON:
            first, last = first or token, token
        elif first is not None and last is not None:
            yield first, last
            first = last = None
    if first is not None and last is not None:
        yield first, last


@contextmanager
def _lines(completions: Callable[[str], list[str]]) -> Iterator[None]:
    """Lines are typed with history and completion, where there is a readline."""
    import readline

    found: list[str] = []

    def complete(begun: str, number: int) -> str | None:
        if number == 0:
            found[:] = completions(begun)
        return found[number] if number < len(found) else None

    file = _history()
    with suppress(OSError):  # there is none yet
        readline.read_history_file(file)
    readline.set_history_length(1000)
    readline.set_completer(complete)
    readline.set_completer_delims(" \t\n,;()=<>+-*/'\"")
    readline.parse_and_bind("tab: complete")
    try:
        yield
    finally:
        readline.set_completer(None)
        with suppress(OSError):  # a history that cannot be kept is no reason to fail
            file.parent.mkdir(parents=True, exist_ok=True)
            readline.write_history_file(file)


def _history() -> Path:
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "muntin" / "history"
