"""What the tests of this room share with those on a real server; this room is collected only when it is named."""

from tests.temporal.conftest import alone

__all__ = ["alone"]
