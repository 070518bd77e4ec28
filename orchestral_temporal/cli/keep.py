"""`dev`, `worker`, `agents`, `setup` and `doctor`: keeping the world in which runs live."""

from dataclasses import asdict

from orchestral_temporal.cli.screen import answer, answer_json, note
from orchestral_temporal.cli.settled import log_file
from orchestral_temporal.hosting.compose import compose
from orchestral_temporal.hosting.connection import connect, resolve_target
from orchestral_temporal.hosting.devserver import dev_server
from orchestral_temporal.hosting.doctor import Finding, examine
from orchestral_temporal.hosting.namespace import setup
from orchestral_temporal.hosting.process import FAULT, GOOD, NOT_READY, first_of, stop_signals
from orchestral_temporal.hosting.running import server_gone, serving, warn_of_attributes, work
from orchestral_temporal.hosting.settings import Settings
from orchestral_temporal.protocol.activities import Role
from orchestral_temporal.protocol.base import JsonObject
from orchestral_temporal.protocol.words import dump


async def keep_dev(settings: Settings) -> int:
    """Server, UI and workers until SIGINT or SIGTERM; prints where they are."""
    with stop_signals() as stop:
        async with dev_server(settings.temporal) as server:
            client = await connect(settings.temporal)
            await warn_of_attributes(client, note)
            async with serving(client, settings):
                here = "" if server.started else " (was there already)"
                answer(f"Server  {server.address}{here}")
                answer(f"UI      {server.ui_url or 'none'}")
                answer(f"Agents  {', '.join(settings.agents)}")
                for sentence in server.notices:
                    note(sentence)
                note(f"Ctrl-C stops everything. Warnings are in {log_file() or 'this window'}.")
                told = await first_of(stop.wait(), server_gone(resolve_target(settings.temporal)))
                if not told:
                    note(f"The server has ended. Its log is {server.log or 'where it was started'}.")
                    return FAULT
                note("Stopping; Ctrl-C again leaves at once.")
    return GOOD


async def keep_worker(settings: Settings, role: str) -> int:
    """One worker process until SIGINT or SIGTERM."""
    return await work(settings, role, note)


async def show_agents(settings: Settings, *, as_json: bool) -> int:
    """Agents with what a full start request has to name; needs no server and no secret."""
    namespace = resolve_target(settings.temporal).namespace
    for name, agent in compose(settings, namespace, roles=(Role.RUN, Role.TOOLS)).agents.items():
        assert agent.run is not None
        assert agent.tools is not None
        tools = [each.descriptor.model_schema.name for each in agent.tools.part.tools]
        envelope = dump(agent.run.descriptor)
        if as_json:
            answer_json({"agent": name, "binding": agent.run.binding_ref, **envelope, "tools": [*tools]})
        else:
            answer(f"{name}\t{agent.run.binding_ref}\t{envelope['descriptor_digest']}\t{' '.join(tools) or '-'}")
    return GOOD


async def set_up(settings: Settings, namespace: str | None, *, as_json: bool) -> int:
    """What was changed, a line each."""
    name = namespace or resolve_target(settings.temporal).namespace
    client = await connect(settings.temporal, check_namespace=False)
    report = await setup(client, name, settings.temporal.server.retention)
    changed: JsonObject = {
        "namespace": name,
        "created": report.created,
        "attributes_added": list(report.added),
        "retention_seconds": int(report.retention.total_seconds()),
        "retention_changed": report.retention_before != report.retention,
    }
    if as_json:
        answer_json(changed)
        return GOOD
    if report.created:
        answer(f"Created namespace {name}.")
    if changed["retention_changed"]:
        answer(f"Closed runs are kept for {report.retention.total_seconds() / 3600:.0f} h.")
    if report.added:
        answer(f"Registered search attributes: {', '.join(report.added)}.")
    answer(f"Namespace {name} is ready.")
    return GOOD


async def examine_all(settings: Settings, *, as_json: bool) -> int:
    """A line for each finding, with what to do about it."""
    healthy = True
    async for finding in examine(settings):
        healthy = healthy and finding.good
        if as_json:
            answer_json(asdict(finding))
        else:
            _print_finding(finding)
    return GOOD if healthy else NOT_READY


def _print_finding(finding: Finding) -> None:
    remedy = f" {finding.remedy}" if finding.remedy else ""
    answer(f"{'ok' if finding.good else '!!'}  {finding.about}: {finding.says}{remedy}")
