"""Replays with our own modules inside the SDK's sandbox, so that a clock or chance in `core` is caught.

In production our workflows run bare, for speed. Here the sandbox loads every module of ours afresh, its restrictions
in force; it does so once a session and not once a history, which would cost a second each.
"""

from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions
from temporalio.worker.workflow_sandbox._importer import Importer
from temporalio.worker.workflow_sandbox._restrictions import RestrictionContext
from temporalio.worker.workflow_sandbox._runner import _Instance

from orchestral_temporal.temporal.converter import DATA_CONVERTER
from orchestral_temporal.temporal.run_workflow import AgentRun
from orchestral_temporal.temporal.session_workflow import AgentSession

OURS = "orchestral_temporal"

LIBRARIES = ("structlog", "jsonschema", "jsonschema_specifications", "referencing", "rpds", "attrs", "attr", "rfc8785")
"""What our modules stand on; loading it inside the sandbox would take seconds and judge code that is not ours."""

_RESTRICTIONS = SandboxRestrictions.default.with_passthrough_modules(*LIBRARIES)
_IMPORTER = Importer(_RESTRICTIONS, RestrictionContext())


class _Instance_(_Instance):  # noqa: N801 -- the SDK's class, one importer for all
    def _create_instance(self) -> None:
        self.importer = _IMPORTER
        super()._create_instance()


class _Runner(SandboxedWorkflowRunner):
    def create_instance(self, det):  # noqa: ANN001, ANN202 -- the SDK's signature
        return _Instance_(det, self.runner_class, self.restrictions)


async def replay_unshielded(history: WorkflowHistory) -> None:
    """Replay one history of a run or a session.

    Raises:
        NondeterminismError: the code would not write this history.
    """
    replayer = Replayer(
        workflows=[AgentRun, AgentSession],
        data_converter=DATA_CONVERTER,
        unsandboxed_workflow_runner=_Runner(restrictions=_RESTRICTIONS),
    )
    await replayer.replay_workflow(history)
    assert f"{OURS}.core.loop" in _IMPORTER.new_modules, "our modules ran outside, so the sandbox saw nothing"
