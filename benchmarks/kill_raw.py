"""Nothing but Temporal: two activities as the SDK's own examples write them, with its default retry policy."""

from datetime import timedelta
from typing import Final

from temporalio import activity, workflow
from temporalio.common import RetryPolicy
from temporalio.worker import Worker

with workflow.unsafe.imports_passed_through():
    import ledger
    from kill_gate import Gate
    from server import connect

PATIENCE: Final = timedelta(seconds=10)


@activity.defn
async def ask(number: int) -> str:
    """A model call, the first or the second one."""
    ledger.asked(again=number > 1)
    return ledger.ANSWER


@activity.defn
async def pay() -> str:
    """The tool."""
    return ledger.pay()


@workflow.defn(name=ledger.WORKFLOW)
class Pay:
    """A model call, the tool, a model call."""

    @workflow.run
    async def run(self, attempts: int) -> str:
        """Run them one after another."""
        policy = RetryPolicy(maximum_attempts=attempts)
        await workflow.execute_activity(ask, 1, start_to_close_timeout=PATIENCE)
        await workflow.execute_activity(pay, start_to_close_timeout=PATIENCE, retry_policy=policy)
        return await workflow.execute_activity(ask, 2, start_to_close_timeout=PATIENCE)


async def worker(address: str, queue: str) -> Worker:
    """The worker."""
    client = await connect(address, interceptors=[Gate(pay.__name__)])
    return Worker(client, task_queue=queue, workflows=[Pay], activities=[ask, pay])
