"""What services say of themselves against what a job wants of them. The numbers are those of a published family."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import msgspec
import pytest

from potstill.contracts.capabilities import ModelInfo
from tests.services.gateway.conftest import STUDENT_FEATURES, TEACHER_FEATURES, Gateway

STUDENT = ModelInfo("lab/small", "main", 151936, "sha256:aaaa", (151643,), 4096, "sha256:chat")
TEACHER = ModelInfo("lab/large", "main", 152064, "sha256:aaaa", (151643,), 4096, "sha256:chat")
Serve = Callable[..., str]
Check = Callable[..., httpx.Response]


@pytest.fixture
def check(start_gateway: Callable[..., Gateway], serve_capabilities: Serve) -> Check:
    """Validate a job between a student and a teacher that say these things."""

    def validate(
        *,
        student: ModelInfo = STUDENT,
        teacher: ModelInfo = TEACHER,
        student_features: tuple[str, ...] = STUDENT_FEATURES,
        teacher_features: tuple[str, ...] = TEACHER_FEATURES,
        student_limits: dict[str, float] | None = None,
        teacher_limits: dict[str, float] | None = None,
        context: dict[str, Any] | None = None,
        **job: Any,
    ) -> httpx.Response:
        gateway = start_gateway(
            student_url=serve_capabilities("student", student, student_features, limits=student_limits),
            teachers={"maths": serve_capabilities("teacher", teacher, teacher_features, limits=teacher_limits)},
        )
        gateway.write_rows("solved.jsonl", [{"prompt": "1+1?", "answer": "2", "solution": "1+1=2"}])
        maths = {"model": teacher.id, "context": context or {"kind": "plain"}}
        job = {"data": {"train": "solved.jsonl"}} | job
        spec = gateway.spec(student={"model": student.id}, teachers={"maths": maths}, **job)
        return gateway.http.post("/v1/jobs:validate", json=spec)

    return validate


def warnings(response: httpx.Response) -> list[str]:
    assert response.status_code == 200, response.text
    found: list[str] = response.json()["warnings"]
    return found


def refusal(response: httpx.Response, code: str) -> dict[str, str]:
    assert (response.status_code, response.json()["code"]) == (422, code), response.text
    return {error["field"]: error["message"] for error in response.json()["errors"]}


def changed(model: ModelInfo, **values: Any) -> ModelInfo:
    return msgspec.structs.replace(model, **values)


class TestVocabulary:
    def test_a_padded_one_is_accepted_and_told(self, check: Check) -> None:
        (warning,) = warnings(check())
        assert "152064 vocabulary rows and the student 151936" in warning

    def test_another_tokenizer_of_the_same_size_is_refused(self, check: Check) -> None:
        other = changed(TEACHER, vocab_size=151936, tokenizer="sha256:bbbb")
        assert "choose a teacher" in refusal(check(teacher=other), "tokenizer_mismatch")["teachers.maths.model"]

    def test_another_chat_template_is_told(self, check: Check) -> None:
        (warning,) = warnings(check(teacher=changed(STUDENT, id="lab/large", chat_template="sha256:other")))
        assert "another chat template" in warning


class TestEnds:
    TEACHER = changed(STUDENT, id="lab/large", eos_token_ids=(151645,))

    def test_a_teacher_that_ends_otherwise_is_told_with_what_will_happen_and_what_to_set(self, check: Check) -> None:
        (warning,) = warnings(check(teacher=self.TEACHER))
        assert "lengths explode" in warning
        assert "set sampling.stop_token_ids: [151643, 151645]" in warning

    def test_that_setting_mends_it(self, check: Check) -> None:
        sampling = {"max_tokens": 8, "stop_token_ids": [151643, 151645]}
        assert warnings(check(teacher=self.TEACHER, sampling=sampling)) == []

    def test_a_student_that_stops_at_more_than_the_teacher_is_fine(self, check: Check) -> None:
        both = changed(STUDENT, eos_token_ids=(151645, 151643))
        assert warnings(check(student=both, teacher=self.TEACHER)) == []

    def test_stop_tokens_that_leave_out_the_students_own_are_told(self, check: Check) -> None:
        wants = {"max_tokens": 8, "stop_token_ids": [7]}
        first, second = warnings(check(teacher=changed(STUDENT, id="lab/large"), sampling=wants))
        assert "leave out [151643]" in first
        assert "stop_token_ids: [7, 151643]" in second

    def test_one_outside_the_vocabulary_is_refused(self, check: Check) -> None:
        response = check(sampling={"max_tokens": 8, "stop_token_ids": [151643, 151936]})
        assert "[151936]" in refusal(response, "unknown_token")["sampling.stop_token_ids"]


class TestTheStudentItself:
    def test_a_teacher_that_knows_no_more_is_told(self, check: Check) -> None:
        (warning,) = warnings(check(teacher=STUDENT))
        assert "nothing to learn" in warning

    @pytest.mark.parametrize("job", [{"context": {"kind": "solution"}}, {"objective": {"preset": "opd+grpo"}}])
    def test_one_with_a_context_or_beside_an_outcome_is_fine(self, check: Check, job: dict[str, Any]) -> None:
        assert warnings(check(teacher=STUDENT, **job)) == []


class TestCandidates:
    @pytest.mark.parametrize(
        ("candidates", "limits", "limited"),
        [
            ("student", {"student_limits": {"max_top_k": 20}}, "the student service allows 20"),
            ("student", {"teacher_limits": {"max_candidates": 20}}, "teacher 'maths' allows 20"),
            ("teacher", {"teacher_limits": {"max_top_k": 20}}, "teacher 'maths' allows 20"),
            ("union", {"teacher_limits": {"max_top_k": 20}}, "teacher 'maths' allows 20"),
        ],
    )
    def test_more_than_a_service_allows_are_refused(
        self, check: Check, candidates: str, limits: dict[str, Any], limited: str
    ) -> None:
        wants = {"preset": "topk-opd", "candidates": candidates, "top_k": 64}
        message = refusal(check(objective=wants, **limits), "too_many_candidates")["objective.top_k"]
        assert limited in message
        assert "64" in message
        assert "set objective.top_k to 20" in message
        assert check(objective=wants | {"top_k": 20}, **limits).status_code == 200

    @pytest.mark.parametrize(
        ("candidates", "features", "way_out"),
        [
            ("student", {"student_features": ("temperature",)}, "candidates: teacher"),
            ("student", {"teacher_features": ("temperature", "top_k")}, "candidates: teacher"),
            ("teacher", {"teacher_features": ("temperature", "candidate_ids")}, "candidates: student"),
            ("union", {"teacher_features": ("temperature", "top_k")}, "POTSTILL_TEACHER_ENGINE=torch"),
        ],
    )
    def test_a_service_that_cannot_is_refused_with_the_way_out(
        self, check: Check, candidates: str, features: dict[str, Any], way_out: str
    ) -> None:
        wants = {"preset": "topk-opd", "candidates": candidates}
        assert way_out in refusal(check(objective=wants, **features), "unsupported")["objective.candidates"]

    def test_a_policy_gradient_needs_none(self, check: Check) -> None:
        assert check(student_features=(), teacher_features=("temperature",)).status_code == 200


class TestLength:
    @pytest.mark.parametrize(
        ("short", "job", "field"),
        [
            ("student", {"sampling": {"max_tokens": 32, "max_prompt_tokens": 40}}, "sampling.max_prompt_tokens"),
            ("teacher", {"sampling": {"max_tokens": 32, "max_prompt_tokens": 40}}, "sampling.max_prompt_tokens"),
            ("teacher", {"context": {"kind": "solution", "max_tokens": 40}}, "teachers.maths.context.max_tokens"),
            ("teacher", {"context": {"kind": "plain", "max_tokens": 40}}, "teachers.maths.context.max_tokens"),
        ],
    )
    def test_a_prompt_and_a_response_that_do_not_fit_together(
        self, check: Check, short: str, job: dict[str, Any], field: str
    ) -> None:
        model = changed(STUDENT if short == "student" else TEACHER, max_length=71)
        wants = {"sampling": {"max_tokens": 32}} | job
        message = refusal(check(**{short: model}, **wants), "too_long")[field]
        assert "lower it to 39" in message
        fitting = changed(model, max_length=72)
        assert check(**{short: fitting}, **wants).status_code == 200
