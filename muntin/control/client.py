"""A running program from elsewhere: the same orders and results, from Python.

Loads nothing that takes long: a command that pauses a job is done in a moment.
"""

from __future__ import annotations

import http.client
import json
import ssl
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode, urlsplit

from muntin.control.access import token_in
from muntin.control.address import Address, address_of, not_running
from muntin.errors import (
    ConflictError,
    InputError,
    LanguageError,
    MuntinError,
    OrderError,
    StateError,
    WireError,
)
from muntin.store.storage import Place, Storage, storage_of
from muntin.units import window_meant

if TYPE_CHECKING:
    from muntin.ask.answering import PastRows

_SECONDS = 60.0  # in which something comes; a service gives a sign of life every 15
_AGAIN = 1.0  # seconds after which a follower who was cut off comes back, where it is full
_KINDS: dict[str, type[MuntinError]] = {"order": OrderError, "state": StateError, "wire": WireError}


@dataclass(frozen=True)
class JobState:
    """A job as it runs: its version, its text, and the values of its parameters."""

    job: str
    stream: str
    version: int
    paused: bool
    windows: tuple[str, ...]
    columns: tuple[str, ...]
    parameters: Mapping[str, str]
    text: str


@dataclass(frozen=True)
class Change:
    """What became of an order, and from which position on it holds; without one, everywhere.

    `by` says for which windows: those that `start` there or later, or those that `end` later.
    """

    does: str
    job: str
    version: int
    begin: datetime | int | None
    by: str

    def __str__(self) -> str:
        told = f"job '{self.job}' is {self.does}, version {self.version}"
        if self.begin is None:
            return told
        begin = self.begin
        at = f"{begin:,}" if isinstance(begin, int) else f"{begin:%Y-%m-%d %H:%M:%S} UTC"
        which = f"start at {at} or later" if self.by == "start" else f"end after {at}"
        return f"{told}: for windows that {which}"


@dataclass(frozen=True)
class Answer:
    """A result: the rows of a job for one window, and how complete they are.

    One without a score takes back what there was. `id` is where to go on from, with `follow`.
    """

    id: str
    job: str
    version: int
    window: str
    start: datetime | int
    end: datetime | int
    revision: int
    emitted_at: datetime
    records: Mapping[str, int]
    c2: Mapping[str, Any] | None
    rows: tuple[Mapping[str, Any], ...]
    used: tuple[Mapping[str, Any], ...] = ()
    """The results that it is made with: `job`, `window`, `end` and `version` of each."""

    def to_pandas(self) -> Any:
        import pyarrow as pa

        return pa.Table.from_pylist([dict(row) for row in self.rows]).to_pandas()


def connect(where: Place, token: str | None = None) -> Client:
    """A client of the program that uses a state, or whose service has an address.

    The token of a program on this machine is read from its file, if that can be read.
    """
    if isinstance(where, str) and where.startswith(("http://", "https://")):
        client = Client(where, token)
    else:
        state = storage_of(where)
        address = address_of(state)
        if token is None and address.token is not None:
            token = token_in(Path(address.token))
        client = Client(address.url, token, state, address)
    client.process  # noqa: B018  somebody answers, and is who is meant
    return client


class Client:
    """Asks one service, from any thread. Nothing stays open between two calls."""

    def __init__(
        self,
        url: str,
        token: str | None = None,
        state: Storage | None = None,
        address: Address | None = None,
    ) -> None:
        """`state` and `address` are those that were found, to tell a program from the next."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InputError(f"'{url}' is no address; say for example http://127.0.0.1:7080")
        self.url = url.rstrip("/")
        self.state = state
        self._parts = parts
        self._address = address
        self._headers = {"content-type": "application/json", "connection": "close"}
        if token is not None:
            self._headers["authorization"] = f"Bearer {token}"

    # What there is.

    @property
    def process(self) -> int:
        """The process that answers."""
        return int(self.status()["process"])

    def status(self) -> dict[str, Any]:
        """How jobs and sources are doing."""
        return self._ask("GET", "/status")

    def jobs(self) -> list[JobState]:
        return [_job(told) for told in self._ask("GET", "/jobs")["jobs"]]

    def job(self, job: str) -> JobState:
        return _job(self._ask("GET", f"/jobs/{quote(job)}"))

    def streams(self) -> dict[str, list[str]]:
        """The columns of each stream."""
        found: dict[str, list[str]] = self._ask("GET", "/jobs")["streams"]
        return found

    def latest(self, job: str, window: str | None = None) -> list[Answer]:
        """The newest result of each of a job's windows, from the memory of the program.

        Or of one of them, by its name or length, as `1 hour`; an InputError if there is none.
        """
        answers = self._answers(job, "latest")
        if window is None:
            return answers
        windows = [each.window for each in answers]
        if window not in windows:
            with suppress(MuntinError):  # it does not run any more
                windows = list(dict.fromkeys([*windows, *self.job(job).windows]))
        meant = window_meant(window, windows)
        if meant is None:
            there = ", ".join(f"'{each}'" for each in windows) or "none"
            raise InputError(f"job '{job}' has no window '{window}'; there are: {there}")
        return [each for each in answers if each.window == meant]

    def results(self, job: str) -> list[Answer]:
        """All results of a job."""
        return self._answers(job, "all")

    def _answers(self, job: str, window: str) -> list[Answer]:
        told = self._ask("GET", f"/jobs/{quote(job)}/results?window={window}")
        return [_answer(each) for each in told["results"]]

    def ask(self, text: str) -> PastRows:
        """The answer to a question about the past, from the memory of the program."""
        from muntin.ask.parcels import ARROW, unpacked

        return unpacked(self._sent_back("POST", "/ask", {"text": text}, {"accept": ARROW}))

    def explain(self, text: str) -> str:
        """What would be read to answer a question."""
        return str(self._ask("POST", "/ask", {"text": text, "explain": True})["explain"])

    def follow(self, job: str, after: str | None = None, start: bool = False) -> Iterator[Answer]:
        """Results as they are committed, until the program stops: each once, none left out.

        Behind the one whose id is `after`, from the `start`, or from now on. A connection that
        breaks is made anew.
        """
        while True:
            connection = self._connection()
            try:
                for event in self._events(connection, job, after, start):
                    if event is None:
                        return
                    after = event.id
                    yield event
            finally:
                connection.close()

    def _events(
        self, connection: http.client.HTTPConnection, job: str, after: str | None, start: bool
    ) -> Iterator[Answer | None]:
        """What comes until the connection breaks; None is the end of the program."""
        headers = self._headers | ({} if after is None else {"last-event-id": after})
        query = urlencode({"from": "start" if start else "now"})
        response = self._sent(
            connection, "GET", f"/jobs/{quote(job)}/events?{query}", None, headers
        )
        if response.status == 503 and after is not None:  # others have taken the place meanwhile
            response.read()
            time.sleep(_AGAIN)
            return
        if response.status != 200:
            raise self._refused(response, response.read(), {})
        kind = ""
        while True:
            try:
                line = response.readline().decode()
            except (OSError, http.client.HTTPException):
                return
            if not line:
                return
            if line.startswith("event: "):
                kind = line.removeprefix("event: ").strip()
            elif line.startswith("data: ") and kind == "end":
                yield None
            elif line.startswith("data: "):
                yield _answer(json.loads(line.removeprefix("data: ")))

    # What is to be.

    def sql(self, text: str, expected: Mapping[str, int] | None = None) -> list[Change]:
        """Does what statements say: all of it or nothing.

        `expected` are versions that jobs have; a ConflictError says that one is another.
        """
        return self._order("POST", "/sql", {"text": text, "expected": dict(expected or {})})

    def create(self, text: str) -> list[Change]:
        """CREATE JOB."""
        return self._order("POST", "/jobs", {"text": text})

    def replace(
        self, job: str, text: str, at: str | None = None, expected: int | None = None
    ) -> list[Change]:
        """Another version of a job, from the text that creates it, at the next window or pane."""
        body = {"text": text, "at": at, "expected": expected}
        return self._order("PUT", f"/jobs/{quote(job)}", body)

    def drop(self, job: str, expected: int | None = None) -> list[Change]:
        return self._order("DELETE", f"/jobs/{quote(job)}", {"expected": expected})

    def pause(self, job: str, expected: int | None = None) -> list[Change]:
        return self._order("POST", f"/jobs/{quote(job)}/pause", {"expected": expected})

    def resume(self, job: str, expected: int | None = None) -> list[Change]:
        return self._order("POST", f"/jobs/{quote(job)}/resume", {"expected": expected})

    def reset(self, job: str, expected: int | None = None) -> list[Change]:
        """Empties a job's windows."""
        return self._order("POST", f"/jobs/{quote(job)}/reset", {"expected": expected})

    def set(
        self, job: str, parameter: str, value: object, expected: int | None = None
    ) -> list[Change]:
        """Gives a parameter of a job another value."""
        if value is not None and not isinstance(value, str | bool | int | float):
            raise InputError(
                f"parameter '{parameter}' of job '{job}': a value is a number, a text, True, False "
                f"or None, not a {type(value).__name__}; `set_sql` takes any constant of SQL"
            )
        path = f"/jobs/{quote(job)}/parameters/{quote(parameter)}"
        return self._order("PUT", path, {"value": value, "expected": expected})

    def set_sql(self, job: str, parameter: str, value: str) -> list[Change]:
        """The same with a constant as SQL has it."""
        path = f"/jobs/{quote(job)}/parameters/{quote(parameter)}"
        return self._order("PUT", path, {"sql": value})

    def _order(self, method: str, path: str, body: dict[str, Any]) -> list[Change]:
        kept = {name: value for name, value in body.items() if value is not None or name == "value"}
        return [_change(told) for told in self._ask(method, path, kept)["effects"]]

    # The wire.

    def _ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        content = self._sent_back(method, path, body)
        try:
            told: dict[str, Any] = json.loads(content)
        except ValueError:
            raise WireError(self._another()) from None
        return told

    def _sent_back(
        self,
        method: str,
        path: str,
        body: dict[str, Any] | None = None,
        more: Mapping[str, str] | None = None,
    ) -> bytes:
        """What a request is answered with; the error, where it is refused."""
        data = None if body is None else json.dumps(body).encode()
        connection = self._connection()
        try:
            headers = self._headers | dict(more or {})
            response = self._sent(connection, method, path, data, headers)
            content = response.read()
        except (OSError, http.client.HTTPException) as error:
            raise WireError(f"{self.url} has broken off its answer: {error}") from error
        finally:
            connection.close()
        if response.status >= 300:
            raise self._refused(response, content, body or {})
        return content

    def _connection(self) -> http.client.HTTPConnection:
        host, port = self._parts.hostname or "", self._parts.port
        if self._parts.scheme == "https":
            context = ssl.create_default_context()
            return http.client.HTTPSConnection(host, port, timeout=_SECONDS, context=context)
        return http.client.HTTPConnection(host, port, timeout=_SECONDS)

    def _sent(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        path: str,
        data: bytes | None,
        headers: dict[str, str],
    ) -> http.client.HTTPResponse:
        try:
            connection.request(method, self._parts.path.rstrip("/") + path, data, headers)
            response = connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            raise WireError(self._unreached(error)) from error
        process = response.headers.get("muntin-process")
        wanted = None if self._address is None else str(self._address.process)
        if process is None or (wanted is not None and process != wanted):
            raise WireError(self._another())
        return response

    def _unreached(self, error: Exception) -> str:
        if self.state is not None and self._address is not None:
            return not_running(self.state, self._address)
        reason = getattr(error, "strerror", None) or error
        return f"{self.url} does not answer: {reason}; see whether the program runs there"

    def _another(self) -> str:
        if self.state is not None:
            return f"{not_running(self.state, self._address)} (something else is at {self.url} now)"
        return f"what answers at {self.url} is no service of Muntin's"

    def _refused(
        self, response: http.client.HTTPResponse, content: bytes, body: dict[str, Any]
    ) -> MuntinError:
        """The error that the program has raised, as far as it can be told."""
        try:
            error = json.loads(content)["error"]
            kind, message = error["kind"], error["message"]
        except (ValueError, KeyError, TypeError):
            return WireError(f"{self.url} has refused it: {response.status} {response.reason}")
        if kind == "language" and isinstance(body.get("text"), str):
            return LanguageError(error["reason"], body["text"], error["start"], error["end"])
        if kind == "conflict":
            return ConflictError(error["job"], error["version"], error["expected"])
        return _KINDS.get(kind, InputError)(message)


def _job(told: dict[str, Any]) -> JobState:
    return JobState(**told | {name: tuple(told[name]) for name in ("windows", "columns")})


def _change(told: dict[str, Any]) -> Change:
    begin = told["from"]
    at = _moment(begin) if isinstance(begin, str) else begin
    return Change(told["does"], told["job"], told["version"], at, told["by"])


def _answer(told: dict[str, Any]) -> Answer:
    times = {name: _moment(told[name]) for name in ("start", "end", "emitted_at")}
    used = tuple(each | {"end": _moment(each["end"])} for each in told["used"])
    return Answer(**told | times | {"rows": tuple(told["rows"]), "used": used})


def _moment(told: str | int) -> Any:
    """A time, or a count; years beyond the calendar stay texts."""
    if isinstance(told, int):
        return told
    try:
        return datetime.fromisoformat(told)
    except ValueError:
        return told
