"""Student, teacher and verifier in one process that does nothing but wait: `python -m benchmarks.simulated`

They are at `/student`, `/teacher` and `/verifier`.
`SIMULATED_SECONDS` is how long the student takes to answer in the mean, from half of it to one and a half; the teacher
and the verifier take a quarter of it.
"""

from __future__ import annotations

import asyncio
import os
import random
from typing import Any

import numpy as np
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from potstill.contracts import wire
from potstill.contracts.arrays import LogProbs, TokenIds
from potstill.contracts.capabilities import Capabilities, EngineInfo, ModelInfo
from potstill.contracts.generation import FinishReason, GenerateRequest, GenerateResponse, PromptSamples, Sample
from potstill.contracts.scoring import ScoreRequest, ScoreResponse, SequenceScore
from potstill.contracts.verification import Verdict, VerifyRequest, VerifyResponse, VerifyResult

SECONDS = float(os.environ.get("SIMULATED_SECONDS", "0"))
MODEL = ModelInfo(os.environ.get("SIMULATED_MODEL", "simulated"), "main", 49152, "sha256:simulated", (2,), 2048)
ENGINE = EngineInfo("simulated", "0", "float32")
CAPABILITIES = {
    "student": Capabilities("student", "0", MODEL, ENGINE, {}, ("lora", "temperature", "top_k")),
    "teacher": Capabilities("teacher", "0", MODEL, ENGINE, {}, ("temperature", "candidate_ids", "top_k")),
    "verifier": Capabilities("verifier", "0", features=("math", "exact")),
}


def _answer(message: Any) -> Response:
    return Response(wire.encode(message), media_type=wire.MSGPACK)


async def generate(request: Request) -> Response:
    asked = wire.decode(await request.body(), GenerateRequest)
    await asyncio.sleep(SECONDS * random.uniform(0.5, 1.5))
    version = asked.policy.version if asked.policy else 0
    length = asked.sampling.max_tokens
    ids, logprobs = TokenIds.of(np.full(length, 100)), LogProbs.of(np.full(length, -1.0))
    sample = Sample(ids, logprobs, FinishReason.LENGTH, version)
    return _answer(GenerateResponse(tuple(PromptSamples((sample,) * prompt.n) for prompt in asked.prompts)))


async def score(request: Request) -> Response:
    asked = wire.decode(await request.body(), ScoreRequest)
    await asyncio.sleep(SECONDS / 4)
    lengths = [len(sequence.response_token_ids) for sequence in asked.sequences]
    return _answer(ScoreResponse(tuple(SequenceScore(LogProbs.of(np.full(length, -1.5))) for length in lengths)))


async def verify(request: Request) -> Response:
    asked = wire.decode(await request.body(), VerifyRequest)
    await asyncio.sleep(SECONDS / 4)
    return _answer(VerifyResponse(tuple(VerifyResult(item.id, Verdict.ACCEPTED, 1.0) for item in asked.items)))


async def capabilities(request: Request) -> Response:
    return _in_words(request, CAPABILITIES[request.path_params["service"]])


async def ready(request: Request) -> Response:
    return _in_words(request, {})


def _in_words(request: Request, message: Any) -> Response:
    media_type = wire.MSGPACK if wire.MSGPACK in request.headers.get("accept", "") else wire.JSON
    return Response(wire.encode(message, media_type), media_type=media_type)


app = Starlette(
    routes=[
        Route("/{service}/v1/generate", generate, methods=["POST"]),
        Route("/{service}/v1/score", score, methods=["POST"]),
        Route("/{service}/v1/verify", verify, methods=["POST"]),
        Route("/{service}/v1/capabilities", capabilities),
        Route("/{service}/readyz", ready),
    ]
)

if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=int(os.environ["POTSTILL_PORT"]), log_level="warning")
