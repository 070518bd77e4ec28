"""Extensions that a host puts on every run: a short form gets them, any form is checked for them (A4)."""

import pytest

from orchestral_temporal.core.start import (
    START_EXTENSION,
    StartRefused,
    read_start,
    require_extensions,
    with_extensions,
)
from orchestral_temporal.protocol.base import Json, JsonObject
from orchestral_temporal.protocol.words import dump

FLAGS: JsonObject = {"acme/flag": 1, "acme/list": [{"a": None}]}


def start(value: JsonObject, defaults: JsonObject = FLAGS) -> JsonObject:
    """The extensions of the spec that a client with these defaults seals."""
    sealed = read_start(with_extensions(value, defaults), "run-1")
    require_extensions(sealed, defaults)
    return sealed.envelope.spec.extensions


@pytest.mark.parametrize("own", [None, {}, {"acme/flag": 1}, {"acme/own": "x"}])
def test_a_short_form_gets_them_beside_its_own(own: Json) -> None:
    """What the run says itself stays, what it leaves out comes from the host."""
    extra = own if isinstance(own, dict) else {}
    found = start({"input": "x", "extensions": own})
    assert {key: value for key, value in found.items() if key != START_EXTENSION} == {**extra, **FLAGS}


def test_without_defaults_nothing_is_added() -> None:
    """The start argument goes to the server as it was written."""
    value: JsonObject = {"input": "x"}
    assert with_extensions(value, {}) is value


@pytest.mark.parametrize("other", [True, 1.0, "1", None, 2])
def test_another_value_is_refused(other: Json) -> None:
    """Equal is what is equal as JSON: neither `true` nor `1.0` is `1`."""
    with pytest.raises(StartRefused, match="'acme/flag'") as refused:
        start({"input": "x", "extensions": {"acme/flag": other}})
    assert refused.value.rejection.code == "invalid_spec"


@pytest.mark.parametrize("asked", [False, True], ids=["envelope", "start request"])
def test_a_sealed_form_has_them_or_is_refused(asked: bool) -> None:
    """Nobody changes what another has sealed."""

    def sealed(extensions: JsonObject) -> JsonObject:
        envelope = dump(read_start({"input": "x", "extensions": extensions}, "run-1").envelope)
        request: JsonObject = {"run": envelope, "provider_binding": "b", "expected_descriptor_digest": "0" * 64}
        return request if asked else envelope

    assert start(sealed(FLAGS)).keys() == {*FLAGS, START_EXTENSION}
    with pytest.raises(StartRefused, match="'acme/flag'"):
        start(sealed({}))


def test_extensions_that_are_no_object_are_still_refused_by_name() -> None:
    """Defaults do not paper over a wrong value."""
    with pytest.raises(StartRefused, match="'extensions' is a list"):
        start({"input": "x", "extensions": []})


def test_our_own_extension_cannot_be_contradicted() -> None:
    """Agent, workspaces and tenant are said by their fields; the extension they make may be repeated, not changed."""
    own = start({"input": "x", "agent": "writer"}, {})
    assert start({"input": "x", "agent": "writer", "extensions": own}, {}) == own
    with pytest.raises(StartRefused, match="the fields agent, workspace"):
        start({"input": "x", "extensions": own}, {})
