"""The command line for a program that runs: `muntin job` and `muntin sql`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from muntin.errors import InputError
from muntin.loading import loading
from muntin.show.terminal import console
from muntin.store import DEFAULT_STATE

if TYPE_CHECKING:
    from muntin.control.client import Change, Client

jobs = typer.Typer(no_args_is_help=True, help="Change the jobs of a program that runs.")

State = Annotated[str, typer.Option(help="The state of the program that runs.")]
Url = Annotated[str | None, typer.Option(help="The address of its service, if it runs elsewhere.")]
Token = Annotated[
    Path | None, typer.Option("--control-token", help="A file with the secret it asks for.")
]
Job = Annotated[str, typer.Argument(metavar="JOB", help="The name of a job.")]
Text = Annotated[
    str, typer.Argument(metavar="TEXT", help="CREATE JOB …: in a file, as it is, or - for input.")
]
Expected = Annotated[
    int | None, typer.Option("--expected", help="Refuse if the job has another version by now.")
]


@jobs.command()
def create(text: Text, state: State = DEFAULT_STATE, url: Url = None, token: Token = None) -> None:
    """Add a job: its first result is its first whole window."""
    _tell(connected(state, url, token).create(_read(text)))


@jobs.command()
def replace(
    job: Job,
    text: Text,
    at: Annotated[
        str | None, typer.Option(help="window or pane: the next one is by the new version.")
    ] = None,
    expected: Expected = None,
    state: State = DEFAULT_STATE,
    url: Url = None,
    token: Token = None,
) -> None:
    """Give a job another query: windows of before are brought to an end by the old one."""
    if at not in (None, "window", "pane"):
        raise InputError(f"--at is window or pane, not '{at}'")
    _tell(connected(state, url, token).replace(job, _read(text), at, expected))


def _add(name: str, told: str, do: Callable[[Client, str, int | None], list[Change]]) -> None:
    """A command that is an order to one job."""

    def order(
        job: Job,
        expected: Expected = None,
        state: State = DEFAULT_STATE,
        url: Url = None,
        token: Token = None,
    ) -> None:
        _tell(do(connected(state, url, token), job, expected))

    jobs.command(name, help=told)(order)


_add(
    "drop",
    "Remove a job; results that it has stored stay.",
    lambda app, job, seen: app.drop(job, seen),
)
_add(
    "pause",
    "Stop computing a job until it is resumed.",
    lambda app, job, seen: app.pause(job, seen),
)
_add(
    "resume",
    "Go on with a job that was paused, from its next whole window.",
    lambda app, job, seen: app.resume(job, seen),
)
_add(
    "reset",
    "Empty a job's windows, everywhere at one boundary.",
    lambda app, job, seen: app.reset(job, seen),
)


@jobs.command("set")
def set_(
    job: Job,
    parameter: Annotated[str, typer.Argument(help="A parameter, $NAME in its query.")],
    value: Annotated[str, typer.Argument(help="A constant as SQL has it: 5, or \"'text'\".")],
    state: State = DEFAULT_STATE,
    url: Url = None,
    token: Token = None,
) -> None:
    """Give a parameter of a job another value; it stays the same version."""
    _tell(connected(state, url, token).set_sql(job, parameter, value))


@jobs.command("list")
def list_(
    state: State = DEFAULT_STATE,
    url: Url = None,
    token: Token = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a job.")] = False,
) -> None:
    """Show the jobs there are: versions, windows, parameters."""
    with loading():
        from dataclasses import asdict

        from muntin.show.jobs import draw

    known = connected(state, url, token).jobs()
    if as_json:
        for job in known:
            typer.echo(json.dumps(asdict(job), ensure_ascii=False))
    else:
        draw(known, console(sys.stdout))


def sql(
    text: Annotated[
        str | None, typer.Argument(metavar="[TEXT]", help="Statements; without, a shell.")
    ] = None,
    state: State = DEFAULT_STATE,
    url: Url = None,
    token: Token = None,
) -> None:
    """Order and ask a program that runs: statements, and SELECT over the results of its jobs."""
    with loading():
        from muntin.show.shell import Shell

    shell = Shell(lambda: connected(state, url, token), None if url else state, sys.stdout)
    if text is not None:
        shell.do(text)
    elif sys.stdin.isatty():
        shell.interact()
    else:
        shell.do(sys.stdin.read())


def connected(state: str, url: str | None, token: Path | None) -> Client:
    """The program that is meant, by its address or by its state."""
    with loading():
        from muntin.control.access import token_in
        from muntin.control.client import connect

    if url is not None and not url.startswith(("http://", "https://")):
        raise InputError(f"--url {url} is no address; say for example http://127.0.0.1:7080")
    return connect(url or state, None if token is None else token_in(token))


def _read(text: str) -> str:
    """A text that was given as it is, in a file, or as input."""
    if text == "-":
        return sys.stdin.read()
    if text.split()[:1] != [text.strip()]:  # more than one word is no usual name of a file
        return text
    try:
        return Path(text).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        raise InputError(
            f"{text} cannot be read: {reason}; give a file, a text such as 'CREATE JOB …', or -"
        ) from error


def _tell(changes: list[Change]) -> None:
    for change in changes:
        typer.echo(change)
