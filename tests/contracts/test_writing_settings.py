"""The writing tools in a settings file: words, rules on asking, folders (`design/surface.md`)."""

from pathlib import Path

import pytest

from orchestral_temporal.hosting.compose import compose
from orchestral_temporal.hosting.loading import load_settings
from orchestral_temporal.protocol.tools import ApprovalPolicy
from orchestral_temporal.runtime.agents import HostedTools


def hosted(folder: Path, agent: str) -> HostedTools:
    """The tools of an agent that is written so in a settings file."""
    path = folder / "settings.yaml"
    path.write_text(f"agents: {{default: {{{agent}}}}}\n")
    tools = compose(load_settings(path), "default").agents["default"].tools
    assert tools is not None
    return tools


@pytest.mark.parametrize(
    ("tools", "rules", "expected"),
    [
        ("file_write", "", {"file_write": "required"}),
        ("file_edit", "", {"file_edit": "required", "apply_patch": "required"}),
        ("apply_patch", "apply_patch: never", {"apply_patch": "not_required"}),
        ("file_write", "file_write: never", {"file_write": "not_required"}),
        ("file_edit", "file_edit: deny", {"file_edit": "deny", "apply_patch": "deny"}),
        ("file_edit", "file_edit: never, apply_patch: ask", {"file_edit": "not_required", "apply_patch": "required"}),
        ("file_edit", "apply_patch: ask, file_edit: never", {"file_edit": "not_required", "apply_patch": "required"}),
    ],
)
def test_words_and_rules_of_the_file_are_those_of_the_tools(
    tools: str, rules: str, expected: dict[str, ApprovalPolicy], tmp_path: Path
) -> None:
    """A person is asked unless the policy says otherwise, and what it says of one tool counts more than of two."""
    policy = f"policy: {{workspaces: ['.'], approval: {{{rules}}}}}"
    found = hosted(tmp_path, f"tools: [{tools}], {policy}")
    assert {
        tool.descriptor.model_schema.name: tool.descriptor.restriction.bounds.approval for tool in found.guard.tools
    } == expected
    assert found.part.grant.filesystem.writable_roots == (str(tmp_path),)


def test_an_agent_that_writes_nothing_may_write_nowhere(tmp_path: Path) -> None:
    """The folders of the policy are there to be read, until a tool is named that writes."""
    grant = hosted(tmp_path, "tools: [file_read, search], policy: {workspaces: ['.']}").part.grant
    assert (grant.filesystem.readable_roots, grant.filesystem.writable_roots) == ((str(tmp_path),), ())
