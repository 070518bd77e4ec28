"""What the conversation holds: the open task, the calls made for it, and what they brought.

The model keeps nothing between two requests; each time it reads all of it again.
"""

from dataclasses import dataclass, field

from orchestral_temporal.protocol.base import Json, JsonObject
from orchestral_temporal.protocol.model import ModelMessage, ModelRole, TextPart, ToolCallPart, ToolResultPart


@dataclass(frozen=True)
class Call:
    """A tool call."""

    name: str
    arguments: JsonObject


@dataclass(frozen=True)
class Done:
    """A call and its result; null if there is none."""

    call: Call
    result: Json
    failed: bool


@dataclass(frozen=True)
class Conversation:
    """The open task; `rounds` counts the turns spent on it, `turns` all of the model's turns."""

    text: str
    rounds: int
    turns: int
    done: tuple[Done, ...]


def read_conversation(messages: tuple[ModelMessage, ...]) -> Conversation:
    """The open task begins after the last answer, that is, the last assistant message without calls."""
    begin = max((at + 1 for at, message in enumerate(messages) if _is_answer(message)), default=0)
    current = messages[begin:]
    results = {
        part.call_id: part for message in current for part in message.content if isinstance(part, ToolResultPart)
    }
    calls = [part for message in current for part in message.content if isinstance(part, ToolCallPart)]
    return Conversation(
        text="\n".join(
            part.text
            for message in current
            if message.role is ModelRole.USER
            for part in message.content
            if isinstance(part, TextPart)
        ),
        rounds=_turns(current),
        turns=_turns(messages),
        done=tuple(_done(part, results.get(part.call_id)) for part in calls),
    )


def _is_answer(message: ModelMessage) -> bool:
    return message.role is ModelRole.ASSISTANT and not any(isinstance(part, ToolCallPart) for part in message.content)


def _turns(messages: tuple[ModelMessage, ...]) -> int:
    return sum(message.role is ModelRole.ASSISTANT for message in messages)


def _done(call: ToolCallPart, result: ToolResultPart | None) -> Done:
    arguments = call.arguments if isinstance(call.arguments, dict) else {}
    if result is None:
        return Done(Call(call.name, arguments), None, failed=True)
    return Done(Call(call.name, arguments), result.result, failed=result.is_error)


@dataclass(frozen=True)
class Hit:
    """A line that a search found."""

    path: str
    number: int
    text: str
    whole: bool


@dataclass(frozen=True)
class Page:
    """Lines of a file, the first of them with the number `first`."""

    path: str
    first: int
    lines: tuple[str, ...]


@dataclass
class Findings:
    """What the calls brought.

    `crowded` are searches that found more than they could return; `partial` says that some did not look everywhere.
    """

    hits: list[Hit] = field(default_factory=list[Hit])
    names: list[str] = field(default_factory=list[str])
    pages: list[Page] = field(default_factory=list[Page])
    crowded: list[Call] = field(default_factory=list[Call])
    partial: bool = False
    problems: list[str] = field(default_factory=list[str])


def gather(done: tuple[Done, ...]) -> Findings:
    """Sort the results by what they are; one that has not the expected form brings nothing."""
    findings = Findings()
    for one in done:
        result = one.result if isinstance(one.result, dict) else {}
        matches, content = result.get("matches"), result.get("content")
        if one.failed:
            findings.problems.append(f"{one.call.name}: {result.get('message') or 'no result'}")
        elif one.call.name == "file_read" and isinstance(content, str):
            findings.pages.append(_page(result, content))
        elif isinstance(matches, list):
            _add_matches(findings, one.call, result, matches)
        else:
            # A result too large to be shown is an artifact here; fewer words will find less.
            findings.crowded.append(one.call)
    return findings


def _page(result: JsonObject, content: str) -> Page:
    first = result.get("start_line")
    path = result.get("path")
    return Page(str(path), first if isinstance(first, int) else 1, tuple(content.splitlines()))


def _add_matches(findings: Findings, call: Call, result: JsonObject, matches: list[Json]) -> None:
    reasons = result.get("partial_reasons")
    if isinstance(reasons, list) and reasons:
        crowded = {"result_limit", "output_limit"} & {str(reason) for reason in reasons}
        if crowded:
            findings.crowded.append(call)
        findings.partial |= len(crowded) < len(reasons)
    for match in matches:
        if isinstance(match, str):
            findings.names.append(match)
        elif isinstance(match, dict):
            number, cut = match.get("line_number"), match.get("preview_truncated")
            findings.hits.append(
                Hit(
                    path=str(match.get("path")),
                    number=number if isinstance(number, int) else 1,
                    text=str(match.get("preview")),
                    whole=cut is not True,
                )
            )
