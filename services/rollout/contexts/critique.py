"""A critique from an OpenAI-compatible server in the teacher's prompt.

Where none can be had the row is dropped, with the reason: a filler text in its place would be scored as if it were one.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections import OrderedDict

import httpx
import msgspec

from potstill.contracts.context import CritiqueContext
from potstill.contracts.problem import Message, Problem
from potstill.service.logs import get_logger
from services.rollout import metrics
from services.rollout.contexts.context import Context, filled, solution_of, with_last
from services.rollout.errors import Reason, TicketError

KEPT_CRITIQUES = 4096
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.25, 20.0
TOLD_CHARACTERS = 200
WORTH_ANOTHER_TRY = frozenset({408, 409, 425, 429, 500, 502, 503, 504})
log = get_logger("rollout")


class CritiqueFailedError(Exception):
    """The server gave no critique."""

    def __init__(self, message: str, *, again: bool, after: float | None = None) -> None:
        super().__init__(message)
        self.again, self.after = again, after


class ChatMessage(msgspec.Struct):
    content: str | None = None


class Choice(msgspec.Struct):
    message: ChatMessage


class ChatCompletion(msgspec.Struct):
    """What we read of an answer."""

    choices: list[Choice]


class Critique(Context):
    def __init__(self, spec: CritiqueContext) -> None:
        self.spec = spec
        self.reads_response = spec.reads_response
        self._free = asyncio.Semaphore(spec.concurrency)
        self._asked: OrderedDict[str, asyncio.Task[str]] = OrderedDict()  # by content; those under way too
        self._client = httpx.AsyncClient(base_url=spec.base_url.rstrip("/"), timeout=spec.timeout_seconds)

    async def close(self) -> None:
        for task in self._asked.values():
            task.cancel()
        await asyncio.gather(*self._asked.values(), return_exceptions=True)
        await self._client.aclose()

    async def messages(self, problem: Problem, response: str) -> tuple[Message, ...]:
        prompt = problem.prompt[-1].content
        shown = {"prompt": prompt, "response": response, "reference": problem.reference or ""}
        if self.spec.needs_solution:
            shown["solution"] = solution_of(problem)
        try:
            critique = await self._critique(filled(self.spec.request, **shown))
        except CritiqueFailedError as error:
            message = f"no critique of row {problem.id} from {self.spec.base_url}: {error}"
            raise TicketError(Reason.CRITIQUE, message) from error
        return with_last(problem.prompt, filled(self.spec.template, **shown, critique=critique))

    async def _critique(self, request: str) -> str:
        """One critique of one content, however many ask for it. Raises CritiqueFailedError."""
        key = hashlib.sha256(request.encode()).hexdigest()
        task = self._asked.get(key)
        if task is None:
            task = self._asked[key] = asyncio.create_task(self._ask_patiently(request))
            task.add_done_callback(lambda done: self._forget_failure(key, done))
        else:
            metrics.critiques.labels("cached").inc()
        self._asked.move_to_end(key)
        self._make_room()
        return await asyncio.shield(task)  # one who gives up takes it from nobody else

    def _forget_failure(self, key: str, task: asyncio.Task[str]) -> None:
        if task.cancelled() or task.exception() is not None:
            self._asked.pop(key, None)

    def _make_room(self) -> None:
        done = [key for key, task in self._asked.items() if task.done()]
        for key in done[: max(0, len(self._asked) - KEPT_CRITIQUES)]:
            del self._asked[key]

    async def _ask_patiently(self, request: str) -> str:
        pause = FIRST_PAUSE_SECONDS
        for attempt in range(1, self.spec.attempts + 1):
            try:
                async with self._free:
                    critique = await self._ask(request)
            except CritiqueFailedError as error:
                if not error.again or attempt == self.spec.attempts:
                    metrics.critiques.labels("failed").inc()
                    raise
                log.warning("a critique is asked for again", url=self.spec.base_url, reason=str(error))
                await asyncio.sleep(min(error.after or pause, LONGEST_PAUSE_SECONDS))
                pause *= 2
            else:
                metrics.critiques.labels("answered").inc()
                return critique
        raise AssertionError("the last attempt returns or raises")

    async def _ask(self, request: str) -> str:
        body = {
            "model": self.spec.model,
            "messages": [{"role": "user", "content": request}],
            "temperature": self.spec.temperature,
            "max_tokens": self.spec.critique_tokens,
        }
        try:
            async with asyncio.timeout(self.spec.timeout_seconds):
                response = await self._client.post("/chat/completions", json=body, headers=self._headers())
        except TimeoutError as error:
            raise CritiqueFailedError(f"no answer within {self.spec.timeout_seconds:g} s", again=True) from error
        except httpx.TransportError as error:
            raise CritiqueFailedError(str(error) or type(error).__name__, again=True) from error
        return _read(response)

    def _headers(self) -> dict[str, str]:
        name = self.spec.api_key_env
        if name is None:
            return {}
        if not os.environ.get(name):
            raise CritiqueFailedError(f"set {name} in the environment of the rollout worker", again=False)
        return {"Authorization": f"Bearer {os.environ[name]}"}


def _read(response: httpx.Response) -> str:
    if not response.is_success:
        advice = response.headers.get("retry-after", "")
        raise CritiqueFailedError(
            f"it answered {response.status_code}: {response.text[:TOLD_CHARACTERS]}",
            again=response.status_code in WORTH_ANOTHER_TRY,
            after=float(advice) if advice.isdigit() else None,
        )
    try:
        choices = msgspec.json.decode(response.content, type=ChatCompletion).choices
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CritiqueFailedError(f"its answer is no chat completion: {error}", again=False) from error
    text = (choices[0].message.content or "").strip() if choices else ""
    if not text:
        raise CritiqueFailedError("its answer is empty (a larger critique_tokens may help)", again=False)
    return text
