"""The drawing of the state tables is that of the tables."""

from tests.states import PAGE, drawn


def test_the_drawn_states_are_those_of_the_tables() -> None:
    """`docs/states.md` is what its generator draws now."""
    assert PAGE.read_text("utf-8") == drawn(), "docs/states.md is stale; draw it again: python -m tests.states"
