"""What people see in lists, timelines and headers: attributes, summaries, details (decisions 25 and 26)."""

import re
from collections.abc import Sequence
from typing import Final

from temporalio.common import SearchAttributeKey, SearchAttributePair, SearchAttributeUpdate

from orchestral_temporal.core import budgets
from orchestral_temporal.core.effect_notes import settle_command
from orchestral_temporal.core.invocations import AT_WORK
from orchestral_temporal.core.items import inline_text
from orchestral_temporal.core.limits import ATTRIBUTE_BYTES, SUMMARY_BYTES
from orchestral_temporal.core.projection import request_of, status
from orchestral_temporal.core.state import CallAt, ModelOpen, ModelWaiting, OpenCall, RunState, ToolsOpen
from orchestral_temporal.core.typed import typed
from orchestral_temporal.protocol.base import Json, JsonObject
from orchestral_temporal.protocol.events import RunFailed
from orchestral_temporal.protocol.requests import InputRequest, PendingRequest, request_kind
from orchestral_temporal.temporal import names

STATUS = SearchAttributeKey.for_keyword(names.ATTRIBUTE_STATUS)
AGENT = SearchAttributeKey.for_keyword(names.ATTRIBUTE_AGENT)
SESSION = SearchAttributeKey.for_keyword(names.ATTRIBUTE_SESSION)
MODEL = SearchAttributeKey.for_keyword(names.ATTRIBUTE_MODEL)
WAITING = SearchAttributeKey.for_keyword_list(names.ATTRIBUTE_WAITING)
TENANT = SearchAttributeKey.for_keyword(names.ATTRIBUTE_TENANT)
ATTRIBUTES: Sequence[SearchAttributeKey[str] | SearchAttributeKey[Sequence[str]]] = (
    STATUS,
    AGENT,
    SESSION,
    MODEL,
    WAITING,
    TENANT,
)

_BREAKS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")
_SECRET_VALUE = re.compile(
    r"\b(?:bearer|basic)\s+\S+"
    r"|[\w-]*(?:key|token|secret|passw\w*|auth\w*|credential)[\w-]*[\"']?\s*[=:]\s*\S+"
    r"|\b(?:sk|pk|ghp|gho|xox[a-z])[-_][\w-]{8,}"
    r"|://[^/\s:@]+:[^/\s@]+@",
    re.IGNORECASE,
)
"""What looks like a secret inside a value; a summary that hides too much only says less (F098)."""

FAILURE_BYTES: Final = 1_000
"""UTF-8 bytes of a failure's message in the details of a run; its whole stands in the result."""

PROMPT_BYTES: Final = 1_000
"""UTF-8 bytes of a question in the details of a run; its whole stands in the run's view."""

_SECRET_KEY = re.compile(r"key|token|secret|password|passwd|auth|credential|cookie", re.IGNORECASE)


def cut(text: str, limit: int) -> str:
    """Text of at most `limit` UTF-8 bytes on one line, cut at a character, marked where it was cut."""
    line = _BREAKS.sub(" ", text).strip()
    data = line.encode("utf-8", "replace")
    if len(data) <= limit:
        return data.decode("utf-8")
    return data[: limit - 3].decode("utf-8", "ignore") + "…"


def summary(text: str) -> str:
    """A summary for the UI: the first line, at most 200 bytes, no control characters (F098)."""
    return cut(text.strip().splitlines()[0] if text.strip() else "", SUMMARY_BYTES)


def tool_summary(round_: int, name: str, arguments: JsonObject) -> str:
    """`round 3 · file_read a.txt`: the tool and its arguments in short; values under secret-looking keys stay out."""
    shown = [_shown(value) for key, value in list(arguments.items())[:8] if not _SECRET_KEY.search(key)]
    return summary(f"round {round_} · {name} {' '.join(each for each in shown if each)}")


def _shown(value: Json) -> str:
    return cut(_SECRET_VALUE.sub("…", value[:500]), 80) if isinstance(value, str) else ""


def model_summary(round_: int, attempt: int, model: str) -> str:
    """`round 3 · model vendor/name`, and the attempt from the second one on."""
    again = f" · attempt {attempt}" if attempt > 1 else ""
    return summary(f"round {round_} · model {model}{again}")


def keyword(text: str) -> str:
    """A search attribute's value within its bound: a longer one would end the run (fact 2)."""
    return cut(text, ATTRIBUTE_BYTES)


def at_start(state: RunState) -> list[SearchAttributeUpdate[str]]:
    """The attributes of a run that has begun."""
    options, spec = state.start.options, state.start.envelope.spec
    updates = [
        STATUS.value_set("running"),
        AGENT.value_set(keyword(options.agent)),
        SESSION.value_set(keyword(spec.session_id)),
    ]
    if state.model_part is not None:
        updates.append(MODEL.value_set(keyword(state.model_part.descriptor.backend_id)))
    if options.tenant is not None:
        updates.append(TENANT.value_set(keyword(options.tenant)))
    return updates


def at_end(state: RunState, status: str) -> list[SearchAttributeUpdate[str]]:
    """The attributes of a run that has ended; the model too, which a worker of its own may have bound late."""
    model = state.model_part
    named = [MODEL.value_set(keyword(model.descriptor.backend_id))] if model is not None else []
    return [STATUS.value_set(status), *named]


def waiting_for(state: RunState) -> tuple[str, ...]:
    """The kinds of what a run waits for from people, each once: `input`, later `approval`."""
    return tuple(sorted({str(request_kind(request_of(state.run, each))) for each in state.run.pending}))


def while_waiting(
    state: RunState, kinds: Sequence[str]
) -> list[SearchAttributeUpdate[str] | SearchAttributeUpdate[Sequence[str]]]:
    """The attributes when what people are asked has changed: so one list query shows what waits for a person."""
    return [STATUS.value_set(str(status(state.run))), WAITING.value_set(list(kinds))]


def client_pairs(agent: str, session_id: str, tenant: str | None) -> list[SearchAttributePair[str]]:
    """The attributes that a client can set at the start."""
    pairs = [
        SearchAttributePair(STATUS, "accepted"),
        SearchAttributePair(AGENT, keyword(agent)),
        SearchAttributePair(SESSION, keyword(session_id)),
    ]
    if tenant is not None:
        pairs.append(SearchAttributePair(TENANT, keyword(tenant)))
    return pairs


def _call_line(call: OpenCall, state: RunState) -> str:
    named = f"`{cut(call.name, 80)}` (`{call.invocation_id}`"
    if call.at is CallAt.OPEN:
        again = f", attempt {call.attempt}" if call.attempt > 1 else ""
        return f"- running {named}{again})"
    if call.at is CallAt.UNCERTAIN:
        return f"- {named}) was lost; its outcome is waited for up to {state.uncertainty_grace_ms // 1000} s"
    remedy = settle_command(call.invocation_id)
    return f"- {named}): nobody can say whether it took effect; when the run has ended, `{remedy}` tells the session"


def answer_command(run_id: str, request_id: str) -> str:
    """What a person types to answer a question, with TEXT in the place of the answer."""
    return f"{typed('answer', run_id, request_id)} TEXT"


def watch_command(run_id: str) -> str:
    """What a person types to see how a run goes on."""
    return typed("watch", run_id)


def question(request: PendingRequest) -> str:
    """What a pending request asks in words; nothing where it asks for something else."""
    payload = request.payload
    return " ".join(inline_text(each) for each in payload.prompt) if isinstance(payload, InputRequest) else ""


def _question_line(state: RunState, request_id: str) -> str:
    asked = cut(question(request_of(state.run, request_id)), PROMPT_BYTES)
    return f"- asks: {asked} — `{answer_command(state.start.run_id, request_id)}` answers"


def details(state: RunState) -> str:
    """The current details of a run as Markdown: status, what is going on, usage against limits."""
    lines = [f"**{status(state.run)}** · round {state.round} · {state.tool_calls} tool calls"]
    match state.phase:
        case ModelOpen(attempt=attempt):
            lines.append(f"- the model is answering (attempt {attempt})")
        case ModelWaiting(retry=retry, reason=reason):
            lines.append(f"- the model failed and is asked again soon (retry {retry}): {cut(reason, 200)}")
        case ToolsOpen(calls=calls):
            lines.extend(_call_line(call, state) for call in calls if call.at in (*AT_WORK, CallAt.UNKNOWN))
            lines.extend(_question_line(state, each) for each in state.run.pending)
        case _:
            pass
    last = state.run.records[-1].event.payload if state.run.records else None
    if isinstance(last, RunFailed):
        lines.append(f"- {cut(last.failure.message, FAILURE_BYTES)}")
    usage, cost = state.usage, budgets.cost(state)
    if usage.input_tokens is not None or usage.output_tokens is not None:
        money = "" if cost is None else f", {cost}"
        lines.append(f"- tokens: {usage.input_tokens or 0} in, {usage.output_tokens or 0} out{money}")
    lines.extend(f"- refused `{each.name}`: {cut(each.reason, 200)}" for each in state.refusals[-3:])
    return "\n".join(lines)
