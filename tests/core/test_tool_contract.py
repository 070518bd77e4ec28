"""The digest of all that decides over a worker's calls."""

from typing import Any

import pytest

from orchestral_temporal.core.tool_contract import DEFAULT_PLANNER, ToolContract, execution_contract_digest
from orchestral_temporal.protocol.approval import PermissionPolicy
from orchestral_temporal.protocol.tools import HostToolPolicy, ToolDescriptor
from orchestral_temporal.protocol.words import parse_value
from tests.golden import Row, section

ROWS = [
    row
    for row in section("tool_policy", "digests")
    if row["function"] == "GuardedToolRuntime::execution_contract_digest"
]


def contract(inputs: Any, artifact_store: Any = None, planner: str | None = None) -> str:
    """The digest of a row, perhaps with one part replaced."""
    tools = [
        ToolContract(
            descriptor=parse_value(ToolDescriptor, tool),
            view=inputs["model_output_contract"]["contract"],
            planner=planner or inputs["planning_contract"]["contract"],
        )
        for tool in inputs["tools"]
    ]
    host, policy = parse_value(HostToolPolicy, inputs["host"]), PermissionPolicy(inputs["permission_policy"])
    return execution_contract_digest(host, policy, tools, artifact_store or inputs["artifact_store"])


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["name"])
def test_the_contract_of_a_guard_is_digested_as_in_the_source(row: Row) -> None:
    """Ceiling, policy, tools with their versions and artifact store have the source's digest, in any order."""
    assert contract(row["inputs"]) == row["output"]


def test_every_part_counts() -> None:
    """The artifact store and the version of a planner are part of the contract."""
    inputs = next(row["inputs"] for row in ROWS if row["name"] == "one tool")
    store = {"max_artifact_bytes": 1, "summary_max_chars": 1, "hooks_enabled": False}
    assert len({contract(inputs), contract(inputs, store), contract(inputs, planner=DEFAULT_PLANNER)}) == 3
