"""A user's own module, as the function adapter meets it: types of many kinds, marked and plain functions."""

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Generic, Literal, TypeVar
from uuid import UUID

from pydantic import BaseModel, Field, RootModel, SecretStr

from orchestral_temporal.api import ToolCall, tool


class Priority(Enum):
    """An enum of text."""

    LOW = "low"
    HIGH = "high"


class Level(IntEnum):
    """An enum of integers."""

    ONE = 1


class Animal(BaseModel):
    """A base model."""

    name: str


class Dog(Animal):
    """A subclass."""

    kind: Literal["dog"] = "dog"
    barks: bool


class Cat(Animal):
    """Another subclass."""

    kind: Literal["cat"] = "cat"


T = TypeVar("T")


class Page(BaseModel, Generic[T]):
    """A generic model."""

    items: list[T]


class Node(BaseModel):
    """A recursive model."""

    value: int
    children: list["Node"] = []


class Numbers(RootModel[tuple[int, ...]]):
    """A model that is its root."""


@dataclass(frozen=True)
class Point:
    """A frozen dataclass."""

    x: int
    label: Priority


class Text(str):
    """A subclass of text."""

    __slots__ = ()


class Number(float):
    """A subclass of float, like numpy's."""

    __slots__ = ()


class Nobody:
    """A type without a JSON form."""


Pet = Annotated[Dog | Cat, Field(discriminator="kind")]

SEEN: list[object] = []
"""What the functions saw, for the tests to look at."""


def keep(  # a plain function: sync, without a mark
    *,
    dog: Dog,
    pets: Page[Pet],
    at: datetime,
    priority: Priority,
    unique: frozenset[int],
    node: Node | None = None,
) -> str:
    """Keep what was given."""
    SEEN[:] = [dog, pets, at, priority, unique, node]
    return type(pets.items[0]).__name__


@tool(
    name="send",
    description="Send a mail.",
    idempotency="idempotent_with_key",
    approval="ask",
    concurrency="global_serial",
    timeout=timedelta(seconds=30),
)
async def send_mail(
    to: str, *, call: ToolCall, copies: Annotated[int, Field(ge=1, description="How many.")] = 1
) -> str:
    """Not shown."""
    return f"{to} {copies} {call.idempotency_key}"


UNSET = object()


@tool
def search(q: str, limit: int = 20, cursor: str | None = UNSET) -> object:
    """Search."""
    return [q, limit, "not given" if cursor is UNSET else cursor]


def labelled(labels: dict[str, str], anything: dict[str, object]) -> object:
    """Give back open objects."""
    return [labels, anything]


def shadows(schema: int, copy: int, json: int, model_config: int, _id: int) -> int:
    """Have parameters whose names pydantic uses itself."""
    return schema + copy + json + model_config + _id


def every_form() -> object:
    """Return one value of each kind that has a JSON form (F043)."""
    return {
        "aware": datetime(2024, 2, 29, 12, 30, tzinfo=UTC),
        "naive": datetime(2024, 2, 29, 12, 30, 0, 5),  # noqa: DTZ001 -- the naive kind is what is tested
        "date": date(2024, 2, 29),
        "time": time(12, 30),
        "timedelta": timedelta(days=1, hours=2, milliseconds=5),
        "decimal": Decimal("19.90"),
        "uuid": UUID("12345678123456781234567812345678"),
        "path": Path("a") / "b",
        "enum": Priority.HIGH,
        "int_enum": Level.ONE,
        "set": {3, 1, 2},
        "mixed_set": {"a", 1, (2, "b")},
        "frozenset": frozenset({"b", "a"}),
        "tuple": (1, (2.5, None)),
        "dataclass": Point(1, Priority.LOW),
        "model": Dog(name="Rex", barks=True),
        "root": Numbers((1, 2)),
        "mapping": MappingProxyType({Priority.LOW: 1, 7: True}),
        "bytes": b"\xff\xfe\x00A",
        "bytearray": bytearray(b"A"),
        "memoryview": memoryview(b"A"),
        "text": Text("t"),
        "number": Number(0.5),
        "plain": [True, 1, 1.5, "ü"],
    }


def no_form(kind: str) -> object:
    """Return something that has no JSON form."""
    loop: list[object] = []
    loop.append(loop)
    return {
        "object": {"a": [1, Nobody()]},
        "secret": SecretStr("hunter2"),
        "float_key": {"a": {1.5: 1}},
        "bool_key": {True: 1},
        "same_key": {1: "a", "1": "b"},
        "loop": loop,
        "nan": [float("nan")],
        "huge_integer": 2**70,
        "wide": range(3),
    }[kind]


def huge() -> object:
    """Return a container of more items than the guard takes."""
    return [0] * 1_000_001


def surrogates() -> str:
    """Return text that is not Unicode (F044)."""
    return b"\xff\xfe\x00A".decode(errors="surrogateescape")


def leave(how: str) -> None:
    """Try to end more than the call."""
    if how == "exit":
        raise SystemExit(3)
    if how == "interrupt":
        raise KeyboardInterrupt
    next(iter([]))


async def leave_later(how: str) -> None:
    """Try to end more than the call, from a coroutine."""
    leave(how)


def generator() -> object:
    """Yield."""
    yield 1


async def async_generator() -> object:
    """Yield."""
    yield 1


def no_hint(a) -> None:  # noqa: ANN001 -- the lack is what is tested
    """Lack a hint."""


def unknown_hint(a: "Missing") -> None:  # noqa: F821 -- the lack is what is tested
    """Name a type that is not there."""


def no_schema(a: Nobody) -> None:
    """Ask for something JSON cannot fill."""


def many(*args: int) -> None:
    """Take any number."""


def positional(a: int, /) -> None:
    """Take a nameless one."""


def undescribed(a: int) -> int:  # noqa: D103 -- a function without a docstring
    return a


not_a_function = 3
