"""A user's sandbox beside our workflows: what stands in the same module as theirs is loaded once, not once a run."""

import dataclasses
from typing import Final

from temporalio.worker import WorkflowRunner
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner

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
"""Ours, and what ours stands on."""


def widen(given: WorkflowRunner | None) -> WorkflowRunner:
    """A user's own runner, with our modules passed through if it is a sandbox; our workflows run bare in any case."""
    if isinstance(given, SandboxedWorkflowRunner):
        restrictions = given.restrictions.with_passthrough_modules(*PASSED_THROUGH)
        return dataclasses.replace(given, restrictions=restrictions)
    return given if given is not None else SandboxedWorkflowRunner()
