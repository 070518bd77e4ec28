"""A user's own tool, in its own module, with pydantic models of every kind (F110)."""

from datetime import UTC, datetime
from enum import Enum
from typing import Annotated, Generic, Literal, TypeVar

from pydantic import BaseModel, Field

from orchestral_temporal.api import tool

Item = TypeVar("Item")


class Leaf(Enum):
    """What is in the cup."""

    GREEN = "green"
    BLACK = "black"


class Drink(BaseModel):
    """Something ordered."""

    at: datetime


class Tea(Drink):
    """A subclass, and one arm of a union."""

    kind: Literal["tea"]
    leaf: Leaf


class Water(Drink):
    """The other arm."""

    kind: Literal["water"]
    sparkling: bool = False


class Tray(BaseModel, Generic[Item]):
    """A generic model."""

    items: list[Item]


Order = Annotated[Tea | Water, Field(discriminator="kind")]

seen: list[str] = []
"""What the tool saw, as types and values."""


@tool(idempotency="pure")
def serve(tray: Tray[Order], by: datetime) -> Tray[Order]:
    """Serve a tray of drinks."""
    for item in tray.items:
        assert isinstance(item, Drink)
        assert isinstance(item.at, datetime)
        detail = item.leaf if isinstance(item, Tea) else item.sparkling
        assert isinstance(detail, Leaf | bool)
        seen.append(f"{type(item).__name__} {detail} {(by - item.at).total_seconds()}")
    return Tray[Order](items=[Tea(kind="tea", leaf=Leaf.BLACK, at=datetime(2026, 1, 2, tzinfo=UTC))])
