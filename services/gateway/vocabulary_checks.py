"""Whether student and teachers mean the same by a token id."""

from __future__ import annotations

from potstill.checks.findings import Findings
from potstill.contracts.capabilities import ModelInfo
from potstill.contracts.job import JobSpec


def check_vocabulary(spec: JobSpec, name: str, teacher: ModelInfo, student: ModelInfo, findings: Findings) -> None:
    """Match one teacher with the student. Another tokenizer is refused, all else is told."""
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
            f"taken as padding, since the tokenizers are equal; padding is never a candidate"
        )
    _check_ends(spec, name, teacher, student, findings)
    if teacher.chat_template != student.chat_template:
        findings.warnings.append(
            f"teacher {name!r} has another chat template than the student: its prompts are written in the student's, "
            f"on which it may not have been trained; if its values look odd, give the student's folder the teacher's"
        )


def check_stop_tokens(spec: JobSpec, student: ModelInfo, findings: Findings) -> None:
    """Match the job's stop tokens with the student's model."""
    stops = spec.sampling.stop_token_ids
    outside = [token for token in stops if token >= student.vocab_size]
    if outside:
        findings.refuse(
            "unknown_token",
            "sampling.stop_token_ids",
            f"{outside} are outside the student's vocabulary of {student.vocab_size}: correct them",
        )
    passed = sorted(set(student.eos_token_ids) - set(stops)) if stops else []
    if passed:
        findings.warnings.append(
            f"sampling.stop_token_ids {sorted(stops)} leave out {passed}, with which the student ends a text: it will "
            f"write on after them; add them unless that is meant"
        )


def _check_ends(spec: JobSpec, name: str, teacher: ModelInfo, student: ModelInfo, findings: Findings) -> None:
    stops = set(spec.sampling.stop_token_ids) or set(student.eos_token_ids)
    passed = sorted(set(teacher.eos_token_ids) - stops)
    if passed:
        findings.warnings.append(
            f"teacher {name!r} ends a text with ids {sorted(teacher.eos_token_ids)} and the student stops at "
            f"{sorted(stops)}: as it learns from this teacher it will write {passed} and go on, and lengths explode to "
            f"sampling.max_tokens; set sampling.stop_token_ids: {sorted(stops | set(teacher.eos_token_ids))}"
        )
