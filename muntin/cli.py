"""The command line: explain, try, run, results, status, state, job, sql, cluster, demo.

Commands import what they need when they run: Spark is on its way while the rest is loaded.
"""

from __future__ import annotations

import json
import sys
import time
import traceback
from contextlib import nullcontext
from datetime import datetime
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from rich.text import Text
from typer.core import TyperGroup

from muntin import cli_cluster, cli_control, cli_state
from muntin.errors import InputError, LanguageError, MuntinError, as_text
from muntin.lean import become
from muntin.loading import interruptible, loading
from muntin.show import OutputFormat
from muntin.show.terminal import console, keep_help_plain, messages
from muntin.store import DEFAULT_STATE, patience
from muntin.supervision import Supervised, Supervisor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from muntin.model.jobs import Program
    from muntin.run.loop import Loop
    from muntin.windows.choice import Sharing
    from muntin.wire.keys import Keys

_err = messages()
_OF_PIPELINES = {
    "cryptography",
    "deltalake",
    "hdfs_native",
    "obstore",
    "pandas",
    "pyspark",
    "sqlglot",
    "starlette",
    "uvicorn",
}  # modules


class _Commands(TyperGroup):
    """Ctrl-C ends a command with a word and the shell's usual code."""

    def invoke(self, ctx: Any) -> Any:
        try:
            with interruptible():
                return super().invoke(ctx)
        except (KeyboardInterrupt, RuntimeError) as error:
            # DuckDB has words of its own for Ctrl-C while it works.
            if isinstance(error, RuntimeError) and str(error) != "Query interrupted":
                raise
            _err.print("stopped")
            raise typer.Exit(130) from None


app = typer.Typer(
    cls=_Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

app.add_typer(cli_control.jobs, name="job")
app.add_typer(cli_state.states, name="state")
app.command("sql")(cli_control.sql)
app.add_typer(cli_cluster.clusters, name="cluster")

SqlFile = Annotated[Path, typer.Argument(help="A file with CREATE STREAM and CREATE JOB.")]
State = Annotated[
    str, typer.Option(help="The folder or URL (s3://, gs://, abfs://) for results and restarts.")
]
Nice = Annotated[int, typer.Option(help="How far behind other processes it stands.")]
Memory = Annotated[str, typer.Option(help="How much it takes, libraries included.")]
OwnKeys = Annotated[
    Path | None, typer.Option(help="A folder of `muntin keys`: TLS, and who may ask.")
]
Mutual = Annotated[
    bool, typer.Option("--mutual", help="Pipelines have to show a certificate, too.")
]
PipelineKeys = Annotated[
    Path | None, typer.Option("--keys", help="A folder of `muntin keys`, for agents.")
]
Format = Annotated[OutputFormat, typer.Option("--format", help="How to print rows.")]
_FOLLOW_SECONDS = 0.5


def _tell_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"muntin {metadata.version('muntin')}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version.", callback=_tell_version, is_eager=True),
    ] = False,
) -> None:
    """Standing questions over logs, answered window by window."""


@app.command()
def explain(
    file: SqlFile,
    state: Annotated[
        str | None, typer.Option(help="A state: show what its last run has chosen.")
    ] = None,
    keys: PipelineKeys = None,
) -> None:
    """Print each job's plan: windows, pane, cells and the SQL of every stage."""
    with loading():
        from muntin.language import program as programs
        from muntin.language.explain import explain as explain_program
        from muntin.language.explain import explain_stream
        from muntin.store.checkpoint import choices_in
        from muntin.store.status import recoveries, told

    try:
        program = programs.load(file, _keys(keys))
    except LanguageError as error:
        for stream in error.streams:  # a mistake is often about their columns
            typer.echo(explain_stream(stream))
        raise
    choices = choices_in(state, program) if state is not None else {}
    typer.echo(explain_program(program, choices))
    for name, each in (recoveries(state) if state is not None else {}).items():
        typer.echo(told(name, each))


@app.command("try")
def try_(
    file: SqlFile,
    job: Annotated[str | None, typer.Option(help="Run only this job.")] = None,
    format_: Format = OutputFormat.TABLE,
    keys: PipelineKeys = None,
) -> None:
    """Answer from what the files hold now, in this process, without Spark."""
    with loading():
        from muntin.language import program as programs
        from muntin.run.agents import require_agents
        from muntin.run.inline import windows_inline
        from muntin.show.output import RowWriter

    writer = RowWriter(format_, sys.stdout)
    loops: list[Loop] = []
    program = _chosen(programs.load(file, _keys(keys)), job)
    require_agents(program, follow=False)
    for windows in windows_inline(program, note=_note, done=loops.append):
        writer.write(windows.job.title, windows.table())
    for loop in loops:
        _tell_losses(loop)
    if not any(loop.progress.records for loop in loops):
        _err.print("no records, no windows")
    _require_some([name for loop in loops for name in loop.stopped], program)


@app.command()
def run(
    file: SqlFile,
    state: State = DEFAULT_STATE,
    master: Annotated[str | None, typer.Option(help="Spark master; local[*] by default.")] = None,
    once: Annotated[bool, typer.Option("--once", help="Read what is there, then stop.")] = False,
    for_: Annotated[
        str | None, typer.Option("--for", help="Stop after this long: 90s, 5m.")
    ] = None,
    idle: Annotated[
        str, typer.Option(help="A source silent for this long holds no window back.")
    ] = "10s",
    sharing: Annotated[
        str, typer.Option(help="How windows are computed: auto, shared or separate.")
    ] = "auto",
    summary: Annotated[Path | None, typer.Option(help="Write totals here as JSON.")] = None,
    keys: PipelineKeys = None,
    control: Annotated[
        str, typer.Option(help="Where orders are taken: HOST:PORT, or off. Port 0 is a free one.")
    ] = "127.0.0.1:0",
    control_token: Annotated[
        Path | None, typer.Option(help="A file with the secret that those who order have to send.")
    ] = None,
    supervise: Annotated[
        bool, typer.Option("--supervise", help="Start it again when it dies.")
    ] = False,
    recovery: Annotated[
        str, typer.Option(help="Within this long all goes on after an executor was lost.")
    ] = "30s",
    local_dir: Annotated[
        Path | None,
        typer.Option(help="A folder of this machine for temporary files, also Spark's."),
    ] = None,
) -> None:
    """Run all jobs on Spark; results go to Delta tables under the state folder."""
    with loading():
        from muntin.control.access import access_of
        from muntin.durations import seconds_of
        from muntin.spark.gateway import held_back, starting
        from muntin.spark.master import require_known
        from muntin.store.hold import require_free
        from muntin.store.scratch import keeping_in, require_writable

    # All that can be refused is, before anything that takes long.
    if once and for_ is not None:
        raise InputError("--once ends when all is read, and --for follows; give one of them")
    if sharing not in ("auto", "shared", "separate"):
        raise InputError(f"--sharing is auto, shared or separate, not '{sharing}'")
    seconds = seconds_of(for_, "--for") if for_ is not None else None
    waits, bound = seconds_of(idle, "--idle"), seconds_of(recovery, "--recovery")
    access = access_of(control, control_token)
    held = _keys(keys)
    require_known(master)
    _require_readable(file)
    if local_dir is not None:
        require_writable(local_dir)
    require_free(state)
    if summary is not None:
        _write(summary, "", "a")
    if supervise:
        raise typer.Exit(_supervised(seconds))
    Supervised().watch()
    with nullcontext() if local_dir is None else keeping_in(local_dir), starting(master) as jvm:
        with held_back():
            from muntin.language import program as programs
            from muntin.show.console import RunOptions, run_program
        chosen, folder = cast("Sharing", sharing), file.absolute().parent
        options = RunOptions(state, once, seconds, waits, chosen, held, access, folder, bound)
        program = programs.load(file, held)
        if once or access is None or not program.streams:
            kept = any(stream.keep is not None for stream in program.streams.values())
            program = program if kept else _chosen(program, None)  # some may be created later
        totals = run_program(program, options, jvm, _err)
    if summary is not None:
        _write(summary, json.dumps(totals, indent=2) + "\n", "w")
    _require_some(totals["stopped"], program)


@app.command()
def results(
    jobs: Annotated[
        list[str] | None, typer.Argument(metavar="JOB...", help="The jobs whose results to print.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="The results of all jobs.")] = False,
    state: State = DEFAULT_STATE,
    follow: Annotated[bool, typer.Option("--follow", help="Go on as results come.")] = False,
    window: Annotated[str, typer.Option(help="latest or all")] = "latest",
    format_: Format = OutputFormat.TABLE,
    detail: Annotated[
        bool, typer.Option("--detail", help="All of C²: sources and records in every pane.")
    ] = False,
    revisions: Annotated[
        bool, typer.Option("--revisions", help="Also what was revised later.")
    ] = False,
) -> None:
    """Print results of jobs, each with C²: how complete it is, and why it left."""
    with loading():
        from muntin.api import is_latest
        from muntin.show.output import RowWriter
        from muntin.store.results import Results

    latest = is_latest(window, "--window")
    store = Results(state)
    if bool(jobs) is every:
        known = ", ".join(store.jobs()) or "none yet"
        raise InputError(f"give the names of jobs, or --all; there are results of: {known}")
    writer = RowWriter(format_, sys.stdout, detail, scored=True, revisions=revisions)
    newest: dict[str, datetime | None] = {}
    for job in jobs or store.jobs():
        rows = store.read(job, latest=latest, revisions=revisions)
        writer.write(job, rows)
        newest[job] = max(rows["emitted_at"].to_pylist(), default=None)
    while follow:
        time.sleep(_FOLLOW_SECONDS)
        for job, last in newest.items():
            more = store.read(job, after=last, revisions=revisions)
            if more.num_rows:
                writer.write(job, more)
                newest[job] = max(more["emitted_at"].to_pylist())


@app.command()
def ask(
    question: Annotated[
        str, typer.Argument(help="SELECT … FROM a job or stream with RETAIN, BETWEEN two times.")
    ],
    state: State = DEFAULT_STATE,
    format_: Format = OutputFormat.TABLE,
    explain: Annotated[
        bool, typer.Option("--explain", help="Say what would be read, and do not answer.")
    ] = False,
    master: Annotated[
        str | None, typer.Option(help="Merge panes on Spark: local[4], or spark://HOST:PORT.")
    ] = None,
    url: cli_control.Url = None,
    token: cli_control.Token = None,
) -> None:
    """Ask about any range of the past, from what jobs and streams with RETAIN have left."""
    with loading():
        from muntin import api
        from muntin.show.past import write

    if url is not None or token is not None:
        if master is not None:
            raise InputError("--master reads a state, and --url asks a program: give one of them")
        client = cli_control.connected(state, url, token)
        if explain:
            typer.echo(client.explain(question))
        else:
            write(client.ask(question), format_, sys.stdout, sys.stderr)
        return
    if explain:
        typer.echo(api.explain(question, state))
        return
    if master is None:
        write(api.ask(question, state), format_, sys.stdout, sys.stderr)
        return
    with loading():
        from muntin.spark.asking import asked_on
        from muntin.spark.master import require_known

    require_known(master)
    write(asked_on(master, question, state), format_, sys.stdout, sys.stderr)


@app.command()
def status(
    state: State = DEFAULT_STATE,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Show each job's windows, lags against its bound, mean C² and misses, and all sources."""
    with loading():
        from muntin.show.status import draw
        from muntin.store.status import recoveries, told
        from muntin.store.status import status as status_of

    jobs, sources = status_of(state)
    known = recoveries(state)
    if as_json:
        recovery = [{"stream": name, **each.figures()} for name, each in known.items()]
        whole = {"jobs": jobs, "sources": sources, "recovery": recovery}
        typer.echo(json.dumps(whole, default=_iso))
    else:
        draw(jobs, sources, console(sys.stdout))
        for name, each in known.items():
            typer.echo(told(name, each))


@app.command()
def agent(
    name: Annotated[str, typer.Option(help="The name of this server among the sources.")],
    config: Annotated[
        Path, typer.Option(help="A TOML file: a table streams.NAME with paths for each.")
    ],
    listen: Annotated[str, typer.Option(help="Where pipelines find it.")] = "127.0.0.1:7070",
    state: Annotated[Path, typer.Option(help="The folder for restarts.")] = Path("muntin-agent"),
    nice: Nice = 10,
    memory: Memory = "512MB",
    cpu: Annotated[float, typer.Option(help="Its share of a core, as 0.5.")] = 1.0,
    allow_code: Annotated[
        bool, typer.Option("--allow-code", help="Run jobs in Python, and not only SQL.")
    ] = False,
    keys: OwnKeys = None,
    mutual: Mutual = False,
) -> None:
    """Read this server's logs where they are, and ship what jobs count of them."""
    told = {"name": name, "config": str(config), "listen": listen, "state": str(state)}
    limits = {"nice": nice, "memory": memory, "cpu": cpu, "allow_code": allow_code}
    become("muntin.agent", {**told, **limits, **_of_keys(keys, mutual)})


@app.command()
def relay(
    from_: Annotated[
        str,
        typer.Option("--from", help="Addresses of agents or relays, or a file that lists them."),
    ],
    listen: Annotated[str, typer.Option(help="Where pipelines find it.")] = "127.0.0.1:7071",
    name: Annotated[str, typer.Option(help="Its name among the keys.")] = "relay",
    nice: Nice = 0,
    memory: Memory = "512MB",
    keys: OwnKeys = None,
    mutual: Mutual = False,
) -> None:
    """Stand before many agents: merge what they ship, and serve it as an agent does."""
    told = {"name": name, "from": from_, "listen": listen, **_of_keys(keys, mutual)}
    become("muntin.relay", {**told, "nice": nice, "memory": memory})


@app.command()
def keys(
    folder: Annotated[Path, typer.Argument(help="Where keys are, or will be.")],
    names: Annotated[
        list[str], typer.Argument(help="Agents, as web01 or web01=host,10.0.0.5; and pipeline.")
    ],
) -> None:
    """Make certificates and a token, with which agents and pipelines know each other."""
    with loading():
        from muntin.wire.keys import make_keys

    made = make_keys(folder, names)
    for path in made:
        typer.echo(path)
    if not made:
        _err.print(f"all of them are in {folder} already; remove a file to have it made anew")


@app.command()
def demo(
    seconds: Annotated[float, typer.Option(help="Stop after this long; 0 means never.")] = 0,
) -> None:
    """Write live logs of a few servers and answer three questions from them."""
    with loading():
        from muntin.spark.gateway import held_back, starting

    with starting(None) as jvm:
        with held_back():
            from muntin.show.demo.show import run_demo
        run_demo(seconds or None, jvm)


def main() -> None:
    """Errors of ours are a message; anything else is a bug and shows its traceback."""
    keep_help_plain()
    patience.tell_with(_note)
    try:
        app()
    except MuntinError as error:
        message = as_text(str(error))
        _err.print(Text.assemble(("error:", "bold red"), " ", message), soft_wrap=True)
        sys.exit(Supervised().code_of(error))
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in _OF_PIPELINES:
            raise
        told = f"{error.name} is not installed; where pipelines run: pip install 'muntin[run]'"
        _err.print(Text.assemble(("error:", "bold red"), " ", told), soft_wrap=True)
        sys.exit(1)
    except BrokenPipeError:  # the reader of our output has gone, for example `head`
        sys.stderr.close()
        sys.exit(1)
    except Exception as error:
        traceback.print_exc()
        sys.exit(Supervised().code_of(error))


def _supervised(seconds: float | None) -> int:
    """Runs this command in a process of its own, and again when that dies."""
    command = [sys.executable, "-m", "muntin", *(w for w in sys.argv[1:] if w != "--supervise")]
    return Supervisor(command, _note, seconds).run()


def _require_some(stopped: Sequence[str], program: Program) -> None:
    """Ends as one that has failed if all jobs have; why each has was told."""
    if program.jobs and len(stopped) == len(program.jobs):
        raise typer.Exit(1)


def _chosen(program: Program, job: str | None) -> Program:
    if not program.jobs:
        raise InputError("the file defines no job; add CREATE JOB name AS SELECT …")
    if job is None:
        return program
    if job not in program.titles:
        raise InputError(f"unknown job '{job}'; the file defines {', '.join(program.titles)}")
    return program.only(job)


def _keys(folder: Path | None) -> Keys | None:
    """The keys of a pipeline, for its agents."""
    from muntin.wire.keys import PIPELINE, read_keys

    return None if folder is None else read_keys(folder, PIPELINE)


def _of_keys(keys: Path | None, mutual: bool) -> dict[str, str | bool | None]:
    return {"keys": None if keys is None else str(keys), "mutual": mutual}


def _iso(moment: datetime) -> str:
    return moment.isoformat().replace("+00:00", "Z")


def _require_readable(file: Path) -> None:
    try:
        file.open("rb").close()
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror}") from error


def _write(path: Path, text: str, mode: str) -> None:
    try:
        with path.open(mode) as file:
            file.write(text)
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}") from error


def _note(text: str) -> None:
    from muntin.show.output import note

    _err.print(note(text), soft_wrap=True)


def _tell_losses(loop: Loop) -> None:
    from muntin.show.output import losses

    progress = loop.progress
    late = {job: late.records for job, late in progress.late.items()}
    slack_us = {job: late.slack_us for job, late in progress.late.items()}
    for text in losses(progress.records, progress.bad, late, slack_us):
        _note(text)
