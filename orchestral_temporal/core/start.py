"""The start argument of a run: a full wire envelope or the short form, sealed to one spec (`answers.md` 6, F133)."""

import json
from collections.abc import Mapping
from typing import Final

from orchestral_temporal.core.limits import (
    NAME_BYTES,
    PATH_BYTES,
    RUN_ID_BYTES,
    SESSION_ID_BYTES,
    START_BYTES,
    WORKSPACES,
)
from orchestral_temporal.protocol.content import Content, text_content
from orchestral_temporal.protocol.digest import exact_digest
from orchestral_temporal.protocol.errors import AgentRejection, AgentRejectionCode, ProtocolError
from orchestral_temporal.protocol.limits import RunLimits
from orchestral_temporal.protocol.run import (
    AgentRunEnvelope,
    AgentRunSpec,
    AgentStartRequest,
    ProtocolVersion,
    seal,
)
from orchestral_temporal.protocol.words import Json, JsonObject, Word, dump, kind_of, parse_json, parse_value

START_EXTENSION: Final = "orchestral-temporal/start.v1"
"""Run extension with what the wire has no field for: agent, workspaces, tenant. Part of the spec, so of its digest."""

SHORT_KEYS: Final = (
    "input",
    "agent",
    "session_id",
    "limits",
    "workspace",
    "additional_workspaces",
    "tenant",
    "extensions",
)


class StartRefused(Exception):  # noqa: N818 -- a refusal is an answer, not an error of ours
    """A start that creates nothing: no journal, no lock (`answers.md` 7)."""

    def __init__(self, rejection: AgentRejection) -> None:
        super().__init__(rejection.message)
        self.rejection = rejection


def start_refused(message: str, code: AgentRejectionCode = AgentRejectionCode.INVALID_SPEC) -> StartRefused:
    """A refusal with a one-sentence reason."""
    return StartRefused(AgentRejection(code=code, message=message, retryable=False))


class StartOptions(Word):
    """The value of the start extension."""

    agent: str = "default"
    workspace: str | None = None
    additional_workspaces: tuple[str, ...] = ()
    tenant: str | None = None


class Start(Word):
    """A sealed start: what the run is, and who shall run it where."""

    envelope: AgentRunEnvelope
    options: StartOptions
    provider_binding: str | None = None
    expected_descriptor_digest: str | None = None

    @property
    def run_id(self) -> str:
        """The run's id, which is its workflow id."""
        return self.envelope.spec.run_id

    @property
    def session_id(self) -> str:
        """The session's id."""
        return self.envelope.spec.session_id

    @property
    def workspaces(self) -> tuple[str, ...]:
        """The folders asked for, the primary one first; empty means the agent's own."""
        first = (self.options.workspace,) if self.options.workspace is not None else ()
        return (*first, *self.options.additional_workspaces)


def read_start(value: Json, run_id: str) -> Start:
    """Seal a start argument for the workflow `run_id`.

    Raises:
        StartRefused: the argument is none of the three forms, or one of its fields is wrong; the message names it.
    """
    value = _json(value)
    if not isinstance(value, dict):
        raise start_refused(
            f"The start argument is {kind_of(value)}; give one JSON object, such as {{'input': 'your task'}}."
        )
    check_id("run id", run_id, RUN_ID_BYTES)
    try:
        start = _full_form(value) if "run" in value or "spec" in value else _short_form(value, run_id)
    except ProtocolError as fault:
        raise start_refused(fault.error.message) from fault
    if start.run_id != run_id:
        raise start_refused(
            f"spec.run_id is not the workflow id {run_id!r}; start the workflow with the id of the run."
        )
    check_id("session id", start.session_id, SESSION_ID_BYTES)
    _check_options(start.options)
    return start


def with_extensions(value: JsonObject, defaults: JsonObject) -> JsonObject:
    """A short form with the extensions that its host puts on every run, where the run has none of its own (A4).

    A sealed form comes back as it is, and so does one whose extensions `read_start` refuses.
    """
    own = value.get("extensions")
    if "run" in value or "spec" in value or not (own is None or isinstance(own, dict)):
        return value
    return {**value, "extensions": {**defaults, **(own or {})}} if defaults else value


def require_extensions(start: Start, defaults: JsonObject) -> None:
    """Check that a run carries what its host puts on every run (A4).

    Raises:
        StartRefused: it has another value for one of the extensions, or was sealed without it.
    """
    own = start.envelope.spec.extensions
    for key, value in defaults.items():
        if key not in own or exact_digest(own[key]) != exact_digest(value):
            raise start_refused(
                f"The field 'extensions' has another {key!r} than this client puts on every run, or none; "
                "give the same value, or start the run with another client."
            )


def _check_options(options: StartOptions) -> None:
    """What every activity of the run carries is bounded."""
    check_id("agent", options.agent, NAME_BYTES)
    if options.tenant is not None:
        check_id("tenant", options.tenant, NAME_BYTES)
    if len(options.additional_workspaces) >= WORKSPACES:
        raise start_refused(f"The run names more than {WORKSPACES} workspaces; name fewer, or one that holds them.")
    for folder in (options.workspace, *options.additional_workspaces):
        if folder is not None:
            check_id("workspace", folder, PATH_BYTES)


def _json(value: Json) -> Json:
    """The argument through our own door: what a payload converter let in may hold bytes, NaN or half a character."""
    try:
        text = json.dumps(value, allow_nan=False, ensure_ascii=False)
        size = len(text.encode("utf-8", "surrogatepass"))
        if size > START_BYTES:
            raise start_refused(
                f"The start argument has {size} bytes; at most {START_BYTES} are taken, so put the text into a file "
                "of the workspace and name it in the task."
            )
        return parse_json(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as fault:
        raise start_refused(f"The start argument is not JSON: {fault}.") from fault
    except ProtocolError as fault:
        raise start_refused(fault.error.message) from fault


def check_id(what: str, value: str, limit: int) -> None:
    """An id from outside (`answers.md` 11).

    Raises:
        StartRefused: blank, too long, with control characters, or in the session's own namespace.
    """
    if not value.strip():
        raise start_refused(f"The {what} is blank; give at least one visible character.")
    if len(value.encode("utf-8", "replace")) > limit:
        raise start_refused(f"The {what} is longer than {limit} bytes; choose a shorter one.")
    if not value.isprintable():
        raise start_refused(f"The {what} holds control or unprintable characters; use printable ones.")
    if value.startswith("session/"):
        raise start_refused(f"The {what} begins with 'session/', which names sessions; choose another.")


def _full_form(value: JsonObject) -> Start:
    if "run" in value:
        request = parse_value(AgentStartRequest, value)
        return Start(
            envelope=request.run,
            options=_options(request.run.spec.extensions),
            provider_binding=request.provider_binding,
            expected_descriptor_digest=request.expected_descriptor_digest,
        )
    envelope = parse_value(AgentRunEnvelope, value)
    return Start(envelope=envelope, options=_options(envelope.spec.extensions))


def _options(extensions: Mapping[str, Json]) -> StartOptions:
    given = extensions.get(START_EXTENSION)
    return StartOptions() if given is None else parse_value(StartOptions, given)


def _short_form(value: JsonObject, run_id: str) -> Start:
    unknown = [key for key in value if key not in SHORT_KEYS]
    if unknown:
        raise start_refused(f"Unknown field {unknown[0]!r}; the short form has {', '.join(SHORT_KEYS)}.")
    given = {key: each for key, each in value.items() if each is not None}
    if "input" not in given:
        raise start_refused("The field 'input' is missing; give the task as text or as a list of wire contents.")
    extensions = given.get("extensions", {})
    if not isinstance(extensions, dict):
        raise start_refused(f"The field 'extensions' is {kind_of(extensions)}; give an object of namespaced keys.")
    options = parse_value(
        StartOptions,
        {key: given[key] for key in ("agent", "workspace", "additional_workspaces", "tenant") if key in given},
    )
    written = dump(options)
    if exact_digest(extensions.get(START_EXTENSION, written)) != exact_digest(written):
        raise start_refused(
            f"The field 'extensions' has a {START_EXTENSION!r} of its own; "
            "give the fields agent, workspace, additional_workspaces and tenant, of which it is made."
        )
    spec = AgentRunSpec(
        protocol_version=ProtocolVersion(major=1, minor=0),
        session_id=_text(given.get("session_id", run_id), "session_id"),
        run_id=run_id,
        input=_input(given["input"]),
        limits=parse_value(RunLimits, _whole_numbers(given.get("limits", {}))),
        extensions={**extensions, START_EXTENSION: written},
    )
    return Start(envelope=seal(spec), options=options)


def _text(value: Json, name: str) -> str:
    if not isinstance(value, str):
        raise start_refused(f"The field {name!r} is {kind_of(value)}; give text.")
    return value


def _input(value: Json) -> tuple[Content, ...]:
    if isinstance(value, str):
        if not value:
            raise start_refused("The field 'input' is empty; give the task as text.")
        return (text_content(value),)
    if isinstance(value, list) and value:
        return tuple(parse_value(Content, each) for each in value)
    raise start_refused(f"The field 'input' is {kind_of(value)}; give text or a non-empty list of wire contents.")


def _whole_numbers(value: Json) -> Json:
    """People and some JSON writers say 3.0 for 3; the short form takes it (F133)."""
    if not isinstance(value, dict):
        return value
    return {
        key: int(each) if isinstance(each, float) and each.is_integer() else _whole_numbers(each)
        for key, each in value.items()
    }
