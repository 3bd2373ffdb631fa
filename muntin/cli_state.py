"""Commands about a state: what it holds, and whether all of it can be read."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

from muntin.loading import loading
from muntin.show.terminal import console

states = typer.Typer(
    no_args_is_help=True, help="Look at a state: what it holds, and whether it is whole."
)

State = Annotated[str, typer.Argument(metavar="STATE", help="The folder or URL of a state.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON object.")]


@states.command()
def show(state: State, as_json: Json = False) -> None:
    """List streams, jobs, batches, sizes and open panes."""
    with loading():
        from dataclasses import asdict

        from muntin.show.state import draw
        from muntin.store.inspection import show as shown

    found = shown(state)
    if as_json:
        typer.echo(json.dumps(asdict(found)))
    else:
        draw(found, console(sys.stdout))


@states.command()
def check(
    state: State,
    as_json: Json = False,
    every: Annotated[
        bool, typer.Option("--all", help="Name every file that is left over.")
    ] = False,
) -> None:
    """Read every file, and tell what is wrong; ends with 1 if something is damaged."""
    with loading():
        from muntin.show.state import tell
        from muntin.store.findings import Weight
        from muntin.store.inspection import check as checked

    findings = list(checked(state))
    if as_json:
        told = [{"weight": f.weight.value, "place": f.place, "text": f.text} for f in findings]
        typer.echo(json.dumps({"findings": told}))
    else:
        tell(findings, console(sys.stdout), every)
    if any(finding.weight is Weight.DAMAGE for finding in findings):
        raise typer.Exit(1)
