"""The Temporal integration of the OpenAI Agents SDK: its default for models (60 s), its README's for a tool (10 s)."""

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any, Final

from temporalio import activity, workflow
from temporalio.common import RetryPolicy
from temporalio.worker import Worker

with workflow.unsafe.imports_passed_through():
    import ledger
    from agents import Agent, Model, ModelResponse, RunConfig, Runner, TResponseInputItem
    from agents.items import TResponseStreamEvent
    from kill_gate import Gate
    from server import connect
    from temporalio.openai_agents import OpenAIAgentsPlugin
    from temporalio.openai_agents.testing import ResponseBuilders, TestModelProvider
    from temporalio.openai_agents.workflow import (
        activity_as_tool,  # pyright: ignore[reportUnknownVariableType] -- the SDK's own signature
    )

PATIENCE: Final = timedelta(seconds=10)


class StubModel(Model):
    """Calls the tool, then answers."""

    async def get_response(
        self,
        system_instructions: str | None,
        input: str | list[TResponseInputItem],  # noqa: A002 -- the SDK's own name
        *args: Any,
        **kwargs: Any,
    ) -> ModelResponse:
        """One turn."""
        del system_instructions, args, kwargs
        again = not isinstance(input, str) and any(each.get("type") == "function_call_output" for each in input)
        ledger.asked(again=again)
        return (
            ResponseBuilders.output_message(ledger.ANSWER) if again else ResponseBuilders.tool_call("{}", ledger.TOOL)
        )

    def stream_response(self, *args: Any, **kwargs: Any) -> AsyncIterator[TResponseStreamEvent]:
        """Nobody asks for a stream here."""
        raise NotImplementedError


@activity.defn(name=ledger.TOOL)
async def pay() -> str:
    """Pay the bill."""
    return ledger.pay()


@workflow.defn(name=ledger.WORKFLOW)
class Pay:
    """One run of the agent."""

    @workflow.run
    async def run(self, attempts: int) -> str:
        """Run the agent to its answer."""
        policy = RetryPolicy(maximum_attempts=attempts) if attempts else None
        agent = Agent(
            name="payer",
            instructions=ledger.INSTRUCTIONS,
            model="stub",
            tools=[activity_as_tool(pay, start_to_close_timeout=PATIENCE, retry_policy=policy)],
        )
        done = await Runner.run(agent, ledger.TASK, run_config=RunConfig(tracing_disabled=True))
        return str(done.final_output)


async def worker(address: str, queue: str) -> Worker:
    """The worker."""
    plugin = OpenAIAgentsPlugin(model_provider=TestModelProvider(StubModel()))
    client = await connect(address, plugins=[plugin], interceptors=[Gate(ledger.TOOL)])
    return Worker(client, task_queue=queue, workflows=[Pay], activities=[pay])
