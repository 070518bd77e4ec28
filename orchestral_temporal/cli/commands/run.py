"""`run`, `start` and `watch`: from a task to its answer."""

from typing import Annotated

import typer

from orchestral_temporal.cli.commands import given

app = typer.Typer()


@app.command()
def run(
    task: Annotated[
        str | None, typer.Argument(help="What to do; - reads it from standard input.", metavar="[TASK]")
    ] = None,
    agent: given.Agent = "default",
    workspace: given.Workspace = None,
    session: given.Session = None,
    run_id: given.RunId = None,
    as_json: given.AsJson = False,
    config: given.Config = None,
    debug: given.Debug = False,
) -> None:
    """Start a run and follow it; print its answer. Without a task: a run for each line that is typed or piped in.

    Where no server or no worker is there, both are started for the time of the command. A question of the run is
    asked on the terminal; where standard input is none, or with --json, `orchestral answer` answers it. Ctrl-C cancels
    the run, a second one leaves at once.

    Without a task all runs belong to one session. Ctrl-C during a run comes back to the prompt; there, it leaves as
    Ctrl-D does, with 0. Lines that are piped in end with 0 if all runs were delivered, else with the highest code.
    """
    from orchestral_temporal.cli.settled import conclude

    if task is None:
        if run_id is not None:
            raise typer.BadParameter("it names one run; give a task as well.", param_hint="--run-id")
        from orchestral_temporal.cli.chat import Chat, chat

        talk = Chat(agent, workspace, session)
        conclude(lambda settings: chat(settings, talk, as_json=as_json), config=config, debug=debug)
    from orchestral_temporal.cli.follow import Asked, run_task

    asked = Asked(given.text(task, "TASK"), agent, workspace, session, run_id)
    conclude(lambda settings: run_task(settings, asked, as_json=as_json), config=config, debug=debug)


@app.command()
def start(
    task: given.Task,
    agent: given.Agent = "default",
    workspace: given.Workspace = None,
    session: given.Session = None,
    run_id: given.RunId = None,
    as_json: given.AsJson = False,
    config: given.Config = None,
    debug: given.Debug = False,
) -> None:
    """Start a run on a server that is there, print its id and leave."""
    from orchestral_temporal.cli.follow import Asked, start_task
    from orchestral_temporal.cli.settled import conclude

    asked = Asked(given.text(task, "TASK"), agent, workspace, session, run_id)
    conclude(lambda settings: start_task(settings, asked, as_json=as_json), config=config, debug=debug)


@app.command()
def watch(
    run: given.Run, as_json: given.AsJson = False, config: given.Config = None, debug: given.Debug = False
) -> None:
    """Follow a run until it ends: text as it streams, tool calls, the answer. Ctrl-C leaves the run alone."""
    from orchestral_temporal.cli.follow import watch_run
    from orchestral_temporal.cli.settled import conclude

    conclude(lambda settings: watch_run(settings, run, as_json=as_json), config=config, debug=debug)
