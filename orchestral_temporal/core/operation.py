"""What a call will do, for policy and people: the plan of a tool that makes none (`spec/tools.md` §5, §8.3)."""

from typing import Final

from orchestral_temporal.protocol.approval import (
    CapabilityRequest,
    CapabilityResource,
    ToolOperationPlan,
    Unrestricted,
)
from orchestral_temporal.protocol.digest import digest
from orchestral_temporal.protocol.tools import EffectScope, EffectSet, ToolInvocation
from orchestral_temporal.protocol.words import JsonObject

SUMMARY_CHARACTERS: Final = 512
"""Characters of a summary: a person reads it whole before allowing the call."""

_BLANKED: Final = dict.fromkeys((*range(0x20), *range(0x7F, 0xA0)), " ")
"""Control characters (Unicode Cc), which a plan's summary may not hold."""


def default_plan(envelope: EffectSet, invocation: ToolInvocation, arguments: JsonObject) -> ToolOperationPlan:
    """The plan of a call whose tool makes none: all that its envelope allows, any network target.

    `arguments` are the execution arguments, named by their digest and never shown. An envelope with `host_execution`
    gives a plan that is invalid: such a tool has to say itself what it will do.
    """
    network = CapabilityResource(effect=EffectScope.NETWORK, selector=Unrestricted())
    resources = (network,) if EffectScope.NETWORK in envelope else ()
    return ToolOperationPlan(
        required_capabilities=CapabilityRequest(effects=envelope, resources=resources),
        summary=summary_line(f"{invocation.tool_id} with arguments {digest(arguments)}", invocation.tool_id),
    )


def summary_line(text: str, tool_id: str) -> str:
    """A text as one line for a person: no control character, single spaces, cut; a blank one names the tool."""
    line = _one_line(text) or _one_line(f"Call {tool_id}")
    return line if len(line) <= SUMMARY_CHARACTERS else f"{line[:SUMMARY_CHARACTERS]}…"


def requested_scope(request: CapabilityRequest) -> tuple[str, ...]:
    """The effects of a request in words for its approval; empty for one without any (divergence 19)."""
    free = {resource.effect for resource in request.resources if isinstance(resource.selector, Unrestricted)}
    return tuple(f"{effect}:unrestricted" if effect in free else effect.value for effect in request.effects)


def _one_line(text: str) -> str:
    return " ".join(text.translate(_BLANKED).split())
