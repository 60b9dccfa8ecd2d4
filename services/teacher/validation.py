"""Refusing what cannot be scored, with the field at fault, before any of it is admitted."""

from __future__ import annotations

import math

from potstill.contracts.arrays import TokenIds
from potstill.contracts.scoring import ScoreRequest, Sequence
from potstill.service.errors import FieldError, TooLargeError, UnprocessableError
from services.teacher.engine import EngineFacts, Feature


def check_request(request: ScoreRequest, facts: EngineFacts) -> None:
    """Raises UnprocessableError, or TooLargeError for a sequence longer than the model reads."""
    _check_features(request, facts)
    for index, sequence in enumerate(request.sequences):
        where = f"sequences[{index}]"
        _check_ids(f"{where}.prompt_token_ids", sequence.prompt_token_ids, 1, facts.model.vocab_size)
        _check_ids(f"{where}.response_token_ids", sequence.response_token_ids, 1, facts.model.vocab_size)
        _check_candidates(where, sequence, facts.model.vocab_size)
        _check_length(where, sequence, facts.model.max_length)


def _check_features(request: ScoreRequest, facts: EngineFacts) -> None:
    if not (math.isfinite(request.temperature) and request.temperature > 0):
        raise _invalid("temperature", f"must be above 0, not {request.temperature}")
    if request.temperature != 1.0 and Feature.TEMPERATURE not in facts.features:
        raise UnprocessableError(
            f"temperature {request.temperature} was asked for and the {facts.engine.name} engine scores at 1 only: "
            f"run this teacher with POTSTILL_TEACHER_ENGINE=torch",
            code="temperature_unsupported",
        )
    if not 0 <= request.top_k <= facts.model.vocab_size:
        raise _invalid("top_k", f"must be from 0 to the vocabulary size {facts.model.vocab_size}, not {request.top_k}")
    asked = {
        Feature.TOP_K: request.top_k > 0,
        Feature.ENTROPY: request.entropy,
        Feature.CANDIDATE_IDS: any(sequence.candidate_ids is not None for sequence in request.sequences),
    }
    for feature, is_asked in asked.items():
        if is_asked and feature not in facts.features:
            raise UnprocessableError(
                f"the {facts.engine.name} engine cannot answer {feature}: leave it out, or run this teacher with "
                f"POTSTILL_TEACHER_ENGINE=torch",
                code=f"{feature}_unsupported",
            )
    if request.top_k > facts.max_top_k:
        raise _invalid("top_k", f"the {facts.engine.name} engine answers at most {facts.max_top_k}")


def _check_ids(field: str, ids: TokenIds, num_dimensions: int, vocab_size: int) -> None:
    if ids.ndim != num_dimensions:
        raise _invalid(field, f"must have {num_dimensions} dimensions, not {ids.ndim}")
    if ids.size and (int(ids.min()) < 0 or int(ids.max()) >= vocab_size):
        raise _invalid(field, f"holds ids outside the vocabulary of {vocab_size}")


def _check_candidates(where: str, sequence: Sequence, vocab_size: int) -> None:
    candidates, num_tokens = sequence.candidate_ids, len(sequence.response_token_ids)
    if candidates is None or (num_tokens == 0 and candidates.size == 0):
        return
    _check_ids(f"{where}.candidate_ids", candidates, 2, vocab_size)
    if len(candidates) != num_tokens:
        raise _invalid(
            f"{where}.candidate_ids", f"needs one row for each of {num_tokens} response tokens, not {len(candidates)}"
        )


def _check_length(where: str, sequence: Sequence, max_length: int) -> None:
    num_prompt, num_response = len(sequence.prompt_token_ids), len(sequence.response_token_ids)
    if num_response and not num_prompt:
        raise _invalid(
            f"{where}.prompt_token_ids", "is empty, so nothing predicts the first response token: send a start token"
        )
    if num_prompt + num_response > max_length:
        raise TooLargeError(
            f"{where} has {num_prompt} + {num_response} tokens and the model reads {max_length}: shorten the prompt "
            f"or the response, or raise POTSTILL_TEACHER_MAX_LENGTH if the model allows it",
            code="too_long",
        )


def _invalid(field: str, message: str) -> UnprocessableError:
    return UnprocessableError(f"{field}: {message}", code="invalid_request", errors=(FieldError(field, message),))
