"""How single values of the settings file are written: durations, paths, addresses, secrets, tools (answers 12).

Each type here is a field type for `settings`. The validation context is the `SettingsFile`, whose `base` is where
relative paths begin; without one they begin in the working directory. Messages complete a sentence that begins with
the field's name, and never repeat a value that could be a secret.
"""

import math
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Final, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, PlainValidator, ValidationInfo
from pydantic_core import PydanticCustomError

from orchestral_temporal.hosting.yaml_file import SettingsFile

LONGEST_DURATION: Final = timedelta(days=3650)
"""Ten years: more is a slip of the keyboard, and far below what a server's nanoseconds can hold."""

LARGEST_COUNT: Final = 2**53 - 1
"""The largest whole number that every JSON reader keeps exactly."""

BUILTIN_TOOLS: Final = {
    "file_read": ("file_read",),
    "search": ("file_search", "text_search"),
    "file_search": ("file_search",),
    "text_search": ("text_search",),
    "file_write": ("file_write",),
    "file_edit": ("file_edit", "apply_patch"),
    "apply_patch": ("apply_patch",),
}
"""Words of the file to the names that the model sees."""

WRITING_TOOLS: Final = ("file_write", "file_edit", "apply_patch")
"""Words for tools that need a folder to write in."""

LATER_TOOLS: Final = ("exec", "exec_command", "write_stdin", "artifact_read")
"""Words that a policy may already speak of; the tools themselves come in a later version."""

_DURATION = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,6})?)(ms|s|m|h)")
_SECONDS: Final = {"ms": 0.001, "s": 1, "m": 60, "h": 3600}
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PYTHON_TOOL = re.compile(r"python:([^\W\d]\w*(?:\.[^\W\d]\w*)*):([^\W\d]\w*)")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def fault(message: str, *at: tuple[str, ...]) -> PydanticCustomError:
    """A refusal in our own words; each `at` is a path from the refused value to what is wrong inside it."""
    return PydanticCustomError("setting", "{sentence}", {"sentence": message, "at": at or ((),)})


def kind_of(value: object) -> str:
    """What a person would call a value of the file."""
    match value:
        case None:
            return "nothing"
        case bool():
            return "true or false"
        case int() | float():
            return "a number"
        case str():
            return "text"
        case dict():
            return "a mapping"
        case _:
            return "a list"


def _text(value: object, what: str) -> str:
    if not isinstance(value, str):
        raise fault(f"must be {what}, not {kind_of(value)}")
    if not value.strip() or _CONTROL.search(value):
        raise fault(f"must be {what}, neither blank nor with control characters")
    return value


def _name(value: object) -> str:
    return _text(value, "text")


def _duration(value: object) -> timedelta:
    if isinstance(value, timedelta):
        return value
    match = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise fault("must be a duration such as 250ms, 2s, 5m or 720h")
    duration = timedelta(seconds=float(match[1]) * _SECONDS[match[2]])
    if not timedelta(0) < duration <= LONGEST_DURATION:
        raise fault("must be a duration above zero and of at most 87600h")
    return duration


def _duration_or_off(value: object) -> timedelta | None:
    if value is False:
        return None
    try:
        return _duration(value)
    except PydanticCustomError:
        raise fault("must be a duration such as 250ms, or false to switch it off") from None


def _port_or_off(value: object) -> int | None:
    if value is False:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < 2**16:
        raise fault("must be a port number from 1 to 65535, or false to switch it off")
    return value


def split_address(address: str) -> tuple[str, int] | None:
    """Host and port of `HOST:PORT` or `[IPV6]:PORT`; none if it is neither."""
    host, _, port = address.rpartition(":")
    bare = host.removeprefix("[").removesuffix("]")
    brackets = host != bare
    if not re.fullmatch(r"[0-9]{1,5}", port) or not 0 < int(port) < 2**16:
        return None
    return (bare, int(port)) if re.fullmatch(r"[A-Za-z0-9.:_-]+", bare) and brackets == (":" in bare) else None


def _address(value: object) -> str:
    text = _text(value, "HOST:PORT")
    if split_address(text) is None:
        raise fault("must be HOST:PORT such as 127.0.0.1:7233, without a scheme")
    return text


def _path(value: object, info: ValidationInfo) -> Path:
    base = info.context.base if isinstance(info.context, SettingsFile) else Path.cwd()
    path = value if isinstance(value, Path) else Path(_text(value, "a path"))
    try:
        return Path(os.path.normpath(base.absolute() / path.expanduser()))
    except RuntimeError:
        raise fault(f"names {str(path)[:80]}, a home folder that nobody has") from None


def _there(test: Callable[[], bool]) -> bool:
    """Whether something is there; a name that no file system takes names nothing."""
    try:
        return test()
    except (OSError, ValueError):
        return False


def _folder(value: Path) -> Path:
    if not _there(value.is_dir):
        raise fault(f"names {str(value)[:200]}, which is no folder")
    return value


def _file(value: Path) -> Path:
    if not _there(value.is_file):
        raise fault(f"names {str(value)[:200]}, which is no file")
    return value


def _database(value: Path) -> Path:
    if set(value.name) & set("?#%"):
        raise fault("must be a file name without ?, # and %, which the server reads as parts of a URL")
    if value.is_dir():
        raise fault(f"names {value}, which is a folder")
    return value


def _store(value: object, info: ValidationInfo) -> Path:
    if isinstance(value, str) and not value.startswith("file:"):
        raise fault("must be file://FOLDER; other stores are not in this version yet")
    if isinstance(value, str):
        value = value.removeprefix("file:").removeprefix("//")
    folder = _path(value, info)
    if folder.exists() and not folder.is_dir():
        raise fault(f"names {folder}, which is no folder")
    return folder


@dataclass(frozen=True)
class SecretRef:
    """Where a secret lies: an environment variable, or a file by its absolute path. Never the secret."""

    kind: Literal["env", "file"]
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


def _secret_ref(value: object, info: ValidationInfo) -> SecretRef:
    if isinstance(value, SecretRef):
        return value
    kind, _, name = value.partition(":") if isinstance(value, str) else ("", "", "")
    if kind == "env" and _VARIABLE.fullmatch(name):
        return SecretRef("env", name)
    if kind == "file" and name.strip() and not _CONTROL.search(name):
        return SecretRef("file", str(_path(name, info)))
    raise fault("must be a reference, env:NAME or file:PATH, never the secret itself")


def _url(value: object) -> str:
    text = _text(value, "a URL")
    try:
        parts = urlsplit(text)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        raise fault("must be an http:// or https:// URL") from None
    if not usable:
        raise fault("must be an http:// or https:// URL")
    if "@" in parts.netloc:
        raise fault("must be a URL without user and password; a secret is a reference in api_key")
    if parts.query or parts.fragment:
        raise fault("must be a URL that ends with its path; a secret is a reference in api_key")
    return text


def _currency(value: object) -> str:
    if isinstance(value, str) and re.fullmatch("[A-Z]{3}", value):
        return value
    raise fault("must be an ISO code of three capital letters, such as USD")


def _scalar(value: object) -> str | int | float | bool:
    if isinstance(value, str | int | float) and math.isfinite(0 if isinstance(value, str) else value):
        return value
    raise fault(f"must be text, a number, true or false, not {kind_of(value)}")


def python_tool(word: str) -> tuple[str, str] | None:
    """Module and function of `python:MODULE:FUNCTION`; none for any other word."""
    match = _PYTHON_TOOL.fullmatch(word)
    return (match[1], match[2]) if match else None


def _tool(value: object) -> str:
    if isinstance(value, str) and (value in BUILTIN_TOOLS or python_tool(value)):
        return value
    allowed = ", ".join([*BUILTIN_TOOLS, "python:MODULE:FUNCTION"])
    later = isinstance(value, dict) or value in LATER_TOOLS
    raise fault(f"is {'not in this version yet' if later else 'no tool'}; allowed: {allowed}")


def _no_skills(value: object) -> tuple[str, ...]:
    if value == ():
        return ()
    raise fault("must be empty or absent: skills are not in this version yet")


Name = Annotated[str, BeforeValidator(_name)]
Count = Annotated[int, Field(ge=1, le=LARGEST_COUNT)]
Amount = Annotated[int, Field(ge=0, le=LARGEST_COUNT)]
Duration = Annotated[timedelta, BeforeValidator(_duration)]
DurationOrOff = Annotated[timedelta | None, BeforeValidator(_duration_or_off)]
PortOrOff = Annotated[int | None, BeforeValidator(_port_or_off)]
Address = Annotated[str, BeforeValidator(_address)]
Folder = Annotated[Path, BeforeValidator(_path), AfterValidator(_folder)]
File = Annotated[Path, BeforeValidator(_path), AfterValidator(_file)]
Database = Annotated[Path, BeforeValidator(_path), AfterValidator(_database)]
Store = Annotated[Path, BeforeValidator(_store)]
Secret = Annotated[SecretRef, BeforeValidator(_secret_ref)]
Currency = Annotated[str, BeforeValidator(_currency)]
Url = Annotated[str, BeforeValidator(_url)]
Scalar = Annotated[str | int | float | bool, PlainValidator(_scalar)]
Tool = Annotated[str, BeforeValidator(_tool)]
NoSkills = Annotated[tuple[str, ...], PlainValidator(_no_skills)]
