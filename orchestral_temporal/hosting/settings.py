"""What the settings file may say, as frozen models; `loading` reads the file and names its lines."""

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Literal, Self, cast

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, model_validator

from orchestral_temporal.hosting.values import (
    BUILTIN_TOOLS,
    LATER_TOOLS,
    WRITING_TOOLS,
    Address,
    Amount,
    Count,
    Currency,
    Database,
    Duration,
    DurationOrOff,
    File,
    Folder,
    Name,
    NoSkills,
    PortOrOff,
    Scalar,
    Secret,
    Store,
    Tool,
    Url,
    fault,
    kind_of,
    python_tool,
)
from orchestral_temporal.hosting.yaml_file import SettingsError, SettingsFile


class Section(BaseModel):
    """A mapping of the file: frozen, closed, and no value is bent into another type."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown_keys(cls, data: object) -> object:
        # pydantic would refuse them too, but does not say which keys are allowed.
        if isinstance(data, cls):
            return data
        if not isinstance(data, dict):
            raise fault(f"must be a mapping, not {kind_of(data)}")
        unknown = [(str(key),) for key in cast("Mapping[object, object]", data) if key not in cls.model_fields]
        if unknown:
            raise fault(f"is no key here; allowed: {', '.join(cls.model_fields)}", *unknown)
        return cast("object", data)


class ServerSettings(Section):
    """The embedded server: `db` absent keeps runs in memory, `ui_port: false` starts no UI."""

    db: Database | None = None
    retention: Duration = timedelta(hours=720)
    ui_port: PortOrOff = 8233
    sqlite_pragma: Mapping[Name, Scalar] = {}
    dynamic_config: Mapping[Name, Scalar] = {}


class TemporalSettings(Section):
    """Which server and namespace; `TEMPORAL_*` and `temporal.toml` go before these."""

    address: Address = "127.0.0.1:7233"
    namespace: Name = "default"
    grpc_compression: Literal["auto", "gzip", "none"] = "auto"
    server: ServerSettings = ServerSettings()


class QueueSettings(Section):
    """Task queues by role."""

    runs: Name = "orchestral"
    models: Name = "orchestral"
    tools: Name = "orchestral"


class TimeoutSettings(Section):
    """How soon a silent worker counts as lost (decisions 16 and 17)."""

    heartbeat: Duration = timedelta(seconds=5)
    fenced_heartbeat: Duration = timedelta(seconds=10)
    uncertainty_grace: Duration = timedelta(seconds=30)
    sticky: Duration = timedelta(seconds=1)


class ApprovalSettings(Section):
    """Approval keys by key id, and the one that this machine signs with."""

    keys: Mapping[Name, Secret] = {}
    sign_with: Name | None = None

    @model_validator(mode="after")
    def _signer_is_known(self) -> Self:
        if self.sign_with is not None and self.sign_with not in self.keys:
            raise fault(f"must be one of the names under keys: {', '.join(self.keys) or 'none yet'}", ("sign_with",))
        return self


class RetrySettings(Section):
    """Further attempts at a model that is busy or not there: how many, and the pause, doubled up to the maximum."""

    max_retries: Annotated[int, Field(ge=0, le=2**32 - 1)] = 3
    base_delay_ms: Annotated[int, Field(ge=1, le=60_000)] = 500
    max_delay_ms: Annotated[int, Field(ge=1, le=60_000)] = 8_000

    @model_validator(mode="after")
    def _delays_rise(self) -> Self:
        if self.base_delay_ms > self.max_delay_ms:
            raise fault(f"must be at most max_delay_ms, {self.max_delay_ms}", ("base_delay_ms",))
        return self


class PriceSettings(Section):
    """What a million tokens cost, in millionths of a unit of the currency: 3 USD are 3000000."""

    currency: Currency
    input_microunits_per_million_tokens: Amount
    output_microunits_per_million_tokens: Amount

    @model_validator(mode="after")
    def _costs_something(self) -> Self:
        if not self.input_microunits_per_million_tokens + self.output_microunits_per_million_tokens:
            raise fault("must have one price above 0; leave it out for a model that costs nothing")
        return self


class MoneySettings(Section):
    """An amount of money, in millionths of a unit of the currency."""

    currency: Currency
    microunits: Count


class AnyModel(Section):
    """What every model has: its window and the cap of one answer in tokens (answer 1), and what becomes of failures.

    A provider that asks for a longer pause gets it, up to `retry_after_cap_ms` (divergence 7). With a `price` every run
    says what it has cost, and may have a limit of that.
    """

    context_tokens: Count = 131_072
    max_output_tokens: Count = 4_096
    retry: RetrySettings = RetrySettings()
    retry_after_cap_ms: Annotated[int, Field(ge=1, le=600_000)] = 60_000
    price: PriceSettings | None = None

    @model_validator(mode="after")
    def _answer_fits(self) -> Self:
        if self.max_output_tokens >= self.context_tokens:
            raise fault(f"must be below context_tokens, {self.context_tokens}", ("max_output_tokens",))
        return self


class OfflineModelSettings(AnyModel):
    """The built-in model that needs no network."""

    adapter: Literal["offline"] = "offline"


class OpenAIModelSettings(AnyModel):
    """A model behind an OpenAI-compatible endpoint; without `api_key` the adapter finds its own.

    `call_ids: short9` is for endpoints that take call ids of nine letters and digits only (F077).
    """

    adapter: Literal["openai"] = "openai"
    model: Name
    base_url: Url | None = None
    api_key: Secret | None = None
    call_ids: Literal["as_is", "short9"] = "as_is"


class ScriptedModelSettings(AnyModel):
    """A model that plays rounds from a file (answer 14)."""

    adapter: Literal["scripted"] = "scripted"
    script: File | None = None
    scenario: File | None = None
    redispatchable: bool = False

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.script is None) == (self.scenario is None):
            raise fault("needs script or scenario, one of the two")
        return self


ModelSettings = Annotated[
    OfflineModelSettings | OpenAIModelSettings | ScriptedModelSettings, Field(discriminator="adapter")
]


class PolicySettings(Section):
    """What the host allows: folders, network, and who is asked before a tool runs."""

    workspaces: tuple[Folder, ...] = ()
    network: Literal["deny", "allow"] = "deny"
    approval: Mapping[Name, Literal["never", "ask", "deny"]] = {}


class LimitSettings(Section):
    """The host's ceiling for every run."""

    max_model_steps: Count | None = None
    max_tool_calls: Count | None = None


class RunLimitSettings(LimitSettings):
    """A run's limits where it brings none of its own."""

    max_input_tokens: Count | None = None
    max_output_tokens: Count | None = None
    max_cost: MoneySettings | None = None


class AgentSettings(Section):
    """One agent."""

    model: ModelSettings = OfflineModelSettings()
    instructions: str | None = None
    tools: tuple[Tool, ...] = ()
    policy: PolicySettings = PolicySettings()
    limits: LimitSettings = LimitSettings()
    run_limits: RunLimitSettings = RunLimitSettings()
    skills: NoSkills = ()
    input_requests: bool = False
    strict_calls: bool = False

    @property
    def builtin_tools(self) -> tuple[str, ...]:
        """Names that the model sees of the shipped tools, in order, each once."""
        return tuple(dict.fromkeys(name for word in self.tools for name in BUILTIN_TOOLS.get(word, ())))

    @property
    def python_tools(self) -> tuple[tuple[str, str], ...]:
        """Module and function of the user's own tools, in order, each once."""
        return tuple(dict.fromkeys(found for word in self.tools if (found := python_tool(word))))

    @model_validator(mode="after")
    def _costs_have_a_price(self) -> Self:
        cost, price = self.run_limits.max_cost, self.model.price
        if cost is not None and (price is None or price.currency != cost.currency):
            wanted = (
                "needs the key price in model" if price is None else f"must be in {price.currency}, as the price is"
            )
            raise fault(wanted, ("run_limits", "max_cost"))
        return self

    @model_validator(mode="after")
    def _writing_has_a_folder(self) -> Self:
        writing = [word for word in self.tools if word in WRITING_TOOLS]
        if writing and not self.policy.workspaces:
            raise fault(f"must name a folder in which {writing[0]} may write", ("policy", "workspaces"))
        return self

    @model_validator(mode="after")
    def _approvals_name_tools(self) -> Self:
        # A rule for a misspelt tool would silently protect nothing.
        own = [function for _, function in self.python_tools]
        known = [*BUILTIN_TOOLS, *LATER_TOOLS, *own]
        for name in self.policy.approval:
            if name not in known:
                raise fault(f"names no tool; allowed: {', '.join(known)}", ("policy", "approval", name))
        return self


class Settings(Section):
    """The whole file."""

    temporal: TemporalSettings = TemporalSettings()
    queues: QueueSettings = QueueSettings()
    artifacts: Annotated[Store, Field(validate_default=True)] = Path(".orchestral/artifacts")
    approvals: ApprovalSettings = ApprovalSettings()
    timeouts: TimeoutSettings = TimeoutSettings()
    live_text: DurationOrOff = timedelta(seconds=1)
    agents: Annotated[Mapping[Name, AgentSettings], Field(min_length=1)]

    _file: SettingsFile | None = PrivateAttr(default=None)

    def model_post_init(self, context: object, /) -> None:
        """Keep the file at hand for `problem`."""
        self._file = context if isinstance(context, SettingsFile) else None

    @property
    def path(self) -> Path | None:
        """The file; none for settings that were made in memory."""
        return self._file.path if self._file is not None else None

    @property
    def folder(self) -> Path:
        """Where relative paths of the file begin."""
        return self._file.base if self._file is not None else Path.cwd()

    def problem(self, at: tuple[str | int, ...], message: str) -> SettingsError:
        """A fault found after loading, such as a tool that cannot be imported, with its file and line.

        Args:
            at: The path to the value, such as `("agents", "default", "tools", 0)`.
            message: The rest of the sentence, such as `names no function`.
        """
        file = self._file or SettingsFile(Path("settings"), Path(), None, {})
        return SettingsError([file.sentence(at, message)])
