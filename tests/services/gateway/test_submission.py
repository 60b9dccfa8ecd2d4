"""POST /v1/jobs and POST /v1/jobs:validate."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from tests.services.gateway.conftest import STUDENT_MODEL, TEACHER_MODEL, Gateway

StartGateway = Callable[..., Gateway]
Serve = Callable[..., str]


def refused(response: httpx.Response, status: int, code: str) -> dict[str, str]:
    """The reasons by field, of a refusal that is a problem document with this code."""
    assert response.headers["content-type"] == "application/problem+json", response.text
    problem = response.json()
    assert (response.status_code, problem["code"]) == (status, code), response.text
    assert problem["request_id"]
    return {error["field"]: error["message"] for error in problem.get("errors", [])}


class TestAcceptance:
    def test_a_job_is_queued_and_its_place_told(self, gateway: Gateway) -> None:
        response = gateway.submit()
        assert response.status_code == 202
        job = response.json()
        assert response.headers["location"] == f"/v1/jobs/{job['id']}"
        assert job["id"].startswith("job_")
        assert (job["object"], job["status"]) == ("distillation.job", "queued")
        assert job["progress"] == {"step": 0, "steps": 5}
        assert gateway.http.get(response.headers["location"]).json() == job

    def test_data_paths_are_stored_absolute_so_that_the_learner_finds_them(self, gateway: Gateway) -> None:
        assert gateway.submit().json()["spec"]["data"]["train"] == str(gateway.artifacts / "train.jsonl")

    def test_validate_says_what_is_in_the_data_and_stores_nothing(self, gateway: Gateway) -> None:
        before = gateway.count_jobs()
        answer = gateway.http.post("/v1/jobs:validate", json=gateway.spec())
        assert answer.json() == {"valid": True, "train_problems": 2, "heldout_problems": 1, "warnings": []}
        assert gateway.count_jobs() == before

    def test_a_token_is_needed(self, gateway: Gateway) -> None:
        response = httpx.post(f"{gateway.url}/v1/jobs", json=gateway.spec())
        assert (response.status_code, response.json()["code"]) == (401, "unauthorized")


class TestIdempotency:
    def test_the_same_key_and_body_answer_with_the_same_job(self, gateway: Gateway) -> None:
        first, before = gateway.submit(key="once-1"), gateway.count_jobs()
        again = gateway.submit(key="once-1")
        assert again.status_code == 202
        assert again.json()["id"] == first.json()["id"]
        assert again.headers["location"] == first.headers["location"]
        assert gateway.count_jobs() == before

    def test_a_replay_needs_no_service(self, gateway: Gateway, start_gateway: StartGateway, silent_url: str) -> None:
        first = gateway.submit(key="once-2")
        cut_off = start_gateway(student_url=silent_url)
        assert cut_off.submit(gateway.spec(), key="once-2").json()["id"] == first.json()["id"]

    def test_the_same_key_with_another_body_is_a_conflict(self, gateway: Gateway) -> None:
        gateway.submit(key="once-3")
        refused(gateway.submit(gateway.spec(seed=1), key="once-3"), 409, "idempotency_key_reused")

    def test_a_refused_submission_does_not_use_up_its_key(self, gateway: Gateway) -> None:
        wrong = gateway.spec(teachers={"physics": {"model": TEACHER_MODEL.id}})
        assert gateway.submit(wrong, key="once-4").status_code == 422
        assert gateway.submit(key="once-4").status_code == 202


class TestShape:
    def test_every_wrong_field_is_named_at_once(self, gateway: Gateway) -> None:
        spec = gateway.spec(sampling={"n": 0, "max_token": 5}, training={"steps": "many"})
        del spec["student"]
        reasons = refused(gateway.submit(spec), 422, "invalid_request")
        assert set(reasons) == {"student", "sampling.n", "sampling.max_token", "training.steps"}
        assert "did you mean 'max_tokens'" in reasons["sampling.max_token"]
        assert "greater than 0 (it is 0)" in reasons["sampling.n"]

    def test_unequal_temperatures_are_refused_with_both_values(self, gateway: Gateway) -> None:
        spec = gateway.spec(teachers={"maths": {"model": TEACHER_MODEL.id, "temperature": 0.5}})
        (message,) = refused(gateway.submit(spec), 422, "invalid_request").values()
        assert "0.5" in message
        assert "make them equal" in message

    def test_a_body_that_is_not_json_is_malformed(self, gateway: Gateway) -> None:
        response = gateway.http.post("/v1/jobs", content=b"{", headers={"content-type": "application/json"})
        assert (response.status_code, response.json()["code"]) == (400, "malformed_request")

    def test_refusals_store_nothing(self, gateway: Gateway) -> None:
        before = gateway.count_jobs()
        gateway.submit(gateway.spec(data={"train": "missing.jsonl"}))
        assert gateway.count_jobs() == before


class TestData:
    def test_a_file_that_does_not_exist(self, gateway: Gateway) -> None:
        reasons = refused(gateway.submit(gateway.spec(data={"train": "no.jsonl"})), 422, "data_not_found")
        assert str(gateway.artifacts / "no.jsonl") in reasons["data.train"]

    @pytest.mark.parametrize("given", ["/etc/passwd", "../outside.jsonl"])
    def test_a_path_outside_the_allowed_folders(self, gateway: Gateway, given: str) -> None:
        reasons = refused(gateway.submit(gateway.spec(data={"train": given})), 422, "outside_artifacts")
        assert "POTSTILL_DATA_ROOTS" in reasons["data.train"]

    def test_a_link_that_leads_outside(self, gateway: Gateway, tmp_path_factory: pytest.TempPathFactory) -> None:
        secret = tmp_path_factory.mktemp("elsewhere") / "secret.jsonl"
        secret.write_text('{"prompt": "a", "answer": "b"}\n')
        (gateway.artifacts / "link.jsonl").symlink_to(secret)
        refused(gateway.submit(gateway.spec(data={"train": "link.jsonl"})), 422, "outside_artifacts")

    def test_a_missing_column_is_told_with_its_row_and_the_columns_there_are(self, gateway: Gateway) -> None:
        gateway.write_rows("bad.jsonl", [{"prompt": "1+1?", "answer": "2"}, {"question": "2+2?", "answer": "4"}])
        reasons = refused(gateway.submit(gateway.spec(data={"train": "bad.jsonl"})), 422, "invalid_data")
        assert "row 2" in reasons["data.train.prompt"]
        assert "question" in reasons["data.train.prompt"]

    def test_a_row_that_is_not_json(self, gateway: Gateway) -> None:
        (gateway.artifacts / "torn.jsonl").write_text('{"prompt": "a", "answer": "b"}\n{"prompt":\n')
        reasons = refused(gateway.submit(gateway.spec(data={"train": "torn.jsonl"})), 422, "invalid_data")
        assert "row 2" in reasons["data.train"]

    def test_an_empty_data_set(self, gateway: Gateway) -> None:
        gateway.write_rows("empty.jsonl", [])
        reasons = refused(gateway.submit(gateway.spec(data={"train": "empty.jsonl"})), 422, "invalid_data")
        assert "no rows" in reasons["data.train"]

    def test_both_files_are_told_at_once(self, gateway: Gateway) -> None:
        spec = gateway.spec(data={"train": "no.jsonl", "heldout": "neither.jsonl"})
        assert set(refused(gateway.submit(spec), 422, "data_not_found")) == {"data.train", "data.heldout"}

    def test_a_kind_that_no_verifier_knows(self, gateway: Gateway) -> None:
        gateway.write_rows("odd.jsonl", [{"prompt": "a", "answer": "b", "kind": "poetry"}])
        reasons = refused(gateway.submit(gateway.spec(data={"train": "odd.jsonl"})), 422, "unknown_kind")
        assert "poetry" in reasons["data.kind"]


class TestTeachersOfRows:
    ROW: dict[str, Any] = {"prompt": "1+1?", "answer": "2"}  # noqa: RUF012

    def two_teachers(self, start_gateway: StartGateway, teacher_url: str) -> tuple[Gateway, dict[str, Any]]:
        gateway = start_gateway(teachers={"maths": teacher_url, "code": teacher_url})
        teachers = {name: {"model": TEACHER_MODEL.id} for name in ("maths", "code")}
        return gateway, gateway.spec(teachers=teachers, data={"train": "rows.jsonl"})

    def test_a_row_that_names_an_unknown_teacher(self, gateway: Gateway) -> None:
        gateway.write_rows("rows.jsonl", [self.ROW, self.ROW | {"teacher": "physics"}])
        reasons = refused(gateway.submit(gateway.spec(data={"train": "rows.jsonl"})), 422, "unknown_teacher")
        assert "row 2 ('physics')" in reasons["data.train.teacher"]
        assert "the job has maths" in reasons["data.train.teacher"]

    def test_rows_without_a_teacher_need_exactly_one(self, start_gateway: StartGateway, teacher_url: str) -> None:
        gateway, spec = self.two_teachers(start_gateway, teacher_url)
        gateway.write_rows("rows.jsonl", [self.ROW | {"teacher": "maths"}, self.ROW])
        reasons = refused(gateway.submit(spec), 422, "teacher_not_named")
        assert "row 2" in reasons["data.train.teacher"]

    def test_every_row_with_its_own_teacher_is_fine(self, start_gateway: StartGateway, teacher_url: str) -> None:
        gateway, spec = self.two_teachers(start_gateway, teacher_url)
        gateway.write_rows("rows.jsonl", [self.ROW | {"teacher": "maths"}, self.ROW | {"teacher": "code"}])
        assert gateway.submit(spec).status_code == 202

    def test_a_teacher_that_no_row_names_is_a_warning(self, start_gateway: StartGateway, teacher_url: str) -> None:
        gateway, spec = self.two_teachers(start_gateway, teacher_url)
        gateway.write_rows("rows.jsonl", [self.ROW | {"teacher": "maths"}])
        (warning,) = gateway.http.post("/v1/jobs:validate", json=spec).json()["warnings"]
        assert "'code'" in warning

    def with_reference(self, start_gateway: StartGateway, teacher_url: str) -> tuple[Gateway, dict[str, Any]]:
        gateway, spec = self.two_teachers(start_gateway, teacher_url)
        spec["teachers"]["maths"]["reference"] = "code"
        return gateway, spec | {"objective": {"preset": "exopd"}}

    def test_a_reference_is_not_meant_by_rows_that_name_no_teacher(
        self, start_gateway: StartGateway, teacher_url: str
    ) -> None:
        gateway, spec = self.with_reference(start_gateway, teacher_url)
        gateway.write_rows("rows.jsonl", [self.ROW])
        assert gateway.http.post("/v1/jobs:validate", json=spec).json()["warnings"] == []
        assert gateway.submit(spec).status_code == 202

    def test_a_row_of_a_teacher_that_lacks_the_reference_it_needs(
        self, start_gateway: StartGateway, teacher_url: str
    ) -> None:
        gateway, spec = self.with_reference(start_gateway, teacher_url)
        gateway.write_rows("rows.jsonl", [self.ROW, self.ROW | {"teacher": "code"}])
        assert "row 2" in refused(gateway.submit(spec), 422, "reference_missing")["teachers.code.reference"]

    @pytest.mark.parametrize(
        "context",
        [
            {"kind": "solution"},
            {"kind": "demonstrations"},
            {"kind": "template", "template": "{{ prompt }} {{ solution }}"},
            {"kind": "critique", "model": "m", "base_url": "http://x/v1", "request": "{prompt} {solution}"},
        ],
    )
    @pytest.mark.parametrize("reader", ["maths", "code"])
    def test_a_row_without_the_solution_that_its_teacher_or_the_reference_reads(
        self, start_gateway: StartGateway, teacher_url: str, context: dict[str, Any], reader: str
    ) -> None:
        gateway, spec = self.with_reference(start_gateway, teacher_url)
        spec["teachers"][reader]["context"] = context
        gateway.write_rows("rows.jsonl", [self.ROW | {"solution": "2"}, self.ROW | {"id": "bare"}])
        message = refused(gateway.submit(spec), 422, "solution_missing")["data.train.solution"]
        assert "row 2 (id 'bare')" in message
        assert f"teacher '{reader}'" in message

    def test_a_template_that_asks_whether_there_is_a_solution_needs_none(
        self, start_gateway: StartGateway, teacher_url: str
    ) -> None:
        gateway, spec = self.two_teachers(start_gateway, teacher_url)
        template = "{{ prompt }}{% if solution is defined %} {{ solution }}{% endif %}"
        spec["teachers"]["maths"]["context"] = {"kind": "template", "template": template}
        gateway.write_rows("rows.jsonl", [self.ROW | {"teacher": "maths"}])
        assert gateway.submit(spec).status_code == 202


class TestModels:
    def test_a_student_that_is_not_served(self, gateway: Gateway) -> None:
        reasons = refused(gateway.submit(gateway.spec(student={"model": "lab/other"})), 422, "model_not_served")
        assert STUDENT_MODEL.id in reasons["student.model"]

    def test_a_teacher_that_is_not_served(self, gateway: Gateway) -> None:
        spec = gateway.spec(teachers={"maths": {"model": "lab/other"}})
        assert TEACHER_MODEL.id in refused(gateway.submit(spec), 422, "model_not_served")["teachers.maths.model"]

    def test_a_served_folder_may_be_written_in_another_way(
        self, start_gateway: StartGateway, serve_capabilities: Serve, tmp_path: Path
    ) -> None:
        folder = tmp_path / "model"
        folder.mkdir()
        url = serve_capabilities("student", msgspec.structs.replace(STUDENT_MODEL, id=str(folder)))
        gateway = start_gateway(student_url=url)
        spec = gateway.spec(student={"model": f"{tmp_path}/./model"})
        assert gateway.submit(spec).status_code == 202

    def test_a_teacher_that_is_not_in_the_registry(self, gateway: Gateway) -> None:
        spec = gateway.spec(teachers={"physics": {"model": TEACHER_MODEL.id}})
        reasons = refused(gateway.submit(spec), 422, "teacher_not_registered")
        assert "knows: maths" in reasons["teachers.physics"]

    def test_another_tokenizer_is_refused_with_both_fingerprints(
        self, start_gateway: StartGateway, serve_capabilities: Serve
    ) -> None:
        other = msgspec.structs.replace(TEACHER_MODEL, tokenizer="sha256:bbbb")
        gateway = start_gateway(teachers={"maths": serve_capabilities("teacher", other)})
        message = refused(gateway.submit(), 422, "tokenizer_mismatch")["teachers.maths.model"]
        assert "sha256:aaaa" in message
        assert "sha256:bbbb" in message
        assert "choose a teacher" in message

    def test_padded_vocabularies_and_other_eos_ids_are_accepted_with_warnings_in_the_events(
        self, start_gateway: StartGateway, serve_capabilities: Serve
    ) -> None:
        other = msgspec.structs.replace(TEACHER_MODEL, vocab_size=272, eos_token_ids=(2, 5))
        gateway = start_gateway(teachers={"maths": serve_capabilities("teacher", other)})
        job = gateway.new_job()
        events = gateway.http.get(f"/v1/jobs/{job}/events").json()["data"]
        warnings = [event["message"] for event in events if event["level"] == "warning"]
        assert any("272" in warning and "264" in warning for warning in warnings)
        assert any("[2, 5]" in warning for warning in warnings)

    @pytest.mark.parametrize("short", ["student", "teacher"])
    def test_answers_that_leave_no_room_for_a_prompt(
        self, start_gateway: StartGateway, serve_capabilities: Serve, short: str
    ) -> None:
        model = msgspec.structs.replace(STUDENT_MODEL if short == "student" else TEACHER_MODEL, max_length=64)
        url = serve_capabilities(short, model)
        gateway = start_gateway(**({"student_url": url} if short == "student" else {"teachers": {"maths": url}}))
        assert "64" in refused(gateway.submit(), 422, "too_long")["sampling.max_tokens"]

    def test_a_teacher_that_scores_at_temperature_one_only(
        self, start_gateway: StartGateway, serve_capabilities: Serve
    ) -> None:
        gateway = start_gateway(teachers={"maths": serve_capabilities("teacher", TEACHER_MODEL, ())})
        assert gateway.submit().status_code == 202
        teachers = {"maths": {"model": TEACHER_MODEL.id, "temperature": 0.7}}
        spec = gateway.spec(teachers=teachers, sampling={"temperature": 0.7, "max_tokens": 8})
        reasons = refused(gateway.submit(spec), 422, "unsupported_temperature")
        assert "0.7" in reasons["teachers.maths.temperature"]

    def test_a_student_that_samples_at_temperature_one_only(
        self, start_gateway: StartGateway, serve_capabilities: Serve
    ) -> None:
        gateway = start_gateway(student_url=serve_capabilities("student", STUDENT_MODEL, ()))
        teachers = {"maths": {"model": TEACHER_MODEL.id, "temperature": 0.7}}
        spec = gateway.spec(teachers=teachers, sampling={"temperature": 0.7, "max_tokens": 8})
        assert "0.7" in refused(gateway.submit(spec), 422, "unsupported_temperature")["sampling.temperature"]

    def test_an_adapter_that_the_student_cannot_serve(
        self, start_gateway: StartGateway, serve_capabilities: Serve
    ) -> None:
        gateway = start_gateway(student_url=serve_capabilities("student", STUDENT_MODEL, ()))
        spec = gateway.spec(student={"model": STUDENT_MODEL.id, "lora": {"rank": 4}})
        assert set(refused(gateway.submit(spec), 422, "unsupported")) == {"student.lora"}

    def test_problems_of_data_and_services_are_told_together(self, gateway: Gateway) -> None:
        spec = gateway.spec(student={"model": "lab/other"}, data={"train": "no.jsonl"})
        assert set(refused(gateway.submit(spec), 422, "invalid_job")) == {"student.model", "data.train"}


class TestServices:
    @pytest.mark.parametrize("down", ["student", "teacher", "verifier"])
    def test_a_service_that_is_down_is_named(self, start_gateway: StartGateway, down: str) -> None:
        nowhere = "http://127.0.0.1:9"
        gateway = start_gateway(**({"teachers": {"maths": nowhere}} if down == "teacher" else {f"{down}_url": nowhere}))
        reasons = refused(gateway.submit(), 503, "service_unavailable")
        (field,) = reasons
        assert field == ("teachers.maths" if down == "teacher" else down)
        assert nowhere in reasons[field]

    def test_a_service_that_does_not_answer_is_not_waited_for(
        self, start_gateway: StartGateway, silent_url: str
    ) -> None:
        gateway = start_gateway(
            student_url=silent_url, teachers={"maths": silent_url}, verifier_url=silent_url, capability_seconds=1.0
        )
        begun = time.monotonic()
        reasons = refused(gateway.submit(), 503, "service_unavailable")
        assert set(reasons) == {"student", "teachers.maths", "verifier"}
        assert time.monotonic() - begun < 2.5, "they are asked one after the other"

    def test_a_verifier_that_is_not_ready(self, start_gateway: StartGateway, serve_capabilities: Serve) -> None:
        url = serve_capabilities("verifier", None, ("math",), not_ready="landlock does not bite")
        gateway = start_gateway(verifier_url=url)
        assert "landlock does not bite" in refused(gateway.submit(), 503, "service_unavailable")["verifier"]

    def test_a_service_with_another_token(self, start_gateway: StartGateway, serve_capabilities: Serve) -> None:
        url = serve_capabilities("student", STUDENT_MODEL, token="another-token-0123456789")
        gateway = start_gateway(student_url=url)
        assert "401" in refused(gateway.submit(), 503, "service_unavailable")["student"]

    def test_a_url_that_leads_to_another_kind_of_service(self, start_gateway: StartGateway, teacher_url: str) -> None:
        gateway = start_gateway(student_url=teacher_url)
        assert "is a teacher, not a student" in refused(gateway.submit(), 503, "service_unavailable")["student"]

    def test_services_that_were_never_configured(self, start_gateway: StartGateway) -> None:
        gateway = start_gateway(student_url=None, verifier_url=None)
        reasons = refused(gateway.submit(), 503, "not_configured")
        assert "POTSTILL_STUDENT_URL" in reasons["student"]
        assert "POTSTILL_VERIFIER_URL" in reasons["verifier"]

    def test_a_wrong_job_is_refused_as_wrong_even_while_a_service_is_down(self, start_gateway: StartGateway) -> None:
        gateway = start_gateway(verifier_url="http://127.0.0.1:9")
        reasons = refused(gateway.submit(gateway.spec(data={"train": "no.jsonl"})), 422, "data_not_found")
        assert set(reasons) == {"data.train", "verifier"}
