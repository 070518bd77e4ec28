"""Acknowledgements that a result has no room for."""

import pytest

from orchestral_temporal.core import result
from orchestral_temporal.protocol.digest import canonical
from orchestral_temporal.protocol.errors import AgentProtocolErrorCode, ProtocolError
from orchestral_temporal.protocol.words import dump
from tests.temporal.held import HeldModel
from tests.temporal.world import World, plan, says


async def test_an_acknowledgement_is_found_when_the_result_has_no_room_for_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of a long run has the newest ones; the others come from its history, which needs no worker (C2)."""
    model = HeldModel(says("So far."), says("done"))
    async with world.serving(plan(model)):
        run = await world.runs.start("go", run_id=world.id("r"))
        await model.holds(run.run_id)
        for name in ("q1", "q2"):
            queued = await run.enqueue("more", command_id=name)
        monkeypatch.setattr(result, "ACKS_BYTES", len(canonical(dump(queued.ack))) * 3 // 2)
        monkeypatch.setattr(result, "RESULT_JOURNAL_BYTES", 1)
        model.let_go(run.run_id)
        model.let_go(run.run_id, 2)
        turn = await run.wait()
    first, second = [await run.ack(name) for name in ("q1", "q2")]
    with pytest.raises(ProtocolError) as never:
        await run.ack("q9")

    assert turn.result["acks"] == [dump(second)]
    assert [each.state.state for each in (first, second)] == ["applied", "applied"]
    assert first.command_id == "q1"
    assert never.value.error.code is AgentProtocolErrorCode.COMMAND_NOT_FOUND
