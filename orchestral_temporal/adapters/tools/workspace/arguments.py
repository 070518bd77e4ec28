"""Reading a call's arguments; the guard has checked their types against the schema already."""

from orchestral_temporal.protocol.base import JsonObject


def text(arguments: JsonObject, key: str, default: str = "") -> str:
    """The trimmed text under `key`, `default` if it is absent."""
    value = arguments.get(key, default)
    return value.strip() if isinstance(value, str) else default


def flag(arguments: JsonObject, key: str, *, default: bool) -> bool:
    """The boolean under `key`."""
    value = arguments.get(key, default)
    return value if isinstance(value, bool) else default


def whole(arguments: JsonObject, key: str, default: int, *, cap: int | None = None) -> int:
    """The count under `key`, at most `cap`; a negative one counts as absent (`spec/builtin-tools.md` §4)."""
    value = arguments.get(key, default)
    # JSON Schema counts 3.0 as an integer, so a float may arrive here.
    number = int(value) if isinstance(value, int | float) and value >= 0 else default
    return number if cap is None else min(number, cap)
