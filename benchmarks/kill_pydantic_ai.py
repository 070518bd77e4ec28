"""The Temporal integration of `pydantic-ai-slim` with its defaults: a tool has 60 s, a silent model call 30 s."""

from typing import Any, Final

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.worker import Worker
from temporalio.workflow import ActivityConfig

with workflow.unsafe.imports_passed_through():
    import ledger
    from kill_gate import Gate
    from pydantic_ai import Agent, Tool
    from pydantic_ai.durable_exec.temporal import PydanticAIPlugin, PydanticAIWorkflow, TemporalDurability
    from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
    from pydantic_ai.models.function import AgentInfo, FunctionModel
    from server import connect

ONCE: Final = ActivityConfig(retry_policy=RetryPolicy(maximum_attempts=1))


async def _turn(messages: list[ModelMessage], _info: AgentInfo) -> ModelResponse:
    again = any(isinstance(each, ModelResponse) for each in messages)
    ledger.asked(again=again)
    return ModelResponse(parts=[TextPart(ledger.ANSWER) if again else ToolCallPart(ledger.TOOL, {})])


async def pay() -> str:
    """Pay the bill."""
    return ledger.pay()


def _agent(name: str, metadata: dict[str, Any] | None) -> Agent[None, str]:
    return Agent(
        FunctionModel(_turn, model_name="stub"),
        name=name,
        instructions=ledger.INSTRUCTIONS,
        tools=[Tool(pay, metadata=metadata)],
        capabilities=[TemporalDurability()],
    )


_AGENT: Final = _agent("payer", None)
_CAREFUL: Final = _agent("careful_payer", {"temporal": ONCE})


@workflow.defn(name=ledger.WORKFLOW)
class Pay(PydanticAIWorkflow):
    """One run of an agent: of the careful one if the tool may be tried once only."""

    __pydantic_ai_agents__ = [_AGENT, _CAREFUL]  # noqa: RUF012 -- the integration's own convention

    @workflow.run
    async def run(self, attempts: int) -> str:
        """Run the agent to its answer."""
        done = await (_CAREFUL if attempts else _AGENT).run(ledger.TASK)
        return done.output


async def worker(address: str, queue: str) -> Worker:
    """The worker."""
    client = await connect(address, plugins=[PydanticAIPlugin()], interceptors=[Gate("call_tool")])
    return Worker(client, task_queue=queue, workflows=[Pay])
