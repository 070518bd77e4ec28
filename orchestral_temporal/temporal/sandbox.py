"""The sandbox of our workflows: our own modules and what they stand on are loaded once, not once a run (fact 5.1)."""

import dataclasses
from typing import Final

from temporalio.worker import WorkflowRunner
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

PASSED_THROUGH: Final = (
    "orchestral_temporal",
    "structlog",
    "jsonschema",
    "jsonschema_specifications",
    "referencing",
    "rpds",
    "attrs",
    "attr",
    "rfc8785",
)
"""Pure as far as a run uses them; replay tests load ours unshielded, so that a clock in the core is caught."""


def runner() -> SandboxedWorkflowRunner:
    """The default sandbox with our modules passed through."""
    return SandboxedWorkflowRunner(restrictions=SandboxRestrictions.default.with_passthrough_modules(*PASSED_THROUGH))


def widen(given: WorkflowRunner | None) -> WorkflowRunner:
    """A user's own runner, with our modules passed through if it is a sandbox."""
    if isinstance(given, SandboxedWorkflowRunner):
        restrictions = given.restrictions.with_passthrough_modules(*PASSED_THROUGH)
        return dataclasses.replace(given, restrictions=restrictions)
    return given if given is not None else runner()
