"""`list`, `inspect`, `events`, `effects` and `artifacts`: looking at runs, and at what they left."""

from pathlib import Path
from typing import Annotated

import typer
from typer.core import TyperGroup

from orchestral_temporal.cli.commands import given

app = typer.Typer()

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


@app.command(name="list")
def list_(
    status: Annotated[str | None, typer.Option("--status", help="Only runs with this status.")] = None,
    waiting: Annotated[str | None, typer.Option("--waiting", help="Only runs that wait for input or approval.")] = None,
    session: Annotated[str | None, typer.Option("--session", help="Only runs of this session.", metavar="ID")] = None,
    limit: Annotated[int, typer.Option("--limit", help="At most so many.", min=1)] = 100,
    as_json: given.AsJson = False,
    config: given.Config = None,
    debug: given.Debug = False,
) -> None:
    """List runs, by their search attributes."""
    from orchestral_temporal.cli.look import Wanted, list_runs
    from orchestral_temporal.cli.settled import conclude

    wanted = Wanted(status, waiting, session, limit)
    conclude(lambda settings: list_runs(settings, wanted, as_json=as_json), config=config, debug=debug)


@app.command()
def inspect(
    run: given.Run, as_json: given.AsJson = False, config: given.Config = None, debug: given.Debug = False
) -> None:
    """Show how a run stands; with --json the wire view."""
    from orchestral_temporal.cli.look import inspect_run
    from orchestral_temporal.cli.settled import conclude

    conclude(lambda settings: inspect_run(settings, run, as_json=as_json), config=config, debug=debug)


@app.command()
def events(
    run: given.Run,
    after: Annotated[int, typer.Option("--after", help="Only events with a larger number.", metavar="N", min=0)] = 0,
    follow: Annotated[bool, typer.Option("--follow", help="Go on until the run ends.")] = False,
    as_json: given.AsJson = False,
    config: given.Config = None,
    debug: given.Debug = False,
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
def show(
    run: given.Run, as_json: given.AsJson = False, config: given.Config = None, debug: given.Debug = False
) -> None:
    """Show every tool call of a run: how far it is, whether its fence stands, its outcome, its settlement."""
    from orchestral_temporal.cli.effects import show_effects
    from orchestral_temporal.cli.settled import conclude

    conclude(lambda settings: show_effects(settings, run, as_json=as_json), config=config, debug=debug)


@effects.command()
def settle(
    run: given.Run,
    call: Annotated[str, typer.Argument(help="The call as `effects RUN` shows it, or its end: m1/c1.", metavar="CALL")],
    happened: Annotated[
        str | None, typer.Option("--happened", help="It took effect: what happened.", metavar="TEXT")
    ] = None,
    did_not: Annotated[bool, typer.Option("--did-not", help="It took no effect.")] = False,
    by: Annotated[str | None, typer.Option("--by", help="Who says so, if not you.", metavar="NAME")] = None,
    session: Annotated[
        str | None, typer.Option("--session", help="Session of a run that is there no more.", metavar="ID")
    ] = None,
    as_json: given.AsJson = False,
    config: given.Config = None,
    debug: given.Debug = False,
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
    config: given.Config = None,
    debug: given.Debug = False,
) -> None:
    """Copy an artifact out of the store of the settings file, such as a text that a delivery names."""
    from orchestral_temporal.cli.look import get_artifact
    from orchestral_temporal.cli.settled import conclude

    conclude(lambda settings: get_artifact(settings, reference, file), config=config, debug=debug)
