"""THE GUARD: every ending of a tool call is an outcome (`runtime/tool_call`; E1, E2, F004, F046, F047)."""

import asyncio
import json
import threading
import time
from itertools import pairwise
from pathlib import Path

import pytest

from orchestral_temporal.core.limits import INLINE_RESULT_BYTES, MESSAGE_CHARACTERS
from orchestral_temporal.ports import ToolCall, ToolFailed, ToolRejected
from orchestral_temporal.protocol.digest import canonical
from orchestral_temporal.protocol.errors import WordError
from orchestral_temporal.protocol.tools import (
    ApprovalPolicy,
    Cancelled,
    Completed,
    Failed,
    InlineOutput,
    Rejected,
    ToolConcurrency,
    ToolIdempotency,
    ToolOutcome,
    UnknownEffect,
)
from orchestral_temporal.protocol.words import Json, JsonObject
from orchestral_temporal.runtime.tool_call import CallContext, GuardedCall, ToolGuard, interrupted
from orchestral_temporal.runtime.tool_outcomes import CallReport
from tests.contracts.probe import Probe, Work, completed, forever, invocation, raising, returning

CASES = Path(__file__).parents[1] / "cases"
SAFE = [ToolIdempotency.PURE, ToolIdempotency.IDEMPOTENT, ToolIdempotency.IDEMPOTENT_WITH_KEY]
SLACK = 1.0


async def invoke(tool: Probe, arguments: JsonObject | None = None) -> CallReport:
    """One call through a guard of its own."""
    return await ToolGuard([tool]).invoke(invocation(arguments), CallContext())


# -- before anything runs ------------------------------------------------------------------------------------------


async def test_a_call_runs_once_and_its_output_is_the_outcome() -> None:
    """What fits runs, once, and its output is the outcome and what is shown (E1)."""
    tool = Probe()
    assert await invoke(tool, {"a": 1}) == CallReport(completed({"a": 1}), completed({"a": 1}))
    assert tool.executions == 1


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"run_id": ""}, "invalid_invocation"),
        ({"call_id": " "}, "invalid_invocation"),
        ({"tool_id": ""}, "invalid_invocation"),
        ({"tool_id": "test/other"}, "tool_not_found"),
    ],
)
async def test_a_call_of_nothing_is_rejected(changes: dict[str, str], code: str) -> None:
    """Blank ids and unknown tools are rejected before anything else (E1)."""
    tool = Probe()
    report = await ToolGuard([tool]).invoke(invocation().model_copy(update=changes), CallContext())
    assert isinstance(report.outcome, Rejected)
    assert report.outcome.code == code
    assert report.shown == report.outcome
    assert tool.executions == 0


async def test_arguments_that_break_the_schema_are_rejected_at_their_path() -> None:
    """The arguments of F047 run once or not at all, and a rejection names the path (E1, F047)."""
    given = json.loads((CASES / "F047.json").read_text())
    for each in given["cases"]:
        tool = Probe(schema=given["schema"])
        outcome = (await invoke(tool, each["arguments"])).outcome
        if each["expect"].startswith("runs") or each["arguments"].get("limit") == 20:
            assert outcome == completed(each["arguments"])
            assert tool.executions == 1
        else:
            assert isinstance(outcome, Rejected)
            assert outcome.code == "input_schema_violation"
            assert outcome.message.startswith("The arguments do not fit the schema: $")
            assert tool.executions == 0


async def test_arguments_without_measure_are_rejected_at_once() -> None:
    """200,000 keys are rejected with the reason, in less than a second, and nothing runs (F046)."""
    tool = Probe(schema={"type": "object"})
    wide: JsonObject = {f"k{i}": 1 for i in range(200_000)}
    call = invocation(wide)
    started = time.perf_counter()
    outcome = (await ToolGuard([tool]).invoke(call, CallContext())).outcome
    assert time.perf_counter() - started < 1
    assert isinstance(outcome, Rejected)
    assert "50000 parts" in outcome.message
    assert tool.executions == 0


@pytest.mark.parametrize("approval", [ApprovalPolicy.REQUIRED, ApprovalPolicy.DENY])
async def test_a_tool_that_needs_a_person_does_not_run_without_one(approval: ApprovalPolicy) -> None:
    """Until approvals exist, a tool that asks for one is denied and never run."""
    tool = Probe(approval=approval)
    outcome = (await invoke(tool)).outcome
    assert isinstance(outcome, Rejected)
    assert outcome.code == "policy_denied"
    assert tool.executions == 0


def test_a_guard_refuses_tools_that_cannot_be_registered() -> None:
    """Registration fails by name, before any call (F052)."""
    with pytest.raises(WordError, match="'test/probe'"):
        ToolGuard([Probe(schema={"$ref": "#"})])


def test_the_tools_of_a_guard_are_ordered_by_id() -> None:
    """Tools are offered in the order of their ids, whatever order they were given in."""
    guard = ToolGuard([Probe(tool_id="test/b"), Probe(tool_id="test/a"), Probe(tool_id="Test/c")])
    assert [tool.descriptor.tool_id for tool in guard.tools] == ["Test/c", "test/a", "test/b"]


async def test_a_tool_gets_its_own_arguments() -> None:
    """A tool that changes its arguments changes nobody else's."""

    async def greedy(arguments: JsonObject, _call: ToolCall) -> object:
        arguments.clear()
        return None

    call = invocation({"a": [1]})
    tool = Probe(greedy, view=lambda arguments, _: dict(arguments))
    report = await ToolGuard([tool]).invoke(call, CallContext())
    assert call.arguments == {"a": [1]}
    assert report.shown == completed({"a": [1]})


# -- how a tool ends ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("idempotency", list(ToolIdempotency))
@pytest.mark.parametrize(
    ("work", "outcome"),
    [
        (raising(ToolRejected("no_such_city", "unknown")), Rejected(code="no_such_city", message="unknown")),
        (
            raising(ToolFailed("busy", "try later", retryable=True)),
            Failed(code="busy", message="try later", retryable=True),
        ),
        (
            raising(ValueError("no\udcff good")),
            Failed(code="tool_error", message="ValueError: no\ufffd good", retryable=False),
        ),
        (raising(KeyError()), Failed(code="tool_error", message="KeyError: no message", retryable=False)),
        (raising(SystemExit(3)), Failed(code="tool_error", message="SystemExit: 3", retryable=False)),
        (
            raising(ToolFailed(" ", " ")),
            Failed(code="tool_error", message="The tool gave no reason.", retryable=False),
        ),
        (
            raising(ToolRejected("", "")),
            Rejected(code="tool_rejected", message="The tool gave no reason."),
        ),
    ],
)
async def test_a_tool_that_refuses_fails_or_raises_gives_a_result(
    work: Work, outcome: ToolOutcome, idempotency: ToolIdempotency
) -> None:
    """What a tool says or raises is its answer, for every class of idempotency (E2)."""
    assert await invoke(Probe(work, idempotency=idempotency)) == CallReport(outcome, outcome)


async def test_a_message_is_cut_and_carries_no_traceback() -> None:
    """The text of an exception is kept to 500 characters."""
    outcome = (await invoke(Probe(raising(RuntimeError("x" * 10_000))))).outcome
    assert isinstance(outcome, Failed)
    assert len(outcome.message) == MESSAGE_CHARACTERS
    assert outcome.message.endswith("x…")


async def test_an_exception_that_cannot_say_what_it_is_gives_a_result() -> None:
    """Even a broken exception ends in an outcome."""

    class BrokenError(Exception):
        def __str__(self) -> str:
            raise RuntimeError("broken")

    outcome = (await invoke(Probe(raising(BrokenError())))).outcome
    assert outcome == Failed(code="tool_error", message="BrokenError: no message", retryable=False)


@pytest.mark.parametrize("idempotency", SAFE)
async def test_a_timeout_of_a_repeatable_tool_is_a_failure(idempotency: ToolIdempotency) -> None:
    """A tool that may run twice fails with `timeout`, not retryable (E2, F004)."""
    outcome = (await invoke(Probe(forever, idempotency=idempotency, timeout_ms=20))).outcome
    assert outcome == Failed(code="timeout", message="The tool did not answer within 20 ms.", retryable=False)


async def test_a_timeout_of_a_non_idempotent_tool_is_an_unknown_effect() -> None:
    """Nobody knows what a tool did that must not run twice and did not answer (E4, F004)."""
    report = await invoke(Probe(forever, idempotency=ToolIdempotency.NON_IDEMPOTENT, timeout_ms=20))
    assert isinstance(report.outcome, UnknownEffect)
    assert report.outcome.message == ("The tool did not answer within 20 ms. Whether it took effect is not known.")


@pytest.mark.parametrize("timeout_ms", [None, 60_000])
async def test_a_tool_ends_with_the_time_of_its_call(timeout_ms: int | None) -> None:
    """Also a tool without a bound, or with a later one, is ended at the deadline of its call (decision 15)."""
    deadline = asyncio.get_running_loop().time() + 0.05
    tool = Probe(forever, timeout_ms=timeout_ms)
    outcome = (await ToolGuard([tool]).invoke(invocation(), CallContext(deadline=deadline))).outcome
    assert isinstance(outcome, Failed)
    assert outcome.code == "timeout"
    assert outcome.message.endswith(" ms.")


async def test_a_tool_that_has_no_time_left_does_not_begin() -> None:
    """A call that has waited past its deadline for its turn is rejected, and nothing runs."""
    tool = Probe(idempotency=ToolIdempotency.NON_IDEMPOTENT)
    deadline = asyncio.get_running_loop().time()
    outcome = (await ToolGuard([tool]).invoke(invocation(), CallContext(deadline=deadline))).outcome
    assert isinstance(outcome, Rejected)
    assert outcome.code == "not_started"
    assert tool.executions == 0


async def test_a_tool_that_ignores_its_deadline_is_left_behind() -> None:
    """The call ends at the deadline and the grace, told and not waited for; what comes later changes nothing (F004)."""
    told, release, gone = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def stubborn(_arguments: JsonObject, call: ToolCall) -> object:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                assert call.should_yield()
                told.set()
        gone.set()
        return "late"

    started = time.perf_counter()
    outcome = (await invoke(Probe(stubborn, timeout_ms=20))).outcome
    assert 0.25 <= time.perf_counter() - started < 0.27 + SLACK
    assert isinstance(outcome, Failed)
    assert told.is_set()
    release.set()
    await gone.wait()


async def test_an_answer_after_the_deadline_is_dropped() -> None:
    """Within the grace a tool may end, and still the timeout stands."""

    async def late(_arguments: JsonObject, _call: ToolCall) -> object:
        try:
            await asyncio.Event().wait()
        finally:
            return "late"  # noqa: B012 -- a tool that swallows its cancel

    outcome = (await invoke(Probe(late, timeout_ms=20))).outcome
    assert isinstance(outcome, Failed)
    assert outcome.code == "timeout"


@pytest.mark.parametrize(
    ("idempotency", "kind"),
    [*((each, Cancelled) for each in SAFE), (ToolIdempotency.NON_IDEMPOTENT, UnknownEffect)],
)
async def test_a_tool_that_cancels_itself_is_judged_by_its_class(
    idempotency: ToolIdempotency, kind: type[ToolOutcome]
) -> None:
    """A tool's own cancel is `Cancelled` where that is certain, else an unknown effect (`spec/tools.md` §11)."""
    outcome = (await invoke(Probe(raising(asyncio.CancelledError()), idempotency=idempotency))).outcome
    assert isinstance(outcome, kind)


async def test_a_cancel_from_outside_tells_the_tool_and_waits_for_its_grace() -> None:
    """The caller's cancel propagates after the grace, though the tool goes on (`spec/tools.md` §11)."""
    at_work, told, release, gone = (asyncio.Event() for _ in range(4))
    calls: list[ToolCall] = []

    async def stubborn(_arguments: JsonObject, call: ToolCall) -> object:
        calls.append(call)
        at_work.set()
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                told.set()
        gone.set()
        return "late"

    task = asyncio.create_task(invoke(Probe(stubborn)))
    await at_work.wait()
    assert not calls[0].should_yield()
    started = time.perf_counter()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert 0.25 <= time.perf_counter() - started < 0.25 + SLACK
    assert calls[0].should_yield()
    await told.wait()
    release.set()
    await gone.wait()


@pytest.mark.parametrize(
    ("idempotency", "kind"),
    [*((each, Cancelled) for each in SAFE), (ToolIdempotency.NON_IDEMPOTENT, UnknownEffect)],
)
def test_an_interrupted_call_is_judged_by_its_class(idempotency: ToolIdempotency, kind: type[ToolOutcome]) -> None:
    """The cancel of a run leaves `Cancelled` where that is certain, else an unknown effect (`spec/tools.md` §11)."""
    guard = ToolGuard([Probe(idempotency=idempotency)])
    assert isinstance(interrupted(guard, invocation(), fenced=True), kind)
    assert interrupted(guard, invocation(), fenced=False) == Cancelled()
    assert interrupted(guard, invocation(tool_id="test/none"), fenced=True) == Cancelled()


async def test_a_global_serial_tool_has_one_call_at_a_time() -> None:
    """Calls of a `global_serial` tool wait for each other, those of a `parallel_safe` one do not (E7)."""

    async def most_at_once(concurrency: ToolConcurrency) -> int:
        at_once, most = 0, 0

        async def counting(_arguments: JsonObject, _call: ToolCall) -> object:
            nonlocal at_once, most
            at_once += 1
            most = max(most, at_once)
            for _ in range(20):
                await asyncio.sleep(0)
            at_once -= 1
            return None

        both = asyncio.Barrier(2)

        async def meeting(_arguments: JsonObject, _call: ToolCall) -> object:
            await both.wait()
            return None

        serial = concurrency is ToolConcurrency.GLOBAL_SERIAL
        guard = ToolGuard([Probe(counting if serial else meeting, concurrency=concurrency)])
        reports = await asyncio.gather(*(guard.invoke(invocation(), CallContext()) for _ in range(2)))
        assert all(isinstance(report.outcome, Completed) for report in reports)
        return most if serial else 2

    assert await most_at_once(ToolConcurrency.GLOBAL_SERIAL) == 1
    assert await most_at_once(ToolConcurrency.PARALLEL_SAFE) == 2


# -- what a tool returned -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tool", "code", "sentence"),
    [
        (Probe(returning({"a": {1}})), "output_serialization_failed", "$.a is of type set"),
        (Probe(returning([float("nan")])), "output_serialization_failed", "$[0] is nan"),
        (Probe(output_schema={"required": ["b"]}), "output_schema_violation", '$ lacks the required property "b"'),
        (Probe(max_output_bytes=6), "output_limit_exceeded", "has 7 bytes, 6 are allowed"),
        (
            Probe(view=lambda _, output: output["x"]),
            "model_output_serialization_failed",
            "The tool's view failed: 'x'",
        ),
        (
            Probe(view=lambda _, __: float("inf")),
            "model_output_serialization_failed",
            "$ is inf",
        ),
    ],
)
async def test_an_output_that_cannot_be_taken_is_a_failure(tool: Probe, code: str, sentence: str) -> None:
    """Output that is not JSON, breaks its schema or its bound, or cannot be shown fails, not retryable (§12)."""
    outcome = (await invoke(tool, {"a": 1})).outcome
    assert isinstance(outcome, Failed)
    assert (outcome.code, outcome.retryable) == (code, False)
    assert sentence in outcome.message


async def test_an_output_at_its_bound_fits() -> None:
    """Equal to `max_output_bytes` is not above it, and an output schema lets through what fits it."""
    tool = Probe(max_output_bytes=7, output_schema={"required": ["a"]})
    assert (await invoke(tool, {"a": 1})).outcome == completed({"a": 1})


async def test_a_result_nested_without_measure_is_a_failure() -> None:
    """A result nested 5,000 deep fails with the reason, in less than a second (F046)."""
    deep: Json = []
    for _ in range(5_000):
        deep = [deep]
    started = time.perf_counter()
    outcome = (await invoke(Probe(returning(deep)))).outcome
    assert time.perf_counter() - started < 1
    assert isinstance(outcome, Failed)
    assert "below 100 containers" in outcome.message


async def test_text_that_is_not_unicode_is_replaced_and_said() -> None:
    """A lone surrogate becomes U+FFFD in outcome and view, and a note says so (F044)."""
    text = b"\xff\xfe\x00A".decode(errors="surrogateescape")
    report = await invoke(Probe(returning({"text": text})))
    assert report.outcome == report.shown == completed({"text": "\ufffd\ufffd\x00A"})
    assert report.notes == ("2 characters of the output were not Unicode and became U+FFFD.",)


async def test_a_view_is_shown_in_place_of_the_output() -> None:
    """The model sees the tool's view, the journal keeps the output (`spec/tools.md` §15)."""
    report = await invoke(Probe(view=lambda arguments, output: {"seen": [arguments, output]}), {"a": 1})
    assert report.outcome == completed({"a": 1})
    assert report.shown == completed({"seen": [{"a": 1}, {"a": 1}]})


async def test_a_result_above_the_inline_cap_is_cut_and_says_so() -> None:
    """Until there are artifacts a large result is cut to valid JSON below the cap, output and view each on its own."""
    report = await invoke(Probe(returning("x" * 300_000), view=lambda _, output: str(output)[:3]))
    assert isinstance(report.outcome, Completed)
    assert isinstance(report.outcome.output, InlineOutput)
    cut = report.outcome.output.value
    assert isinstance(cut, dict)
    assert (cut["truncated"], cut["original_bytes"]) == (True, 300_002)
    assert len(canonical(cut)) <= INLINE_RESULT_BYTES
    assert report.shown == completed("xxx")
    assert report.notes == ("A result of 300002 bytes was cut to its beginning.",)


async def test_a_huge_result_does_not_hold_up_the_event_loop() -> None:
    """50 MB of text end in a cut result within seconds, and heartbeats go on meanwhile."""
    beats: list[float] = []

    async def beat() -> None:
        while True:
            beats.append(time.perf_counter())
            await asyncio.sleep(0.01)

    heart = asyncio.create_task(beat())
    report = await invoke(Probe(returning({"text": "x" * 50_000_000})))
    heart.cancel()
    gaps = [later - earlier for earlier, later in pairwise(beats)]
    assert isinstance(report.outcome, Completed)
    assert max(gaps, default=0) < 1


# -- what a running tool knows ---------------------------------------------------------------------------------------


async def test_a_running_tool_knows_its_call() -> None:
    """Key, folders and bounds of the call reach the tool."""
    seen: list[ToolCall] = []

    async def look(_arguments: JsonObject, call: ToolCall) -> object:
        seen.append(call)
        return call.should_yield()

    guard = ToolGuard([Probe(look, timeout_ms=1_500, max_output_bytes=99)])
    context = CallContext(workspaces=("/w",), readable_roots=("/w", "/r"), yield_wanted=lambda: True)
    assert (await guard.invoke(invocation(), context)).outcome == completed(value=True)
    [call] = seen
    assert (call.run_id, call.idempotency_key) == ("run-1", "run-1/m1/c1")
    assert (call.workspaces, call.readable_roots) == (("/w",), ("/w", "/r"))
    assert call.max_output_bytes == 99
    assert call.timeout is not None
    assert call.timeout.total_seconds() == 1.5


async def test_progress_reaches_the_watcher_on_the_event_loop() -> None:
    """Progress from any thread arrives on the loop of the caller while the call lasts, and nowhere after it."""
    heard: list[tuple[str, float | None, bool]] = []
    both = asyncio.Event()

    def hear(message: str, fraction: float | None) -> None:
        heard.append((message, fraction, threading.current_thread() is threading.main_thread()))
        if len(heard) == 2:
            both.set()

    calls: list[ToolCall] = []

    async def work(_arguments: JsonObject, call: ToolCall) -> object:
        calls.append(call)
        call.report_progress("half", 0.5)
        await asyncio.to_thread(call.report_progress, "more")
        await both.wait()
        return None

    await ToolGuard([Probe(work)]).invoke(invocation(), CallContext(on_progress=hear))
    calls[0].report_progress("too late")
    await asyncio.sleep(0)
    assert heard == [("half", 0.5, True), ("more", None, True)]


async def test_progress_nobody_listens_to_is_fine() -> None:
    """Without a watcher progress goes nowhere."""

    async def work(_arguments: JsonObject, call: ToolCall) -> object:
        call.report_progress("working")
        await asyncio.sleep(0)
        return "done"

    assert (await invoke(Probe(work))).outcome == completed("done")


def test_progress_after_the_worker_has_gone_is_fine() -> None:
    """A thread that outlives the event loop may still report."""

    async def call() -> GuardedCall:
        return GuardedCall(invocation(), Probe().descriptor, CallContext())

    asyncio.run(call()).report_progress("anybody?")
