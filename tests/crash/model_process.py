"""A chat-completions endpoint as a process of its own, so that it outlives the worker that talks to it.

`python -m tests.crash.model_process FOLDER` answers by the request id: in round 1 with a call of `look`, in round 2
with text, of which the first answer stops in the middle for ever. The process ends with its parent.
"""

import asyncio
import json
import sys
from pathlib import Path
from typing import Final

from tests.contracts.openai_endpoint import DONE, call_chunk, chunk, text_reply
from tests.contracts.sse_server import Endpoint, Reply, serving
from tests.crash.signs import Signs, end_with_parent

HALF: Final = "Half of the answer, "
REST: Final = "and the rest."


async def serve(signs: Signs) -> None:
    """Serve until the end of the process; say where, and keep what is asked."""

    def answer(number: int) -> Reply:
        asked = endpoint.asked[number - 1]
        key = asked.headers["idempotency-key"]
        earlier = sum(each.headers["idempotency-key"] == key for each in endpoint.asked) - 1
        signs.note("asked", json.dumps({"key": key, "body": asked.body}))
        if key.endswith("-1"):
            call = call_chunk(0, "call-1", "look", json.dumps({"key": "v1"}))
            return Reply([call, chunk(finish="tool_calls"), DONE])
        if earlier:
            return text_reply(HALF, REST)
        return Reply([chunk({"content": HALF})], hold=True)

    async with serving(answer) as running:
        endpoint: Endpoint = running
        signs.note("endpoint", endpoint.base_url)
        await asyncio.Event().wait()


if __name__ == "__main__":
    end_with_parent()
    asyncio.run(serve(Signs(Path(sys.argv[1]))))
