"""Context items: what a model request is made of, each known by its exact digest (decisions 6–8)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from orchestral_temporal.protocol.activities import (
    Item,
    Measure,
    MessageItem,
    ModelPart,
    ResultItem,
    RunPart,
    ToolsItem,
    ToolsPart,
)
from orchestral_temporal.protocol.content import Content
from orchestral_temporal.protocol.digest import canonical, canonical_and_exact, digest
from orchestral_temporal.protocol.model import (
    ContinuationPart,
    ModelContent,
    ModelMessage,
    ModelObservation,
    ModelRequest,
    ModelRole,
    ModelToolDefinition,
    TextPart,
    ToolCallPart,
)
from orchestral_temporal.protocol.words import Json

_MESSAGE = b'{"kind":"message","message":'
_RESULT = b'{"kind":"result","part":'
_TOOLS = b'{"kind":"tools","tools":'
"""What stands before the content in the canonical form of each kind of item."""

BYTES_PER_TOKEN = 3
"""The planning estimate of the default meter: one token for three bytes, rounded up (divergence 31)."""

REQUEST_INPUT: Final = ModelToolDefinition(
    name="orchestral_request_input",
    description=(
        "Ask the person behind this task one question and wait for the answer. Use it only when the task cannot go on "
        "without something that nobody but a person can say."
    ),
    input_schema={
        "type": "object",
        "properties": {"prompt": {"type": "string", "description": "The question, in full."}},
        "required": ["prompt"],
        "additionalProperties": False,
    },
)
"""The host's own tool by which a model asks people, offered where `input_requests` is on (`core.questions`)."""


@dataclass(frozen=True)
class WrittenItem:
    """An item with its canonical form and its exact digest: written once, so that no round writes it again.

    Two items whose numbers only round to the same double are two items (F040).
    """

    item: Item
    body: bytes
    digest: str

    @property
    def measure(self) -> Measure:
        """Digest and sizes; the bound is one token for each canonical byte."""
        size = len(self.body)
        return Measure(digest=self.digest, size=size, bound=size, estimate=-(-size // BYTES_PER_TOKEN))


def written(item: Item) -> WrittenItem:
    """An item in its canonical form."""
    body, exact = canonical_and_exact(item)
    return WrittenItem(item, body, exact)


def measure(item: Item) -> Measure:
    """Digest and sizes of an item; the bound is one token for each canonical byte."""
    return written(item).measure


def system_item(part: RunPart) -> Item | None:
    """The system message of a run; none when there are no instructions."""
    if not part.instructions.strip():
        return None
    return MessageItem(message=_message(ModelRole.SYSTEM, TextPart(text=part.instructions)))


def tools_item(part: ToolsPart) -> ToolsItem:
    """The tools a run offers, ordered by tool id, the host's own last; schemas unchanged."""
    schemas = [tool.descriptor.model_schema for tool in part.tools]
    offered = tuple(
        ModelToolDefinition(name=schema.name, description=schema.description, input_schema=schema.input_schema)
        for schema in schemas
    )
    return ToolsItem(tools=(*offered, REQUEST_INPUT) if part.input_requests else offered)


def offered(tools: ToolsPart, model: ModelPart) -> ToolsPart:
    """The tools as this model is offered them: one that calls none cannot ask people either (agent-loop sheet §2)."""
    return tools if model.descriptor.capabilities.tool_calls else unattended(tools)


def unattended(tools: ToolsPart) -> ToolsPart:
    """The same tools where nobody can be asked."""
    return tools.model_copy(update={"input_requests": False})


def user_item(content: Sequence[Content]) -> Item:
    """What a person sent: one text part for each inline text, in order."""
    parts = tuple(TextPart(text=inline_text(each)) for each in content)
    return MessageItem(message=ModelMessage(role=ModelRole.USER, content=parts))


def inline_text(content: Content) -> str:
    """The text of an inline `text/plain` content; admission lets nothing else in (`spec/agent-loop.md` §3)."""
    value = content.body.value
    return value if isinstance(value, str) else ""


def assistant_item(observation: ModelObservation, arguments: Sequence[Json]) -> Item | None:
    """The assistant message of an observation: text, continuations by namespace, calls in stream order.

    `arguments` are the parsed arguments of each call. None when the turn holds nothing at all.
    """
    parts: list[ModelContent] = []
    if observation.response:
        parts.append(TextPart(text=observation.response))
    for namespace, value in sorted((observation.continuation or {}).items()):
        parts.append(ContinuationPart(namespace=namespace, value=value))
    parts.extend(
        ToolCallPart(call_id=call.call_id, name=call.name, arguments=parsed, extensions=call.extensions)
        for call, parsed in zip(observation.tool_calls, arguments, strict=True)
    )
    if not parts:
        return None
    return MessageItem(message=ModelMessage(role=ModelRole.ASSISTANT, content=tuple(parts)))


def messages(items: Sequence[Item]) -> tuple[ModelMessage, ...]:
    """The messages of a request: neighbouring results share one tool message."""
    done: list[ModelMessage] = []
    results: list[ModelContent] = []
    for item in items:
        if isinstance(item, ResultItem):
            results.append(item.part)
            continue
        if results:
            done.append(ModelMessage(role=ModelRole.TOOL, content=tuple(results)))
            results = []
        if isinstance(item, MessageItem):
            done.append(item.message)
    if results:
        done.append(ModelMessage(role=ModelRole.TOOL, content=tuple(results)))
    return tuple(done)


def request_body(request: ModelRequest, context: Sequence[WrittenItem], tools: WrittenItem) -> bytes:
    """The canonical form of a request, put together from those of its items: `canonical(request)`, but without a walk.

    `request` is made of `context` and `tools`, has no output schema and no extensions.
    """
    return b"".join(
        (
            b'{"extensions":{},"max_output_tokens":',
            canonical(request.max_output_tokens),
            b',"messages":[',
            b",".join(_message_bodies(context)),
            b'],"output_schema":null,"request_id":',
            canonical(request.request_id),
            b',"tools":',
            tools.body[len(_TOOLS) : -1],
            b"}",
        )
    )


def _message_bodies(context: Sequence[WrittenItem]) -> list[bytes]:
    """As `messages`, in canonical form."""
    done: list[bytes] = []
    results: list[bytes] = []
    for each in (*context, None):
        if each is not None and isinstance(each.item, ResultItem):
            results.append(each.body[len(_RESULT) : -1])
            continue
        if results:
            done.append(b'{"content":[' + b",".join(results) + b'],"role":"tool"}')
            results = []
        if each is not None:
            done.append(each.body[len(_MESSAGE) : -1])
    return done


def context_digest(config_digest: str, items: Sequence[str], tools: str, max_output_tokens: int) -> str:
    """The name of a context: contract, ordered items, tools and output cap (decision 6)."""
    return digest(
        {
            "contract": config_digest,
            "items": list(items),
            "max_output_tokens": max_output_tokens,
            "tools": tools,
        }
    )


def _message(role: ModelRole, *parts: ModelContent) -> ModelMessage:
    return ModelMessage(role=role, content=parts)
