"""Python functions as tools (`adapters/tools/functions`, `api`; F043, F044, F047, F053, F110)."""

import asyncio
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType

import pytest

from orchestral_temporal import api
from orchestral_temporal.adapters.tools.functions import FunctionTool, function_tool, load_function
from orchestral_temporal.protocol.errors import WordError
from orchestral_temporal.protocol.tools import (
    ApprovalPolicy,
    Completed,
    EffectScope,
    Failed,
    InlineOutput,
    Rejected,
    ToolConcurrency,
    ToolIdempotency,
    ToolInvocation,
    ToolOutcome,
    UnknownEffect,
)
from orchestral_temporal.protocol.words import Json, JsonObject
from orchestral_temporal.runtime.agents import AgentPlan, host
from orchestral_temporal.runtime.tool_call import CallContext, ToolGuard


@pytest.fixture
def user_tools(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The user's module, importable by its name as in a user's project."""
    monkeypatch.syspath_prepend(Path(__file__).parent)
    return __import__("user_tools")


async def invoke(tool: FunctionTool | Callable[..., object], arguments: JsonObject | None = None) -> ToolOutcome:
    """One call of a function through the guard."""
    made = tool if isinstance(tool, FunctionTool) else function_tool(tool)
    call = ToolInvocation(
        run_id="run-1", call_id="run-1/m1/c1", tool_id=made.descriptor.tool_id, arguments=arguments or {}
    )
    return (await ToolGuard([made]).invoke(call, CallContext())).outcome


async def result(tool: FunctionTool | Callable[..., object], arguments: JsonObject | None = None) -> Json:
    """The output of a call that completes."""
    outcome = await invoke(tool, arguments)
    assert isinstance(outcome, Completed), outcome
    assert isinstance(outcome.output, InlineOutput)
    return outcome.output.value


# -- what a function declares ----------------------------------------------------------------------------------------


def test_a_plain_function_is_non_idempotent_and_needs_no_approval(user_tools: ModuleType) -> None:
    """Without a mark a function gets the careful class, its own name and docstring, and no approval."""
    descriptor = function_tool(user_tools.keep).descriptor
    assert descriptor.tool_id == "python/user_tools/keep/v1"
    assert descriptor.model_schema.name == "keep"
    assert descriptor.model_schema.description == "Keep what was given."
    assert descriptor.idempotency is ToolIdempotency.NON_IDEMPOTENT
    assert descriptor.concurrency is ToolConcurrency.PER_RUN_SERIAL
    assert descriptor.effect_scopes == (EffectScope.EXTERNAL_SIDE_EFFECT,)
    assert descriptor.restriction.bounds.approval is ApprovalPolicy.NOT_REQUIRED
    assert descriptor.restriction.bounds.max_timeout_ms is None
    assert descriptor.output_schema == {}


def test_a_marked_function_declares_its_options(user_tools: ModuleType) -> None:
    """What `tool` says of a function stands in its descriptor, and the running call is not in the schema."""
    tool = load_function("python:user_tools:send_mail")
    descriptor = tool.descriptor
    assert descriptor.tool_id == "python/user_tools/send_mail/v1"
    assert (descriptor.model_schema.name, descriptor.model_schema.description) == ("send", "Send a mail.")
    assert descriptor.idempotency is ToolIdempotency.IDEMPOTENT_WITH_KEY
    assert descriptor.concurrency is ToolConcurrency.GLOBAL_SERIAL
    assert descriptor.restriction.bounds.approval is ApprovalPolicy.REQUIRED
    assert descriptor.restriction.bounds.max_timeout_ms == 30_000
    assert descriptor.model_schema.input_schema == {
        "type": "object",
        "properties": {
            "to": {"type": "string"},
            "copies": {"type": "integer", "minimum": 1, "default": 1, "description": "How many."},
        },
        "required": ["to"],
        "additionalProperties": False,
    }
    assert tool.view_contract == "orchestral.model-output/identity/v1"
    assert tool.view({}, [1]) == [1]
    assert user_tools.send_mail.__name__ == "send_mail"


def test_a_pure_function_touches_nothing() -> None:
    """Only a pure function declares no effect."""

    @api.tool(idempotency="pure")
    def one() -> int:
        return 1

    assert function_tool(one).descriptor.effect_scopes == ()
    assert function_tool(one).descriptor.model_schema.description == "The Python function one."


def test_definitions_of_a_schema_are_kept(user_tools: ModuleType) -> None:
    """A recursive model keeps its `$defs` in the schema that a model is sent (F049)."""
    schema = function_tool(user_tools.keep).descriptor.model_schema.input_schema
    assert schema["$defs"]["Node"]["properties"]["children"]["items"] == {"$ref": "#/$defs/Node"}


@pytest.mark.usefixtures("user_tools")
@pytest.mark.parametrize(
    ("reference", "sentence"),
    [
        ("user_tools:keep", "is not written as python:module:function"),
        ("python:user_tools", "is not written as python:module:function"),
        ("python::keep", "is not written as python:module:function"),
        ("python:no_such_tools:keep", "names a module that is not there; is its folder on PYTHONPATH?"),
        ("python:user_tools.deeper:keep", "names a module that is not there"),
        ("python:user_tools:kep", "names 'kep', which 'user_tools' does not have"),
        ("python:user_tools:not_a_function", "is not a Python function"),
        ("python:user_tools:Nobody", "is not a Python function"),
        ("python:user_tools:generator", "it yields; return one value"),
        ("python:user_tools:async_generator", "it yields; return one value"),
        ("python:user_tools:no_hint", "its parameter 'a' has no type hint"),
        ("python:user_tools:unknown_hint", "its type hints cannot be read (name 'Missing' is not defined)"),
        ("python:user_tools:no_schema", "a type hint has no JSON form"),
        ("python:user_tools:many", "its parameter 'args' cannot be given by name"),
        ("python:user_tools:positional", "its parameter 'a' cannot be given by name"),
        ("python:broken_tools:any", "cannot be imported: ZeroDivisionError: division by zero"),
        ("python:lacking_tools:any", "No module named 'not_installed'; install what its module needs"),
    ],
)
def test_a_function_that_cannot_be_a_tool_is_refused_in_one_sentence(
    reference: str, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reference or function that will not do is refused with what to change."""
    (tmp_path / "broken_tools.py").write_text("1 / 0\n")
    (tmp_path / "lacking_tools.py").write_text("import not_installed\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(WordError) as refused:
        load_function(reference)
    assert refused.value.code == "invalid_descriptor"
    assert sentence in refused.value.message
    assert "\n" not in refused.value.message


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"idempotency": "sometimes"}, "`idempotency` is 'sometimes'; use one of pure, idempotent"),
        ({"approval": "maybe"}, "`approval` is 'maybe'; use one of never, ask, deny"),
        ({"concurrency": "wild"}, "`concurrency` is 'wild'; use one of parallel_safe"),
        ({"timeout": timedelta()}, "`timeout` is 0:00:00; give at least a millisecond"),
    ],
)
def test_an_option_that_does_not_exist_is_refused(options: dict[str, object], sentence: str) -> None:
    """A wrong option fails where it is written, and the sentence lists the right ones."""
    with pytest.raises(ValueError, match="`") as refused:
        api.tool(**options)
    assert sentence in str(refused.value)


def test_an_agent_is_a_frozen_declaration(user_tools: ModuleType) -> None:
    """An agent keeps copies of what it was given, and refuses a blank name."""
    tools = [user_tools.keep]
    approval: dict[str, api.Approval] = {"keep": "ask"}
    policy = api.Policy(workspaces=["."], approval=approval)
    agent = api.Agent(name="support", model=None, tools=tools, policy=policy)
    tools.clear()
    approval.clear()
    assert agent.tools == (user_tools.keep,)
    assert agent.policy.workspaces == (".",)
    assert agent.policy.approval == {"keep": "ask"}
    assert agent.limits == agent.run_limits == api.RunLimits()
    with pytest.raises(ValueError, match="`name` is blank"):
        api.Agent(name=" ", model=None)


# -- what a function is given ------------------------------------------------------------------------------------------


async def test_arguments_arrive_as_declared(user_tools: ModuleType) -> None:
    """Subclasses, generics, unions by tag, datetimes and enums arrive as their types (F110)."""
    arguments: JsonObject = {
        "dog": {"name": "Rex", "barks": True},
        "pets": {"items": [{"kind": "cat", "name": "Tom"}, {"kind": "dog", "name": "Rex", "barks": False}]},
        "at": "2024-02-29T12:30:00Z",
        "priority": "high",
        "unique": [3, 1],
        "node": {"value": 1, "children": [{"value": 2}]},
    }
    assert await result(user_tools.keep, arguments) == "Cat"
    dog, pets, at, priority, unique, node = user_tools.SEEN
    assert isinstance(dog, user_tools.Dog)
    assert isinstance(dog, user_tools.Animal)
    assert [type(each) for each in pets.items] == [user_tools.Cat, user_tools.Dog]
    assert at == datetime(2024, 2, 29, 12, 30, tzinfo=UTC)
    assert priority is user_tools.Priority.HIGH
    assert unique == frozenset({1, 3})
    assert isinstance(node.children[0], user_tools.Node)


async def test_a_value_that_is_none_of_its_type_is_rejected(user_tools: ModuleType) -> None:
    """What passes the schema but not the type is rejected at its path, and nothing runs (F110)."""
    user_tools.SEEN.clear()
    outcome = await invoke(
        user_tools.keep,
        {
            "dog": {"name": "Rex", "barks": True},
            "pets": {"items": []},
            "at": "the 31st of June",
            "priority": "low",
            "unique": [],
        },
    )
    assert isinstance(outcome, Rejected)
    assert outcome.code == "input_schema_violation"
    assert outcome.message.startswith("The argument $.at is refused: Input should be a valid datetime")
    assert user_tools.SEEN == []


async def test_a_value_that_breaks_the_schema_is_rejected(user_tools: ModuleType) -> None:
    """The schema is judged first, and nothing is coerced (F047)."""
    for arguments in ({"q": "x", "limit": "20"}, {"q": "x", "limit": True}, {"q": None}, {}, {"q": "x", "extra": 1}):
        outcome = await invoke(user_tools.search, arguments)
        assert isinstance(outcome, Rejected)
        assert outcome.code == "input_schema_violation"


@pytest.mark.parametrize(
    ("arguments", "seen"),
    [
        ({"q": "x"}, ["x", 20, "not given"]),
        ({"q": "", "cursor": None}, ["", 20, None]),
        ({"q": "x", "limit": 20.0}, ["x", 20, "not given"]),
    ],
)
async def test_what_is_not_given_is_left_to_the_function(
    arguments: JsonObject, seen: Json, user_tools: ModuleType
) -> None:
    """Defaults are the function's own, so "not given" can be told from null (F047)."""
    assert await result(user_tools.search, arguments) == seen


async def test_open_objects_reach_the_function_unchanged(user_tools: ModuleType) -> None:
    """Extra keys arrive where the type allows them and are rejected where it does not (F053)."""
    arguments: JsonObject = {"labels": {"env": "prod", "team": "x"}, "anything": {"any": [1, None]}}
    assert await result(user_tools.labelled, arguments) == [arguments["labels"], arguments["anything"]]
    outcome = await invoke(user_tools.labelled, {"labels": {"env": 1}, "anything": {}})
    assert isinstance(outcome, Rejected)
    assert "$.labels.env must be string, not integer" in outcome.message


async def test_any_parameter_name_will_do(user_tools: ModuleType) -> None:
    """Names that pydantic uses itself are names like any other."""
    arguments: JsonObject = {"schema": 1, "copy": 2, "json": 3, "model_config": 4, "_id": 5}
    assert await result(user_tools.shadows, arguments) == 15


async def test_the_running_call_is_injected() -> None:
    """A parameter hinted as `ToolCall` gets the call, whatever its name."""

    async def key(running: api.ToolCall) -> str:
        return running.idempotency_key

    assert await result(key) == "run-1/m1/c1"


async def test_a_method_is_a_function() -> None:
    """A bound method may be a tool; its object is not a parameter."""

    class Shop:
        def price(self, item: str) -> str:
            """Say the price."""
            return f"{item}: 3"

    tool = function_tool(Shop().price)
    assert tool.descriptor.model_schema.input_schema["required"] == ["item"]
    assert await result(tool, {"item": "tea"}) == "tea: 3"


# -- what a function returns ------------------------------------------------------------------------------------------


async def test_each_type_has_one_form(user_tools: ModuleType) -> None:
    """Every documented type has its one JSON form, the same each time (F043, F044)."""
    once, again = await result(user_tools.every_form), await result(user_tools.every_form)
    assert once == again
    assert once == {
        "aware": "2024-02-29T12:30:00+00:00",
        "naive": "2024-02-29T12:30:00.000005",
        "date": "2024-02-29",
        "time": "12:30:00",
        "timedelta": "P1DT2H0.005S",
        "decimal": "19.90",
        "uuid": "12345678-1234-5678-1234-567812345678",
        "path": "a/b",
        "enum": "high",
        "int_enum": 1,
        "set": [1, 2, 3],
        "mixed_set": ["a", 1, [2, "b"]],
        "frozenset": ["a", "b"],
        "tuple": [1, [2.5, None]],
        "dataclass": {"x": 1, "label": "low"},
        "model": {"name": "Rex", "kind": "dog", "barks": True},
        "root": [1, 2],
        "mapping": {"low": 1, "7": True},
        "bytes": {"media_type": "application/octet-stream", "base64": "//4AQQ=="},
        "bytearray": {"media_type": "application/octet-stream", "base64": "QQ=="},
        "memoryview": {"media_type": "application/octet-stream", "base64": "QQ=="},
        "text": "t",
        "number": 0.5,
        "plain": [True, 1, 1.5, "ü"],
    }


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        ("object", "The output at $.a[1] is of type Nobody, which has no JSON form"),
        ("secret", "The output at $ is of type SecretStr, which has no JSON form"),
        ("float_key", "The output at $.a has a key of type float"),
        ("bool_key", "The output at $ has a key of type bool"),
        ("same_key", "The output at $ has two keys that are both written '1'"),
        ("loop", "The output at $ nests deeper than 127 containers"),
        ("nan", "The output at $[0] is nan, which JSON does not have"),
        ("huge_integer", "The output at $ is an integer of more than 64 bits"),
        ("wide", "The output at $ is of type range, which has no JSON form"),
    ],
)
async def test_a_value_without_a_form_fails_at_its_path(kind: str, sentence: str, user_tools: ModuleType) -> None:
    """What has no JSON form fails with the path of the value (F043)."""
    outcome = await invoke(user_tools.no_form, {"kind": kind})
    assert isinstance(outcome, Failed)
    assert (outcome.code, outcome.retryable) == ("output_serialization_failed", False)
    assert outcome.message.startswith(sentence)


async def test_a_huge_container_fails_at_once(user_tools: ModuleType) -> None:
    """More items than the guard takes are not even written."""
    outcome = await invoke(user_tools.huge)
    assert isinstance(outcome, Failed)
    assert outcome.code == "output_limit_exceeded"


async def test_escaped_text_is_replaced(user_tools: ModuleType) -> None:
    """Text with lone surrogates becomes Unicode text and the run goes on (F044)."""
    assert await result(user_tools.surrogates) == "\ufffd\ufffd\x00A"


# -- where a function runs --------------------------------------------------------------------------------------------


async def test_a_synchronous_function_has_a_thread_of_its_own() -> None:
    """Two blocking functions run side by side, off the event loop, and a hanging one ends at its deadline (F004)."""
    both = threading.Barrier(2)
    never = threading.Event()

    def meet() -> str:
        both.wait()
        return threading.current_thread().name

    @api.tool(timeout=timedelta(milliseconds=20))
    def hang() -> None:
        never.wait()

    names = await asyncio.gather(result(meet), result(meet))
    assert names == ["orchestral-tool"] * 2
    started = time.perf_counter()
    assert isinstance(await invoke(hang), UnknownEffect)
    assert time.perf_counter() - started < 1.3
    never.set()


async def test_asynchronous_functions_share_the_event_loop_of_user_code() -> None:
    """Async functions run on one loop of their own, and one that blocks it does not block ours."""
    mine = asyncio.get_running_loop()

    async def where() -> list[object]:
        return [threading.current_thread().name, asyncio.get_running_loop() is mine]

    blocked, release = threading.Event(), threading.Event()

    async def block() -> str:
        blocked.set()
        release.wait()
        return "done"

    assert await result(where) == ["orchestral-user-tools", False]
    task = asyncio.create_task(result(block))
    await asyncio.to_thread(blocked.wait)
    release.set()
    assert await task == "done"


async def test_a_cancel_reaches_an_asynchronous_function() -> None:
    """At its deadline an async function is cancelled where it waits (F004)."""
    cancelled = threading.Event()

    @api.tool(idempotency="pure", timeout=timedelta(milliseconds=20))
    async def wait(call: api.ToolCall) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            if call.should_yield():
                cancelled.set()

    outcome = await invoke(wait)
    assert isinstance(outcome, Failed)
    assert outcome.code == "timeout"
    assert await asyncio.to_thread(cancelled.wait, 5)


@pytest.mark.parametrize("function", ["leave", "leave_later"])
@pytest.mark.parametrize(
    ("how", "words"), [("exit", "SystemExit"), ("interrupt", "KeyboardInterrupt"), ("stop", "StopIteration")]
)
async def test_a_function_cannot_end_more_than_its_call(
    function: str, how: str, words: str, user_tools: ModuleType
) -> None:
    """Exit, interrupt and a stray StopIteration are failures of the call, and the next call works (E2)."""
    outcome = await invoke(getattr(user_tools, function), {"how": how})
    assert isinstance(outcome, Failed)
    assert outcome.code == "tool_error"
    assert words in outcome.message
    assert await result(user_tools.undescribed, {"a": 1}) == 1


async def test_what_a_function_refuses_is_its_answer() -> None:
    """`ToolRejected` and `ToolFailed` pass from a function to the outcome (E2)."""

    def refuse() -> None:
        raise api.ToolRejected("no_such_city", "unknown")

    async def fail() -> None:
        raise api.ToolFailed("busy", "later", retryable=True)

    assert await invoke(refuse) == Rejected(code="no_such_city", message="unknown")
    assert await invoke(fail) == Failed(code="busy", message="later", retryable=True)


# -- what became of a lost attempt ------------------------------------------------------------------------------------


def reconciled(sent: str, call: api.ToolCall) -> api.Reconciled:
    """Ask the mail server."""
    answers: dict[str, api.Reconciled] = {
        "yes": api.Happened({"at": datetime(2024, 2, 29, tzinfo=UTC), "key": call.idempotency_key}),
        "no": api.DidNotHappen(),
        "perhaps": api.CannotTell(),
        "odd": "odd",  # type: ignore[dict-item] -- a mistake that people make
    }
    return answers[sent]


async def reconciled_later(*, sent: str, call: api.ToolCall) -> api.Reconciled:
    """Ask the mail server, later."""
    return reconciled(sent, call)


async def after_loss(sent: str, reconcile: api.Reconcile) -> tuple[ToolOutcome, list[str]]:
    """How a call ends whose earlier attempt was lost, and what was sent by then."""
    mails: list[str] = []

    @api.tool(reconcile=reconcile)
    def send(sent: str) -> str:
        mails.append(sent)
        return "sent"

    made = function_tool(send)
    call = ToolInvocation(
        run_id="run-1", call_id="run-1/m1/c1", tool_id=made.descriptor.tool_id, arguments={"sent": sent}
    )
    report = await ToolGuard([made]).invoke(call, CallContext(reconcile=True))
    assert report.reconciled is (not mails)  # what only was asked says so: it let nothing loose
    return report.outcome, mails


@pytest.mark.parametrize("reconcile", [reconciled, reconciled_later])
async def test_a_function_says_what_became_of_a_lost_attempt(reconcile: api.Reconcile) -> None:
    """The hook's answer decides: an output in its JSON form, another run, or an unknown effect (divergence 3)."""
    happened = Completed(output=InlineOutput(value={"at": "2024-02-29T00:00:00+00:00", "key": "run-1/m1/c1"}))
    assert await after_loss("yes", reconcile) == (happened, [])
    assert await after_loss("no", reconcile) == (Completed(output=InlineOutput(value="sent")), ["no"])
    for unclear in ("perhaps", "odd", "raises"):
        outcome, mails = await after_loss(unclear, reconcile)
        assert isinstance(outcome, UnknownEffect)
        assert mails == []


def test_only_a_function_with_a_hook_can_be_asked() -> None:
    """What a run is told of a tool says whether it can be asked after a loss."""

    @api.tool
    def plain(a: int) -> int:
        return a

    @api.tool(reconcile=lambda a: api.CannotTell())  # noqa: ARG005 -- the name is what counts
    def unhinted(a: int) -> int:
        return a

    def ask(a: int) -> api.Reconciled:
        return api.Happened(a)

    @api.tool(reconcile=ask)
    def asked(a: int) -> int:
        return a

    hosted = host(AgentPlan("default", None, [function_tool(plain), function_tool(asked)]), "default")
    assert hosted.tools is not None
    told = {each.descriptor.model_schema.name: each.reconciles for each in hosted.tools.part.tools}
    assert told == {"plain": False, "asked": True}
    with pytest.raises(WordError, match="its parameter 'a' has no type hint"):
        function_tool(unhinted)


def takes_nothing() -> api.Reconciled:
    """Not even the arguments."""
    return api.CannotTell()


def yields(a: int) -> object:
    """Yield."""
    yield a


@pytest.mark.parametrize(
    ("reconcile", "sentence"),
    [
        (takes_nothing, "does not take the parameters of"),
        (reconciled, "does not take the parameters of"),
        (yields, "it yields; return one value"),
        ("ask", "'ask' is not a Python function"),
    ],
)
def test_a_hook_that_cannot_be_asked_is_refused(reconcile: api.Reconcile, sentence: str) -> None:
    """A hook with other parameters, or none that could answer, is refused when the tool is made."""

    @api.tool(reconcile=reconcile)
    def one(a: int) -> int:
        return a

    with pytest.raises(WordError) as refused:
        function_tool(one)
    assert refused.value.code == "invalid_descriptor"
    assert sentence in refused.value.message
