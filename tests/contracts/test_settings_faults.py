"""Every fault in a settings file is refused by one sentence with file, line, key and remedy."""

from pathlib import Path

import pytest

from orchestral_temporal.hosting.loading import load_settings
from orchestral_temporal.hosting.yaml_file import SettingsError

SENTINEL = "SENTINEL-7f3a91"
AGENT = "agents: {default: {}}\n"
TOOLS = "file_read, search, file_search, text_search, file_write, file_edit, apply_patch, python:MODULE:FUNCTION"
ROOT_KEYS = "temporal, queues, artifacts, approvals, timeouts, live_text, agents"
AGENT_KEYS = "model, instructions, tools, policy, limits, run_limits, skills, input_requests, strict_calls"
MODEL_KEYS = (
    "context_tokens, max_output_tokens, retry, retry_after_cap_ms, price, adapter, model, base_url, api_key, call_ids"
)
RATES = "input_microunits_per_million_tokens: {}, output_microunits_per_million_tokens: {}"
POLICY_TOOLS = (
    "file_read, search, file_search, text_search, "
    "file_write, file_edit, apply_patch, exec, exec_command, write_stdin, artifact_read"
)


def model(text: str) -> str:
    """A file whose only agent has that model."""
    return f"agents: {{a: {{model: {{{text}}}}}}}"


FAULTS = [
    (
        "agents:\n  a:\n    tols: []",
        f"3: agents.a.tols is no key here; allowed: {AGENT_KEYS}.",
    ),
    (
        AGENT + "queue: {}",
        f"2: queue is no key here; allowed: {ROOT_KEYS}.",
    ),
    (AGENT + "queues: {runs: 5}", "2: queues.runs must be text, not a number."),
    (AGENT + "queues: {runs: ' '}", "2: queues.runs must be text, neither blank nor with control characters."),
    (AGENT + "queues: []", "2: queues must be a mapping, not a list."),
    (AGENT + "queues:", "2: queues must be a mapping, not nothing."),
    ("queues: {}", "1: agents is missing."),
    ("agents: {}", "1: agents must not be empty."),
    ("agents: []", "1: agents must be a mapping, not a list."),
    ("agents:\n  ' ': {}", "2: agents.  must be text, neither blank nor with control characters."),
    ("- agents", "1: the file must be a mapping, not a list."),
    (
        AGENT + "temporal: {address: localhost}",
        "2: temporal.address must be HOST:PORT such as 127.0.0.1:7233, without a scheme.",
    ),
    (
        AGENT + "temporal: {address: 'http://localhost:7233'}",
        "2: temporal.address must be HOST:PORT such as 127.0.0.1:7233, without a scheme.",
    ),
    (
        AGENT + "temporal: {address: 'localhost:70000'}",
        "2: temporal.address must be HOST:PORT such as 127.0.0.1:7233, without a scheme.",
    ),
    (
        AGENT + "temporal: {address: '::1:7233'}",
        "2: temporal.address must be HOST:PORT such as 127.0.0.1:7233, without a scheme.",
    ),
    (
        AGENT + "temporal: {grpc_compression: brotli}",
        "2: temporal.grpc_compression must be one of 'auto', 'gzip' or 'none'.",
    ),
    (
        AGENT + "temporal: {server: {retention: 30}}",
        "2: temporal.server.retention must be a duration such as 250ms, 2s, 5m or 720h.",
    ),
    (
        AGENT + "temporal: {server: {retention: 30d}}",
        "2: temporal.server.retention must be a duration such as 250ms, 2s, 5m or 720h.",
    ),
    (
        AGENT + "temporal: {server: {retention: 0s}}",
        "2: temporal.server.retention must be a duration above zero and of at most 87600h.",
    ),
    (
        AGENT + "temporal: {server: {retention: 90000h}}",
        "2: temporal.server.retention must be a duration above zero and of at most 87600h.",
    ),
    (
        AGENT + "temporal: {server: {ui_port: 0}}",
        "2: temporal.server.ui_port must be a port number from 1 to 65535, or false to switch it off.",
    ),
    (
        AGENT + "temporal: {server: {ui_port: true}}",
        "2: temporal.server.ui_port must be a port number from 1 to 65535, or false to switch it off.",
    ),
    (
        AGENT + "temporal: {server: {db: 'a?b.db'}}",
        "2: temporal.server.db must be a file name without ?, # and %, which the server reads as parts of a URL.",
    ),
    (AGENT + "temporal: {server: {db: .}}", "2: temporal.server.db names {folder}, which is a folder."),
    (
        AGENT + "temporal: {server: {dynamic_config: {a: [1]}}}",
        "2: temporal.server.dynamic_config.a must be text, a number, true or false, not a list.",
    ),
    (
        AGENT + "temporal: {server: {dynamic_config: {a: .nan}}}",
        "2: temporal.server.dynamic_config.a must be text, a number, true or false, not a number.",
    ),
    (
        AGENT + "artifacts: s3://bucket/x",
        "2: artifacts must be file://FOLDER; other stores are not in this version yet.",
    ),
    (AGENT + "artifacts: file:s.yaml", "2: artifacts names {folder}/s.yaml, which is no folder."),
    (
        AGENT + "approvals: {keys: {dev: env:K}, sign_with: prod}",
        "2: approvals.sign_with must be one of the names under keys: dev.",
    ),
    (
        AGENT + "approvals:\n  keys:\n    dev: " + SENTINEL,
        "4: approvals.keys.dev must be a reference, env:NAME or file:PATH, never the secret itself.",
    ),
    (AGENT + "timeouts: {heartbeat: fast}", "2: timeouts.heartbeat must be a duration such as 250ms, 2s, 5m or 720h."),
    (AGENT + "live_text: 250", "2: live_text must be a duration such as 250ms, or false to switch it off."),
    (AGENT + "live_text:", "2: live_text must be a duration such as 250ms, or false to switch it off."),
    (
        model("adapter: anthropic"),
        "1: agents.a.model must have one of these as its adapter: 'offline', 'openai', 'scripted'.",
    ),
    (model("model: x"), "1: agents.a.model needs the key adapter: offline, openai or scripted."),
    ("agents: {a: {model: offline}}", "1: agents.a.model must be a mapping, not text."),
    (model("adapter: openai"), "1: agents.a.model.model is missing."),
    (
        model("adapter: openai, model: m, api_key: " + SENTINEL),
        "1: agents.a.model.api_key must be a reference, env:NAME or file:PATH, never the secret itself.",
    ),
    (
        model("adapter: openai, model: m, api_key: 'env:" + SENTINEL + "'"),
        "1: agents.a.model.api_key must be a reference, env:NAME or file:PATH, never the secret itself.",
    ),
    (
        model("adapter: openai, model: m, api-key: " + SENTINEL),
        f"1: agents.a.model.api-key is no key here; allowed: {MODEL_KEYS}.",
    ),
    (
        model("adapter: openai, model: m, base_url: 'https://u:" + SENTINEL + "@h/v1'"),
        "1: agents.a.model.base_url must be a URL without user and password; a secret is a reference in api_key.",
    ),
    (
        model("adapter: openai, model: m, base_url: 'https://h/v1?key=" + SENTINEL + "'"),
        "1: agents.a.model.base_url must be a URL that ends with its path; a secret is a reference in api_key.",
    ),
    (
        model("adapter: openai, model: m, call_ids: short"),
        "1: agents.a.model.call_ids must be one of 'as_is' or 'short9'.",
    ),
    (model("adapter: offline, retry: 3"), "1: agents.a.model.retry must be a mapping, not a number."),
    (model("adapter: offline, retry: {max_retries: -1}"), "1: agents.a.model.retry.max_retries must be at least 0."),
    (
        model("adapter: offline, retry: {base_delay_ms: 9000}"),
        "1: agents.a.model.retry.base_delay_ms must be at most max_delay_ms, 8000.",
    ),
    (
        model("adapter: offline, retry: {max_delay_ms: 60001}"),
        "1: agents.a.model.retry.max_delay_ms must be at most 60000.",
    ),
    (
        model("adapter: offline, retry_after_cap_ms: 600001"),
        "1: agents.a.model.retry_after_cap_ms must be at most 600000.",
    ),
    (
        model("adapter: openai, model: m, base_url: 'ftp://h'"),
        "1: agents.a.model.base_url must be an http:// or https:// URL.",
    ),
    (
        model("adapter: openai, model: m, base_url: 'http://[h'"),
        "1: agents.a.model.base_url must be an http:// or https:// URL.",
    ),
    (model("adapter: openai, model: m, base_url: [x]"), "1: agents.a.model.base_url must be a URL, not a list."),
    (model("adapter: offline, context_tokens: 0"), "1: agents.a.model.context_tokens must be at least 1."),
    (
        model("adapter: offline, context_tokens: 9007199254740992"),
        "1: agents.a.model.context_tokens must be at most 9007199254740991.",
    ),
    (
        model("adapter: offline, context_tokens: 8k"),
        "1: agents.a.model.context_tokens must be a whole number, not text.",
    ),
    (
        model("adapter: offline, context_tokens: 4096"),
        "1: agents.a.model.max_output_tokens must be below context_tokens, 4096.",
    ),
    (model("adapter: scripted"), "1: agents.a.model needs script or scenario, one of the two."),
    (
        model("adapter: scripted, script: s.yaml, scenario: s.yaml"),
        "1: agents.a.model needs script or scenario, one of the two.",
    ),
    (
        model("adapter: scripted, script: none.yaml"),
        "1: agents.a.model.script names {folder}/none.yaml, which is no file.",
    ),
    (
        model("adapter: scripted, script: s.yaml, redispatchable: 1"),
        "1: agents.a.model.redispatchable must be true or false, not a number.",
    ),
    ("agents: {a: {instructions: 5}}", "1: agents.a.instructions must be text, not a number."),
    ("agents: {a: {tools: file_read}}", "1: agents.a.tools must be a list, not text."),
    (
        "agents:\n  a:\n    tools:\n      - file_read\n      - exec\n",
        f"5: agents.a.tools[1] is not in this version yet; allowed: {TOOLS}.",
    ),
    (
        "agents:\n  a:\n    tools: [file_read, file_edit]\n    policy: {network: deny}\n",
        "4: agents.a.policy.workspaces must name a folder in which file_edit may write.",
    ),
    (
        "agents: {a: {tools: [{mcp: {name: git}}]}}",
        f"1: agents.a.tools[0] is not in this version yet; allowed: {TOOLS}.",
    ),
    ("agents: {a: {tools: [grep]}}", f"1: agents.a.tools[0] is no tool; allowed: {TOOLS}."),
    ("agents: {a: {tools: [['x']]}}", f"1: agents.a.tools[0] is no tool; allowed: {TOOLS}."),
    ("agents: {a: {tools: ['python:my tools:send']}}", f"1: agents.a.tools[0] is no tool; allowed: {TOOLS}."),
    (
        "agents: {a: {policy: {workspaces: [gone]}}}",
        "1: agents.a.policy.workspaces[0] names {folder}/gone, which is no folder.",
    ),
    ("agents: {a: {policy: {network: maybe}}}", "1: agents.a.policy.network must be one of 'deny' or 'allow'."),
    (
        "agents:\n  a:\n    policy:\n      approval:\n        file_wirte: deny",
        f"5: agents.a.policy.approval.file_wirte names no tool; allowed: {POLICY_TOOLS}.",
    ),
    (
        "agents: {a: {policy: {approval: {exec: maybe}}}}",
        "1: agents.a.policy.approval.exec must be one of 'never', 'ask' or 'deny'.",
    ),
    ("agents: {a: {run_limits: {max_tool_calls: 0}}}", "1: agents.a.run_limits.max_tool_calls must be at least 1."),
    (
        model("adapter: offline, price: {currency: usd, " + RATES.format(1, 1) + "}"),
        "1: agents.a.model.price.currency must be an ISO code of three capital letters, such as USD.",
    ),
    (
        model("adapter: offline, price: {currency: USD, " + RATES.format(0, 0) + "}"),
        "1: agents.a.model.price must have one price above 0; leave it out for a model that costs nothing.",
    ),
    (
        model("adapter: offline, price: {currency: USD, " + RATES.format(1.5, 0) + "}"),
        "1: agents.a.model.price.input_microunits_per_million_tokens must be a whole number, not a number.",
    ),
    (
        "agents: {a: {run_limits: {max_cost: {currency: USD, microunits: 0}}}}",
        "1: agents.a.run_limits.max_cost.microunits must be at least 1.",
    ),
    (
        "agents: {a: {limits: {max_cost: {currency: USD, microunits: 9}}}}",
        "1: agents.a.limits.max_cost is no key here; allowed: max_model_steps, max_tool_calls.",
    ),
    (
        "agents:\n  a:\n    run_limits:\n      max_cost: {currency: USD, microunits: 9}",
        "4: agents.a.run_limits.max_cost needs the key price in model.",
    ),
    (
        "agents:\n  a:\n    model: {adapter: offline, price: {currency: EUR, "
        + RATES.format(1, 1)
        + "}}\n    run_limits: {max_cost: {currency: USD, microunits: 9}}",
        "4: agents.a.run_limits.max_cost must be in EUR, as the price is.",
    ),
    (
        "agents: {a: {skills: [skills/]}}",
        "1: agents.a.skills must be empty or absent: skills are not in this version yet.",
    ),
    (
        "agents: {a: {input_requests: perhaps}}",
        "1: agents.a.input_requests must be true or false, not text.",
    ),
    ("agents: {a: {}, a: {}}", "1: agents.a is there twice."),
    ("agents: {5: {}}", "1: agents has a key that is not text; put it in quotes."),
    ("agents: {[a]: {}}", "1: agents has a key that is not text; put it in quotes."),
    ("agents: {a: !tool {}}", "1: agents.a has a tag, which means nothing here."),
    ("agents: {a: {tools: !tool []}}", "1: agents.a.tools has a tag, which means nothing here."),
    (
        'agents: {a: {instructions: "\\ud800"}}',
        "1: agents.a.instructions has half a character in it, a lone surrogate.",
    ),
    (
        AGENT + '"a\\n\\ud800": 1',
        f"2: 'a\\n\\ud800' is no key here; allowed: {ROOT_KEYS}.",
    ),
    (
        AGENT + "temporal: {server: {dynamic_config: 1}}",
        "2: temporal.server.dynamic_config must be a mapping, not a number.",
    ),
    ("agents: {a: !tool x}", "1: agents.a has a tag, which means nothing here."),
    (
        "agents: {a: {limits: {max_tool_calls: 0b_}}}",
        "1: agents.a.limits.max_tool_calls is not a number that can be read.",
    ),
    (
        "agents: {a: {instructions: 2026-01-02, strict_calls: 2026-01-02}}",
        "1: agents.a.strict_calls must be true or false, not text.",
    ),
    (AGENT + "a: *" + SENTINEL, "2: the file has an alias without its anchor, or a second document."),
    (AGENT + "---\n" + AGENT, "2: the file has an alias without its anchor, or a second document."),
    (AGENT + "\ta: 1", "2: the file is not valid YAML: found character '\\t' that cannot start any token."),
    ("agents: [", "1: the file is not valid YAML: expected the node content, but found '<stream end>'."),
]


@pytest.mark.parametrize(("text", "sentence"), FAULTS)
def test_a_fault_is_one_sentence_with_line_and_remedy(tmp_path: Path, text: str, sentence: str) -> None:
    """Each fault is refused by exactly one sentence, which repeats no secret."""
    path = tmp_path / "s.yaml"
    path.write_text(text)
    with pytest.raises(SettingsError) as caught:
        load_settings(path)
    assert str(caught.value) == f"{path}:{sentence.replace('{folder}', str(tmp_path))}"
    assert SENTINEL not in str(caught.value)
