"""`orchestral doctor`: what a run needs, whether it is there, and what to do if it is not."""

import os
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Final

from temporalio.client import Client
from temporalio.service import RPCError

from orchestral_temporal.hosting.compose import compose
from orchestral_temporal.hosting.connection import ConnectionFailed, connect, resolve_target
from orchestral_temporal.hosting.loading import resolve_secret
from orchestral_temporal.hosting.namespace import check
from orchestral_temporal.hosting.pollers import queue_of, unserved
from orchestral_temporal.hosting.settings import AgentSettings, OpenAIModelSettings, Settings
from orchestral_temporal.hosting.yaml_file import SettingsError
from orchestral_temporal.protocol.activities import Role
from orchestral_temporal.temporal.listing import stuck_runs

SHOWN: Final = 10
"""Stuck runs that are named; behind many there is one cause."""


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at; `remedy` is there when it is not `good`."""

    about: str
    good: bool
    says: str
    remedy: str | None = None


async def examine(settings: Settings) -> AsyncIterator[Finding]:
    """Look at everything, the nearest things first; what needs a server is left out where there is none.

    Raises:
        SettingsError: `TEMPORAL_*` or `temporal.toml` cannot be used.
    """
    target = resolve_target(settings.temporal)
    for name, agent in settings.agents.items():
        yield _model(name, agent)
        yield _workspaces(name, agent)
    yield _tools(settings, target.namespace)
    try:
        client = await connect(settings.temporal, check_namespace=False)
    except ConnectionFailed as failed:
        yield Finding("server", good=False, says=str(failed), remedy=failed.hint)
        return
    yield Finding("server", good=True, says=f"Temporal answers at {target.address}.")
    try:
        async for finding in _on_server(client, settings):
            yield finding
    except ConnectionFailed as failed:
        yield Finding("namespace", good=False, says=str(failed), remedy=failed.hint)
    except RPCError as error:
        yield Finding("server", good=False, says=f"The server refuses: {error.message}.", remedy="See its log.")


async def _on_server(client: Client, settings: Settings) -> AsyncIterator[Finding]:
    state = await check(client, client.namespace)
    remedy = f"Run `orchestral setup --namespace {client.namespace}`."
    if not state.exists:
        yield Finding("namespace", good=False, says=f"There is no namespace {client.namespace}.", remedy=remedy)
        return
    hours = state.retention.total_seconds() / 3600 if state.retention is not None else 0
    yield Finding("namespace", good=True, says=f"{client.namespace} keeps closed runs for {hours:.0f} h.")
    wrong = [*state.missing, *state.mistyped]
    if wrong:
        yield Finding("attributes", good=False, says=f"Missing or of another type: {', '.join(wrong)}.", remedy=remedy)
    else:
        yield Finding("attributes", good=True, says="All search attributes are registered.")
    missing = await unserved(client, settings.queues)
    for queue, roles in _by_queue(settings):
        lacking = [role for role in roles if role in missing]
        if lacking:
            says = f"Nobody serves {', '.join(lacking)} on {queue}."
            yield Finding("queues", good=False, says=says, remedy="Run `orchestral worker` or `orchestral dev`.")
        else:
            yield Finding("queues", good=True, says=f"{queue} has workers for {', '.join(roles)}.")
    yield await _stuck(client)


def _by_queue(settings: Settings) -> Iterator[tuple[str, list[Role]]]:
    queues: dict[str, list[Role]] = {}
    for role in Role:
        queues.setdefault(queue_of(settings.queues, role), []).append(role)
    yield from queues.items()


async def _stuck(client: Client) -> Finding:
    found = [each async for each in stuck_runs(client, SHOWN)]
    if not found:
        return Finding("runs", good=True, says="No run or session is stuck.")
    says = " ".join(f"{each.workflow_id}: {each.why}." for each in found)
    return Finding(
        "runs", good=False, says=says, remedy="See the workers' logs; each goes on by itself once that is mended."
    )


def _model(name: str, agent: AgentSettings) -> Finding:
    about, model = f"model of {name}", agent.model
    if not isinstance(model, OpenAIModelSettings):
        return Finding(about, good=True, says=f"{model.adapter} needs no key.")
    try:
        if model.api_key is not None:
            resolve_secret(model.api_key)
    except SettingsError as error:
        return Finding(about, good=False, says=str(error), remedy="Set it where the model's worker runs.")
    if model.api_key is None and not os.environ.get("OPENAI_API_KEY"):
        remedy = "Export OPENAI_API_KEY where the model's worker runs, or set api_key."
        return Finding(about, good=False, says="There is no key.", remedy=remedy)
    return Finding(about, good=True, says=f"{model.model} has its key.")


def _workspaces(name: str, agent: AgentSettings) -> Finding:
    about = f"workspaces of {name}"
    if agent.builtin_tools and not agent.policy.workspaces:
        remedy = "Name folders in policy.workspaces."
        return Finding(about, good=False, says="None, so that its file tools can read nothing.", remedy=remedy)
    closed = [str(each) for each in agent.policy.workspaces if not os.access(each, os.R_OK | os.X_OK)]
    if closed:
        return Finding(about, good=False, says=f"Cannot be read: {', '.join(closed)}.", remedy="Give us the right to.")
    return Finding(about, good=True, says=", ".join(str(each) for each in agent.policy.workspaces) or "none needed")


def _tools(settings: Settings, namespace: str) -> Finding:
    try:
        compose(settings, namespace, roles=(Role.RUN, Role.TOOLS))
    except SettingsError as error:
        return Finding(
            "tools", good=False, says=str(error), remedy="Mend it, or run this where the tools' worker runs."
        )
    return Finding("tools", good=True, says="All can be loaded.")
