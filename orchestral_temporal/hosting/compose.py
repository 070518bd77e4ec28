"""Composition: settings, or agents that a user's own code declares, become what workers are built from."""

import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final, Protocol, assert_never, runtime_checkable

import yaml

from orchestral_temporal.adapters.models.offline import OfflineModel
from orchestral_temporal.adapters.tools.functions import function_tool, load_function
from orchestral_temporal.adapters.tools.workspace import workspace_tools
from orchestral_temporal.api import Agent, Approval
from orchestral_temporal.hosting.artifacts import artifact_store
from orchestral_temporal.hosting.governed import governed
from orchestral_temporal.hosting.loading import resolve_secret
from orchestral_temporal.hosting.settings import (
    AgentSettings,
    LimitSettings,
    ModelSettings,
    OfflineModelSettings,
    OpenAIModelSettings,
    ScriptedModelSettings,
    Settings,
)
from orchestral_temporal.hosting.values import BUILTIN_TOOLS, python_tool
from orchestral_temporal.ports import ArtifactStore, ModelBackend, Tool
from orchestral_temporal.protocol.activities import Queues, Role, Timeouts
from orchestral_temporal.protocol.errors import WordError
from orchestral_temporal.protocol.limits import RunLimits
from orchestral_temporal.protocol.price import ModelCostPolicy
from orchestral_temporal.protocol.retry import ModelRetryPolicy
from orchestral_temporal.runtime.agents import (
    CONTEXT_TOKENS,
    DEFAULT_INSTRUCTIONS,
    OUTPUT_TOKENS,
    AgentPlan,
    HostedAgent,
    host,
)
from orchestral_temporal.temporal.worker import WorkerSettings
from orchestral_temporal.testing.scripted import ScriptedModel, load_scenario, load_script

ALL_ROLES: Final = tuple(Role)


@runtime_checkable
class Closes(Protocol):
    """A backend that holds connections."""

    async def close(self) -> None:
        """Give them back."""
        ...


@dataclass(frozen=True)
class Composition:
    """All that workers are built from; `models` are the backends to close when they have stopped."""

    agents: Mapping[str, HostedAgent]
    models: Sequence[ModelBackend]
    settings: WorkerSettings
    artifacts: ArtifactStore

    async def close(self) -> None:
        """Close every backend that holds something."""
        await close_models(self.models)


def compose(
    settings: Settings,
    namespace: str,
    *,
    roles: Collection[Role] = ALL_ROLES,
    workspaces: Sequence[Path] = (),
) -> Composition:
    """Build what the settings declare, as far as these roles need it: only the model's role needs a secret.

    Args:
        settings: The file.
        namespace: Where the runs are; part of each agent's binding.
        roles: What this process serves.
        workspaces: Folders that every agent may work in besides those of its policy.

    Raises:
        SettingsError: something that the file names cannot be had: a secret, a script, a tool.
    """
    _reach(settings.folder)
    hosted: dict[str, HostedAgent] = {}
    models: list[ModelBackend] = []
    for name, agent in settings.agents.items():
        backend = _model(settings, name, agent.model) if Role.MODEL in roles else None
        models.extend([backend] if backend is not None else [])
        plan = _plan(settings, name, agent, backend, workspaces)
        try:
            hosted[name] = host(plan, namespace, roles)
        except WordError as error:
            raise settings.problem(("agents", name, "tools"), _rest(error)) from None
    return Composition(hosted, models, _worker_settings(settings), artifact_store(settings))


def compose_agents(agents: Sequence[Agent], namespace: str) -> Mapping[str, HostedAgent]:
    """Agents of a user's own code, hosted by name.

    Raises:
        ValueError: two agents share a name, or a workspace is no folder.
        WordError: a tool cannot be one; the sentence names it.
    """
    if len({agent.name for agent in agents}) < len(agents):
        raise ValueError("Two agents have the same name; give each its own.")
    return {agent.name: host(_declared(agent), namespace) for agent in agents}


async def close_models(models: Iterable[ModelBackend]) -> None:
    """Close the backends that hold something, each once."""
    for model in {id(each): each for each in models}.values():
        if isinstance(model, Closes):
            await model.close()


def _declared(agent: Agent) -> AgentPlan:
    window = agent.model.descriptor.capabilities.max_context_tokens
    cap = getattr(agent.model, "max_output_tokens", None)
    tools = [_tool(each) for each in agent.tools]
    return AgentPlan(
        name=agent.name,
        backend=agent.model,
        tools=[governed(each, agent.policy.approval) for each in tools],
        instructions=agent.instructions or DEFAULT_INSTRUCTIONS,
        roots=tuple(_folder(agent.name, each) for each in agent.policy.workspaces),
        ceilings=agent.limits,
        run_limits=agent.run_limits,
        context_tokens=window or CONTEXT_TOKENS,
        max_output_tokens=cap or OUTPUT_TOKENS,
        price=agent.price,
    )


def _tool(given: Callable[..., object] | Tool) -> Tool:
    return function_tool(given) if callable(given) else given


def _folder(agent: str, given: str | Path) -> Path:
    folder = Path(given).expanduser().resolve()
    if not folder.is_dir():
        raise ValueError(f"`workspaces` of agent {agent!r} names {str(given)!r}, which is no folder; give one that is.")
    return folder


def _plan(
    settings: Settings, name: str, agent: AgentSettings, backend: ModelBackend | None, workspaces: Sequence[Path]
) -> AgentPlan:
    price = agent.model.price
    roots = [folder.resolve() for folder in (*agent.policy.workspaces, *workspaces)]
    return AgentPlan(
        name=name,
        backend=backend,
        tools=_tools(settings, name, agent),
        instructions=agent.instructions or DEFAULT_INSTRUCTIONS,
        roots=tuple(dict.fromkeys(roots)),
        ceilings=_limits(agent.limits),
        run_limits=_limits(agent.run_limits),
        strict_calls=agent.strict_calls,
        input_requests=agent.input_requests,
        context_tokens=agent.model.context_tokens,
        max_output_tokens=agent.model.max_output_tokens,
        retry=ModelRetryPolicy.model_validate(agent.model.retry.model_dump()),
        retry_after_cap_ms=agent.model.retry_after_cap_ms,
        price=None if price is None else ModelCostPolicy.model_validate(price.model_dump()),
    )


def _limits(given: LimitSettings) -> RunLimits:
    return RunLimits.model_validate(given.model_dump())


def _tools(settings: Settings, name: str, agent: AgentSettings) -> list[Tool]:
    built = workspace_tools()
    rules = _rules(agent.policy.approval)
    tools: dict[str, Tool] = {}
    for index, word in enumerate(agent.tools):
        own = python_tool(word)
        if own is None:
            tools.update({shown: governed(built[shown], rules) for shown in BUILTIN_TOOLS[word]})
            continue
        try:
            tool = load_function(word)
        except WordError as error:
            raise settings.problem(("agents", name, "tools", index), _rest(error)) from None
        # The policy names the function, which need not be the name that its author shows to the model.
        shown = tool.descriptor.model_schema.name
        tools[word] = governed(tool, {shown: rules[own[1]], **rules} if own[1] in rules else rules)
    return list(tools.values())


def _rules(given: Mapping[str, Approval]) -> dict[str, Approval]:
    """The rules by the names that the model sees; what is said of one tool counts more than what is said of several."""
    named = {word: BUILTIN_TOOLS.get(word, (word,)) for word in given}
    ordered = sorted(given, key=lambda word: len(named[word]), reverse=True)
    return {shown: given[word] for word in ordered for shown in named[word]}


def _rest(error: WordError) -> str:
    return f"cannot be used. {error.message.rstrip('.?')}"


def _model(settings: Settings, name: str, given: ModelSettings) -> ModelBackend:
    match given:
        case OfflineModelSettings():
            return OfflineModel()
        case OpenAIModelSettings():
            return _openai(settings, name, given)
        case ScriptedModelSettings():
            return _scripted(settings, name, given)
        case _:
            assert_never(given)


def _openai(settings: Settings, name: str, given: OpenAIModelSettings) -> ModelBackend:
    from orchestral_temporal.adapters.models.openai import OpenAIModel  # noqa: PLC0415 -- a second, for those who use it

    key = None if given.api_key is None else resolve_secret(given.api_key).get_secret_value()
    try:
        return OpenAIModel(
            given.model,
            api_key=key,
            base_url=given.base_url,
            context_tokens=given.context_tokens,
            max_output_tokens=given.max_output_tokens,
            call_ids=given.call_ids,
        )
    except ValueError as error:
        raise settings.problem(("agents", name, "model"), f"cannot be used. {error}".removesuffix(".")) from None


def _scripted(settings: Settings, name: str, given: ScriptedModelSettings) -> ModelBackend:
    read = load_scenario if given.scenario is not None else load_script
    path = given.scenario or given.script
    assert path is not None
    try:
        return ScriptedModel(read(path), redispatchable=given.redispatchable)
    except (ValueError, OSError, yaml.YAMLError) as error:
        first = str(error).partition("\n")[0].removesuffix(".")
        raise settings.problem(("agents", name, "model"), f"cannot be used. {path}: {first}") from None


def _worker_settings(settings: Settings) -> WorkerSettings:
    queues, times = settings.queues, settings.timeouts
    return WorkerSettings(
        queues=Queues(runs=queues.runs, models=queues.models, tools=queues.tools),
        timeouts=Timeouts(
            heartbeat_ms=_ms(times.heartbeat),
            fenced_heartbeat_ms=_ms(times.fenced_heartbeat),
            uncertainty_grace_ms=_ms(times.uncertainty_grace),
            live_text_ms=_ms(settings.live_text) if settings.live_text is not None else None,
        ),
        sticky=times.sticky,
    )


def _ms(duration: timedelta) -> int:
    return max(1, duration // timedelta(milliseconds=1))


def _reach(folder: Path) -> None:
    """Let `python:module:function` find modules beside the file and in the working directory, after all others.

    At the end of the path a `random.py` of the user's hides no module of Python's.
    """
    for place in (str(folder), str(Path.cwd())):
        if place not in sys.path:
            sys.path.append(place)
