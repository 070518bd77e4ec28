"""This project, with its defaults: the tool says of itself that it must not run twice."""

from collections.abc import AsyncGenerator

import ledger
from kill_gate import Gate
from server import connect
from temporalio.worker import Worker

from orchestral_temporal import Agent, build_worker, tool
from orchestral_temporal.protocol.model import ModelRequest, ModelRole, ModelStreamEvent
from orchestral_temporal.temporal import names
from orchestral_temporal.testing.scripted import ScriptedModel


class _Model:
    """Calls the tool, then answers; each request is counted before it is answered."""

    def __init__(self) -> None:
        self._script = ScriptedModel(
            [
                [{"call": {"name": ledger.TOOL, "arguments": {}}}, {"finish": "tool_calls"}],
                [{"text": ledger.ANSWER}, {"finish": "stop"}],
            ]
        )
        self.descriptor = self._script.descriptor
        self.redispatchable = self._script.redispatchable

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelStreamEvent, None]:
        """As the script."""
        ledger.asked(again=any(each.role is ModelRole.TOOL for each in request.messages))
        async for event in self._script.stream(request):
            yield event


@tool(name=ledger.TOOL, idempotency="non_idempotent")
async def _pay() -> str:
    """Pay the bill."""
    return ledger.pay()


async def worker(address: str, queue: str) -> Worker:
    """The worker."""
    agent = Agent(name="default", model=_Model(), tools=[_pay], instructions=ledger.INSTRUCTIONS)
    return build_worker(
        await connect(address, interceptors=[Gate(names.INVOKE_TOOL)]), agents=[agent], task_queue=queue
    )
