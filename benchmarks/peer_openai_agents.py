"""The Temporal integration of the OpenAI Agents SDK, with its own test provider."""

import json
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any, Final

from temporalio import activity, workflow
from temporalio.client import Client, WorkflowHandle
from temporalio.worker import Worker

with workflow.unsafe.imports_passed_through():
    from agents import Agent, Model, ModelResponse, RunConfig, Runner, TResponseInputItem, Usage
    from agents.items import TResponseStreamEvent
    from temporalio.openai_agents import ModelActivityParameters, OpenAIAgentsPlugin
    from temporalio.openai_agents.testing import ResponseBuilders, TestModelProvider
    from temporalio.openai_agents.workflow import (
        activity_as_tool,  # pyright: ignore[reportUnknownVariableType] -- the SDK's own signature
    )
    from workload import ANSWER, INSTRUCTIONS, TOOL, Load, page, read_task

QUEUE: Final = "benchmark-openai-agents"

PATIENCE: Final = timedelta(seconds=60)


class StubModel(Model):
    """Calls the tool until the task is done; it answers at once."""

    async def get_response(
        self,
        system_instructions: str | None,
        input: str | list[TResponseInputItem],  # noqa: A002 -- the SDK's own name
        *args: Any,
        **kwargs: Any,
    ) -> ModelResponse:
        """One turn: the next call, or the answer."""
        del system_instructions, args, kwargs
        items: list[Any] = [{"role": "user", "content": input}] if isinstance(input, str) else list(input)
        load = read_task(str(items[0]["content"]))
        done = sum(each.get("type") == "function_call" for each in items)
        turn = ResponseBuilders.output_message(ANSWER)
        if done < load.rounds:
            arguments = json.dumps({"number": done + 1, "size": load.size})
            turn = ResponseBuilders.tool_call(arguments, TOOL, call_id=f"call-{done + 1}")
        turn.usage = Usage(requests=1, input_tokens=100, output_tokens=10, total_tokens=110)
        return turn

    def stream_response(self, *args: Any, **kwargs: Any) -> AsyncIterator[TResponseStreamEvent]:
        """Nobody asks for a stream here."""
        raise NotImplementedError


@activity.defn(name=TOOL)
async def lookup(number: int, size: int) -> str:
    """Look up a page by its number."""
    return page(number, size)


@workflow.defn(name="OpenAiAgentsRounds")
class OpenAiAgentsRounds:
    """One run of the agent."""

    @workflow.run
    async def run(self, task: str) -> str:
        """Run the agent to its answer; its own limit of 10 turns is lifted."""
        agent = Agent(
            name="benchmark",
            instructions=INSTRUCTIONS,
            model="stub",
            tools=[activity_as_tool(lookup, start_to_close_timeout=PATIENCE)],
        )
        turns = read_task(task).rounds + 1
        done = await Runner.run(agent, task, max_turns=turns, run_config=RunConfig(tracing_disabled=True))
        return str(done.final_output)


class OpenAiAgents:
    """Runs of `OpenAiAgentsRounds`."""

    name = "temporalio-openai-agents"
    model_activity = "invoke_model_activity"

    def __init__(self, client: Client) -> None:
        self._client = client

    @staticmethod
    def plugin() -> OpenAIAgentsPlugin:
        """The plugin of the client."""
        return OpenAIAgentsPlugin(
            model_params=ModelActivityParameters(start_to_close_timeout=PATIENCE),
            model_provider=TestModelProvider(StubModel()),
        )

    def worker(self) -> Worker:
        """The worker."""
        return Worker(self._client, task_queue=QUEUE, workflows=[OpenAiAgentsRounds], activities=[lookup])

    async def start(self, load: Load, run_id: str) -> WorkflowHandle[Any, Any]:
        """Start a run."""
        return await self._client.start_workflow(OpenAiAgentsRounds.run, load.task, id=run_id, task_queue=QUEUE)
