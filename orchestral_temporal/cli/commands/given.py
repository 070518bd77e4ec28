"""What several commands are given: their common options, and texts from an argument, a file or standard input."""

import json
import sys
from pathlib import Path
from typing import Annotated, TextIO

import typer

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
Command = Annotated[
    str | None, typer.Option("--id", help="Id of the command; the same again is the same command.", metavar="ID")
]
Words = Annotated[str, typer.Argument(help="What to say; - reads it from standard input.", metavar="TEXT")]


def text(given: str, name: str) -> str:
    """A text argument, from standard input if it is a dash; `name` is what it is called in a complaint.

    Raises:
        typer.BadParameter: it is empty, or no text.
    """
    return _decoded(_standard_input(name) if given == "-" else given.encode("utf-8", "surrogateescape"), name)


def text_of(file: Path, name: str) -> str:
    """The text in a file; raises as `text`."""
    return _decoded(file.read_bytes(), name)


def json_text(given: str, name: str) -> str:
    """A JSON value as it was written, so that no number loses a digit; from standard input if it is a dash.

    Raises:
        typer.BadParameter: it is no JSON value.
    """
    value = text(given, name)
    try:
        json.loads(value, parse_constant=_no_json)
    except (ValueError, RecursionError):
        said = """it is no JSON value; write 7, '"text"' or '{"n": 7}', in quotes for your shell."""
        raise typer.BadParameter(said, param_hint=name) from None
    return value


def _no_json(constant: str) -> None:
    raise ValueError(constant)


def _standard_input(name: str) -> bytes:
    stream: TextIO | None = sys.stdin
    if stream is None:  # as `<&-` leaves it
        raise typer.BadParameter("standard input is closed.", param_hint=name)
    return stream.buffer.read()


def _decoded(data: bytes, name: str) -> str:
    try:
        said = data.decode().rstrip("\n")
    except UnicodeDecodeError:
        raise typer.BadParameter("what it names is not text in UTF-8.", param_hint=name) from None
    if not said.strip():
        raise typer.BadParameter("it is empty; say something.", param_hint=name)
    return said
