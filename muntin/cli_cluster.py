"""The command line for a cluster on this machine: `muntin cluster up` and `muntin cluster down`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from muntin.loading import loading

clusters = typer.Typer(
    no_args_is_help=True, help="A Spark cluster on this machine, to try one: see docs/cluster.md."
)

Folder = Annotated[
    Path | None,
    typer.Option("--dir", help="Where its logs are; ~/.local/state/muntin/cluster by default."),
]


@clusters.command()
def up(
    workers: Annotated[int, typer.Option(help="How many; each acts as a host.")] = 2,
    cores: Annotated[int, typer.Option(help="Of each worker.")] = 1,
    memory: Annotated[str, typer.Option(help="For executors of each worker.")] = "1g",
    port: Annotated[int, typer.Option(help="The port of the master.")] = 7077,
    folder: Folder = None,
) -> None:
    """Start a master and workers on loopback, as far as they do not run."""
    with loading():
        from muntin.spark.cluster import Cluster, Plan, default_folder

    plan = Plan(workers, cores, memory, port)
    cluster = Cluster(folder or default_folder())
    for text in cluster.up(plan):
        typer.echo(text)
    typer.echo(f"its page is {cluster.page()}, and its logs are in {cluster.folder}")
    typer.echo(f"next: muntin run FILE.sql --master {plan.master}")


@clusters.command()
def down(folder: Folder = None) -> None:
    """End what `up` has started."""
    with loading():
        from muntin.spark.cluster import Cluster, default_folder

    for text in Cluster(folder or default_folder()).down():
        typer.echo(text)
