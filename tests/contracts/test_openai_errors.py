"""What the refusals and failures of an OpenAI-like endpoint become."""

import logging
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest

from orchestral_temporal.ports import ModelFault
from orchestral_temporal.protocol.model import (
    ModelErrorCode,
)
from orchestral_temporal.testing.model_contract import REQUEST, assembled
from tests.contracts.openai_endpoint import (
    DONE,
    KEY,
    adapter_at,
    chunk,
    error_reply,
    fault_of,
    frame,
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


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, {"message": "Too big.", "type": "invalid_request_error", "code": "context_length_exceeded"}),
        (400, {"message": "9310 tokens", "type": "exceed_context_size_error", "code": 400}),
        (500, {"message": "upstream", "code": "CONTEXT_LENGTH_EXCEEDED"}),
    ],
)
async def test_a_request_that_is_too_long_is_said_to_be(status: int, error: dict[str, Any]) -> None:
    """The code tells, whatever the status (F067)."""
    fault = await fault_of(error_reply(status, {"error": error}))
    assert (fault.error.code, fault.error.retryable) == (ModelErrorCode.CONTEXT_LENGTH_EXCEEDED, False)


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        ({"error": {"message": "Empty.", "code": "insufficient_quota"}}, {}),
        ({"error": {"message": "Slow down."}}, {"x-should-retry": "false", "retry-after": "2"}),
    ],
    ids=["quota", "told not to"],
)
async def test_a_limit_that_no_waiting_lifts_is_not_tried_again(body: Any, headers: dict[str, str]) -> None:
    """An empty account stays empty, and an endpoint that says no means it (F064 F065)."""
    fault = await fault_of(error_reply(429, body, headers))
    assert (fault.error.code, fault.error.retryable) == (ModelErrorCode.RATE_LIMITED, False)


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"retry-after": "2"}, 2000),
        ({"Retry-After": "0"}, None),
        ({"Retry-After": "0.5"}, 500),
        ({"Retry-After": " 3 "}, 3000),
        ({"Retry-After": "Wed, 21 Oct 2020 07:20:00 GMT"}, None),
        ({"Retry-After": "-5"}, None),
        ({"Retry-After": "soon"}, None),
        ({"Retry-After": ""}, None),
        ({"Retry-After": "999999999"}, 999_999_999_000),
        ({"Retry-After": "nan"}, None),
        ({"Retry-After": "inf"}, None),
        ({"Retry-After": "5, 7"}, None),
        ({"retry-after-ms": "1500"}, 1500),
        ({"Retry-After": "10", "retry-after-ms": "250"}, 250),
        ({}, None),
    ],
    ids=str,
)
async def test_the_wait_that_is_asked_for_is_kept(headers: dict[str, str], expected: int | None) -> None:
    """`retry_after_ms` holds what a header says, and no header text breaks the attempt (F064)."""
    details = (await fault_of(error_reply(429, {"error": {"message": "Wait."}}, headers))).error.details
    assert isinstance(details, dict)
    assert details.get("retry_after_ms") == expected


async def test_a_wait_until_a_date_counts_from_now() -> None:
    """An HTTP date becomes the time that is left (F064)."""
    date = format_datetime(datetime.now(UTC) + timedelta(seconds=30), usegmt=True)
    details = (await fault_of(error_reply(429, {"error": {"message": "Wait."}}, {"Retry-After": date}))).error.details
    assert isinstance(details, dict)
    wait = details["retry_after_ms"]
    assert isinstance(wait, int)
    assert 15_000 < wait <= 30_000


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "Error code: 502"),
        (b"<h1>Bad gateway</h1>", "Bad gateway"),
        (b'{"detail": "inputs too long"}', "inputs too long"),
    ],
)
async def test_unusual_error_bodies_keep_their_words(body: bytes, words: str) -> None:
    """A proxy's page or another framework's error is quoted too."""
    assert words in (await fault_of(Reply([body] if body else [], 502, {}))).error.message


async def test_an_error_inside_the_stream_keeps_its_words_and_code() -> None:
    """An error object after some text fails the attempt with its message and code (F068)."""
    error = {"message": "No free place (17 of 16).", "type": "provider_unavailable", "code": 502}
    fault = await fault_of(Reply([chunk({"content": "The answer is"}), frame({"error": error}), DONE]))
    assert fault.error.code is ModelErrorCode.UNAVAILABLE
    assert fault.error.message == "No free place (17 of 16)."
    assert fault.error.details == {"status": 502, "code": "502", "type": "provider_unavailable"}


@pytest.mark.parametrize("code", [None, "busy"])
async def test_an_error_inside_the_stream_without_a_status_is_trouble_there(code: str | None) -> None:
    """An endpoint that says nothing of its status is taken as unavailable."""
    fault = await fault_of(Reply([frame({"error": {"message": "Busy.", "code": code}})]))
    assert (fault.error.code, fault.error.retryable) == (ModelErrorCode.UNAVAILABLE, True)


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


async def test_the_key_shows_nowhere(caplog: pytest.LogCaptureFixture) -> None:
    """No error, representation or log line holds the key, even when the endpoint quotes it (F112 F113)."""
    caplog.set_level(logging.DEBUG)
    echo = {"error": {"message": f"Key {KEY} is not valid.", "type": KEY, "code": KEY}}
    async with serving(error_reply(401, echo)) as endpoint, adapter_at(endpoint) as model:
        with pytest.raises(ModelFault) as caught:
            await assembled(model.stream(REQUEST))
        shown = [repr(model), repr(caught.value), str(caught.value), caught.value.error.model_dump_json(), caplog.text]
    assert endpoint.asked[0].headers["authorization"] == f"Bearer {KEY}"
    assert "Key [key] is not valid." in caught.value.error.message
    assert not [text for text in shown if KEY in text]
