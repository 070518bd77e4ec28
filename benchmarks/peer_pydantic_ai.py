"""The Temporal integration of `pydantic-ai-slim`, with its own function model."""

from typing import Any, Final

from temporalio import workflow
from temporalio.client import Client, WorkflowHandle
from temporalio.worker import Worker

with workflow.unsafe.imports_passed_through():
    from pydantic_ai import Agent
    from pydantic_ai.durable_exec.temporal import PydanticAIPlugin, PydanticAIWorkflow, TemporalDurability
    from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, ToolCallPart, UserPromptPart
    from pydantic_ai.models.function import AgentInfo, FunctionModel
    from pydantic_ai.usage import RequestUsage, UsageLimits
    from workload import ANSWER, INSTRUCTIONS, TOOL, Load, page, read_task

QUEUE: Final = "benchmark-pydantic-ai"


async def _turn(messages: list[ModelMessage], _info: AgentInfo) -> ModelResponse:
    first = messages[0]
    assert isinstance(first, ModelRequest)
    load = read_task(next(str(each.content) for each in first.parts if isinstance(each, UserPromptPart)))
    done = sum(isinstance(each, ModelResponse) for each in messages)
    usage = RequestUsage(input_tokens=100, output_tokens=10)
    if done == load.rounds:
        return ModelResponse(parts=[TextPart(ANSWER)], usage=usage)
    arguments = {"number": done + 1, "size": load.size}
    return ModelResponse(parts=[ToolCallPart(TOOL, arguments, tool_call_id=f"call-{done + 1}")], usage=usage)


async def lookup(number: int, size: int) -> str:
    """Look up a page by its number."""
    return page(number, size)


_AGENT: Final = Agent(
    FunctionModel(_turn, model_name="stub"),
    name="benchmark",
    instructions=INSTRUCTIONS,
    tools=[lookup],
    capabilities=[TemporalDurability()],
)


@workflow.defn(name="PydanticAiRounds")
class PydanticAiRounds(PydanticAIWorkflow):
    """One run of the agent."""

    __pydantic_ai_agents__ = [_AGENT]  # noqa: RUF012 -- the integration's own convention

    @workflow.run
    async def run(self, task: str) -> str:
        """Run the agent to its answer; its own limit of 50 requests is lifted."""
        done = await _AGENT.run(task, usage_limits=UsageLimits(request_limit=None))
        return done.output


class PydanticAi:
    """Runs of `PydanticAiRounds`."""

    name = "pydantic-ai-slim"
    model_activity = "model_request"

    def __init__(self, client: Client) -> None:
        self._client = client

    @staticmethod
    def plugin() -> PydanticAIPlugin:
        """The plugin of the client."""
        return PydanticAIPlugin()

    def worker(self) -> Worker:
        """The worker."""
        return Worker(self._client, task_queue=QUEUE, workflows=[PydanticAiRounds])

    async def start(self, load: Load, run_id: str) -> WorkflowHandle[Any, Any]:
        """Start a run."""
        return await self._client.start_workflow(PydanticAiRounds.run, load.task, id=run_id, task_queue=QUEUE)
