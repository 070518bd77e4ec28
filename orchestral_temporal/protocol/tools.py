"""Tools: what one declares of itself, what it is asked, how it ends (`spec/tools.md` §1 to §6, §15)."""

from enum import StrEnum
from typing import Annotated, Final, Literal

from pydantic import Field

from orchestral_temporal.protocol.base import (
    U64,
    Json,
    JsonObject,
    OrderedSet,
    SpeltOutWord,
    TextSet,
    Word,
    object_or,
)
from orchestral_temporal.protocol.content import ArtifactRefWithDigest
from orchestral_temporal.protocol.errors import require
from orchestral_temporal.protocol.ids import is_blank
from orchestral_temporal.protocol.validation import (
    require_filled,
    require_positive,
    require_sha256,
    require_text,
    validate,
)


class EffectScope(StrEnum):
    """What a tool may touch; the order of declaration is the order on the wire."""

    PROCESS = "process"
    NETWORK = "network"
    FILESYSTEM_READ = "filesystem_read"
    FILESYSTEM_WRITE = "filesystem_write"
    ARTIFACT_READ = "artifact_read"
    SESSION_READ = "session_read"
    ENVIRONMENT_READ = "environment_read"
    SECRET_READ = "secret_read"  # noqa: S105 -- the name of an effect, not a secret
    EXTERNAL_SIDE_EFFECT = "external_side_effect"
    HOST_EXECUTION = "host_execution"


EffectSet = Annotated[tuple[EffectScope, ...], OrderedSet]


class ApprovalPolicy(StrEnum):
    """Whether a person must allow a call."""

    NOT_REQUIRED = "not_required"
    REQUIRED = "required"
    DENY = "deny"


class ToolIdempotency(StrEnum):
    """What a second execution of one call would do."""

    PURE = "pure"
    IDEMPOTENT = "idempotent"
    IDEMPOTENT_WITH_KEY = "idempotent_with_key"
    NON_IDEMPOTENT = "non_idempotent"


FENCED: Final = (ToolIdempotency.NON_IDEMPOTENT, ToolIdempotency.IDEMPOTENT_WITH_KEY)
"""Classes whose calls go on record before they begin: running one of them again is not nothing (decision 15)."""


class ToolConcurrency(StrEnum):
    """What may run beside a call of this tool."""

    PARALLEL_SAFE = "parallel_safe"
    PER_RUN_SERIAL = "per_run_serial"
    GLOBAL_SERIAL = "global_serial"


class ToolOperationRisk(StrEnum):
    """How much a call may destroy."""

    ROUTINE = "routine"
    ELEVATED = "elevated"
    DESTRUCTIVE = "destructive"


class ToolProtocolErrorCode(StrEnum):
    """What is wrong with a tool's words or with an approval."""

    INVALID_DESCRIPTOR = "invalid_descriptor"
    INVALID_INVOCATION = "invalid_invocation"
    INVALID_POLICY = "invalid_policy"
    SCHEMA_VIOLATION = "schema_violation"
    POLICY_DENIED = "policy_denied"
    SERIALIZATION = "serialization"
    INVALID_CAPABILITY = "invalid_capability"
    CAPABILITY_EXPIRED = "capability_expired"
    CAPABILITY_BINDING_MISMATCH = "capability_binding_mismatch"
    CAPABILITY_REPLAYED = "capability_replayed"
    STORE_FAILURE = "store_failure"


class ToolProtocolError(Word):
    """A tool error as a value."""

    code: ToolProtocolErrorCode
    message: str


Schema = Annotated[JsonObject, object_or(ToolProtocolErrorCode.INVALID_DESCRIPTOR)]
"""A JSON Schema: what it may say is judged when the tool is registered."""


class SandboxPolicy(SpeltOutWord):
    """Sandbox profiles a call may use."""

    spelt_out = ("required",)

    required: bool = False
    allowed_profiles: TextSet = ()


class InteractiveCommandPolicy(SpeltOutWord):
    """Commands through a shell."""

    spelt_out = ("enabled", "allow_child_processes")

    enabled: bool = False
    command_shells: TextSet = ()
    allow_child_processes: bool = False


class TransportLaunchPolicy(Word):
    """Programs started as a transport."""

    allowed_programs: TextSet = ()
    allow_child_processes: bool = False


class ProcessPolicy(SpeltOutWord):
    """What processes a call may start."""

    spelt_out = ("interactive", "transport")

    interactive: InteractiveCommandPolicy = InteractiveCommandPolicy()
    transport: TransportLaunchPolicy = TransportLaunchPolicy()


class FilesystemPolicy(Word):
    """Absolute folders a call may read and write below."""

    readable_roots: TextSet = ()
    writable_roots: TextSet = ()


class NetworkPolicy(Word):
    """Network targets a call may reach."""

    allowed_targets: TextSet = ()
    allow_unrestricted: bool = False


class EnvironmentPolicy(SpeltOutWord):
    """Environment variables a call may read."""

    spelt_out = ("inherit_host_environment",)

    allowed_variables: TextSet = ()
    inherit_host_environment: bool = False


class ToolPolicyBounds(SpeltOutWord):
    """A policy ceiling; time in milliseconds, output in bytes of canonical JSON, null is unbounded."""

    spelt_out = ("approval", "sandbox", "process", "filesystem", "network", "environment")

    allowed_effects: EffectSet = ()
    approval: ApprovalPolicy = ApprovalPolicy.DENY
    sandbox: SandboxPolicy = SandboxPolicy()
    process: ProcessPolicy = ProcessPolicy()
    filesystem: FilesystemPolicy = FilesystemPolicy()
    network: NetworkPolicy = NetworkPolicy()
    environment: EnvironmentPolicy = EnvironmentPolicy()
    allowed_credentials: TextSet = ()
    max_timeout_ms: U64 | None = None
    max_output_bytes: U64 | None = None


class HostToolPolicy(Word):
    """The host's ceiling for all runs."""

    bounds: ToolPolicyBounds


class RunToolGrant(Word):
    """What a run is granted."""

    bounds: ToolPolicyBounds


class ToolRestriction(Word):
    """A tool's own ceiling."""

    bounds: ToolPolicyBounds


class ModelToolSchema(Word):
    """The only part of a tool that a model sees."""

    name: str
    description: str
    input_schema: Schema


class ToolDescriptor(Word):
    """A tool's declaration, part of the run's authority."""

    tool_id: str
    model_schema: ModelToolSchema
    output_schema: Schema
    effect_scopes: EffectSet = ()
    restriction: ToolRestriction
    idempotency: ToolIdempotency
    concurrency: ToolConcurrency


class ToolInvocation(Word):
    """One call: `call_id` is `<run>/m<round>/c<index>`, which is also the idempotency key (divergence 6)."""

    run_id: str
    call_id: str
    tool_id: str
    arguments: Annotated[JsonObject, object_or(ToolProtocolErrorCode.INVALID_INVOCATION)]


class InlineOutput(Word):
    """A tool's output carried as it is."""

    kind: Literal["inline"] = "inline"
    value: Json


class ToolArtifact(Word):
    """An output kept in the artifact store; `byte_size` counts its canonical JSON."""

    artifact: ArtifactRefWithDigest
    media_type: str
    byte_size: U64
    summary: str


class ArtifactOutput(Word):
    """A tool's output too large to be carried."""

    kind: Literal["artifact"] = "artifact"
    value: ToolArtifact


ToolOutput = Annotated[InlineOutput | ArtifactOutput, Field(discriminator="kind")]


class Completed(Word):
    """The tool ran and answered."""

    status: Literal["completed"] = "completed"
    output: ToolOutput


class Rejected(Word):
    """The call was refused before anything ran; code and message are not blank."""

    status: Literal["rejected"] = "rejected"
    code: str
    message: str


class Failed(Word):
    """The tool ran and failed; `retryable` is information for the model only."""

    status: Literal["failed"] = "failed"
    code: str
    message: str
    retryable: bool


class Cancelled(Word):
    """The call was cancelled and certainly had no effect."""

    status: Literal["cancelled"] = "cancelled"


class UnknownEffect(Word):
    """Nobody can say whether the effect happened; it is never retried."""

    status: Literal["unknown_effect"] = "unknown_effect"
    message: str


ToolOutcome = Annotated[
    Completed | Rejected | Failed | Cancelled | UnknownEffect,
    Field(discriminator="status"),
]


def _require_invocation_text(name: str, text: str) -> None:
    require_text(name, text, ToolProtocolErrorCode.INVALID_INVOCATION)


@validate.register
def _(bounds: ToolPolicyBounds) -> None:
    require_positive(
        ToolProtocolErrorCode.INVALID_POLICY,
        max_timeout_ms=bounds.max_timeout_ms,
        max_output_bytes=bounds.max_output_bytes,
    )
    sets = {
        "sandbox.allowed_profiles": bounds.sandbox.allowed_profiles,
        "process.interactive.command_shells": bounds.process.interactive.command_shells,
        "process.transport.allowed_programs": bounds.process.transport.allowed_programs,
        "filesystem.readable_roots": bounds.filesystem.readable_roots,
        "filesystem.writable_roots": bounds.filesystem.writable_roots,
        "network.allowed_targets": bounds.network.allowed_targets,
        "environment.allowed_variables": bounds.environment.allowed_variables,
        "allowed_credentials": bounds.allowed_credentials,
    }
    for name, members in sets.items():
        require(
            not any(map(is_blank, members)),
            ToolProtocolErrorCode.INVALID_POLICY,
            f"`{name}` has a blank entry; leave it out.",
        )


@validate.register
def _(schema: ModelToolSchema) -> None:
    require_text("name", schema.name, ToolProtocolErrorCode.INVALID_DESCRIPTOR)
    require_text("description", schema.description, ToolProtocolErrorCode.INVALID_DESCRIPTOR)


@validate.register
def _(descriptor: ToolDescriptor) -> None:
    require_text("tool_id", descriptor.tool_id, ToolProtocolErrorCode.INVALID_DESCRIPTOR)
    validate(descriptor.model_schema)
    validate(descriptor.restriction.bounds)
    allowed = descriptor.restriction.bounds.allowed_effects
    require(
        all(effect in allowed for effect in descriptor.effect_scopes),
        ToolProtocolErrorCode.INVALID_DESCRIPTOR,
        "`effect_scopes` goes beyond `restriction.bounds.allowed_effects`; allow the effect there too.",
    )


@validate.register
def _(invocation: ToolInvocation) -> None:
    require_filled("run_id", invocation.run_id, ToolProtocolErrorCode.INVALID_INVOCATION)
    _require_invocation_text("call_id", invocation.call_id)
    _require_invocation_text("tool_id", invocation.tool_id)


@validate.register
def _(artifact: ToolArtifact) -> None:
    _require_invocation_text("artifact_ref", artifact.artifact.artifact_ref)
    require_sha256("digest", artifact.artifact.digest, ToolProtocolErrorCode.INVALID_INVOCATION)
    _require_invocation_text("media_type", artifact.media_type)
    _require_invocation_text("summary", artifact.summary)
    require_positive(ToolProtocolErrorCode.INVALID_INVOCATION, byte_size=artifact.byte_size)


@validate.register
def _(outcome: Rejected | Failed) -> None:
    _require_invocation_text("code", outcome.code)
    _require_invocation_text("message", outcome.message)


@validate.register
def _(outcome: UnknownEffect) -> None:
    _require_invocation_text("message", outcome.message)
