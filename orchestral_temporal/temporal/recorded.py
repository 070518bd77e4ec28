"""What is on record of a tool call, read back: nothing of it runs again (decisions 15 and 16)."""

from temporalio import activity

from orchestral_temporal.ports import ArtifactStore
from orchestral_temporal.protocol.activities import Fence, Heartbeat, ToolObservation, ToolRequest
from orchestral_temporal.protocol.digest import exact_digest
from orchestral_temporal.protocol.errors import ProtocolError
from orchestral_temporal.protocol.tools import UnknownEffect
from orchestral_temporal.protocol.words import parse, parse_value
from orchestral_temporal.runtime.artifacts import ArtifactMissing, read_artifact
from orchestral_temporal.temporal import failures


def fence_of(request: ToolRequest) -> Fence:
    """The fence of an attempt that is at work."""
    return Fence(
        invocation_id=request.invocation_id,
        attempt=request.attempt,
        arguments_digest=exact_digest(request.arguments),
    )


async def on_record(request: ToolRequest, artifacts: ArtifactStore) -> ToolObservation | None:
    """How the call ended that the run or an earlier try of this activity has on record; none if it may run.

    A try of the same activity is none of the run's: people reset or pause activities. Behind a fence it does not run.

    Raises:
        ApplicationError: the artifact store cannot be read now.
    """
    beats = activity.info().heartbeat_details
    if beats:
        try:
            fence = parse_value(Heartbeat, beats[0]).fence
        except ProtocolError:
            return _unknown("What an earlier try of the call left on record cannot be read.")
        if fence is not None:
            return await _ended(fence, artifacts)
    return None if request.recorded is None else await _read(request.recorded, artifacts)


async def _ended(fence: Fence, artifacts: ArtifactStore) -> ToolObservation:
    if fence.outcome is not None:
        return fence.outcome
    if fence.stored is not None:
        return await _read(fence.stored, artifacts)
    return _unknown("An earlier try of the call was at work when it was lost.")


async def _read(stored: str, artifacts: ArtifactStore) -> ToolObservation:
    try:
        return parse(ToolObservation, await read_artifact(artifacts, stored))
    except ArtifactMissing as missing:
        return _unknown(f"The outcome of an earlier attempt is lost. {missing}")
    except ProtocolError:
        return _unknown(f"What is stored as {stored!r} is no outcome.")
    except OSError as fault:
        raise failures.context_unreachable(f"The artifact store cannot be read now: {type(fault).__name__}.") from None


def _unknown(message: str) -> ToolObservation:
    return ToolObservation(outcome=UnknownEffect(message=f"{message} Whether it took effect is not known."))
