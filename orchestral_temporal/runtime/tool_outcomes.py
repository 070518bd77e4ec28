"""How a call ends, as an outcome: what a tool returned, judged (`spec/tools.md` §12), and what it said or kept back."""

from dataclasses import dataclass
from typing import Final

from orchestral_temporal.core.limits import INLINE_RESULT_BYTES, MESSAGE_CHARACTERS
from orchestral_temporal.core.output import Output, OutputError, read_output, shortened, without_surrogates
from orchestral_temporal.core.schema import compile_schema
from orchestral_temporal.ports import Tool, ToolRejected
from orchestral_temporal.protocol.tools import (
    Completed,
    Failed,
    InlineOutput,
    Rejected,
    ToolDescriptor,
    ToolIdempotency,
    ToolOutcome,
    UnknownEffect,
)
from orchestral_temporal.protocol.words import JsonObject

NO_REASON: Final = "The tool gave no reason."


@dataclass(frozen=True)
class CallReport:
    """How a call ended: `outcome` is for the journal, `shown` is the same as the model sees it.

    The two differ when the tool has a model view of its own. `notes` say what was changed on the way, a sentence each.
    `reconciled`: the tool was only asked about an earlier attempt.
    """

    outcome: ToolOutcome
    shown: ToolOutcome
    notes: tuple[str, ...] = ()
    reconciled: bool = False


def plain(outcome: ToolOutcome) -> CallReport:
    """The report of an outcome that the model sees as it is."""
    return CallReport(outcome, outcome)


def judge_output(tool: Tool, arguments: JsonObject, returned: object) -> CallReport:
    """§12: JSON, output schema, model view, `max_output_bytes`, inline cap.

    Until there are artifacts an output or view above the inline cap is cut to its beginning, which says so.
    """
    try:
        output = read_output(returned)
        _check_output(tool.descriptor, output)
        view = _view(tool, arguments, output)
    except OutputError as error:
        return plain(failed(error.code, error.message))
    notes: list[str] = []
    if output.replaced:
        notes.append(f"{output.replaced} characters of the output were not Unicode and became U+FFFD.")
    outcome = _completed(output, notes)
    shown = outcome if view is output else _completed(view, notes)
    return CallReport(outcome, shown, tuple(notes))


def _check_output(descriptor: ToolDescriptor, output: Output) -> None:
    # Arguments have a bound on their parts and so has what a schema judges; without a schema there is nothing to judge.
    fault = compile_schema(descriptor.output_schema).check(output.value) if descriptor.output_schema else None
    if fault is not None:
        raise OutputError("output_schema_violation", f"The output does not fit its schema: {fault}.")
    limit = descriptor.restriction.bounds.max_output_bytes
    if limit is not None and output.size > limit:
        raise OutputError("output_limit_exceeded", f"The output has {output.size} bytes, {limit} are allowed.")


def _view(tool: Tool, arguments: JsonObject, output: Output) -> Output:
    try:
        view = tool.view(arguments, output.value)
        return output if view is output.value else read_output(view)
    except Exception as fault:  # noqa: BLE001 -- a view is the tool author's code
        raise OutputError("model_output_serialization_failed", f"The tool's view failed: {said(fault, '?')}") from None


def _completed(output: Output, notes: list[str]) -> Completed:
    if output.size <= INLINE_RESULT_BYTES:
        return Completed(output=InlineOutput(value=output.value))
    notes.append(f"A result of {output.size} bytes was cut to its beginning.")
    return Completed(output=InlineOutput(value=shortened(output)))


def rejected(refusal: ToolRejected) -> Rejected:
    """What a tool or the guard refused before anything was done."""
    return Rejected(code=said(refusal.code, "tool_rejected"), message=said(refusal.message, NO_REASON))


def failed(code: str, message: str, *, retryable: bool = False) -> Failed:
    """What a tool could not do."""
    return Failed(code=code, message=said(message, NO_REASON), retryable=retryable)


def timed_out(descriptor: ToolDescriptor, seconds: float) -> ToolOutcome:
    """The tool did not answer in the time that it had."""
    message = f"The tool did not answer within {round(seconds * 1000)} ms."
    return unanswered(descriptor, failed("timeout", message), message)


def unanswered(descriptor: ToolDescriptor, certain: ToolOutcome, message: str) -> ToolOutcome:
    """Nobody says how the work ended: the effect of a tool that must not run twice is unknown (`spec/tools.md` §11)."""
    if descriptor.idempotency is ToolIdempotency.NON_IDEMPOTENT:
        return UnknownEffect(message=f"{message} Whether it took effect is not known.")
    return certain


def said(value: object, otherwise: str) -> str:
    """A text from outside as one that every record can hold: Unicode, not blank, cut."""
    try:
        text, _ = without_surrogates(str(value))
    except Exception:  # noqa: BLE001 -- an exception may fail even at saying what it is
        return otherwise
    text = text if len(text) <= MESSAGE_CHARACTERS else f"{text[: MESSAGE_CHARACTERS - 1]}…"
    return text if text.strip() else otherwise
