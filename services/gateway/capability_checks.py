"""Whether the services that run can do a job, by what they say of themselves."""

from __future__ import annotations

from pathlib import Path

from potstill.checks.findings import Findings
from potstill.contracts.capabilities import Capabilities, ModelInfo
from potstill.contracts.context import PlainContext
from potstill.contracts.job import JobSpec
from services.gateway.asking import Answers
from services.gateway.vocabulary_checks import check_stop_tokens, check_vocabulary


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
    _check_student_length(spec, student.model, findings)
    _check_student_top_k(spec, student, findings)
    check_stop_tokens(spec, student.model, findings)
    if spec.sampling.temperature != 1.0 and "temperature" not in student.features:
        findings.refuse(
            "unsupported_temperature",
            "sampling.temperature",
            f"the student samples at temperature 1 only, not at {spec.sampling.temperature:g}: set it to 1, or serve "
            f"the student with another engine",
        )
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
    _check_teacher_length(spec, name, teacher.model, findings)
    _check_teacher_candidates(spec, name, teacher, findings)
    temperature = spec.teachers[name].temperature
    if temperature != 1.0 and "temperature" not in teacher.features:
        findings.refuse(
            "unsupported_temperature",
            f"{field}.temperature",
            f"this teacher scores at temperature 1 only, not at {temperature:g}: set it and sampling.temperature to 1, "
            f"or serve the teacher with an engine that scales logits",
        )
    if student is not None:
        check_vocabulary(spec, name, teacher.model, student, findings)


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


def _check_student_length(spec: JobSpec, model: ModelInfo, findings: Findings) -> None:
    response, prompt = spec.sampling.max_tokens, spec.sampling.max_prompt_tokens
    if response >= model.max_length:
        _refuse_response(spec, model, "student", findings)
    elif prompt is not None and prompt + response > model.max_length:
        _refuse_prompt(prompt, "sampling.max_prompt_tokens", spec, model, "student", findings)


def _check_teacher_length(spec: JobSpec, name: str, model: ModelInfo, findings: Findings) -> None:
    response, context, who = spec.sampling.max_tokens, spec.teachers[name].context, f"teacher {name!r}"
    if response >= model.max_length:
        _refuse_response(spec, model, who, findings)
        return
    prompt, field = context.max_tokens, f"teachers.{name}.context.max_tokens"
    if prompt is None and isinstance(context, PlainContext):
        prompt, field = spec.sampling.max_prompt_tokens, "sampling.max_prompt_tokens"
    if prompt is not None and prompt + response > model.max_length:
        _refuse_prompt(prompt, field, spec, model, who, findings)


def _refuse_response(spec: JobSpec, model: ModelInfo, who: str, findings: Findings) -> None:
    findings.refuse(
        "too_long",
        "sampling.max_tokens",
        f"{spec.sampling.max_tokens} tokens leave no room for a prompt in the {model.max_length} tokens that the "
        f"{who} can take: lower max_tokens, or serve the model with a longer maximum",
    )


def _refuse_prompt(prompt: int, field: str, spec: JobSpec, model: ModelInfo, who: str, findings: Findings) -> None:
    response = spec.sampling.max_tokens
    findings.refuse(
        "too_long",
        field,
        f"a prompt of {prompt} and a response of {response} tokens exceed the {model.max_length} that the {who} can "
        f"take: lower it to {model.max_length - response}, lower sampling.max_tokens, or serve the model with a longer "
        f"maximum",
    )


def _check_student_top_k(spec: JobSpec, student: Capabilities, findings: Findings) -> None:
    wanted = spec.resolved_objective.asks_student_top_k
    if not wanted:
        return
    if "top_k" not in student.features:
        findings.refuse(
            "unsupported",
            "objective.candidates",
            "the student service cannot tell its likeliest tokens: set `candidates: teacher`, or serve the student "
            "with an engine that can (POTSTILL_STUDENT_ENGINE=torch or vllm)",
        )
    assert student.model is not None
    limit = min(student.limits.get("max_top_k", wanted), student.model.vocab_size)
    _check_limit(wanted, limit, "student service", "raise POTSTILL_STUDENT_MAX_TOP_K", findings)


def _check_teacher_candidates(spec: JobSpec, name: str, teacher: Capabilities, findings: Findings) -> None:
    if name not in spec.scoring_teachers:
        return
    objective, who = spec.resolved_objective, f"teacher {name!r}"
    wants = (
        ("candidate_ids", objective.asks_student_top_k, "score the student's candidates", "teacher", "max_candidates"),
        ("top_k", objective.asks_teacher_top_k, "tell its likeliest tokens", "student", "max_top_k"),
    )
    for feature, wanted, what, other, limit in wants:
        if not wanted:
            continue
        if feature not in teacher.features:
            findings.refuse(
                "unsupported",
                "objective.candidates",
                f"the service of {who} cannot {what}: set `candidates: {other}`, or serve it with an engine that can "
                f"(POTSTILL_TEACHER_ENGINE=torch)",
            )
        _check_limit(wanted, teacher.limits.get(limit), who, "serve it with an engine that answers more", findings)


def _check_limit(wanted: int, limit: float | None, who: str, way_out: str, findings: Findings) -> None:
    if limit is not None and wanted > limit:
        findings.refuse(
            "too_many_candidates",
            "objective.top_k",
            f"the job compares {wanted} candidates a position and the {who} allows {limit:g}: "
            f"set objective.top_k to {limit:g} or less, or {way_out}",
        )
