"""Every command, its arguments and its help."""

import sys
from pathlib import Path
from typing import Annotated, Final

import typer
from typer.core import TyperGroup

from orchestral_temporal import __version__

USAGE: Final = 64
"""As in `hosting.process`, which --help and --version must not load."""

app = typer.Typer(
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Runs AI agents as Temporal workflows: a run is neither lost nor doubled, whatever breaks.",
    epilog=(
        "Exit codes: 0 delivered or done, 1 doctor found something, 2 incomplete, 3 cancelled, 4 failed, "
        "5 continuity unknown, 64 usage or configuration, 70 our own fault, 130 left by Ctrl-C."
    ),
)

artifacts = typer.Typer(no_args_is_help=True, help="Large values, by their reference.")
app.add_typer(artifacts, name="artifacts")


class _ShowsByDefault(TyperGroup):
    """A group in which anything but a command or a call for help is an argument of `show`."""

    def parse_args(  # pyright: ignore[reportIncompatibleMethodOverride] -- typer.Context is the one public name for it
        self, ctx: typer.Context, args: list[str]
    ) -> list[str]:
        if not args or args[0] not in {*self.commands, *ctx.help_option_names}:
            args = ["show", *args]
        return super().parse_args(ctx, args)


effects = typer.Typer(
    cls=_ShowsByDefault,
    help="Show what became of a run's tool calls, settle unknown ones. `effects RUN` is short for `effects show RUN`.",
    subcommand_metavar="RUN | COMMAND [ARGS]...",
)
app.add_typer(effects, name="effects")

Config = Annotated[
    str | None,
    typer.Option("--config", help="Settings file; else temporal-dev.yaml here, else the packaged one.", metavar="FILE"),
]
Debug = Annotated[bool, typer.Option("--debug", help="Show logs, and the traceback of an error.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object a line.")]
Run = Annotated[str, typer.Argument(help="The run's id.", metavar="RUN")]
Task = Annotated[str, typer.Argument(help="What to do; - reads it from standard input.", metavar="TASK")]
Agent = Annotated[str, typer.Option("--agent", help="Agent of the settings file.")]
Workspace = Annotated[
    Path | None,
    typer.Option("--workspace", help="Folder to work in, instead of the policy's.", metavar="DIR", resolve_path=True),
]
Session = Annotated[
    str | None, typer.Option("--session", help="Session to go on with; a new one without it.", metavar="ID")
]
RunId = Annotated[str | None, typer.Option("--run-id", help="Id of the run; the same again finds it.", metavar="ID")]


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"orchestral {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    context: typer.Context,
    version: Annotated[  # noqa: ARG001 -- its callback does all there is to do
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command()
def run(
    task: Task,
    agent: Agent = "default",
    workspace: Workspace = None,
    session: Session = None,
    run_id: RunId = None,
    as_json: AsJson = False,
    config: Config = None,
    debug: Debug = False,
) -> None:
    """Start a run and follow it; print its answer.

    Where no server or no worker is there, both are started for the time of the run. Ctrl-C cancels the run, a second
    one leaves at once.
    """
    from orchestral_temporal.cli.follow import Asked, run_task
    from orchestral_temporal.cli.settled import conclude

    asked = Asked(_text(task), agent, workspace, session, run_id)
    conclude(lambda settings: run_task(settings, asked, as_json=as_json), config=config, debug=debug)


@app.command()
def start(
    task: Task,
    agent: Agent = "default",
    workspace: Workspace = None,
    session: Session = None,
    run_id: RunId = None,
    as_json: AsJson = False,
    config: Config = None,
    debug: Debug = False,
) -> None:
    """Start a run on a server that is there, print its id and leave."""
    from orchestral_temporal.cli.follow import Asked, start_task
    from orchestral_temporal.cli.settled import conclude

    asked = Asked(_text(task), agent, workspace, session, run_id)
    conclude(lambda settings: start_task(settings, asked, as_json=as_json), config=config, debug=debug)


@app.command()
def watch(run: Run, as_json: AsJson = False, config: Config = None, debug: Debug = False) -> None:
    """Follow a run until it ends: text as it streams, tool calls, the answer. Ctrl-C leaves the run alone."""
    from orchestral_temporal.cli.follow import watch_run
    from orchestral_temporal.cli.settled import conclude

    conclude(lambda settings: watch_run(settings, run, as_json=as_json), config=config, debug=debug)


@app.command(name="list")
def list_(
    status: Annotated[str | None, typer.Option("--status", help="Only runs with this status.")] = None,
    waiting: Annotated[str | None, typer.Option("--waiting", help="Only runs that wait for input or approval.")] = None,
    session: Annotated[str | None, typer.Option("--session", help="Only runs of this session.", metavar="ID")] = None,
    limit: Annotated[int, typer.Option("--limit", help="At most so many.", min=1)] = 100,
    as_json: AsJson = False,
    config: Config = None,
    debug: Debug = False,
) -> None:
    """List runs, by their search attributes."""
    from orchestral_temporal.cli.look import Wanted, list_runs
    from orchestral_temporal.cli.settled import conclude

    wanted = Wanted(status, waiting, session, limit)
    conclude(lambda settings: list_runs(settings, wanted, as_json=as_json), config=config, debug=debug)


@app.command()
def inspect(run: Run, as_json: AsJson = False, config: Config = None, debug: Debug = False) -> None:
    """Show how a run stands; with --json the wire view."""
    from orchestral_temporal.cli.look import inspect_run
    from orchestral_temporal.cli.settled import conclude

    conclude(lambda settings: inspect_run(settings, run, as_json=as_json), config=config, debug=debug)


@app.command()
def events(
    run: Run,
    after: Annotated[int, typer.Option("--after", help="Only events with a larger number.", metavar="N", min=0)] = 0,
    follow: Annotated[bool, typer.Option("--follow", help="Go on until the run ends.")] = False,
    as_json: AsJson = False,
    config: Config = None,
    debug: Debug = False,
) -> None:
    """Print the committed journal of a run; with --json one wire record a line."""
    from orchestral_temporal.cli.look import print_events
    from orchestral_temporal.cli.settled import conclude

    conclude(
        lambda settings: print_events(settings, run, after=after, more=follow, as_json=as_json),
        config=config,
        debug=debug,
    )


@effects.command()
def show(run: Run, as_json: AsJson = False, config: Config = None, debug: Debug = False) -> None:
    """Show every tool call of a run: how far it is, whether its fence stands, its outcome, its settlement."""
    from orchestral_temporal.cli.effects import show_effects
    from orchestral_temporal.cli.settled import conclude

    conclude(lambda settings: show_effects(settings, run, as_json=as_json), config=config, debug=debug)


@effects.command()
def settle(
    run: Run,
    call: Annotated[str, typer.Argument(help="The call as `effects RUN` shows it, or its end: m1/c1.", metavar="CALL")],
    happened: Annotated[
        str | None, typer.Option("--happened", help="It took effect: what happened.", metavar="TEXT")
    ] = None,
    did_not: Annotated[bool, typer.Option("--did-not", help="It took no effect.")] = False,
    by: Annotated[str | None, typer.Option("--by", help="Who says so, if not you.", metavar="NAME")] = None,
    session: Annotated[
        str | None, typer.Option("--session", help="Session of a run that is there no more.", metavar="ID")
    ] = None,
    as_json: AsJson = False,
    config: Config = None,
    debug: Debug = False,
) -> None:
    """Say what became of an unknown effect, on record in its session.

    The run stays as it ended; what is said here is never changed again.
    """
    if (happened is None) is not did_not:
        raise typer.BadParameter("say one of the two.", param_hint="--happened TEXT or --did-not")
    from orchestral_temporal.cli.effects import Said, settle_effect
    from orchestral_temporal.cli.settled import conclude

    said = Said(call, happened, by, session)
    conclude(lambda settings: settle_effect(settings, run, said, as_json=as_json), config=config, debug=debug)


@artifacts.command()
def get(
    reference: Annotated[str, typer.Argument(help="The artifact's reference.", metavar="REF")],
    file: Annotated[Path, typer.Argument(help="Where its bytes go.", metavar="FILE", dir_okay=False)],
    config: Config = None,
    debug: Debug = False,
) -> None:
    """Copy an artifact out of the store of the settings file, such as a text that a delivery names."""
    from orchestral_temporal.cli.look import get_artifact
    from orchestral_temporal.cli.settled import conclude

    conclude(lambda settings: get_artifact(settings, reference, file), config=config, debug=debug)


@app.command()
def cancel(
    run: Run,
    reason: Annotated[str, typer.Option("--reason", help="Why; goes on record.", metavar="TEXT")] = "cancelled",
    config: Config = None,
    debug: Debug = False,
) -> None:
    """Cancel a run; print the wire acknowledgement."""
    from orchestral_temporal.cli.look import cancel_run
    from orchestral_temporal.cli.settled import conclude

    conclude(lambda settings: cancel_run(settings, run, reason), config=config, debug=debug)


Command = Annotated[
    str | None, typer.Option("--id", help="Id of the command; the same again is the same command.", metavar="ID")
]
Words = Annotated[str, typer.Argument(help="What to say; - reads it from standard input.", metavar="TEXT")]


@app.command()
def steer(run: Run, text: Words, command_id: Command = None, config: Config = None, debug: Debug = False) -> None:
    """Tell a run something now; print the wire acknowledgement. The model hears it in its next request."""
    from orchestral_temporal.cli.say import steer_run
    from orchestral_temporal.cli.settled import conclude

    said = _text(text, "TEXT")
    conclude(lambda settings: steer_run(settings, run, said, command_id), config=config, debug=debug)


@app.command()
def queue(
    run: Run,
    text: Annotated[str | None, typer.Argument(help="What to say; - reads it from standard input.")] = None,
    replace: Annotated[
        str | None, typer.Option("--replace", help="Put the text in the place of this queued input.", metavar="ID")
    ] = None,
    withdraw: Annotated[
        str | None, typer.Option("--withdraw", help="Take this queued input back, instead of a text.", metavar="ID")
    ] = None,
    command_id: Command = None,
    config: Config = None,
    debug: Debug = False,
) -> None:
    """Tell a run something once its model has answered; print the wire acknowledgement, whose id names the input."""
    from orchestral_temporal.cli.say import Queued, queue_input
    from orchestral_temporal.cli.settled import conclude

    if (text is None) is (withdraw is None) or (replace is not None and withdraw is not None):
        raise typer.BadParameter("give a text, with or without --replace; or --withdraw and no text.")
    said = Queued(None if text is None else _text(text, "TEXT"), replace, withdraw, command_id)
    conclude(lambda settings: queue_input(settings, run, said), config=config, debug=debug)


@app.command()
def answer(
    run: Run,
    request: Annotated[str, typer.Argument(help="The question's id; `pending` shows it.", metavar="REQUEST")],
    text: Annotated[str | None, typer.Argument(help="The answer; - reads it from standard input.")] = None,
    file: Annotated[
        Path | None,
        typer.Option("--file", help="Read the answer from a file.", metavar="FILE", exists=True, dir_okay=False),
    ] = None,
    command_id: Command = None,
    config: Config = None,
    debug: Debug = False,
) -> None:
    """Answer a question of a run; print the wire acknowledgement."""
    from orchestral_temporal.cli.say import answer_question
    from orchestral_temporal.cli.settled import conclude

    if (text is None) is (file is None):
        raise typer.BadParameter("give the answer as TEXT or with --file, one of the two.")
    said = _text(text, "TEXT") if text is not None else _decoded(file.read_bytes() if file else b"", "--file")
    conclude(lambda settings: answer_question(settings, run, request, said, command_id), config=config, debug=debug)


@app.command()
def pending(as_json: AsJson = False, config: Config = None, debug: Debug = False) -> None:
    """Show what waits for a person, with the command that answers it."""
    from orchestral_temporal.cli.say import show_pending
    from orchestral_temporal.cli.settled import conclude

    conclude(lambda settings: show_pending(settings, as_json=as_json), config=config, debug=debug)


@app.command()
def dev(config: Config = None, debug: Debug = False) -> None:
    """Server, UI and all workers until Ctrl-C."""
    from orchestral_temporal.cli.keep import keep_dev
    from orchestral_temporal.cli.settled import conclude

    conclude(keep_dev, config=config, debug=debug)


@app.command()
def worker(
    role: Annotated[str, typer.Option("--role", help="all, runs, models or tools.")] = "all",
    config: Config = None,
    debug: Debug = False,
) -> None:
    """One worker process on a server that is there, until Ctrl-C."""
    from orchestral_temporal.cli.keep import keep_worker
    from orchestral_temporal.cli.settled import conclude

    conclude(lambda settings: keep_worker(settings, role), config=config, debug=debug, service=True)


@app.command()
def agents(as_json: AsJson = False, config: Config = None, debug: Debug = False) -> None:
    """Show the agents of the settings file, with binding and descriptor digest."""
    from orchestral_temporal.cli.keep import show_agents
    from orchestral_temporal.cli.settled import conclude

    conclude(lambda settings: show_agents(settings, as_json=as_json), config=config, debug=debug)


@app.command()
def setup(
    namespace: Annotated[str | None, typer.Option("--namespace", help="Another one than the settings'.")] = None,
    as_json: AsJson = False,
    config: Config = None,
    debug: Debug = False,
) -> None:
    """Prepare a namespace: retention and search attributes; a second time changes nothing."""
    from orchestral_temporal.cli.keep import set_up
    from orchestral_temporal.cli.settled import conclude

    conclude(lambda settings: set_up(settings, namespace, as_json=as_json), config=config, debug=debug)


@app.command()
def doctor(as_json: AsJson = False, config: Config = None, debug: Debug = False) -> None:
    """Check all that a run needs and say what to do; exit 0 if all is well, else 1."""
    from orchestral_temporal.cli.keep import examine_all
    from orchestral_temporal.cli.settled import conclude

    conclude(lambda settings: examine_all(settings, as_json=as_json), config=config, debug=debug)


def _text(given: str, name: str = "TASK") -> str:
    """A text argument, from standard input if it is a dash."""
    return _decoded(sys.stdin.buffer.read() if given == "-" else given.encode("utf-8", "surrogateescape"), name)


def _decoded(data: bytes, name: str) -> str:
    try:
        text = data.decode().rstrip("\n")
    except UnicodeDecodeError:
        raise typer.BadParameter("what it names is not text in UTF-8.", param_hint=name) from None
    if not text.strip():
        raise typer.BadParameter("it is empty; say something.", param_hint=name)
    return text


def obey() -> int:
    """Carry out what was typed; the exit code of what ends without a command, which is help and faults of typing."""
    try:
        code: int | None = app(prog_name="orchestral", standalone_mode=False)
    except typer.TyperException as error:
        context = getattr(error, "ctx", None)
        typer.echo(f"Error: {error.format_message()}", err=True)
        typer.echo(f"Hint: see `{context.command_path if context else 'orchestral'} --help`.", err=True)
        return USAGE
    return code or 0
