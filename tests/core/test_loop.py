"""The agent loop as a pure function (`spec/agent-loop.md`)."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestral_temporal.core.calls import bounded
from orchestral_temporal.core.inputs import (
    BatchAppended,
    BatchRefused,
    Bound,
    CommandArrived,
    Input,
    ModelFailed,
    PayloadRefused,
    SessionReady,
    TimeReached,
    ToolBroken,
    ToolObserved,
)
from orchestral_temporal.core.limits import (
    ARGUMENT_BYTES,
    ATTEMPTS_PER_ROUND,
    COMMANDS_PER_RUN,
    COMMANDS_RESERVED,
    REFUSALS_KEPT,
    SESSION_BATCH_BYTES,
    TAIL_BYTES,
)
from orchestral_temporal.core.loop import advance, begin
from orchestral_temporal.core.result import journal_head, refused_result, result
from orchestral_temporal.core.start import StartRefused, read_start
from orchestral_temporal.core.state import (
    AppendSession,
    CallModel,
    CancelModelCall,
    CancelToolCall,
    Ended,
    InvokeTool,
    RunState,
    ToolsOpen,
)
from orchestral_temporal.protocol.activities import SessionAppended, SessionOpened, ToolObservation
from orchestral_temporal.protocol.commands import Cancel, Steer, seal_command
from orchestral_temporal.protocol.content import text_content
from orchestral_temporal.protocol.errors import AgentRejection, AgentRejectionCode
from orchestral_temporal.protocol.limits import RunLimits
from orchestral_temporal.protocol.model import (
    ModelError,
    ModelErrorCode,
    ModelFinishReason,
    ModelObservation,
    ModelUsage,
)
from orchestral_temporal.protocol.run import (
    AgentRunSpec,
    BindingRequirement,
    ResourceBinding,
    ResourceBindingMode,
    ResourceRef,
    seal,
)
from orchestral_temporal.protocol.tools import (
    Cancelled,
    Failed,
    Rejected,
    ToolConcurrency,
    ToolIdempotency,
    UnknownEffect,
)
from orchestral_temporal.protocol.words import dump, parse, to_json
from tests.core.loop_world import (
    BINDING,
    NOW,
    RUN,
    THERE,
    World,
    answered,
    binding,
    called,
    finished,
    model_failed,
    model_lost,
    model_part,
    observed,
    run_part,
    said,
    start,
    tool,
    tool_lost,
    tools_part,
    world,
)

ECHO = ("echo", '{"value":"x"}')


def cancel(command_id: str = "c1", reason: str = "enough") -> CommandArrived:
    """A cancel as it arrives."""
    return CommandArrived(seal_command(command_id, RUN, Cancel(reason=reason)))


def echo(_effect: InvokeTool) -> ToolObserved:
    """Every call answers the same."""
    return answered({"result": "x"})


def failure(made: World) -> tuple[str, bool]:
    """Code and retryable of a failed run."""
    value = result(made.state)["failure"]
    assert isinstance(value, dict)
    return str(value["code"]), bool(value["retryable"])


def test_a_text_answer_is_delivered_with_four_events() -> None:
    """A text answer makes a delivery of exactly four events, and the WAL beside it (A1)."""
    made = world()
    made.bring(said("Hello"))
    assert made.events == ["run_accepted", "run_started", "output_committed", "delivery_committed"]
    assert made.wal == [
        "loop_boundary_committed",
        "provider_events_committed",
        "model_attempt_started",
        "model_attempt_observed",
        "provider_events_committed",
    ]
    value = result(made.state)
    assert (value["status"], value["text"], value["usage"]) == ("delivered", "Hello", None)
    assert made.state.session is not None
    assert made.state.session.closed


def test_forty_tool_rounds_need_forty_one_model_rounds() -> None:
    """Without limits a run goes on as long as it is useful (A5)."""
    made = world()
    made.play([*[called(ECHO)] * 40, said("done")], echo)
    rounds = [effect.attempt.round for effect in made.effects if isinstance(effect, CallModel)]
    assert rounds == list(range(1, 42))
    usage = result(made.state)["usage"]
    assert isinstance(usage, dict)
    assert usage["tool_calls"] == 40


def test_each_attempt_names_its_context_and_carries_only_what_is_new() -> None:
    """A round adds its own items to the manifest, and their texts only while they are short (decision 6)."""
    made = world()
    first = made.last
    assert isinstance(first, CallModel)
    assert (first.attempt.base, len(first.attempt.add), len(first.attempt.tail)) == (None, 2, 2)
    made.bring(called(ECHO))
    made.bring(answered("short"))
    second = made.last
    assert isinstance(second, CallModel)
    assert second.attempt.base == first.attempt.context
    assert (len(second.attempt.add), len(second.attempt.tail)) == (2, 2)
    made.bring(called(ECHO))
    made.bring(answered("x" * TAIL_BYTES))
    third = made.last
    assert isinstance(third, CallModel)
    assert (len(third.attempt.add), third.attempt.tail) == (2, ())


def test_a_refused_call_always_rides_along() -> None:
    """A result that the run wrote itself stands in no activity, so it goes along however long the rest is."""
    made = world()
    made.bring(called(ECHO, ("nobody", "{}")))
    made.bring(answered("x" * TAIL_BYTES))
    effect = made.last
    assert isinstance(effect, CallModel)
    assert [item.kind for item in effect.attempt.tail] == ["result"]


@pytest.mark.parametrize(("ceiling", "asked"), [(3, None), (None, 3), (3, 9), (9, 3)])
def test_a_model_step_limit_stops_at_its_boundary(ceiling: int | None, asked: int | None) -> None:
    """Three model steps are three rounds and two tool calls, whoever set the limit (F4)."""
    limits = {"max_model_steps": asked} if asked else {}
    made = world(start(limits=limits), binding(run=run_part(max_model_steps=ceiling)))
    made.play([called(ECHO)] * 5, echo)
    assert sum(isinstance(effect, CallModel) for effect in made.effects) == 3
    assert sum(isinstance(effect, InvokeTool) for effect in made.effects) == 2
    assert result(made.state)["reason"] == {"type": "limit_reached", "limit": "model_steps"}


def test_a_tool_call_limit_stops_at_its_boundary() -> None:
    """Three tool calls are three calls and four rounds; the text said so far is a partial delivery (F5)."""
    made = world(start(limits={"max_tool_calls": 3}))
    made.play([called(ECHO, text="thinking")] * 5, echo)
    assert sum(isinstance(effect, CallModel) for effect in made.effects) == 4
    assert sum(isinstance(effect, InvokeTool) for effect in made.effects) == 3
    value = result(made.state)
    assert (value["status"], value["text"]) == ("incomplete", "thinking")
    assert value["reason"] == {"type": "limit_reached", "limit": "tool_calls"}


def test_an_agents_default_limit_counts_where_the_run_has_none() -> None:
    """`run_limits` are a run's default, `limits` the ceiling (`answers.md` 12)."""
    made = world(None, binding(run=run_part(run_limits=RunLimits(max_model_steps=1))))
    made.play([called(ECHO)] * 3, echo)
    assert result(made.state)["reason"] == {"type": "limit_reached", "limit": "model_steps"}


def test_a_step_limit_that_was_passed_is_seen_before_the_next_round() -> None:
    """A round beyond the ceiling never opens (P0)."""
    made = world(None, binding(run=run_part(max_model_steps=0)))
    assert not any(isinstance(effect, CallModel) for effect in made.effects)
    assert result(made.state)["reason"] == {"type": "limit_reached", "limit": "model_steps"}


@pytest.mark.parametrize(
    ("turn", "code", "retryable"),
    [
        (said("", reason=ModelFinishReason.STOP), "model_incomplete", False),
        (said("", reason=ModelFinishReason.TOOL_CALLS), "model_incomplete", False),
        (said("x", reason=ModelFinishReason.CONTENT_FILTER), "model_incomplete", False),
        (said("x", reason=ModelFinishReason.OTHER), "model_incomplete", False),
        (said("x", reason=ModelFinishReason.CANCELLED), "unexpected_model_cancellation", True),
        (called(ECHO, ended=False), "model_protocol", False),
        (called(("orchestral_request_input", "{}")), "input_requests_disabled", False),
        (called(("skill_read", "{}")), "skill_catalog_unavailable", False),
        (said("x", usage=ModelUsage(output_tokens=1_001)), "model_output_usage_exceeded_reservation", False),
        (model_failed(ModelErrorCode.UNAVAILABLE, generated=True), "model_unavailable", True),
    ],
)  # fmt: skip
def test_a_turn_that_is_no_answer_fails_the_run(turn: Input, code: str, retryable: bool) -> None:
    """Each row of the sheet's table that is a failure has its code (`spec/agent-loop.md` §8)."""
    made = world()
    made.bring(turn)
    assert failure(made) == (code, retryable)
    assert made.events[-1] == "run_failed"


def test_a_cut_answer_is_incomplete_and_keeps_its_text() -> None:
    """`length` is the output limit; calls are dropped, the text is a partial delivery (§8)."""
    made = world()
    made.bring(said("half an ans", reason=ModelFinishReason.LENGTH))
    value = result(made.state)
    assert (value["status"], value["text"]) == ("incomplete", "half an ans")
    assert value["reason"] == {"type": "limit_reached", "limit": "output_tokens"}


def test_continuation_alone_is_no_answer() -> None:
    """A turn with nothing to show fails, though its continuation is kept in the observation (§8)."""
    made = world()
    made.bring(
        finished(
            ModelObservation(finish_reason=ModelFinishReason.STOP, response="", continuation={"vendor/state": {"n": 1}})
        )
    )
    assert failure(made) == ("model_incomplete", False)


def test_usage_is_summed_and_an_unknown_part_stays_unknown() -> None:
    """Absent plus x is x; the report names only what is known (§7)."""
    made = world()
    made.bring(called(ECHO, usage=ModelUsage(input_tokens=10, output_tokens=None)))
    made.bring(answered("x"))
    made.bring(said("done", usage=ModelUsage(input_tokens=5, output_tokens=2)))
    assert result(made.state)["usage"] == {"input_tokens": 15, "output_tokens": 2, "tool_calls": 1, "cost": None}


@pytest.mark.parametrize("outcome", [Failed(code="timeout", message="late", retryable=False),
                                     Rejected(code="input_schema_violation", message="no"), Cancelled()])  # fmt: skip
def test_a_tool_that_fails_is_told_to_the_model(outcome: Failed | Rejected | Cancelled) -> None:
    """Failed, rejected and cancelled tools become error results and the run goes on (E2)."""
    made = world()
    made.bring(called(ECHO))
    made.bring(observed(outcome))
    effect = made.last
    assert isinstance(effect, CallModel)
    part = effect.attempt.tail[-1]
    assert part.kind == "result"
    assert part.part.is_error
    assert isinstance(part.part.result, dict)
    assert part.part.result["status"] == outcome.status


@pytest.mark.parametrize(
    "text", ['{"path": "a.txt",}', "null", '["a"]', '"a"', "{'a': 1}", '{"a":1}{"b":2}', "```x```"]
)
def test_arguments_that_are_no_object_are_refused_and_quoted(text: str) -> None:
    """None is repaired or run; the exchange carries valid JSON in their place (F055)."""
    made = world()
    made.bring(called(("echo", text)))
    effect = made.last
    assert isinstance(effect, CallModel)
    call, refused = effect.attempt.tail[-2:]
    assert call.kind == "message"
    assert call.message.content[0].type == "tool_call"
    assert call.message.content[0].arguments == {"unreadable_arguments": text}
    assert refused.kind == "result"
    assert isinstance(refused.part.result, dict)
    assert refused.part.result["code"] == "invalid_tool_arguments"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"a":' * 101 + "1" + "}" * 101, "nests deeper"),
        ("{" + ",".join(f'"k{n}":1' for n in range(50_001)) + "}", "more than 65536 bytes"),
        ("[" * 5_000 + "]" * 5_000, "nests deeper"),
    ],
)
def test_arguments_beyond_the_bounds_are_refused(text: str, why: str) -> None:
    """Depth and size are reasons the model is told, and what is kept of the text is short (F046)."""
    made = world()
    turn = called(("echo", text))
    bound = bounded(turn.result.observation)
    assert len(bound.tool_calls[0].arguments) <= ARGUMENT_BYTES
    made.bring(finished(bound))
    effect = made.last
    assert isinstance(effect, CallModel)
    refused = effect.attempt.tail[-1]
    assert refused.kind == "result"
    assert why in str(refused.part.result)


def test_blank_arguments_are_an_empty_object() -> None:
    """A model that leaves the arguments out calls without any (§8)."""
    made = world()
    made.bring(called(("echo", "  \n")))
    effect = made.last
    assert isinstance(effect, InvokeTool)
    assert effect.request.arguments == {}


def test_an_unknown_tool_is_refused_by_listing_the_known_ones() -> None:
    """Only the exact name runs; the answer lists what exists, and the call is counted (F056)."""
    made = world(None, binding(tools=tools_part(tool("notes_append"), tool("notes_read"))))
    made.bring(called(("Notes_Append", "{}")))
    effect = made.last
    assert isinstance(effect, CallModel)
    refused = effect.attempt.tail[-1]
    assert refused.kind == "result"
    assert isinstance(refused.part.result, dict)
    assert refused.part.result["code"] == "tool_not_found"
    assert "notes_append, notes_read" in str(refused.part.result["message"])
    assert made.state.tool_calls == 1


def test_the_fourth_unreadable_turn_in_a_row_fails_the_run() -> None:
    """Three bad turns are answered, a good one between them starts the count anew (divergence 5)."""
    made = world()
    for turn in ("{", "{", "{"):
        made.bring(called(("echo", turn)))
    made.bring(called(ECHO))
    made.bring(answered("x"))
    for turn in ("{", "{", "{", "{"):
        made.bring(called(("echo", turn)))
    assert failure(made) == ("invalid_tool_arguments", False)


def test_a_turn_of_too_many_calls_fails_the_run() -> None:
    """Their arguments wait in the state and one activation must judge them all, so their number is bounded."""
    made = world()
    made.bring(called(*[ECHO] * 129))
    assert failure(made) == ("model_protocol", False)


def test_strict_calls_fail_at_the_first_unreadable_turn() -> None:
    """`strict_calls` restores the source (divergence 5)."""
    made = world(None, binding(run=run_part(strict_calls=True)))
    made.bring(called(("nobody", "{}")))
    assert failure(made) == ("tool_not_found", False)


def test_calls_run_in_order_and_the_exchange_names_them_all() -> None:
    """Results reach the model in call order, whoever answered them."""
    made = world()
    made.bring(called(ECHO, ("nobody", "{}"), ECHO))
    made.bring(answered(1))
    made.bring(answered(3))
    effect = made.last
    assert isinstance(effect, CallModel)
    results = [item.part.result for item in effect.attempt.tail if item.kind == "result"]
    assert results[0] == 1
    assert results[2] == 3
    records = [each for each in made.state.session.pending if each.type == "tool_exchange_committed"]  # type: ignore[union-attr]
    assert len(records[0].items) == 4


def test_an_unknown_effect_ends_the_run_and_is_remembered() -> None:
    """Nobody guesses: the run fails and the session says so for ever (E3)."""
    made = world()
    made.bring(called(ECHO))
    made.bring(observed(UnknownEffect(message="the worker died")))
    assert failure(made) == ("tool_unknown_effect", False)
    batch = next(effect.batch for effect in made.effects if isinstance(effect, AppendSession))
    assert batch.records[-1].type == "effect_uncertainty_committed"
    assert batch.records[-1].uncertainty is not None
    assert batch.records[-1].uncertainty.effect_call_id == f"{RUN}/m1/c1"


@pytest.mark.parametrize("abandoned", [True, False])
@pytest.mark.parametrize("kind", [ToolIdempotency.PURE, ToolIdempotency.IDEMPOTENT_WITH_KEY])
def test_a_lost_call_that_may_run_again_does_so_under_the_same_key(kind: ToolIdempotency, abandoned: bool) -> None:
    """A second attempt is on record; only a proven loss is a loss of continuity (decision 16, I4)."""
    made = world(None, binding(tools=tools_part(tool("echo", kind))))
    made.bring(called(ECHO))
    made.bring(tool_lost(abandoned=abandoned))
    effect = made.last
    assert isinstance(effect, InvokeTool)
    assert (effect.request.attempt, effect.request.invocation_id) == (2, f"{RUN}/m1/c1")
    lost = ["continuity_lost", "continuity_restored"]
    assert made.events[2:] == ([] if abandoned else lost)
    made.bring(answered("x"))
    made.bring(said("done"))
    assert made.status == "delivered"


def test_a_lost_call_with_effects_is_an_unknown_effect() -> None:
    """At most once: a call that may have had its effect never runs again (E4)."""
    made = world(None, binding(tools=tools_part(tool("echo", ToolIdempotency.NON_IDEMPOTENT))))
    made.bring(called(ECHO))
    made.bring(tool_lost(abandoned=True))
    assert failure(made) == ("tool_unknown_effect", False)


@pytest.mark.parametrize("redispatchable", [True, False])
@pytest.mark.parametrize("abandoned", [True, False])
def test_a_lost_attempt_is_sent_again_if_its_backend_allows(redispatchable: bool, abandoned: bool) -> None:
    """A redispatchable or abandoned attempt goes out again on record, any other ends the run interrupted (I2)."""
    made = world(None, binding(model=model_part(redispatchable=redispatchable)))
    first = made.last
    assert isinstance(first, CallModel)
    made.bring(model_lost(abandoned=abandoned))
    if not redispatchable and not abandoned:
        assert result(made.state)["reason"] == {"type": "interrupted", "reason": "gone"}
        assert made.events[-1] == "run_incomplete"
        return
    again = made.last
    assert isinstance(again, CallModel)
    assert (again.attempt.attempt, again.attempt.request_id) == (2, first.attempt.request_id)
    assert (again.attempt.base, again.attempt.add) == (first.attempt.context, ())
    assert again.attempt.context == first.attempt.context
    assert ("continuity_lost" in made.events) is not abandoned
    made.bring(said("done"))
    assert made.status == "delivered"


@pytest.mark.parametrize("kind", [ToolIdempotency.PURE, ToolIdempotency.NON_IDEMPOTENT])
def test_a_worker_that_breaks_around_a_call_is_on_record(kind: ToolIdempotency) -> None:
    """The model is told; where an effect is possible nobody guesses (E4)."""
    made = world(None, binding(tools=tools_part(tool("echo", kind))))
    made.bring(called(ECHO))
    made.bring(ToolBroken(*THERE, "KeyError: 'x'", fenced=True))
    if kind is ToolIdempotency.NON_IDEMPOTENT:
        assert failure(made) == ("tool_unknown_effect", False)
    else:
        effect = made.last
        assert isinstance(effect, CallModel)
        assert "tool_internal" in str(effect.attempt.tail[-1])


def test_a_request_that_ends_every_worker_ends_itself() -> None:
    """A redispatchable attempt is not sent for ever (decision 18)."""
    made = world()
    for _ in range(ATTEMPTS_PER_ROUND):
        assert made.status == "running"
        made.bring(model_lost(abandoned=False))
    assert result(made.state)["reason"] == {"type": "interrupted", "reason": "gone"}


def test_a_blank_error_still_ends_the_run() -> None:
    """What a backend leaves blank is said for it: a failure's message is never blank."""
    made = world()
    error = ModelError(code=ModelErrorCode.INTERNAL, message=" ", retryable=False)
    made.bring(ModelFailed(*NOW, "model_internal", error, generated=False))
    assert failure(made) == ("model_internal", False)


def test_a_globally_serial_tool_waits_without_a_clock() -> None:
    """Calls that wait for one another inside the worker must not run out of time while nothing runs."""
    descriptor = tool("echo").descriptor.model_copy(update={"concurrency": ToolConcurrency.GLOBAL_SERIAL})
    serial = tool("echo").model_copy(update={"descriptor": descriptor})
    made = world(None, binding(tools=tools_part(serial)))
    made.bring(called(ECHO))
    effect = made.last
    assert isinstance(effect, InvokeTool)
    assert effect.timeout_ms is None


def test_a_context_over_the_window_is_never_sent() -> None:
    """The overflow check runs on headers alone and names what it needs (G1's first form)."""
    part = model_part(max_context_tokens=2_000)
    made = world(start("x" * 9_000), binding(model=part))
    assert failure(made) == ("context_overflow", False)
    assert not any(isinstance(effect, CallModel) for effect in made.effects)


def test_the_smaller_window_counts() -> None:
    """A backend's own window below the configured one is obeyed."""
    capabilities = model_part().descriptor.capabilities.model_copy(update={"max_context_tokens": 1_500})
    descriptor = model_part().descriptor.model_copy(update={"capabilities": capabilities})
    made = world(start("x" * 3_000), binding(model=model_part(descriptor=descriptor)))
    assert failure(made) == ("context_overflow", False)


def test_no_instructions_means_no_system_message() -> None:
    """Blank instructions make no section (`spec/agent-loop.md` §2)."""
    made = world(None, binding(run=run_part(instructions="  ")))
    effect = made.last
    assert isinstance(effect, CallModel)
    assert len(effect.attempt.add) == 1


def test_cancel_ends_an_open_attempt_at_once() -> None:
    """The command is on record before the stop, the stop before the terminal (C5)."""
    made = world()
    made.bring(cancel())
    assert made.events[2:] == ["command_received", "command_disposition_recorded", "stop_requested", "run_cancelled"]
    assert made.wal[-3:] == ["command_committed", "provider_events_committed", "provider_events_committed"]
    assert any(isinstance(effect, CancelModelCall) for effect in made.effects)
    assert result(made.state)["reason"] == "enough"
    made.bring(said("too late"))
    assert made.status == "cancelled"


@pytest.mark.parametrize(
    "ending",
    [answered("x"), observed(UnknownEffect(message="?")), tool_lost(abandoned=True), tool_lost(abandoned=False)],
)
@pytest.mark.parametrize("kind", [ToolIdempotency.PURE, ToolIdempotency.NON_IDEMPOTENT])
def test_cancel_waits_for_a_running_tool(ending: Input, kind: ToolIdempotency) -> None:
    """What the tool did is heard before the run ends; the second cancel is refused (C5, E4)."""
    made = world(None, binding(tools=tools_part(tool("echo", kind))))
    made.bring(called(ECHO, ECHO))
    made.bring(cancel())
    assert any(isinstance(effect, CancelToolCall) for effect in made.effects)
    made.bring(cancel("c2"))
    made.bring(ending)
    assert made.events[-2:] == ["stop_requested", "run_cancelled"]
    acks = result(made.state)["acks"]
    assert isinstance(acks, list)
    assert [ack["state"]["state"] for ack in acks if isinstance(ack, dict)] == ["applied", "rejected"]  # type: ignore[index,call-overload]


def test_cancel_before_the_run_is_ready_does_not_wait() -> None:
    """A cancel does not wait for the other parts, and frees the session when that is open (`answers.md` 4)."""
    made = world(None, binding(model=None, tools=None), ready=False)
    made.bring(cancel())
    assert made.status == "cancelled"
    made.bring(SessionReady(SessionOpened()))
    assert made.state.session is not None
    assert made.state.session.closed
    made.bring(Bound(binding(run=None)))
    assert made.status == "cancelled"


def test_parts_may_come_one_by_one() -> None:
    """The first round opens when the last part has come (decision 22)."""
    made = world(None, binding(model=None, tools=None))
    made.bring(Bound(binding(run=None, tools=None)))
    assert made.effects == []
    made.bring(Bound(binding(run=None, model=None)))
    assert isinstance(made.last, CallModel)


def test_a_repeated_command_changes_nothing_and_another_content_is_refused() -> None:
    """Idempotent on id and digest; the same id with other content stands as refused in the view (C1)."""
    made = world(None, binding(tools=tools_part(tool("echo", ToolIdempotency.NON_IDEMPOTENT))))
    made.bring(called(ECHO))
    made.bring(cancel())
    before = made.state.run
    made.bring(cancel())
    assert made.state.run == before
    made.bring(cancel(reason="another reason"))
    assert made.state.run == before
    assert made.state.refusals[-1].reason.startswith("duplicate_conflict")


def test_a_command_to_an_ended_run_is_refused() -> None:
    """Nothing follows the terminal (`spec/reducer.md` §10)."""
    made = world()
    made.bring(said("done"))
    events = len(made.events)
    made.bring(cancel())
    assert len(made.events) == events
    assert made.state.refusals[-1].reason.startswith("terminal_run")


def test_a_run_takes_a_bounded_number_of_commands() -> None:
    """Beyond the bound a command is refused in the view (decision 11)."""
    made = world()
    made.state = made.state.model_copy(update={"commands": COMMANDS_PER_RUN + 2 * COMMANDS_RESERVED})
    made.bring(cancel())
    assert made.status == "running"
    assert "at most" in made.state.refusals[-1].reason


def test_refused_payloads_are_kept_up_to_a_bound() -> None:
    """The newest refusals stand in the view, cut to a bound (F134)."""
    made = world()
    for number in range(REFUSALS_KEPT + 5):
        made.bring(PayloadRefused("x" * 200, f"reason {number} " + "y" * 1_000))
    assert len(made.state.refusals) == REFUSALS_KEPT
    assert made.state.refusals[-1].reason.startswith(f"reason {REFUSALS_KEPT + 4}")
    assert len(made.state.refusals[-1].reason) == 500
    assert len(made.state.refusals[-1].name) == 80


def test_session_records_are_handed_over_in_batches() -> None:
    """A batch goes out when enough waits; what comes meanwhile waits for its answer (decision 2)."""
    made = world()
    for _ in range(2):
        made.only(called(ECHO))
        made.only(answered("x" * (SESSION_BATCH_BYTES // 4)))
    batches = [effect.batch for effect in made.effects if isinstance(effect, AppendSession)]
    assert batches == []
    made.only(called(ECHO))
    made.only(answered("x" * SESSION_BATCH_BYTES))
    made.only(called(ECHO))
    made.only(answered("x" * SESSION_BATCH_BYTES))
    batches = [effect.batch for effect in made.effects if isinstance(effect, AppendSession)]
    assert [(batch.number, batch.first_seq, len(batch.records)) for batch in batches] == [(1, 1, 4)]
    made.only(said("done"))
    made.only(BatchAppended(1, SessionAppended(head="a", last_seq=4)))
    batches = [effect.batch for effect in made.effects if isinstance(effect, AppendSession)]
    assert [(batch.number, batch.expected_head, batch.first_seq, batch.close) for batch in batches[1:]] == [
        (2, "a", 5, True)
    ]
    made.only(BatchAppended(2, SessionAppended(head="b", last_seq=6)))
    assert made.state.session is not None
    assert made.state.session.closed
    closed = made.state
    made.only(BatchAppended(2, SessionAppended(head="c", last_seq=7)))
    assert made.state == closed


def test_a_session_that_refuses_a_batch_fails_the_run_or_leaves_its_end() -> None:
    """A run that goes on fails `session_journal`; one that has ended keeps its terminal (K14)."""
    made = world()
    made.only(called(ECHO))
    made.only(answered("x" * SESSION_BATCH_BYTES))
    made.only(BatchRefused(1, "another run came between"))
    assert failure(made) == ("session_journal", True)
    assert made.state.session is not None
    assert made.state.session.closed
    done = world()
    done.only(said("done"))
    done.only(BatchRefused(1, "too late"))
    done.only(BatchRefused(1, "again"))
    assert (done.status, done.state.session.closed if done.state.session else None) == ("delivered", True)


def test_earlier_records_of_a_session_are_said_to_be_left_out() -> None:
    """Provenance claims only what the request holds (B1)."""
    made = world(ready=False)
    made.bring(SessionReady(SessionOpened(head="h", last_seq=7)))
    effect = made.last
    assert isinstance(effect, CallModel)
    trace = effect.attempt.trace
    assert trace.through_session_seq == 8
    assert [(each.first_session_seq, each.last_session_seq) for each in trace.included_ranges] == [(8, 8)]
    assert [(each.first_session_seq, each.last_session_seq) for each in trace.deferred_ranges] == [(1, 7)]


def test_a_start_for_another_agent_or_version_is_refused() -> None:
    """The full form names its descriptor; another one creates nothing (`spec/agent-loop.md` §3)."""
    part = run_part()
    right = start()
    for changes in ({"provider_binding": "temporal:default/other"}, {"expected_descriptor_digest": "0" * 64}):
        with pytest.raises(StartRefused) as refused:
            begin(right.model_copy(update=changes), part, binding())
        assert refused.value.rejection.code is AgentRejectionCode.RUN_ID_CONFLICT
    named = {"provider_binding": BINDING, "expected_descriptor_digest": part.descriptor.descriptor_digest}
    assert begin(right.model_copy(update=named), part, binding()).events[0].event.payload.type == "run_accepted"


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"limits": {"deadline_unix_ms": 1}}, AgentRejectionCode.UNSUPPORTED_CAPABILITY),
        ({"limits": {"max_model_steps": 0}}, AgentRejectionCode.INVALID_SPEC),
        (
            {"input": [{"media_type": "application/json", "schema_id": None, "body": {"kind": "inline", "value": 1}}]},
            AgentRejectionCode.INVALID_SPEC,
        ),
        (
            {"input": [{"media_type": "image/png", "schema_id": None, "body": {"kind": "inline", "value": "x"}}]},
            AgentRejectionCode.UNSUPPORTED_CAPABILITY,
        ),
    ],
)
def test_a_start_beyond_the_agents_capabilities_is_refused(fields: dict, code: AgentRejectionCode) -> None:  # type: ignore[type-arg]
    """Only declared limits and plain text are taken; the refusal creates nothing (`answers.md` 7)."""
    given = read_start({"input": "x", **fields}, RUN)
    with pytest.raises(StartRefused) as refused:
        begin(given, run_part(), binding())
    assert refused.value.rejection.code is code


def test_an_optional_resource_is_skipped_on_record() -> None:
    """A full form with an optional resource that nobody serves runs without it (`spec/agent-loop.md` §15)."""
    envelope = dump(start().envelope)
    spec = parse(AgentRunSpec, to_json(start().envelope.spec))
    binding_of = ResourceBinding(
        binding_id="notes",
        resource=ResourceRef(kind="notes/v1", id="n", revision="1"),
        requirement=BindingRequirement.OPTIONAL,
        mode=ResourceBindingMode.SNAPSHOT,
    )
    sealed = dump(seal(spec.model_copy(update={"resources": (binding_of,)})))
    assert sealed != envelope
    made = world(read_start(sealed, RUN))
    made.bring(said("done"))
    assert made.events[:3] == ["run_accepted", "resource_binding_skipped", "run_started"]
    assert made.status == "delivered"


def test_acknowledgements_in_a_result_are_bounded() -> None:
    """The newest ones stay; all of them are in the journal (decision 28)."""
    made = world()
    for number in range(600):
        steer = seal_command(f"s{number}" + "x" * 250, RUN, Steer(content=(text_content("go"),)))
        made.bring(CommandArrived(steer))
    acks = result(made.state)["acks"]
    assert isinstance(acks, list)
    assert 0 < len(acks) < 600
    assert "s599" in str(acks[-1])


def test_the_state_is_one_json_value() -> None:
    """A run's state survives being written and read, as continue-as-new will do it."""
    made = world()
    made.bring(called(ECHO, ("nobody", "{")))
    assert isinstance(made.state.phase, ToolsOpen)
    assert parse(RunState, to_json(made.state)) == made.state


def test_a_large_result_gives_up_its_journal_then_its_view() -> None:
    """The result fits one payload whatever the answer's size (decision 28)."""
    small, middle, large = world(), world(), world()
    small.bring(said("x" * 1_000))
    middle.bring(said("x" * 200_000))
    large.bring(said("x" * 400_000))
    assert result(small.state)["journal"] is not None
    assert (result(middle.state)["journal"], result(middle.state)["view"] is None) == (None, False)
    assert (result(large.state)["journal"], result(large.state)["view"]) == (None, None)


def test_a_refused_start_has_a_result_object_too() -> None:
    """All keys of the result object are there, and the failure is the rejection."""
    rejection = AgentRejection(code=AgentRejectionCode.INVALID_SPEC, message="no", retryable=False)
    value = refused_result(rejection, RUN)
    made = world()
    made.bring(said("x"))
    assert value.keys() == result(made.state).keys()
    assert (value["status"], value["failure"]) == ("failed", rejection.model_dump(mode="json"))


def test_the_heads_chain_covers_every_event() -> None:
    """Another journal has another head; an empty one has none (divergence 21)."""
    made = world()
    made.bring(said("x"))
    records = made.state.run.records
    assert journal_head(()) is None
    assert len({journal_head(records[:count]) for count in range(5)}) == 5


INPUTS = st.sampled_from(
    [
        said("text"),
        said(""),
        said("cut", reason=ModelFinishReason.LENGTH),
        called(ECHO),
        called(ECHO, ("nobody", "{}"), ("echo", "[")),
        called(("skill_read", "{}")),
        model_failed(ModelErrorCode.INTERNAL),
        model_failed(ModelErrorCode.RATE_LIMITED),
        model_failed(ModelErrorCode.CONTEXT_LENGTH_EXCEEDED),
        model_lost(abandoned=True),
        model_lost(abandoned=False),
        TimeReached("retry/1/1"),
        answered("x"),
        observed(UnknownEffect(message="x")),
        tool_lost(abandoned=True),
        tool_lost(abandoned=False),
        tool_lost(abandoned=False, fenced=False),
        tool_lost(abandoned=False, stored="3" * 64),
        cancel(),
        cancel("c2"),
        cancel(reason="other"),
        PayloadRefused("x", "y"),
        Bound(binding()),
        Bound(binding(run=None, tools=None)),
        SessionReady(SessionOpened()),
        BatchAppended(1, SessionAppended(head="h", last_seq=1)),
        BatchRefused(1, "x"),
        ToolBroken(*THERE, "x", fenced=True),
        CommandArrived(seal_command("s1", RUN, Steer(content=(text_content("go"),)))),
    ]
)


@given(inputs=st.lists(INPUTS, max_size=30), whole=st.booleans())
@settings(max_examples=150, deadline=None)
def test_advance_is_total(inputs: list[Input], whole: bool) -> None:
    """Every state has an answer to every input: no gap in the numbers, one terminal, and replay gives the same."""
    bound = binding() if whole else binding(model=None, tools=None)
    made = world(None, bound, ready=False)
    first = made.state
    for each in inputs:
        made.only(each)
    numbers = [record.event.run_seq for record in made.state.run.records]
    assert numbers == list(range(1, len(numbers) + 1))
    terminals = {"delivery_committed", "run_incomplete", "run_failed", "run_cancelled"}
    ends = [name for name in made.events if name in terminals]
    assert len(ends) == (1 if isinstance(made.state.phase, Ended) else 0)
    assert not ends or made.events[-1] == ends[0]
    again = first
    for each in made.given:
        again = advance(again, each).state
    assert again == made.state


def test_a_measured_item_is_taken_as_it_is() -> None:
    """The worker's own measure of a result is kept, so that both sides name it alike."""
    made = world()
    made.bring(called(ECHO))
    effect = made.last
    assert isinstance(effect, InvokeTool)
    item = made.state.headers[-1].model_copy(update={"digest": "2" * 64})
    outcome = answered("x").observation.outcome
    made.bring(ToolObserved(*THERE, ToolObservation(outcome=outcome, item=item)))
    assert made.state.headers[-1].digest == "2" * 64


def test_a_session_is_opened_once() -> None:
    """A second answer to the opening changes nothing."""
    made = world()
    before = made.state
    made.bring(SessionReady(SessionOpened(head="h", last_seq=7)))
    assert made.state == before


def test_a_timer_that_nobody_waits_for_changes_nothing() -> None:
    """A timer of a round that is over fires into another phase."""
    made = world()
    made.bring(said("done"))
    before = made.state
    made.bring(TimeReached("retry/1/1"))
    assert made.state == before
