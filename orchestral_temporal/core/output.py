"""A tool's output: is it JSON, and does it fit (`spec/tools.md` §12, divergence 15)."""

import json
import re
from dataclasses import dataclass
from math import isfinite
from typing import Final, TypeAlias, cast

from orchestral_temporal.core.limits import INLINE_RESULT_BYTES
from orchestral_temporal.core.schema import VALUE_DEPTH
from orchestral_temporal.core.schema_fault import path_of
from orchestral_temporal.protocol.digest import canonical
from orchestral_temporal.protocol.words import Json

OUTPUT_PARTS: Final = 1_000_000
"""Objects, arrays and scalars of an output that is looked at to its end: about a second of a thread."""

OUTPUT_CHARACTERS: Final = 67_108_864
"""Characters of text in such an output: the 64 MiB that an artifact may have by default."""

_SMALLEST: Final = -(2**63)
_LARGEST: Final = 2**64 - 1
"""The integers that the wire keeps exactly (`spec/wire.md` §1)."""

_SURROGATE: Final = re.compile("[\ud800-\udfff]")

_Place: TypeAlias = "tuple[_Place, str | int] | None"
"""Where a part lies: the place of what holds it, and the step from there. Spelled out only for a fault."""


class OutputError(Exception):
    """An output cannot be taken; `code` is a result code of `spec/tools.md` §18."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message


@dataclass(frozen=True)
class Output:
    """A copy of what a tool returned, certainly JSON.

    `size` counts bytes of canonical JSON; above twice the inline cap, of compact JSON, where numbers may be spelled
    otherwise. `replaced` counts the lone surrogates that became U+FFFD.
    """

    value: Json
    size: int
    replaced: int


def read_output(value: object) -> Output:
    """Copy an output, so that the tool cannot change it later, and judge it on the way.

    Raises:
        OutputError: output_serialization_failed, it is not JSON, names the place; output_limit_exceeded, it is huge.
    """
    reading = _Reading()
    copy = reading.copy(value, None, 0)
    size = len(_compact(copy).encode())
    # The canonical form of many floats is slow to write, and needed only where it may decide.
    if size <= 2 * INLINE_RESULT_BYTES:
        size = len(canonical(copy))
    return Output(copy, size, reading.replaced)


def shortened(output: Output) -> Json:
    """An output above the inline cap, cut at a character to an object below it that says so.

    `text` is the beginning of the output if that is text, else of its JSON.
    """
    text = output.value if isinstance(output.value, str) else _compact(output.value)
    kept = text[:INLINE_RESULT_BYTES]
    while True:
        note = f"The result has {output.size} bytes of JSON; only its first {len(kept)} characters are kept, as `text`."
        cut: Json = {"truncated": True, "original_bytes": output.size, "note": note, "text": kept}
        size = len(canonical(cut))
        if size <= INLINE_RESULT_BYTES:
            return cut
        kept = kept[: len(kept) * INLINE_RESULT_BYTES // size]


def without_surrogates(text: str) -> tuple[str, int]:
    """A text with each lone surrogate replaced by U+FFFD, and how many there were."""
    return (text, 0) if text.isascii() else _SURROGATE.subn("\ufffd", text)


def _compact(value: Json) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


class _Reading:
    """One pass over an output, with its counts."""

    def __init__(self) -> None:
        self.parts = self.characters = self.replaced = 0

    def copy(self, value: object, place: _Place, depth: int) -> Json:
        kind = type(value)
        if kind is str:
            return self._text(cast("str", value))
        if kind is not dict and kind is not list:
            return _scalar(value, place)
        self._count(len(cast("list[object]", value)))
        if depth == VALUE_DEPTH:
            raise _not_json(place, f"lies below {VALUE_DEPTH} containers; return something flatter")
        if kind is dict:
            return self._object(cast("dict[object, object]", value), place, depth + 1)
        return [self.copy(item, (place, at), depth + 1) for at, item in enumerate(cast("list[object]", value))]

    def _object(self, value: dict[object, object], place: _Place, depth: int) -> Json:
        copy: dict[str, Json] = {}
        for key, item in value.items():
            if type(key) is not str:
                raise _not_json(place, f"has a key of type {type(key).__name__}; keys must be text")
            name = self._text(key)
            if name in copy:
                raise _not_json(place, "has two keys that differ only in what is not Unicode; name them apart")
            copy[name] = self.copy(item, (place, name), depth)
        return copy

    def _count(self, items: int) -> None:
        self.parts += items
        if self.parts > OUTPUT_PARTS:
            raise OutputError("output_limit_exceeded", f"The output has more than {OUTPUT_PARTS} parts; return less.")

    def _text(self, text: str) -> str:
        self.characters += len(text)
        if self.characters > OUTPUT_CHARACTERS:
            raise OutputError(
                "output_limit_exceeded", f"The output has more than {OUTPUT_CHARACTERS} characters; return less."
            )
        clean, replaced = without_surrogates(text)
        self.replaced += replaced
        return clean


def _scalar(value: object, place: _Place) -> Json:
    if value is None or isinstance(value, bool):
        return value
    # Exact types only: a subclass may write itself in its own way.
    if type(value) is int:
        if not _SMALLEST <= value <= _LARGEST:
            raise _not_json(place, "is an integer of more than 64 bits; return it as text")
        return value
    if type(value) is float:
        if not isfinite(value):
            raise _not_json(place, f"is {value}, which JSON does not have; return null or text")
        return value
    raise _not_json(place, f"is of type {type(value).__name__}, which JSON does not have")


def _not_json(place: _Place, fault: str) -> OutputError:
    steps: list[str | int] = []
    while place is not None:
        place, step = place
        steps.append(step)
    return OutputError("output_serialization_failed", f"The output at {path_of(reversed(steps))} {fault}.")
