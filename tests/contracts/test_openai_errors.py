"""What the refusals and failures of an OpenAI-like endpoint become."""

import asyncio
import base64
import json
import logging
import traceback
from datetime import timedelta
from typing import Any
from urllib.parse import quote

import pytest

from orchestral_temporal.adapters.models.openai import LOGGERS, OpenAIModel
from orchestral_temporal.ports import ModelFault
from orchestral_temporal.protocol.model import (
    ModelErrorCode,
)
from orchestral_temporal.testing.model_contract import REQUEST, assembled
from tests.contracts.openai_endpoint import (
    KEY,
    adapter_at,
    case_data,
    chunk,
    error_reply,
    fault_of,
    frame,
    heard,
    text_reply,
)
from tests.contracts.sse_server import Reply, serving


@pytest.mark.parametrize(
    "pieces",
    [
        [b"data: {oops\n\n"],
        [b"data: [1, 2]\n\n"],
        [b"data: \xff\xfe\n\n"],
        [frame({"choices": [{"delta": {"content": 7}}]})],
        [frame({"choices": [], "usage": {"prompt_tokens": -1}})],
    ],
    ids=["no JSON", "no object", "no UTF-8", "no text", "negative usage"],
)
async def test_a_malformed_stream_is_a_protocol_fault(pieces: list[bytes]) -> None:
    """A stream in another language is said to be one, and is not tried again."""
    fault = await fault_of(Reply(pieces))
    assert (fault.error.code, fault.error.retryable) == (ModelErrorCode.PROTOCOL, False)


@pytest.mark.parametrize(
    ("status", "code", "retryable"),
    [
        (400, ModelErrorCode.INVALID_REQUEST, False),
        (401, ModelErrorCode.AUTHENTICATION, False),
        (402, ModelErrorCode.AUTHENTICATION, False),
        (403, ModelErrorCode.AUTHENTICATION, False),
        (404, ModelErrorCode.INVALID_REQUEST, False),
        (408, ModelErrorCode.UNAVAILABLE, True),
        (409, ModelErrorCode.UNAVAILABLE, True),
        (413, ModelErrorCode.CONTEXT_LENGTH_EXCEEDED, False),
        (422, ModelErrorCode.INVALID_REQUEST, False),
        (429, ModelErrorCode.RATE_LIMITED, True),
        (500, ModelErrorCode.UNAVAILABLE, True),
        (502, ModelErrorCode.UNAVAILABLE, True),
        (529, ModelErrorCode.UNAVAILABLE, True),
    ],
)
async def test_statuses_become_codes_and_are_asked_once(status: int, code: ModelErrorCode, retryable: bool) -> None:
    """Each status has its code; the SDK itself never tries again (F065)."""
    body = {"error": {"message": "It is so.", "type": "a_type", "code": "a_code"}}
    async with serving(error_reply(status, body)) as endpoint, adapter_at(endpoint) as model:
        with pytest.raises(ModelFault) as caught:
            await assembled(model.stream(REQUEST))
    error = caught.value.error
    assert (error.code, error.retryable) == (code, retryable)
    assert error.message.endswith("It is so.")
    assert error.details == {"status": status, "code": "a_code", "type": "a_type"}
    assert len(endpoint.asked) == 1


@pytest.mark.parametrize("number", range(9))
async def test_a_request_that_is_too_long_is_said_to_be(number: int) -> None:
    """Code, type, status or words tell, whatever the status is (F067)."""
    case = case_data("F067")["positive"][number]
    fault = await fault_of(error_reply(case["status"], case["body"]))
    assert (fault.error.code, fault.error.retryable) == (ModelErrorCode.CONTEXT_LENGTH_EXCEEDED, False)


@pytest.mark.parametrize("number", range(5))
async def test_other_limits_are_not_taken_for_it(number: int) -> None:
    """A rate, a cap on the output and a bad request have nothing to do with the context (F067)."""
    case = case_data("F067")["negative"][number]
    codes = {
        "rate limit": ModelErrorCode.RATE_LIMITED,
        "bad request (output cap)": ModelErrorCode.INVALID_REQUEST,
        "bad request": ModelErrorCode.INVALID_REQUEST,
        "authentication": ModelErrorCode.AUTHENTICATION,
    }
    assert (await fault_of(error_reply(case["status"], case["body"]))).error.code is codes[case["expect"]]


@pytest.mark.parametrize(
    ("words", "too_long"),
    [
        ("The context window of 4096 is full.", True),
        ("too many tokens: at most 4081", True),
        ("The input is too long for this model.", True),
        ("Input has 5 images, which is more than 4.", False),
        ("max_tokens must be above 0", False),
        ("The content is too long ago.", False),
    ],
)
async def test_words_that_mean_the_context(words: str, too_long: bool) -> None:
    """Other ways to say it are known too, and near ones are not taken for it (F067)."""
    code = (await fault_of(error_reply(400, {"error": {"message": words}}))).error.code
    assert (code is ModelErrorCode.CONTEXT_LENGTH_EXCEEDED) is too_long


@pytest.mark.parametrize("number", range(9))
async def test_limits_that_no_waiting_lifts_are_not_tried_again(number: int) -> None:
    """Hard limits and wrong keys fail at once with the endpoint's own words, soft limits may be tried again (F065)."""
    case = case_data("F065")["cases"][number]
    async with serving(error_reply(case["status"], case["body"])) as endpoint, adapter_at(endpoint) as model:
        _, fault = await heard(model)
    error, said = fault.error, (case["body"] or {"error": {}})["error"]
    assert error.retryable is case["expect"].startswith("soft")
    assert error.message == f"status {case['status']}: {said.get('message', 'no reason was given')}"
    assert isinstance(error.details, dict)
    assert error.details["status"] == case["status"]
    assert error.details.get("code") == said.get("code")
    assert len(endpoint.asked) == 1


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        ({"error": {"message": "Slow down.", "type": "INSUFFICIENT_QUOTA"}}, {}),
        ({"error": {"message": "Slow down."}}, {"x-should-retry": "false", "retry-after": "2"}),
    ],
    ids=["quota", "told not to"],
)
async def test_a_refusal_that_stands_is_not_tried_again(body: Any, headers: dict[str, str]) -> None:
    """An empty account stays empty, and an endpoint that says no means it (F064 F065)."""
    fault = await fault_of(error_reply(429, body, headers))
    assert (fault.error.code, fault.error.retryable) == (ModelErrorCode.RATE_LIMITED, False)


async def test_a_time_to_wait_makes_a_limit_soft() -> None:
    """An endpoint that speaks of billing and of seconds means the seconds (F065)."""
    body = {"error": {"message": "See your billing page.", "details": [{"retryDelay": "3s"}]}}
    error = (await fault_of(error_reply(429, body))).error
    assert error.retryable
    assert error.details == {"status": 429, "retry_after_ms": 3000}


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "status 502: no reason was given"),
        (b"null", "status 502: no reason was given"),
        (b"<h1>Bad gateway</h1>", "status 502: <h1>Bad gateway</h1>"),
        (b'{"error": "overloaded"}', "status 502: overloaded"),
        (b'{"detail": "inputs are odd"}', "status 502: inputs are odd"),
        (b'[{"error": {"message": "worn out"}}]', "status 502: worn out"),
        (b'{"object": "error", "message": "gone"}', "status 502: gone"),
        (b'{"error": {}}', "status 502: no reason was given"),
        (b'{"detail": [{"msg": "odd"}]}', 'status 502: {"detail":[{"msg":"odd"}]}'),
    ],
)
async def test_unusual_error_bodies_keep_their_words(body: bytes, words: str) -> None:
    """A proxy's page or another framework's error is quoted too."""
    assert (await fault_of(Reply([body] if body else [], 502, {}))).error.message == words


@pytest.mark.parametrize("kind", ["text/event-stream", "application/json"])
@pytest.mark.parametrize(
    "said",
    [
        {"error": {"message": "Gone.", "code": 404}},
        {"object": "error", "message": "Gone.", "code": 404},
        {"message": "Gone.", "status": 404},
    ],
    ids=["nested", "flat", "bare"],
)
async def test_errors_behind_a_good_status_are_errors(kind: str, said: Any) -> None:
    """Endpoints report some failures with status 200, in a stream or in one body (F068)."""
    body = frame(said) if kind == "text/event-stream" else json.dumps(said).encode()
    error = (await fault_of(Reply([body], headers={"content-type": kind}))).error
    assert (error.code, error.message, error.retryable) == (ModelErrorCode.INVALID_REQUEST, "Gone.", False)


async def test_an_error_of_words_alone_is_quoted() -> None:
    """A body whose error is a sentence is trouble at the endpoint."""
    error = (await fault_of(Reply([b'{"error": "Gone."}'], headers={"content-type": "application/json"}))).error
    assert (error.code, error.message, error.details) == (ModelErrorCode.UNAVAILABLE, "Gone.", {})


@pytest.mark.parametrize(
    ("said", "code", "retryable"),
    [
        ({"code": None}, ModelErrorCode.UNAVAILABLE, True),
        ({"code": "busy"}, ModelErrorCode.UNAVAILABLE, True),
        ({"code": 200}, ModelErrorCode.UNAVAILABLE, True),
        ({"code": "429"}, ModelErrorCode.RATE_LIMITED, True),
        ({"code": "rate_limit_exceeded"}, ModelErrorCode.RATE_LIMITED, True),
        ({"type": "insufficient_quota"}, ModelErrorCode.RATE_LIMITED, False),
        ({"type": "authentication_error"}, ModelErrorCode.AUTHENTICATION, False),
        ({"type": "invalid_request_error"}, ModelErrorCode.INVALID_REQUEST, False),
        (
            {"type": "invalid_request_error", "code": "context_length_exceeded"},
            ModelErrorCode.CONTEXT_LENGTH_EXCEEDED,
            False,
        ),
    ],
    ids=str,
)
async def test_an_error_inside_the_stream_is_known_by_status_or_name(
    said: dict[str, Any], code: ModelErrorCode, retryable: bool
) -> None:
    """One that names neither is taken as trouble at the endpoint (F068)."""
    fault = await fault_of(Reply([frame({"error": {"message": "So it is.", **said}})]))
    assert (fault.error.code, fault.error.retryable) == (code, retryable)


async def test_an_error_body_that_breaks_off_is_unavailable() -> None:
    """A refusal that never arrives whole is no answer."""
    error = (await fault_of(Reply([b'{"error": '], 500, {}, cut=True))).error
    assert (error.code, error.retryable) == (ModelErrorCode.UNAVAILABLE, True)


async def test_a_whole_answer_that_breaks_off_is_unavailable() -> None:
    """Nothing of an answer that is not streamed has been said before it is whole (F076)."""
    reply = Reply([b'{"choices": '], headers={"content-type": "application/json"}, cut=True)
    error = (await fault_of(reply)).error
    assert (error.code, error.retryable) == (ModelErrorCode.UNAVAILABLE, True)


async def test_a_failed_handshake_is_unavailable() -> None:
    """An endpoint that does not speak TLS where it is expected may be mended, so another try is allowed."""

    async def answer(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"this is no handshake")
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        fault = await _failure_at(f"https://127.0.0.1:{port}/v1")
    assert (fault.error.code, fault.error.retryable) == (ModelErrorCode.UNAVAILABLE, True)
    assert fault.error.message == "no answer, or not all of it, came from 127.0.0.1 (ConnectError)"


async def test_an_unknown_host_is_unavailable() -> None:
    """A name that nobody knows may be known later."""
    fault = await _failure_at("http://nowhere.invalid/v1")
    assert (fault.error.code, fault.error.retryable) == (ModelErrorCode.UNAVAILABLE, True)
    assert "nowhere.invalid" in fault.error.message


async def _failure_at(url: str) -> ModelFault:
    model = OpenAIModel("m", api_key=KEY, base_url=url)
    _, fault = await heard(model)
    await model.close()
    return fault


async def test_nobody_listening_is_unavailable() -> None:
    """A refused connection may be tried again, and the error names the host."""
    async with serving(text_reply("ok")) as endpoint:
        pass
    async with adapter_at(endpoint) as model:
        with pytest.raises(ModelFault) as caught:
            await assembled(model.stream(REQUEST))
    error = caught.value.error
    assert (error.code, error.retryable) == (ModelErrorCode.UNAVAILABLE, True)
    assert "127.0.0.1" in error.message


async def test_silence_beyond_the_time_out_is_unavailable() -> None:
    """An endpoint that says nothing for `timeout` is given up, before and after its first byte."""
    for pieces in ([], [chunk({"content": "Hm"})]):
        async with (
            serving(Reply(pieces, hold=True)) as endpoint,
            adapter_at(endpoint, timeout=timedelta(seconds=0.2)) as model,
        ):
            with pytest.raises(ModelFault) as caught:
                await assembled(model.stream(REQUEST))
        assert (caught.value.error.code, caught.value.error.retryable) == (ModelErrorCode.UNAVAILABLE, True)


@pytest.mark.parametrize("pieces", [[], [chunk({"content": "Hm"})]])
async def test_the_key_shows_nowhere(caplog: pytest.LogCaptureFixture, pieces: list[bytes]) -> None:
    """No error, representation or log line holds the key, however the endpoint quotes it (F112 F113)."""
    caplog.set_level(logging.DEBUG)
    case = case_data("F113")
    quoted = {
        "plain": case["key"],
        "base64": base64.b64encode(f"user:{case['key']}".encode()).decode(),
        "escaped": quote(case["key"]),
    }
    words = case["model_error"]["body"]["error"]["message"]
    echo = {"error": {"message": f"{words} {quoted} {case['url_error']}", "type": case["key"], "code": case["key"]}}
    reply = Reply([*pieces, frame(echo)]) if pieces else error_reply(401, echo, {"x-echo": case["key"]})
    async with serving(reply) as endpoint:
        model = OpenAIModel("m", api_key=case["key"], base_url=endpoint.base_url)
        _, fault = await heard(model)
        await model.close()
    error = fault.error
    shown = [repr(model), repr(fault), "".join(traceback.format_exception(fault)), error.model_dump_json(), caplog.text]
    assert endpoint.asked[0].headers["authorization"] == f"Bearer {case['key']}"
    assert "Incorrect key given: [secret]. See the key page." in error.message
    assert "receive_response_headers" in caplog.text
    assert not [(text, form) for text in shown for form in quoted.values() if form in text]


async def test_a_closed_model_leaves_the_log_alone() -> None:
    """The filters of the transport's loggers go with the model."""
    before = [list(logging.getLogger(name).filters) for name in LOGGERS]
    model = OpenAIModel("m", api_key=KEY)
    assert [list(logging.getLogger(name).filters) for name in LOGGERS] != before
    await model.close()
    assert [list(logging.getLogger(name).filters) for name in LOGGERS] == before
