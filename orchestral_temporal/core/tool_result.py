"""What the model sees of a tool's outcome (`spec/tools.md` §15)."""

from orchestral_temporal.protocol.model import ToolResultPart
from orchestral_temporal.protocol.tools import Cancelled, Completed, Failed, InlineOutput, Rejected
from orchestral_temporal.protocol.words import Json, dump


def tool_result(call_id: str, outcome: Completed | Rejected | Failed | Cancelled) -> ToolResultPart:
    """The result part for the model's own `call_id`; an inline output already is the tool's model view.

    An unknown effect has none: it ends the run and is never shown.
    """
    if isinstance(outcome, Completed):
        return ToolResultPart(call_id=call_id, result=_shown(outcome), is_error=False)
    return ToolResultPart(call_id=call_id, result=dump(outcome), is_error=True)


def _shown(outcome: Completed) -> Json:
    if isinstance(outcome.output, InlineOutput):
        return outcome.output.value
    return {"kind": outcome.output.kind, **dump(outcome.output.value)}
