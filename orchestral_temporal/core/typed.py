"""Commands that we tell people to type: what we print works as it stands, whatever an id looks like."""

import shlex


def typed(command: str, *names: str, option: str | None = None) -> str:
    """A command of ours with the ids it is about, quoted for a shell.

    An id that begins with a dash stands behind `--`. What stands there is never an option, so that `option` goes before
    it then; else it comes last, where people look for it.
    """
    said = shlex.join(names)
    if any(name.startswith("-") for name in names):
        return " ".join(filter(None, ("orchestral", command, option, "--", said)))
    return " ".join(filter(None, ("orchestral", command, said, option)))
