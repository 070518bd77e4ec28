"""The golden values that stand in the sheets themselves: one run in order, and digests beside it."""

from typing import Any

import pytest

from orchestral_temporal.core.effects import EffectJournal, append, replay
from orchestral_temporal.core.projection import Run, view
from orchestral_temporal.core.reducer import Author, begin
from orchestral_temporal.core.reducer import append as append_event
from orchestral_temporal.protocol import mcp, plans, session, skills
from orchestral_temporal.protocol.admission import AgentAdmission
from orchestral_temporal.protocol.commands import Cancel, Steer, seal_command
from orchestral_temporal.protocol.compaction import SessionCompactionPolicy, SessionSummarizerDescriptor
from orchestral_temporal.protocol.content import text_content
from orchestral_temporal.protocol.digest import digest, exact_digest, sha256
from orchestral_temporal.protocol.effects import PreparedToolEffect, ToolEffectEventDraft, effect_event_id, effect_key
from orchestral_temporal.protocol.errors import WordError
from orchestral_temporal.protocol.events import AgentEventDraft
from orchestral_temporal.protocol.requests import InputResolution, resolution_digest
from orchestral_temporal.protocol.run import AgentDescriptor, AgentRunSpec, AgentStartRequest, seal, seal_descriptor
from orchestral_temporal.protocol.state import projection_digest
from orchestral_temporal.protocol.tools import ToolDescriptor, ToolInvocation, ToolPolicyBounds
from orchestral_temporal.protocol.validation import validate
from orchestral_temporal.protocol.words import dump, parse_json, parse_value

HELLO = {"media_type": "text/plain", "schema_id": None, "body": {"kind": "inline", "value": "hello"}}
QUESTION = {**HELLO, "body": {"kind": "inline", "value": "deploy where?"}}
STAGING = {**HELLO, "body": {"kind": "inline", "value": "staging"}}
DONE = {**HELLO, "body": {"kind": "inline", "value": "done"}}

SPEC = parse_value(
    AgentRunSpec,
    {"protocol_version": {"major": 1, "minor": 0}, "session_id": "s-1", "run_id": "r-1", "input": [HELLO]},
)
DESCRIPTOR = parse_value(
    AgentDescriptor,
    {
        "provider_id": "p-1",
        "agent_id": "a-1",
        "supported_protocol_versions": [{"major": 1, "minor": 0}],
        "accepted_content_types": ["text/plain"],
        "capabilities": {
            "session_reuse": True,
            "structured_output": False,
            "controls": {"steer": True, "cancel": "confirmed", "recover": True},
            "pending_request_kinds": ["input", "approval"],
            "supported_limits": ["deadline", "tool_calls"],
            "effect_mediation": "host_mediated",
        },
        "extensions": {"orchestral/input-queue.v1": {"version": 1}},
    },
)
SPEC_DIGEST = "2cad742a8d841c074ce690a2c3b17ae0856ff2ba04c9d3dddc8a2efcc4ab0206"
DESCRIPTOR_DIGEST = "e8ac55a30c20b8133ad842c9553edb7ff4dbd2310a1c5d2c2ea3013ece81d725"
ANSWER = {"type": "input", "content": [STAGING]}
ANSWER_DIGEST = "535190645ecafcd193556ca4c1121e7a9dbe37c944eb142da6f6a4de2b3793ca"
COMMAND = {
    "command_id": "c-1",
    "run_id": "r-1",
    "request_id": "q-1",
    "payload": {"type": "resolve_request", "response": ANSWER},
    "command_digest": "fd18fd4a5f0e2a37ec6020d345227bb12591f60df35e6590a0ddea05cffbccbd",
}
PROOF = {
    "proof_ref": "host-recovery/r-1/6",
    "last_confirmed_seq": 6,
    "loss_event_digest": "f6e4457b529468758cda92ea6c07aca0653438573f7b28f7657910c9410bfc69",
    "authoritative_snapshot_digest": "99c1a98b6c7ccccdf8e6def8bf7716bc32eace7ab52380d95c0f245dbe746fda",
    "evidence_digest": "6c76860956ca12baa72b5b3729ea21bb90cbac8996b532e11d491c7f1771d7bc",
}
DELIVERY = {
    "delivery_id": "d-1",
    "run_id": "r-1",
    "spec_digest": SPEC_DIGEST,
    "final_response": DONE,
    "usage": {"input_tokens": 12, "output_tokens": 3, "tool_calls": 0, "cost": None},
    "provenance": {"provider_id": "p-1", "agent_id": "a-1", "supporting_event_ids": ["e-resolved"]},
}
REQUEST = {"request_id": "q-1", "blocking": True, "payload": {"type": "input", "prompt": [QUESTION]}}
HOST, PROVIDER, RECONCILED = Author.HOST, Author.PROVIDER, Author.RECONCILED

RUN: list[tuple[str, Author, str | None, dict[str, Any], str, str, str | None]] = [
    (
        "host-run-accepted-r-1",
        HOST,
        None,
        {"type": "run_accepted", "session_id": "s-1", "spec_digest": SPEC_DIGEST},
        "fe3ef0638073cc000fab31f9a56cd9f5dff691186e5c97d118346bcb25f96ab1",
        "c35724506f2912c4e12774e9d3c515317b0271d2a0d1725116b6e524e5cef550",
        None,
    ),
    (
        "e-started",
        PROVIDER,
        None,
        {"type": "run_started"},
        "45864c5a64d40fcfcda5968041316b4a440ec426f76c59d8aca79620d9ed4a56",
        "90d920a02bdcc88980ba2de6aa3e17dc3bd18414b6546bffb304cab143412ee2",
        None,
    ),
    (
        "e-req",
        PROVIDER,
        None,
        {"type": "request_opened", "request": REQUEST},
        "30fb9b98045735e5ab6064dadaf6f339ca8bf5731cb6a69ea2dc1227b30b36bc",
        "765431b46249f28b85b1b09eff1495d1b9016219e87f2901b8ddbf8f4468fea4",
        "ed288638d168ee2dff84d0ca73cd6b45b366189ecab6019806cbfc3469123b81",
    ),
    (
        "host-command-received-r-1-c-1",
        HOST,
        "c-1",
        {"type": "command_received", "command": COMMAND},
        "113acfc5a85e44d679342d9e8fd57eb277afc5aaac095ed73986faf8a3f87db8",
        "9d503a393237f74035cba4db93118593229988592412a0f16fa88c7cb191553b",
        None,
    ),
    (
        "provider-command-disposition-r-1-c-1",
        PROVIDER,
        "c-1",
        {"type": "command_disposition_recorded", "command_id": "c-1", "outcome": {"outcome": "accepted"}},
        "a6882d9c6fe5ae469bd868c82ad09d58f96d41f4a906f304d00d30289b52dc5a",
        "8e864ab1e8571f65bdad10e6ffdb387332e63d34cecc2ad9e799ca5a4eaa4835",
        None,
    ),
    (
        "e-resolved",
        PROVIDER,
        "c-1",
        {
            "type": "request_resolved",
            "request_id": "q-1",
            "resolution": ANSWER,
            "resolution_digest": ANSWER_DIGEST,
        },
        "73d6edc48563147b766bb0c3bcad8b65a4b044af8b95710fb2023f0ac448ad20",
        "fd541225d3502ea3da19656228cc2b0bf4168f321a4dfba72d4c17d1065ff7ee",
        None,
    ),
    (
        "host-continuity-lost-r-1-7",
        HOST,
        None,
        {"type": "continuity_lost", "last_confirmed_seq": 6, "reason": "stream ended"},
        "fbca29287565e42ea512db9aba0027e5249e4f7fae417fb16a9ede4d56a10cbd",
        "f6e4457b529468758cda92ea6c07aca0653438573f7b28f7657910c9410bfc69",
        "d7ed1e8192d02e70dace1ce07c5942f8c412a615d10e8348c5711906fde26534",
    ),
    (
        "host-continuity-restored-r-1-6",
        RECONCILED,
        None,
        {"type": "continuity_restored", "proof": PROOF, "reason": "prefix matched"},
        "4c26ab0a62fef4f6d984b95a2c63610bb826e889f1373a0dcd1045500c67945c",
        "6b80fc6ea4933540a32f9ca2bb74818738774c9da435a1d11670cfb1571f39c0",
        None,
    ),
    (
        "e-final",
        PROVIDER,
        None,
        {"type": "delivery_committed", "delivery": DELIVERY},
        "1136b214a2a3107e2f32e69fb593487848870e1b206903e1b69fbb2e20aa6db8",
        "f821e4b1f944bcbbf7c9b26f8d72b28c53267d0ecf152587ba7566ffb0aa42c0",
        "7b51df5a75cd6ee070148a394be3ce824e2851dca251ba9e884eb5cd6459bae0",
    ),
]
"""Event id, author, cause, payload, draft digest, event digest, and the projection digest of the view after it."""


def begun() -> Run:
    """The run of the sheet before its first event."""
    descriptor = seal_descriptor(DESCRIPTOR)
    request = AgentStartRequest(
        run=seal(SPEC), provider_binding="b-1", expected_descriptor_digest=descriptor.descriptor_digest
    )
    return begin(request, descriptor, AgentAdmission())


def test_one_run_of_the_wire_sheet() -> None:
    """Spec, descriptor, each event and each view of one run have the digests of `spec/wire.md` §21."""
    assert seal(SPEC).spec_digest == SPEC_DIGEST
    assert seal_descriptor(DESCRIPTOR).descriptor_digest == DESCRIPTOR_DIGEST
    run = begun()
    assert projection_digest(view(run)) == "b8e1700fd7780bceaaeec2c9a45ba6c2fe8385c316a12fb5aceea597bf8fae7e"
    drafts: list[str] = []
    for seq, (event_id, author, cause, payload, draft_digest, event_digest, projection) in enumerate(RUN, 1):
        draft = {"event_id": event_id, "run_id": "r-1", "causation_id": cause, "payload": payload}
        done = append_event(run, parse_value(AgentEventDraft, draft), author)
        run = done.run
        drafts.append(done.record.draft_digest)
        assert (done.record.draft_digest, done.record.event.event_digest) == (draft_digest, event_digest)
        assert done.record.event.run_seq == seq
        assert projection is None or projection_digest(view(run)) == projection
    snapshot = ":".join(["r-1:6", *(drafts[seq - 1] for seq in (2, 3, 5, 6))])
    assert sha256(snapshot.encode()) == "5f360377af5b38c3811b25db07671c56bc7d54dc4e760579b5319ebb74abf59c"


def test_other_values_of_the_wire_sheet() -> None:
    """A resolution, a stand-in snapshot, commands and a JSON value of every trap have the digests of the sheet."""
    answer = InputResolution(content=(text_content("staging"),))
    assert resolution_digest(answer) == ANSWER_DIGEST
    assert sha256(b"r-1:6") == PROOF["authoritative_snapshot_digest"]
    anchor = {"orchestral.dev/session-history-anchor": {"after_activity_id": "act-1"}}
    steer = seal_command("c-2", "r-1", Steer(content=(text_content("go on"),)), extensions=anchor)
    assert steer.command_digest == "1e6887f1839f9eac813fbb45d8bb77893cd64e30c6614ddfa5f292e4e6f659ec"
    cancel = seal_command("c-3", "r-1", Cancel(reason="stop"))
    assert cancel.command_digest == "c1d95eca0514215a58a8cd044a00cd981c7359023f36095007e1e4c7b2acdf3a"
    value = parse_json(
        '{"u64max":18446744073709551615,"p53p1":9007199254740993,"neg":-9007199254740993,"f":1.0,"e":1e21,'
        '"tiny":5e-324,"z":-0.0,"\\ufb33":1,"\\ud83d\\ude00":2,"a\\u007f":"\\u007f\\u2028\\u0001\\b/\\""}'
    )
    assert digest(value) == "5a37b550cf18fb2701a1c11741e2d8ac90dce9812aa15b0c39a913ce563cda0c"


BOUNDS = {
    **dump(ToolPolicyBounds()),
    "allowed_effects": ["external_side_effect", "process", "filesystem_read"],
    "approval": "not_required",
    "max_timeout_ms": 1000,
}


def echo_schema(key: str) -> dict[str, Any]:
    """An object with one required text."""
    properties = {key: {"type": "string"}}
    return {"type": "object", "required": [key], "properties": properties, "additionalProperties": False}


ECHO = parse_value(
    ToolDescriptor,
    {
        "tool_id": "test/echo",
        "model_schema": {"name": "echo", "description": "Echo", "input_schema": echo_schema("value")},
        "output_schema": echo_schema("result"),
        "effect_scopes": ["process"],
        "restriction": {"bounds": BOUNDS},
        "idempotency": "idempotent",
        "concurrency": "parallel_safe",
    },
)
HELLO_CALL = ToolInvocation(run_id="run-1", call_id="call-1", tool_id="test/echo", arguments={"value": "hello"})
OUTCOME = {"status": "completed", "output": {"kind": "inline", "value": {"result": "hello"}}}

EFFECT_JOURNAL = [
    (
        "50919a9a76b648d8dc17476548f31f904940531f7f7d31d5b4d2e1c3e344e5e4",
        "021ae8af235e824ff98ff86d1347a26d666d7579f516760bd896acdb502c3c93",
    ),
    (
        "a988e9659038e11fae5288fe38bcad69d5ea614b3b73cfc17d03e608ec2324bd",
        "db8e8819133526773bb93631d2336a33fe99b07a0f6e814732a73db79643dae7",
    ),
    (
        "8fc1c867ad1692a5b34a45c75584edc30414be4ceb86600062ccb796001389e9",
        "872c7f081b941c4bc5bcd4ccc470c7f57b47a3141a7f9aef1042918015cf0b8b",
    ),
    (
        "6e825efd3ac05b86b6a4a3681e7e6e11775a46ee865b2986066c26881b699537",
        "b090982d74913bab33b4879ce6907c2029cfb0b4bd2cc2a94c32b11d414ab01f",
    ),
]


def test_the_effect_journal_of_the_tools_sheet() -> None:
    """Bounds, descriptor and the journal of one call have the digests of `spec/tools.md` §22."""
    bounds = parse_value(ToolPolicyBounds, BOUNDS)
    assert digest(bounds) == "91e872eb63dc103a1394a1a87f6099b620ff11da3fdf5ef82c4b22265cdc4952"
    assert digest(ToolPolicyBounds()) == "cf9cb88fa56e11f85070bde006d7ec08a07d8c59036b7981da0f47edbdc34bd0"
    assert digest(ECHO) == "92f2552e729d4f3c060fbc7130d55a6a39f26c6745574643bf3e4cd3d38e0ff8"
    effect = PreparedToolEffect(
        invocation=HELLO_CALL,
        args_digest="5e99d76e946ff987af1402a9ef575fb4fbf3d2bc668d8be30ad48aac48cc3878",
        operation_digest="de8e48667efb84a0717ea2cafe74b189e44b85d1afa45bf64a882fd3f6cb0b95",
        permission_digest="43840087da71b811b7ae0d8960201203501b46488d5ece9c704d2c3bb781b5a5",
        policy_digest=digest(bounds),
        descriptor_digest=digest(ECHO),
        idempotency=ECHO.idempotency,
        effect_scopes=ECHO.effect_scopes,
    )
    key = effect_key(HELLO_CALL)
    payloads: tuple[dict[str, Any], ...] = (
        {"type": "prepared", "effect": dump(effect)},
        {"type": "invoked", "attempt_id": "attempt:run-1:call-1", "authorization": {"kind": "policy"}},
        {"type": "observed", "outcome": OUTCOME},
        {"type": "committed", "outcome_digest": "a087b07034b9235d116b8eecf40d1e6c4ef651240a571fdb249ec639b3102d70"},
    )
    journal: EffectJournal = ()
    for payload, expected in zip(payloads, EFFECT_JOURNAL, strict=True):
        draft = {"event_id": effect_event_id(key, payload["type"]), "key": dump(key), "payload": payload}
        done = append(journal, parse_value(ToolEffectEventDraft, draft), len(journal))
        journal = done.journal
        assert (done.record.draft_digest, done.record.event_digest) == expected
    assert replay(key, journal) == done.state


def package(kind: str, locator: str) -> skills.SkillPackage:
    """The package of the skills sheet from some source, sealed."""
    descriptor = {
        "protocol": "orchestral.skill/v1",
        "skill_id": "xlsx",
        "name": "xlsx",
        "description": "Spreadsheet workflow",
        "version": "1.0.0",
        "digest": "",
        "source": {"kind": kind, "locator": locator},
    }
    found = parse_value(skills.SkillPackage, {"descriptor": descriptor, "instructions": "calculate twice"})
    sealed = found.descriptor.model_copy(update={"digest": skills.package_digest(found)})
    return found.model_copy(update={"descriptor": sealed})


def test_values_of_the_skills_sheet() -> None:
    """Package, catalog and record have the digests of `spec/skills.md` §10."""
    built_in = package("built_in", "builtin:xlsx")
    assert built_in.descriptor.digest == "7d703323eec831644f3d3a46453d11cc825132b851bc6910302282d7c3ecf70e"
    elsewhere = package("workspace", "/skills/xlsx/SKILL.md").descriptor.digest
    assert elsewhere == "d18a469fa5fed3f487e6eb30d977b33fa911aeb0112b008fdb67862738500e8d"
    catalog = skills.seal_catalog("skills", (built_in.descriptor,))
    assert catalog.revision == "d0f919a3a15bc2638f80c3156d9e3aec9a6fd1bcfe93799eba3f868ae715481c"
    empty = skills.seal_catalog("skills", ())
    assert empty.revision == "4f53cda18c2baa0c0354bb5f9a3ecbe5ed12ab4d8e11ba873c2f11161202b945"
    draft = session.AgentSessionEventDraft(
        event_id="generic-run-1-skill-1-c1",
        session_id="session-1",
        run_id="run-1",
        payload=session.SkillLoaded(load=skills.SkillLoad(package=built_in)),
    )
    record = session.seal_session(draft, 1)
    assert record.draft_digest == "769fdca6c1e318e324b73fc0a0cba5ee1abe2f5d9d36aed1014ae4e770744965"
    assert record.event_digest == "6015fbafe9e05e16afac5adaf360fdf617faa3f48dd82828055f92d614764440"


@pytest.mark.parametrize(
    ("plan", "expected"),
    [
        (
            {
                "goal": "two echoes",
                "steps": [
                    {"id": "first", "action": "echo", "params": {"value": "one"}, "exports": ["result"]},
                    {
                        "id": "second",
                        "action": "echo",
                        "depends_on": ["first"],
                        "params": {"value": "{{first.result}}"},
                        "exports": ["result"],
                    },
                ],
            },
            "6eead4e871223c8be48c5800c3933130ee6a380b894bad29e32ead92c8d8d6ba",
        ),
        (
            {"goal": "g", "steps": [{"id": "a", "action": "echo", "params": None, "agent": "x"}], "notes": 1},
            "0404eae7ce9df786fbe13f3ab6a46d669e2f0e4c065228603bd73eb897484a08",
        ),
        (
            {"goal": "g", "steps": [{"id": "a", "action": "echo"}], "confidence": 0.9},
            "384caad75ba4e285b68d78dd28d2bc2d2e956c5c6a39240039fbbe1f6a57cbeb",
        ),
    ],
)
def test_plans_of_the_plans_sheet(plan: Any, expected: str) -> None:
    """Plans that need no normalisation have the digests of `spec/plans.md` §12."""
    assert digest(parse_value(plans.Plan, plan)) == expected


def test_step_calls_of_the_plans_sheet() -> None:
    """The call id of a step's first attempt is that of `spec/plans.md` §12."""
    plan = "6eead4e871223c8be48c5800c3933130ee6a380b894bad29e32ead92c8d8d6ba"
    for step, expected in (
        ("first", "9e0d879e02071e89f9677cafd90ab24c68dcb11023733507034d743114679c49"),
        ("second", "1fe5d6ded09ce0067dbe708ec9d88d99a985ca7b77d5c1f3ce9846fdd7d4ca9f"),
    ):
        assert plans.step_call_id("run-1", "workflow:run-1:call-1", plan, step, 1) == f"workflow-step:{expected}"


def test_values_of_the_mcp_sheet() -> None:
    """Tool and server have the digests of `spec/builtin-tools.md` §14; tools out of order are refused."""
    tool = {
        "server_id": "demo",
        "name": "left",
        "description": "left tool",
        "input_schema": {"type": "object"},
        "schema_digest": "bc3061d6c787f189cc36ed4ad8049258707971cfd27a359e71e38c5783250488",
    }
    server = {
        "protocol": "orchestral.mcp-tools/v1",
        "server_id": "demo",
        "transport": "stdio",
        "transport_binding_digest": sha256(b"stdio-binding"),
        "mcp_protocol_version": "2026-07-28",
        "mcp_protocol_era": "stateless",
        "tools": [tool],
        "revision": "c5ff57e09faa7bfa6691cad8142fc8eb5acf18660033cfd608a07c5805158148",
    }
    found = parse_value(mcp.McpServerSnapshot, server)
    validate(found)
    right = found.tools[0].model_copy(update={"name": "right"})
    right = right.model_copy(update={"schema_digest": mcp.tool_digest(right)})
    swapped = found.model_copy(update={"tools": (right, *found.tools)})
    swapped = swapped.model_copy(update={"revision": mcp.server_revision(swapped)})
    with pytest.raises(WordError) as refused:
        validate(swapped)
    assert refused.value.code is mcp.McpErrorCode.INVALID


def test_values_of_the_session_sheet() -> None:
    """Compaction policies and summariser settings have the digests of `spec/session-context.md` §15."""
    for minimum, keep, expected in (
        (8, 8, "1a7738b72c27a143cb823aba60be94199ec7b81d00a1a0564dc03465ed6ce289"),
        (32, 16, "d93077033f03f3431c9f6b8a917751584b4f5442ad175e23eea1d7d32daa8166"),
        (2, 1, "504212bd97f853a515b1218b7ed609e285b8fea2cd77ca3250664009b37963eb"),
    ):
        policy = SessionCompactionPolicy(minimum_source_records=minimum, keep_recent_records=keep)
        validate(policy)
        assert digest(policy) == expected


@pytest.mark.parametrize(
    "word",
    [
        SessionCompactionPolicy(minimum_source_records=0, keep_recent_records=1),
        SessionCompactionPolicy(minimum_source_records=1, keep_recent_records=0),
        SessionSummarizerDescriptor(strategy=" ", version="1", config_digest="a" * 64),
        SessionSummarizerDescriptor(strategy="s", version="1", model="", config_digest="a" * 64),
        SessionSummarizerDescriptor(strategy="s", version="1", config_digest="a"),
    ],
)
def test_what_cannot_compact_is_refused(word: Any) -> None:
    """A policy that keeps or takes nothing, and a summariser without a name, are refused."""
    with pytest.raises(WordError):
        validate(word)


def test_a_summariser_with_a_name_is_valid() -> None:
    """A descriptor with strategy, version and digest is enough."""
    validate(SessionSummarizerDescriptor(strategy="s", version="1", config_digest=exact_digest({})))
