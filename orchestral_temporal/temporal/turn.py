"""The end of a run as its readers hold it in their hands."""

from dataclasses import dataclass

from orchestral_temporal.protocol.base import JsonObject
from orchestral_temporal.protocol.state import AgentRunStatus, AgentRunView
from orchestral_temporal.protocol.words import parse_value


class ContinuityUnknown(Exception):  # noqa: N818 -- the wire's word for what a reader cannot see
    """Nobody can say how the run stands: it was terminated, or its history is gone."""


@dataclass(frozen=True)
class Turn:
    """How a run ended: the result object, and its parts that are asked for most."""

    result: JsonObject

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
        """The final or partial answer, when it is text."""
        value = self.result["text"]
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
