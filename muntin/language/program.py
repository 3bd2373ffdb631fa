"""Text to a program, with the columns of undeclared streams taken from their logs."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

from muntin.errors import InputError
from muntin.kernel.engine import literal, quote
from muntin.kernel.python.code import reference_of
from muntin.language.check import Clauses, check
from muntin.language.orders import Ordered, orders_of
from muntin.language.python import Python
from muntin.logs.infer import infer_columns
from muntin.model.jobs import Program
from muntin.model.records import Column
from muntin.model.streams import Stream
from muntin.wire.client import Client, ask_any
from muntin.wire.keys import Keys


def sql(text: str, folder: str | Path | None = None, keys: Keys | None = None) -> Program:
    """The streams and jobs that a text of SQL defines; Python is looked for in the folder too.

    With `keys`, agents are asked for what the text leaves to them.
    """
    agents = _Agents(Client(keys))
    python = Python(str(folder) if folder is not None else None)
    return check(text, agents.columns_of, python=python, settings_of=agents.settings_of)


def orders(
    text: str,
    program: Program,
    paused: Collection[str] = (),
    folder: str | Path | None = None,
    keys: Keys | None = None,
) -> Ordered:
    """What a text asks of a program that runs; Python in the folder is read anew."""
    agents = _Agents(Client(keys))
    python = Python(str(folder) if folder is not None else None, anew=True)
    return orders_of(text, program, paused, agents.columns_of, agents.settings_of, python)


class _Agents:
    """Knows what texts leave to logs, or to the agents that read them."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def columns_of(self, stream: Stream) -> tuple[Column, ...]:
        if not stream.agents:
            return infer_columns(stream)
        what = f"the columns of stream '{stream.name}'"
        return ask_any(stream.agents, lambda address: self._client.columns(address, stream), what)

    def settings_of(self, stream: str, agents: tuple[str, ...]) -> Clauses:
        what = f"the format of stream '{stream}'"
        return ask_any(agents, lambda address: self._client.settings(address, stream), what)


def load(path: str | Path, keys: Keys | None = None) -> Program:
    """The streams and jobs that a file of SQL defines, with Python from the file's folder."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        at = f"byte {error.start + 1:,}"
        raise InputError(f"{path} is not UTF-8 text, from {at} on; save it as UTF-8") from error
    return sql(text, Path(path).absolute().parent, keys)


def with_job(
    program: Program,
    name: str,
    job: type,
    *,
    stream: str,
    where: str | None = None,
    window: str | None = None,
) -> Program:
    """The program and one more job, a class of Python over one of its streams.

    `where` and `window` are SQL, as after these words. Without `window` the class says it.
    """
    reference = reference_of(job)
    clauses = f" WHERE {where}" if where is not None else ""
    clauses += f" WINDOW {window}" if window is not None else ""
    text = f"CREATE JOB {quote(name)} AS PYTHON {literal(reference)} FROM {quote(stream)}{clauses}"
    known: dict[str, Any] = {reference: job}
    python, tables = Python(known=known), program.tables
    return check(text, infer_columns, program.streams, python, program.jobs, tables)
