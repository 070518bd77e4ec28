"""What a worker's guard would do with a call, as one digest (`spec/tools.md` §19)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from orchestral_temporal.protocol.approval import PERMISSION_CONTRACTS, PermissionPolicy
from orchestral_temporal.protocol.digest import digest
from orchestral_temporal.protocol.ids import Digest
from orchestral_temporal.protocol.tools import HostToolPolicy, ToolDescriptor
from orchestral_temporal.protocol.words import JsonObject, dump

DEFAULT_PLANNER: Final = "orchestral.tool-operation-planner/static-envelope/v1"
"""The version of `core.operation.default_plan`."""


@dataclass(frozen=True)
class ToolContract:
    """A registered tool with the versions of its planner and of its model view."""

    descriptor: ToolDescriptor
    view: str
    planner: str = DEFAULT_PLANNER


def execution_contract_digest(
    host: HostToolPolicy, policy: PermissionPolicy, tools: Sequence[ToolContract], artifact_store: JsonObject | None
) -> Digest:
    """The digest of all that decides over calls, whatever the order of registration.

    `artifact_store` has the settings of the sheet, or is null where no store is bound. Keys, journals and the code of
    the tools are no part of it.
    """
    ordered = sorted(tools, key=lambda tool: tool.descriptor.tool_id)
    return digest(
        {
            "contract": "orchestral.guarded-tool-runtime/v1",
            "host_ceiling": dump(host),
            "permission_policy": PERMISSION_CONTRACTS[policy],
            "registered_tools": [
                {
                    "descriptor": dump(tool.descriptor),
                    "planning_contract": {"contract": tool.planner},
                    "model_output_contract": {"contract": tool.view},
                }
                for tool in ordered
            ],
            "artifact_store": artifact_store,
        }
    )
