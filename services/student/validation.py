"""What a generation request must hold before an engine sees it."""

from __future__ import annotations

import math

import numpy as np

from potstill.contracts.capabilities import ModelInfo
from potstill.contracts.generation import GenerateRequest, Prompt, Sampling
from potstill.service.errors import FieldError, TooLargeError, UnprocessableError
from services.student.settings import StudentSettings

MAX_SEED = 2**63 - 1


def check_request(request: GenerateRequest, model: ModelInfo, settings: StudentSettings) -> None:
    """Raises UnprocessableError naming every wrong field, TooLargeError where the model or the service is too small."""
    errors = [
        *_sampling_errors(request, model, settings),
        *(error for index, prompt in enumerate(request.prompts) for error in _prompt_errors(index, prompt, model)),
    ]
    if not request.prompts:
        errors.append(FieldError("prompts", "give at least one prompt"))
    if errors:
        detail = "; ".join(f"{error.field}: {error.message}" for error in errors)
        raise UnprocessableError(detail, code="invalid_request", errors=tuple(errors))
    _check_size(request, model, settings)


def sample_count(request: GenerateRequest) -> int:
    """Samples that the request asks for, over all its prompts."""
    return sum(prompt.n for prompt in request.prompts)


def _sampling_errors(request: GenerateRequest, model: ModelInfo, settings: StudentSettings) -> list[FieldError]:
    sampling: Sampling = request.sampling
    errors = []
    if not (math.isfinite(sampling.temperature) and sampling.temperature >= 0):
        errors.append(FieldError("sampling.temperature", "must be 0 (greedy) or a positive number"))
    if not 0 < sampling.top_p <= 1:
        errors.append(FieldError("sampling.top_p", "must be above 0 and at most 1"))
    if sampling.max_tokens < 1:
        errors.append(FieldError("sampling.max_tokens", "must be at least 1"))
    if any(not 0 <= token < model.vocab_size for token in sampling.stop_token_ids):
        errors.append(FieldError("sampling.stop_token_ids", f"ids must be in 0 … {model.vocab_size - 1}"))
    if not 0 <= request.top_k <= min(settings.student_max_top_k, model.vocab_size):
        limit = min(settings.student_max_top_k, model.vocab_size)
        errors.append(FieldError("top_k", f"must be in 0 … {limit} (POTSTILL_STUDENT_MAX_TOP_K)"))
    if request.policy is not None and request.policy.version < 0:
        errors.append(FieldError("policy.version", "must not be negative"))
    return errors


def _prompt_errors(index: int, prompt: Prompt, model: ModelInfo) -> list[FieldError]:
    field = f"prompts[{index}]"
    ids = np.asarray(prompt.token_ids)
    errors = []
    if ids.ndim != 1 or ids.size == 0:
        errors.append(FieldError(f"{field}.token_ids", "must be a list of at least one id"))
    elif ids.min() < 0 or ids.max() >= model.vocab_size:
        errors.append(FieldError(f"{field}.token_ids", f"ids must be in 0 … {model.vocab_size - 1}"))
    if prompt.n < 1:
        errors.append(FieldError(f"{field}.n", "must be at least 1"))
    if not 0 <= prompt.seed <= MAX_SEED:
        errors.append(FieldError(f"{field}.seed", "must be in 0 … 2^63 - 1"))
    return errors


def _check_size(request: GenerateRequest, model: ModelInfo, settings: StudentSettings) -> None:
    longest = max(len(prompt.token_ids) for prompt in request.prompts)
    if longest + request.sampling.max_tokens > model.max_length:
        raise TooLargeError(
            f"a prompt of {longest} tokens and max_tokens {request.sampling.max_tokens} exceed the "
            f"{model.max_length} tokens of this student: shorten one of them or raise POTSTILL_STUDENT_MAX_LENGTH"
        )
    if (count := sample_count(request)) > settings.student_max_pending:
        raise TooLargeError(
            f"{count} samples in one request exceed POTSTILL_STUDENT_MAX_PENDING = {settings.student_max_pending}: "
            f"split the request"
        )
