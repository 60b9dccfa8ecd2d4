"""Asking the services what they can."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import NamedTuple

import httpx

from potstill.checks.findings import Finding, Findings
from potstill.contracts.capabilities import Capabilities
from potstill.contracts.job import JobSpec
from potstill.contracts.wire import MalformedMessageError
from potstill.service.peers import Peer, PeerError
from services.gateway.settings import GatewaySettings


class ServiceToAsk(NamedTuple):
    """A service, and the place in the spec that needs it."""

    kind: str
    field: str
    url: str


@dataclass(frozen=True)
class Answers:
    """What the services said; None where one did not answer or is not known."""

    student: Capabilities | None
    teachers: dict[str, Capabilities]
    verifier: Capabilities | None


async def ask_services(spec: JobSpec, settings: GatewaySettings) -> tuple[Answers, Findings]:
    """Ask student, teachers and verifier at once; each URL once."""
    findings = Findings()
    wanted = _services_to_ask(spec, settings, findings)
    distinct = list(dict.fromkeys((service.kind, service.url) for service in wanted))
    replies = await asyncio.gather(*(_ask(kind, url, settings) for kind, url in distinct))
    by_service = dict(zip(distinct, replies, strict=True))
    said: dict[str, Capabilities] = {}
    for service in wanted:
        reply = by_service[service.kind, service.url]
        if isinstance(reply, Capabilities):
            said[service.field] = reply
        else:
            findings.unanswered.append(Finding("service_unavailable", service.field, reply))
    teachers = {name: said[f"teachers.{name}"] for name in spec.teachers if f"teachers.{name}" in said}
    return Answers(said.get("student"), teachers, said.get("verifier")), findings


def _services_to_ask(spec: JobSpec, settings: GatewaySettings, findings: Findings) -> list[ServiceToAsk]:
    wanted: list[ServiceToAsk] = []
    for kind, url in (("student", settings.student_url), ("verifier", settings.verifier_url)):
        if url is None:
            variable = f"POTSTILL_{kind.upper()}_URL"
            message = f"the gateway knows no {kind} service: set {variable} to its base URL and start the gateway again"
            findings.unanswered.append(Finding("not_configured", kind, message))
        else:
            wanted.append(ServiceToAsk(kind, kind, url))
    for name in spec.teachers:
        if name in settings.teachers:
            wanted.append(ServiceToAsk("teacher", f"teachers.{name}", settings.teachers[name]))
        else:
            known = ", ".join(sorted(settings.teachers)) or "none"
            findings.refuse(
                "teacher_not_registered",
                f"teachers.{name}",
                f"no service is registered for this teacher (POTSTILL_TEACHERS of the gateway knows: {known}): "
                f"use one of those names, or register {name!r} there",
            )
    return wanted


async def _ask(kind: str, url: str, settings: GatewaySettings) -> Capabilities | str:
    """What the service says, or why it does not."""
    advice = f"start the {kind} service or correct its URL"
    peer = Peer(url, settings.bearer, settings.capability_seconds)
    try:
        async with asyncio.timeout(settings.capability_seconds):
            if kind == "verifier":
                await peer.ready()  # it knows by testing its sandbox, which its capabilities alone do not say
            said = await peer.capabilities()
    except TimeoutError:
        return f"the {kind} at {url} did not answer within {settings.capability_seconds:g} s: {advice}"
    except (PeerError, MalformedMessageError, httpx.InvalidURL) as error:
        return f"the {kind} at {url} cannot be used: {error}: {advice}"
    finally:
        await peer.close()
    if said.service != kind:
        return f"what answers at {url} is a {said.service}, not a {kind}: correct its URL"
    return said
