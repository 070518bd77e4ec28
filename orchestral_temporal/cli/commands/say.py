"""`steer`, `queue`, `answer`, `cancel` and `pending`: what people say to a run, and what it waits for."""

from pathlib import Path
from typing import Annotated

import typer

from orchestral_temporal.cli.commands import given

app = typer.Typer()


@app.command()
def steer(
    run: given.Run,
    text: given.Words,
    command_id: given.Command = None,
    config: given.Config = None,
    debug: given.Debug = False,
) -> None:
    """Tell a run something now; print the wire acknowledgement. The model hears it in its next request."""
    from orchestral_temporal.cli.say import steer_run
    from orchestral_temporal.cli.settled import conclude

    said = given.text(text, "TEXT")
    conclude(lambda settings: steer_run(settings, run, said, command_id), config=config, debug=debug)


@app.command()
def queue(
    run: given.Run,
    text: Annotated[str | None, typer.Argument(help="What to say; - reads it from standard input.")] = None,
    replace: Annotated[
        str | None, typer.Option("--replace", help="Put the text in the place of this queued input.", metavar="ID")
    ] = None,
    withdraw: Annotated[
        str | None, typer.Option("--withdraw", help="Take this queued input back, instead of a text.", metavar="ID")
    ] = None,
    command_id: given.Command = None,
    config: given.Config = None,
    debug: given.Debug = False,
) -> None:
    """Tell a run something once its model has answered; print the wire acknowledgement, whose id names the input."""
    from orchestral_temporal.cli.say import Queued, queue_input
    from orchestral_temporal.cli.settled import conclude

    if (text is None) is (withdraw is None) or (replace is not None and withdraw is not None):
        raise typer.BadParameter("give a text, with or without --replace; or --withdraw and no text.")
    said = Queued(None if text is None else given.text(text, "TEXT"), replace, withdraw, command_id)
    conclude(lambda settings: queue_input(settings, run, said), config=config, debug=debug)


@app.command()
def answer(
    run: given.Run,
    request: Annotated[str, typer.Argument(help="The question's id; `pending` shows it.", metavar="REQUEST")],
    text: Annotated[str | None, typer.Argument(help="The answer; - reads it from standard input.")] = None,
    file: Annotated[
        Path | None,
        typer.Option("--file", help="Read the answer from a file.", metavar="FILE", exists=True, dir_okay=False),
    ] = None,
    value: Annotated[
        str | None,
        typer.Option("--json", help="Answer with a JSON value, which the model reads as it is.", metavar="VALUE"),
    ] = None,
    command_id: given.Command = None,
    config: given.Config = None,
    debug: given.Debug = False,
) -> None:
    """Answer a question of a run; print the wire acknowledgement.

    The answer is TEXT, the text of a file, or a JSON value; - as TEXT or VALUE reads it from standard input.
    """
    from orchestral_temporal.cli.say import answer_question
    from orchestral_temporal.cli.settled import conclude

    match text, file, value:
        case str(), None, None:
            said = given.text(text, "TEXT")
        case None, Path(), None:
            said = given.text_of(file, "--file")
        case None, None, str():
            said = given.json_text(value, "--json")
        case _:
            raise typer.BadParameter("give the answer as TEXT, with --file or with --json, one of the three.")
    conclude(lambda settings: answer_question(settings, run, request, said, command_id), config=config, debug=debug)


@app.command()
def cancel(
    run: given.Run,
    reason: Annotated[str, typer.Option("--reason", help="Why; goes on record.", metavar="TEXT")] = "cancelled",
    config: given.Config = None,
    debug: given.Debug = False,
) -> None:
    """Cancel a run; print the wire acknowledgement."""
    from orchestral_temporal.cli.look import cancel_run
    from orchestral_temporal.cli.settled import conclude

    conclude(lambda settings: cancel_run(settings, run, reason), config=config, debug=debug)


@app.command()
def pending(as_json: given.AsJson = False, config: given.Config = None, debug: given.Debug = False) -> None:
    """Show what waits for a person, with the command that answers it."""
    from orchestral_temporal.cli.say import show_pending
    from orchestral_temporal.cli.settled import conclude

    conclude(lambda settings: show_pending(settings, as_json=as_json), config=config, debug=debug)
