"""One call of a user's function: its arguments, the last look before it, what it returned."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar, cast

from orchestral_temporal.adapters.tools.functions.running import in_thread, in_user_loop
from orchestral_temporal.adapters.tools.functions.signature import Signature
from orchestral_temporal.ports import ToolCall
from orchestral_temporal.protocol.words import JsonObject

T = TypeVar("T")


@dataclass(frozen=True)
class UserFunction:
    """A function and its parameters; `asks` says that it has no effect, so that no last look stands before it."""

    function: Callable[..., object]
    signature: Signature
    asks: bool = False

    async def call(self, arguments: JsonObject, call: ToolCall, read: Callable[[object], T]) -> T:
        """Call it off the worker's event loop with arguments of the declared types, and read what it returns.

        Raises:
            ToolRejected: input_schema_violation; an argument is none of its type.
            NotStarted: at the last look nobody wanted the call any more.
            Exception: what the function or `read` raises.
        """
        # The validators of a user's types are user code as well, so the arguments are read over there.
        if inspect.iscoroutinefunction(self.function):
            return await in_user_loop(lambda: self._awaited(arguments, call, read))
        return await in_thread(lambda: self._called(arguments, call, read))

    def _called(self, arguments: JsonObject, call: ToolCall, read: Callable[[object], T]) -> T:
        keywords = self.signature.keywords(arguments, call)
        if not self.asks:
            call.confirm().result()
        return read(self.function(**keywords))

    async def _awaited(self, arguments: JsonObject, call: ToolCall, read: Callable[[object], T]) -> T:
        function = cast("Callable[..., Awaitable[object]]", self.function)
        keywords = self.signature.keywords(arguments, call)
        if not self.asks:
            await asyncio.wrap_future(call.confirm())
        return read(await function(**keywords))
