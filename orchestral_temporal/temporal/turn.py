"""The end of a run as its readers hold it in their hands."""

from dataclasses import dataclass

from orchestral_temporal.ports import ArtifactStore
from orchestral_temporal.protocol.base import JsonObject
from orchestral_temporal.protocol.content import ArtifactBody, Content
from orchestral_temporal.protocol.state import AgentRunStatus, AgentRunView
from orchestral_temporal.protocol.words import parse_value
from orchestral_temporal.runtime.artifacts import ArtifactMissing, read_artifact


class ContinuityUnknown(Exception):  # noqa: N818 -- the wire's word for what a reader cannot see
    """Nobody can say how the run stands: it was terminated, or its history is gone."""


@dataclass(frozen=True)
class Turn:
    """How a run ended: the result object, and its parts that are asked for most.

    `stored` is a text that lies in the artifact store, or why it could not be read there.
    """

    result: JsonObject
    stored: str | ArtifactMissing | None = None

    @property
    def run_id(self) -> str:
        """The run."""
        return str(self.result["run_id"])

    @property
    def status(self) -> AgentRunStatus:
        """`delivered`, `incomplete`, `cancelled` or `failed`."""
        return AgentRunStatus(str(self.result["status"]))

    @property
    def text(self) -> str | None:
        """The final or partial answer, when it is text.

        Raises:
            ArtifactMissing: it lies in an artifact store that this client does not have, or that does not have it.
        """
        if isinstance(self.stored, ArtifactMissing):
            raise self.stored
        value = self.result["text"] if self.stored is None else self.stored
        return value if isinstance(value, str) else None

    @property
    def view(self) -> AgentRunView | None:
        """The wire view; none when the start was refused or the view did not fit the result."""
        value = self.result["view"]
        return parse_value(AgentRunView, value) if value is not None else None

    @property
    def failure(self) -> JsonObject | None:
        """Code, message, retryable and details of a failed or refused run."""
        value = self.result["failure"]
        return value if isinstance(value, dict) else None


async def whole_turn(result: JsonObject, artifacts: ArtifactStore | None) -> Turn:
    """A result with its text, wherever that lies."""
    body = _response(result)
    if body is None:
        return Turn(result)
    what = f"The text of run {result['run_id']!r} is artifact {body.value.artifact_ref!r}"
    if artifacts is None:
        return Turn(result, ArtifactMissing(f"{what}; give `artifacts`, the store of the workers, to read it."))
    try:
        return Turn(result, (await read_artifact(artifacts, body.value.digest)).decode())
    except ArtifactMissing:
        said = f"{what}, which this artifact store does not hold; use the store of the workers."
    except OSError as fault:
        said = f"{what}, and the artifact store cannot be read: {fault}."
    return Turn(result, ArtifactMissing(said))


def _response(result: JsonObject) -> ArtifactBody | None:
    """The final or partial answer, if it is a text in the artifact store."""
    final, partial = result["delivery"], result["partial_delivery"]
    value = final["final_response"] if isinstance(final, dict) else None
    value = partial["response"] if isinstance(partial, dict) else value
    content = parse_value(Content, value) if value is not None else None
    if content is None or content.media_type != "text/plain" or not isinstance(content.body, ArtifactBody):
        return None
    return content.body
