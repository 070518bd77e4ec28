"""A model whose answers wait until a test lets them go."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator

from orchestral_temporal.protocol.base import Json
from orchestral_temporal.protocol.model import ModelRequest, ModelStreamEvent
from orchestral_temporal.testing.scripted import ScriptedModel
from tests.temporal.world import until


class HeldModel(ScriptedModel):
    """Says nothing of a round before it is let go."""

    def __init__(self, *rounds: Json) -> None:
        super().__init__(rounds)
        self.asked: list[ModelRequest] = []
        self._go: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelStreamEvent, None]:
        """Wait, then do what the script says."""
        self.asked.append(request)
        await self._go[request.request_id].wait()
        async for event in super().stream(request):
            yield event

    async def holds(self, run_id: str, number: int = 1) -> None:
        """Wait until the model is asked for this round of a run."""
        name = f"model-{run_id}-{number}"
        await until(lambda: any(each.request_id == name for each in self.asked), f"{name} is asked")

    def let_go(self, run_id: str, number: int = 1) -> None:
        """Let it answer this round of a run."""
        self._go[f"model-{run_id}-{number}"].set()
