"""`orchestral`: into the program and out of it."""

import sys
from typing import Final, NoReturn

from orchestral_temporal.hosting.signals import listen

FAULT: Final = 70
"""As in `hosting.process`, which --help and --version must not load."""


def main() -> NoReturn:
    """Run a command; whatever happens, a person reads one sentence, and a traceback only with --debug."""
    listen()
    try:
        from orchestral_temporal.cli.commands import obey  # it takes a while, and Ctrl-C ends it now

        code = obey()
    except Exception as error:
        # What a command does is judged in `hosting.process`; here only the way to it can have failed.
        if "--debug" in sys.argv:
            raise
        sys.stderr.write(f"Error: this installation is broken: {type(error).__name__}: {error}.\n")
        sys.stderr.write("Hint: install the package again; the same command with --debug shows where.\n")
        code = FAULT
    sys.exit(code)
