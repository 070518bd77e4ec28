"""A world as lines that a person can read."""

from orchestral_temporal.core.inputs import (
    CommandArrived,
    Input,
    ModelFailed,
    ModelFinished,
    ModelLost,
    OutcomeArrived,
    ToolBroken,
    ToolLost,
    ToolObserved,
)
from orchestral_temporal.core.state import (
    AppendSession,
    CallModel,
    CancelModelCall,
    CancelToolCall,
    Effect,
    InvokeTool,
    Step,
    StopTimer,
    WakeAfter,
)


def told(now: int, given: Input) -> str:
    """One input, with the time at which it comes."""
    return f"{now:>8} {type(given).__name__}: {_said(given)}"


def _said(given: Input) -> str:  # noqa: PLR0911 -- a line for each kind of input
    match given:
        case ModelFinished(round, attempt, result):
            seen = result.observation
            calls = ", ".join(f"{call.name}({call.arguments})" for call in seen.tool_calls)
            return f"{round}/{attempt} {seen.finish_reason} {seen.response!r} [{calls}] {_usage(seen.usage)}"
        case ModelFailed(round, attempt, code, error, generated, usage):
            kind = "retryable" if error.retryable else "final"
            return f"{round}/{attempt} {code} {kind} generated={generated} {error.details} {_usage(usage)}"
        case ModelLost(round, attempt, abandoned):
            return f"{round}/{attempt} abandoned={abandoned}"
        case ToolObserved(invocation_id, attempt, observation):
            return f"{invocation_id}/a{attempt} {observation.outcome.status}"
        case ToolLost(invocation_id, attempt, abandoned, _, fenced, stored):
            return f"{invocation_id}/a{attempt} abandoned={abandoned} fenced={fenced} stored={stored is not None}"
        case ToolBroken(invocation_id, attempt, _, fenced):
            return f"{invocation_id}/a{attempt} fenced={fenced}"
        case OutcomeArrived(fence):
            said = "stored" if fence.stored else fence.outcome.outcome.status if fence.outcome else "at work"
            return f"{fence.invocation_id}/a{fence.attempt} {said} of {fence.arguments_digest[:6]}"
        case CommandArrived(command):
            return f"{command.payload.type} {command.command_id}"
        case _:
            return str(given)[:160]


def _usage(usage: object) -> str:
    return "" if usage is None else f"used {usage}"


def wanted(step: Step) -> str:
    """What came of it: WAL records, events, notes and effects in a line each."""
    lines = [
        ("wal", [draft.payload.type for draft in step.wal]),
        ("events", [record.event.payload.type for record in step.events]),
        ("notes", [f"{note.invocation_id}/a{note.attempt} {note.at} {note.said}" for note in step.notes]),
        ("wants", [_effect(effect) for effect in step.effects]),
    ]
    return "\n".join(f"{'':>10} {name}: {', '.join(said)}" for name, said in lines if said)


def _effect(effect: Effect) -> str:  # noqa: PLR0911 -- a line for each kind of effect
    match effect:
        case CallModel(attempt):
            return f"call model {attempt.round}/{attempt.attempt}"
        case CancelModelCall():
            return "cancel the model call"
        case InvokeTool(request):
            asked = " reconcile" if request.reconcile else " recorded" if request.recorded else ""
            return f"invoke {request.tool_id} {request.invocation_id}/a{request.attempt}{asked}"
        case CancelToolCall(invocation_id):
            return f"cancel {invocation_id}"
        case WakeAfter(timer, ms):
            return f"wake {timer} after {ms}"
        case StopTimer(timer):
            return f"stop {timer}"
        case AppendSession(batch):
            return f"append batch {batch.number} of {len(batch.records)}{' and close' if batch.close else ''}"
