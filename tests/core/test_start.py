"""Start arguments: three forms, one sealed spec (F133)."""

import pytest

from orchestral_temporal.core.start import START_EXTENSION, Start, StartRefused, read_start
from orchestral_temporal.protocol.base import Json, JsonObject
from orchestral_temporal.protocol.words import dump

RUN = "run-1"
BASE: JsonObject = {"input": "do it"}


def spec_digest(value: Json) -> str:
    """The digest of the sealed spec."""
    return read_start(value, RUN).envelope.spec_digest


def refusal(value: Json, run_id: str = RUN) -> str:
    """The sentence of a refused start."""
    with pytest.raises(StartRefused) as refused:
        read_start(value, run_id)
    assert refused.value.rejection.code == "invalid_spec"
    return refused.value.rejection.message


def test_the_short_form_has_defaults() -> None:
    """Only the task is needed: the session is the run's own, the agent `default` (`answers.md` 6)."""
    start = read_start(BASE, RUN)
    assert (start.run_id, start.session_id, start.options.agent, start.workspaces) == (RUN, RUN, "default", ())
    assert START_EXTENSION in start.envelope.spec.extensions


@pytest.mark.parametrize(
    "value",
    [
        {"input": "do it", "agent": None, "session_id": None, "limits": None, "workspace": None, "extensions": None},
        {"input": "do it", "tenant": None, "additional_workspaces": None},
        {"input": "do it", "agent": "default", "session_id": RUN, "limits": {}, "additional_workspaces": []},
        {"limits": {"max_model_steps": None}, "input": "do it"},
        {"input": [{"body": {"value": "do it", "kind": "inline"}, "media_type": "text/plain"}]},
    ],
)
def test_what_is_left_out_null_or_default_is_the_same_spec(value: JsonObject) -> None:
    """Optional nulls, written-out defaults and key order do not change the digest (F133 rows 1, 2 and 11)."""
    assert spec_digest(value) == spec_digest(BASE)


def test_a_whole_number_may_be_written_as_a_float_in_the_short_form() -> None:
    """3.0 is 3; "3" and 3.5 are refused by field (F133 rows 5 to 7)."""
    three = spec_digest({**BASE, "limits": {"max_model_steps": 3}})
    assert spec_digest({**BASE, "limits": {"max_model_steps": 3.0}}) == three
    for wrong in ("3", 3.5):
        assert "max_model_steps" in refusal({**BASE, "limits": {"max_model_steps": wrong}})


def test_text_is_kept_as_it_was_sent() -> None:
    """An accent written as two characters is another text and another spec (F133 row 12)."""
    composed, combined = {"input": "caf\u00e9"}, {"input": "cafe\u0301"}
    assert spec_digest(composed) != spec_digest(combined)
    assert read_start(combined, RUN).envelope.spec.input[0].body.value == "cafe\u0301"


@pytest.mark.parametrize(
    ("value", "named"),
    [
        ([], "a list"),
        ("do it", "text"),
        (None, "null"),
        ({}, "'input' is missing"),
        ({**BASE, "x-note": "hi"}, "x-note"),
        ({**BASE, "sessionId": "s"}, "sessionId"),
        ({"input": ""}, "'input' is empty"),
        ({"input": []}, "'input' is a list"),
        ({"input": 3}, "'input' is a number"),
        ({"input": [{"media_type": "text/plain"}]}, "body"),
        ({**BASE, "session_id": 5}, "'session_id' is a number"),
        ({**BASE, "session_id": "  "}, "session id is blank"),
        ({**BASE, "session_id": "s" * 248}, "session id is longer"),
        ({**BASE, "agent": 1}, "agent"),
        ({**BASE, "agent": "a" * 256}, "agent is longer"),
        ({**BASE, "tenant": "a\nb"}, "tenant holds"),
        ({**BASE, "workspace": " "}, "workspace is blank"),
        ({**BASE, "additional_workspaces": ["."] * 32}, "more than 32 workspaces"),
        ({"input": "x" * 1_000_001}, "at most 1000000"),
        ({**BASE, "workspace": 1}, "workspace"),
        ({**BASE, "limits": []}, "RunLimits"),
        ({**BASE, "limits": {"max_steps": 1}}, "max_steps"),
        ({**BASE, "extensions": []}, "'extensions' is a list"),
        ({"spec": {}, "spec_digest": "x"}, "spec"),
        ({"run": 1}, "run"),
    ],
)
def test_a_wrong_start_is_refused_by_field(value: Json, named: str) -> None:
    """Each sentence names the field and its kind (F133, issue: bad input)."""
    assert named in refusal(value)


@pytest.mark.parametrize("run_id", ["", " ", "x" * 256, "a\nb", "session/x"])
def test_a_run_id_from_outside_is_judged(run_id: str) -> None:
    """Blank, long, unprintable and session-like ids are refused (`answers.md` 11)."""
    assert "run id" in refusal(BASE, run_id)


def test_the_full_forms_carry_the_same_spec() -> None:
    """Envelope and start request seal nothing anew; their options come from the extension."""
    short = read_start(
        {**BASE, "agent": "writer", "tenant": "t", "workspace": "/w", "additional_workspaces": ["/x"]}, RUN
    )
    envelope = dump(short.envelope)
    assert read_start(envelope, RUN) == short
    request: JsonObject = {"run": envelope, "provider_binding": "b", "expected_descriptor_digest": "0" * 64}
    full: Start = read_start(request, RUN)
    assert (full.envelope, full.options, full.provider_binding) == (short.envelope, short.options, "b")
    assert full.workspaces == ("/w", "/x")


def test_a_full_form_without_our_extension_is_for_the_default_agent() -> None:
    """Services that know only the wire start the default agent."""
    envelope = dump(read_start(BASE, RUN).envelope)
    spec = envelope["spec"]
    assert isinstance(spec, dict)
    spec["extensions"] = {}
    assert read_start(envelope, RUN).options.agent == "default"


def test_a_full_form_for_another_run_is_refused() -> None:
    """The run's id is the workflow's id."""
    envelope = dump(read_start(BASE, "run-2").envelope)
    assert "workflow id 'run-1'" in refusal(envelope)


@pytest.mark.parametrize("value", [{"input": float("nan")}, {"input": b"x"}, {"input": "\ud800"}, {"input": {1, 2}}])
def test_what_a_converter_let_in_is_judged_again(value: dict) -> None:  # type: ignore[type-arg]
    """NaN, bytes, half a character and values that are no JSON are refused at our own door (F134)."""
    assert refusal(value)
