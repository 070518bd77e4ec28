"""Finding and reading the settings file: every refusal names file, line, key and remedy in one sentence."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final, cast

from pydantic import SecretStr, ValidationError
from pydantic_core import ErrorDetails

from orchestral_temporal.hosting.settings import Settings
from orchestral_temporal.hosting.values import SecretRef, kind_of
from orchestral_temporal.hosting.yaml_file import Loc, SettingsError, SettingsFile, read_yaml

FILE_NAME: Final = "temporal-dev.yaml"

_INSTALLED: Final = Path(__file__).with_name(FILE_NAME)
PACKAGED: Final = _INSTALLED if _INSTALLED.is_file() else Path(__file__).parents[2] / FILE_NAME
"""The wheel carries a copy beside this module; a source tree has only the one at its root."""

LARGEST_SECRET: Final = 65_536
"""Bytes of a secret's file; a longer one is another file named by mistake."""

_MESSAGES: Final = {
    "missing": "is missing",
    "int_type": "must be a whole number, not {kind}",
    "string_type": "must be text, not {kind}",
    "bool_type": "must be true or false, not {kind}",
    "tuple_type": "must be a list, not {kind}",
    "dict_type": "must be a mapping, not {kind}",
    "model_attributes_type": "must be a mapping, not {kind}",
    "literal_error": "must be one of {expected}",
    "greater_than_equal": "must be at least {ge}",
    "less_than_equal": "must be at most {le}",
    "too_short": "must not be empty",
    "union_tag_not_found": "needs the key adapter: offline, openai or scripted",
    "union_tag_invalid": "must have one of these as its adapter: {expected_tags}",
    "setting": "{sentence}",
}
"""Our words for pydantic's refusals, which speak to programmers."""


def find_config(cli_value: str | None) -> Path:
    """The file to read: `--config`, else `temporal-dev.yaml` in the working directory, else the packaged one."""
    if cli_value is not None:
        return Path(cli_value)
    local = Path(FILE_NAME)
    return local if local.exists() else PACKAGED


def load_settings(path: Path) -> Settings:
    """Read and check a settings file.

    Relative paths in it count from its own folder, those of the packaged file from the working directory: a database
    or a workspace must not end up among installed packages. Secrets are not looked up here.

    Raises:
        SettingsError: the file or something in it cannot be used; all problems of one stage at once.
    """
    file = read_yaml(path, Path.cwd() if path == PACKAGED else path.absolute().parent)
    try:
        return Settings.model_validate(file.data, context=file)
    except ValidationError as error:
        sentences = [text for each in error.errors(include_url=False) for text in _sentences(file, each)]
        raise SettingsError(sentences) from None  # the original repeats values, which may be secrets


def resolve_secret(ref: SecretRef) -> SecretStr:
    """The secret behind a reference; it shows in no repr.

    Raises:
        SettingsError: the variable is not set, the file cannot be read, or nothing is in it.
    """
    match ref.kind:
        case "env":
            text = os.environ.get(ref.name, "")
            remedy = f"export {ref.name}"
        case "file":
            text = _secret_file(ref)
            remedy = "write the secret into the file"
    if not text.strip():
        raise SettingsError([f"The secret {ref} is not there: {remedy}."])
    return SecretStr(text.strip())


def _secret_file(ref: SecretRef) -> str:
    try:
        with Path(ref.name).open("rb") as file:
            content = file.read(LARGEST_SECRET + 1)
        if len(content) > LARGEST_SECRET:
            raise SettingsError([f"The secret {ref} is larger than {LARGEST_SECRET} bytes: name another file."])
        return content.decode("utf-8")
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise SettingsError([f"The secret {ref} cannot be read: {error.strerror}."]) from None
    except UnicodeDecodeError:
        raise SettingsError([f"The secret {ref} is not text in UTF-8: name another file."]) from None


def _sentences(file: SettingsFile, error: ErrorDetails) -> list[str]:
    """One sentence for each place that an error is about."""
    context: Mapping[str, object] = error.get("ctx", {})
    template = _MESSAGES.get(error["type"], error["msg"].replace("{", "{{").replace("}", "}}"))
    message = template.format_map({**context, "kind": kind_of(error["input"])})
    place = _place(file, error["loc"])
    if error["type"] == "missing":
        place = (*place, error["loc"][-1])
    places = cast("tuple[tuple[str, ...], ...]", context.get("at", ((),)))  # as `values.fault` wrote it
    return [file.sentence((*place, *at), message) for at in places]


def _place(file: SettingsFile, loc: Loc) -> Loc:
    """The path in the file of pydantic's location, which also names union members and the word `[key]`."""
    place: Loc = ()
    for part in loc:
        if (*place, part) in file.lines:
            place = (*place, part)
    return place
