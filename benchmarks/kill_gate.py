"""The place before a tool, the same in every system: its activity has arrived, none of its code has run."""

from typing import Any

import ledger
from temporalio import activity, client, worker
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput


class Gate(client.Interceptor, worker.Interceptor):
    """An interceptor of the client, and so of its workers; `tool` is part of the name of the tool's activity type."""

    def __init__(self, tool: str) -> None:
        self._tool = tool

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:  # noqa: A002 -- the SDK's own name
        """Stand before every activity."""
        return _Inbound(next, self._tool)


class _Inbound(ActivityInboundInterceptor):
    def __init__(self, following: ActivityInboundInterceptor, tool: str) -> None:
        super().__init__(following)
        self._tool = tool

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:  # noqa: A002 -- the SDK's own name
        if self._tool in activity.info().activity_type:
            ledger.arrived()
        return await super().execute_activity(input)
