"""Every command, its arguments and its help: a module for what it is about."""

from typing import Annotated, Final

import typer

from orchestral_temporal import __version__
from orchestral_temporal.cli.commands import keep, look, run, say

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
for _commands in (run.app, look.app, say.app, keep.app):
    app.add_typer(_commands)


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
