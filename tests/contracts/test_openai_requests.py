"""What the OpenAI adapter sends, and under which key."""

import json
import re
from typing import Any

import pytest

from orchestral_temporal.adapters.models.openai import OpenAIModel
from orchestral_temporal.adapters.models.openai_wire import CallIds
from orchestral_temporal.ports import ModelFault
from orchestral_temporal.protocol.model import (
    ContinuationPart,
    DataPart,
    JsonPart,
    ModelContent,
    ModelErrorCode,
    ModelMessage,
    ModelObservation,
    ModelRequest,
    ModelRole,
    ModelToolDefinition,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from orchestral_temporal.testing.model_contract import REQUEST, assembled
from tests.contracts.openai_endpoint import (
    KEY,
    adapter_at,
    case_data,
    text_reply,
)
from tests.contracts.sse_server import serving


async def _sent(request: ModelRequest, **settings: Any) -> dict[str, Any]:
    """What the endpoint gets for a request."""
    async with serving(text_reply("ok")) as endpoint, adapter_at(endpoint, **settings) as model:
        await assembled(model.stream(request), request)
    return endpoint.asked[0].body


def _request(*messages: tuple[ModelRole, list[ModelContent]], **fields: Any) -> ModelRequest:
    words = tuple(ModelMessage(role=role, content=tuple(content)) for role, content in messages)
    return ModelRequest(request_id="model-run-2", messages=words or REQUEST.messages, **fields)


async def test_the_request_is_a_streamed_completion_under_its_own_key() -> None:
    """One POST carries model, cap, streaming with usage, the key and the request id as idempotency key."""
    async with serving(text_reply("ok")) as endpoint, adapter_at(endpoint) as model:
        await assembled(model.stream(REQUEST))
    (asked,) = endpoint.asked
    assert asked.path == "/v1/chat/completions"
    assert asked.headers["idempotency-key"] == REQUEST.request_id
    assert asked.headers["authorization"] == f"Bearer {KEY}"
    assert asked.body == {
        "model": "fixture-model",
        "messages": [{"role": "user", "content": "What is the weather?"}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": 256,
    }


async def test_an_id_of_any_alphabet_fits_the_header() -> None:
    """A run id may hold any letters; two ids never share a key."""
    async with serving(text_reply("ok")) as endpoint, adapter_at(endpoint) as model:
        for name in ("läuft", "l%C3%A4uft", "実行"):
            request = REQUEST.model_copy(update={"request_id": f"model-{name}-1"})
            assert isinstance(await assembled(model.stream(request), request), ModelObservation)
    keys = {asked.headers["idempotency-key"] for asked in endpoint.asked}
    assert len(keys) == 3


async def test_the_conversation_is_sent_in_the_endpoints_words() -> None:
    """Texts join, calls carry compact JSON text, each result is a message of its own, foreign state stays here."""
    body = await _sent(
        _request(
            (ModelRole.SYSTEM, [TextPart(text="Be brief.")]),
            (ModelRole.USER, [TextPart(text="Weigh"), JsonPart(value={"baskets": [1, 2]})]),
            (
                ModelRole.ASSISTANT,
                [
                    TextPart(text="Weighing."),
                    ContinuationPart(namespace="other/state", value=1),
                    ToolCallPart(call_id="a", name="weigh", arguments={"basket": 1}),
                    ToolCallPart(call_id="b", name="weigh", arguments={"basket": 2}),
                ],
            ),
            (
                ModelRole.TOOL,
                [
                    ToolResultPart(call_id="a", result={"grams": 5, "sign": "✓"}, is_error=False),
                    ToolResultPart(call_id="b", result="empty", is_error=True),
                ],
            ),
            (ModelRole.ASSISTANT, [ContinuationPart(namespace="other/state", value=1)]),
            (ModelRole.ASSISTANT, [ToolCallPart(call_id="c", name="now", arguments={})]),
        )
    )
    call_a = {"id": "a", "type": "function", "function": {"name": "weigh", "arguments": '{"basket":1}'}}
    call_b = {"id": "b", "type": "function", "function": {"name": "weigh", "arguments": '{"basket":2}'}}
    call_c = {"id": "c", "type": "function", "function": {"name": "now", "arguments": "{}"}}
    assert body["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": 'Weigh\n\n{"baskets":[1,2]}'},
        {"role": "assistant", "content": "Weighing.", "tool_calls": [call_a, call_b]},
        {"role": "tool", "tool_call_id": "a", "content": '{"grams":5,"sign":"✓"}'},
        {"role": "tool", "tool_call_id": "b", "content": '"empty"'},
        {"role": "assistant", "content": None, "tool_calls": [call_c]},
    ]


@pytest.mark.parametrize("written", ['{"path": "a.txt",}', ["a.txt"], None], ids=["text", "array", "null"])
async def test_arguments_that_were_no_object_are_sent_as_valid_json(written: Any) -> None:
    """A call that got an error result goes back as an object that holds what the model wrote (F055)."""
    call = ToolCallPart(call_id="c", name="read", arguments=written)
    body = await _sent(_request((ModelRole.ASSISTANT, [call])))
    arguments = body["messages"][0]["tool_calls"][0]["function"]["arguments"]
    assert json.loads(arguments) == {"invalid_arguments": written}


async def test_odd_names_of_past_calls_are_sent_in_letters_that_pass() -> None:
    """A name that the model made up must not make the next request invalid; offered names go as they are (F056)."""
    case = case_data("F056")
    names = [name for name in case["names"] if name]
    calls = [ToolCallPart(call_id=f"c{at}", name=name, arguments={}) for at, name in enumerate([*names, "my.tool"])]
    tool = ModelToolDefinition(name="my.tool", description="A tool.", input_schema={})
    body = await _sent(_request((ModelRole.ASSISTANT, list(calls)), tools=(tool,)))
    sent = [call["function"]["name"] for call in body["messages"][0]["tool_calls"]]
    assert sent[-1] == "my.tool"
    assert [name for name in sent[:-1] if not re.fullmatch("[A-Za-z0-9_-]{1,64}", name)] == []
    assert sent[:4] == ["notes_append", "Notes_Append", "notes-append", "functions_notes_append"]


@pytest.mark.parametrize("name", ["F049", "F050", "F053"])
async def test_the_schemas_of_the_cases_are_sent_as_registered(name: str) -> None:
    """Whatever a tool's schema says reaches the endpoint; only a missing type and properties are added."""
    case = case_data(name)
    match name:
        case "F049":
            schemas = [case["schema"]]
        case "F050":
            schemas = case["schemas"][:3]
        case _:
            schemas = [_with_extra(case["schema_template"], each["additionalProperties"]) for each in case["cases"]]
    tools = tuple(
        ModelToolDefinition(name=f"t{at}", description="A tool.", input_schema=schema)
        for at, schema in enumerate(schemas)
    )
    functions = [tool["function"] for tool in (await _sent(_request(tools=tools)))["tools"]]
    assert [function["parameters"] for function in functions] == [
        {"type": "object", "properties": {}, **schema} for schema in schemas
    ]
    assert not [function for function in functions if "strict" in function]


def _with_extra(template: dict[str, Any], extra: Any) -> dict[str, Any]:
    """The schema of F053 with that rule for keys that it does not name."""
    schema: dict[str, Any] = json.loads(json.dumps(template))
    labels = schema["properties"]["labels"]
    labels["additionalProperties"] = extra
    if extra == "absent":
        del labels["additionalProperties"]
    return schema


@pytest.mark.parametrize(
    ("schema", "parameters"),
    [
        ({}, {"type": "object", "properties": {}}),
        ({"type": "object"}, {"type": "object", "properties": {}}),
        (
            {"properties": {"a": {"additionalProperties": {"type": "string"}}}, "required": ["a"]},
            {"type": "object", "properties": {"a": {"additionalProperties": {"type": "string"}}}, "required": ["a"]},
        ),
        (
            {"type": "object", "$defs": {"n": {"$ref": "#/$defs/n"}}, "properties": {"root": {"$ref": "#/$defs/n"}}},
            {"type": "object", "$defs": {"n": {"$ref": "#/$defs/n"}}, "properties": {"root": {"$ref": "#/$defs/n"}}},
        ),
    ],
    ids=["empty", "no properties", "no type", "recursive"],
)
async def test_schemas_are_completed_but_never_narrowed(schema: dict[str, Any], parameters: dict[str, Any]) -> None:
    """A schema goes out as registered, at most completed by `type` and `properties`, never strict (F049 F050 F053)."""
    tool = ModelToolDefinition(name="t", description="A tool.", input_schema=schema)
    body = await _sent(_request(tools=(tool,)))
    function = {"name": "t", "description": "A tool.", "parameters": parameters}
    assert body["tools"] == [{"type": "function", "function": function}]


async def test_lone_surrogates_leave_as_replacement_characters() -> None:
    """What UTF-8 cannot carry is replaced in texts, keys and results (F041)."""
    body = await _sent(
        _request(
            (ModelRole.USER, [TextPart(text="x\udfffy 😀")]),
            (ModelRole.TOOL, [ToolResultPart(call_id="c", result=[{"\ud800": "\udc81 start"}], is_error=False)]),
        )
    )
    assert [message["content"] for message in body["messages"]] == ["x\ufffdy 😀", '[{"\ufffd":"\ufffd start"}]']


@pytest.mark.parametrize(
    "request_",
    [
        _request((ModelRole.USER, [DataPart(media_type="image/png", value={"url": "u"})])),
        _request(output_schema={"type": "object"}),
    ],
    ids=["image", "structured output"],
)
async def test_what_is_not_served_is_refused_before_it_is_sent(request_: ModelRequest) -> None:
    """Images and structured output are refused with a clear error (answer 23)."""
    async with serving(text_reply("ok")) as endpoint, adapter_at(endpoint) as model:
        with pytest.raises(ModelFault) as caught:
            await assembled(model.stream(request_), request_)
    assert caught.value.error.code is ModelErrorCode.UNSUPPORTED
    assert "cannot be sent" in caught.value.error.message
    assert not endpoint.asked


async def test_the_smaller_output_cap_is_sent() -> None:
    """The model's own cap bounds the request's, and either stands alone."""
    assert (await _sent(REQUEST, max_output_tokens=100))["max_tokens"] == 100
    assert (await _sent(REQUEST, max_output_tokens=1000))["max_tokens"] == 256
    assert (await _sent(_request(), max_output_tokens=100))["max_tokens"] == 100
    assert "max_tokens" not in await _sent(_request())


async def test_openai_itself_gets_the_cap_under_its_new_name() -> None:
    """OpenAI's newer models refuse `max_tokens`."""
    model = OpenAIModel("m", api_key=KEY)
    body = model._body(REQUEST, CallIds("as_is"))
    await model.close()
    assert body["max_completion_tokens"] == 256
    assert "max_tokens" not in body


async def test_extra_fields_are_sent_and_are_part_of_the_identity() -> None:
    """What changes the answers of a model shows in its descriptor."""
    assert (await _sent(REQUEST, extra_body={"temperature": 0}))["temperature"] == 0
    model = OpenAIModel("m", api_key=KEY, context_tokens=128_000, extra_body={"temperature": 0})
    assert model.descriptor.backend_id == "openai/m"
    assert model.descriptor.capabilities.max_context_tokens == 128_000
    assert model.descriptor.extensions == {"orchestral-temporal/extra-body": {"temperature": 0}}
    assert model.redispatchable
    await model.close()
    model = OpenAIModel("m", api_key=KEY, call_ids="short9")
    assert model.descriptor.extensions == {"orchestral-temporal/call-ids": "short9"}
    await model.close()


async def test_rounds_share_a_connection() -> None:
    """A finished stream gives its connection back."""
    async with serving(text_reply("ok")) as endpoint, adapter_at(endpoint) as model:
        for _ in range(3):
            await assembled(model.stream(REQUEST))
    assert (len(endpoint.asked), endpoint.connections) == (3, 1)


def test_a_key_must_be_there_and_fit_a_header(monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing or unusable key is refused at once, by name and without its text."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(ValueError, match="api_key of OpenAIModel is not set"):
        OpenAIModel("m")
    with pytest.raises(ValueError, match="api_key of OpenAIModel holds a character") as caught:
        OpenAIModel("m", api_key="sk-geheim-ü")
    assert "geheim" not in str(caught.value)


async def test_the_key_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without `api_key` the usual variable is read; the newline of a key file does no harm."""
    monkeypatch.setenv("OPENAI_API_KEY", f"{KEY}\n")
    async with serving(text_reply("ok")) as endpoint:
        model = OpenAIModel("m", base_url=endpoint.base_url)
        await assembled(model.stream(REQUEST))
        await model.close()
    assert endpoint.asked[0].headers["authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_a_proxy_does_not_stand_before_loopback(monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    """Proxy variables of any kind neither break a local endpoint nor warn (F109)."""
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "socks5://127.0.0.1:9")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    async with serving(text_reply("ok")) as endpoint:
        endpoint.base_url = endpoint.base_url.replace("127.0.0.1", host)
        async with adapter_at(endpoint) as model:
            turn = await assembled(model.stream(REQUEST))
    assert isinstance(turn, ModelObservation)
    assert turn.response == "ok"
