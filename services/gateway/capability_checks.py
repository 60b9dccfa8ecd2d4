"""Whether the services that run can do a job, by what they say of themselves."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import httpx

from potstill.contracts.capabilities import Capabilities, ModelInfo
from potstill.contracts.job import JobSpec
from potstill.contracts.wire import MalformedMessageError
from potstill.service.peers import Peer, PeerError
from services.gateway.findings import Finding, Findings
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


def check_capabilities(spec: JobSpec, answers: Answers) -> Findings:
    """Match the spec with what the services said. A service that said nothing is not judged here."""
    findings = Findings()
    student = answers.student.model if answers.student else None
    if answers.student is not None:
        _check_student(spec, answers.student, findings)
    for name, teacher in answers.teachers.items():
        _check_teacher(spec, name, teacher, student, findings)
    return findings


def check_verifier(kinds: frozenset[str], verifier: Capabilities | None) -> Findings:
    """Whether the verifier knows every kind of problem in the data."""
    findings = Findings()
    missing = sorted(kinds - set(verifier.features)) if verifier else []
    if verifier and missing:
        offered = ", ".join(sorted(verifier.features)) or "none"
        findings.refuse(
            "unknown_kind",
            "data.kind",
            f"the data needs verifiers that the service does not have: {', '.join(missing)} (it has {offered}): "
            f"correct the `kind` of the rows or of the job's data",
        )
    return findings


def _check_student(spec: JobSpec, student: Capabilities, findings: Findings) -> None:
    if student.model is None:
        findings.refuse("model_not_served", "student.model", "the student service serves no model: give it one")
        return
    _check_model(spec.student.model, student.model, "student", "student", findings)
    _check_length(spec, student.model, "student", findings)
    if spec.student.lora is not None and "lora" not in student.features:
        engine = student.engine.name if student.engine else "its engine"
        findings.refuse(
            "unsupported",
            "student.lora",
            f"the student service ({engine}) cannot serve adapters: leave out `lora`, or start it with one that can",
        )


def _check_teacher(
    spec: JobSpec, name: str, teacher: Capabilities, student: ModelInfo | None, findings: Findings
) -> None:
    field = f"teachers.{name}"
    if teacher.model is None:
        findings.refuse("model_not_served", f"{field}.model", "the teacher service serves no model: give it one")
        return
    _check_model(spec.teachers[name].model, teacher.model, f"teacher {name!r}", field, findings)
    _check_length(spec, teacher.model, f"teacher {name!r}", findings)
    temperature = spec.teachers[name].temperature
    if temperature != 1.0 and "temperature" not in teacher.features:
        findings.refuse(
            "unsupported_temperature",
            f"{field}.temperature",
            f"this teacher scores at temperature 1 only, not at {temperature:g}: set it and sampling.temperature to 1, "
            f"or serve the teacher with an engine that scales logits",
        )
    if student is not None:
        _check_vocabulary(name, teacher.model, student, findings)


def _check_model(wanted: str, served: ModelInfo, who: str, field: str, findings: Findings) -> None:
    if not _same_model(wanted, served.id):
        findings.refuse(
            "model_not_served",
            f"{field}.model",
            f"the job asks for {wanted}, but the service of the {who} serves {served.id}: "
            f"name that model, or start the service with the one you want",
        )


def _same_model(wanted: str, served: str) -> bool:
    if wanted == served:
        return True
    return Path(wanted).exists() and Path(wanted).resolve() == Path(served).resolve()


def _check_length(spec: JobSpec, model: ModelInfo, who: str, findings: Findings) -> None:
    if spec.sampling.max_tokens >= model.max_length:
        findings.refuse(
            "too_long",
            "sampling.max_tokens",
            f"{spec.sampling.max_tokens} tokens leave no room for a prompt in the {model.max_length} tokens that the "
            f"{who} can take: lower max_tokens, or serve the model with a longer maximum",
        )


def _check_vocabulary(name: str, teacher: ModelInfo, student: ModelInfo, findings: Findings) -> None:
    if teacher.tokenizer != student.tokenizer:
        findings.refuse(
            "tokenizer_mismatch",
            f"teachers.{name}.model",
            f"{teacher.id} has tokenizer {teacher.tokenizer} and the student {student.id} has {student.tokenizer}: "
            f"the same ids would mean different text; choose a teacher of the student's own family, "
            f"or give both the same tokenizer files",
        )
        return
    if teacher.vocab_size != student.vocab_size:
        # The tokenizer is one, so the difference is rows of padding that no text is made of.
        findings.warnings.append(
            f"teacher {name!r} has {teacher.vocab_size} vocabulary rows and the student {student.vocab_size}: "
            f"taken as padding, since the tokenizers are equal"
        )
    if set(teacher.eos_token_ids) != set(student.eos_token_ids):
        findings.warnings.append(
            f"teacher {name!r} ends a text with ids {sorted(teacher.eos_token_ids)} and the student with "
            f"{sorted(student.eos_token_ids)}: the student stops at its own, and the teacher may find that unlikely"
        )
