"""A YAML file as plain data that knows its lines."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from yaml import MappingNode, Node, SafeLoader, ScalarNode, SequenceNode, safe_load
from yaml.composer import ComposerError
from yaml.error import MarkedYAMLError, YAMLError

LARGEST_FILE: Final = 1_048_576
"""Bytes; a settings file is a page or two, anything larger was named by mistake."""

MOST_VALUES: Final = 10_000
"""Values in a file, aliases counted as often as they are used: a few lines of aliases can stand for billions."""

DEEPEST: Final = 50
"""Levels of nesting; the format needs six, and an alias may contain itself."""

SHOWN: Final = 5
"""Problems that one message lists; mending those often mends the rest."""

_TAG: Final = "tag:yaml.org,2002:"
_TYPED: Final = (f"{_TAG}null", f"{_TAG}bool", f"{_TAG}int", f"{_TAG}float")
_AS_WRITTEN: Final = (f"{_TAG}str", f"{_TAG}timestamp", f"{_TAG}value", f"{_TAG}merge")

_HALF_CHARACTER: Final = re.compile(r"[\ud800-\udfff]")

Data = None | bool | int | float | str | tuple["Data", ...] | dict[str, "Data"]
Loc = tuple[str | int, ...]


class SettingsError(Exception):
    """The settings cannot be used; `problems` says why, one sentence each."""

    def __init__(self, problems: Sequence[str]) -> None:
        more = len(problems) - SHOWN
        rest = [f"… and {more} more."] if more > 0 else []
        super().__init__("\n".join([*problems[:SHOWN], *rest]))
        self.problems = tuple(problems)


@dataclass(frozen=True)
class SettingsFile:
    """What a file says, on which line (from 1) each value stands, and where its relative paths begin."""

    path: Path
    base: Path
    data: Data
    lines: Mapping[Loc, int]

    def sentence(self, at: Loc, message: str) -> str:
        """`FILE:LINE: agents.default.tools[0] MESSAGE.`; the line is that of the nearest value that has one."""
        known = next((at[:n] for n in range(len(at), -1, -1) if at[:n] in self.lines), None)
        line = f":{self.lines[known]}" if known is not None else ""
        name = "".join(f"[{part}]" if isinstance(part, int) else f".{_shown(part)}" for part in at)
        return f"{self.path}{line}: {name.removeprefix('.') or 'the file'} {message}."


def _shown(key: str) -> str:
    return key if key.isprintable() else repr(key)


def read_yaml(path: Path, base: Path) -> SettingsFile:
    """Read one YAML document of mappings, lists and scalars.

    Scalars are read as YAML 1.1 says, dates as text. No error repeats a value.

    Raises:
        SettingsError: no such file, not text, too large, not YAML, a key twice, a key that is not text, a tag.
    """
    reader = _Reader(path)
    data = reader.value(_node(path), ())
    if reader.problems:
        raise SettingsError(reader.problems)
    return SettingsFile(path, base, data, reader.lines)


def _node(path: Path) -> Node:
    text = _text(path)
    try:
        node: Node | None = SafeLoader(text).get_single_node()
    except ComposerError as error:
        raise _broken(path, error, "has an alias without its anchor, or a second document") from None
    except MarkedYAMLError as error:
        raise _broken(path, error, f"is not valid YAML: {error.problem}") from None
    except YAMLError:
        raise SettingsError([f"{path}: is not a text file."]) from None
    except RecursionError:
        raise SettingsError([f"{path}: is nested too deeply."]) from None
    if node is None:
        raise SettingsError([f"{path}: is empty; the least it needs is an agent under agents."])
    return node


def _text(path: Path) -> str:
    try:
        if path.is_dir():
            raise SettingsError([f"{path}: is a folder, not a settings file."])
        with path.open("rb") as file:
            content = file.read(LARGEST_FILE + 1)
        if len(content) > LARGEST_FILE:
            raise SettingsError([f"{path}: is larger than {LARGEST_FILE} bytes, so it is no settings file."])
        return content.decode("utf-8-sig")
    except FileNotFoundError:
        raise SettingsError([f"{path}: there is no such file; name another with --config."]) from None
    except UnicodeDecodeError:
        raise SettingsError([f"{path}: is not a text file in UTF-8."]) from None
    except OSError as error:
        raise SettingsError([f"{path}: cannot be read: {error.strerror}."]) from None


def _broken(path: Path, error: MarkedYAMLError, message: str) -> SettingsError:
    mark = error.problem_mark
    return SettingsError([f"{path}:{mark.line + 1 if mark else 1}: the file {message}."])


class _Reader:
    """Turns nodes into data, noting lines and problems on the way."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines: dict[Loc, int] = {}
        self.problems: list[str] = []

    def value(self, node: Node, at: Loc) -> Data:
        """The data of a node; what is wrong with it becomes a problem and reads as nothing."""
        self.lines.setdefault(at, node.start_mark.line + 1)
        if len(self.lines) > MOST_VALUES:
            raise SettingsError([f"{self.path}: holds more than {MOST_VALUES} values."])
        if len(at) > DEEPEST:
            raise SettingsError([f"{self.path}: is nested too deeply."])
        match node:
            case MappingNode(tag=tag) if tag == f"{_TAG}map":
                return self._mapping(node, at)
            case SequenceNode(tag=tag) if tag == f"{_TAG}seq":
                return tuple(self.value(item, (*at, index)) for index, item in enumerate(node.value))
            case _:
                return self._scalar(node, at)

    def _mapping(self, node: MappingNode, at: Loc) -> dict[str, Data]:
        found: dict[str, Data] = {}
        pairs: list[tuple[Node, Node]] = node.value
        for key, value in pairs:
            line = key.start_mark.line + 1
            if not isinstance(key, ScalarNode) or key.tag not in _AS_WRITTEN:
                self._problem(at, line, "has a key that is not text; put it in quotes")
            elif key.value in found:
                self._problem((*at, key.value), line, "is there twice")
            else:
                self.lines[*at, key.value] = line
                found[key.value] = self.value(value, (*at, key.value))
        return found

    def _scalar(self, node: Node, at: Loc) -> Data:
        if node.tag in _AS_WRITTEN:
            if _HALF_CHARACTER.search(node.value):
                self._problem(at, node.start_mark.line + 1, "has half a character in it, a lone surrogate")
            return node.value
        if node.tag in _TYPED and isinstance(node, ScalarNode) and not node.style:
            try:
                return safe_load(node.value)
            except ValueError:
                self._problem(at, node.start_mark.line + 1, "is not a number that can be read")
                return None
        self._problem(at, node.start_mark.line + 1, "has a tag, which means nothing here")
        return None

    def _problem(self, at: Loc, line: int, message: str) -> None:
        self.problems.append(SettingsFile(self.path, Path(), None, {at: line}).sentence(at, message))
