"""`dev`, `worker`, `agents`, `setup` and `doctor`: keeping the world in which runs live."""

from typing import Annotated

import typer

from orchestral_temporal.cli.commands import given

app = typer.Typer()


@app.command()
def dev(config: given.Config = None, debug: given.Debug = False) -> None:
    """Server, UI and all workers until Ctrl-C."""
    from orchestral_temporal.cli.keep import keep_dev
    from orchestral_temporal.cli.settled import conclude

    conclude(keep_dev, config=config, debug=debug)


@app.command()
def worker(
    role: Annotated[str, typer.Option("--role", help="all, runs, models or tools.")] = "all",
    config: given.Config = None,
    debug: given.Debug = False,
) -> None:
    """One worker process on a server that is there, until Ctrl-C."""
    from orchestral_temporal.cli.keep import keep_worker
    from orchestral_temporal.cli.settled import conclude

    conclude(lambda settings: keep_worker(settings, role), config=config, debug=debug, service=True)


@app.command()
def agents(as_json: given.AsJson = False, config: given.Config = None, debug: given.Debug = False) -> None:
    """Show the agents of the settings file, with binding and descriptor digest."""
    from orchestral_temporal.cli.keep import show_agents
    from orchestral_temporal.cli.settled import conclude

    conclude(lambda settings: show_agents(settings, as_json=as_json), config=config, debug=debug)


@app.command()
def setup(
    namespace: Annotated[str | None, typer.Option("--namespace", help="Another one than the settings'.")] = None,
    as_json: given.AsJson = False,
    config: given.Config = None,
    debug: given.Debug = False,
) -> None:
    """Prepare a namespace: retention and search attributes; a second time changes nothing."""
    from orchestral_temporal.cli.keep import set_up
    from orchestral_temporal.cli.settled import conclude

    conclude(lambda settings: set_up(settings, namespace, as_json=as_json), config=config, debug=debug)


@app.command()
def doctor(as_json: given.AsJson = False, config: given.Config = None, debug: given.Debug = False) -> None:
    """Check all that a run needs and say what to do; exit 0 if all is well, else 1."""
    from orchestral_temporal.cli.keep import examine_all
    from orchestral_temporal.cli.settled import conclude

    conclude(lambda settings: examine_all(settings, as_json=as_json), config=config, debug=debug)
